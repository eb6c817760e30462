"""What the commands share: exit codes, options, messages, tables, a progress bar, how they end.

Nothing heavy is imported here, and no other folder of folkman: `folkman --help` answers at once.
"""

import errno
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread, Timer, main_thread
from typing import TYPE_CHECKING, Annotated, NoReturn, Protocol, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "DISK",
    "DIVERGED",
    "FAILED",
    "FAULTS",
    "INTERRUPTED",
    "WRONG_INPUT",
    "AsJson",
    "Config",
    "PlotFile",
    "Settings",
    "Track",
    "Update",
    "begin",
    "columns",
    "console",
    "ending_at_once",
    "folded",
    "leave",
    "of_own_code",
    "outcome",
    "plain",
    "print_json",
    "print_paths",
    "progress",
    "say",
    "stoppable",
    "stream",
    "time_left",
]

WRONG_INPUT, DIVERGED, DISK, FAILED, INTERRUPTED = 2, 3, 4, 5, 130
"""Exit codes: wrong input; a run diverged; the disk refused; a job failed; interrupted, and can be
resumed."""


def _known(names: list[str] | None) -> list[str] | None:
    """Refuse a tracker that is unknown or not installed as soon as it is named."""
    if names:
        from folkman.experiment.trackers import check_packages

        check_packages(names)
    return names


Config = Annotated[
    Path | None, typer.Argument(help="A TOML file; without one, the default comparison.")
]
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
    """Print text on standard error; on a terminal it is folded to the width."""
    lines = str(text).split("\n")
    if sys.stderr.isatty():
        width = _width_of(sys.stderr)
        lines = [part for line in lines for part in folded(line, width)]
    print("\n".join(lines), file=sys.stderr, flush=True)


def folded(line: str, width: int) -> list[str]:
    """Return a line for a terminal: its later parts are set in, and paths stay whole."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _width_of(place: TextIO) -> int:
    """Return the columns of the terminal that a stream goes to; 80 where it does not say."""
    try:
        return os.get_terminal_size(place.fileno()).columns or 80
    except (OSError, ValueError):  # not a terminal after all, as in a test
        return 80


def stream(*, quiet: bool) -> TextIO:
    """Return where text for people goes: standard error if standard output is kept for JSON."""
    return sys.stderr if quiet else sys.stdout


def begin(text: str) -> None:
    """Say on a terminal that work has begun, before the packages that take seconds to import."""
    if sys.stderr.isatty():
        say(text)


def columns(*, quiet: bool, width: int = 120) -> int:
    """Return the width of the terminal that text for people goes to; `width` outside of one."""
    place = stream(quiet=quiet)
    if not place.isatty():
        return width
    return _width_of(place)


def console(*, quiet: bool, width: int = 120) -> "Console":
    """Return a rich console on that stream; `width` is that of lines outside a terminal."""
    from rich.console import Console

    return Console(stderr=quiet, width=None if sys.stdout.isatty() else width)


def print_paths(paths: Iterable[Path], *, quiet: bool) -> None:
    """Print files that were written, one per line."""
    for path in paths:
        print(path, file=stream(quiet=quiet))


def print_json(answer: object) -> None:
    """Print one JSON object as one line; refuse NaN, which JSON does not have."""
    print(json.dumps(answer, allow_nan=False))


REMEDIES = {
    errno.ENOENT: "check the path, or make its folder first",
    errno.EEXIST: "choose another name",
    errno.ENOTDIR: "a part of this path is a file; choose another",
    errno.EISDIR: "this is a folder; name a file",
    errno.EACCES: "check its permissions, or choose another place",
    errno.ELOOP: "its links lead back to it; name the file itself",
}
"""Error of the operating system -> what to do."""


def plain(error: OSError) -> str:
    """Return an error of the operating system in words: the file that it is about, what to do."""
    if not (error.strerror and error.filename):
        return str(error)
    remedy = REMEDIES.get(error.errno or 0)
    return f"{error.strerror}: {error.filename}" + (f"; {remedy}" if remedy else "")


FAULTS = (OSError, ModuleNotFoundError, ValueError, RuntimeError, OverflowError)
"""Errors that are told in a sentence; others are faults of the program and keep their traceback,
unless own code made them."""


NOT_HERE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
MISNAMED = (*NOT_HERE, PermissionError)
"""Errors of the disk that another path mends."""


def of_own_code(error: BaseException) -> str | None:
    """Return a sentence on an error that own code made; None if it is none of own code's."""
    if "folkman.config.plugins" not in sys.modules:  # no own code was imported
        return None
    from folkman.config.own_faults import told

    return told(error)


def outcome(error: Exception) -> tuple[str, int]:
    """Return an error in a sentence, and the exit code that it ends a command with."""
    if own := of_own_code(error):
        return own, WRONG_INPUT
    if isinstance(error, MISNAMED) or (isinstance(error, OSError) and error.errno == errno.ELOOP):
        return plain(error), WRONG_INPUT
    if isinstance(error, OSError):
        return f"{plain(error)}; files are never written half, so what is there is whole", DISK
    if isinstance(error, ModuleNotFoundError):  # a node's installation has no simulator
        remedy = (
            "pip install 'folkman-node[jax]' brings what NumPy does not compute"
            if error.name in ("jax", "optax")
            else "pip install folkman brings all commands"
        )
        return f"this needs '{error.name}', which is not installed here; {remedy}", WRONG_INPUT
    return str(error), WRONG_INPUT


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


