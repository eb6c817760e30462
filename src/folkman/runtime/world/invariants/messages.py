"""What is said and what is taken: invariants 1, 3, 4, 5, 8, 10 and 16."""

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.runtime.codec import base_of, version_of
from folkman.runtime.control import LIFE_BITS, Ack, Period
from folkman.runtime.core.events import (
    MembersChanged,
    Publish,
    Received,
    Start,
    Tell,
    Unlinked,
)
from folkman.runtime.fresh_codec import slots_of
from folkman.runtime.world.audit import Invariant, Moved, Seen, broken
from folkman.runtime.world.contents import Header, header_of, heard_number
from folkman.runtime.world.invariants.band import BandBooks
from folkman.runtime.world.plan import ON_A_BAND

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Counted", "Heard", "Newer", "OfMembers", "OneContent", "Rising", "WithinShare"]


ALL = -1
"""In place of one receiver."""
LARGEST = 1e6
"""Of a parameter: whoever sends a larger one has gone bad."""
MOST_LARGEST = 3
"""Times that, of a sum without the own part, which may be large itself."""
NEWS_SHARE = 0.1
"""Neighbours are told of a rate that has changed by this share."""


class Newer(Invariant):
    """1: what is held of a sender is replaced by newer messages alone."""

    number = 1
    sentence = "nothing is applied that is not newer than what is held, over restarts"
    looks_at = (
        Publish,
        Moved,
    )

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, Any, bytes]] = {}  # member -> sequence, newest, payload
        self._sent: dict[tuple[int, int], set[tuple[bytes, int]]] = {}
        """(honest sender, sequence) -> contents, and the slots after which they were formed."""
        self._sums = SumBooks(self)

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Forget what the process before held: this one holds what its disk had."""
        del world, start
        self._held.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """Compare what is held with what was held before."""
        for content in seen.contents:
            if content.origin == seen.host.number:
                key = content.origin, content.sequence  # after a lost folder it may stand for two
                self._sent.setdefault(key, set()).add((content.params, content.slot))
        if seen.world.plan.carries == "sum":
            self._sums.look(seen)
            return
        if not seen.moved:
            return
        box, number = seen.node.mailbox, seen.host.number
        if isinstance(seen.event, Start) and seen.event.state is not None:
            kept = seen.event.state.get("mailbox.newest")
            if kept is not None and (box.newest < kept).any():
                raise broken(self, f"node {number} forgot on a restart what it had heard")
        before = self._held.get(number)
        payload = box.payload.tobytes()
        if before is not None:
            sequence, newest, was = before
            moved = box.sequence != sequence
            applied = moved & (box.sequence != 0)
            least = np.where(sequence == 0, newest, newest + 1)  # of one forgotten, its last again
            if (applied & (box.sequence < least)).any():
                text = f"node {number} applied {box.sequence[applied]}, held {newest[applied]}"
                raise broken(self, text)
            self._check_content(seen, np.flatnonzero(applied))
            if (box.newest < newest).any():
                raise broken(self, f"node {number} lowered the numbers of what it has heard")
            if payload != was and not moved.any():
                raise broken(self, f"node {number} changed a copy without a newer message")
        self._held[number] = box.sequence.copy(), box.newest.copy(), payload

    def _check_content(self, seen: Seen, rows: Any) -> None:
        """See that what is held of an honest sender is what it sent."""
        box, first = seen.node.mailbox, seen.world.setting.first_sender(seen.host.number)
        if len(rows) and np.abs(box.payload[rows]).max() > LARGEST:
            raise broken(self, f"node {seen.host.number} holds a parameter beyond {LARGEST:g}")
        for row in rows:
            sent = self._sent.get((first + int(row), int(box.sequence[row])))
            if sent is not None and (box.payload[row].tobytes(), int(box.slot[row])) not in sent:
                text = f"node {seen.host.number} holds something else than {first + int(row)} sent"
                raise broken(self, text)


class SumBooks:
    """Invariant 1 where messages are sums: they are adopted whole, and only if they are younger."""

    def __init__(self, invariant: Invariant) -> None:
        self._invariant = invariant
        self._before: dict[int, tuple[int, Any, Any]] = {}  # member -> process, numbers, stamps
        self._parts: dict[tuple[int, int], Any] = {}  # (origin, stamp) -> its part of a sum

    def look(self, seen: Seen) -> None:
        """Compare numbers, stamps and the sum itself with what they were, and with its parts."""
        number, process, box = seen.host.number, seen.host.process, seen.node.mailbox
        for stamp, part in box.past.items():
            self._parts.setdefault((number, stamp), part)
        if isinstance(seen.event, Start) and seen.event.state is not None:
            kept = seen.event.state["mailbox.last"]
            if (box.last < kept).any():
                raise broken(
                    self._invariant, f"node {number} forgot on a restart what it had heard"
                )
        before = self._before.get(number)
        if before is not None and before[0] == process:
            if (box.last < before[1]).any():
                raise broken(self._invariant, f"node {number} lowered the numbers of carriers")
            moved = (box.sequence != before[2]).any()
            if moved and slots_of(box.sequence).sum() <= slots_of(before[2]).sum():
                text = f"node {number} adopted stamps {box.sequence} over {before[2]}"
                raise broken(self._invariant, text)
        self._before[number] = process, box.last.copy(), box.sequence.copy()
        if not box.parts.bits and np.abs(box.others).max() > MOST_LARGEST * LARGEST:
            raise broken(self._invariant, f"node {number} adopted a sum beyond all limits")
        if seen.moved and not seen.world.plan.liars and not seen.world.setting.lost:
            self._check_sum(seen, box)

    def _check_sum(self, seen: Seen, box: Any) -> None:
        """See that a sum is that of the parts which its stamps name."""
        expected = 0.0
        for origin, stamp in enumerate(box.sequence.tolist()):
            if origin == box.index:
                continue
            part = self._parts.get((origin, stamp))
            if part is None and stamp:
                text = f"node {seen.host.number} holds parameters of {origin} that it never sent"
                raise broken(self._invariant, text)
            first = box.parts.of(origin, box.parts.initial)
            expected = expected + (first if part is None else part)
        off = box.others - expected
        bits = box.parts.bits  # of whole numbers, which are kept modulo 2^bits, nothing is lost
        if (off % (1 << bits)).any() if bits else not np.allclose(off, 0.0, atol=1e-4):
            text = f"the sum of node {seen.host.number} is not that of its parts"
            raise broken(self._invariant, text)


class _Books:
    """Which numbers a member has used, over all its lives."""

    def __init__(self) -> None:
        self.highest = 0
        self.used: set[int] = set()


class _OfNumbers(Invariant):
    """What is asked of the numbers of messages, which a node that has lost its folder cannot know.

    It counts from 1 until a neighbour tells it better. Nobody takes those messages: invariant 1.
    """

    def __init__(self) -> None:
        self._counts_on = False

    def asks(self, world: "World") -> bool:
        """Ask always; where messages count on over lives, a damaged state is a lost one."""
        self._counts_on = world.setting.counts_on
        return True

    def flipped(self, host: "Host") -> None:
        """Let a node whose state may be damaged count on from an earlier one, where it counts."""
        if self._counts_on:
            self._begin_anew(host.number)

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Take two damaged notes of a life for a lost folder: nothing of it is left."""
        del world
        if start.life == 0 and start.warnings:
            self.lost_folder(host)

    def lost_folder(self, host: "Host") -> None:
        """Let a node that has lost its folder use numbers again."""
        self._begin_anew(host.number)

    def _begin_anew(self, number: int) -> None:
        """Forget which numbers of messages a member has used."""
        raise NotImplementedError


