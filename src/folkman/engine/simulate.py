"""The simulator: the same algorithms under a simulated clock, all nodes at once.

    run = simulate(problem, network, algorithm, slots=300, seed=0)

`march` is the same loop in the caller's hands: it yields a carry and a row of metrics at each recorded slot, so that
a caller may show progress, save the carry, or stop. The slots between two records run as one compiled
program, or from Python where the problem says its gradients are faster so.
"""

from collections.abc import Iterator
from functools import partial
from math import nan
from operator import index
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption
from folkman.engine import snapshots
from folkman.engine.medium import PeerMedium, medium_of
from folkman.engine.slot import Carry, begin, clear, finish, first
from folkman.problem.problem import Evaluation, Problem
from folkman.radio.delivery import Network
from folkman.radio.trace import PeerTimeline, StarTimeline
from folkman.record import Run

__all__ = [
    "Clock",
    "Mark",
    "Recording",
    "Simulation",
    "Totals",
    "check_horizon",
    "march",
    "note",
    "outcome",
    "simulate",
    "start",
]


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
            times = tuple(map(index, given)) if isinstance(given, tuple | list) else (index(given),) * num_nodes
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


class Totals(NamedTuple):
    """What the host has added up since slot 0; plain numbers, saved with the carry."""

    gradients: tuple[int, ...]
    busy: tuple[int, ...]
    traffic: tuple[int, int, int, int]
    age_sum: float = 0.0
    age_max: int = 0


class Simulation(NamedTuple):
    """The fixed parts of a run."""

    problem: Problem
    network: Network
    algorithm: Algorithm
    clock: Clock = Clock()
    recording: Recording = Recording()


class Mark(NamedTuple):
    """Where a march stands: enough to go on from."""

    carry: Carry
    totals: Totals


def simulate(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    *,
    slots: int,
    seed: int = 0,
    clock: Clock = Clock(),  # noqa: B008 - immutable
    recording: Recording = Recording(),  # noqa: B008 - immutable
    label: str | None = None,
) -> Run:
    """Run `algorithm` on `problem` over `network` for `slots` slots and return what it left.

    A run whose loss is no longer finite stops there: its status is "diverged" and its rows are kept.
    """
    run = Run(algorithm.name, label or algorithm.name, seed)
    simulation = Simulation(problem, network, algorithm, clock, recording)
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
    run.status = "finished"
    if not np.isfinite(row["train_loss"]):
        run.status = "diverged"
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
    problem, network, algorithm, clock, _ = simulation
    _check(network, algorithm, seed)
    nodes = problem.num_nodes
    carry = _first(problem, network, algorithm, clock.per_node(nodes), seed)
    return Mark(carry, Totals((0,) * nodes, (0,) * nodes, (0, 0, 0, 0)))


def check_horizon(network: Network, slots: int) -> None:
    """Refuse to run a network for longer than it can."""
    if network.horizon is not None and slots > network.horizon:
        raise ValueError(
            f"the timeline was recorded for {network.horizon} slots, the run asks for {slots}; "
            f"run at most {network.horizon}, or record a longer one"
        )


def _check(network: Network, algorithm: Algorithm, seed: int) -> None:
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be a whole number in 0 .. 2^32 - 1, got {seed!r}")
    if Assumption.SYNCHRONOUS in algorithm.assumes and not network.synchronous:
        raise ValueError(
            f"{algorithm.name} assumes that {Assumption.SYNCHRONOUS.value}, which this network cannot give; "
            "use the 'ideal' or 'constant' law, or another method"
        )
    if Assumption.RELIABLE in algorithm.assumes and not network.reliable:
        raise ValueError(
            f"{algorithm.name} assumes that {Assumption.RELIABLE.value}, which this network cannot give; "
            "use a network without loss, or another method"
        )


