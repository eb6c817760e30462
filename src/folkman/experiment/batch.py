"""Many jobs: every one of a plan, each once in a lifetime of its store, on whatever engine.

    outcome = run_batch(plan, SweepFolder.create(...), engine, watch)

Sweeps and reproductions are both made here. What is finished is never run again, by this batch or
another on the same store. A job that another process is at is left to it and looked at again. The
index is renewed as jobs end, so that whoever looks sees how the batch stands.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import NamedTuple, TypeAlias

from folkman.config.own_code import digests
from folkman.config.plugins import check_unchanged, title
from folkman.experiment.engines import Engine, Told
from folkman.experiment.jobs import OutOfTime, order_for
from folkman.experiment.plan import Job, Plan
from folkman.record.json_file import Json, Table, now
from folkman.record.run import DIVERGED, ENDED, FAILED, FINISHED, RUNNING, STOPPED, WAITING
from folkman.record.store import BUSY, DISK, Store, SweepFolder, ended
from folkman.record.table import save_results

__all__ = ["Asked", "Batch", "Progress", "Watch", "run_batch"]

INDEX_EVERY_S = 1.0
INDEX_SHARE = 0.02
"""Most of a batch's time that writing its index may take; that of a very large one is renewed less
often."""
BUSY_WAIT_S = 1.0
COSTS = ("seconds", "compute_s", "rss_mb", "peak_mb", "worker")


class Progress(NamedTuple):
    """How a batch stands when a job has ended."""

    job: Table  # its entry of the index
    done: int
    in_all: int
    left_s: float | None  # until the end, as far as can be told
    phase: str = ""  # the name of this part of the work, where there are several
    before: int = 0  # jobs of the parts before it, done or no longer needed


Watch: TypeAlias = Callable[[Progress], None]
"""Told of every job that ended."""


class Asked(NamedTuple):
    """What is asked of a batch besides its plan."""

    track: Sequence[str] = ()
    budget_s: float | None = None  # seconds after which to stop
    only: Collection[str] | None = None  # keys of our jobs; others are looked at alone
    lean: bool = False  # keep metrics, drop models
    grows: bool = False  # the folder keeps what earlier plans made
    facts: Mapping[str, object] = {}  # more for the head of the index
    own_code: Mapping[str, str] = {}  # SHA-256 of more files that decide what is made, by path


NOTHING_MORE = Asked()


class Batch(NamedTuple):
    """How a batch ended: the entries of its index, and how it stands."""

    state: str  # finished, failed, stopped
    jobs: list[Json]
    disk: str = ""  # what the disk said
    stopped: str = ""  # why it ended early
    made: tuple[str, ...] = ()  # keys of the jobs that ended during this call

    def having(self, *states: str) -> list[Json]:
        """Return the jobs in one of these states."""
        return [job for job in self.jobs if job["state"] in states]

    @property
    def failed(self) -> list[Json]:
        """Return the jobs that ended in an error."""
        return self.having(FAILED)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state."""
        return {state: len(self.having(state)) for state in (FINISHED, DIVERGED, FAILED, WAITING)}


def run_batch(
    plan: Plan,
    folder: SweepFolder,
    engine: Engine,
    watch: Watch = lambda _: None,
    asked: Asked = NOTHING_MORE,
) -> Batch:
    """Run what is not finished, keep the index, and gather the results."""
    check_unchanged(folder.own_code())
    store = Store(folder.store_root)
    board = _Board(plan, folder, store, engine.name, asked)
    orders = _orders(plan, folder, store, board, asked)
    state, why, disk = STOPPED, "", ""
    try:
        board.write(RUNNING)
        disk, why = _run(orders, board, engine, watch, asked.budget_s)
        states = {job["state"] for job in board.entries.values()}
        is_open = bool(disk or why or states - {*ENDED, FAILED})
        state = STOPPED if is_open else FAILED if FAILED in states else FINISHED
        if not disk:
            board.write(state)
            save_results(folder)
    finally:
        board.close(state)
    return Batch(state, list(board.entries.values()), disk, why, tuple(board.made))


def _orders(
    plan: Plan, folder: SweepFolder, store: Store, board: "_Board", asked: Asked
) -> dict[str, Json]:
    """Return the orders of our jobs that have not ended, those of the lowest rank first."""
    found = {}
    for job in sorted(plan.jobs, key=lambda job: job.rank):
        mine = asked.only is None or job.key in asked.only
        if mine and board.entries[job.key]["state"] not in ENDED:
            order = order_for(job, folder, store, plan.name, asked.track, lean=asked.lean)
            found[job.key] = order | {"alike": _alike(board.entries[job.key])}
    for order in found.values():
        order["usual_s"] = board.seconds_of(order["alike"])
    return found


def _alike(entry: Table) -> str:
    """Return what jobs have in common that take about as long."""
    return f"{entry.get('variant', '')} {entry['kind']}"


