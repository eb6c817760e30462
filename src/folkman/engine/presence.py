"""Who is there in a slot: what the engine asks of faults, and of a recorded table of sleep."""

from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

__all__ = ["Asleep", "Presence"]


class Presence(Protocol):
    """Who is there, who can be brought a message, who starts again.

    `folkman.faults.Faults` is one.
    """

    @property
    def away(self) -> tuple[tuple[int, int, int], ...]:
        """Return (node, first slot away, first slot back) of those that freeze."""
        ...

    @property
    def crash(self) -> tuple[tuple[int, int, int | None], ...]:
        """Return (node, first slot away, slot of its new start) of those that lose their state."""
        ...

    @property
    def all_there(self) -> bool:
        """Tell whether all nodes are there in all slots."""
        ...

    @property
    def leaves_for_good(self) -> bool:
        """Tell whether some node never comes back."""
        ...

    @property
    def starts_anew(self) -> bool:
        """Tell whether some node comes back without its state."""
        ...

    def check(self, num_nodes: int) -> None:
        """Refuse what cannot happen to `num_nodes` nodes."""
        ...

    def present(self, num_nodes: int, slot: Array) -> Array:
        """Tell which nodes are there in a slot, (node,) bool."""
        ...

    def receives(self, num_nodes: int, slot: Array) -> Array:
        """Tell to which nodes a message can be brought in a slot, (node,) bool."""
        ...

    def begins_anew(self, num_nodes: int, slot: Array) -> Array:
        """Tell which nodes start again from the first model in this slot, (node,) bool."""
        ...

    def corrupt(
        self, messages: Array, initial: Array, key: Array, *, about_zero: bool = False
    ) -> Array:
        """Return what is sent instead of `messages` (node, message)."""
        ...


class Asleep:
    """Nodes that live only in some slots, as real ones do: what comes meanwhile waits for them.

    `awake` (slot, node) tells in which slots a node hears, computes and sends. Two tables are
    compared by identity, so that each gets a program of its own.
    """

    away: tuple[tuple[int, int, int], ...] = ()
    crash: tuple[tuple[int, int, int | None], ...] = ()
    all_there = False
    leaves_for_good = False
    starts_anew = False

    def __init__(self, awake: NDArray[np.bool_]) -> None:
        self.awake = awake

    def check(self, num_nodes: int) -> None:
        """Refuse a table of another number of nodes."""
        nodes = self.awake.shape[1]
        if nodes != num_nodes:
            raise ValueError(
                f"expected a table of {num_nodes} nodes, got {nodes}; record it with this many"
            )

    def present(self, num_nodes: int, slot: Array) -> Array:
        """Tell who is awake."""
        del num_nodes
        return jnp.asarray(self.awake)[jnp.minimum(slot, len(self.awake) - 1)]

    def receives(self, num_nodes: int, slot: Array) -> Array:
        """Tell that everybody can be brought a message."""
        del slot
        return jnp.ones(num_nodes, bool)

    def begins_anew(self, num_nodes: int, slot: Array) -> Array:
        """Tell that nobody loses its state."""
        del slot
        return jnp.zeros(num_nodes, bool)

    def corrupt(
        self, messages: Array, initial: Array, key: Array, *, about_zero: bool = False
    ) -> Array:
        """Return the messages: nobody lies."""
        del initial, key, about_zero
        return messages