class Rising(_OfNumbers):
    """3: a number that was not used before is higher than all that were.

    On an emulated band a message waits until its receiver has answered the one before. Meanwhile
    another receiver may get a later one, and this one a copy that it has asked for. So numbers rise
    for each receiver and kind of message there.
    """

    number = 3
    sentence = "sequences strictly rise over lives, also after lost files"
    looks_at = (Publish, Tell)

    def __init__(self) -> None:
        super().__init__()
        self._books: dict[int, dict[Any, _Books]] = defaultdict(lambda: defaultdict(_Books))
        self._told: dict[int, int] = {}

    def lost_folder(self, host: "Host") -> None:
        """Let a node that has lost its folder count from 1, words too."""
        super().lost_folder(host)
        self._told.pop(host.number, None)

    def _begin_anew(self, number: int) -> None:
        self._books.pop(number, None)

    def stepped(self, seen: Seen) -> None:
        """Look at every number that leaves a member."""
        number, waits = seen.host.number, seen.world.plan.method in ON_A_BAND
        for header in seen.published:
            books = self._books[number][(header.peer, version_of(header.data)) if waits else ALL]
            if header.sequence > books.highest:
                books.highest = header.sequence
                books.used.add(header.sequence)
            elif header.sequence not in books.used:
                text = f"node {number} sends {header.sequence} after {books.highest}"
                raise broken(self, text)
            if seen.world.plan.method == "emulated":
                self._look_at_transfer(seen, header)
        for _, control in seen.told:
            if control.sequence <= self._told.get(number, -1):
                raise broken(self, f"node {number} says {control.sequence} again")
            self._told[number] = control.sequence

    def _look_at_transfer(self, seen: Seen, header: Header) -> None:
        """See that a message is that of a slot which has begun: the next transfer is not on yet."""
        core: Any = seen.host.core
        begun = max(core.clock.slot(core._now_s), seen.node.slot)
        if not 1 <= header.round <= begun:
            text = f"node {seen.host.number} sends as transfer {header.round}"
            raise broken(self, f"{text}, and only {begun} have begun")