def march(
    simulation: Simulation, mark: Mark, slots: int, events: list[Any] | None = None
) -> Iterator[tuple[Mark, dict[str, float]]]:
    """Go on from `mark` until `slots` slots are done in all, yielding at slot 0, every recorded slot and the last.

    Ends early after a row whose training loss is not finite. With `recording.timeline`, appends each stretch
    of the timeline to `events`.
    """
    problem, network, algorithm, clock, recording = simulation
    if slots < 1 or recording.every < 1:
        raise ValueError(
            f"slots and the slots between two records must be at least 1, got {slots} and {recording.every}"
        )
    check_horizon(network, slots)
    compute = clock.per_node(problem.num_nodes)
    if int(mark.carry.slot) == 0:
        row = _row(simulation, mark)
        yield mark, row
        if not np.isfinite(row["train_loss"]):
            return
    advance = _advance if problem.traceable else _advance_in_python
    longest = max(1, MOST_COUNTED // problem.num_nodes**2)
    while (done := int(mark.carry.slot)) < slots:
        length = min(recording.every - done % recording.every, slots - done, longest)
        carry, rows = advance(problem, network, algorithm, compute, length, recording.timeline, mark.carry)
        if _missing(carry):
            mark = mark._replace(carry=_with_room(mark.carry))
            continue
        if recording.timeline and events is not None:
            events.append(jax.tree.map(np.asarray, rows))
        mark = Mark(_clear(carry), _add(mark.totals, carry))
        done += length
        if done % recording.every and done < slots:
            continue
        row = _row(simulation, mark)
        yield mark, row
        if not np.isfinite(row["train_loss"]):
            return


def _advance(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: tuple[int, ...],
    length: int,
    keep: bool,
    carry: Carry,
) -> tuple[Carry, Any]:
    """Run `length` slots as one program."""
    if keep:
        return _scan(problem, network, algorithm, compute, length, carry)
    return _loop(problem, network, algorithm, compute, length, carry), None


def _slot(
    problem: Problem, network: Network, algorithm: Algorithm, compute: tuple[int, ...], carry: Carry
) -> tuple[Carry, Any]:
    held = _held(carry)
    carry, point, keys = begin(problem, algorithm, compute, carry)
    carry, (finished, event) = finish(problem, network, algorithm, carry, problem.gradients(point, keys))
    return carry, (held, finished, event)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _loop(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: tuple[int, ...],
    length: int,
    carry: Carry,
) -> Carry:
    """Run `length` slots; `length` is traced, so that stretches of all lengths share one program."""
    return lax.fori_loop(0, length, lambda _, c: _slot(problem, network, algorithm, compute, c)[0], carry)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _scan(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: tuple[int, ...],
    length: int,
    carry: Carry,
) -> tuple[Carry, Any]:
    """Run `length` slots and stack their rows of the timeline."""
    return lax.scan(lambda c, _: _slot(problem, network, algorithm, compute, c), carry, None, length)


_first = jax.jit(first, static_argnums=(1, 2, 3))
_clear = jax.jit(clear)
_begin = jax.jit(begin, static_argnums=(1, 2))
_finish = jax.jit(finish, static_argnums=(1, 2))


def _advance_in_python(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: tuple[int, ...],
    length: int,
    keep: bool,
    carry: Carry,
) -> tuple[Carry, Any]:
    """Run `length` slots one by one, with the gradients outside the compiled parts."""
    rows = []
    for _ in range(length):
        held = _held(carry)
        carry, point, keys = _begin(problem, algorithm, compute, carry)
        carry, (finished, event) = _finish(problem, network, algorithm, carry, problem.gradients(point, keys))
        rows.append((held, finished, event))
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows) if keep else None


def _missing(carry: Carry) -> bool:
    return isinstance(carry.medium, PeerMedium) and bool(carry.medium.snapshots.missing)


def _with_room(carry: Carry) -> Carry:
    """Return the carry with twice the room for payloads, to take the last stretch again.

    No more than one version a receiver and one being written can be in use.
    """
    nodes, versions = carry.medium.snapshots.stamp.shape
    if versions > nodes:
        raise RuntimeError(
            "a copy was needed that the engine had given up: the network's `versions` is too small for what it delivers"
        )
    store = snapshots.widen(carry.medium.snapshots, min(2 * versions, nodes + 1))
    return carry._replace(medium=carry.medium._replace(snapshots=store))


def _held(carry: Carry) -> Array:
    """Return the stamps in use in the coming slot; nothing around a server."""
    return carry.medium.snapshots.held if isinstance(carry.medium, PeerMedium) else jnp.zeros(0, jnp.int32)


def join_timeline(chunks: list[Any], nodes: int) -> PeerTimeline | StarTimeline:
    """Join the events of the chunks."""
    held, finished, event = jax.tree.map(lambda *parts: np.concatenate(parts), *chunks)
    if held.shape[1:] == (nodes, nodes):
        return PeerTimeline(held, event.sends, finished)
    upload, download = event
    return StarTimeline(upload.started, upload.arrived, download.started, download.arrived, finished)


