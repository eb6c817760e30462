"""The command line of tuning: `folkman tune`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Settings, print_json, say, stoppable
from folkman.cli.sweep import (
    Engine,
    Memory,
    TlsCa,
    TlsCert,
    TlsKey,
    Workers,
    crew_of,
    ending_on_term,
    job_progress,
    tell_failed,
)
from folkman.record.run import jsonable

if TYPE_CHECKING:
    from folkman.experiment.engines import Crew
    from folkman.experiment.tune import PreparedTuning
    from folkman.experiment.tuned import Tuned
    from folkman.record.json_file import Json

__all__ = ["tune", "whole_numbers"]


def tune(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; without one, the default comparison.")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="An option to tune: step, local_steps, momentum, or with values "
            "mixing=0.3,0.6,0.9. May be repeated; default step."
        ),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Runs for each method; default what the grid takes.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds to tune on, none of the file's; default 1000,1001.")
    ] = None,
    score: Annotated[
        str,
        typer.Option(help="train_loss, test_loss, test_accuracy or optimum_distance, at the end."),
    ] = "train_loss",
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default CONFIG-tuned.toml.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Where runs are kept, to share them; default OUT/jobs.")
    ] = None,
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
    from folkman.experiment.tune import prepare_tuning

    crew = crew_of(engine, workers, memory, tls_ca, tls_cert, tls_key)
    numbers = None if seeds is None else whole_numbers(seeds)
    asked: Json = {"over": over or ("step",), "budget": budget, "seeds": numbers, "score": score}
    places: Json = {"out": out, "store": store, "resume": resume}
    prepared = prepare_tuning(config, **asked, settings=settings or (), **places)
    tuned = _carried_out(prepared, crew)
    _print(tuned, quiet=as_json)
    if as_json:
        print_json(_answer(tuned))


def _carried_out(prepared: "PreparedTuning", crew: "Crew") -> "Tuned":
    """Tune with progress shown; when stopped, say how to go on."""
    from folkman.experiment.tune import Stopped, carry_out_tuning

    again = prepared.folder.again()
    with stoppable(f"go on with: {again}"), ending_on_term():
        try:
            with job_progress(prepared.runs) as watch:
                return carry_out_tuning(prepared, crew, watch, say)
        except Stopped as stop:
            if not stop.batch.failed:
                say(f"error: {stop}")
                sys.exit(common.DISK)
            tell_failed(stop.batch, prepared.folder, again)
            sys.exit(common.FAILED)


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


def whole_numbers(text: str, option: str = "--seeds") -> list[int]:
    """Read the seeds of an option."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} looks like 1000,1001, got '{text}'") from None