class OneContent(_OfNumbers):
    """4: whoever has message n of a sender has the same message n."""

    number = 4
    sentence = "one (sender, sequence), one content"
    looks_at = (Publish,)

    def __init__(self) -> None:
        super().__init__()
        self._content: dict[int, dict[int, bytes]] = defaultdict(dict)

    def _begin_anew(self, number: int) -> None:
        self._content[number].clear()

    def stepped(self, seen: Seen) -> None:
        """Compare every message with the one that had its number."""
        known = self._content[seen.host.number]
        for header in seen.published:
            content = blake2b(self._compared(seen, header), digest_size=8).digest()
            if known.setdefault(header.sequence, content) != content:
                text = f"node {seen.host.number} sends two messages {header.sequence}"
                raise broken(self, text)
        if seen.world.plan.carries == "feedback":
            self._look_at_memory(seen)

    def _look_at_memory(self, seen: Seen) -> None:
        """See that a sender remembers what its receivers hold after its last message.

        In an earlier life it may have sent more than was saved, so no change builds on that.
        """
        for header in seen.published:
            life, on = header.sequence >> LIFE_BITS, base_of(header.data)
            if on is not None and on >> LIFE_BITS != life and (life, on) != (1, 0):
                text = f"message {header.sequence} of node {seen.host.number} builds on {on}"
                raise broken(self, f"{text}, of an earlier life")
        for memory in seen.node.memories:
            for each in seen.contents:
                own = each.origin == seen.host.number and each.sequence == memory.base
                if own and memory.kept.tobytes() != each.params[: memory.kept.nbytes]:
                    raise broken(self, f"node {seen.host.number} remembers another message")

    @staticmethod
    def _compared(seen: Seen, header: Header) -> bytes:
        """Return what must not differ: with error feedback, what a receiver then holds."""
        if seen.world.plan.carries != "feedback":
            return header.data
        held = [each.params for each in seen.contents if each.sequence == header.sequence]
        return held[0] if held else b""


