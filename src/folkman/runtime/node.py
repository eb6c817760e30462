"""A node without sockets: bytes in, bytes out, the very functions that the simulator runs.

    node.receive(data)      a message came; keep it if it is whole, known and newer than what is held
    node.wake()             one slot: hear, take one gradient, update
    node.send() -> bytes    what to broadcast now

Memory is bounded by construction: one message a neighbour. Whoever owns time and sockets calls these; a bad message
is refused, counted in `refused` by reason, and otherwise without effect. `ServerNode` is the other role.
"""

from collections import Counter
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place, State
from folkman.keys import Stream, make_key, node_key
from folkman.problem.problem import Problem
from folkman.runtime.codec import CodecError, Message, decode, encode

__all__ = ["Mailbox", "Node", "ServerNode"]


class Mailbox:
    """The freshest message of each of `num_senders` senders, and a count of what was refused.

    With `note_broken` a message that is whole but not finite still counts as heard, so that a server that waits for
    everyone can drop it and go on; its payload is zeros and marked.
    """

    def __init__(self, first: NDArray, num_senders: int, run: int, *, note_broken: bool = False) -> None:
        self.run = run
        self.payload = np.tile(first, (num_senders, 1))
        self.sequence = np.zeros(num_senders, np.int64)
        self.slot = np.zeros(num_senders, np.int64)
        self.heard = np.zeros(num_senders, bool)
        self.finite = np.ones(num_senders, bool)
        self.refused: Counter[str] = Counter()
        self._note_broken = note_broken

    def put(self, data: bytes, own: int | None = None) -> bool:
        """Keep a message that is whole, from a known sender and newer than what is held; tell whether it was kept."""
        try:
            message = self._checked(data, own)
        except CodecError as error:
            self.refused[error.reason] += 1
            if error.reason == "finite" and self._note_broken and error.node is not None:
                self._note(error.node)
            return False
        sender = message.node
        self.payload[sender] = message.params
        self.sequence[sender] = message.sequence
        self.slot[sender] = message.slot
        self.heard[sender] = self.finite[sender] = True
        return True

    def _checked(self, data: bytes, own: int | None) -> Message:
        """Return the message, every check passed, before anything is written."""
        message = decode(data, self.run, self.payload.shape[1])
        if message.node >= len(self.payload) or message.node == own:
            raise CodecError("sender", f"expected another of {len(self.payload)} nodes, got {message.node}")
        if message.sequence <= self.sequence[message.node]:  # a repeat, a replay, or overtaken on its way
            raise CodecError("stale", f"message {message.sequence} of node {message.node} is not newer than held")
        with np.errstate(over="ignore"):
            params = message.params.astype(self.payload.dtype)
        if not np.isfinite(params).all():  # finite on a wider wire, and too large for us
            raise CodecError("finite", "expected parameters that fit our precision", message.node)
        return message._replace(params=params)

    def _note(self, sender: int) -> None:
        if sender < len(self.payload):
            self.payload[sender] = 0.0
            self.heard[sender], self.finite[sender] = True, False

    def inbox(self, weight: NDArray, own_weight: float, slot: int, lockstep_of: int | None = None) -> Inbox:
        """Return what is held as an inbox, and mark it as heard.

        In lock-step (`lockstep_of`: the node's own number) nothing counts as heard until all neighbours are, and then
        the node itself is marked too.
        """
        dtype = self.payload.dtype
        heard = self.heard.copy()
        if lockstep_of is not None:
            heard[:] = self.heard[weight > 0].all()
        box = Inbox(
            store=jnp.asarray(self.payload.copy()),  # NumPy's copy: JAX may read later, and the mailbox goes on
            row=jnp.arange(len(self.payload)),
            weight=jnp.asarray(weight, dtype),
            own_weight=jnp.asarray(own_weight, dtype),
            heard=jnp.asarray(heard),
            age=jnp.asarray(np.maximum(slot - self.slot, 0), jnp.int32),  # a sender may have lived more slots
            finite=jnp.asarray(self.finite.copy()),
        )
        self.heard[heard] = False
        return box


@partial(jax.jit, static_argnums=1)
def _hear(state: State, algorithm: Algorithm, inbox: Inbox) -> tuple[State, Array, Array]:
    state = algorithm.receive(state, inbox)
    return state, algorithm.computes(state), algorithm.point(state, inbox)


@partial(jax.jit, static_argnums=1)
def _learn(state: State, algorithm: Algorithm, inbox: Inbox, loss: Array, grad: Array, key: Array) -> State:
    return algorithm.update(state, inbox, loss, grad, key)


