"""A serial band, imposed in user space between nodes that carry sums or pass copies on.

Timing does not depend on parameter values. So every node rolls the same band out from the same seed
(`folkman.radio.unrolled`) and knows its own part of it: the transfers that it starts, with their
receivers, and those whose message it takes when they end. It does these in their order. The real
transfer runs at once, under the number of the planned one; what is in it, and whether a receiver
adopts it, follows from the stamps that it really has. So a node that is late sends what it holds.
"""

from collections import deque
from typing import Protocol

from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.radio.delivery import PeerNetwork
from folkman.radio.serial import SerialPeers
from folkman.radio.unrolled import Event, Unrolled

__all__ = ["FreshAir", "checked_band"]

AT_HAND = 32
"""Slots that are rolled out before a node begins."""
MOST_AT_ONCE = 256
"""Slots that are rolled out without a look at anything else."""
MOST_WAITING = 64
"""Messages of one sender that may wait for the ends of their transfers, the newest ones."""


def checked_band(network: PeerNetwork) -> SerialPeers:
    """Return a band that can be told transfer by transfer, or refuse one."""
    if not isinstance(network, SerialPeers):
        raise ValueError(
            "devices emulate sums and forwards on the radio with schedule = 'index' and on a "
            f"shared channel, got {type(network).__name__}; use one of these, or the simulator"
        )
    require(network.forwards, "a band of copies is emulated by who holds what")
    return network


class Told(Protocol):
    """Whoever tells what happens on a band, slot by slot."""

    def next_slot(self) -> list[Event]:
        """Return what happens in the next slot."""
        ...


class FreshAir:
    """One node's part of a serial band, and the messages on its emulated air.

    `told` tells of the band in place of a roll of its own: nodes of one process may share one.
    """

    def __init__(
        self,
        network: PeerNetwork,
        num_nodes: int,
        me: int,
        *,
        seed: int,
        message_bits: int,
        told: Told | None = None,
    ) -> None:
        band = checked_band(network)
        self._told = told or Unrolled(band, num_nodes, message_bits, make_key(seed, Stream.DELAY))
        self._me = me
        self._rolled = 0
        self._mine: deque[Event] = deque()  # what is still to do
        self._air: dict[int, dict[int, bytes]] = {}  # sender -> number of a transfer -> message
        self._given_up: deque[tuple[int, int]] = deque(maxlen=MOST_WAITING)

    def warm(self) -> None:
        """Compile what rolls the band out, and have its first slots at hand."""
        self._roll(AT_HAND)

    def rolled_to(self, slot: int, least: int = 0) -> bool:
        """Roll some slots out, if need be; tell whether a slot is at hand.

        So a node that is far behind does other things in between. It keeps nothing of the slots
        before `least`, which it will never do.
        """
        self._roll(min(slot, self._rolled + MOST_AT_ONCE))
        self._leave_out(least)
        return self._rolled >= slot

    def _roll(self, slot: int) -> None:
        while self._rolled < slot:
            self._rolled += 1
            self._mine += [each for each in self._told.next_slot() if self._concerns(each)]

    def _concerns(self, event: Event) -> bool:
        return self._me in event.receivers if event.ends else event.sender == self._me

    def next(self, slot: int) -> Event | None:
        """Return what is to be done next, if it happens by the end of a slot."""
        self._roll(slot)
        return self._mine[0] if self._mine and self._mine[0].slot <= slot else None

    def skip(self, slot: int) -> None:
        """Leave out what was to be done before a slot: a node that was away is not asked for it."""
        self._roll(slot)
        self._leave_out(slot)

    def _leave_out(self, slot: int) -> None:
        while self._mine and self._mine[0].slot < slot:
            self._mine.popleft()

    def done(self) -> None:
        """Go on to what is next."""
        self._mine.popleft()

    def give_up(self) -> None:
        """Go on without a message that has not come; it is taken when it does."""
        event = self._mine.popleft()
        self._given_up.append((event.sender, event.number))

    def starts_own(self, slot: int) -> bool:
        """Tell whether the node sends its own newest parameters in a slot."""
        self._roll(slot)
        return any(
            not each.ends and each.slot == slot and each.stamps[self._me] >= 0
            for each in self._mine
        )

    def receive(self, sender: int, number: int, data: bytes) -> bool:
        """Put a message on the emulated air; tell whether it was given up, and is to be taken.

        What one sender brings takes the place of no other's.
        """
        if (sender, number) in self._given_up:
            self._given_up.remove((sender, number))
            return True
        air = self._air.setdefault(sender, {})
        air[number] = data
        while len(air) > MOST_WAITING:
            del air[min(air)]
        return False

    def fetch(self, sender: int, number: int) -> bytes | None:
        """Take the message of a transfer off the air; None if it has not come."""
        return self._air.get(sender, {}).pop(number, None)
