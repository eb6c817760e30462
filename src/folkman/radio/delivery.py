"""What every network says: who holds which copy, and which transfers start and end.

A network is a frozen value with pure functions. Between peers it answers, at the end of slot t, with the matrix
tau_ij(t+1) of [1, eq. (8)]: the slot whose parameters of node j node i holds when slot t+1 begins. All the rest
(ages, mixing, mailboxes) follows from tau. Between nodes and a server it answers with the transfers that
started and arrived. Index order is [receiver, sender] everywhere.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

from jax import Array
from jax.typing import ArrayLike

__all__ = ["Delivery", "Network", "NetworkState", "Transfer", "check_horizon"]

NetworkState: TypeAlias = Any  # a NamedTuple of arrays


class Delivery(NamedTuple):
    """Between peers, at the end of slot t. The stamp s of a copy means: the message formed before slot s."""

    held: Array  # (rx, tx) int32: tau(t+1), the stamp of the copy held when slot t+1 begins
    sends: Array  # (tx,) bool: the payload is frozen now, with stamp t+1
    linked: Array  # (rx, tx) bool: a broadcast from tx to rx starts now; in lock-step it may repeat a payload


class Transfer(NamedTuple):
    """Between nodes and a server, in one direction, at the end of a slot."""

    started: Array  # (node,) bool: the payload is frozen now
    arrived: Array  # (node,) bool: it can be used now
    lost: Array  # (node,) bool: it ended now, in vain


class Network(Protocol):
    """Pure functions; state first, key last. `offers` (node,) bool are the nodes that have something to send."""

    @property
    def bits_per_parameter(self) -> int:
        """Return the price of one parameter on the air."""
        ...

    @property
    def reliable(self) -> bool:
        """Tell whether every message arrives."""
        ...

    @property
    def synchronous(self) -> bool:
        """Tell whether it can carry rounds in lock-step."""
        ...

    @property
    def horizon(self) -> int | None:
        """Return how many slots it can run, None for any number."""
        ...

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        ...

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return what a message of `message_bits` costs on the air."""
        ...

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender may be in use at once; a guess an engine may have to raise."""
        ...

    def init(self, num_nodes: int, key: Array) -> NetworkState:
        """Return the state before slot 0, between peers."""
        ...

    def step(
        self, state: NetworkState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[NetworkState, Delivery]:
        """Advance to the end of a slot, between peers."""
        ...

    def lockstep_init(self, num_nodes: int, key: Array) -> NetworkState:
        """Return the state before slot 0, between peers in lock-step."""
        ...

    def exchange(
        self,
        state: NetworkState,
        offers: Array,
        wanted: Array | None,
        message_bits: ArrayLike,
        key: Array,
    ) -> tuple[NetworkState, Delivery]:
        """Advance a round in lock-step to the end of a slot.

        It begins when all nodes offer and ends when every pair of `wanted` (rx, tx) is served, or, if that is None,
        when each node has been on the air once; `held` changes at its end alone, on the diagonal too.
        """
        ...

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return what the network has measured so far: `gamma_t`, `gamma_w`, or nothing."""
        ...

    def star_init(self, num_nodes: int, key: Array) -> NetworkState:
        """Return the state before slot 0, around a server, with a field `waiting` (node,) bool."""
        ...

    def uplink(
        self, state: NetworkState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[NetworkState, Transfer]:
        """Advance the transfers to the server to the end of a slot."""
        ...

    def downlink(
        self, state: NetworkState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[NetworkState, Transfer]:
        """Advance the transfers from the server to the end of a slot; one that starts ends the node's upload."""
        ...


def check_horizon(network: Network, slots: int) -> None:
    """Refuse to run a network for longer than it can."""
    if network.horizon is not None and slots > network.horizon:
        raise ValueError(
            f"the timeline was recorded for {network.horizon} slots, the run asks for {slots}; "
            f"run at most {network.horizon}, or record a longer one"
        )
