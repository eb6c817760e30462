"""The simulator: the same algorithms under a simulated clock, all nodes at once.

    run = simulate(problem, network, algorithm, slots=300, seed=0)

`march` is the same loop in the caller's hands: it yields a carry and a row of metrics at each recorded slot, so that
a caller may show progress, save the carry, or stop. The slots between two records run as one compiled
program, or from Python where the problem says its gradients are faster so.
"""

from collections.abc import Iterator
from functools import partial
from operator import index
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption
from folkman.checks import require
from folkman.engine import snapshots
from folkman.engine.medium import PeerMedium
from folkman.engine.metrics import Totals, network_model, row_of
from folkman.engine.presence import Presence
from folkman.engine.slot import Carry, begin, clear, finish, first
from folkman.faults import NO_FAULTS
from folkman.keys import Stream, make_key
from folkman.problem.learnable import Learnable, check_learnable
from folkman.radio.delivery import Network, check_horizon
from folkman.radio.trace import PeerTimeline, StarTimeline
from folkman.record.run import DIVERGED, FINISHED, Run

__all__ = [
    "Clock",
    "Mark",
    "Recording",
    "Simulation",
    "Totals",
    "check_clock",
    "check_fit",
    "check_length",
    "is_missing",
    "march",
    "note",
    "one_slot",
    "outcome",
    "simulate",
    "start",
    "with_room",
]


STRETCH = 64
"""Slots that are run again at most when the store of payloads turns out too small."""
MOST_COUNTED = 2**30
"""Copies that may be counted in int32 between two additions on the host."""


class Clock(NamedTuple):
    """How simulated time passes."""

    slot_s: float = 1.0  # T, seconds a slot
    compute_slots: tuple[int, ...] | int = 1  # slots a gradient takes, for all nodes or for each

    def per_node(self, num_nodes: int) -> tuple[int, ...]:
        """Return the compute time of each node, checked."""
        given = self.compute_slots
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
                f"compute_slots must be one whole number of at least 1, or one for each of the {num_nodes} nodes; "
                f"got {given}"
            )
        return times


class Recording(NamedTuple):
    """What is written down, and how often."""

    every: int = 10  # slots between two rows of metrics
    nodes: bool = False  # also evaluate every node's own model v_i: as many evaluations as nodes
    timeline: bool = False  # keep who held what when


class Simulation(NamedTuple):
    """The fixed parts of a run."""

    problem: Learnable
    network: Network
    algorithm: Algorithm
    clock: Clock = Clock()
    recording: Recording = Recording()
    faults: Presence = NO_FAULTS


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
    label: str | None = None,
) -> Run:
    """Run `algorithm` on `problem` over `network` for `slots` slots and return what it left.

    A run whose loss is no longer finite stops there: its status is "diverged" and its rows are kept.
    """
    run = Run(algorithm.name, label or algorithm.name, seed)
    simulation = Simulation(problem, network, algorithm, clock, recording, faults)
    mark: Mark = start(simulation, seed)
    events: list[Any] = []
    for reached, row in march(simulation, mark, slots, events):
        note(run, row)
        mark = reached
    run.model, run.nodes = outcome(simulation, mark)
    run.timeline = join_timeline(events, problem.num_nodes) if recording.timeline else None
    return run


def note(run: Run, row: dict[str, float]) -> None:
    """Add a row to a run, and its end if the row is not finite."""
    run.rows.append(row)
    run.status = FINISHED
    if not np.isfinite(row["train_loss"]):
        run.status = DIVERGED
        run.message = (
            f"the training loss of '{run.label}' (seed {run.seed}) was no longer finite at slot {row['slots']:.0f}; "
            "the rows before it are kept; try a smaller step or less delay"
        )


def outcome(simulation: Simulation, mark: Mark) -> tuple[NDArray, NDArray]:
    """Return the network's model (d,) and the nodes' parameters (node, d) at a mark."""
    problem, _, algorithm, *_ = simulation
    params = jax.vmap(algorithm.params)(mark.carry.states)
    return np.asarray(network_model(problem, algorithm, mark.carry)), np.asarray(params)


