"""What carries bytes between nodes: one small protocol, two wires, and a twin inside a process.

    publish(peer, data)    parameters: the newest value wins; never waits, never grows
    tell(peer, data)       control: reliable and in order while the link is up

Each neighbour has one slot for what is to be sent. Overwriting an unsent value is the point: a slow
or frozen receiver gets the newest parameters when it can, and holds up neither the learner nor the
others. A transfer that is cut in the middle is never handed over.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from folkman.runtime.identity import Identity, Members

__all__ = ["Events", "Local", "LocalExchange", "Security", "Slot", "Transport"]

MOST_CONTROL = 1000
"""Control messages that may wait for one peer; beyond it the oldest are dropped and counted."""


class Security(NamedTuple):
    """Mutual TLS by our certificate, and the members to talk to."""

    identity: Identity
    members: Members


class Events(Protocol):
    """What a transport tells its owner, from the loop or threads of its own; nothing may wait."""

    def received(self, peer: int, data: bytes) -> None:
        """Take parameters that `peer` sent, as far as the carrier knows."""
        ...

    def told(self, peer: int, data: bytes) -> None:
        """Take a control message."""
        ...

    def linked(self, peer: int, up: bool) -> None:
        """Take notice that a link came up or went down."""
        ...

    def refused(self, reason: str, text: str) -> None:
        """Take notice that somebody was not let in."""
        ...


class Transport(Protocol):
    """A carrier of bytes, opened and closed in an asyncio loop; all else returns at once."""

    counts: Counter[str]  # bytes_sent, bytes_received, overwritten, dropped_control, ...

    async def open(self, events: Events) -> None:
        """Listen and dial; go on redialling until closed. Called from the loop, as all else."""
        ...

    def publish(self, peer: int, data: bytes) -> None:
        """Send parameters, in place of any that wait to be sent to this peer."""
        ...

    def tell(self, peer: int, data: bytes) -> None:
        """Send a control message, in order after the ones before it.

        Dropped if the link is down.
        """
        ...

    def links(self) -> frozenset[int]:
        """Return the peers whose links are up."""
        ...

    def revalidate(self) -> None:
        """Drop the links to those who are no longer members."""
        ...

    async def close(self) -> None:
        """Let go of all links, threads and sockets."""
        ...


class Slot:
    """Room for one value: the newest wins, and whoever waits is woken."""

    def __init__(self) -> None:
        self._filled = threading.Condition()
        self._value: bytes | None = None
        self._closed = False

    def put(self, value: bytes) -> bool:
        """Put a value; tell whether it took the place of one that nobody fetched."""
        with self._filled:
            overwritten = self._value is not None
            self._value = value
            self._filled.notify()
        return overwritten

    def put_back(self, value: bytes) -> None:
        """Put a value unless a newer one has come."""
        with self._filled:
            if self._value is None:
                self._value = value
                self._filled.notify()

    def clear(self) -> None:
        """Let go of a value that nobody fetched."""
        with self._filled:
            self._value = None

    def take(self, timeout_s: float | None = None) -> bytes | None:
        """Return the value, waiting for one; None when the time is over or the slot closed."""
        with self._filled:
            self._filled.wait_for(lambda: self._value is not None or self._closed, timeout_s)
            value, self._value = self._value, None
            return None if self._closed else value

    def close(self) -> None:
        """Wake whoever waits, for good."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()


class LocalExchange:
    """The twin's air: who is there, and who cannot hear whom."""

    def __init__(self) -> None:
        self.there: dict[int, Local] = {}
        self.cut: set[tuple[int, int]] = set()  # (sender, receiver)

    def reaches(self, sender: int, receiver: int) -> "Local | None":
        """Return the receiver if it can hear the sender now."""
        return None if (sender, receiver) in self.cut else self.there.get(receiver)


class Local:
    """A transport within one process, for tests: what is sent is handed over at once."""

    def __init__(self, me: int, peers: Iterable[int], exchange: LocalExchange) -> None:
        self.me, self._peers, self._exchange = me, tuple(peers), exchange
        self.counts: Counter[str] = Counter()
        self._events: Events | None = None

    async def open(self, events: Events) -> None:
        """Join the exchange."""
        self._events = events
        self._exchange.there[self.me] = self
        for peer in self.links():
            other = self._reached(peer)
            if other is not None:
                other.linked(self.me, True)
                events.linked(peer, True)

    def publish(self, peer: int, data: bytes) -> None:
        """Send parameters."""
        other = self._reached(peer)
        if other is not None:
            self.counts["bytes_sent"] += len(data)
            other.received(self.me, data)

    def tell(self, peer: int, data: bytes) -> None:
        """Send a control message."""
        other = self._reached(peer)
        if other is not None:
            other.told(self.me, data)

    def _reached(self, peer: int) -> Events | None:
        other = self._exchange.reaches(self.me, peer)
        return None if other is None else other._events

    def links(self) -> frozenset[int]:
        """Return the peers that are there."""
        return frozenset(peer for peer in self._peers if self._exchange.reaches(self.me, peer))

    def revalidate(self) -> None:
        """Do nothing: within a process everyone is known."""

    async def close(self) -> None:
        """Leave the exchange."""
        self._exchange.there.pop(self.me, None)
        for peer in self._peers:
            other = self._reached(peer)
            if other is not None:
                other.linked(self.me, False)
