"""The simulator: the same algorithms under a simulated clock, all nodes at once.

    run = simulate(problem, network, algorithm, slots=300, seed=0)

`march` is the same loop in the caller's hands: it yields a carry and a row of metrics at each
recorded slot, so that a caller may show progress, save the carry, or stop. The slots between two
records run as one compiled program, or from Python where the problem says its gradients are faster
so.
"""

from collections.abc import Iterator, Mapping
from math import nan
from operator import index
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption
from folkman.checks import require
from folkman.energy import Energy
from folkman.engine.compute_times import Compute, ComputeTimes
from folkman.engine.judge import judge
from folkman.engine.metrics import Totals, network_model, row_of
from folkman.engine.places import placed
from folkman.engine.presence import Presence
from folkman.engine.programs import compiled
from folkman.engine.slot import (
    Carry,
    begin,
    clear,
    finish,
    finishes,
    first,
    seldom_learns,
    take_gradients,
)
from folkman.engine.travel import medium_of
from folkman.engine.travel.medium import Events, Medium
from folkman.faults import NO_FAULTS
from folkman.problem.learnable import Learnable, check_learnable
from folkman.problem.sampling import Turns
from folkman.radio.delivery import Network, check_horizon, let_pass
from folkman.radio.trace import Timeline
from folkman.record.run import DIVERGED, FINISHED, HIGHER_IS_BETTER, Run

__all__ = [
    "Clock",
    "Mark",
    "Recording",
    "Simulation",
    "Stretch",
    "Totals",
    "check_clock",
    "check_fit",
    "check_length",
    "longest_stretch",
    "march",
    "note",
    "one_slot",
    "outcome",
    "simulate",
    "start",
]


Stretch: TypeAlias = tuple[Array, Array, Events]
"""Rows of a timeline: stamps, who finished a gradient, and what the medium noted."""

MOST_COUNTED = 2**30
"""What may be counted in int32 between two additions on the host."""


LEAST_PUSH_WEIGHT = 0.2
"""Below it a run of asynchronous SGP ends with a warning."""


class Clock(NamedTuple):
    """How simulated time passes."""

    slot_s: float = 1.0  # T, seconds a slot
    # slots a gradient takes: for all nodes, for each, or drawn for every gradient
    compute_slots: tuple[int, ...] | int | ComputeTimes = 1

    def per_node(self, num_nodes: int) -> Compute:
        """Return the compute time of each node, checked."""
        given = self.compute_slots
        if isinstance(given, ComputeTimes):
            return given.per_node(num_nodes)
        try:
            times = (
                tuple(map(index, given))
                if isinstance(given, tuple | list)
                else (index(given),) * num_nodes
            )
        except TypeError:
            times = ()
        if len(times) != num_nodes or min(times) < 1:
            raise ValueError(
                "compute_slots must be one whole number of at least 1, or one for each of the "
                f"{num_nodes} nodes; got {given}"
            )
        return times


class Recording(NamedTuple):
    """What is written down, and how often."""

    every: int = 10  # slots between two rows of metrics
    nodes: bool = False  # also evaluate every node's own model v_i: as many evaluations as nodes
    timeline: bool = False  # keep who held what when
    # metrics and targets: a run ends at the first recorded slot in which all are met
    stop_at: tuple[tuple[str, float], ...] = ()

    def meets(
        self,
        row: Mapping[str, float],  # column -> value at a recorded slot
    ) -> bool:
        """Tell whether a row meets all targets; without targets none does."""
        return bool(self.stop_at) and all(
            row.get(name, nan) >= target
            if name in HIGHER_IS_BETTER
            else row.get(name, nan) <= target
            for name, target in self.stop_at
        )

    def ends(
        self,
        row: Mapping[str, float],  # column -> value at a recorded slot
    ) -> bool:
        """Tell whether a run ends here before its time."""
        return not np.isfinite(row["train_loss"]) or self.meets(row)


