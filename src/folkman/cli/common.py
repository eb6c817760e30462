"""What the commands share: exit codes, options, messages, tables, one progress bar, and how a command ends.

Nothing heavy is imported here, and no other folder of folkman: `folkman --help` answers at once.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "DISK",
    "DIVERGED",
    "FAILED",
    "INTERRUPTED",
    "WRONG_INPUT",
    "AsJson",
    "PlotFile",
    "Settings",
    "Track",
    "Update",
    "console",
    "ending_at_once",
    "leave",
    "plain",
    "print_json",
    "print_paths",
    "progress",
    "say",
    "stream",
    "time_left",
]

WRONG_INPUT, DIVERGED, DISK, FAILED, INTERRUPTED = 2, 3, 4, 5, 130
"""Exit codes: wrong input; a run diverged; the disk refused; a job failed; interrupted, and can be resumed."""


def _known(names: list[str] | None) -> list[str] | None:
    """Refuse a tracker that is unknown or not installed as soon as it is named."""
    if names:
        from folkman.experiment.trackers import check_packages

        check_packages(names)
    return names


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a key: --set network.gamma=10. May be repeated."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also log to tensorboard, mlflow or wandb. May be repeated.", callback=_known
    ),
]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", help="Draw a figure here (.png, .svg, .pdf).")
]


def say(text: object) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def stream(*, quiet: bool) -> TextIO:
    """Return where text for people goes: standard error if standard output is kept for JSON."""
    return sys.stderr if quiet else sys.stdout


def console(*, quiet: bool, width: int = 120) -> "Console":
    """Return a rich console on that stream; `width` is that of lines outside a terminal."""
    from rich.console import Console

    return Console(stderr=quiet, width=None if sys.stdout.isatty() else width)


def print_paths(paths: Iterable[Path], *, quiet: bool) -> None:
    """Print files that were written, one per line."""
    for path in paths:
        print(path, file=stream(quiet=quiet))


def print_json(answer: Any) -> None:
    """Print one JSON object as one line; refuse NaN, which JSON does not have."""
    print(json.dumps(answer, allow_nan=False))


def plain(error: OSError) -> str:
    """Return an error of the operating system in words, with the file that it is about."""
    return (
        f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)
    )


class Update(Protocol):
    """Shows how far the work is; see `progress`."""

    def __call__(
        self,
        done: float,
        doing: str = "",
        line: str = "",
        *,
        left_s: float | None = None,
        urgent: bool = False,
    ) -> None:
        """Show that `done` units are done."""
        ...


@contextmanager
def progress(total: float, unit: str, done: float = 0.0) -> Iterator[Update]:
    """Yield `show(done, doing, line)`: a bar on a terminal, plain lines elsewhere, both with the time left.

    `done` counts units (slots, runs, jobs) from 0 to `total`, and may be a fraction; what an earlier call did is given
    at the start. `doing` stands beside the bar. `line` is printed where there is no terminal; on a terminal only if it
    is `urgent`. The time left is estimated from the pace so far, unless the caller knows it (`left_s`).
    """
    began_s, first = time.monotonic(), done

    def left(at: float, known_s: float | None) -> str:
        if known_s is None and first < at < total:
            known_s = (time.monotonic() - began_s) * (total - at) / (at - first)
        return time_left(known_s)

    if not sys.stderr.isatty():

        def write(
            done: float,
            doing: str = "",
            line: str = "",
            *,
            left_s: float | None = None,
            urgent: bool = False,
        ) -> None:
            del doing, urgent
            if line:
                say("; ".join(filter(None, (line, left(done, left_s)))))

        yield write
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        "{task.completed:.4g} of {task.total:.4g}",
        unit,
        "{task.fields[left]}",
        "{task.description}",
    )
    shown = (BarColumn(), *map(TextColumn, columns))
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total, left="")
        bar.update(task, completed=done)

        def draw(
            done: float,
            doing: str = "",
            line: str = "",
            *,
            left_s: float | None = None,
            urgent: bool = False,
        ) -> None:
            bar.update(task, completed=done, left=left(done, left_s), description=doing)
            if line and urgent:
                bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield draw


def time_left(seconds: float | None) -> str:
    """Return a duration in words: "90 s left", "12 min left", "3.5 h left"; nothing if it is not known."""
    if seconds is None:
        return ""
    whole = round(seconds)
    text = (
        f"{whole} s"
        if whole < 120
        else f"{whole // 60} min"
        if whole < 7200
        else f"{whole / 3600:.1f} h"
    )
    return f"{text} left"


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process where compiled programs run; see `leave`."""
    try:
        yield
    except KeyboardInterrupt:
        leave("interrupted")


def leave(text: str) -> NoReturn:
    """Print a last message after Ctrl-C and end the process at once.

    A compiled program may still run in threads of its own. An orderly shutdown then ends in a segmentation fault;
    everything worth keeping is on disk by now.
    """
    say(text)
    sys.stdout.flush()
    os._exit(INTERRUPTED)
