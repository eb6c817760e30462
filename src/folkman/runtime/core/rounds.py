"""Learning in lock-step, and around a server: learn until there is something to send, then send it.

Then the node waits for what it needs, and hears. The state is saved before anything is sent, and
with it the message before: a node that begins again repeats itself word for word, and whoever
missed that message still gets it. After the end of a run the message of the last round is saved
too, and is not formed again; the one before it then stays on the disk beside it.
"""

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from folkman.runtime import journal
from folkman.runtime.codec import HEADER_BYTES, round_of, sequence_of, slot_of
from folkman.runtime.core.own_beat import Beat
from folkman.runtime.core.pace import Pace
from folkman.runtime.core.settings import DIVERGED
from folkman.runtime.emulation import Trips
from folkman.runtime.node import Node
from folkman.runtime.server_node import ServerNode

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["InRounds", "Serving"]


class SaveFirst:
    """Has the state at some place on disk before anything goes out there."""

    def __init__(self) -> None:
        self._place: Hashable = None
        self._ticket: int | None = None

    def is_saved(self, core: "Core", place: Hashable, now_s: float) -> bool:
        """Tell whether it is; ask for it, as often as the disk needs, if it is not."""
        saving = core.saving
        if self._ticket is not None and saving.is_idle:
            found, self._ticket = saving.succeeded == self._ticket, None
            if found and self._place == place:
                return True
        if self._ticket is None and saving.is_idle and now_s >= saving.not_before_s:
            self._place, self._ticket = place, saving.start(with_state=True)
            if self._ticket is None:
                core.stop("the parameters are no longer finite; try a smaller step", DIVERGED)
        return False

    def next_s(self, core: "Core") -> float:
        """Return when to try the disk again."""
        return core.saving.not_before_s if core.saving.is_idle else math.inf


class _Waits(Pace):
    """What those have in common who wait for messages, on the real air or an emulated one."""

    def __init__(self, trips: Trips | None) -> None:
        self.trips = trips
        self._later: list[tuple[float, int, bytes]] = []  # (due, peer, message) on the air
        self._first = SaveFirst()
        self._saves = False  # is something waiting for the disk?

    def sort(self, core: "Core", peer: int, data: bytes, now_s: float) -> None:
        """Take a message, or put it on the emulated air first: of a neighbour the last two."""
        if self.trips is None or len(data) < HEADER_BYTES:
            core.hearing.take(peer, data, now_s)
            return
        due_s = now_s + self._trip(core, self.trips, peer, data) * core.settings.slot_s
        last = [entry for entry in self._later if entry[1] == peer][-1:]
        self._later = [entry for entry in self._later if entry[1] != peer] + last
        self._later.append((due_s, peer, data))

    @staticmethod
    def _trip(core: "Core", trips: Trips, peer: int, data: bytes) -> int:
        """Return the slots that a message is on the emulated air, in rounds."""
        node = core.node
        if node.mailbox.round:
            round_ = min(round_of(data), node.mailbox.round + 1)
            return trips.slots(max(round_, 1), peer)
        if not isinstance(node, Node):
            return trips.slots(node.steps + 1, peer)
        answers = int(node.mailbox.sequence[0])
        return trips.slots(max(answers + 1, 1), node.index, down=True)

    def deliver(self, core: "Core", now_s: float) -> None:
        """Take what has come to the end of its way."""
        due = [entry for entry in self._later if entry[0] <= now_s]
        self._later = [entry for entry in self._later if entry[0] > now_s]
        for _, peer, data in due:
            core.hearing.take(peer, data, now_s)

    def deliver_s(self) -> float:
        """Return when the next message has come to the end of its way."""
        return min((due_s for due_s, *_ in self._later), default=math.inf)


