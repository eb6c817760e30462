"""The command line of the benchmark: `python -m benchmarks`."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from benchmarks.tasks import Work

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def benchmark(  # noqa: PLR0913, PLR0917 - what may be asked for, by name
    names: Annotated[list[str] | None, typer.Argument(help="More works or opponents.")] = None,
    work: Annotated[
        list[str] | None, typer.Option(help="W1, W1m, W2, W2a, W3, W4, W5; all without it.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="torch, jax, flower, fedjax, pfl, gossipy, or none; all without it."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="A configuration of your own: each of its methods is a work.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key of it: network.name=ideal.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer works, rounds and repetitions: five minutes.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Write the page of kept results anew, and end.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Repetitions of each side, of which the median counts; 5."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File of results; default runs/bench-DATE-TIME.json.")
    ] = None,
    environments: Annotated[
        Path | None,
        typer.Option(help="Where the opponents' environments are; default in the user's cache."),
    ] = None,
    limit_s: Annotated[
        float, typer.Option(help="Longest that one answer of a side may take.")
    ] = 3600.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object as the last line.")
    ] = False,
) -> None:
    """Measure folkman and others at the same work: interleaved, medians, separate environments.

    Several works or opponents may follow one option: python -m benchmarks --work W1 W2 --against
    torch jax. With --config F the works are those of a configuration: its model, data, nodes,
    batch and network.
    """
    from rich.console import Console

    from benchmarks.environments import default_folder
    from benchmarks.results import QUICK_TIMES, Asked, choose, write_results
    from benchmarks.runs import Settings
    from benchmarks.tables import table

    if page:
        from benchmarks.results_page import KEPT, PAGE, write_page

        write_page(KEPT, PAGE)
        print(f"page     {PAGE}")
        return
    asked = Asked(config, tuple(settings or ()), quick)
    works, opponents = choose(work or [], against or [], names or [], asked)
    times = rounds or (QUICK_TIMES if quick else 5)
    target = out or Path("runs") / f"bench-{datetime.now():%Y%m%d-%H%M%S}.json"
    how = Settings(times, environments or default_folder(), limit_s, _say)
    console = Console(stderr=as_json, width=None if sys.stdout.isatty() else 160)

    def show(done: "Work", found: dict[str, Any]) -> None:
        console.print(table(done, found))

    results = write_results(works, opponents, how, target, show)
    console.print(f"results  {target}", highlight=False, soft_wrap=True, markup=False)
    if as_json:
        print(json.dumps(results, allow_nan=False))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
