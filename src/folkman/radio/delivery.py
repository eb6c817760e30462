"""What a network says: who holds which copy, and which transfers start and end.

A network is a frozen value with pure functions, and has a face for each way that messages travel:

    peers()    between peers on their own beat. At the end of slot t it answers with the matrix
               tau_ij(t+1) of [1, eq. (8)]: the slot whose parameters of node j node i holds when
               slot t+1 begins. All the rest (ages, mixing, mailboxes) follows from tau
    rounds()   between peers in lock-step: the same answer, but tau moves at the end of a round
    all_reduce()   the same where nodes wait for the sum of all messages, and for nothing else
    on_air()       the same where nodes use a sum of what others send, which the air may form
    star()     between nodes and a server: the transfers that started and arrived

A network that lacks one refuses it with what to do. Index order is [receiver, sender] everywhere.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax
from folkman.packing.packing import Packing, implied

__all__ = [
    "Airtime",
    "Delivery",
    "Network",
    "NetworkState",
    "PeerNetwork",
    "RoundNetwork",
    "StarNetwork",
    "Transfer",
    "Unmeasured",
    "as_value",
    "below",
    "check_horizon",
    "let_pass",
]

NetworkState: TypeAlias = Any  # a NamedTuple of arrays
Kind = TypeVar("Kind", bound=type)


class Airtime(NamedTuple):
    """How long the radios of the nodes were in use within one slot, in slots."""

    transmit: Float[Array, " node"]  # part of the slot that each node sends
    # part of the slot that each node receives; several messages at once count once
    receive: Float[Array, " node"]


class Delivery(NamedTuple):
    """Between peers, at the end of slot t.

    The stamp s of a copy means: the message formed before slot s.
    """

    held: Int[Array, "rx tx"]  # tau(t+1), the stamp of the copy held when slot t+1 begins
    sends: Bool[Array, " tx"]  # whose payload is frozen now, with stamp t+1
    # where a broadcast from tx to rx starts now; a round may repeat one
    linked: Bool[Array, "rx tx"]
    # the stamps inside each message that is on the air after this slot, -1 where it has none and
    # for senders not on the air (a sender's own newest stamp may stand on the diagonal); None where
    # every message is one of its sender's `recent` newest payloads
    carried: Int[Array, "tx origin"] | None = None
    # broadcasts that start now, and the receivers of all of them, where a sender may start several
    # within a slot; None: one at most, as `linked` says
    transfers: Int[Array, " tx"] | None = None
    # receivers of the broadcasts that start now, all of them counted
    copies: Int[Array, " tx"] | None = None
    # airtime of slot t; None where the network does not tell (`times_air`)
    airtime: Airtime | None = None


class Transfer(NamedTuple):
    """Between nodes and a server, in one direction, at the end of a slot."""

    started: Bool[Array, " node"]  # whose payload is frozen now
    arrived: Bool[Array, " node"]  # whose transfer can be used from now on
    lost: Bool[Array, " node"]  # whose transfer ended now, in vain
    # how much of the slot each node sent (to the server) or listened (to it); None as in `Delivery`
    airtime: Float[Array, " node"] | None = None
    # how much of it the server's radio was on; None: as long as the longest of its nodes
    server: Float[Array, ""] | None = None


class PeerNetwork(Protocol):
    """Between peers on their own beat. `offers`: who has something to send."""

    @property
    def forwards(self) -> bool:
        """Tell whether a message may bring payloads of others than its sender.

        If so, `held` may bring any stamp that some node held before this slot, that was `carried`
        after the slot before, or that was frozen (`sends`) then, in any order. Such a network knows
        who holds what, hence has one function more: `attend(state, present) -> state`, to be called
        before `step` with who is there in the coming slot; it loses messages by itself
        (`losing(loss)`, which `Lossy` calls). Without `attend` everyone is there.
        """
        ...

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        ...

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender may be in use at once; an engine may need more."""
        ...

    def init(self, num_nodes: int, key: PRNGKeyArray) -> NetworkState:
        """Return the state before slot 0."""
        ...

    def step(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Delivery]:
        """Advance to the end of a slot."""
        ...

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return what the network has measured so far: `gamma_t`, `gamma_w`, or nothing."""
        ...


class RoundNetwork(Protocol):
    """Between peers in lock-step."""

    def init(self, num_nodes: int, key: PRNGKeyArray) -> NetworkState:
        """Return the state before slot 0."""
        ...

    def step(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Delivery]:
        """Advance a round to the end of a slot.

        It begins when all nodes offer and ends when every pair of `wanted` is served, or,
        if that is None, when each node has been on the air once; `held` changes at its end alone,
        on the diagonal too.
        """
        ...

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return what the network has measured so far: `gamma_t`, `gamma_w`, or nothing."""
        ...