def _add(totals: Totals, carry: Carry) -> Totals:
    """Add the counts of a chunk to the host's totals, in integers of any size."""
    tally = jax.tree.map(np.asarray, carry.tally)
    return Totals(
        tuple(a + int(b) for a, b in zip(totals.gradients, tally.gradients, strict=True)),
        tuple(a + int(b) for a, b in zip(totals.busy, tally.busy, strict=True)),
        tuple(a + int(b) for a, b in zip(totals.traffic, tally.traffic, strict=True)),  # type: ignore[arg-type]
        totals.age_sum + float(tally.age_sum),
        max(totals.age_max, int(tally.age_max)),
    )


def network_model(problem: Problem, algorithm: Algorithm, carry: Carry) -> Array:
    """Return the model of the whole network: the server's, or w = sum_i alpha_i w_i."""
    if algorithm.server is not None:
        return algorithm.server.params(carry.medium.server)
    params = jax.vmap(algorithm.params)(carry.states)
    return jnp.dot(problem.share, params, precision="highest")


@partial(jax.jit, static_argnums=1)
def _models(problem: Problem, algorithm: Algorithm, carry: Carry) -> tuple[Array, Array, dict[str, Array]]:
    """Return the network's model (d,), each node's own model (node, d), and how far apart they are."""
    params = jax.vmap(algorithm.params)(carry.states)
    models = params
    if algorithm.model is not None:
        inbox, axes = medium_of(algorithm).inboxes(carry.medium, problem, carry.slot)
        models = jax.vmap(algorithm.model, (0, axes))(carry.states, inbox)
    w = network_model(problem, algorithm, carry)
    apart = jnp.linalg.norm(models - w[None], axis=1)
    norm = jnp.max(jnp.linalg.norm(params, axis=1))
    return w, models, {"consensus": jnp.mean(apart), "consensus_max": jnp.max(apart), "node_norm": norm}


@jax.jit
def _evaluate_traced(problem: Problem, w: Array) -> Evaluation:
    return problem.evaluate(w)


def _evaluate(problem: Problem, w: Array) -> Evaluation:
    return _evaluate_traced(problem, w) if problem.traceable else problem.evaluate(w)


def _row(simulation: Simulation, mark: Mark) -> dict[str, float]:
    """Return the metrics at a mark."""
    problem, network, algorithm, clock, recording = simulation
    carry, totals = mark
    w, models, spread = _models(problem, algorithm, carry)
    slots, finished = int(carry.slot), sum(totals.gradients)
    bits, bits_unicast = _bits(simulation, totals)
    row = {
        "slots": slots,
        "seconds": slots * clock.slot_s,
        "gradients": finished / problem.num_nodes,
        "rounds": _rounds(simulation, mark),
        "bits": bits,
        **{name: float(value) for name, value in _evaluate(problem, w)._asdict().items()},
        **{name: float(value) for name, value in spread.items()},
        "mean_age": totals.age_sum / finished if finished else 0.0,
        "max_age": totals.age_max,
        "kappa": sum(totals.busy) / (slots * problem.num_nodes) if slots else 0.0,
        "gradients_max": max(totals.gradients),
        "bits_unicast": bits_unicast,
        "gamma_t": nan,
        "gamma_w": nan,
        **{name: float(value) for name, value in network.measures(carry.medium.network).items()},
    }
    if recording.nodes:
        each = [_evaluate(problem, model) for model in models]
        row["node_train_loss"] = float(np.mean([float(value.train_loss) for value in each]))
        row["node_test_accuracy"] = float(np.mean([float(value.test_accuracy) for value in each]))
    return row


def _rounds(simulation: Simulation, mark: Mark) -> float:
    """Return the server's aggregations, or the broadcasts of a node on average."""
    server = simulation.algorithm.server
    if server is not None:
        return float(server.rounds(mark.carry.medium.server))
    return mark.totals.traffic[0] / simulation.problem.num_nodes


def _bits(simulation: Simulation, totals: Totals) -> tuple[int, int]:
    """Return the bits on air with a broadcast counted once, and with each receiver counted."""
    problem, network, algorithm, *_ = simulation
    state = jax.eval_shape(lambda w: algorithm.init(w, problem.num_nodes), problem.initial)
    up = jax.eval_shape(algorithm.message, state).size * network.bits_per_parameter
    down = 0
    if (server := algorithm.server) is not None:
        kept = jax.eval_shape(lambda w: server.init(w, problem.num_nodes), problem.initial)
        down = jax.eval_shape(server.message, kept).size * network.bits_per_parameter
    sent, sent_copies, served, served_copies = totals.traffic
    return sent * up + served * down, sent_copies * up + served_copies * down