BEAT_S = 10.0
"""Seconds after which a line is due where nothing else is said; see `progress`."""


class _Beat(Thread):
    """Says where the work is whenever nothing was said for `BEAT_S`: a pipe has no bar."""

    def __init__(self, total: float, unit: str) -> None:
        super().__init__(daemon=True)
        self._whole = f"of {total:.4g} {unit}"
        self._at = ""
        self._said_s = time.monotonic()
        self._ended = Event()

    def note(self, done: float, doing: str, left: str) -> None:
        """Note where the work is."""
        self._at = "; ".join(filter(None, (f"{doing}: {done:.4g} {self._whole}", left)))

    def said(self) -> None:
        """Note that a line was printed."""
        self._said_s = time.monotonic()

    def run(self) -> None:
        """Print a line whenever one is due."""
        while not self._ended.wait(max(0.01, self._said_s + BEAT_S - time.monotonic())):
            if time.monotonic() >= self._said_s + BEAT_S:
                say(self._at or "starting: the first time, programs are compiled")
                self.said()

    def end(self) -> None:
        """Print no more."""
        self._ended.set()
        self.join()


@contextmanager
def progress(
    total: float, unit: str, done: float = 0.0, *, guess: bool = True, beats: bool = False
) -> Iterator[Update]:
    """Yield `show(done, doing, line)`: a bar on a terminal, plain lines elsewhere.

    Both show the time left. With `beats` there is a line every ten seconds where there is no
    terminal and nothing else was said.

    `done` counts units (slots, runs, jobs) from 0 to `total`, and may be a fraction; what an
    earlier call did is given at the start. `doing` stands beside the bar. `line` is printed where
    there is no terminal; on a terminal only if it is `urgent`. The time left is what the caller
    says (`left_s`), else with `guess` an estimate from the pace so far.
    """
    began_s, first = time.monotonic(), done
    bar = _bar(unit) if sys.stderr.isatty() else None
    beat = _Beat(total, unit) if beats and bar is None else None
    with bar or _beating(beat):
        task = bar.add_task("starting", total=total, left="") if bar else None
        if bar and task is not None:
            bar.update(task, completed=done)

        def show(
            done: float,
            doing: str = "",
            line: str = "",
            *,
            left_s: float | None = None,
            urgent: bool = False,
        ) -> None:
            if guess and left_s is None and first < done < total:
                left_s = (time.monotonic() - began_s) * (total - done) / (done - first)
            left = time_left(left_s)
            if bar is None or task is None:
                if beat is not None:
                    beat.note(done, doing, left)
                if line:
                    say("; ".join(filter(None, (line, left))))
                    if beat is not None:
                        beat.said()
                return
            bar.update(task, completed=done, left=left, description=doing)
            if line and urgent:
                bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

        yield show


@contextmanager
def _beating(beat: _Beat | None) -> Iterator[None]:
    """Let a beat be heard; None is silent."""
    if beat is None:
        yield
        return
    beat.start()
    try:
        yield
    finally:
        beat.end()


def _bar(unit: str) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    done = "{task.completed:.4g} of {task.total:.4g}"
    columns = map(TextColumn, (done, unit, "{task.fields[left]}", "{task.description}"))
    return Progress(BarColumn(), *columns, console=Console(stderr=True), transient=True)


def time_left(seconds: float | None) -> str:
    """Return a duration in words: "90 s left", "12 min left", "3.5 h left".

    Nothing if it is not known.
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s left"
    return f"{whole // 60} min left" if whole < 7200 else f"{whole / 3600:.1f} h left"


@contextmanager
def ending_at_once(advice: str = "") -> Iterator[None]:
    """Let Ctrl-C end the process where compiled programs run, with advice if any; see `leave`."""
    try:
        with _no_interrupt_lost():
            yield
    except KeyboardInterrupt:
        leave(f"interrupted; {advice}" if advice else "interrupted")


@contextmanager
def _no_interrupt_lost() -> Iterator[None]:
    """Interrupt again where Ctrl-C came while Python was called back by the garbage collector.

    JAX has such a callback. What is raised in it is reported and dropped, so that a command would
    go on as if nobody had asked it to stop. An error that covers an interrupt is one, too: half an
    archive, for one, cannot be closed.
    """
    report = sys.unraisablehook

    def told(dropped: "sys.UnraisableHookArgs") -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            report(dropped)
            return
        # a true signal: `interrupt_main` would wait for a sleep or a lock of the main thread to end
        again = Timer(0.05, signal.pthread_kill, (main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = told
    try:
        yield
    except Exception as error:
        if _covers_an_interrupt(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        sys.unraisablehook = report


def _covers_an_interrupt(error: BaseException | None) -> bool:
    """Tell whether an error was raised while an interrupt was on its way."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def stoppable(advice: str) -> Iterator[None]:
    """End with a sentence and an exit code when interrupted, or when the disk refuses."""
    try:
        with _no_interrupt_lost():
            yield
    except KeyboardInterrupt:
        leave(f"interrupted; {advice}")
    except (FileNotFoundError, FileExistsError, PermissionError):
        raise
    except OSError as error:
        say(f"error: {plain(error)}; what was written is whole; free the disk, then {advice}")
        sys.exit(DISK)


def leave(text: str) -> NoReturn:
    """Print a last message after Ctrl-C and end the process at once.

    A compiled program may still run in threads of its own. An orderly shutdown then ends in a
    segmentation fault; everything worth keeping is on disk by now.
    """
    say(text)
    sys.stdout.flush()
    os._exit(INTERRUPTED)
