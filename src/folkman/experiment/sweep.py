"""A sweep: every job of a plan, each once in a lifetime of its store, on whatever engine.

    sweep(plan, SweepFolder.create(...), Processes(2), watch)

What is finished is never run again, by this sweep or another on the same store. A job that another sweep is at is left
to it and looked at again. The index is renewed as jobs end, so that whoever looks sees how the sweep stands.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple, TypeAlias

from folkman.config.own_code import digests
from folkman.config.plugins import check_unchanged, title
from folkman.experiment.engines.processes import Engine, Told
from folkman.experiment.jobs import order_for
from folkman.experiment.plan import Plan
from folkman.record.store import ENDED, Store, SweepFolder, ended, now
from folkman.record.table import save_results

__all__ = ["Outcome", "Watch", "sweep"]

INDEX_EVERY_S = 1.0
INDEX_SHARE = 0.02
"""Most of a sweep's time that writing its index may take; that of a very large sweep is renewed less often."""
BUSY_WAIT_S = 1.0


class Progress(NamedTuple):
    """How a sweep stands when a job has ended."""

    job: Mapping[str, Any]  # its entry of the index
    done: int
    in_all: int
    left_s: float | None  # until the end, as far as can be told


Watch: TypeAlias = Callable[[Progress], None]
"""Told of every job that ended."""


class Outcome(NamedTuple):
    """How a sweep ended: the entries of its index, and how it stands."""

    state: str  # finished, failed, stopped
    jobs: list[dict[str, Any]]
    disk: str = ""  # what the disk said

    def having(self, state: str) -> list[dict[str, Any]]:
        """Return the jobs in a state."""
        return [job for job in self.jobs if job["state"] == state]


def sweep(
    plan: Plan,
    folder: SweepFolder,
    engine: Engine,
    watch: Watch = lambda _: None,
    track: Sequence[str] = (),
) -> Outcome:
    """Run what is not finished, keep the index, and gather the results."""
    check_unchanged(folder.own_code())
    store = Store(folder.store_root)
    board = _Board(plan, folder, store, engine.name)
    orders = {job.key: order_for(job, folder, store, plan.name, track) for job in plan.jobs}
    waiting = [key for key in orders if board.entries[key]["state"] not in ENDED]
    state = "stopped"
    try:
        board.write("running")
        disk = _run(waiting, orders, board, engine, watch)
        failed = any(entry["state"] == "failed" for entry in board.entries.values())
        state = "stopped" if disk else "failed" if failed else "finished"
        if not disk:
            board.write(state)
            save_results(folder)
    finally:
        board.close(state)
    return Outcome(state, list(board.entries.values()), disk)


def _run(
    waiting: list[str], orders: Mapping[str, Mapping[str, Any]], board: "_Board", engine: Engine, watch: Watch
) -> str:
    """Map until nothing waits; return what the disk said if it refused."""
    while waiting:
        busy = []
        for told in engine.map([orders[key] for key in waiting], board.started):
            if told["state"] == "disk":
                return told["message"]
            if told["state"] == "busy":
                board.entries[told["key"]].update(state="running", message=told["message"])
                busy.append(told["key"])
                continue
            watch(board.ended(told))
        waiting = busy
        if busy:
            time.sleep(BUSY_WAIT_S)
    return ""


class _Board:
    """The index while it changes."""

    def __init__(self, plan: Plan, folder: SweepFolder, store: Store, engine: str) -> None:
        self._folder = folder
        own_code = {path: digest for job in plan.jobs for path, digest in digests(job.config).items()}
        self._facts = {
            "name": plan.name,
            "axes": plan.axes.keys,
            "metrics": ["train_loss", "test_accuracy"],
            "started": now(),
            "engine": engine,
            **({"own_code": own_code} if own_code else {}),
        }
        self.entries = {job.key: _entry(job, folder, ended(store.job(job.key))) for job in plan.jobs}
        self._to_do = sum(entry["state"] not in ENDED for entry in self.entries.values())
        self._begun_s, self._next_s, self._ended = time.monotonic(), 0.0, 0
        self._workers: dict[str, dict[str, Any]] = {}

    def started(self, key: str, worker: str) -> None:
        """Note that a job was handed out."""
        self.entries[key].update(state="running", worker=worker)
        self._perhaps_write()

    def ended(self, told: Told) -> Progress:
        """Note how a job ended."""
        entry = self.entries[told["key"]]
        entry.update(state=told["state"], message=told["message"], **_costs(told))
        known = self._workers.setdefault(told["worker"], {"worker": told["worker"], "jobs": 0})
        known.update(jobs=known["jobs"] + 1, rss_mb=told["rss_mb"], peak_mb=told["peak_mb"])
        self._ended += 1
        self._perhaps_write()
        left = self._to_do - self._ended
        left_s = (time.monotonic() - self._begun_s) / self._ended * left
        return Progress(entry, len(self.entries) - left, len(self.entries), left_s)

    def _perhaps_write(self) -> None:
        if time.monotonic() > self._next_s:
            self.write("running")

    def write(self, state: str) -> None:
        """Write the index."""
        begun_s = time.monotonic()
        workers = [facts for name, facts in self._workers.items() if name]
        self._folder.write_index({**self._facts, "state": state, "workers": workers}, list(self.entries.values()))
        ended_s = time.monotonic()
        self._next_s = ended_s + max(INDEX_EVERY_S, (ended_s - begun_s) / INDEX_SHARE)

    def close(self, state: str) -> None:
        """Leave an index that says how the sweep ended; jobs in the middle wait for the next one."""
        for entry in self.entries.values():
            if entry["state"] == "running":
                entry["state"] = "waiting"
        with (
            suppress(OSError) if state == "stopped" else nullcontext()
        ):  # a full disk is told of, not hidden by another
            self.write(state)


def _entry(job: Any, folder: SweepFolder, known: Mapping[str, Any] | None) -> dict[str, Any]:
    entry = {
        "key": job.key,
        "folder": folder.place(job.key),
        "arm": job.arm,
        "algorithm": title(job.config.algorithm[0]["name"]),
        "label": job.label,
        "seed": job.seed,
        "settings": dict(job.settings),
        "state": "waiting" if known is None else known["state"],
        "message": "" if known is None else known["message"],
    }
    return entry | _costs(known or {})


def _costs(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told.get(name) for name in ("seconds", "compute_s", "rss_mb", "peak_mb", "worker")}
