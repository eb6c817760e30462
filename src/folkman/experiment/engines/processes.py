"""Processes of this machine, each fresh and not forked, fed by lines of JSON."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, cast

from folkman.experiment.engines import Order, Started, Told, bounds, choose, lost
from folkman.experiment.jobs import memory_mb

__all__ = ["Processes"]

MOST_DEATHS = 3
RECYCLED_ABOVE = 0.8
"""A worker whose memory after a job is above this share of its limit is replaced."""
LOOK_EVERY_S = 0.2
WORKER = (sys.executable, "-m", "folkman.experiment.engines.worker")


class _Worker:
    """One process, what it is at, and the end of the pipe that it answers on."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors)
        self._input = cast(IO[bytes], self.process.stdin)
        self._output = cast(IO[bytes], self.process.stdout)
        self.replies = self._output.fileno()
        self.ready = False
        self.order: Order | None = None
        self.last: str | None = None
        self.over_mb = 0.0  # the memory for which it was ended
        self._heard = b""

    def give(self, order: Order) -> None:
        """Send an order; one that cannot be sent is found with the worker's death."""
        self.order, self.last = order, order["group"]
        with suppress(BrokenPipeError):
            self._input.write(json.dumps(order).encode() + b"\n")
            self._input.flush()

    def hear(self) -> tuple[list[Told], bool]:
        """Return the whole lines that came, and whether the worker is still there."""
        heard = os.read(self.replies, 1 << 16)
        *lines, self._heard = (self._heard + heard).split(b"\n")
        return [json.loads(line) for line in lines], bool(heard)

    def last_words(self) -> str:
        """Return the end of what it wrote outside jobs."""
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace").strip()

    def end(self, *, at_once: bool) -> None:
        """Close its input, which ends it; or kill it."""
        if at_once:
            self.process.kill()
        with suppress(OSError):
            self._input.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._output.close()
        self._errors.close()


class Processes:
    """Processes of this machine, each fresh and not forked; those that die or grow are replaced."""

    name = "processes"

    def __init__(
        self, workers: int, memory_limit_mb: float | None = None, command: Sequence[str] = WORKER
    ) -> None:
        self._number = workers
        self._memory_limit_mb = memory_limit_mb
        self._command = command
        self._workers: list[_Worker] = []
        self._shared: list[IO[bytes]] = []
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()

    @property
    def about(self) -> str:
        """Return how many processes there will be at a time, and the memory of each."""
        limit = self._memory_limit_mb
        return f"{self._number} processes here, {bounds([limit and limit * 1e6])}"

    def map(
        self, orders: Sequence[Order], started: Started, until_s: float | None = None
    ) -> Iterator[Told]:
        """Yield how each order ended. Workers are kept for the next call."""
        waiting, deaths = list(orders), dict.fromkeys((order["key"] for order in orders), 0)
        open_jobs = len(waiting)
        while open_jobs and (until_s is None or time.monotonic() < until_s):
            self._hire(len(waiting) + sum(worker.order is not None for worker in self._workers))
            self._hand_out(waiting, started)
            for told in self._listen(waiting, deaths):
                open_jobs -= 1
                yield told
            self._watch_memory()

    def share(self, content: bytes) -> str:
        """Return a file of this content, which is there until `close`."""
        file = tempfile.NamedTemporaryFile(prefix="folkman-shared-")  # noqa: SIM115 - see close
        self._shared.append(file)
        file.write(content)
        file.flush()
        return file.name

    def close(self) -> None:
        """End all workers at once; a job in the middle goes on from its checkpoint next time."""
        for worker in list(self._workers):
            self._dismiss(worker, at_once=True)
        self._selector.close()
        for file in self._shared:
            file.close()

    def _hire(self, wanted: int) -> None:
        while len(self._workers) < min(self._number, wanted):
            worker = _Worker(self._command)
            self._workers.append(worker)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)

    def _dismiss(self, worker: _Worker, *, at_once: bool) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.replies)
        worker.end(at_once=at_once)

    def _hand_out(self, waiting: list[Order], started: Started) -> None:
        for worker in self._workers:
            if waiting and worker.ready and worker.order is None:
                busy = [other.last for other in self._workers if other.order is not None]
                order = waiting.pop(choose(waiting, worker.last, busy))
                worker.give(order)
                started(order["key"], f"{os.uname().nodename}:{worker.process.pid}")

    def _listen(self, waiting: list[Order], deaths: dict[str, int]) -> Iterator[Told]:
        """Yield the jobs that ended since; take up those whose worker died."""
        for event, _ in self._selector.select(LOOK_EVERY_S):
            worker: _Worker = event.data
            lines, alive = worker.hear()
            for told in lines:
                self._failed_starts = 0
                if told.get("ready"):
                    worker.ready = True
                    continue
                worker.order = None
                yield told
                self._perhaps_replace(worker, told)
            if not alive and worker in self._workers:
                yield from self._bury(worker, waiting, deaths)

    def _perhaps_replace(self, worker: _Worker, told: Told) -> None:
        limit_mb = self._memory_limit_mb
        if limit_mb is not None and told["rss_mb"] > RECYCLED_ABOVE * limit_mb:
            self._dismiss(worker, at_once=False)

    def _bury(
        self, worker: _Worker, waiting: list[Order], deaths: dict[str, int]
    ) -> Iterator[Told]:
        """Let another worker take up what a dead one was at, or give the job up."""
        order, was_ready, over_mb = worker.order, worker.ready, worker.over_mb
        code, words = worker.process.wait(), worker.last_words()
        self._dismiss(worker, at_once=False)
        if not was_ready:
            self._failed_starts += 1
            if self._failed_starts >= MOST_DEATHS:
                raise RuntimeError(
                    f"workers do not start: {_cause(code)}; their last words: {words or 'none'}"
                )
        if order is None:
            return
        deaths[order["key"]] += 1
        if over_mb:
            limit = f"the limit of {self._memory_limit_mb:.0f} MB ({over_mb:.0f} MB)"
            yield lost(order, f"needed more than {limit}; raise --memory", over_mb)
        elif deaths[order["key"]] >= MOST_DEATHS:
            text = f"its worker died {MOST_DEATHS} times, last {_cause(code)}"
            yield lost(order, f"{text}; {words.splitlines()[-1]}" if words else text)
        else:
            waiting.insert(0, order)

    def _watch_memory(self) -> None:
        """End a worker that outgrows its limit in the middle of a job."""
        if self._memory_limit_mb is None:
            return
        for worker in self._workers:
            resident, _ = memory_mb(worker.process.pid)
            if resident > self._memory_limit_mb and not worker.over_mb and worker.order is not None:
                worker.over_mb = resident
                worker.process.kill()


def _cause(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    why = " (the system ends what exhausts its memory so)" if name == "SIGKILL" else ""
    return f"by signal {name}{why}"
