"""Whom a node listens to in a round: all its neighbours, or a few drawn anew in every round.

    full     all others
    ring     the one before and the one after
    random   `in_degree` others, drawn without replacement; all send, a node uses those it drew

A node takes part in a round with the chance `active`; otherwise it listens to nobody.
"""

from typing import Literal, NamedTuple, TypeAlias

from folkman.algorithm.base import Inbox
from folkman.algorithm.pieces.sparsity import lowest
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Mixing
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["RoundNeighbours", "RoundTopology"]

RoundTopology: TypeAlias = Literal["full", "ring", "random"]


class RoundNeighbours(NamedTuple):
    """How a node's neighbours of a round are found."""

    topology: RoundTopology
    in_degree: int
    active: float  # the chance to take part in a round

    def mixing(self) -> Mixing:
        """Return who can hear whom, after the checks that need no number of nodes."""
        require(
            self.topology in ("full", "ring", "random"),
            f"topology must be full, ring or random, got {self.topology!r}",
        )
        require(self.in_degree >= 1, f"in_degree must be at least 1, got {self.in_degree}")
        require(
            0 <= self.active <= 1,
            f"active is a chance in [0, 1], got {self.active}; 1 is always",
        )
        return Graph("ring" if self.topology == "ring" else "complete").mixing()

    def none(self, num_nodes: int) -> Array:
        """Return nobody, (node,) bool, or refuse a network that is too small."""
        require(
            self.topology != "random" or self.in_degree < num_nodes,
            f"in_degree must be below the {num_nodes} nodes, got {self.in_degree}; "
            "take a smaller one",
        )
        return jnp.zeros(num_nodes, bool)

    def draw(self, inbox: Inbox, key: Array) -> Array:
        """Return the neighbours of the coming round, (node,) bool."""
        who, takes_part = jax.random.split(key)
        near = inbox.weight > 0
        if self.topology == "random":
            ticket = jax.random.uniform(who, near.shape, jnp.float32)
            near = lowest(jnp.where(near, ticket, jnp.inf), self.in_degree)
        return near & (jax.random.uniform(takes_part, (), jnp.float32) < self.active)
