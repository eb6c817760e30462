"""One node at a time, by hand: what the slow twin of the simulator is made of."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, State
from folkman.algorithm.pieces.one_node import begin, hear, learn
from folkman.engine.presence import Presence
from folkman.engine.programs import compiled
from folkman.keys import Stream, make_key, node_key
from folkman.packing.packing import NONE, Packing, pack, pack_message
from folkman.problem.learnable import Learnable
from folkman.problem.objective import emphasis_of, emphasised
from folkman.problem.sampling import next_gradient

__all__ = ["FinalParameters", "Learner", "Sender", "World", "written_out"]

Vector = NDArray[np.float64]


class FinalParameters(NamedTuple):
    """Where the parameters ended."""

    model: Vector  # (d,) sum_i alpha_i w_i, or the server's
    nodes: Vector  # (node, d)


class World(NamedTuple):
    """What all nodes share, and what goes wrong among them."""

    problem: Learnable
    seed: int
    faults: Presence
    packing: Packing = NONE

    def slot_key(self, slot: int) -> Array:
        """Return the key of what is drawn for all nodes at once."""
        return jax.random.fold_in(make_key(self.seed, Stream.DELAY), slot)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Tell who is there."""
        return np.asarray(_whereabouts(self.faults, self.problem.num_nodes, slot)[0])

    def shares(self) -> NDArray[np.float64]:
        """Return alpha_i."""
        share = np.array(self.problem.share, np.float64)
        return share / share.sum()

    def start_anew(self, node: "Learner", slot: int) -> None:
        """Let a node that comes back from a crash in this slot begin anew."""
        if np.asarray(_whereabouts(self.faults, self.problem.num_nodes, slot)[1])[node.index]:
            node.start()

    def sent(self, nodes: list["Learner"], slot: int) -> NDArray[np.float64]:
        """Return what the nodes would put on the air now, lies included: (node, message)."""
        messages = _on_device(np.stack([node.message() for node in nodes]))
        about_zero = nodes[0].algorithm.declares.differences
        return np.asarray(
            self.faults.corrupt(
                messages, self.problem.initial, self.slot_key(slot), about_zero=about_zero
            )
        )


@compiled(fixed=(0, 1))
def _whereabouts(faults: Presence, num_nodes: int, slot: int) -> tuple[Array, Array]:
    """Return who is there in a slot, and who begins anew, (node,) each."""
    at = jnp.asarray(slot)
    return faults.present(num_nodes, at), faults.begins_anew(num_nodes, at)


class Sender:
    """What one sender puts on the air, told plainly: with error feedback it remembers.

    `take` packs a message; `arrived` moves the memory.
    """

    def __init__(self, world: World, first: Vector, *, adds: bool, server: bool = False) -> None:
        packing = world.packing
        self.packing = packing if packing.servers or not server else NONE
        self.dim, self.adds, self.seed = world.problem.dim, adds, world.seed
        self.memory = first[: self.dim] * (0.0 if adds else 1.0)
        self._after = self.memory

    def take(self, message: Vector, number: ArrayLike, step: int) -> Vector:
        """Return a message as its receivers hold it; `number` and `step` key its draws."""
        if self.packing.exact:
            return message
        key = node_key(make_key(self.seed, Stream.PACKING), number, step)
        if not self.packing.feedback:
            packed = pack_message(self.packing, jnp.asarray(message), self.dim, key)
            return np.asarray(packed, np.float64)
        own, model = jax.random.fold_in(key, 0), message[: self.dim]
        wanted = model + self.memory if self.adds else model - self.memory
        sent = np.asarray(pack(self.packing, jnp.asarray(wanted), own), np.float64)
        seen = sent if self.adds else self.memory + sent
        self._after = wanted - sent if self.adds else seen
        return np.concatenate([seen, message[self.dim :]])

    def arrived(self) -> None:
        """Note that what was taken last has arrived."""
        self.memory = self._after


def _part(problem: Learnable, index: int) -> Learnable:
    """Return a node's own part, cut by NumPy: JAX would compile a program for each of its sizes."""
    plain = jax.tree.map(lambda leaf: np.asarray(leaf) if _is_plain(leaf) else leaf, problem)
    return jax.device_put(plain.of_node(index))


def _is_plain(leaf: Array) -> bool:
    """Tell whether NumPy knows the type, as it does not that of keys."""
    return isinstance(leaf.dtype, np.dtype)


class Learner:
    """One node: its state, its own samples, and the gradient it is working on."""

    def __init__(self, world: World, algorithm: Algorithm, index: int) -> None:
        self.problem: Learnable = _part(world.problem, index)
        self.algorithm = algorithm
        self.index = index
        self.seed = world.seed
        self.num_nodes = world.problem.num_nodes
        emphasis = emphasis_of(world.problem) if algorithm.declares.evenly else None
        self.emphasis = None if emphasis is None else emphasis[index]
        self.steps = 0
        self.start()

    def start(self) -> None:
        """Begin at the common first model."""
        key = node_key(make_key(self.seed, Stream.START), self.index, 0)
        index = _on_device(np.int32(self.index))
        self.state: State = begin(self.problem.initial, self.algorithm, self.num_nodes, index, key)
        self.point: Array | None = None

    def slot(self, inbox: Inbox, *, finishes: bool) -> None:
        """Hear; begin a gradient if idle; apply it if it finishes in this slot."""
        self.state, restarts, computes, point = hear(self.state, self.algorithm, inbox)
        if self.point is None or bool(restarts):
            self.point = point if bool(computes) else None
        if not finishes:
            return
        if self.point is None:
            raise ValueError(
                f"the timeline has node {self.index} finish a gradient that it did not begin"
            )
        own_key = node_key(make_key(self.seed, Stream.ALGORITHM), self.index, self.steps)
        batch_key = make_key(self.seed, Stream.BATCH)
        number, steps = (_on_device(np.array([x], np.int32)) for x in (self.index, self.steps))
        found = next_gradient(self.problem, self.point, batch_key, number, steps)
        loss, grad = emphasised(found, self.emphasis)
        self.state = learn(self.state, self.algorithm, inbox, loss, grad, own_key)
        self.point = None
        self.steps += 1

    def message(self) -> Vector:
        """Return what the node would send now."""
        return np.array(self.algorithm.message(self.state), np.float64)

    def note_sent(self) -> None:
        """Let the node know that its message went on the air."""
        self.state = self.algorithm.travel.after_sending(self.state)

    def params(self) -> Vector:
        """Return the node's parameters."""
        return np.array(self.algorithm.params(self.state), np.float64)


def written_out(
    store: Sequence[ArrayLike] | NDArray,
    *,
    weight: ArrayLike,
    own_weight: float,
    heard: ArrayLike,
    age: ArrayLike,
    finite: ArrayLike,
    coming: ArrayLike | None = None,
) -> Inbox:
    """Return an inbox with every copy written out: neighbour j is row j."""
    return Inbox(
        store=_on_device(np.stack([np.asarray(copy) for copy in store])),
        row=_on_device(np.arange(len(store))),
        weight=_on_device(weight),
        own_weight=_on_device(own_weight),
        heard=_on_device(heard),
        age=_on_device(age),
        finite=_on_device(finite),
        coming=None if coming is None else _on_device(coming),
    )


def _on_device(given: ArrayLike) -> Array:
    """Return an array of JAX's; unlike `jnp.asarray` this compiles no program."""
    return jax.device_put(np.asarray(given))
