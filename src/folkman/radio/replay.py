"""Networks that repeat a recorded timeline: deliveries between peers, rounds between peers, transfers around a server.

What happened is data (`folkman.radio.trace`). Nobody is waited for, since everything has happened.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from folkman.radio.delivery import Delivery, Transfer
from folkman.radio.trace import PeerTimeline, StarTimeline, check_timeline, load

__all__ = [
    "Replay",
    "RoundReplay",
    "StarReplay",
    "from_file",
    "replay",
    "replay_rounds",
    "replay_star",
]

FEW = 64
"""Payloads of a sender that a replay keeps at most for the sake of the same bits."""
MOST_AT_FIRST = 4
"""Payloads of a sender that a replay has room for at first; a pair that never hears the other keeps one for ever."""


class ReplayState(NamedTuple):
    """The recorded tables and the place in them."""

    slot: Array  # () slots ended so far
    held: Array  # (slot, rx, tx)
    sends: Array  # (slot, tx)


class StarReplayState(NamedTuple):
    """The recorded tables and the places in them, one a direction."""

    up_slot: Array  # ()
    down_slot: Array  # ()
    waiting: Array  # (node,) bool; always False


@dataclass(frozen=True, eq=False)
class Replay:
    """A network that repeats a peer timeline."""

    timeline: PeerTimeline
    bits_per_parameter: int = 16
    reliable = False
    synchronous = False

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.held)

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered.

        All that are in use count, where they are few: copies of a delay law then stand in the rows that they had when
        it was recorded, and sum to the same bits.
        """
        needed = _versions(self.timeline)
        return needed if needed <= FEW else _recent(self.timeline)

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender are needed at once, or a first guess where those are many."""
        self._check_nodes(num_nodes)
        return min(_versions(self.timeline), MOST_AT_FIRST)

    def init(self, num_nodes: int, key: Array) -> ReplayState:
        """Return the beginning of the recording."""
        del key
        self._check_nodes(num_nodes)
        return ReplayState(
            jnp.zeros((), jnp.int32),
            jnp.asarray(self.timeline.held),
            jnp.asarray(self.timeline.sends),
        )

    def step(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery; what is held after the last slot was not recorded, and stays."""
        del offers, message_bits, key
        last = state.held.shape[0] - 1
        held = state.held[jnp.minimum(state.slot + 1, last)]
        sends = state.sends[jnp.minimum(state.slot, last)] & (state.slot <= last)
        linked = sends[None] & ~jnp.eye(len(sends), dtype=bool)
        kept = sends & (
            state.slot < last
        )  # what is sent in the last slot is on the air, and nobody will hold it
        return state._replace(slot=state.slot + 1), Delivery(held, kept, linked)

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return the size as it is."""
        return message_bits

    def lockstep_init(self, num_nodes: int, key: Array) -> ReplayState:
        """Refuse: a recording has a pace of its own."""
        del num_nodes, key
        raise ValueError(
            "a method in lock-step needs a network that waits for it, got a recorded timeline; choose a delay law or "
            "the radio, or an asynchronous method"
        )

    def exchange(
        self,
        state: ReplayState,
        offers: Array,
        wanted: Array | None,
        message_bits: ArrayLike,
        key: Array,
    ) -> tuple[ReplayState, Delivery]:
        """Refuse, as `lockstep_init` does."""
        raise NotImplementedError

    def measures(self, state: ReplayState) -> dict[str, Array]:
        """Return nothing: a timeline does not say why a copy is old."""
        del state
        return {}

    def star_init(self, num_nodes: int, key: Array) -> ReplayState:
        """Refuse: a recording between peers has no server."""
        del num_nodes, key
        raise ValueError(
            "a method with a server needs a network around a server, got a timeline recorded between peers; "
            "choose a delay law, or a method without a server"
        )

    def uplink(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Transfer]:
        """Refuse, as `star_init` does."""
        raise NotImplementedError

    def downlink(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Transfer]:
        """Refuse, as `star_init` does."""
        raise NotImplementedError

    def _check_nodes(self, num_nodes: int) -> None:
        recorded = self.timeline.held.shape[1]
        if recorded != num_nodes:
            raise ValueError(
                f"the timeline was recorded between {recorded} nodes, the problem has {num_nodes}; "
                "use a problem of that size or record again"
            )


@dataclass(frozen=True, eq=False)
class RoundReplay:
    """A network that repeats rounds between peers; `held` changes on the diagonal too when a node's round ends."""

    beneath: Replay
    name = "recorded rounds"
    reliable = True
    synchronous = True

    @property
    def bits_per_parameter(self) -> int:
        """Return the price of one parameter."""
        return self.beneath.bits_per_parameter

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return self.beneath.horizon

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.beneath.recent

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return the size as it is."""
        return message_bits

    def measures(self, state: ReplayState) -> dict[str, Array]:
        """Return nothing."""
        del state
        return {}

    def lockstep_init(self, num_nodes: int, key: Array) -> ReplayState:
        """Return the beginning of the recording."""
        return self.beneath.init(num_nodes, key)

    def exchange(
        self,
        state: ReplayState,
        offers: Array,
        wanted: Array | None,
        message_bits: ArrayLike,
        key: Array,
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery."""
        del wanted
        return self.beneath.step(state, offers, message_bits, key)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"rounds that were recorded can only be repeated in rounds; they have no '{name}'"
        )