class OfMembers(Invariant):
    """5: whoever is no member has no part in what a node computes."""

    number = 5
    sentence = (
        "nothing of a revoked, expired or foreign sender is applied, nor weighs after the list "
        "was taken"
    )
    looks_at = (MembersChanged, Moved, Publish, Received)

    def __init__(self) -> None:
        self._took: dict[int, int] = {}  # messages
        self._members: dict[int, frozenset[int]] = {}
        self._last: dict[int, Any] = {}  # where messages are sums: numbers when the list was taken

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Wait for the first list of the new process."""
        del world, start
        self._members.pop(host.number, None)
        self._took[host.number] = 0

    def stepped(self, seen: Seen) -> None:
        """See that those who are not in the list have their first message again."""
        self._look_at_bringer(seen)
        if isinstance(seen.event, MembersChanged):
            self._members[seen.host.number] = seen.event.members
        members = self._members.get(seen.host.number)
        if members is None:
            return
        if seen.world.plan.carries == "sum":
            self._look_at_sums(seen, members)
            return
        if seen.world.plan.carries == "forward":
            self._look_at_letters(seen, members)
        box = seen.node.mailbox
        first = seen.world.setting.first_sender(seen.host.number)
        for row in np.flatnonzero(box.sequence):
            sender = first + int(row)
            if sender not in members:
                text = f"node {seen.host.number} holds message {box.sequence[row]} of {sender}"
                raise broken(self, f"{text}, which is no member")

    def _look_at_bringer(self, seen: Seen) -> None:
        """See that nobody brings a message under another's number."""
        core: Any = seen.host.core
        number, taken = seen.host.number, core.hands.counts["taken"]
        before, self._took[number] = self._took[number], taken
        if taken > before and isinstance(seen.event, Received):
            header = header_of(seen.event.peer, seen.event.data)
            if header.node != seen.event.peer and not seen.world.plan.in_slots:
                text = f"node {number} takes a message of {header.node} from {seen.event.peer}"
                raise broken(self, text)

    def _look_at_letters(self, seen: Seen, members: frozenset[int]) -> None:
        """See that copies are kept and passed on under their origins, members alone."""
        own = seen.host.number
        for origin, data in seen.node.letters.items():
            if header_of(-1, data).node != origin:
                raise broken(self, f"node {own} keeps a copy under {origin}, of another")
            if origin not in members and origin != own:
                raise broken(self, f"node {own} keeps a copy of {origin}, which is no member")
        for content in seen.contents:
            if content.origin not in members and content.origin != own:
                text = f"node {own} passes on a copy of {content.origin}, which is no member"
                raise broken(self, text)

    def _look_at_sums(self, seen: Seen, members: frozenset[int]) -> None:
        """See that no message of a stranger was taken, and that no copy of it is left.

        Its part of a sum cannot be told from the rest, and stays.
        """
        number, box = seen.host.number, seen.node.mailbox
        if isinstance(seen.event, MembersChanged):
            self._last[number] = box.last.copy()
        for sender in range(len(box.last)):
            if sender in members:
                self._last[number][sender] = box.last[sender]
            elif box.last[sender] != self._last[number][sender] or sender in box.copies:
                raise broken(self, f"node {number} takes what {sender} says, which is no member")


