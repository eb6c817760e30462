"""Messages that must arrive: for each neighbour the last two.

The next is sent when the one before is acknowledged.

In lock-step a neighbour is at most one round behind, and after a restart it may need both of the
last two again.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable

from folkman.runtime.transport import Transport

__all__ = ["Outbox"]


class _Box:
    def __init__(self, room: int) -> None:
        self.messages: deque[tuple[int, bytes]] = deque(maxlen=room)
        self.acknowledged = 0
        self.sent_s = 0.0


class Outbox:
    """One box a neighbour."""

    def __init__(self, neighbours: Iterable[int], transport: Transport, room: int = 2) -> None:
        self._boxes = {peer: _Box(room) for peer in neighbours}
        self._transport = transport
        self._lock = threading.Lock()

    def push(self, peer: int, sequence: int, data: bytes) -> None:
        """Send a message after the one before it."""
        with self._lock:
            box = self._boxes[peer]
            waits = any(number > box.acknowledged for number, _ in box.messages)
            box.messages.append((sequence, data))
            if not waits or len(box.messages) == 1:
                self._send(peer, box)

    def acknowledged(self, peer: int, sequence: int) -> None:
        """Send the next message, if there is one."""
        with self._lock:
            box = self._boxes.get(peer)
            if box is not None and box.messages and sequence > box.acknowledged:
                box.acknowledged = sequence
                self._send(peer, box)

    def owed(self) -> bool:
        """Tell whether an acknowledgement is missing."""
        with self._lock:
            boxes = self._boxes.values()
            return any(box.messages and box.messages[-1][0] > box.acknowledged for box in boxes)

    def again(self, peer: int) -> None:
        """Send both messages once more: the peer may have lost what it acknowledged."""
        with self._lock:
            box = self._boxes.get(peer)
            if box is not None:
                box.acknowledged = 0
                self._send(peer, box)

    def retry(self, after_s: float) -> None:
        """Send what has not been acknowledged for a while once more."""
        with self._lock:
            for peer, box in self._boxes.items():
                if time.monotonic() - box.sent_s > after_s:
                    self._send(peer, box)

    def _send(self, peer: int, box: _Box) -> None:
        for number, data in box.messages:
            if number > box.acknowledged:
                box.sent_s = time.monotonic()
                self._transport.publish(peer, data)
                return