@dataclass(frozen=True, eq=False)
class StarReplay:
    """A network that repeats the transfers around a server."""

    timeline: StarTimeline
    bits_per_parameter: int = 16
    name = "recorded transfers"
    reliable = True
    synchronous = True
    recent = 1

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.finished)

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return the size as it is."""
        return message_bits

    def measures(self, state: StarReplayState) -> dict[str, Array]:
        """Return nothing."""
        del state
        return {}

    def star_init(self, num_nodes: int, key: Array) -> StarReplayState:
        """Return the beginning of the recording."""
        del key
        zero = jnp.zeros((), jnp.int32)
        return StarReplayState(zero, zero, jnp.zeros(num_nodes, bool))

    def uplink(
        self, state: StarReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[StarReplayState, Transfer]:
        """Return the uploads of the next slot."""
        del message_bits, key
        started, arrived = (
            jnp.asarray(self.timeline.up_started),
            jnp.asarray(self.timeline.up_arrived),
        )
        at = state.up_slot
        return state._replace(up_slot=at + 1), Transfer(
            started[at], arrived[at], jnp.zeros_like(offers)
        )

    def downlink(
        self, state: StarReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[StarReplayState, Transfer]:
        """Return the answers of the next slot."""
        del message_bits, key
        started, arrived = (
            jnp.asarray(self.timeline.down_started),
            jnp.asarray(self.timeline.down_arrived),
        )
        at = state.down_slot
        return state._replace(down_slot=at + 1), Transfer(
            started[at], arrived[at], jnp.zeros_like(offers)
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"transfers around a server that were recorded have no '{name}'")


def replay(timeline: PeerTimeline, bits_per_parameter: int = 16) -> Replay:
    """Build a network that repeats `timeline`, after checking that it can have happened."""
    check_timeline(timeline)
    return Replay(timeline, bits_per_parameter)


def from_file(path: str, bits_per_parameter: int = 16) -> Replay:
    """Build a network that repeats the peer timeline saved at `path`."""
    timeline = load(path)
    if not isinstance(timeline, PeerTimeline):
        raise ValueError(
            f"expected a timeline between peers, {path} was recorded around a server; record another"
        )
    return Replay(timeline, bits_per_parameter)


def replay_rounds(timeline: PeerTimeline, bits_per_parameter: int = 16) -> RoundReplay:
    """Build a network that repeats rounds between peers."""
    return RoundReplay(Replay(timeline, bits_per_parameter))


def replay_star(timeline: StarTimeline, bits_per_parameter: int = 16) -> StarReplay:
    """Build a network that repeats transfers around a server."""
    return StarReplay(timeline, bits_per_parameter)


def _recent(timeline: PeerTimeline) -> int:
    """Return of how many of its newest payloads a sender may still deliver one: the oldest that newly arrives."""
    nodes = timeline.sends.shape[1]
    sent = np.concatenate(
        [np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]]
    )  # stamps up to a slot
    before, after = timeline.held[:-1], timeline.held[1:]
    older = sent[np.maximum(after - 1, 0), np.arange(nodes)[None, None]] * (
        after > 0
    )  # sent before the one that arrives
    new = (after != before) & ~np.eye(nodes, dtype=bool)[None]
    return int(np.max((sent[:-1, None] - older)[new], initial=1))


def _versions(timeline: PeerTimeline) -> int:
    """Return the most payloads of one sender that are needed at once: sent, and held now or later."""
    slots, nodes = timeline.sends.shape
    held = np.where(np.eye(nodes, dtype=bool), np.iinfo(np.int32).max, timeline.held)
    oldest = np.minimum.accumulate(held.min(axis=1)[::-1])[
        ::-1
    ]  # (slot, tx) oldest stamp needed from here on
    sent_upto = np.concatenate(
        [np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]]
    )
    before = np.take_along_axis(sent_upto, np.clip(oldest, 1, slots) - 1, axis=0) * (oldest > 0)
    return int(np.max(sent_upto - np.where(oldest > slots, sent_upto - 1, before), initial=1))
