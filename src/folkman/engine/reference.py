"""The slow, obvious twin of the simulator: one node at a time, every held copy written out, float64.

For reading and for checking. It takes a recorded timeline, so that it says nothing about who hears whom when, and
must end with the simulator's parameters:

    for each slot
        for each node      hear, take one gradient, update
        for each sender    freeze its message

Nothing here is compiled across nodes, shared between them or stored by row number.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place, Server, State
from folkman.engine.presence import Presence
from folkman.faults import NO_FAULTS
from folkman.keys import Stream, make_key, node_key
from folkman.problem.learnable import Learnable, check_learnable
from folkman.radio.trace import PeerTimeline, StarTimeline

__all__ = ["FinalParameters", "reference"]

Vector = NDArray[np.float64]


class FinalParameters(NamedTuple):
    """Where the parameters ended."""

    model: Vector  # (d,) sum_i alpha_i w_i, or the server's
    nodes: Vector  # (node, d)


def reference(
    problem: Learnable,
    timeline: PeerTimeline | StarTimeline,
    algorithm: Algorithm,
    *,
    seed: int = 0,
    faults: Presence = NO_FAULTS,
) -> FinalParameters:
    """Run `algorithm` on `problem` along `timeline`, in float64 whatever the problem's own precision."""
    check_learnable(problem)
    if timeline.finished.shape[1] != problem.num_nodes:
        raise ValueError(
            f"the timeline has {timeline.finished.shape[1]} nodes, the problem {problem.num_nodes}; record it again"
        )
    if (algorithm.server is None) != isinstance(timeline, PeerTimeline):
        raise ValueError(f"{algorithm.name} and the timeline disagree on whether there is a server")
    with jax.enable_x64(True):
        world = _World(jax.tree.map(_doubled, problem), seed, faults)
        nodes = [_Learner(world, algorithm, index) for index in range(problem.num_nodes)]
        if isinstance(timeline, PeerTimeline):
            return _between_peers(world, timeline, algorithm, nodes)
        return _around_server(world, timeline, algorithm.server, nodes)  # type: ignore[arg-type]


class _World(NamedTuple):
    """What all nodes share, and what goes wrong among them."""

    problem: Learnable
    seed: int
    faults: Presence

    def slot_key(self, slot: int) -> Any:
        """Return the key of what is drawn for all nodes at once."""
        return jax.random.fold_in(make_key(self.seed, Stream.DELAY), slot)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Tell who is there."""
        return np.asarray(self.faults.present(self.problem.num_nodes, jnp.asarray(slot)))

    def sent(self, nodes: list["_Learner"], slot: int) -> NDArray[np.float64]:
        """Return what the nodes would put on the air now, lies included: (node, message)."""
        messages = jnp.stack([jnp.asarray(node.message()) for node in nodes])
        about_zero = nodes[0].algorithm.differences
        return np.asarray(
            self.faults.corrupt(
                messages, self.problem.initial, self.slot_key(slot), about_zero=about_zero
            )
        )


class _Learner:
    """One node: its state, its own samples, and the gradient it is working on."""

    def __init__(self, world: _World, algorithm: Algorithm, index: int) -> None:
        self.problem: Learnable = world.problem.of_node(index)
        self.algorithm = algorithm
        self.index = index
        self.seed = world.seed
        self.num_nodes = world.problem.num_nodes
        self.steps = 0
        self.start()

    def start(self) -> None:
        """Begin at the common first model."""
        key = node_key(make_key(self.seed, Stream.START), self.index, 0)
        place = Place(jnp.asarray(self.index, jnp.int32), self.num_nodes, key)
        self.state: State = self.algorithm.init(self.problem.initial, place)
        self.point: Any = None

    def slot(self, inbox: Inbox, *, finishes: bool) -> None:
        """Hear; begin a gradient if idle; apply it if it finishes in this slot."""
        self.state = self.algorithm.receive(self.state, inbox)
        if bool(self.algorithm.restarts(self.state, inbox)):
            self.point = None
        if self.point is None and bool(self.algorithm.computes(self.state)):
            self.point = self.algorithm.point(self.state, inbox)
        if not finishes:
            return
        if self.point is None:
            raise ValueError(
                f"the timeline has node {self.index} finish a gradient that it did not begin"
            )
        batch_key, own_key = (
            node_key(make_key(self.seed, stream), self.index, self.steps)
            for stream in (Stream.BATCH, Stream.ALGORITHM)
        )
        loss, grad = self.problem.gradients(self.point[None], batch_key[None])
        self.state = self.algorithm.update(self.state, inbox, loss[0], grad[0], own_key)
        self.point = None
        self.steps += 1

    def message(self) -> Vector:
        """Return what the node would send now."""
        return np.array(self.algorithm.message(self.state), np.float64)

    def params(self) -> Vector:
        """Return the node's parameters."""
        return np.array(self.algorithm.params(self.state), np.float64)