class StarNetwork(Protocol):
    """Around a server."""

    def init(self, num_nodes: int, key: PRNGKeyArray) -> NetworkState:
        """Return the state before slot 0, with a field `waiting` (node,) bool."""
        ...

    def uplink(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Transfer]:
        """Advance the transfers to the server to the end of a slot."""
        ...

    def downlink(
        self,
        state: NetworkState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[NetworkState, Transfer]:
        """Advance the transfers from the server; one that starts ends the node's upload."""
        ...

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return what the network has measured so far."""
        ...


class Network:
    """A network, as a configuration names one: the faces it has, and what all of them share."""

    name: str = "a network"
    bits_per_parameter: int | None = None  # of one parameter on the air; None: as it is computed
    reliable: bool = True  # does every message arrive?
    all_hear: bool = False  # does each message between peers reach all of them, in order?
    times_air: bool = False  # do its answers say how long nodes send and listen?
    power_w: float | None = None  # that a node radiates while it sends; None: not known
    # what a message between peers holds: the sender's payload (`copy`), a payload that it holds of
    # anyone (`forward`), or its weighted sum of all with their stamps (`sum`)
    message: str = "copy"

    @property
    def packing(self) -> Packing:
        """Return how messages are packed: by default into `bits_per_parameter`."""
        return implied(self.bits_per_parameter)

    @property
    def horizon(self) -> int | None:
        """Return how many slots it can run, None for any number."""
        return None

    @property
    def uneven(self) -> bool:
        """Tell whether a transfer takes time for some ways to travel, and none between peers."""
        return False

    def in_words(self) -> str:
        """Return what the network is, in plain words, for a table's reader."""
        return self.name

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return what a message of `message_bits` costs on the air."""
        return message_bits

    def peers(self) -> PeerNetwork:
        """Return the network between peers on their own beat."""
        raise ValueError(self._lacks("messages between peers on their own beat"))

    def rounds(self) -> RoundNetwork:
        """Return the network between peers in lock-step."""
        raise ValueError(self._lacks("rounds in lock-step, which wait for everyone"))

    def all_reduce(self) -> RoundNetwork:
        """Return the network in lock-step where all wait for the sum of all messages.

        A network that knows nothing better brings everyone's message to everyone. One that carries
        partial sums says so by `sums`: then messages are priced and rounded as sums.
        """
        return self.rounds()

    def on_air(self) -> RoundNetwork:
        """Return the network in lock-step where a node uses the sum of what its neighbours send.

        A network that knows nothing better brings their messages one by one. One whose sums are
        formed on the air has two functions more: `superpose(state, messages, key)`, what each node
        makes of the messages that are on the air together, (rx, message); and `units(dim)`, the
        numbers of a frame, by which it is priced.
        """
        return self.rounds()

    def star(self) -> StarNetwork:
        """Return the network around a server."""
        raise ValueError(self._lacks("uploads to a server and its answers"))

    def _lacks(self, what: str) -> str:
        return (
            f"'{self.name}' does not carry {what}; "
            "choose a delay law or the radio, or a method that travels as it does"
        )


class Unmeasured:
    """A face of a network that says nothing of why a copy is old: no Gamma_T, no Gamma_W."""

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return nothing."""
        del state
        return {}


def below(network: Network) -> Network:
    """Return the network at the bottom of those that wrap it: losses, compression."""
    while isinstance(inner := getattr(network, "network", None), Network):
        network = inner
    return network


def as_value(*numbers: str) -> Callable[[Kind], Kind]:
    """Let a frozen dataclass pass through `jax.jit`: `numbers` traced, other fields fixed."""

    def register(kind: Kind) -> Kind:
        fixed = [field.name for field in fields(kind) if field.name not in numbers]
        jax.tree_util.register_dataclass(kind, list(numbers), fixed)
        return kind

    return register


def let_pass(network: Network) -> None:
    """Let a network of one's own pass through `jax.jit`, all fixed unless it says otherwise."""
    if not jax.tree_util.all_leaves([network]):
        return
    try:
        hash(network)
    except TypeError:
        raise ValueError(
            f"a network must be a value that can be hashed, {type(network).__name__} cannot; make "
            "it a dataclass with frozen=True, and name its arrays with as_value"
        ) from None
    jax.tree_util.register_static(type(network))


def check_horizon(network: Network, slots: int) -> None:
    """Refuse to run a network for longer than it can."""
    if network.horizon is not None and slots > network.horizon:
        raise ValueError(
            f"the timeline was recorded for {network.horizon} slots, the run asks for {slots}; "
            f"run at most {network.horizon}, or record a longer one"
        )
