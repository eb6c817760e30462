"""Run schedules: one, many, on several processes; a schedule is a pure function of its plan."""

import gc
import os
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

from folkman.runtime.world.audit import Auditor, Invariant
from folkman.runtime.world.cores import Setting
from folkman.runtime.world.invariants import all_invariants
from folkman.runtime.world.invariants.progress import spread
from folkman.runtime.world.plan import Plan, plan_of
from folkman.runtime.world.world import FAULTED, Broken, Outcome, World

__all__ = ["Tally", "digest_again", "run_plan", "run_seeds", "spread_of_twin", "watch"]

CHUNK = 20
"""Schedules that a worker is handed at once."""


def watch(plan: Plan, invariants: list[Invariant] | None = None) -> tuple[Outcome, World]:
    """Run a schedule and keep its trace."""
    return _run(plan, invariants, keeps_trace=True, compares=True)


def run_plan(plan: Plan, invariants: list[Invariant] | None = None) -> Outcome:
    """Run a schedule; what broke is in the outcome."""
    return _run(plan, invariants, keeps_trace=False, compares=True)[0]


def _run(
    plan: Plan, invariants: list[Invariant] | None, *, keeps_trace: bool, compares: bool
) -> tuple[Outcome, World]:
    auditor = Auditor(all_invariants() if invariants is None else invariants)
    world = World(plan, Setting(plan), auditor, keeps_trace=keeps_trace, compares=compares)
    broken, text = 0, ""
    try:
        with _garbage_kept():
            world.run()
    except Broken as error:
        broken, text = error.number, f"{error.text} at {world.now_s:.4f} s"
    except Exception as error:  # a core that raises would end a node: as bad as a broken sentence
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(where.filename)}:{where.lineno}"
        broken = FAULTED
        text = f"{type(error).__name__}: {error} ({place}) at {world.now_s:.4f} s"
    kinds = sorted({fault.kind for fault in plan.faults} | {lie for _, lie in plan.liars})
    outcome = Outcome(
        plan=plan,
        broken=broken,
        text=text,
        digest=world.trace.digest,
        events=world.trace.count,
        node_slots=world.node_slots,
        simulated_s=world.simulated_s,
        faults_met=tuple(kinds),
        unasked=auditor.unasked,
    )
    return outcome, world


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Look for cycles between schedules, not within them: a schedule keeps most of what it made."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def spread_of_twin(plan: Plan) -> float | None:
    """Return how far nodes are apart at the end without faults and liars."""
    return spread(_run(plan.without_faults(), [], keeps_trace=False, compares=False)[1])


def digest_again(plan: Plan) -> str:
    """Return the trace's hash of another run."""
    return _run(plan, [], keeps_trace=False, compares=False)[0].digest


class Tally:
    """What many schedules came to."""

    def __init__(self) -> None:
        self.schedules = self.events = self.node_slots = 0
        self.simulated_s = 0.0
        self.failures: list[Outcome] = []
        self.kinds: Counter[str] = Counter()
        self.methods: Counter[str] = Counter()
        self.unasked: Counter[int] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count a schedule."""
        self.schedules += 1
        self.events += outcome.events
        self.node_slots += outcome.node_slots
        self.simulated_s += outcome.simulated_s
        self.kinds.update(outcome.faults_met)
        self.methods[outcome.plan.method] += 1
        self.unasked.update(outcome.unasked)
        if outcome.broken:
            self.failures.append(outcome)

    def summary(self, wall_s: float) -> dict[str, object]:
        """Return the counts as one JSON object."""
        return {
            "schedules": self.schedules,
            "failures": [
                {
                    "seed": each.plan.seed,
                    "method": each.plan.method,
                    "invariant": each.broken,
                    "text": each.text,
                }
                for each in self.failures
            ],
            "events": self.events,
            "node_slots": self.node_slots,
            "node_hours": self.simulated_s / 3600.0,
            "wall_s": wall_s,
            "schedules_per_s": self.schedules / wall_s,
            "node_slots_per_s": self.node_slots / wall_s,
            "methods": dict(sorted(self.methods.items())),
            "kinds": dict(sorted(self.kinds.items())),
            "not_asked": {str(number): n for number, n in sorted(self.unasked.items())},
        }


def run_seeds(
    seeds: Iterable[int], *, method: str | None = None, workers: int = 1
) -> Iterator[Outcome]:
    """Run the schedules of some seeds, in their order."""
    one = partial(_of_seed, method=method)
    if workers <= 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK)


def _of_seed(seed: int, method: str | None) -> Outcome:
    return run_plan(plan_of(seed, method))