def _doubled(leaf: Any) -> Any:
    return leaf.astype(np.float64) if np.issubdtype(leaf.dtype, np.floating) else leaf


def _inbox(
    store: Any,
    weight: Any,
    own_weight: float,
    heard: Any,
    age: Any,
    finite: Any,
    coming: Any = None,
) -> Inbox:
    """Return an inbox with every copy written out: neighbour j is row j."""
    return Inbox(
        store=jnp.stack([jnp.asarray(copy) for copy in store]),
        row=jnp.arange(len(store)),
        weight=jnp.asarray(weight),
        own_weight=jnp.asarray(own_weight),
        heard=jnp.asarray(heard),
        age=jnp.asarray(age),
        finite=jnp.asarray(finite),
        coming=None if coming is None else jnp.asarray(coming),
    )


def _shares(problem: Learnable) -> Vector:
    return np.array(problem.count, np.float64) / float(sum(problem.count))


def _between_peers(
    world: _World, timeline: PeerTimeline, algorithm: Algorithm, nodes: list[_Learner]
) -> FinalParameters:
    share, count = _shares(world.problem), len(nodes)
    lockstep = Assumption.LOCKSTEP in algorithm.assumes
    heard = np.zeros((count, count), bool)
    frozen = [{0: node.message()} for node in nodes]  # frozen[j][s]: what j sent with stamp s
    for t in range(len(timeline.held)):
        held, there = timeline.held[t], world.present(t)
        heard = (held != timeline.held[max(t - 1, 0)]) | (
            heard & ~world.present(max(t - 1, 0))[:, None]
        )
        mixing = np.tile(share, (count, 1))
        if algorithm.mixing is not None:
            mixing = np.asarray(algorithm.mixing.weights(jnp.asarray(heard)), np.float64)
        for i in np.flatnonzero(there):
            if world.faults.begins_anew(count, jnp.asarray(t))[i]:
                nodes[i].start()
            others = np.arange(count) != i
            copies = [frozen[j][int(held[i, j]) if j != i else 0] for j in range(count)]
            new = heard[i] if lockstep else heard[i] & others
            inbox = _inbox(
                copies, mixing[i] * others, mixing[i, i], new, t - held[i], np.ones(count, bool)
            )
            nodes[i].slot(inbox, finishes=bool(timeline.finished[t, i]))
        if timeline.sends[t].any():
            messages = world.sent(nodes, t)
            for j in np.flatnonzero(timeline.sends[t]):
                frozen[j][t + 1] = messages[j]
        if t + 1 < len(timeline.held):
            _forget(frozen, timeline.held[t + 1 :])
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(share @ params, params)


def _forget(frozen: list[dict[int, Vector]], coming: NDArray[np.int32]) -> None:
    """Drop what nobody will hold again, except stamp 0, which stands in for a node's copy of itself."""
    for j, messages in enumerate(frozen):
        oldest = int(np.delete(coming[:, :, j], j, axis=1).min(initial=coming.max()))
        for stamp in [s for s in messages if 0 < s < oldest]:
            del messages[stamp]


def _around_server(
    world: _World, timeline: StarTimeline, server: Server, nodes: list[_Learner]
) -> FinalParameters:
    share, count = _shares(world.problem), len(nodes)
    state = server.init(world.problem.initial, count)
    up = [node.message() * 0.0 for node in nodes]
    down = [np.array(server.message(state))] * count
    no = np.zeros(count, bool)
    finite, heard, coming = ~no, no, no
    formed, held = np.zeros(count, int), np.zeros(count, int)
    for t in range(len(timeline.finished)):
        there = world.present(t)
        for i in np.flatnonzero(there):
            if world.faults.begins_anew(count, jnp.asarray(t))[i]:
                nodes[i].start()
            answer = _inbox(
                [down[i]], np.ones(1), 0.0, heard[i : i + 1], t - held[i : i + 1], np.ones(1, bool)
            )
            nodes[i].slot(answer, finishes=bool(timeline.finished[t, i]))
        messages = world.sent(nodes, t) if timeline.up_started[t].any() else []
        for i in np.flatnonzero(timeline.up_started[t]):
            finite[i] = np.isfinite(messages[i]).all()
            up[i] = messages[i] if finite[i] else np.zeros_like(messages[i])
        coming = (coming | timeline.up_started[t]) & ~timeline.up_arrived[t]
        uploads = _inbox(
            up, share, 0.0, timeline.up_arrived[t], np.zeros(count, int), finite, coming
        )
        state = server.receive(
            state, uploads, jax.random.fold_in(world.slot_key(t), int(Stream.SERVER))
        )
        for i in np.flatnonzero(timeline.down_started[t]):
            down[i], formed[i] = np.array(server.message(state)), t + 1
        coming = coming & ~timeline.down_started[t]
        heard = timeline.down_arrived[t] | (heard & ~there)
        held = np.where(timeline.down_arrived[t], formed, held)
    params = np.stack([node.params() for node in nodes])
    return FinalParameters(np.array(server.params(state), np.float64), params)