class Simulation(NamedTuple):
    """The parts of a run."""

    problem: Learnable
    network: Network
    algorithm: Algorithm
    clock: Clock = Clock()
    recording: Recording = Recording()
    faults: Presence = NO_FAULTS
    energy: Energy = Energy()  # what seconds on the air and gradients cost

    @property
    def medium(self) -> Medium:
        """Return how the algorithm's messages move on the network."""
        return medium_of(self.algorithm, self.network)


class Mark(NamedTuple):
    """Where a march stands: enough to go on from."""

    carry: Carry
    totals: Totals


def simulate(  # noqa: PLR0913 - all but three by name
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    *,
    slots: int,
    seed: int = 0,
    clock: Clock = Clock(),  # noqa: B008 - immutable
    recording: Recording = Recording(),  # noqa: B008 - immutable
    faults: Presence = NO_FAULTS,
    energy: Energy = Energy(),  # noqa: B008 - immutable
    label: str | None = None,
) -> Run:
    """Run `algorithm` on `problem` over `network` for `slots` slots and return what it left.

    A run whose loss is no longer finite stops there: its status is "diverged" and its rows are
    kept. `run.verdict` also tells a run that does not learn, and `run.reason` why.
    """
    run = Run(algorithm.name, label or algorithm.name, seed)
    simulation = Simulation(problem, network, algorithm, clock, recording, faults, energy)
    mark: Mark = start(simulation, seed)
    events: list[Stretch] = []
    for reached, row in march(simulation, mark, slots, events):
        note(run, row, recording)
        mark = reached
    judge(run, problem)
    run.model, run.nodes = outcome(simulation, mark)
    run.fitted = getattr(problem, "fitted", None)  # a guest has none
    run.timeline = join_timeline(simulation.medium, events) if recording.timeline else None
    return run


def note(
    run: Run,
    row: dict[str, float],
    recording: Recording = Recording(),  # noqa: B008 - immutable
) -> None:
    """Add a row to a run, and its end if the row meets the targets or is not finite."""
    if run.rows and run.rows[0].keys() != row.keys():  # an earlier version began the run
        run.rows = [{name: old.get(name, nan) for name in row} for old in run.rows]
    run.rows.append(row)
    run.status = FINISHED
    if recording.meets(row):
        run.target_slot = int(row["slots"])
    weight = row.get("push_weight", 1.0)
    if weight < LEAST_PUSH_WEIGHT:
        run.message = (
            f"a node of '{run.label}' (seed {run.seed}) divided its gradient by a weight of "
            f"{weight:.2g}: its steps are {1 / weight:.1f} times the step asked for; "
            "try a least_weight of 0.5, a topology with fewer neighbours, or less delay"
        )
    if not np.isfinite(row["train_loss"]):
        run.status = DIVERGED
        run.message = (
            f"the training loss of '{run.label}' (seed {run.seed}) was no longer finite at slot "
            f"{row['slots']:.0f}; the rows before it are kept; try a smaller step or less delay"
        )


def outcome(simulation: Simulation, mark: Mark) -> tuple[NDArray, NDArray]:
    """Return the network's model (d,) and the nodes' parameters (node, d) at a mark."""
    problem, network, algorithm, *_ = simulation
    params = jax.vmap(algorithm.params)(mark.carry.states)
    model = network_model(problem, network, algorithm, mark.carry)
    return np.asarray(model), np.asarray(params)


def start(simulation: Simulation, seed: int) -> Mark:
    """Check that the parts fit and return the mark before slot 0."""
    problem, network, algorithm, clock, _, faults, _ = simulation
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be a whole number in 0 .. 2^32 - 1, got {seed!r}")
    check_learnable(problem)
    check_fit(problem.num_nodes, network, algorithm, faults)
    check_clock(network, clock)
    nodes = problem.num_nodes
    there = placed(network, nodes, np.uint32(seed))
    carry = _first(problem, there, algorithm, clock.per_node(nodes), np.uint32(seed))
    return Mark(carry, Totals.nothing(carry.tally))


