"""A shared channel: one message at a time, every node hears it, each takes the same time.

    shared   a message takes `slots` slots, whole or not; the next begins when it has ended

This is fresh air (`folkman.radio.serial`) without a radio model: a bus, a switch-less cable, or one
Wi-Fi channel with all nodes in range. With n nodes and copies each node is heard every n `slots`
slots; with sums news of everyone goes round in fewer messages.
"""

from dataclasses import dataclass
from typing import Literal

from folkman.arrays import Array, ArrayLike, Float, jnp
from folkman.checks import require
from folkman.radio import serial
from folkman.radio.all_reduce import AllReduce
from folkman.radio.delivery import Network, as_value
from folkman.radio.serial_rounds import SerialRounds

__all__ = ["SharedNetwork", "shared"]

LONGEST_SLOTS = 1_000_000.0
"""Far beyond any horizon."""


@as_value("slots")
@dataclass(frozen=True, kw_only=True)
class SharedNetwork(Network):
    """A channel that carries one message at a time to everyone."""

    slots: float  # slots that a message takes
    message: Literal["copy", "forward", "sum"] = "copy"  # type: ignore[assignment] - of three
    control: Literal["ideal", "heard"] = "ideal"
    contention_slots: float = 0.0
    weights: tuple[float, ...] | Literal["alike", "shares"] = "alike"
    bits_per_parameter: int | None = None
    name = "shared"
    times_air = True
    control_bits = 0  # a message takes its slots, whatever it holds

    def __post_init__(self) -> None:
        if not isinstance(self.slots, Array):
            require(
                0 < self.slots <= LONGEST_SLOTS,
                f"slots must be above 0 and at most {LONGEST_SLOTS:g}, got {self.slots}",
            )
        require(
            self.bits_per_parameter is None or self.bits_per_parameter >= 1,
            f"bits_per_parameter must be at least 1, got {self.bits_per_parameter}",
        )
        require(
            0 <= self.contention_slots < LONGEST_SLOTS,
            f"contention_slots must be finite and not negative, got {self.contention_slots}",
        )
        serial.check_fresh(self)

    def in_words(self) -> str:
        """Return the law in plain words."""
        return (
            f"shared: one message at a time takes {self.slots:g} slots and reaches everyone; a "
            f"message is {serial.HOLDS[self.message]}"
        )

    def peers(self) -> serial.SerialPeers:
        """Return the channel between peers on their own beat."""
        return serial.SerialPeers(self)

    def rounds(self) -> SerialRounds:
        """Return the channel between peers in lock-step: n messages a round of n nodes."""
        return SerialRounds(self)

    def all_reduce(self) -> SerialRounds:
        """Return the channel where all wait for the sum of all messages: n of them too."""
        return SerialRounds(self, AllReduce())

    def open_air(self, num_nodes: int, key: Array) -> Float[Array, "rx tx"]:
        """Return what a message takes between any two nodes, (rx, tx)."""
        del key
        return jnp.full((num_nodes, num_nodes), self.slots, jnp.float32)

    def next_air(self, air: Array, slot: Array, key: Array) -> Array:
        """Return the same."""
        del slot, key
        return air

    def cost_slots(self, air: Array, bits: ArrayLike, key: Array) -> Float[Array, "rx tx"]:
        """Return the same for messages of all sizes."""
        del bits, key
        return air


def shared(
    slots: float = 1.0,  # slots that a message takes
    message: Literal["copy", "forward", "sum"] = "copy",
    control: Literal["ideal", "heard"] = "ideal",
    contention_slots: float = 0.0,
    weights: tuple[float, ...] | Literal["alike", "shares"] = "alike",
    bits_per_parameter: int | None = None,
) -> SharedNetwork:
    """Build a shared channel: one message at a time takes `slots` slots and reaches everyone."""
    return SharedNetwork(
        slots=slots,
        message=message,
        control=control,
        contention_slots=contention_slots,
        weights=weights,
        bits_per_parameter=bits_per_parameter,
    )
