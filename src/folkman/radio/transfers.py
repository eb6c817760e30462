"""Which sums were sent and adopted, found again in who held what when.

A timeline of sums says more than it seems. A node that adopts the sum of node k takes over all of
k's stamps but its own:

    tau_ij(u) = m_j for all j != i,   m = (tau_kj(s) for j != k, and o for j = k)

where s is the slot in which k began to send and o <= s the stamp under which it had last frozen its
own parameters, s itself if they were new. So the stamps that a node holds name the message that
they came with, and nothing needs to be recorded besides `held` and `sends`. Where two messages
would have brought the same stamps, either may be named: they hold the same sum. Several transfers
may fit into one slot, so a node may pass on what it has adopted in the same slot, even a sum that
another one replaced before the slot was over. What is found is therefore *a* history of messages
that brings every stamp in time, and not always the one that happened.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.radio.trace import PeerTimeline

__all__ = ["Adoption", "adoptions", "own_past"]

ANY = -2
"""In a pattern of stamps: whichever it was."""
EFFORTS = ((1, 0), (2, 0), (1, 1_000), (2, 30), (3, 0), (4, 5), (4, 1_000))
"""How deep to look for a message, and how many slots after a stamp its sender may have sent it
again, the likely ones first."""
AT_THE_START = -1
"""Of `Adoption.after`: the sender had adopted nothing yet."""


class Adoption(NamedTuple):
    """A node takes over the sum of another one.

    The sender formed it in slot `start`, right after its adoption number `after` of the list, with
    its own newest frozen parameters.
    """

    used: int  # the first slot in which the receiver uses it
    receiver: int
    sender: int
    start: int
    after: int
    stamps: NDArray[np.int32]  # (origin,) inside the message
    kept: bool  # False: another one replaced it before the slot was over


def adoptions(timeline: PeerTimeline) -> list[Adoption]:
    """Return the adoptions of a timeline of sums, each after those that it builds on."""
    search = _Search(timeline)
    others = ~np.eye(timeline.held.shape[1], dtype=bool)
    moved = (np.diff(timeline.held, axis=0) != 0) & others
    for before, receiver in np.argwhere(moved.any(axis=2)):
        search.row(int(receiver), int(before) + 1)
    return _in_order(search.found)


def _in_order(found: list[Adoption]) -> list[Adoption]:
    """Return adoptions by the slot of their use; those of one slot stay in the order they have."""
    order = sorted(range(len(found)), key=lambda number: found[number].used)
    at = {number: place for place, number in enumerate(order)} | {AT_THE_START: AT_THE_START}
    return [found[number]._replace(after=at[found[number].after]) for number in order]


def own_past(
    timeline: PeerTimeline,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many own past parameters each node needs at once, and the age of the oldest.

    Both (node,), the largest over the run. A node needs its parameters of a stamp from when it
    freezes them until the last sum has arrived that holds them: after that no message brings them
    back. Others hold at most I - 1 different stamps of a node, a message on the air one more, and
    the stamp of this slot
    is new, so I + 1 are enough where one node sends at a time.
    """
    slots, nodes = timeline.sends.shape
    last = np.full((slots + 1, nodes), -1)  # the slot up to which a stamp is needed
    for event in adoptions(timeline):
        own = event.stamps[event.receiver]
        last[own, event.receiver] = max(last[own, event.receiver], event.used - 1)
    most, oldest = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for node in range(nodes):
        stamps = np.flatnonzero(last[:, node] >= 0)
        ends = last[stamps, node]
        kept = np.zeros(slots + 2, np.int64)
        np.add.at(kept, stamps, 1)
        np.add.at(kept, ends + 1, -1)
        most[node] = np.cumsum(kept).max(initial=0)
        oldest[node] = (ends - stamps).max(initial=0)
    return most, oldest