def check_length(slots: int, every: int) -> None:
    """Refuse a run without slots, or one that never records."""
    require(
        slots >= 1 and every >= 1,
        f"slots and the slots between two records must be at least 1, got {slots} and {every}",
    )


def check_clock(network: Network, clock: Clock) -> None:
    """Refuse a network and a clock that disagree on how long a slot is."""
    own_s = getattr(network, "slot_s", clock.slot_s)
    require(
        own_s == clock.slot_s,
        f"the network's slots last {own_s} s and the clock's {clock.slot_s} s; "
        "give both the same slot_s",
    )


def check_fit(
    num_nodes: int, network: Network, algorithm: Algorithm, faults: Presence = NO_FAULTS
) -> None:
    """Refuse a network or faults that break what the algorithm assumes, or are for other nodes."""
    faults.check(num_nodes)
    let_pass(network)
    given = {
        Assumption.RELIABLE: (
            network.reliable,
            f"the network '{network.name}'",
            "a network without loss",
        ),
        Assumption.PRESENT: (
            not faults.leaves_for_good,
            "a node that crashes for good",
            "faults that end",
        ),
        Assumption.STEADY: (
            not faults.starts_anew,
            "a node that restarts after a crash",
            "'away' instead of 'crash'",
        ),
    }
    for need, (met, breaker, cure) in given.items():
        if need in algorithm.declares.assumes and not met:
            raise ValueError(
                f"{algorithm.name} assumes that {need.value}, which {breaker} breaks; "
                f"use {cure}, or another method"
            )
    needs = algorithm.declares.needs
    gone = sum(back is None for *_, back in faults.crash)
    if gone and needs is not None and needs(num_nodes) > num_nodes - gone:
        raise ValueError(
            f"{algorithm.name} waits for {needs(num_nodes)} of {num_nodes} nodes, and {gone} of "
            "them crash for good; let it wait for fewer, or use faults that end"
        )
    medium_of(algorithm, network).check(num_nodes, faults)


def march(
    simulation: Simulation, mark: Mark, slots: int, events: list[Stretch] | None = None
) -> Iterator[tuple[Mark, dict[str, float]]]:
    """Go on from `mark` until `slots` slots are done in all.

    Yields at slot 0, every recorded slot and the last; ends early after a row whose training loss
    is not finite, or that meets the targets. With `recording.timeline`, appends each stretch of the
    timeline to `events`.
    """
    problem, network, algorithm, clock, recording, faults, _ = simulation
    medium = simulation.medium
    check_length(slots, recording.every)
    check_horizon(network, slots)
    compute = clock.per_node(problem.num_nodes)
    if int(mark.carry.slot) == 0:
        row = row_of(simulation, mark)
        yield mark, row
        if recording.ends(row):
            return
    advance = _advance_in_python if problem.called_from_python else _advance
    longest = longest_stretch(medium, problem.num_nodes, slots)

    def stretch(done: int) -> int:
        return min(recording.every - done % recording.every, slots - done, longest)

    given = (problem, network, algorithm, compute, faults)
    # On a CPU a stretch runs beside Python: the next one begins before this one's row is made.
    # Not where its rows are many, or where it is likely to be in vain.
    plain = not recording.timeline and not recording.stop_at
    beside = plain and advance is _advance and jax.default_backend() == "cpu"
    begun = None
    while (done := int(mark.carry.slot)) < slots:
        length = stretch(done)
        carry, rows = begun or advance(*given, length, recording.timeline, mark.carry)
        begun = None
        if medium.lacks_room(carry.medium):
            wider = medium.with_room(mark.carry.medium, carry.medium)
            mark = mark._replace(carry=mark.carry._replace(medium=wider))
            continue
        if recording.timeline and events is not None:
            events.append(jax.tree.map(np.asarray, rows))
        mark = Mark(clear(carry), mark.totals.plus(carry.tally))
        done += length
        if done % recording.every and done < slots:
            continue
        if beside and done < slots:
            begun = advance(*given, stretch(done), recording.timeline, mark.carry)
        row = row_of(simulation, mark)
        yield mark, row
        if recording.ends(row):
            return


