"""Between peers in lock-step, who use the sum of what others send: it may be formed on the air.

Where a network forms sums (`superpose` of its face), the air is a node's only neighbour: its inbox
has one row, what its receiver made of the frames that were on the air together, with weight 1. No
single message can be read from it. On other networks messages arrive one by one, as in rounds.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.algorithm.base import Inbox, State
from folkman.algorithm.travel import OnAir
from folkman.checks import require
from folkman.engine.presence import Presence
from folkman.engine.travel.medium import Axes, Ending, Events, Traffic
from folkman.engine.travel.peers import PeerState
from folkman.engine.travel.rounds import RoundMedium
from folkman.problem.learnable import Learnable
from folkman.radio.delivery import RoundNetwork
from folkman.radio.over_air import NUMBER_BITS
from folkman.radio.trace import PeerTimeline

__all__ = ["OnAirMedium"]


class OnAirMedium(RoundMedium):
    """Peers in lock-step who use nothing but a sum of what their neighbours send."""

    travel: OnAir  # type: ignore[assignment] - the table matches types

    def air(self) -> RoundNetwork:
        """Return the network's face for sums on the air."""
        return self.network.on_air()

    @property
    def formed(self) -> bool:
        """Tell whether sums are formed on the air."""
        return hasattr(self.air(), "superpose")

    def check(self, num_nodes: int, faults: Presence) -> None:
        """Refuse what rounds refuse, and a packing of what has no bits."""
        super().check(num_nodes, faults)
        packing = self.network.packing
        require(
            not self.formed or packing.exact,
            f"'{self.network.name}' sends energies, which no compression packs, got "
            f"'{packing.name}'; leave the compression out",
        )

    def open(self, problem: Learnable, states: State, key: Array) -> PeerState:
        """Let everyone hold everyone's first message, or nothing of the air."""
        begun = super().open(problem, states, key)
        if not self.formed:
            return begun
        shape = (2, problem.num_nodes, self.entries(problem))  # on the air, and arrived
        return begun._replace(mixed=jnp.zeros(shape, problem.initial.dtype))

    def prices(self, problem: Learnable) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bits of a message, or what the numbers of a frame count as."""
        if not self.formed:
            return super().prices(problem)
        return (NUMBER_BITS * self.air().units(problem.dim),), (0,)  # type: ignore[attr-defined]

    def inboxes(self, held: PeerState, problem: Learnable, slot: Array) -> tuple[Inbox, Axes]:
        """Return what each node holds: of the air, the sum that arrived last."""
        if held.mixed is None:
            return super().inboxes(held, problem, slot)
        nodes, store = problem.num_nodes, held.mixed[1]
        inbox = Inbox(
            store=store,
            row=jnp.arange(nodes)[:, None],
            weight=jnp.ones((nodes, 1), store.dtype),
            own_weight=jnp.zeros(nodes, store.dtype),
            heard=jnp.diagonal(held.snapshots.heard)[:, None],
            age=(slot - jnp.diagonal(held.snapshots.held))[:, None],
            finite=jnp.ones(1, bool),
        )
        axes = dict.fromkeys(Inbox.__dataclass_fields__, 0)
        return inbox, Inbox(**axes | {"store": None, "finite": None, "coming": None})  # type: ignore[arg-type]

    def exchange(self, held: PeerState, ending: Ending) -> tuple[PeerState, Traffic, Events]:
        """Advance the round; what is on the air together is summed when it is sent."""
        offered = self.offered(ending)
        moved, traffic, delivery = self.advanced(held, offered, ending)
        if held.mixed is None:
            return moved, traffic, delivery
        on_air, arrived = held.mixed

        def summed() -> Array:
            return self.air().superpose(moved.network, offered.messages, ending.key)  # type: ignore[attr-defined]

        sums = lax.cond(jnp.any(delivery.sends), summed, lambda: on_air)
        ends = jnp.diagonal(delivery.held) != jnp.diagonal(held.brought)
        arrived = jnp.where(ends[:, None], on_air, arrived)
        return moved._replace(mixed=jnp.stack([sums, arrived])), traffic, delivery

    def rounds(self, held: PeerState) -> Array | None:
        """Return the frames so far: in each only some nodes send."""
        return held.network.rounds if self.formed else super().rounds(held)

    def timeline(
        self, stamps: NDArray[np.int32], finished: NDArray[np.bool_], events: Events
    ) -> PeerTimeline:
        """Return who held what when, or refuse: a timeline does not keep what the air added."""
        require(
            not self.formed,
            f"a timeline says which messages arrived, and on '{self.network.name}' none does; "
            "leave the timeline out",
        )
        return super().timeline(stamps, finished, events)