def _run(
    orders: Mapping[str, Table],
    board: "_Board",
    engine: Engine,
    watch: Watch,
    budget_s: float | None,
) -> tuple[str, str]:
    """Map until nothing waits; return what the disk said if it refused, and why it ended early."""
    waiting, until_s = list(orders), None if budget_s is None else time.monotonic() + budget_s
    while waiting:
        left, busy = set(waiting), []
        try:
            for told in engine.map([orders[key] for key in waiting], board.started, until_s):
                if told["state"] == DISK:
                    return told["message"], ""
                left.discard(told["key"])
                if told["state"] == BUSY:
                    board.entries[told["key"]].update(state=RUNNING, message=told["message"])
                    busy.append(told["key"])
                    continue
                watch(board.ended(told))
        except OutOfTime:
            return "", f"the budget of {budget_s:g} s is spent"
        if left and until_s is not None:
            rest_s = max(until_s - time.monotonic(), 0.0)
            rest = f"{rest_s:.0f} s are left of the budget of {budget_s:g} s"
            return "", f"{rest}, less than a run takes"
        waiting = busy
        if busy:
            time.sleep(BUSY_WAIT_S)
    return "", ""


class _Board:
    """The index while it changes."""

    def __init__(
        self, plan: Plan, folder: SweepFolder, store: Store, engine: str, asked: Asked
    ) -> None:
        self._folder, self._store, self._only = folder, store, asked.only
        own_code = dict(asked.own_code)
        for job in plan.jobs:
            own_code |= digests(job.config)
        self._facts = {
            "name": plan.name,
            "axes": list(plan.keys),
            "metrics": ["train_loss", "test_accuracy"],
            "started": now(),
            "engine": engine,
            **({"own_code": own_code} if own_code else {}),
            **asked.facts,
        }
        self.entries = {
            job.key: _entry(job, folder, ended(store.job(job.key))) for job in plan.jobs
        }
        before = folder.read_index()["jobs"] if asked.grows and folder.index.is_file() else []
        ended_before = [job for job in before if job["state"] in ENDED]
        self._kept = [job for job in ended_before if job["key"] not in self.entries]
        self._to_do = sum(entry["state"] not in ENDED for entry in self.entries.values())
        self._begun_s, self._next_s = time.monotonic(), 0.0
        self.made: list[str] = []
        self._workers: dict[str, Json] = {}

    def seconds_of(self, alike: str) -> list[float]:
        """Return how long the jobs of a kind took that have ended."""
        known = [*self.entries.values(), *self._kept]
        ended_ones = [job for job in known if job["state"] in ENDED and _alike(job) == alike]
        return [job["seconds"] for job in ended_ones if job["seconds"]]

    def started(self, key: str, worker: str) -> None:
        """Note that a job was handed out."""
        self.entries[key].update(state=RUNNING, worker=worker)
        self._perhaps_write()

    def ended(self, told: Told) -> Progress:
        """Note how a job ended."""
        entry = self.entries[told["key"]]
        entry.update(**_standing(told))
        known = self._workers.setdefault(told["worker"], {"worker": told["worker"], "jobs": 0})
        known.update(jobs=known["jobs"] + 1, rss_mb=told["rss_mb"], peak_mb=told["peak_mb"])
        self.made += [told["key"]] if told["state"] in ENDED else []
        self._perhaps_write()
        done = sum(each["jobs"] for each in self._workers.values())
        left = self._to_do - done
        left_s = (time.monotonic() - self._begun_s) / done * left
        return Progress(entry, len(self.entries) - left, len(self.entries), left_s)

    def _perhaps_write(self) -> None:
        if time.monotonic() > self._next_s:
            self.write(RUNNING)

    def write(self, state: str) -> None:
        """Write the index; jobs that are not ours are looked at again."""
        begun_s = time.monotonic()
        for key, entry in self.entries.items():
            if self._only is not None and key not in self._only and entry["state"] not in ENDED:
                entry.update(_standing(ended(self._store.job(key))))
        workers = [facts for name, facts in self._workers.items() if name]
        facts = {**self._facts, "state": state, "workers": workers}
        self._folder.write_index(facts, [*self._kept, *self.entries.values()])
        ended_s = time.monotonic()
        self._next_s = ended_s + max(INDEX_EVERY_S, (ended_s - begun_s) / INDEX_SHARE)

    def close(self, state: str) -> None:
        """Leave an index that says how it ended; jobs in the middle wait for the next batch."""
        for entry in self.entries.values():
            if entry["state"] == RUNNING:
                entry["state"] = WAITING
        # a full disk is told of, not hidden by another error
        with suppress(OSError) if state == STOPPED else nullcontext():
            self.write(state)


def _entry(job: Job, folder: SweepFolder, known: Table | None) -> Json:
    return {
        "key": job.key,
        "folder": folder.place(job.key),
        "arm": job.arm,
        "algorithm": title(job.config.algorithm[0]["name"]),
        "label": job.label,
        "seed": job.seed,
        "settings": dict(job.settings),
        "kind": job.kind,
        **job.notes,
        **_standing(known),
    }


def _standing(known: Table | None) -> Json:
    """Return how a job stands by its `job.json`."""
    known = known or {"state": WAITING, "message": ""}
    ends = {name: known[name] for name in ("verdict", "reason") if known.get(name)}
    costs = {name: known.get(name) for name in COSTS}
    return {"state": known["state"], "message": known["message"], **ends, **costs}
