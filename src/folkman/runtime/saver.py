"""Writes a node's newest state beside its learning; a slow or full disk costs saves, never slots."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from folkman.runtime import state as saved
from folkman.runtime.node import Node, ServerNode
from folkman.runtime.telemetry import Logger

__all__ = ["Saver"]


class Saver:
    """One slot for what is to be written: the newest wins."""

    def __init__(self, path: Path, fingerprint: str, every_s: float, logger: Logger) -> None:
        self._path, self._fingerprint, self._every_s, self._logger = path, fingerprint, every_s, logger
        self._next: dict[str, Any] | None = None
        self._filled = threading.Condition()
        self._writing = threading.Lock()
        self._last_s = time.monotonic()
        self._closed = False
        self.steps = 0  # of the last save
        self.counts: Counter[str] = Counter(saves=0, saves_failed=0)

    def maybe(self, node: Node | ServerNode) -> None:
        """Take the newest state now and then; called by the learner, and returns at once."""
        if time.monotonic() - self._last_s >= self._every_s:
            self._last_s = time.monotonic()
            arrays = saved.pack(node)
            with self._filled:
                self._next = arrays
                self._filled.notify()

    def now(self, node: Node | ServerNode) -> bool:
        """Write the state before going on; tell whether the disk took it."""
        with self._filled:
            self._next = None
        return self._write(saved.pack(node))

    def work(self) -> None:
        """Write what comes, until closed: the saver's thread."""
        while not self._closed:
            with self._filled:
                self._filled.wait_for(lambda: self._next is not None or self._closed)
                arrays, self._next = self._next, None
            if arrays is not None:
                self._write(arrays)

    def close(self) -> None:
        """End the thread."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()

    def _write(self, arrays: dict[str, Any]) -> bool:
        """Write a state that is finite; one that is not would make the last good one unreachable."""
        if not np.isfinite(arrays["params"]).all():
            return False
        try:
            with self._writing:
                saved.write_arrays(self._path, arrays, self._fingerprint)
        except OSError as error:
            self.counts["saves_failed"] += 1
            self._logger.say("not saved", level="error", reason="disk", text=str(error))
            return False
        self.counts["saves"] += 1
        self.steps = int(arrays["counters"][1])
        return True
