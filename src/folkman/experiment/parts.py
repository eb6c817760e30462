"""The runs of a comparison: every algorithm under every seed, same draws, into one run folder.

    runs = make_all(parts(resolve(read("mine.toml"))), RunFolder.create(...), watch)

A run is saved when it ends; meanwhile its checkpoint is renewed every few seconds. Whatever stops
the program, the folder can be resumed, and gives the bits of an uninterrupted run.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.config import own_faults
from folkman.config.build import build_problem, pairs, slot_seconds, takes_seed
from folkman.config.choices import ConfigError
from folkman.config.comparison import (
    Comparison,
    ComputeTable,
    Latency,
    by_content,
    resolve,
    to_toml,
)
from folkman.config.text import read
from folkman.engine import checkpoint, simulate
from folkman.engine.compute_times import ComputeTimes
from folkman.engine.judge import judge
from folkman.engine.metrics import node_models
from folkman.engine.simulate import Clock, Mark, Recording, Simulation, Stretch
from folkman.engine.slot import first
from folkman.engine.travel import medium_of
from folkman.experiment.frames import frame_of
from folkman.experiment.trackers import Watch
from folkman.problem.learnable import Learnable
from folkman.problem.problem import Problem
from folkman.radio import trace
from folkman.radio.delivery import Network
from folkman.record.folder import RunFolder
from folkman.record.live import LiveWriter
from folkman.record.model import StoredModel, save_model
from folkman.record.run import DIVERGED, ENDED, RUNNING, Run
from folkman.record.scene import MOST_FRAMES, Scene, join, load_scene, save_scene, take

__all__ = ["Part", "Watch", "check", "comparison_of", "make", "make_all", "parts"]

CHECKPOINT_EVERY_S = 10.0

Build: TypeAlias = Callable[[Comparison, Problem, int], list[tuple[Algorithm, Network]]]
"""Makes what `pairs` makes; one that returns the same objects again lets runs share compiled
programs."""


class Part(NamedTuple):
    """One run to be made."""

    run: Run
    simulation: Simulation
    slots: int
    fingerprint: str
    keep_nodes: bool = False  # also the last model of each node


def comparison_of(folder: RunFolder) -> Comparison:
    """Return the comparison that a run folder was made from; refuse one made in Python."""
    # checked when it was made
    return resolve(read(folder.configuration(), warn=False), try_builders=False)


def check(first_seed: Iterable[Part]) -> None:
    """Refuse, before anything is written, an algorithm that does not suit its network or faults."""
    for part in first_seed:
        problem, network, algorithm, _, _, faults, _ = part.simulation
        try:
            simulate.check_fit(problem.num_nodes, network, algorithm, faults)
            jax.eval_shape(partial(_first_inboxes, problem, network, algorithm))
        except ValueError as error:
            raise ConfigError(f"'{part.run.label}': {own_faults.told(error) or error}") from None


def _first_inboxes(problem: Learnable, network: Network, algorithm: Algorithm) -> object:
    """Return the inboxes of slot 0: what depends on the number of nodes is refused on the way."""
    carry = first(problem, network, algorithm, (1,) * problem.num_nodes, 0)
    return medium_of(algorithm, network).inboxes(carry.medium, problem, carry.slot)[0]


def _compute(comparison: Comparison) -> int | tuple[int, ...] | ComputeTimes:
    """Return the slots of gradients as a clock takes them."""
    given = comparison.compute_slots
    return ComputeTimes(given.mean, given.law) if isinstance(given, ComputeTable) else given


def parts(
    comparison: Comparison, problems: Mapping[int, Problem] | None = None, build: Build = pairs
) -> Iterator[Part]:
    """Yield the runs of a comparison, seed by seed.

    Algorithms and networks are shared as far as no seed enters.

    `problems` are those that were built already, by seed.
    """
    recording = Recording(
        comparison.record_every,
        comparison.evaluate_nodes,
        comparison.keep_timelines,
        tuple(sorted((comparison.stop_at or {}).items())),
    )
    fingerprint = hashlib.sha256(to_toml(by_content(comparison)).encode()).hexdigest()
    # other parts, another slot
    by_seed = takes_seed(comparison) or isinstance(comparison.slot_s, Latency)
    faults, built = comparison.faults.faults(), None
    energy = comparison.energy
    for seed in comparison.seeds:
        problem = (problems or {}).get(seed) or build_problem(comparison, seed)
        if built is None or by_seed:
            built = build(comparison, problem, seed)
        clock = Clock(slot_seconds(comparison, problem), _compute(comparison))
        for table, (algorithm, network) in zip(comparison.algorithm, built, strict=True):
            run = Run(algorithm.name, table["label"], seed)
            simulation = Simulation(problem, network, algorithm, clock, recording, faults, energy)
            told = (comparison.slots, fingerprint, comparison.keep_nodes)
            yield Part(run, simulation, *told)


def make_all(wanted: Iterable[Part], folder: RunFolder, watch: Watch | None = None) -> list[Run]:
    """Make, or finish, every run that is wanted and write the results."""
    runs = []
    for part in wanted:
        folder.load_part(part.run, part.fingerprint)
        part.run.folder = folder.root
        if part.run.status not in ENDED:
            make(part, folder, watch)
        runs.append(part.run)
    folder.save_results(runs)
    return runs


def make(part: Part, folder: RunFolder, watch: Watch | None) -> None:
    """Run one part from its checkpoint, or from the start, to its end."""
    run, simulation, slots, fingerprint, _ = part
    folder.make_folders()
    place = folder.checkpoint(run)
    mark = simulate.start(simulation, run.seed)
    events: list[Stretch] = []
    # a timeline is kept in memory: start it again
    if place.is_file() and not simulation.recording.timeline:
        saved = checkpoint.load(place, mark, f"{fingerprint} {run.label} {run.seed}")
        mark = _resumed(part, saved, mark)
    else:
        run.rows = []
    end = slots
    if run.rows and simulation.recording.ends(run.rows[-1]):  # it was killed after its last row
        simulate.note(run, run.rows.pop(), simulation.recording)
        end = int(mark.carry.slot)
    saved_s = time.monotonic()
    observer = Observer(folder, run, simulation, slots)
    observer.begin(int(mark.carry.slot))
    try:
        for reached, row in simulate.march(simulation, mark, end, events):
            simulate.note(run, row, simulation.recording)
            mark = reached
            observer.see(mark, row)
            if watch is not None:
                done = int(mark.carry.slot)
                watch(run, done, done if run.target_slot is not None else slots)
            if time.monotonic() - saved_s > CHECKPOINT_EVERY_S:
                observer.save()
                _save(part, folder, mark)
                saved_s = time.monotonic()
    except KeyboardInterrupt:
        observer.save()
        _save(part, folder, mark)
        raise
    judge(run, simulation.problem)
    _save_outcome(part, folder, mark, events)
    folder.save_part(run, fingerprint)
    observer.end()
    place.unlink(missing_ok=True)


def _resumed(part: Part, saved: Mark, fresh: Mark) -> Mark:
    """Cut the rows to those before the checkpoint; without all of them, start again."""
    run, done = part.run, int(saved.carry.slot)
    rows = [row for row in run.rows if row["slots"] <= done]
    whole = bool(rows) and rows[0]["slots"] == 0 and rows[-1]["slots"] == done
    run.rows = rows if whole and done > 0 else []
    return saved if run.rows else fresh


def _save(part: Part, folder: RunFolder, mark: Mark) -> None:
    """Save the rows first: a checkpoint is then never ahead of them."""
    unfinished = Run(part.run.algorithm, part.run.label, part.run.seed, part.run.rows, RUNNING)
    folder.save_part(unfinished, part.fingerprint)
    checkpoint.save(
        mark, folder.checkpoint(part.run), f"{part.fingerprint} {part.run.label} {part.run.seed}"
    )


def _save_outcome(part: Part, folder: RunFolder, mark: Mark, events: list[Stretch]) -> None:
    """Write the last model as named tensors, and the nodes' and the timeline if they are kept."""
    run, simulation = part.run, part.simulation
    run.model, run.nodes = simulate.outcome(simulation, mark)
    problem = simulation.problem
    run.fitted = getattr(problem, "fitted", None)  # a guest has none
    noted = StoredModel({})
    if isinstance(problem, Problem):
        noted = StoredModel({}, problem.sample, problem.classes)
    tensors = problem.layout.unflatten(run.model)  # slices of it
    save_model(folder.model(run), noted._replace(tensors=tensors))
    if part.keep_nodes:
        models = np.asarray(node_models(simulation, mark)[1])
        each = [problem.layout.unflatten(model) for model in models]
        stacked = {name: np.stack([one[name] for one in each]) for name in tensors}
        save_model(folder.node_models(run), noted._replace(tensors=stacked))
    if simulation.recording.timeline and events:
        run.timeline = simulate.join_timeline(simulation.medium, events)
        place = folder.timeline(run)
        place.parent.mkdir(exist_ok=True)
        trace.save(run.timeline, place)


