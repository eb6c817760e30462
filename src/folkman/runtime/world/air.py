"""The network of a world: for each ordered pair of members one way, with its own faults.

Parameters wait in a room for one message, and the newest wins; the way sends them one after
another at its bandwidth. Control messages come reliably and in order while a link is up. A link
that goes down takes with it what was under way.
"""

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from folkman.runtime.world.plan import Fault

__all__ = ["Arrival", "Way"]

LATENCY_S = 0.005
"""Of a way without faults, at least; a tenth of it is added by chance."""


class Arrival(NamedTuple):
    """A message that will come, if the link is still the same one by then."""

    at_s: float
    link: int  # number of the link: it rises whenever the link comes up
    data: bytes
    is_control: bool


class Way:
    """From one member to another."""

    def __init__(self, draws: Random, faults: Iterable[Fault]) -> None:
        self._draws = draws
        self._faults = tuple(faults)
        self.link = 0
        self.is_up = False
        self._waiting: bytes | None = None
        self._free_s = 0.0  # when the way is done with what it sends
        self._last_s = 0.0  # when the last message in order comes
        self.bits = 0

    def amount(self, kind: str, now_s: float) -> float:
        """Return how strong a fault is now; 0 if it is not on."""
        most = 0.0
        for fault in self._faults:
            if fault.kind == kind and fault.on(now_s):
                most = max(most, fault.amount)
        return most

    def is_cut(self, now_s: float) -> bool:
        """Tell whether nothing gets through now."""
        return any(f.kind == "partition" and f.on(now_s) for f in self._faults)

    def ends_s(self, now_s: float) -> float:
        """Return when what cuts the way now will have ended."""
        ends_s = now_s
        for fault in self._faults:
            if fault.kind == "partition" and fault.on(now_s):
                ends_s = max(ends_s, fault.stop_s)
        return ends_s

    def up(self) -> None:
        """Begin a new link."""
        self.link += 1
        self.is_up, self._waiting = True, None
        self._free_s = self._last_s = 0.0

    def down(self) -> None:
        """End the link, and lose what is on it."""
        self.is_up, self._waiting = False, None

    def publish(self, now_s: float, data: bytes) -> float | None:
        """Put a message into the room; return when to send it, None if that is known already."""
        if not self.is_up:
            return None
        was_empty, self._waiting = self._waiting is None, data
        return max(now_s, self._free_s) if was_empty else None

    def send(self, now_s: float) -> list[Arrival]:
        """Send what waits; return how it will come: not at all, once, or more often."""
        data, self._waiting = self._waiting, None
        if data is None or not self.is_up:
            return []
        width = self.amount("narrow", now_s)
        self._free_s = now_s + (8 * len(data) / width if width else 0.0)
        self.bits += 8 * len(data)
        if self.is_cut(now_s) or self._draws.random() < self.amount("loss", now_s):
            return []
        times = 2 if self._draws.random() < self.amount("duplicate", now_s) else 1
        return [self._coming(self._free_s, data) for _ in range(times)]

    def tell(self, now_s: float, data: bytes) -> Arrival | None:
        """Send a control message; it waits while the way is cut."""
        if not self.is_up:
            return None
        begun_s = max(now_s, self.ends_s(now_s))
        self._last_s = max(self._last_s, begun_s + self._delay_s(now_s))
        return Arrival(self._last_s, self.link, data, is_control=True)

    def _coming(self, sent_s: float, data: bytes) -> Arrival:
        at_s = sent_s + self._delay_s(sent_s)
        if self._draws.random() >= self.amount("reorder", sent_s):
            self._last_s = at_s = max(self._last_s, at_s)
        else:
            at_s += self._draws.expovariate(1.0) * 20 * LATENCY_S
        return Arrival(at_s, self.link, data, is_control=False)

    def _delay_s(self, now_s: float) -> float:
        mean_s = self.amount("delay", now_s)
        more_s = self._draws.expovariate(1.0 / mean_s) if mean_s else 0.0
        if more_s:  # what was delayed comes when the fault ends, at the latest
            ends_s = max(f.stop_s for f in self._faults if f.kind == "delay" and f.on(now_s))
            more_s = min(more_s, ends_s - now_s)
        return LATENCY_S * (1 + 0.1 * self._draws.random()) + more_s
