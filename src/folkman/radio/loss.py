"""Messages that are lost: any network, with each message lost with probability p, for each receiver on its own.

Between peers on their own beat a lost message is gone: the receiver keeps the copy it has. In lock-step and around a
server, where someone waits for it, it is sent again (every repetition takes its time and its bits): a round in
lock-step is repeated, by all, until each pair that must hear has heard once; an upload or an answer, until it arrives.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from folkman.checks import require
from folkman.keys import Stream
from folkman.radio.delivery import Delivery, Network, NetworkState, Transfer

__all__ = ["LossState", "Lossy"]


class LossState(NamedTuple):
    """Between peers."""

    inner: NetworkState
    brought: Array  # (rx, tx) stamp that the network below brought last
    held: Array  # (rx, tx) stamp of the copy held
    got: Array  # (rx, tx) bool: heard in this round, in lock-step


@dataclass(frozen=True)
class Lossy:
    """`network` with losses."""

    network: Network
    loss: float
    reliable = False

    def __post_init__(self) -> None:
        require(0 <= self.loss < 1, f"loss is a probability in [0, 1), got {self.loss}")

    @property
    def name(self) -> str:
        """Return the name of the network below."""
        return getattr(self.network, "name", "a recorded timeline")

    @property
    def slot_s(self) -> float:
        """Return the seconds of a slot of the network below, if it has them."""
        return self.network.slot_s  # type: ignore[attr-defined] - absent where the network has none, and then here too

    @property
    def bits_per_parameter(self) -> int:
        """Return the price of one parameter on the air."""
        return self.network.bits_per_parameter

    @property
    def synchronous(self) -> bool:
        """Tell whether the network below can carry rounds in lock-step."""
        return self.network.synchronous

    @property
    def horizon(self) -> int | None:
        """Return how many slots the network below can run."""
        return self.network.horizon

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.network.recent

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return what a message costs on the air."""
        return self.network.payload_bits(message_bits)

    def star_init(self, num_nodes: int, key: Array) -> Any:
        """Return the state before slot 0, around a server."""
        return self.network.star_init(num_nodes, key)

    def versions(self, num_nodes: int) -> int:
        """Return a first guess: copies stay in use for longer; an engine may need more."""
        return self.network.versions(num_nodes) + 2

    def init(self, num_nodes: int, key: Array) -> LossState:
        """Return the state before slot 0, between peers."""
        return _begin(self.network.init(num_nodes, key), num_nodes)

    def step(
        self, state: LossState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[LossState, Delivery]:
        """Let the network below deliver, and lose some of what is new."""
        inner, delivery = self.network.step(state.inner, offers, message_bits, key)
        kept = (delivery.held != state.brought) & ~self._lost(delivery.held.shape, key)
        held = jnp.where(kept, delivery.held, state.held)
        return LossState(inner, delivery.held, held, state.got), delivery._replace(held=held)

    def lockstep_init(self, num_nodes: int, key: Array) -> LossState:
        """Return the state before slot 0, in lock-step."""
        return _begin(self.network.lockstep_init(num_nodes, key), num_nodes)

    def exchange(
        self,
        state: LossState,
        offers: Array,
        wanted: Array | None,
        message_bits: ArrayLike,
        key: Array,
    ) -> tuple[LossState, Delivery]:
        """Repeat the round of the network below until every pair of `wanted` has heard; None: once."""
        inner, delivery = self.network.exchange(state.inner, offers, wanted, message_bits, key)
        own = jnp.eye(len(offers), dtype=bool)
        brought = delivery.held != state.brought
        ended = jnp.any(brought & own)
        got = state.got | (brought & ~self._lost(brought.shape, key)) | (ended & own)
        ends = ended & (jnp.all(got | ~wanted) if wanted is not None else jnp.asarray(True))
        held = jnp.where(ends & (got | jnp.asarray(wanted is not None)), delivery.held, state.held)
        new = LossState(inner, delivery.held, held, got & ~ends)
        return new, delivery._replace(held=held)

    def measures(self, state: Any) -> dict[str, Array]:
        """Return what the network below measures."""
        return self.network.measures(state.inner if isinstance(state, LossState) else state)

    def uplink(
        self, state: Any, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[Any, Transfer]:
        """Let a node whose upload was lost send it again."""
        state, transfer = self.network.uplink(state, offers, message_bits, key)
        lost = transfer.arrived & self._lost(offers.shape, key)
        return state._replace(waiting=state.waiting & ~lost), Transfer(
            transfer.started, transfer.arrived & ~lost, lost
        )

    def downlink(
        self, state: Any, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[Any, Transfer]:
        """Let a node whose answer was lost go on waiting for it."""
        state, transfer = self.network.downlink(state, offers, message_bits, key)
        lost = transfer.arrived & self._lost(offers.shape, key)
        return state._replace(waiting=state.waiting | lost), Transfer(
            transfer.started, transfer.arrived & ~lost, lost
        )

    def _lost(self, shape: tuple[int, ...], key: Array) -> Array:
        return jax.random.bernoulli(jax.random.fold_in(key, int(Stream.LOSS)), self.loss, shape)


def _begin(inner: NetworkState, num_nodes: int) -> LossState:
    none = jnp.zeros((num_nodes, num_nodes), jnp.int32)
    return LossState(inner, none, none, none.astype(bool))
