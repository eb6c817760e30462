"""Who still owes an acknowledgement, and for how long it is waited for.

A period of Algorithm 1 ends when all receivers have acknowledged [1, line 10]. So one that never
does would slow every neighbour down. Three rules keep that small:

    patience    a receiver is waited for a multiple of the *median* latency of all links, so that
                neither a slow link nor one that feigns to be slow sets the pace of the others
    lapses      who lets two periods lapse, one after the other, is sent to but not waited for
    return      it is waited for again when it has acknowledged in time; each time that it is not
                waited for any more it must do so twice as often before

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from collections.abc import Iterable
from typing import NamedTuple

from folkman.runtime.link_quality import Links

__all__ = ["Owed"]

LATENCIES = 20.0
"""Median latencies that a receiver is waited for."""
LEAST_PATIENCE_S = 1.0
"""A receiver that computes, saves or collects garbage answers within this."""
MOST_LAPSES = 2
MOST_PENALTY = 256
"""Acknowledgements that are asked for, at most, of one who lapses again and again."""


class _Sent(NamedTuple):
    sequence: int
    at_s: float
    bits: int


class _Record:
    """How a receiver has behaved."""

    def __init__(self) -> None:
        self.lapses = 0  # in a row
        self.penalty = 1  # acknowledgements that the next exclusion costs
        self.to_give = 0  # acknowledgements until it is waited for again


class Owed:
    """What was sent to whom and is not acknowledged. Times are given."""

    def __init__(self, links: Links, longest_s: float) -> None:
        self._links, self._longest_s = links, longest_s
        self._sent: dict[int, _Sent] = {}
        self._records: dict[int, _Record] = {}

    def sent(self, peer: int, sequence: int, bits: int, now_s: float) -> None:
        """Note a message; of one that is not waited for, the oldest that is open counts."""
        if self.is_waited_for(peer) or peer not in self._sent:
            self._sent[peer] = _Sent(sequence, now_s, bits)

    def acknowledged(self, peer: int, sequence: int, now_s: float) -> bool:
        """Take notice of an acknowledgement; tell whether it was owed."""
        sent = self._sent.get(peer)
        if sent is None or sequence < sent.sequence:  # of one whose time is over: too late
            return False
        del self._sent[peer]
        self._links.note_arrival(peer, sent.bits, now_s - sent.at_s)
        record = self._records.get(peer)
        if record is not None:
            record.to_give = max(record.to_give - 1, 0)
            if not record.to_give:
                record.lapses = 0
        return True

    def refused(self, peer: int, sequence: int) -> None:
        """Wait no longer for a message that its receiver says it cannot take."""
        sent = self._sent.get(peer)
        if sent is not None and sequence >= sent.sequence:
            del self._sent[peer]

    def owes(self, peer: int) -> bool:
        """Tell whether a receiver owes an acknowledgement."""
        return peer in self._sent

    def forget(self, peer: int) -> None:
        """Let go of what one owes that is gone; how it behaved stays known."""
        self._sent.pop(peer, None)

    def is_waited_for(self, peer: int) -> bool:
        """Tell whether a receiver may hold a period up."""
        record = self._records.get(peer)
        return record is None or record.lapses < MOST_LAPSES

    def unheard(self) -> list[int]:
        """Return who is sent to but not waited for."""
        return sorted(peer for peer in self._records if not self.is_waited_for(peer))

    def lapsed(self, now_s: float) -> list[int]:
        """Return whose time is over, and wait for that message no longer."""
        if not self._sent:
            return []
        patience_s = self.patience_s()
        late = [peer for peer, sent in self._sent.items() if sent.at_s + patience_s <= now_s]
        for peer in late:
            del self._sent[peer]
            self._links.note_loss(peer)
            record = self._records.setdefault(peer, _Record())
            record.lapses += 1
            if record.lapses == MOST_LAPSES:
                record.to_give = record.penalty
                record.penalty = min(2 * record.penalty, MOST_PENALTY)
        return late

    def patience_s(self) -> float:
        """Return how long a receiver is waited for."""
        usual_s = self._links.usual_latency_s
        if usual_s is None:
            return self._longest_s
        return min(max(LATENCIES * usual_s, LEAST_PATIENCE_S), self._longest_s)

    def waiting(self, there: Iterable[int]) -> bool:
        """Tell whether a period is on: somebody who is there owes, and is waited for."""
        return any(peer in self._sent and self.is_waited_for(peer) for peer in there)

    def next_s(self) -> float:
        """Return when the next receiver's time is over."""
        if not self._sent:
            return float("inf")
        return min(sent.at_s for sent in self._sent.values()) + self.patience_s()