class Node:
    """One learner. `problem` is its own part (`Problem.of_node`), `shares` the data shares of all nodes."""

    def __init__(
        self,
        index: int,
        problem: Problem,
        algorithm: Algorithm,
        shares: NDArray,
        *,
        run: int = 0,
        seed: int = 0,
    ) -> None:
        if problem.num_nodes != 1:
            raise ValueError(
                f"a node holds one part of the data, got {problem.num_nodes}; use problem.of_node({index})"
            )
        if not 0 <= index < len(shares):
            raise ValueError(f"node {index} is not among the {len(shares)} shares; number nodes from 0")
        self.index, self.problem, self.algorithm = index, problem, algorithm
        place = Place(jnp.asarray(index, jnp.int32), len(shares), node_key(make_key(seed, Stream.START), index, 0))
        self.state: State = algorithm.init(problem.initial, place)
        with_server = algorithm.server is not None
        first = np.asarray(_first_heard(algorithm, self.state, problem.initial, len(shares)))
        self.mailbox = Mailbox(first, 1 if with_server else len(shares), run)
        self._own = None if with_server else index
        self._weight, self._own_weight = _weights(algorithm, index, shares)
        self._waits = not with_server and Assumption.LOCKSTEP in algorithm.assumes
        self.slot = 0
        self.steps = 0
        self._sequence = 0
        self._seed = seed

    def receive(self, data: bytes) -> bool:
        """Take a message; tell whether it was kept."""
        return self.mailbox.put(data, self._own)

    def wake(self) -> bool:
        """Live one slot; tell whether a gradient was taken."""
        inbox = self.mailbox.inbox(self._weight, self._own_weight, self.slot, self._round_of())
        self.state, wants, point = _hear(self.state, self.algorithm, inbox)
        if wants:
            loss, grad = self.problem.gradients(point[None], self._key(Stream.BATCH)[None])
            self.state = _learn(self.state, self.algorithm, inbox, loss[0], grad[0], self._key(Stream.ALGORITHM))
            self.steps += 1
        self.slot += 1
        return bool(wants)

    def _round_of(self) -> int | None:
        """Return the node's own number if it lives in lock-step: it then hears all its neighbours at once, or none."""
        return self.index if self._waits else None

    def offers(self) -> bool:
        """Tell whether the node has something to send."""
        return bool(self.algorithm.offers(self.state))

    def send(self) -> bytes:
        """Return the message to broadcast now."""
        self._sequence += 1
        params = np.asarray(self.algorithm.message(self.state))
        return encode(Message(self.mailbox.run, self.index, self._sequence, self.slot, params))

    def params(self) -> NDArray[Any]:
        """Return the node's parameters w_i."""
        return np.asarray(self.algorithm.params(self.state))

    def _key(self, stream: Stream) -> Array:
        return node_key(make_key(self._seed, stream), self.index, self.steps)


def _first_heard(algorithm: Algorithm, state: State, initial: Array, num_nodes: int) -> Array:
    """Return what a node holds of its neighbours before it hears any: the first message of a peer or of the server."""
    server = algorithm.server
    return algorithm.message(state) if server is None else server.message(server.init(initial, num_nodes))


def _weights(algorithm: Algorithm, index: int, shares: NDArray) -> tuple[NDArray, float]:
    """Return the weights of a node's neighbours, and its own."""
    if algorithm.server is not None:
        return np.ones(1), 0.0
    others = np.arange(len(shares)) != index
    row = np.asarray(shares)
    if algorithm.mixing is not None:
        row = np.asarray(algorithm.mixing.weights(jnp.ones((len(shares), len(shares)), bool)))[index]
    return np.where(others, row, 0.0), float(row[index])


@partial(jax.jit, static_argnums=1)
def _serve(state: State, algorithm: Algorithm, inbox: Inbox, key: Array) -> State:
    assert algorithm.server is not None  # noqa: S101 - ServerNode checks it
    return algorithm.server.receive(state, inbox, key)


class ServerNode:
    """The server of a centralised method. It signs its messages as sender 0, a node's only neighbour."""

    def __init__(self, initial: Array, algorithm: Algorithm, shares: NDArray, *, run: int = 0, seed: int = 0) -> None:
        if algorithm.server is None:
            raise ValueError(f"{algorithm.name} has no server role; run it between peers")
        self.algorithm, self.server = algorithm, algorithm.server
        self.state: State = self.server.init(initial, len(shares))
        place = Place(jnp.zeros((), jnp.int32), len(shares), make_key(seed, Stream.START))
        first = np.asarray(algorithm.message(algorithm.init(initial, place)))
        self.mailbox = Mailbox(first, len(shares), run, note_broken=True)
        self._shares = np.asarray(shares)
        self._seed = seed
        self.slot = 0
        self._sequence = 0

    def receive(self, data: bytes) -> bool:
        """Take an upload; tell whether it was kept."""
        return self.mailbox.put(data)

    def wake(self) -> bool:
        """Let the server act on what arrived; tell whether it has an answer to send."""
        inbox = self.mailbox.inbox(self._shares, 0.0, self.slot)
        key = jax.random.fold_in(make_key(self._seed, Stream.DELAY), self.slot)
        self.state = _serve(self.state, self.algorithm, inbox, jax.random.fold_in(key, int(Stream.SERVER)))
        self.slot += 1
        return bool(np.any(self.server.offers(self.state)))

    def send(self) -> bytes:
        """Return the message to broadcast now."""
        self._sequence += 1
        params = np.asarray(self.server.message(self.state))
        return encode(Message(self.mailbox.run, 0, self._sequence, self.slot, params))