class WithinShare(Invariant):
    """8: a sender leaves the others their part of the medium.

    A broadcast is paid for at the rate that its sender said last. Neighbours are told of a rate
    that has changed by `NEWS_SHARE`, so it may be higher by so much. Nothing is asked after a
    broadcast whose receivers were not measured yet, and the last one of a process goes out at once.
    """

    number = 8
    sentence = "bits on the air stay within the sender's share plus one message"
    looks_at = (Publish,)

    def __init__(self) -> None:
        self._until_s: dict[int, float] = {}  # member -> its share is used up until then
        self._rate: dict[int, float] = {}  # member -> what it said last; 0: nothing was measured
        self._sent: dict[int, int] = {}
        self._steps: dict[int, int] = {}  # member -> gradients that were in its last broadcast

    def asks(self, world: "World") -> bool:
        """Shares are kept on measured links."""
        return world.plan.method in ("alone", "feedback")

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew: a new process knows of no share yet."""
        del world, start
        self._until_s.pop(host.number, None)
        self._rate.pop(host.number, None)
        self._steps.pop(host.number, None)

    def lost_folder(self, host: "Host") -> None:
        """Let a node that has lost its folder use numbers again."""
        self._sent.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """See that a broadcast begins when the one before is paid for at the rate that was said."""
        core: Any = seen.host.core
        number = seen.host.number
        fresh = {h.sequence: h for h in seen.published if h.sequence > self._sent.get(number, 0)}
        if not fresh:
            return
        self._sent[number] = max(fresh)
        said = [control.body for _, control in seen.told if isinstance(control.body, Period)]
        if said:
            self._rate[number] = said[-1].rate
        elif number not in self._rate:
            raise broken(self, f"node {number} sends and has not said at which rate")
        now_s, until_s = seen.host.clock.now_s(seen.world.now_s), self._until_s.pop(number, 0.0)
        if not core.is_learning:  # its last: whoever goes on has it
            return
        if self._steps.get(number, 0) == core.node.steps:
            raise broken(self, f"node {number} sends, and has learnt nothing since it last did")
        self._steps[number] = core.node.steps
        if now_s < until_s - 1e-6:
            text = f"node {number} sends {until_s - now_s:.4f} s before its share allows"
            raise broken(self, text)
        rate = self._rate[number] * (1.0 if said else 1.0 + NEWS_SHARE)
        if rate > 0:
            # alone on the medium a message takes this long; with others, longer
            bits = max(8 * len(header.data) for header in fresh.values())
            longest_s = seen.world.setting.settings.period_timeout_s
            self._until_s[number] = now_s + min(bits / rate, longest_s)


class Heard(Invariant):
    """10: an acknowledgement is true."""

    number = 10
    sentence = "an acknowledgement means applied, or newer held of this life"

    def __init__(self) -> None:
        self._taken: dict[tuple[int, int], int] = {}
        self._early: dict[tuple[int, int], set[int]] = {}  # whose came before a life had begun
        self._band = BandBooks()

    def stepped(self, seen: Seen) -> None:
        """Compare every acknowledgement with what is held after the step, and count them.

        On an emulated band it says that a message is there; when its transfer ends it is taken.
        """
        self._count(seen)
        on_a_band = seen.world.plan.method in ON_A_BAND
        if on_a_band and (wrong := self._band.look(seen)):
            raise broken(self, wrong)
        for peer, control in seen.told:
            if not isinstance(control.body, Ack):
                continue
            said, first = control.body.sequence, seen.world.setting.first_sender(seen.host.number)
            if on_a_band and self._band.knows(seen, peer, said):
                continue
            held = heard_number(seen.node, peer, first)
            counts_on = seen.world.setting.counts_on or said == seen.node.mailbox.held_of(peer)
            if said > held or (not counts_on and said >> LIFE_BITS != held >> LIFE_BITS):
                text = f"node {seen.host.number} acknowledges {said} of {peer}, holds {held}"
                raise broken(self, text)

    def _count(self, seen: Seen) -> None:
        """See that whatever is taken is acknowledged at once, or when its round or life begins."""
        core: Any = seen.host.core
        key, taken = (seen.host.number, seen.host.process), core.hands.counts["taken"]
        before, self._taken[key] = self._taken.get(key, 0), taken
        waits = getattr(seen.node, "holds_back", False)
        if isinstance(seen.event, Unlinked):  # its sender waits for nothing any more
            self._early.get(key, set()).discard(seen.event.peer)
        if core.hands.voice is None:  # before a life has begun nothing is said
            if taken > before and isinstance(seen.event, Received) and not waits:
                self._early.setdefault(key, set()).add(seen.event.peer)
            return
        acked = [peer for peer, control in seen.told if isinstance(control.body, Ack)]
        late = {peer for peer in self._early.pop(key, ()) if peer in core.there()}
        if (taken - before > len(acked) and not waits) or not late.issubset(acked):
            raise broken(self, f"node {key[0]} took a message and did not acknowledge it")


class Counted(Invariant):
    """16: nothing vanishes without a trace."""

    number = 16
    sentence = "every message ends in exactly one count"
    looks_at = (Received,)

    def __init__(self) -> None:
        self._received: dict[int, int] = defaultdict(int)

    def asks(self, world: "World") -> bool:
        """On an emulated air messages wait, and the newest overtakes the others there."""
        return not world.plan.in_slots

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Count from the beginning of a process."""
        del world, start
        self._received[host.number] = 0

    def stepped(self, seen: Seen) -> None:
        """Compare what came with what was taken and refused."""
        self._received[seen.host.number] += 1
        core: Any = seen.host.core
        refused = seen.node.mailbox.refused
        ends = core.hands.counts["taken"] + sum(
            count
            for reason, count in refused.items()
            if not reason.startswith(("control_", "link_"))
        )
        if ends != self._received[seen.host.number]:
            text = f"node {seen.host.number} was given {self._received[seen.host.number]} messages"
            raise broken(self, f"{text} and counts {ends}")