class Observer:
    """What is shown of a run while it goes on, and what is kept of its network.

    `see` every recorded slot, `save` with each checkpoint, `end` when the run is done.
    """

    def __init__(self, folder: RunFolder, run: Run, simulation: Simulation, slots: int) -> None:
        self.run, self.simulation, self.slots = run, simulation, slots
        self.live = LiveWriter(folder.live(run), run, slots, simulation.problem.num_nodes)
        self.kept = folder.scene(run)
        records = math.ceil(slots / simulation.recording.every)
        # frames at slot 0 and at the end come on top
        self.every = max(1, math.ceil(records / (MOST_FRAMES - 2)))
        self.frames: list[Scene] = []

    def begin(self, done: int) -> None:
        """Start, or go on at slot `done`: what was shown of later slots is dropped."""
        before = load_scene(self.kept) if done else None
        self.frames = [] if before is None else [take(before, before.slot <= done)]
        self.live.begin()

    def see(self, mark: Mark, row: dict[str, float]) -> None:
        """Look at a recorded slot; the row is the last of the run's rows."""
        done = int(row["slots"])
        met = self.run.target_slot is not None
        last = done >= self.slots or met or self.run.status == DIVERGED
        number = math.ceil(done / self.simulation.recording.every)
        scene = None
        if number % self.every == 0 or last:
            scene = frame_of(self.simulation, mark)
            if not self.frames or done > self.frames[-1].slot[-1]:
                self.frames.append(scene)
        self.live.add(last=last)
        self.live.show(lambda: scene or frame_of(self.simulation, mark))

    def save(self) -> None:
        """Write the frames so far: before a checkpoint, which is then never ahead of them."""
        if self.frames:
            self.frames = [join(self.frames)]
            save_scene(self.frames[0], self.kept)

    def end(self) -> None:
        """Write the frames, and take the live files away."""
        self.save()
        self.run.scene = self.frames[0] if self.frames else None
        self.live.end()
