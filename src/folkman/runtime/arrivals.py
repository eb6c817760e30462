"""What a transport brings from threads of its own and the loop has not fetched yet; bounded.

Of each peer wait at most: its newest parameters, `MOST_TOLD` words of control, and the last two
changes of its link. Newer parameters take the place of older ones. Beyond its bound the oldest word
of control is dropped and counted. What one peer sends comes out in the order in which it came; the
peers take turns, so that a flood of one delays another's message by one message.

The loop is woken once, however much comes until it fetches.
"""

import threading
from collections import deque
from collections.abc import Callable

from folkman.runtime.core.events import Event, Linked, Received, Refused, Told, Unlinked

__all__ = ["MOST_REFUSED", "MOST_TOLD", "Arrivals"]

MOST_TOLD = 256
"""Control messages of one peer that may wait."""
MOST_REFUSED = 64
"""Refusals of strangers that may wait; those beyond are counted together."""


class _Box:
    """What waits of one peer: events by their numbers, in the order of arrival."""

    def __init__(self) -> None:
        self.events: dict[int, Event] = {}
        self.told: deque[int] = deque()
        self.links: deque[int] = deque()
        self.data: int | None = None
        self._number = 0

    def put(self, event: Event) -> int:
        self._number += 1
        self.events[self._number] = event
        return self._number

    def take(self) -> Event:
        """Return the oldest event; there is one."""
        number = next(iter(self.events))
        if self.told and self.told[0] == number:
            self.told.popleft()
        elif self.links and self.links[0] == number:
            self.links.popleft()
        elif self.data == number:
            self.data = None
        return self.events.pop(number)


class Arrivals:
    """See the module. `wake` is called without the lock, when there is something to fetch."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._lock = wake, threading.Lock()
        self._all: dict[int, _Box] = {}
        self._boxes: dict[int, _Box] = {}  # of peers with something waiting, in turn
        self._refused: deque[Refused] = deque()
        self._woken = False
        self.control_dropped = self.refusals_dropped = 0

    def received(self, peer: int, data: bytes) -> None:
        """Take parameters, in the place of older ones."""
        with self._lock:
            box = self._box(peer)
            if box.data is not None:
                del box.events[box.data]
            box.data = box.put(Received(peer, data))
            wakes = self._wakes()
        if wakes:
            self._wake()

    def told(self, peer: int, data: bytes) -> None:
        """Take a control message."""
        with self._lock:
            box = self._box(peer)
            if len(box.told) == MOST_TOLD:
                del box.events[box.told.popleft()]
                self.control_dropped += 1
            box.told.append(box.put(Told(peer, data)))
            wakes = self._wakes()
        if wakes:
            self._wake()

    def linked(self, peer: int, up: bool) -> None:
        """Take notice that a link came up or went down; two changes undo each other."""
        with self._lock:
            box = self._box(peer)
            if len(box.links) == 2:
                for _ in range(2):
                    del box.events[box.links.popleft()]
            box.links.append(box.put(Linked(peer) if up else Unlinked(peer)))
            wakes = self._wakes()
        if wakes:
            self._wake()

    def refused(self, reason: str, text: str) -> None:
        """Take notice that somebody was not let in."""
        with self._lock:
            if len(self._refused) == MOST_REFUSED:
                self._refused.popleft()
                self.refusals_dropped += 1
            self._refused.append(Refused(reason, text))
            wakes = self._wakes()
        if wakes:
            self._wake()

    def _wakes(self) -> bool:
        """Tell whether the loop is to be woken, once until it fetches."""
        woken, self._woken = self._woken, True
        return not woken

    def _box(self, peer: int) -> _Box:
        """Return a peer's box, which gets something now."""
        box = self._boxes.get(peer)
        if box is None:
            box = self._boxes[peer] = self._all.get(peer) or self._all.setdefault(peer, _Box())
        return box

    def take(self, most: int) -> tuple[list[Event], bool]:
        """Return what waits, at most so many events, and whether more is left.

        If more is left, nobody is woken for it: fetch again.
        """
        found: list[Event] = []
        with self._lock:
            while len(found) < most and (self._refused or self._boxes):
                if self._refused:
                    found.append(self._refused.popleft())
                for peer in list(self._boxes)[: most - len(found)]:
                    box = self._boxes.pop(peer)
                    found.append(box.take())
                    if box.events:
                        self._boxes[peer] = box  # behind the others
            self._woken = bool(self._refused or self._boxes)
            return found, self._woken

    def __len__(self) -> int:
        with self._lock:
            return len(self._refused) + sum(len(box.events) for box in self._boxes.values())
