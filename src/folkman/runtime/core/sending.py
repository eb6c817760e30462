"""The sending side of a core: what goes out, what receivers hold, and who owes an answer.

Messages that must arrive wait in an outbox, for each neighbour the last two: the next is sent when
the one before is acknowledged. In lock-step a neighbour is at most one round behind, and after a
restart it may need both again.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from folkman.runtime import control, journal
from folkman.runtime.codec import base_of
from folkman.runtime.core.hands import Hands
from folkman.runtime.core.owed import Owed
from folkman.runtime.core.settings import Settings
from folkman.runtime.feedback import NOTHING
from folkman.runtime.link_quality import Links
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.server_node import ServerNode

__all__ = ["Sending"]


class _Box:
    def __init__(self, room: int) -> None:
        self.messages: deque[tuple[int, bytes]] = deque(maxlen=room)
        self.acknowledged = 0
        self.sent = 0  # number of the last message that went out
        self.sent_s = float("-inf")


class Outbox:
    """One box a neighbour. Each function returns what is to be sent to that neighbour now."""

    def __init__(self, neighbours: Iterable[int], room: int = 2) -> None:
        self._boxes = {peer: _Box(room) for peer in neighbours}

    def push(self, peer: int, sequence: int, data: bytes, now_s: float) -> bytes | None:
        """Send a message after the one before it."""
        box = self._boxes[peer]
        waits = any(number > box.acknowledged for number, _ in box.messages)
        box.messages.append((sequence, data))
        return self._sent(box, now_s) if not waits or len(box.messages) == 1 else None

    def acknowledged(self, peer: int, sequence: int, now_s: float) -> bytes | None:
        """Send the next message, if there is one.

        Where copies go out beside the outbox, an answer to one of these may be to a higher number
        than that of a message which has not been sent yet.
        """
        box = self._boxes.get(peer)
        if box is None or not box.messages or sequence <= box.acknowledged:
            return None
        box.acknowledged = min(sequence, box.sent)
        return self._sent(box, now_s)

    def owed(self) -> bool:
        """Tell whether an acknowledgement is missing."""
        boxes = self._boxes.values()
        return any(box.messages and box.messages[-1][0] > box.acknowledged for box in boxes)

    def again(self, peer: int, now_s: float) -> bytes | None:
        """Send both messages once more: the peer may have lost what it acknowledged."""
        box = self._boxes.get(peer)
        if box is None:
            return None
        box.acknowledged = 0
        return self._sent(box, now_s)

    def late(self, now_s: float, after_s: float) -> dict[int, bytes]:
        """Return by neighbour what has not been acknowledged for a while, to be sent once more."""
        due = {peer: box for peer, box in self._boxes.items() if now_s - box.sent_s > after_s}
        found = {peer: self._sent(box, now_s) for peer, box in due.items()}
        return {peer: data for peer, data in found.items() if data is not None}

    @staticmethod
    def _sent(box: _Box, now_s: float) -> bytes | None:
        for number, data in box.messages:
            if number > box.acknowledged:
                box.sent, box.sent_s = number, now_s
                return data
        return None


class Sending:
    """What goes out, by broadcast or through the outbox."""

    def __init__(
        self, node: "Node | ServerNode", settings: Settings, hands: Hands, room: int
    ) -> None:
        self._node, self._hands = node, hands
        self.links = Links(node.neighbours, settings.threshold_bit_s)
        self.owed = Owed(self.links, settings.period_timeout_s)
        self.outbox = Outbox(node.neighbours, room)
        self.last_bytes = 0  # of the last message
        self._holds: dict[int, int] = {}  # neighbour -> our message that it last said it holds
        self._base: int | None = None  # what our last broadcast builds on

    def broadcast(self, receivers: Sequence[int], now_s: float, number: int = 0) -> int:
        """Send the newest parameters to some neighbours; return the bits of a message."""
        data, sequence, slot = self._node.formed(number)
        self._hands.note(journal.SEND, slot, [sequence])
        return self.publish(data, sequence, receivers, now_s)

    def publish(self, data: bytes, sequence: int, receivers: Iterable[int], now_s: float) -> int:
        """Send a message to some neighbours, who are to acknowledge it; return its bits."""
        bits = 8 * len(data)
        self.last_bytes = len(data)
        self._base = base_of(data)
        for peer in receivers:
            self.owed.sent(peer, sequence, bits, now_s)
            if self._base is None or self._holds.get(peer, 0) == self._base:
                self._hands.publish(peer, data)
            else:
                self._send_whole(peer)
        self._hands.counts["sent"] += 1
        return bits

    def push(self, peer: int, sequence: int, data: bytes, now_s: float) -> None:
        """Send a message that must arrive, after the one before it."""
        self._hands.publish(peer, self.outbox.push(peer, sequence, data, now_s))

    def _send_whole(self, peer: int) -> None:
        """Send the last message to one that lacks what it builds on."""
        assert isinstance(self._node, Node)  # noqa: S101 - a server sends by the outbox
        self._hands.publish(peer, self._node.whole())
        self._hands.counts["sent_whole"] += 1

    def holds(self, peer: int) -> int:
        """Return the number of our message that a neighbour has acknowledged last."""
        return self._holds.get(peer, 0)

    def acknowledged(self, peer: int, sequence: int, now_s: float) -> None:
        """Take an acknowledgement: go on, or send the whole to one that lacks what we built on."""
        self._hands.publish(peer, self.outbox.acknowledged(peer, sequence, now_s))
        self._holds[peer] = sequence
        owed = self.owed.acknowledged(peer, sequence, now_s)
        lacks = self._base is not None and sequence < self._base
        if lacks and not owed and self.owed.owes(peer):
            self._send_whole(peer)

    def refused(self, peer: int, sequence: int, now_s: float, *, waits: bool) -> None:
        """Take notice that a message cannot be taken; whoever does not `wait` goes on without."""
        self.owed.refused(peer, sequence)
        if not waits:
            self._hands.publish(peer, self.outbox.acknowledged(peer, sequence, now_s))

    def begun_again(self, peer: int, now_s: float) -> None:
        """Send once more what a neighbour may have lost that began again."""
        self._holds[peer] = NOTHING
        self._hands.publish(peer, self.outbox.again(peer, now_s))

    def linked(self, peer: int, now_s: float) -> None:
        """Send a neighbour that is there again what it may have missed."""
        self._hands.publish(peer, self.outbox.again(peer, now_s))

    def unlinked(self, peer: int) -> None:
        """Wait no longer for one that is gone, and leave it out of the shares."""
        self.owed.forget(peer)
        self.links.forget(peer)

    def give_up(self, now_s: float) -> None:
        """Wait no longer for those whose time is over."""
        self._hands.counts["periods_given_up"] += len(self.owed.lapsed(now_s))

    def retry(self, now_s: float, after_s: float) -> None:
        """Send again what was not acknowledged for a while."""
        for peer, data in self.outbox.late(now_s, after_s).items():
            self._hands.publish(peer, data)

    def period(self, receivers: Sequence[int]) -> control.Period:
        """Return what a node says at the start of a period: R_i and Y_i."""
        rate = self.links.rate_bit_s(receivers)
        return control.Period(min(rate, 1e15) if math.isfinite(rate) else 0.0, list(receivers))
