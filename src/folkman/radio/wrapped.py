"""A network around another: what a class of this kind does not change is that of the one below.

`folkman.radio.loss` and `folkman.radio.compressed` are such classes; `folkman.radio.delivery.below`
returns the network at the bottom of them.
"""

from dataclasses import dataclass

from folkman.arrays import ArrayLike
from folkman.packing.packing import Packing
from folkman.radio.delivery import Network, PeerNetwork, RoundNetwork, StarNetwork

__all__ = ["Wrapped"]


@dataclass(frozen=True)
class Wrapped(Network):
    """`network`, in all that a class around it does not change."""

    network: Network

    @property
    def name(self) -> str:  # type: ignore[override] - that of the network below
        """Return the name of the network below."""
        return self.network.name

    @property
    def slot_s(self) -> float:
        """Return the seconds of a slot of the network below; absent where it has none."""
        return self.network.slot_s  # type: ignore[attr-defined]

    @property
    def bits_per_parameter(self) -> int | None:  # type: ignore[override]
        """Return the bits of a parameter of the network below."""
        return self.network.bits_per_parameter

    @property
    def reliable(self) -> bool:  # type: ignore[override]
        """Tell whether every message arrives."""
        return self.network.reliable

    @property
    def all_hear(self) -> bool:  # type: ignore[override]
        """Tell whether every peer hears every message."""
        return self.network.all_hear

    @property
    def times_air(self) -> bool:  # type: ignore[override]
        """Tell whether the network below says how long nodes send and listen."""
        return self.network.times_air

    @property
    def power_w(self) -> float | None:  # type: ignore[override]
        """Return what a node of the network below radiates while it sends."""
        return self.network.power_w

    @property
    def message(self) -> str:  # type: ignore[override]
        """Return what a message of the network below holds."""
        return self.network.message

    @property
    def packing(self) -> Packing:
        """Return how messages are packed."""
        return self.network.packing

    @property
    def horizon(self) -> int | None:
        """Return how many slots the network below can run."""
        return self.network.horizon

    @property
    def uneven(self) -> bool:
        """Tell what the network below does."""
        return self.network.uneven

    def in_words(self) -> str:
        """Return the network below, and what is changed about it."""
        return self.network.in_words() + self.changed_in_words()

    @property
    def turns_in_words(self) -> str:
        """Return the same of methods that take turns, where that differs (`RadioNetwork`)."""
        below = getattr(self.network, "turns_in_words", "")
        return below and below + self.changed_in_words()

    def changed_in_words(self) -> str:
        """Return what is changed about the network below, with a semicolon before it."""
        return ""

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return what a message costs on the air."""
        return self.network.payload_bits(message_bits)

    def peers(self) -> PeerNetwork:
        """Return the network between peers on their own beat."""
        return self.network.peers()

    def rounds(self) -> RoundNetwork:
        """Return the network between peers in lock-step."""
        return self.network.rounds()

    def all_reduce(self) -> RoundNetwork:
        """Return the network in lock-step where all wait for the sum of all messages."""
        return self.network.all_reduce()

    def on_air(self) -> RoundNetwork:
        """Return the network whose sums may be formed on the air."""
        return self.network.on_air()

    def star(self) -> StarNetwork:
        """Return the network around a server."""
        return self.network.star()
