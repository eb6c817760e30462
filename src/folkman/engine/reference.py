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

from folkman.algorithm.base import Algorithm, Inbox, Server, State
from folkman.keys import Stream, make_key, node_key
from folkman.problem.problem import Problem
from folkman.radio.trace import PeerTimeline, StarTimeline

__all__ = ["Outcome", "reference"]

Vector = NDArray[np.float64]


class Outcome(NamedTuple):
    """Where the parameters ended."""

    model: Vector  # (d,) sum_i alpha_i w_i, or the server's
    nodes: Vector  # (node, d)


def reference(
    problem: Problem, timeline: PeerTimeline | StarTimeline, algorithm: Algorithm, *, seed: int = 0
) -> Outcome:
    """Run `algorithm` on `problem` along `timeline`, in float64 whatever the problem's own precision."""
    if timeline.finished.shape[1] != problem.num_nodes:
        raise ValueError(
            f"the timeline has {timeline.finished.shape[1]} nodes, the problem {problem.num_nodes}; record it again"
        )
    if (algorithm.server is None) != isinstance(timeline, PeerTimeline):
        raise ValueError(f"{algorithm.name} and the timeline disagree on whether there is a server")
    with jax.enable_x64(True):
        nodes = [_Learner(problem, algorithm, index, seed) for index in range(problem.num_nodes)]
        if isinstance(timeline, PeerTimeline):
            return _between_peers(problem, timeline, nodes)
        return _around_server(problem, timeline, algorithm.server, nodes)  # type: ignore[arg-type]


class _Learner:
    """One node: its state, its own samples, and the gradient it is working on."""

    def __init__(self, problem: Problem, algorithm: Algorithm, index: int, seed: int) -> None:
        double = jax.tree.map(_doubled, problem.of_node(index))
        self.problem: Problem = double
        self.algorithm = algorithm
        self.index = index
        self.seed = seed
        self.state: State = algorithm.init(double.initial, problem.num_nodes)
        self.point: Any = None
        self.steps = 0

    def slot(self, inbox: Inbox, *, finishes: bool) -> None:
        """Hear; begin a gradient if idle; apply it if it finishes in this slot."""
        self.state = self.algorithm.receive(self.state, inbox)
        if self.point is None and bool(self.algorithm.computes(self.state)):
            self.point = self.algorithm.point(self.state, inbox)
        if not finishes:
            return
        if self.point is None:
            raise ValueError(f"the timeline has node {self.index} finish a gradient that it did not begin")
        batch_key, own_key = (
            node_key(make_key(self.seed, stream), self.index, self.steps) for stream in (Stream.BATCH, Stream.ALGORITHM)
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


def _inbox(store: list[Any], weight: Any, own_weight: float, heard: Any, age: Any, finite: Any) -> Inbox:
    """Return an inbox with every copy written out: neighbour j is row j."""
    return Inbox(
        store=jnp.stack(store),
        row=jnp.arange(len(store)),
        weight=jnp.asarray(weight),
        own_weight=jnp.asarray(own_weight),
        heard=jnp.asarray(heard),
        age=jnp.asarray(age),
        finite=jnp.asarray(finite),
    )


def _shares(problem: Problem) -> Vector:
    return np.array(problem.count, np.float64) / float(sum(problem.count))


def _between_peers(problem: Problem, timeline: PeerTimeline, nodes: list[_Learner]) -> Outcome:
    share, count = _shares(problem), len(nodes)
    frozen = [{0: node.message()} for node in nodes]  # frozen[j][s]: what j sent with stamp s
    for t in range(len(timeline.held)):
        held, before = timeline.held[t], timeline.held[max(t - 1, 0)]
        for i, node in enumerate(nodes):
            others = np.arange(count) != i
            copies = [frozen[j][int(held[i, j]) if j != i else 0] for j in range(count)]
            heard = (held[i] != before[i]) & others
            inbox = _inbox(copies, share * others, share[i], heard, t - held[i], np.ones(count, bool))
            node.slot(inbox, finishes=bool(timeline.finished[t, i]))
        for j in np.flatnonzero(timeline.sends[t]):
            frozen[j][t + 1] = nodes[j].message()
        if t + 1 < len(timeline.held):
            _forget(frozen, timeline.held[t + 1 :])
    params = np.stack([node.params() for node in nodes])
    return Outcome(share @ params, params)


def _forget(frozen: list[dict[int, Vector]], coming: NDArray[np.int32]) -> None:
    """Drop what nobody will hold again, except stamp 0, which stands in for a node's copy of itself."""
    for j, messages in enumerate(frozen):
        oldest = int(np.delete(coming[:, :, j], j, axis=1).min(initial=coming.max()))
        for stamp in [s for s in messages if 0 < s < oldest]:
            del messages[stamp]


def _around_server(problem: Problem, timeline: StarTimeline, server: Server, nodes: list[_Learner]) -> Outcome:
    share, count = _shares(problem), len(nodes)
    state = server.init(_doubled(problem.initial), count)
    up = [node.message() * 0.0 for node in nodes]
    down = [np.array(server.message(state))] * count
    finite, heard = np.ones(count, bool), np.zeros(count, bool)
    formed, held = np.zeros(count, int), np.zeros(count, int)
    for t in range(len(timeline.finished)):
        for i, node in enumerate(nodes):
            answer = _inbox([down[i]], np.ones(1), 0.0, heard[i : i + 1], t - held[i : i + 1], np.ones(1, bool))
            node.slot(answer, finishes=bool(timeline.finished[t, i]))
            if timeline.up_started[t, i]:
                up[i] = node.message()
                finite[i] = np.isfinite(up[i]).all()
                up[i] = up[i] if finite[i] else np.zeros_like(up[i])
        uploads = _inbox(up, share, 0.0, timeline.up_arrived[t], np.zeros(count, int), finite)
        state = server.receive(state, uploads)
        for i in np.flatnonzero(timeline.down_started[t]):
            down[i], formed[i] = np.array(server.message(state)), t + 1
        heard = timeline.down_arrived[t]
        held = np.where(heard, formed, held)
    params = np.stack([node.params() for node in nodes])
    return Outcome(np.array(server.params(state), np.float64), params)