class InRounds(_Waits):
    """A learner that waits."""

    def __init__(self, trips: Trips | None = None) -> None:
        super().__init__(trips)
        self._beat = Beat()
        self._sent_at: tuple[int, int, int] | None = None
        self._begun = False  # has a slot begun whose end is not looked at yet?

    def begin(self, core: "Core", now_s: float) -> None:
        """Send the last message again, and at the end of a run the one before it.

        A neighbour may be a round behind.
        """
        node = _learner(core)
        if node.last_sent:
            if node.sent_before:
                self._push(core, node.sent_before, now_s)
            self._push(core, node.last_sent, now_s)
            if slot_of(node.last_sent) == node.slot:
                self._sent_at = _place(node)

    def act(self, core: "Core", now_s: float) -> None:
        """Send what is ready, and go on to the next slot when all is there."""
        node = _learner(core)
        if core.is_in_slot:
            return
        if self._begun:
            self._begun = False
            if node.holds_back:
                core.hearing.acknowledge_begun()
        if now_s < self._beat.next_s(core) or not self._sent(core, node, now_s):
            return
        if not core.goes_on():
            core.finish()
        elif not node.offers() or self.may_end(core):
            self._begun = True
            self._beat.begin(core, now_s)

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when a slot may begin, or the disk is tried again."""
        if core.is_in_slot:
            return math.inf
        if now_s < (due_s := self._beat.next_s(core)):
            return due_s
        if self._saves:
            return self._first.next_s(core)
        return now_s if not _learner(core).offers() else math.inf

    def _sent(self, core: "Core", node: Node, now_s: float) -> bool:
        """Form and send the message of this place, once; tell whether nothing is left to send."""
        here = _place(node)
        self._saves = node.offers() and self._sent_at != here
        if not self._saves:
            return True
        if not self._first.is_saved(core, here, now_s):
            return False
        data, sequence, slot = node.formed()
        core.hands.note(journal.SEND, slot, [sequence])
        self._push(core, data, now_s)
        node.sent_before = node.last_sent
        node.last_sent, self._sent_at, self._saves = data, here, False
        core.hands.counts["sent"] += 1
        return True

    @staticmethod
    def may_end(core: "Core") -> bool:
        """Tell whether all who are to be heard were, and, where senders hold back, all heard."""
        node = _learner(core)
        return node.complete() and not (node.holds_back and core.sending.outbox.owed())

    @staticmethod
    def _push(core: "Core", data: bytes, now_s: float) -> None:
        for peer in _learner(core).receivers(round_of(data)):
            core.sending.push(peer, sequence_of(data), data, now_s)


def _learner(core: "Core") -> Node:
    assert isinstance(core.node, Node)  # noqa: S101 - a server has a pace of its own
    return core.node


def _place(node: Node) -> tuple[int, int, int]:
    """Return where a node stands: a message is formed once at each."""
    return node.steps, node.mailbox.round, int(node.used[0])


class Serving(_Waits):
    """The server: acts on what arrives, answers, until all nodes are done."""

    def __init__(self, trips: Trips | None = None) -> None:
        super().__init__(trips)
        self._answered_at = -1

    def act(self, core: "Core", now_s: float) -> None:
        """Answer, and take in what has come, as long as there is something."""
        node = core.node
        assert isinstance(node, ServerNode)  # noqa: S101 - it was chosen for one
        while core.is_learning and self._answered(core, node, now_s):
            if not node.complete():
                if core.everyone_done():
                    core.finish()
                return
            node.wake()
            core.hands.note(journal.WAKE, node.slot - 1, node.used.tolist())

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when the disk is tried again."""
        del now_s
        return self._first.next_s(core) if self._saves else math.inf

    def _answered(self, core: "Core", node: ServerNode, now_s: float) -> bool:
        """Answer whom the server has something for, once a slot; tell whether nobody is left."""
        offers = np.asarray(node.offers())
        self._saves = bool(offers.any()) and self._answered_at != node.slot
        if not self._saves:
            return True
        if not self._first.is_saved(core, node.slot, now_s):
            return False
        self._answered_at, self._saves = node.slot, False
        answers, sequence, slot = node.answers([int(peer) for peer in np.flatnonzero(offers)])
        core.hands.note(journal.SEND, slot, [sequence])
        core.hands.note(journal.ANSWER, slot, offers.astype(int).tolist())
        for peer, data in answers.items():
            core.sending.push(peer, sequence, data, now_s)
        core.hands.counts["sent"] += 1
        return True
