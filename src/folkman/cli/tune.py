"""The command line of tuning: `folkman tune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Config, Settings, print_json
from folkman.cli.search import (
    Budget,
    Over,
    Score,
    Seeds,
    Store,
    carried_out,
    whole_numbers,
)
from folkman.cli.sweep import Engine, Memory, TlsCa, TlsCert, TlsKey, Workers, crew_of
from folkman.record.run import jsonable

if TYPE_CHECKING:
    from folkman.experiment.tuned import Tuned
    from folkman.record.json_file import Json

__all__ = ["tune"]


def tune(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Config = None,
    over: Over = None,
    budget: Budget = None,
    seeds: Seeds = None,
    score: Score = "train_loss",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default CONFIG-tuned.toml.")
    ] = None,
    store: Store = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted tuning folder.")
    ] = None,
    engine: Engine = "processes",
    workers: Workers = None,
    memory: Memory = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Find each method's own best step, and other options, by one search on other seeds.

    Writes a configuration that `folkman run` takes. Every method has the same budget of runs.
    """
    from folkman.experiment.tune import carry_out_tuning, prepare_tuning

    crew = crew_of(engine, workers, memory, tls_ca, tls_cert, tls_key)
    numbers = None if seeds is None else whole_numbers(seeds)
    asked: Json = {"over": over or ("step",), "budget": budget, "seeds": numbers, "score": score}
    places: Json = {"out": out, "store": store, "resume": resume}
    prepared = prepare_tuning(config, **asked, settings=settings or (), **places)
    tuned = carried_out(prepared, crew, carry_out_tuning)
    _print(tuned, quiet=as_json)
    if as_json:
        print_json(_answer(tuned))


def _print(tuned: "Tuned", *, quiet: bool) -> None:
    """Print the table, what else there is to say, and where things are."""
    from folkman.report.tables import screen_table

    screen = common.console(quiet=quiet, width=140)
    heads, rows = tuned.rows()
    seeds = ", ".join(map(str, tuned.seeds))
    title = f"{tuned.score.replace('_', ' ')} at the end, mean over the seeds {seeds}"
    screen.print(screen_table("l" + "r" * (len(heads) - 1), heads, rows, title))
    lines = [*tuned.notes(), f"at most {tuned.budget} runs for each method"]
    lines += [f"folder  {tuned.folder}", f"file  {tuned.file}"]
    lines.append(f"next: folkman run {tuned.file}")
    for line in lines:
        screen.print(line, highlight=False, soft_wrap=True, markup=False)


def _answer(tuned: "Tuned") -> "Json":
    """Return the tuning as one JSON object."""
    methods = [
        each._asdict() | {"score": jsonable(each.score), "score_before": each.score_before}
        for each in tuned.methods
    ]
    places = {"file": str(tuned.file), "folder": str(tuned.folder)}
    search = {"score": tuned.score, "seeds": list(tuned.seeds), "budget": tuned.budget}
    return places | search | {"skipped": dict(tuned.skipped), "methods": methods}
