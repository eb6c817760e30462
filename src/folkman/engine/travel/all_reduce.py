"""Between all peers in lock-step, who wait for the sum of all messages: rounds, with sums.

What a node computes is the same on every network: the sum by data share of what all nodes offered
at the start of the round. A contribution is rounded once, at its origin (`folkman.packing.sums`).
Where a network carries partial sums (`sums` of its face), a message costs the bits of a sum and one
bit a node, which says whose contributions are in it; elsewhere it costs those of a copy.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox
from folkman.algorithm.travel import AllReduce
from folkman.checks import require
from folkman.engine.learner import FinalParameters, Learner, World
from folkman.engine.presence import Presence
from folkman.engine.travel import peers
from folkman.engine.travel.medium import Axes, Ending
from folkman.engine.travel.peers import PeerState
from folkman.engine.travel.rounds import RoundMedium
from folkman.engine.travel.sending import Links, Sending
from folkman.packing.packing import Packing, width_of
from folkman.packing.sums import contributions, on_grid, partial_sum_bits, range_of, settled_sums
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import RoundNetwork
from folkman.radio.trace import PeerTimeline

__all__ = ["AllReduceMedium", "by_hand"]

INSTEAD = "through = 'station'"
"""What to do where messages cannot be added up."""


class AllReduceMedium(RoundMedium):
    """Peers in lock-step who use nothing but the sum of all messages."""

    travel: AllReduce  # type: ignore[assignment] - the table matches types

    def air(self) -> RoundNetwork:
        """Return the network's face for sums of all."""
        return self.network.all_reduce()

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse what rounds refuse, and error feedback."""
        super().check(num_nodes, faults)
        require(
            not self.network.packing.remembers,
            f"{self.algorithm.name} between the devices sends partial sums, of which no receiver "
            "has the one before; leave feedback out",
        )

    def inboxes(self, held: PeerState, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return what each node holds of all, its own message too as it stands in the sum.

        It is found with another node that holds the newest: a store keeps no node's own copy.
        """
        inbox, axes = super().inboxes(held, problem, slot)
        own = jnp.eye(problem.num_nodes, dtype=bool)
        stamps = jnp.where(own, -1, held.snapshots.held)
        rows = jnp.take_along_axis(inbox.row, jnp.argmax(stamps, axis=0)[None], axis=0)
        return replace(
            inbox,
            row=jnp.where(own, rows, inbox.row),
            weight=jnp.where(own, inbox.own_weight[:, None], inbox.weight),
            own_weight=jnp.zeros_like(inbox.own_weight),
        ), axes

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of a message: a partial sum, or a copy where the network adds nothing."""
        if not getattr(self.air(), "sums", False):
            return super().prices(problem)
        width = width_of(problem.initial.dtype)
        packing = self.sending(problem).packing
        return (partial_sum_bits(packing, problem.dim, problem.num_nodes, width),), (0,)

    def sending(self, problem: Learnable) -> Sending:
        """Return how nodes pack; contributions to sums are rounded at their origin."""
        return Sending(
            settled_sums(self.network.packing, self.algorithm.name, INSTEAD), problem.dim
        )

    def sent(
        self, held: PeerState, messages: Array, sends: Array, ending: Ending
    ) -> tuple[Array, Links | None]:
        """Return the contributions as they stand in every sum."""
        del held, sends
        problem = ending.problem
        packing = self.sending(problem).packing
        return contributed(packing, messages, problem.initial, problem.share), None


def contributed(packing: Packing, messages: Array, initial: Array, share: Array) -> Array:
    """Return the contributions of a round; a sum beyond the range of its bits comes out wrapped.

    All messages of a round are formed at once, and the shares add up to 1, so that taking the same
    off every contribution takes it off the sum.
    """
    rounded = contributions(packing, messages, initial, share)
    if not on_grid(packing):
        return rounded
    whole = range_of(packing, len(share))
    mean = jnp.dot(share, rounded - initial[None], precision="highest")
    return rounded - (whole * jnp.round(mean / whole))[None]


def by_hand(
    world: World, timeline: PeerTimeline, algorithm: Algorithm, nodes: list[Learner]
) -> FinalParameters:
    """Follow a timeline of rounds, one node at a time."""
    packing = settled_sums(world.packing, algorithm.name, INSTEAD)
    initial, share = world.problem.initial, world.problem.share

    def contribute(messages: NDArray) -> NDArray:
        return np.asarray(contributed(packing, jnp.asarray(messages), initial, share), np.float64)

    return peers.by_hand(world, timeline, algorithm, nodes, in_rounds=True, contribute=contribute)
