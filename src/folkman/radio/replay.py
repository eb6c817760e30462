"""Recorded timelines of methods that wait, replayed: rounds between peers, and transfers around a server.

What devices did is data here, as in `folkman.radio.trace`; nobody is waited for, since everything has happened.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from folkman.radio.delivery import Delivery, Transfer
from folkman.radio.trace import PeerTimeline, Replay, ReplayState, StarTimeline

__all__ = ["RoundReplay", "StarReplay", "replay_rounds", "replay_star"]


class StarReplayState(NamedTuple):
    """The recorded tables and the places in them, one a direction."""

    up_slot: Array  # ()
    down_slot: Array  # ()
    waiting: Array  # (node,) bool; always False


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
        self, state: ReplayState, offers: Array, wanted: Array | None, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery."""
        del wanted
        return self.beneath.step(state, offers, message_bits, key)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"rounds that were recorded can only be repeated in rounds; they have no '{name}'")


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
        started, arrived = jnp.asarray(self.timeline.up_started), jnp.asarray(self.timeline.up_arrived)
        at = state.up_slot
        return state._replace(up_slot=at + 1), Transfer(started[at], arrived[at], jnp.zeros_like(offers))

    def downlink(
        self, state: StarReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[StarReplayState, Transfer]:
        """Return the answers of the next slot."""
        del message_bits, key
        started, arrived = jnp.asarray(self.timeline.down_started), jnp.asarray(self.timeline.down_arrived)
        at = state.down_slot
        return state._replace(down_slot=at + 1), Transfer(started[at], arrived[at], jnp.zeros_like(offers))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"transfers around a server that were recorded have no '{name}'")


def replay_rounds(timeline: PeerTimeline, bits_per_parameter: int = 16) -> RoundReplay:
    """Build a network that repeats rounds between peers."""
    return RoundReplay(Replay(timeline, bits_per_parameter))


def replay_star(timeline: StarTimeline, bits_per_parameter: int = 16) -> StarReplay:
    """Build a network that repeats transfers around a server."""
    return StarReplay(timeline, bits_per_parameter)