def longest_stretch(medium: Medium, num_nodes: int, slots: int) -> int:
    """Return how many of `slots` slots may run at once.

    Counts of copies and sums of ages fit, and little is done again.
    """
    longest = max(1, MOST_COUNTED // max(num_nodes**2, slots))
    return longest if medium.stretch is None else min(longest, medium.stretch)


def _advance(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    length: int,
    keep: bool,
    carry: Carry,
) -> tuple[Carry, Stretch | None]:
    """Run `length` slots as one program."""
    if keep:
        return _scan(problem, network, algorithm, compute, faults, length, carry)
    return _loop(problem, network, algorithm, compute, faults, length, carry), None


def one_slot(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    carry: Carry,
) -> tuple[Carry, Stretch]:
    """Return the carry one slot later, and the slot's row of the timeline."""
    stamps = medium_of(algorithm, network).stamps(carry.medium)
    carry, point, keys = begin(problem, network, algorithm, compute, faults, carry)
    gradients = take_gradients(problem, algorithm, compute, faults, carry, point, keys)
    carry, (finished, event) = finish(problem, network, algorithm, faults, carry, gradients)
    return carry, (stamps, finished, event)


@compiled(fixed=(3, 4))
def _loop(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    length: int,
    carry: Carry,
) -> Carry:
    """Run `length` slots, or until a payload finds no room; stretches share one program."""
    medium = medium_of(algorithm, network)

    def going(at: tuple[Array, Carry]) -> Array:
        done, carry = at
        return (done < length) & ~medium.lacks_room(carry.medium)

    def go(at: tuple[Array, Carry]) -> tuple[Array, Carry]:
        done, carry = at
        return done + 1, one_slot(problem, network, algorithm, compute, faults, carry)[0]

    return lax.while_loop(going, go, (jnp.zeros((), jnp.int32), carry))[1]


@compiled(fixed=(3, 4, 5))
def _scan(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    length: int,
    carry: Carry,
) -> tuple[Carry, Stretch]:
    """Run `length` slots and stack their rows of the timeline."""

    def go(carry: Carry, _: None) -> tuple[Carry, Stretch]:
        return one_slot(problem, network, algorithm, compute, faults, carry)

    return lax.scan(go, carry, None, length)


_first = compiled(fixed=(3,))(first)


@compiled(fixed=(3, 4), donated=5)  # a carry is written over the one before
def _begin(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    carry: Carry,
) -> tuple[Carry, Array, Array | Turns, Array]:
    """Begin a slot; also tell whether any node finishes a gradient in it."""
    carry, point, keys = begin(problem, network, algorithm, compute, faults, carry)
    return carry, point, keys, jnp.any(finishes(problem, faults, carry))


_finish = compiled(fixed=(3,), donated=4)(finish)


def _advance_in_python(
    problem: Learnable,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    length: int,
    keep: bool,
    carry: Carry,
) -> tuple[Carry, Stretch | None]:
    """Run `length` slots one by one, with the gradients outside the compiled parts."""
    medium = medium_of(algorithm, network)
    seldom = seldom_learns(algorithm, compute)
    rows = []
    carry = jax.tree.map(jnp.copy, carry)  # the caller keeps its own
    for _ in range(length):
        stamps = jnp.copy(medium.stamps(carry.medium)) if keep else None
        carry, point, keys, used = _begin(problem, network, algorithm, compute, faults, carry)
        if seldom and not used:
            gradients = jnp.zeros_like(point[:, 0]), jnp.zeros_like(point)
        else:
            gradients = problem.gradients(point, keys)
        carry, (finished, event) = _finish(problem, network, algorithm, faults, carry, gradients)
        if keep:
            rows.append((stamps, finished, event))
        if medium.lacks_room(carry.medium):  # it will all be done again with more room
            break
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows) if keep else None


def join_timeline(medium: Medium, chunks: list[Stretch]) -> Timeline:
    """Join the events of the chunks."""
    stamps, finished, events = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
    return medium.timeline(stamps, finished, events)
