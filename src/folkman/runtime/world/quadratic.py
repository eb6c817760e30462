"""The problem of the world: F_i(w) = 1/2 ||w - c_i||^2, a few numbers, one subtraction a gradient.

Its nodes disagree as nodes with different data do, and its optimum is known: the mean of the c_i.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from folkman.arrays import Array, jnp
from folkman.problem.learnable import Evaluation
from folkman.problem.models import Layout
from folkman.runtime.world.draws import stream

__all__ = ["Quadratic"]


@dataclass(frozen=True)
class Quadratic:
    """The part of one node (`folkman.problem.learnable.Learnable`)."""

    centre: Any  # (d,) c_i
    index: int
    total: int  # nodes

    num_nodes = 1
    batch = None
    called_from_python = True

    @classmethod
    def of(cls, seed: int, index: int, total: int, dim: int) -> "Quadratic":
        """Draw the part of a node."""
        draws = stream(seed, "centre", index)
        centre = [draws.gauss(0.0, 1.0) for _ in range(dim)]
        return cls(jnp.asarray(np.array(centre, np.float32)), index, total)

    @property
    def dim(self) -> int:
        """Return d."""
        return len(self.centre)

    @property
    def layout(self) -> Layout:
        """Return one vector."""
        return Layout((("w", (self.dim,)),))

    @property
    def initial(self) -> Array:
        """Return zeros."""
        return jnp.zeros(self.dim, jnp.float32)

    @property
    def count(self) -> Array:
        """Return one sample."""
        return jnp.ones(1, jnp.int32)

    @property
    def share(self) -> Array:
        """Return 1 / I."""
        return jnp.full(1, 1.0 / self.total, jnp.float32)

    @property
    def node(self) -> Array:
        """Return the node's number."""
        return jnp.asarray([self.index], jnp.int32)

    def of_node(self, index: int) -> "Quadratic":
        """Return the part itself: it has one node."""
        del index
        return self

    def gradients(self, v: Array, keys: object) -> tuple[Array, Array]:
        """Return F_i and its gradient."""
        del keys
        off = np.asarray(v) - np.asarray(self.centre)
        return jnp.asarray(0.5 * (off * off).sum(1)), jnp.asarray(off)

    def gradient(self, point: Array) -> tuple[Array, Array]:
        """Return the same at one point."""
        off = np.asarray(point) - np.asarray(self.centre)
        return jnp.asarray(np.float32(0.5) * (off * off).sum()), jnp.asarray(off)

    def evaluate(self, w: Array) -> Evaluation:
        """Return F_i, and how far its own optimum is."""
        off = np.asarray(w) - np.asarray(self.centre)
        nan = jnp.asarray(np.float32("nan"))
        loss, far = jnp.asarray(0.5 * (off @ off)), jnp.asarray(np.sqrt(off @ off))
        return Evaluation(loss, nan, nan, far)
