"""A network whose messages are packed: any network, any packing.

    network = Compressed(pipelined(5), top_k(0.1, feedback=True))

The network carries messages as before; what changes is what they hold and what they weigh
(`folkman.packing`). Without this a network's `bits_per_parameter` says how messages are packed;
`Compressed(network, none())` lets it be a price only.
"""

from dataclasses import dataclass

from folkman.checks import require
from folkman.packing.packing import Packing
from folkman.radio.delivery import as_value, below
from folkman.radio.wrapped import Wrapped

__all__ = ["Compressed"]


@as_value("network")
@dataclass(frozen=True)
class Compressed(Wrapped):
    """`network`, its messages packed by `given`."""

    given: Packing  # how messages are packed

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

    def changed_in_words(self) -> str:
        """Return how messages are packed."""
        if self.given.exact:
            return ""
        memory = " with error feedback" if self.given.feedback else ""
        return f"; messages are packed by {self.given.name}{memory}"
