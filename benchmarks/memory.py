"""The memory and cores that all processes of a side use, and the cores of the whole machine.

A mark in the environment identifies the processes. Children inherit it, so that daemons count too.
Needs /proc of Linux; elsewhere both are unknown, and the memory is what the side itself reports.
"""

import os
import signal
import threading
import uuid
from contextlib import suppress
from pathlib import Path

__all__ = ["MemoryWatch", "busy_core_s", "new_mark"]

PROC = Path("/proc")
PERIOD_S = 0.3


def busy_core_s() -> float | None:
    """Return the core-seconds that all processes of the machine have used since it started."""
    try:
        fields = [
            int(field)
            for field in (PROC / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def new_mark() -> dict[str, str]:
    """Return a new mark: a variable for the environment of a side."""
    return {"FOLKMAN_BENCH_SIDE": uuid.uuid4().hex}


class MemoryWatch(threading.Thread):
    """Samples the marked processes until stopped; keeps the most memory they held together."""

    def __init__(self, mark: dict[str, str]) -> None:
        super().__init__(daemon=True)
        ((name, value),) = mark.items()
        self.mark = f"{name}={value}".encode()
        self.most_bytes = 0
        self.mine: set[str] = set()
        self.others: set[str] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while not self.stopped.wait(PERIOD_S):
            self.look()

    def look(self) -> None:
        """Find new processes of the mark, and sum up the memory of all."""
        here = {entry for entry in os.listdir(PROC) if entry.isdigit()} if PROC.is_dir() else set()
        self.others &= here
        for process in here - self.others - self.mine:
            told = _environment_of(process)
            if told:  # one that is just beginning has nothing to show yet: it is looked at again
                (self.mine if self.mark in told else self.others).add(process)
        self.mine &= here
        self.most_bytes = max(self.most_bytes, sum(map(_resident_bytes, self.mine)))

    def core_s(self) -> float:
        """Return the core-seconds that the marked processes that still run have used."""
        return sum(map(_core_s, self.mine))

    def end_all(self) -> None:
        """End what the side has left running."""
        self.look()
        for process in self.mine:
            with suppress(OSError):
                os.kill(int(process), signal.SIGKILL)


def _environment_of(process: str) -> bytes:
    """Return what a process was started with; nothing where it cannot be read."""
    try:
        return (PROC / process / "environ").read_bytes()
    except OSError:
        return b""


def _resident_bytes(process: str) -> int:
    try:
        return int((PROC / process / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, IndexError):
        return 0


def _core_s(process: str) -> float:
    try:
        fields = (PROC / process / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
