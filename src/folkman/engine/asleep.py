"""Nodes that live only in some slots, as real ones do: what comes meanwhile waits for them."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.engine.faults import Faults

__all__ = ["Asleep"]


class Asleep(Faults):
    """No fault but sleep: `awake` (slot, node) tells in which slots a node hears, computes and sends."""

    awake: NDArray[np.bool_]

    def __new__(cls, awake: NDArray[np.bool_]) -> "Asleep":
        """Build from a table; two tables are never taken for the same, so that each gets a program of its own."""
        self = super().__new__(cls)
        self.awake = awake
        return self

    def present(self, num_nodes: int, slot: Array) -> Array:
        """Tell who is awake."""
        del num_nodes
        return jnp.asarray(self.awake)[jnp.minimum(slot, len(self.awake) - 1)]

    def receives(self, num_nodes: int, slot: Array) -> Array:
        """Tell that everybody can be brought a message."""
        del slot
        return jnp.ones(num_nodes, bool)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