class _Search:
    """Finds the messages behind rows of stamps.

    Each sender puts its own newest stamp into what it passes on. So a row that was passed on within
    a slot is that of the first sender, what it held when the slot began or an older message that it
    adopted then, but for the entries of those who passed it on.
    """

    def __init__(self, timeline: PeerTimeline) -> None:
        self.held = timeline.held
        slots, self.nodes = timeline.sends.shape
        self.all, self.own = np.arange(self.nodes), np.eye(self.nodes, dtype=bool)
        self.found: list[Adoption] = []
        self.known: dict[tuple[int, int, bytes], int] = {}
        self.asked: dict[tuple[int, int, int, bytes], int | None] = {}
        self.repeats = 0
        # of each node the slots from which on it uses another row, and the adoptions of these
        self.slots = [[0] for _ in range(self.nodes)]
        self.numbers = [[AT_THE_START] for _ in range(self.nodes)]
        # (slot, node) the newest stamp that a node has frozen when it sends in a slot
        frozen = np.where(np.roll(timeline.sends, 1, axis=0), np.arange(slots)[:, None], 0)
        frozen[0] = 0
        self.frozen = np.maximum.accumulate(frozen, axis=0)

    def row(self, node: int, slot: int) -> None:
        """Find the adoption with which a node came to the stamps that it holds in a slot."""
        for depth, repeats in EFFORTS:
            self.asked, self.repeats = {}, repeats
            number = self._version(node, slot - 1, self.held[slot, node], depth)
            if number is not None:
                break
        else:
            raise ValueError(
                f"in slot {slot} node {node} holds stamps that no sum of another node can have "
                "brought; expected a timeline of message = 'sum', follow this one by copies"
            )
        self.found[number] = self.found[number]._replace(kept=True)
        self.slots[node].append(slot)
        self.numbers[node].append(number)

    def _version(self, node: int, slot: int, pattern: NDArray, depth: int) -> int | None:
        """Return the adoption in or before a slot that left a node with a row of this pattern.

        It may build on messages from `depth` earlier slots, each adopted and passed on at once.
        """
        key = (depth, node, slot, pattern.tobytes())
        if key not in self.asked:
            self.asked[key] = self._search(node, slot, pattern, depth)
        return self.asked[key]

    def _search(self, node: int, slot: int, pattern: NDArray, depth: int) -> int | None:
        free = (pattern == ANY) | (self.all == node)
        passing = pattern == self.frozen[slot]  # who may have passed the row on
        unlike = (self.held[slot] != pattern) & ~free & ~self.own
        if not unlike[node].any():
            return self._at_the_start(node, slot)
        fits = ~(unlike & ~passing).any(axis=1) & (passing | free)
        firsts = np.flatnonzero(fits)
        if len(firsts):
            first = int(firsts[unlike[firsts].sum(axis=1).argmin()])
            return self._along(first, node, slot, self._at_the_start(first, slot), pattern)
        if depth == 0:
            return None
        number = self._older(node, slot, pattern, depth - 1)
        if number is not None:
            return number
        for first in np.flatnonzero((passing | (self.all == node)) & (pattern != ANY)).tolist():
            older = self._older(first, slot, np.where(free | passing, ANY, pattern), depth - 1)
            if older is not None:
                return self._along(first, node, slot, older, pattern)
        return None

    def _along(self, first: int, last: int, slot: int, number: int, pattern: NDArray) -> int:
        """Let a row be passed on within a slot, from one node to another by all who it names."""
        row = self._row_after(number)
        unlike = (row != pattern) & (pattern != ANY)
        unlike[[first, last]] = False
        for sender, receiver in pairwise([first, *np.flatnonzero(unlike).tolist(), last]):
            number = self._note(receiver, slot + 1, sender, slot, number)
        return number

    def _older(self, node: int, slot: int, pattern: NDArray, depth: int) -> int | None:
        """Return the adoption by a node in a slot of a message that was on the air before it."""
        wanted = np.where(self.all == node, ANY, pattern)
        stamps = np.where(pattern == ANY, self.frozen[max(slot - 1, 0)], pattern)
        newest_first = np.lexsort((-stamps, pattern == ANY))  # a sender's own stamp is the newest
        for k in newest_first[newest_first != node].tolist():
            stamp = int(stamps[k])
            first = max(stamp, 1)
            for start in range(first, min(slot, first + 1 + self.repeats)):
                if self.frozen[start, k] != stamp:
                    break
                number = self._version(k, start, wanted, depth)
                if number is not None:
                    return self._note(node, slot + 1, k, start, number)
        return None

    def _row_after(self, number: int) -> NDArray[np.int32]:
        return self.found[number].stamps if number >= 0 else np.zeros(self.nodes, np.int32)

    def _at_the_start(self, node: int, slot: int) -> int:
        """Return the last adoption of a node when a slot begins."""
        return self.numbers[node][bisect_right(self.slots[node], slot) - 1]

    def _note(self, receiver: int, used: int, sender: int, start: int, after: int) -> int:
        own = self.frozen[start, sender]
        stamps = np.where(self.all == sender, own, self._row_after(after)).astype(np.int32)
        key = (receiver, used, stamps.tobytes())
        if key not in self.known:
            self.known[key] = len(self.found)
            self.found.append(Adoption(used, receiver, sender, start, after, stamps, False))
        return self.known[key]
