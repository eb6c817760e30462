"""A network whose messages are packed: any network, any packing.

    network = Compressed(pipelined(5), top_k(0.1, feedback=True))

The network carries messages as before; what changes is what they hold and what they weigh
(`folkman.packing`). Without this a network's `bits_per_parameter` says how messages are packed;
`Compressed(network, none())` lets it be a price only.
"""

from dataclasses import dataclass

from folkman.arrays import ArrayLike
from folkman.checks import require
from folkman.packing.packing import Packing
from folkman.radio.delivery import (
    Network,
    PeerNetwork,
    RoundNetwork,
    StarNetwork,
    as_value,
    below,
)

__all__ = ["Compressed"]


@as_value("network")
@dataclass(frozen=True)
class Compressed(Network):
    """`network`, its messages packed by `given`."""

    network: Network
    given: Packing

    def __post_init__(self) -> None:
        require(
            getattr(below(self.network), "kept_fraction", 1.0) == 1.0,
            "the radio has a kept_fraction, which is a packing of its own (top_k), and another was "
            "given; leave kept_fraction out",
        )

    @property
    def packing(self) -> Packing:
        """Return the packing; one without a price of its own has the network's."""
        if self.given.exact and self.given.bits is None:
            return self.given._replace(bits=self.bits_per_parameter)
        return self.given

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
    def horizon(self) -> int | None:
        """Return how many slots the network below can run."""
        return self.network.horizon

    @property
    def uneven(self) -> bool:
        """Tell what the network below does."""
        return self.network.uneven

    @property
    def times_air(self) -> bool:  # type: ignore[override]
        """Tell whether the network below says how long nodes send and listen."""
        return self.network.times_air

    @property
    def message(self) -> str:  # type: ignore[override]
        """Return what a message of the network below holds."""
        return self.network.message

    def in_words(self) -> str:
        """Return the network below, and how messages are packed."""
        return self.network.in_words() + self._packed_in_words()

    @property
    def turns_in_words(self) -> str:
        """Return the same of methods that take turns, where that differs (`RadioNetwork`)."""
        below = getattr(self.network, "turns_in_words", "")
        return below and below + self._packed_in_words()

    def _packed_in_words(self) -> str:
        if self.given.exact:
            return ""
        memory = " with error feedback" if self.given.feedback else ""
        return f"; messages are packed by {self.given.name}{memory}"

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
