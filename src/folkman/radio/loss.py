"""Messages that are lost: any network, each message lost with probability p.

Each receiver loses on its own.

Between peers on their own beat a lost message is gone: the receiver keeps the copy it has. In
lock-step and around a server, where someone waits for it, it is sent again (every repetition takes
its time and its bits): a round in lock-step is repeated, by all, until each pair that must hear has
heard once; an upload or an answer, until it arrives.
"""

from dataclasses import dataclass
from math import nextafter
from typing import Any, NamedTuple, Protocol, runtime_checkable

from folkman.arrays import Array, ArrayLike, Bool, PRNGKeyArray, jax, jnp
from folkman.checks import require, within
from folkman.keys import Stream
from folkman.radio.delivery import (
    Delivery,
    NetworkState,
    PeerNetwork,
    RoundNetwork,
    StarNetwork,
    Transfer,
    as_value,
)
from folkman.radio.wrapped import Wrapped

__all__ = ["Losing", "LossState", "Lossy", "LossyPeers", "LossyRounds", "LossyStar"]

ALMOST_ONE = nextafter(1.0, 0.0)


@runtime_checkable
class Losing(Protocol):
    """A network between peers, on their own beat or in rounds, that loses messages by itself."""

    def losing(self, loss: ArrayLike) -> Any:
        """Return the same, each receiver losing each message with this probability."""
        ...


class LossState(NamedTuple):
    """Between peers."""

    inner: NetworkState
    brought: Array  # (rx, tx) stamp that the network below brought last
    held: Array  # (rx, tx) stamp of the copy held
    got: Array  # (rx, tx) bool: heard in this round, in lock-step


@as_value("network", "loss")
@dataclass(frozen=True)
class Lossy(Wrapped):
    """`network` with losses."""

    loss: float
    reliable = False  # type: ignore[override] - whatever the network below is
    all_hear = False  # type: ignore[override]

    def __post_init__(self) -> None:
        require(
            within(self.loss, 0, ALMOST_ONE),
            f"loss is a probability in [0, 1), got {self.loss}",
        )

    def changed_in_words(self) -> str:
        """Return how much is lost."""
        return f"; of all messages {100 * self.loss:g} % are lost"

    def peers(self) -> PeerNetwork:
        """Return the network between peers on their own beat: what is lost is gone.

        A network that knows who holds what draws its losses itself, in the middle of a slot.
        """
        beneath = self.network.peers()
        if isinstance(beneath, Losing):
            return beneath.losing(self.loss)
        return LossyPeers(beneath, self.loss)

    def rounds(self) -> RoundNetwork:
        """Return the network in lock-step: a round is repeated until all have heard.

        A network that knows who lacks what repeats only what was lost.
        """
        return self._losing(self.network.rounds())

    def all_reduce(self) -> RoundNetwork:
        """Return the network where all wait for the sum of all messages, with losses."""
        return self._losing(self.network.all_reduce())

    def on_air(self) -> RoundNetwork:
        """Return the network whose sums may be formed on the air, with losses."""
        return self._losing(self.network.on_air())

    def _losing(self, beneath: RoundNetwork) -> RoundNetwork:
        if isinstance(beneath, Losing):
            return beneath.losing(self.loss)
        return LossyRounds(beneath, self.loss)

    def star(self) -> "LossyStar":
        """Return the network around a server: what is lost is sent again."""
        return LossyStar(self.network.star(), self.loss)


@dataclass(frozen=True)
class _BetweenPeers:
    """What peers have in common, on their own beat and in rounds."""

    beneath: Any
    loss: float

    def init(self, num_nodes: int, key: PRNGKeyArray) -> LossState:
        """Return the state before slot 0."""
        none = jnp.zeros((num_nodes, num_nodes), jnp.int32)
        return LossState(self.beneath.init(num_nodes, key), none, none, none.astype(bool))

    def measures(self, state: LossState) -> dict[str, Array]:
        """Return what the network below measures."""
        return self.beneath.measures(state.inner)


@dataclass(frozen=True)
class LossyPeers(_BetweenPeers):
    """Peers on their own beat, with losses."""

    beneath: PeerNetwork

    @property
    def forwards(self) -> bool:
        """Tell whether a message may bring payloads of others than its sender."""
        return self.beneath.forwards

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.beneath.recent

    def versions(self, num_nodes: int) -> int:
        """Return a first guess: copies stay in use for longer; an engine may need more."""
        return self.beneath.versions(num_nodes) + 2

    def step(
        self,
        state: LossState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[LossState, Delivery]:
        """Let the network below deliver, and lose some of what is new."""
        inner, delivery = self.beneath.step(state.inner, offers, message_bits, key)
        kept = (delivery.held != state.brought) & ~_lost(self.loss, delivery.held.shape, key)
        held = jnp.where(kept, delivery.held, state.held)
        return LossState(inner, delivery.held, held, state.got), delivery._replace(held=held)


@dataclass(frozen=True)
class LossyRounds(_BetweenPeers):
    """Rounds in lock-step, with losses."""

    beneath: RoundNetwork

    def step(
        self,
        state: LossState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[LossState, Delivery]:
        """Repeat the round below until every pair of `wanted` has heard; None: once."""
        inner, delivery = self.beneath.step(state.inner, offers, wanted, message_bits, key)
        own = jnp.eye(len(offers), dtype=bool)
        brought = delivery.held != state.brought
        ended = jnp.any(brought & own)
        got = state.got | (brought & ~_lost(self.loss, brought.shape, key)) | (ended & own)
        ends = ended & (jnp.all(got | ~wanted) if wanted is not None else jnp.asarray(True))
        heard = got | jnp.asarray(wanted is not None)
        held = jnp.where(ends & heard, delivery.held, state.held)
        new = LossState(inner, delivery.held, held, got & ~ends)
        return new, delivery._replace(held=held)


@dataclass(frozen=True)
class LossyStar:
    """Around a server, with losses."""

    beneath: StarNetwork
    loss: float

    def init(self, num_nodes: int, key: PRNGKeyArray) -> NetworkState:
        """Return the state before slot 0."""
        return self.beneath.init(num_nodes, key)

    def attend(self, state: NetworkState, present: Bool[Array, " node"]) -> NetworkState:
        """Tell the network below who is there in the coming slot, if it asks for that."""
        beneath: Any = self.beneath
        return beneath.attend(state, present) if hasattr(beneath, "attend") else state

    def uplink(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Transfer]:
        """Let a node whose upload was lost send it again."""
        state, transfer = self.beneath.uplink(state, offers, message_bits, key)
        lost = transfer.arrived & _lost(self.loss, offers.shape, key)
        moved = state._replace(waiting=state.waiting & ~lost)
        return moved, transfer._replace(arrived=transfer.arrived & ~lost, lost=lost)

    def downlink(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Transfer]:
        """Let a node whose answer was lost go on waiting for it."""
        state, transfer = self.beneath.downlink(state, offers, message_bits, key)
        lost = transfer.arrived & _lost(self.loss, offers.shape, key)
        moved = state._replace(waiting=state.waiting | lost)
        return moved, transfer._replace(arrived=transfer.arrived & ~lost, lost=lost)

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return what the network below measures."""
        return self.beneath.measures(state)


def _lost(loss: float, shape: tuple[int, ...], key: Array) -> Array:
    return jax.random.bernoulli(jax.random.fold_in(key, int(Stream.LOSS)), loss, shape)
