"""The command line of rankings: `folkman rank`."""

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

if TYPE_CHECKING:
    from folkman.experiment.rank import Ranked
    from folkman.record.json_file import Json

__all__ = ["rank"]

WIDTH = 80


def rank(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Config = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="A method, or a label of the file; `configured`: those of the file. May be "
            "repeated; default all."
        ),
    ] = None,
    over: Over = None,
    budget: Budget = None,
    seeds: Seeds = None,
    judged: Annotated[
        str | None, typer.Option(help="Seeds to judge on; default 2000 to 2009.")
    ] = None,
    score: Score = "train_loss",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder; default ranks/DATE-TIME-NAME.")
    ] = None,
    store: Store = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted ranking folder.")
    ] = None,
    engine: Engine = "processes",
    workers: Workers = None,
    memory: Memory = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Rank methods, each at its own best step, at equal time, bits, gradients and joules.

    Every method is tuned by the search of `folkman tune`, then judged on fresh seeds.
    """
    from folkman.experiment.rank import carry_out_ranking, prepare_ranking

    crew = crew_of(engine, workers, memory, tls_ca, tls_cert, tls_key)
    numbers = [
        None if text is None else whole_numbers(text, option)
        for option, text in (("--seeds", seeds), ("--judged", judged))
    ]
    asked: Json = {"over": over or ("step",), "budget": budget, "score": score}
    asked |= {"methods": tuple(method or ("all",)), "seeds": numbers[0], "judged": numbers[1]}
    places: Json = {"out": out, "store": store, "resume": resume}
    prepared = prepare_ranking(config, **asked, settings=settings or (), **places)
    ranked = carried_out(prepared, crew, carry_out_ranking)
    _print(ranked, quiet=as_json)
    if as_json:
        print_json(ranked.answer())


def _print(ranked: "Ranked", *, quiet: bool) -> None:
    """Print the table, the map at equal time, and where things are."""
    from folkman.report.ranking import LEGEND, map_lines
    from folkman.report.tables import screen_table

    screen = common.console(quiet=quiet, width=WIDTH)
    heads, rows = ranked.rows()
    title = f"mean rank over {len(ranked.seeds)} fresh seeds at equal cost, 95 % interval"
    screen.print(screen_table("rp" + "r" * (len(heads) - 2), heads, rows, title))
    first = ranked.rankings[0]
    lines = [f"at equal time (Friedman p {first.friedman:.2g}):", *map_lines(first), "", LEGEND]
    if ranked.floor is not None:
        loss, least, best = ranked.floor
        lines.append(f"floor: no first-order method has a loss of {loss:.4g} before slot {least:g}")
        lines.append(f"       the best method had it in slot {best:g}")
    lines += [f"left out: {label}: {why}" for label, why in ranked.left_out.items()]
    lines += [f"folder  {ranked.folder}", f"next: folkman report {ranked.folder}"]
    for line in lines:
        screen.print(line, highlight=False, soft_wrap=True, markup=False)
