"""What a daemon does besides where nodes carry sums or pass copies on."""

import time
from typing import TYPE_CHECKING

from folkman.runtime import control, journal
from folkman.runtime.codec import (
    VERSION,
    LostPastError,
    round_of,
    sequence_of,
    slot_of,
    version_of,
)
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.fresh_index import Band
from folkman.runtime.fresh_node import FreshNode, SumNode

if TYPE_CHECKING:
    from folkman.runtime.daemon import Daemon

__all__ = ["FreshSide"]

ASK_EVERY_S = 1.0
"""Between two requests for copies, and two answers to one neighbour."""


class FreshSide:
    """The emulated band, or the contended one, and the care for a lost past."""

    def __init__(self, node: FreshNode, air: FreshAir | None, longest_s: float) -> None:
        self.node, self.air = node, air
        self.band = Band(node.index, len(node.mailbox.sequence), longest_s)
        self.progress: dict[int, int] = {}  # neighbour -> gradients that it says it has taken
        self._asked_s = 0.0
        self._answered_s: dict[int, float] = {}

    def warm(self) -> None:
        """Compile what is needed while learning."""
        if self.air is not None:
            self.air.warm()

    def keeps(self, daemon: "Daemon", peer: int, data: bytes) -> bool:
        """Keep a message until its transfer ends; tell whether that was done.

        A copy that was asked for is on no band, and what was given up is taken when it comes.
        """
        if self.air is None or version_of(data) == VERSION:
            return False
        late = self.air.receive(round_of(data), data)
        if not late:
            daemon.voice.say(peer, control.Ack(sequence_of(data)))
            daemon.arrived.set()
        return not late

    def lost(self, daemon: "Daemon", error: LostPastError) -> None:
        """Note that own parameters are lost, and ask for copies."""
        daemon.journal.note(journal.LOST, self.node.slot, [error.node or 0, error.stamp])
        now = time.monotonic()
        if now - self._asked_s >= ASK_EVERY_S:
            self._asked_s = now
            daemon.tell_all(control.Ask(error.stamp))

    def heed(self, daemon: "Daemon", peer: int, body: control.Body) -> None:
        """Act on what a neighbour says."""
        if isinstance(body, control.Hello):
            self.progress[peer] = body.steps
        elif isinstance(body, control.Claim):
            self.band.heard(peer, body.value, body.seconds, time.monotonic())
            daemon.moved.set()
        elif isinstance(body, control.Ask):
            self._answer(daemon, peer)

    def _answer(self, daemon: "Daemon", peer: int) -> None:
        """Send a copy of our own parameters to one that has lost its past."""
        now = time.monotonic()
        if not isinstance(self.node, SumNode):
            return
        if now - self._answered_s.get(peer, 0.0) < ASK_EVERY_S:
            return
        self._answered_s[peer] = now
        data, stamp = self.node.copy()
        if stamp is not None:
            daemon.journal.note(journal.SEND, slot_of(data), [stamp])
        daemon.transport.publish(peer, data)
        daemon.counts["copies_sent"] += 1
