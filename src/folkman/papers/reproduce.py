"""Making the runs of the paper's experiments, one after another, whatever interrupts.

    folder = Store(Path("runs/paper"))
    left = reproduce(plan(FIGURES, "smoke"), folder)

A store keeps one small file of metrics a run under `parts/`, by the key of its configuration, and a checkpoint of the
one that is running; parameters are dropped when a run ends. A run that is there is not made again, so that any command
can be repeated, in any order, with any budget of time. Algorithms that differ only in their seed are one object: they
share their compiled programs.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from folkman.algorithm.base import Algorithm
from folkman.config.build import build_problem, seedless, slot_seconds
from folkman.config.comparison import to_toml
from folkman.engine.simulate import note
from folkman.experiment.compare import Part, make, parts
from folkman.keys import Stream, make_key
from folkman.papers.arms import Arm
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network
from folkman.record.folder import RunFolder
from folkman.record.run import Run

__all__ = ["Left", "OutOfTime", "Store", "Tell", "Workshop", "descend", "once", "reproduce", "verify"]

SHARED_PROBLEMS = 3
"""Problems kept on the device: runs of the same data, nodes and seed follow each other."""

PROBLEM_FIELDS = ("nodes", "precision", "l2", "batch", "data", "partition", "model")
"""The keys of a configuration that make its problem."""

Tell = Callable[[Arm, Run, int, int], None]
"""Told of every recorded slot: (arm, run, slots done, slots in all)."""


class OutOfTime(KeyboardInterrupt):
    """The budget of time is spent. As an interrupt it makes the run that it stops save its checkpoint."""


class Left(NamedTuple):
    """What remains when `reproduce` returns."""

    made: tuple[str, ...]  # keys of the runs that this call made
    missing: tuple[Arm, ...]
    stopped: str  # why, or nothing


@dataclass
class Store:
    """The files of many runs."""

    root: Path
    wall_s: dict[str, float] = field(default_factory=dict)  # seconds that each run took, compilation included

    def __post_init__(self) -> None:
        for name in ("parts", "models"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.folder = RunFolder(self.root)
        self.ended: set[str] = set()
        self.wall_s = self._known_walls()

    def load(self, arm: Arm) -> Run:
        """Return a run as far as it has come; without rows if it was never begun."""
        run = Run(arm.comparison.algorithm[0]["name"], arm.key, arm.seed)
        self.folder.load_part(run, arm.key)
        return run

    def has(self, arm: Arm) -> bool:
        """Tell whether a run has ended."""
        if arm.key not in self.ended and self.load(arm).status in ("finished", "diverged"):
            self.ended.add(arm.key)
        return arm.key in self.ended

    def _known_walls(self) -> dict[str, float]:
        known = self.root / "wall.json"
        return json.loads(known.read_text(encoding="utf-8")) if known.is_file() else {}

    def took(self, key: str, seconds: float) -> None:
        """Note the seconds that were spent on a run, in all its pieces; other processes may share the folder."""
        self.wall_s = self._known_walls() | {key: self.wall_s.get(key, 0.0) + seconds}
        self.folder.write_json("wall.json", self.wall_s)

    def verified(self, key: str, worst: float) -> None:
        """Note that a run was made a second time, and the largest relative difference of any of its numbers."""
        known = self.root / "verified.json"
        runs = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else {}
        self.folder.write_json("verified.json", runs | {key: worst})


def reproduce(arms: Sequence[Arm], store: Store, tell: Tell | None = None, budget_s: float | None = None) -> Left:
    """Make the runs that are missing, in order, until they are made or the budget is spent.

    A run is not begun if runs of its kind have taken longer than what is left; one that is overtaken is saved and goes
    on when called again.
    """
    began, workshop = time.monotonic(), Workshop()
    wanted = once(arms)
    made: list[str] = []
    stopped = ""
    for arm in wanted:
        if store.has(arm):
            continue
        rest_s = None if budget_s is None else budget_s - (time.monotonic() - began)
        if rest_s is not None and rest_s < 0.5 * _usual_s(arm, wanted, store):
            stopped = f"{max(rest_s, 0):.0f} s are left of the budget of {budget_s:g} s, less than a run takes"
            break
        start = time.monotonic()
        try:
            _make(arm, store, workshop, _watch(arm, tell, None if rest_s is None else start + rest_s))
            made.append(arm.key)
        except OutOfTime:
            stopped = f"the budget of {budget_s:g} s is spent"
            break
        finally:
            store.took(arm.key, time.monotonic() - start)
    return Left(tuple(made), tuple(arm for arm in wanted if not store.has(arm)), stopped)


def once(arms: Sequence[Arm]) -> list[Arm]:
    """Return each run once, where it comes first."""
    first: dict[str, Arm] = {}
    for arm in arms:
        first.setdefault(arm.key, arm)
    return list(first.values())


def _usual_s(arm: Arm, arms: Sequence[Arm], store: Store) -> float:
    """Return the median seconds of the runs of this variant so far; 0 where there is none."""
    alike = [
        store.wall_s[other.key]
        for other in arms
        if (other.variant, other.kind) == (arm.variant, arm.kind) and other.key in store.ended & set(store.wall_s)
    ]
    return float(np.median(alike)) if alike else 0.0


def _watch(arm: Arm, tell: Tell | None, until: float | None) -> Callable[[Run, int, int], None]:
    def watch(run: Run, done: int, slots: int) -> None:
        if tell is not None:
            tell(arm, run, done, slots)
        if until is not None and done < slots and time.monotonic() > until:
            raise OutOfTime

    return watch


def _make(arm: Arm, store: Store, workshop: "Workshop", watch: Callable[[Run, int, int], None]) -> Run:
    """Make one run and drop its parameters."""
    if arm.kind == "descent":
        run = descend(workshop.problem(arm), arm, watch)
        store.folder.save_part(run, arm.key)
        return run
    part = workshop.part(arm)
    store.folder.load_part(part.run, part.fingerprint)
    make(part, store.folder, watch)
    store.folder.model(part.run).unlink(missing_ok=True)
    return part.run


@dataclass
class Workshop:
    """What runs that follow each other share: problems on the device, and algorithms with their compiled programs."""

    problems: dict[str, Problem] = field(default_factory=dict)
    pairs: dict[str, tuple[Algorithm, Network]] = field(default_factory=dict)

    def problem(self, arm: Arm) -> Problem:
        """Return the data on nodes and the first model; the last few are kept."""
        fields = arm.comparison.model_dump(include=set(PROBLEM_FIELDS))
        key = json.dumps([arm.seed, fields], sort_keys=True)
        if key not in self.problems:
            while len(self.problems) >= SHARED_PROBLEMS:
                self.problems.pop(next(iter(self.problems)))
            self.problems[key] = build_problem(arm.comparison, arm.seed)
        return self.problems[key]

    def part(self, arm: Arm) -> Part:
        """Return the run to be made, with an algorithm that all seeds share."""
        problem = self.problem(arm)
        part = next(iter(parts(arm.comparison, {arm.seed: problem})))
        key = to_toml(seedless(arm.comparison))
        algorithm, network = self.pairs.setdefault(key, (part.simulation.algorithm, part.simulation.network))
        simulation = part.simulation._replace(algorithm=algorithm, network=network)
        return Part(Run(algorithm.name, arm.key, arm.seed), simulation, part.slots, arm.key)


def descend(problem: Problem, arm: Arm, watch: Callable[[Run, int, int], None] | None = None) -> Run:
    """Run plain gradient descent on one machine, w <- w - eta grad F(w): no engine, no network, no server."""
    comparison, step = arm.comparison, arm.comparison.algorithm[0]["step"]
    run = Run("centralised", arm.key, arm.seed)
    keys, slot_s = make_key(arm.seed, Stream.BATCH)[None], slot_seconds(comparison, problem)
    move, evaluate = (_move, _evaluate) if problem.traceable else (_move_in_python, Problem.evaluate)
    w = problem.initial
    for done in range(comparison.slots + 1):
        if done % comparison.record_every == 0 or done == comparison.slots:
            measured = {name: float(value) for name, value in evaluate(problem, w)._asdict().items()}
            note(run, {"slots": done, "seconds": done * slot_s, "gradients": float(done), **measured})
            if watch is not None:
                watch(run, done, comparison.slots)
        w = move(problem, w, jnp.asarray(step, w.dtype), keys)
    return run


_evaluate = jax.jit(Problem.evaluate)


def _move_in_python(problem: Problem, w: Array, step: Array, keys: Array) -> Array:
    _, gradients = problem.gradients(w[None], keys)
    return w - step * gradients[0]


_move = jax.jit(_move_in_python)


def verify(arm: Arm, store: Store, scratch: Path) -> float:
    """Make a run of the store a second time, from nothing, and return the largest relative difference of any metric."""
    first = store.load(arm)
    second = _make(arm, Store(scratch), Workshop(), lambda *_: None)
    worst = 0.0
    for one, two in zip(first.rows, second.rows, strict=True):
        for name, value in one.items():
            if np.isfinite(value) or np.isfinite(two[name]):
                worst = max(worst, abs(two[name] - value) / max(abs(value), 1e-12))
    return worst
