"""What libraries print, as lines of the node's log: a log is JSON from its first line to its last.

Rust prints warnings in colours to standard output, Python its warnings and the tracebacks of
threads to standard error, C libraries to either. While a node runs, both go into a pipe, and a
thread writes what comes out of it as events of the log:

    zenoh    a line of zenoh's own log: level, `target` (the part of zenoh) and text
    output   anything else, some lines together

The log itself goes where standard error went before. Nothing is captured where a person reads
standard error on a terminal. What native code prints as it dies may be lost with the thread, so
faults are written to a file of the node's folder by Python's `faulthandler`.
"""

import faulthandler
import fcntl
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from folkman.runtime.disk import for_owner
from folkman.runtime.rate_limit import RateLimit
from folkman.runtime.telemetry import Logger

__all__ = ["Captured", "captured", "is_on", "level_of", "watch_for_faults"]

PIPE_BYTES = 1 << 20
"""Room for what is printed while Python does something else."""
MOST_TEXT = 8192
"""Of one event."""
SETTLE_S = 0.05
"""Between a first line and its event: lines that belong together come together."""
OUTPUTS_PER_S, OUTPUTS_AT_ONCE = 1.0, 50.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ZENOH = re.compile(
    r"^\S+Z\s+(?P<level>ERROR|WARN|INFO|DEBUG|TRACE)\s+(?P<thread>.*?)\s?"
    r"(?P<target>zenoh[\w]*(?:::\w+)*):\s+(?P<text>.*)$"
)
_LEVELS = {"ERROR": "error", "WARN": "warning", "INFO": "info", "DEBUG": "debug", "TRACE": "debug"}
ORDINARY = ("Scouting delay elapsed before start conditions are met", "Gossip is disabled:")
"""How lines begin that zenoh warns of at every start, since nodes dial the peers that they are
given: the first is said until the others have started as well."""

_on = threading.Event()


def is_on() -> bool:
    """Tell whether what libraries print becomes part of the log."""
    return _on.is_set()


class Captured:
    """Standard output and error of this process, turned into a pipe. `log` is where they went."""

    def __init__(self) -> None:
        self._kept = os.dup(1), os.dup(2)
        self.log: TextIO = os.fdopen(os.dup(2), "w")
        self._read, write = os.pipe2(os.O_CLOEXEC)
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        for number in (1, 2):
            os.dup2(write, number)
        os.close(write)
        self._logger: Logger | None = None
        self._pace = RateLimit(OUTPUTS_PER_S, OUTPUTS_AT_ONCE)
        self._left_out = 0
        self._thread = threading.Thread(target=self._carry, name="captured", daemon=True)
        self._thread.start()
        _on.set()

    def tell(self, logger: Logger) -> None:
        """Let a log have what is printed; until now it has waited in the pipe."""
        self._logger = logger

    def close(self) -> None:
        """Put standard output and error back, and write what is left."""
        _on.clear()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        self._thread.join(1.0)

    def _carry(self) -> None:
        """Read until nobody can print into the pipe any more."""
        rest = b""
        while block := os.read(self._read, 1 << 16):
            time.sleep(SETTLE_S)
            rest = self._say_lines(rest + block)
        self._say_lines(rest + b"\n")
        os.close(self._read)

    def _say_lines(self, data: bytes) -> bytes:
        """Log whole lines; return what is not yet one."""
        whole, _, rest = data.rpartition(b"\n")
        plain: list[str] = []
        for line in whole.decode(errors="replace").splitlines():
            bare = _COLOUR.sub("", line).rstrip()
            found = _ZENOH.match(bare)
            if found is None:
                plain += [bare] if bare else []
                continue
            self._say_output(plain)
            plain = []
            self._log(
                "zenoh",
                level=level_of(found["level"], found["text"]),
                reason=found["target"],
                text=found["text"][:MOST_TEXT],
            )
        self._say_output(plain)
        return rest[-MOST_TEXT:]

    def _say_output(self, lines: list[str]) -> None:
        if not lines:
            return
        if not self._pace.takes(time.monotonic()):
            self._left_out += len(lines)
            return
        more = {"lines_left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        self._log("output", level="warning", text="\n".join(lines)[-MOST_TEXT:], **more)

    def _log(self, event: str, **fields: object) -> None:
        end_s = time.monotonic() + 10.0
        while self._logger is None and is_on() and time.monotonic() < end_s:
            time.sleep(SETTLE_S)
        if self._logger is not None:
            self._logger.say(event, **fields)  # type: ignore[arg-type]


def level_of(word: str, text: str) -> str:
    """Return the level of a line of zenoh's in the node's log, by its own word for it."""
    return "info" if word == "WARN" and text.startswith(ORDINARY) else _LEVELS[word]


@contextmanager
def captured() -> Iterator[Captured | None]:
    """Capture what is printed, unless a person reads it or there is nothing to print to."""
    made = _begun()
    try:
        yield made
    finally:
        if made is not None:
            made.close()


def _begun() -> Captured | None:
    try:
        return None if sys.stderr.fileno() != 2 or sys.stderr.isatty() else Captured()
    except (OSError, ValueError, AttributeError):  # closed, or a stream in memory
        return None


def watch_for_faults(path: Path, logger: Logger) -> TextIO | None:
    """Let faults of native code, and SIGUSR1, write where every thread is to a file.

    Log what an earlier life left there.
    """
    try:
        before = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if before:
            logger.say("died before", level="error", text=before[-MOST_TEXT:], file=path.name)
            path.replace(path.with_suffix(".before.txt"))
        file = open(path, "a", opener=for_owner, encoding="utf-8")  # noqa: SIM115 - for good
    except OSError:
        return None
    faulthandler.enable(file)
    return file
