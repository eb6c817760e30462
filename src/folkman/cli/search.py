"""What `folkman tune` and `folkman rank` share: options, seeds, and how a search is run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from folkman.cli import common
from folkman.cli.common import say, stoppable
from folkman.cli.sweep import ending_on_term, job_progress, tell_failed

if TYPE_CHECKING:
    from folkman.experiment.batch import Watch
    from folkman.experiment.engines import Crew
    from folkman.record.store import SweepFolder

__all__ = ["Budget", "Over", "Score", "Seeds", "Store", "carried_out", "whole_numbers"]

Over = Annotated[
    list[str] | None,
    typer.Option(
        help="An option to tune: step, local_steps, momentum, or with values "
        "mixing=0.3,0.6,0.9. May be repeated; default step."
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(help="Runs of the search for each method; default what the grid takes."),
]
Seeds = Annotated[
    str | None, typer.Option(help="Seeds to tune on, none of the file's; default 1000 to 1003.")
]
Score = Annotated[
    str, typer.Option(help="train_loss, test_loss, test_accuracy or optimum_distance, at the end.")
]
Store = Annotated[
    Path | None, typer.Option(help="Where runs are kept, to share them; default OUT/jobs.")
]


class Prepared(Protocol):
    """A search that can begin."""

    @property
    def folder(self) -> "SweepFolder":
        """Return where its runs are kept."""
        ...

    @property
    def runs(self) -> int:
        """Return the most runs of it."""
        ...


Search = TypeVar("Search", bound=Prepared)
Found = TypeVar("Found")


def carried_out(
    prepared: Search,
    crew: "Crew",
    run: "Callable[[Search, Crew, Watch, Callable[[str], None]], Found]",
) -> Found:
    """Run a search with progress shown; when stopped, say how to go on."""
    from folkman.experiment.tune import Stopped

    again = prepared.folder.again()
    with stoppable(f"go on with: {again}"), ending_on_term():
        try:
            if not sys.stderr.isatty():  # the first lines come when a run has compiled and ended
                say(f"at most {prepared.runs} runs; a line for each as it ends")
            with job_progress(prepared.runs) as watch:
                return run(prepared, crew, watch, say)
        except Stopped as stop:
            if not stop.batch.failed:
                say(f"error: {stop}")
                sys.exit(common.DISK)
            tell_failed(stop.batch, prepared.folder, again)
            sys.exit(common.FAILED)


def whole_numbers(text: str, option: str = "--seeds") -> list[int]:
    """Read the seeds of an option."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} looks like 1000,1001, got '{text}'") from None
