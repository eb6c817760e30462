"""Which sums were sent and adopted, found again in who held what when.

A timeline of sums says more than it seems. A node that adopts the sum of node k takes over all of
k's stamps but its own:

    tau_ij(u) = m_j for all j != i,   m = (tau_kj(s) for j != k, and s for j = k)

where s is the stamp under which k froze its own parameters when it began to send. So the stamps
that a node holds name the message they came with, and nothing needs to be recorded besides `held`
and `sends`. Where two messages would have brought the same stamps, either may be named: they hold
the same sum. Several transfers may fit into one slot, so a node may pass on what it has adopted in
the same slot, even a sum that another one replaced before the slot was over.
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
AT_THE_START = -1
"""Of `Adoption.after`: the sender had adopted nothing yet."""


class Adoption(NamedTuple):
    """A node takes over the sum of another one.

    The sender formed it in slot `start`, right after its adoption number `after` of the list, with
    its own parameters of stamp `start`.
    """

    used: int  # the first slot in which the receiver uses it
    receiver: int
    sender: int
    start: int
    after: int
    stamps: NDArray[np.int32]  # (origin,) inside the message; the sender's own is `start`
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

    In slot s, each sender puts its own stamp s into what it passes on. So the entries of a row that
    equal s name all who passed it on in this slot, and the others are those of the first: what it
    held when the slot began, or an older message that it adopted in this slot.
    """

    def __init__(self, timeline: PeerTimeline) -> None:
        self.held, self.sends = timeline.held, timeline.sends
        slots, self.nodes = timeline.sends.shape
        self.all = np.arange(self.nodes)
        self.found: list[Adoption] = []
        self.known: dict[tuple[int, int, bytes], int] = {}
        self.asked: dict[tuple[int, int, bytes], int | None] = {}
        self.asked_in = 0
        # of each node the slots from which on it uses another row, and the adoptions of these
        self.slots = [[0] for _ in range(self.nodes)]
        self.numbers = [[AT_THE_START] for _ in range(self.nodes)]
        # (slot, node) the last stamp up to a slot that was frozen, 0 for none
        frozen = np.where(np.roll(self.sends, 1, axis=0), np.arange(slots)[:, None], 0)
        frozen[0] = 0
        self.frozen = np.maximum.accumulate(frozen, axis=0)

    def row(self, node: int, slot: int) -> None:
        """Find the adoption with which a node came to the stamps that it holds in a slot."""
        if slot != self.asked_in:
            self.asked, self.asked_in = {}, slot
        number = self._version(node, slot - 1, self.held[slot, node])
        if number is None:
            raise ValueError(
                f"in slot {slot} node {node} holds stamps that no sum of another node can have "
                "brought; expected a timeline of message = 'sum', follow this one by copies"
            )
        self.found[number] = self.found[number]._replace(kept=True)
        self.slots[node].append(slot)
        self.numbers[node].append(number)

    def _version(self, node: int, slot: int, pattern: NDArray) -> int | None:
        """Return the adoption in or before a slot that left a node with a row of this pattern."""
        key = (node, slot, pattern.tobytes())
        if key not in self.asked:
            found = self._search(node, slot, pattern)
            hidden = np.flatnonzero((pattern == ANY) & self.sends[slot - 1] & (self.all != node))
            for k in hidden if found is None and slot > 0 else ():  # did it pass the row on, too?
                found = self._version(node, slot, np.where(self.all == k, slot, pattern))
                if found is not None:
                    break
            self.asked[key] = found
        return self.asked[key]

    def _search(self, node: int, slot: int, pattern: NDArray) -> int | None:
        mine = self.all == node
        passed = (pattern == slot) & ~mine
        free = (pattern == ANY) | passed | mine
        rows = self.held[slot]
        fits = ((rows == pattern) | free).all(axis=1)
        if not passed.any():
            return (
                self._at_the_start(node, slot) if fits[node] else self._older(node, slot, pattern)
            )
        if not self.sends[slot - 1, passed].all():
            return None
        senders = np.flatnonzero(passed).tolist()
        firsts = [*senders, node] if self.sends[slot - 1, node] else senders
        for first in firsts:  # if it is the node itself, its own sum comes back to it
            number = self._at_the_start(first, slot)
            if not fits[first]:
                older = self._older(first, slot, np.where(free, ANY, pattern))
                if older is None:
                    continue
                number = older
            rest = [k for k in senders if k != first]
            return self._along([first, *rest, node], slot, number)
        return None

    def _along(self, chain: list[int], slot: int, number: int) -> int:
        """Let a row be passed on within a slot, from the first of a chain to the last."""
        for sender, receiver in pairwise(chain):
            row = self.found[number].stamps if number >= 0 else np.zeros(self.nodes, np.int32)
            number = self._note(receiver, slot + 1, sender, slot, number, row)
        return number

    def _older(self, node: int, slot: int, pattern: NDArray) -> int | None:
        """Return the adoption by a node in a slot of a message that was on the air before it."""
        start = self.frozen[max(slot - 1, 0)]  # a sender has one message on the air, its newest
        sent = (start >= 1) & (self.all != node) & ((pattern == start) | (pattern == ANY))
        wanted = np.where(self.all == node, ANY, pattern)
        for k in np.flatnonzero(sent).tolist():
            number = self._version(k, int(start[k]), wanted)
            if number is not None:
                row = self.found[number].stamps if number >= 0 else np.zeros(self.nodes, np.int32)
                return self._note(node, slot + 1, k, int(start[k]), number, row)
        return None

    def _at_the_start(self, node: int, slot: int) -> int:
        """Return the last adoption of a node when a slot begins."""
        return self.numbers[node][bisect_right(self.slots[node], slot) - 1]

    def _note(
        self, receiver: int, used: int, sender: int, start: int, after: int, row: NDArray
    ) -> int:
        stamps = np.where(self.all == sender, start, row).astype(np.int32)
        key = (receiver, used, stamps.tobytes())
        if key not in self.known:
            self.known[key] = len(self.found)
            self.found.append(Adoption(used, receiver, sender, start, after, stamps, False))
        return self.known[key]
