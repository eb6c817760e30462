"""The pipe to the process of one side: an order or answer per line; see `opponents/protocol.py`.

RuntimeError
`- SideFailedError   a side answered with an error, ended, or did not answer in time
"""

import json
import os
import queue
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from benchmarks.memory import MemoryWatch, busy_core_s, new_mark

__all__ = ["Side", "SideFailedError"]

END_LIMIT_S = 20


class SideFailedError(RuntimeError):
    """A side of the benchmark failed, and why."""


def _environment() -> dict[str, str]:
    """Return the environment of a side: no cache of programs, no claim on the whole GPU."""
    kept = {
        name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"
    }
    return kept | {"PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Side:
    """A process that answers one line for each line."""

    def __init__(self, name: str, command: list[str], limit_s: float) -> None:
        self.name, self.limit_s = name, limit_s
        mark = new_mark()
        self.watch = MemoryWatch(mark)
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment() | mark,
        )
        self.watch.start()
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.last_errors: deque[str] = deque(maxlen=5)
        reads = (self._read_answers, self._read_errors)
        self.readers = [threading.Thread(target=read, daemon=True) for read in reads]
        for reader in self.readers:
            reader.start()
        try:
            self.version = str(self._answer().get("version"))
        except SideFailedError:
            self.end()
            raise
        self.startup_s = time.perf_counter() - begun
        self.memory_mb = 0.0

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Give an order and return the answer.

        With its wall-clock seconds and the cores that others used meanwhile.
        """
        busy, own, begun = busy_core_s(), self.watch.core_s(), time.perf_counter()
        self._send({"do": do, **more})
        found = self._answer()
        took, after = time.perf_counter() - begun, busy_core_s()
        foreign = None
        if busy is not None and after is not None:
            foreign = max(0.0, after - busy - (self.watch.core_s() - own)) / took
        self.watch.look()
        self.memory_mb = max(
            self.memory_mb, self.watch.most_bytes / 1e6, found.get("memory_mb", 0.0)
        )
        return {**found, "wall_s": took, "foreign_cores": foreign}

    def end(self) -> None:
        """Ask the process to end, and make it if it does not."""
        try:
            self._send({"do": "end"})
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(END_LIMIT_S)
        self.watch.stopped.set()
        self.watch.join()
        deadline = time.monotonic() + END_LIMIT_S
        self.watch.end_all()
        while not self._all_read(0.1) and time.monotonic() < deadline:
            self.watch.end_all()  # a process that has just begun does not show its mark yet
        if not self._all_read():
            return  # somebody without the mark holds a pipe open: closing it would wait for them
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):
                pipe.close() if pipe else None

    def _all_read(self, wait_s: float = 0.0) -> bool:
        """Tell whether both pipes have come to their ends."""
        for reader in self.readers:
            reader.join(wait_s)
        return not any(reader.is_alive() for reader in self.readers)

    def _send(self, order: dict[str, Any]) -> None:
        if self.process.stdin is None:
            return
        with suppress(OSError):  # the process has ended: the answer will be missing
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def _read_answers(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line)
        self.lines.put(None)

    def _read_errors(self) -> None:
        for line in self.process.stderr or ():
            self.last_errors.append(line)

    def _answer(self) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=self.limit_s)
        except queue.Empty:
            raise SideFailedError(
                f"'{self.name}' did not answer within {self.limit_s:.0f} s"
            ) from None
        if line is None:
            self.process.wait(END_LIMIT_S)
            self.readers[1].join(1.0)  # what it printed last may still be on its way
            errors = " / ".join(line.strip() for line in self.last_errors)
            raise SideFailedError(
                f"'{self.name}' ended with {self.process.returncode}: {errors[-300:]}"
            )
        try:
            found = json.loads(line)
        except ValueError:
            raise SideFailedError(
                f"'{self.name}' answered what is not JSON: {line[:200]!r}"
            ) from None
        if "error" in found:
            raise SideFailedError(found["error"])
        return found