def start(simulation: Simulation, seed: int) -> Mark:
    """Check that the parts fit and return the mark before slot 0."""
    problem, network, algorithm, clock, _, faults = simulation
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be a whole number in 0 .. 2^32 - 1, got {seed!r}")
    check_learnable(problem)
    check_fit(problem.num_nodes, network, algorithm, faults)
    check_clock(network, clock)
    nodes = problem.num_nodes
    carry = _first(problem, network, algorithm, clock.per_node(nodes), np.uint32(seed))
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
        f"the network's slots last {own_s} s and the clock's {clock.slot_s} s; give both the same slot_s",
    )


def check_fit(
    num_nodes: int, network: Network, algorithm: Algorithm, faults: Presence = NO_FAULTS
) -> None:
    """Refuse a network or faults that break what the algorithm assumes, or that are for other nodes."""
    faults.check(num_nodes)
    name = getattr(network, "name", "a recorded timeline")
    given = {
        Assumption.LOCKSTEP: (
            network.synchronous,
            f"the network '{name}'",
            "a delay law or the radio",
        ),
        Assumption.RELIABLE: (network.reliable, f"the network '{name}'", "a network without loss"),
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
        if need in algorithm.assumes and not met:
            raise ValueError(
                f"{algorithm.name} assumes that {need.value}, which {breaker} breaks; use {cure}, or another method"
            )
    gone = sum(back is None for *_, back in faults.crash)
    if gone and algorithm.needs is not None and algorithm.needs(num_nodes) > num_nodes - gone:
        raise ValueError(
            f"{algorithm.name} waits for {algorithm.needs(num_nodes)} of {num_nodes} nodes, and {gone} of them crash "
            "for good; let it wait for fewer, or use faults that end"
        )
    if (
        algorithm.mixing is not None
        and not algorithm.mixing.waits
        and (faults.away or faults.crash)
    ):
        raise ValueError(
            f"{algorithm.name} on the topology 'schedule' needs every node in every round, and some are away or crash; "
            "use another topology, or no such faults"
        )
    key = make_key(0, Stream.DELAY)
    if algorithm.server is not None:
        jax.eval_shape(
            lambda: network.star_init(num_nodes, key)
        )  # a recording refuses a server, or other nodes
    elif Assumption.LOCKSTEP not in algorithm.assumes:
        network.versions(num_nodes)


def march(
    simulation: Simulation, mark: Mark, slots: int, events: list[Any] | None = None
) -> Iterator[tuple[Mark, dict[str, float]]]:
    """Go on from `mark` until `slots` slots are done in all, yielding at slot 0, every recorded slot and the last.

    Ends early after a row whose training loss is not finite. With `recording.timeline`, appends each stretch
    of the timeline to `events`.
    """
    problem, network, algorithm, clock, recording, faults = simulation
    check_length(slots, recording.every)
    check_horizon(network, slots)
    compute = clock.per_node(problem.num_nodes)
    if int(mark.carry.slot) == 0:
        row = row_of(simulation, mark)
        yield mark, row
        if not np.isfinite(row["train_loss"]):
            return
    advance = _advance_in_python if problem.called_from_python else _advance
    longest = max(1, MOST_COUNTED // problem.num_nodes**2)
    longest = min(longest, STRETCH) if isinstance(mark.carry.medium, PeerMedium) else longest
    while (done := int(mark.carry.slot)) < slots:
        length = min(recording.every - done % recording.every, slots - done, longest)
        carry, rows = advance(
            problem, (network, algorithm, compute, faults), length, recording.timeline, mark.carry
        )
        if is_missing(carry):
            mark = mark._replace(carry=with_room(mark.carry))
            continue
        if recording.timeline and events is not None:
            events.append(jax.tree.map(np.asarray, rows))
        mark = Mark(_clear(carry), mark.totals.plus(carry.tally))
        done += length
        if done % recording.every and done < slots:
            continue
        row = row_of(simulation, mark)
        yield mark, row
        if not np.isfinite(row["train_loss"]):
            return


Fixed: TypeAlias = tuple[Network, Algorithm, tuple[int, ...], Presence]
"""What a compiled slot is made for: network, algorithm, compute times, faults."""


def _advance(
    problem: Learnable, fixed: Fixed, length: int, keep: bool, carry: Carry
) -> tuple[Carry, Any]:
    """Run `length` slots as one program."""
    if keep:
        return _scan(problem, fixed, length, carry)
    return _loop(problem, fixed, length, carry), None


def one_slot(problem: Learnable, fixed: Fixed, carry: Carry) -> tuple[Carry, Any]:
    """Return the carry one slot later, and the slot's row of the timeline."""
    network, algorithm, compute, faults = fixed
    held = _held(carry)
    carry, point, keys = begin(problem, algorithm, compute, faults, carry)
    gradients = problem.gradients(point, keys)
    carry, (finished, event) = finish(problem, network, algorithm, faults, carry, gradients)
    return carry, (held, finished, event)


@partial(jax.jit, static_argnums=1)
def _loop(problem: Learnable, fixed: Fixed, length: int, carry: Carry) -> Carry:
    """Run `length` slots, or until a payload finds no room; `length` is traced: stretches share one program."""

    def going(at: tuple[Array, Carry]) -> Array:
        done, carry = at
        return (done < length) & ~_lacks_room(carry)

    def go(at: tuple[Array, Carry]) -> tuple[Array, Carry]:
        done, carry = at
        return done + 1, one_slot(problem, fixed, carry)[0]

    return lax.while_loop(going, go, (jnp.zeros((), jnp.int32), carry))[1]


@partial(jax.jit, static_argnums=(1, 2))
def _scan(problem: Learnable, fixed: Fixed, length: int, carry: Carry) -> tuple[Carry, Any]:
    """Run `length` slots and stack their rows of the timeline."""
    return lax.scan(lambda c, _: one_slot(problem, fixed, c), carry, None, length)


_first = jax.jit(first, static_argnums=(1, 2, 3))
_clear = jax.jit(clear)
_begin = jax.jit(
    begin, static_argnums=(1, 2, 3), donate_argnums=4
)  # a carry is written over its predecessor
_finish = jax.jit(finish, static_argnums=(1, 2, 3), donate_argnums=4)


def _advance_in_python(
    problem: Learnable, fixed: Fixed, length: int, keep: bool, carry: Carry
) -> tuple[Carry, Any]:
    """Run `length` slots one by one, with the gradients outside the compiled parts."""
    network, algorithm, compute, faults = fixed
    rows = []
    carry = jax.tree.map(jnp.copy, carry)  # the caller keeps its own
    for _ in range(length):
        held = jnp.copy(_held(carry)) if keep else None
        carry, point, keys = _begin(problem, algorithm, compute, faults, carry)
        gradients = problem.gradients(point, keys)
        carry, (finished, event) = _finish(problem, network, algorithm, faults, carry, gradients)
        if keep:
            rows.append((held, finished, event))
        if is_missing(carry):  # it will all be done again with more room
            break
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows) if keep else None


def is_missing(carry: Carry) -> bool:
    """Tell whether a copy was needed that the store had no room for: the stretch must be run again with more."""
    return bool(_lacks_room(carry))


def _lacks_room(carry: Carry) -> Array:
    return (
        jnp.any(carry.medium.snapshots.missing)
        if isinstance(carry.medium, PeerMedium)
        else jnp.asarray(False)
    )


def with_room(carry: Carry) -> Carry:
    """Return the carry with twice the room for payloads, to take the last stretch again.

    No more can be in use than one a pair, those on their way, and one a sender being written.
    """
    store = carry.medium.snapshots
    rows, (nodes, recent) = store.payload.shape[0], store.newest.shape
    most = nodes * (nodes + recent)
    if rows >= most:
        raise RuntimeError(
            "a copy was needed that the engine had given up: the network's `recent` is too small for what it delivers"
        )
    wider = snapshots.widen(store, min(2 * rows, most))
    return carry._replace(medium=carry.medium._replace(snapshots=wider))


def _held(carry: Carry) -> Array:
    """Return the stamps in use in the coming slot; nothing around a server."""
    return (
        carry.medium.snapshots.held
        if isinstance(carry.medium, PeerMedium)
        else jnp.zeros(0, jnp.int32)
    )


def join_timeline(chunks: list[Any], nodes: int) -> PeerTimeline | StarTimeline:
    """Join the events of the chunks."""
    held, finished, event = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
    if held.shape[1:] == (nodes, nodes):
        return PeerTimeline(held, event.sends, finished)
    upload, download = event
    return StarTimeline(
        upload.started, upload.arrived, download.started, download.arrived, finished
    )
