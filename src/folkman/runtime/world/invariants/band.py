"""Sums and copies that are passed on: invariant 32, and invariant 10 on an emulated band.

What is acknowledged as it comes over a band is taken as its transfer ends.
The books know from the band itself when each transfer ends. A message that came before that must be
taken or refused before the next slot is lived, since its sender was told that it is there.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from folkman.packing.packing import step_of
from folkman.runtime.codec import HEADER_BYTES, VERSION, version_of
from folkman.runtime.control import LIFE_BITS
from folkman.runtime.core.events import Note, Publish, Received, Start
from folkman.runtime.core.slots import MOST_MISSED
from folkman.runtime.fresh_air import MOST_WAITING
from folkman.runtime.fresh_codec import slots_of, stamps_in
from folkman.runtime.journal import WAKE
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.contents import Header, header_of, heard_number

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["AsItIs", "BandBooks"]

ROUNDING = 1e-5
"""Of the largest number, for what single precision leaves out."""
MOST_LATE = 3
"""Slots by which a message is late that is taken when it comes; of those before, few are kept."""


class _Waiting:
    """What waits on the emulated air of one process."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], tuple[int, int]] = {}
        """(sender, transfer) -> number of its message, and the slot in which the transfer ends."""
        self.acknowledged: defaultdict[int, set[int]] = defaultdict(set)  # sender -> as they came
        self.slot = 0  # before the step: no later transfer had ended
        self.missed = 0  # that were due, and were not taken
        self.came: set[tuple[int, int]] = set()  # (sender, transfer)
        self.lived: set[int] = set()  # slots
        self.refused = 0  # messages, before the step


class BandBooks:
    """What has come over the band to each process, and has not been taken yet."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], _Waiting] = {}

    def look(self, seen: Seen) -> str:
        """Note what came in a step; return what is wrong with what was due, or nothing."""
        books = self._books(seen.host)
        text = self._note(seen, books) if isinstance(seen.event, Received) else ""
        for note in seen.of(Note):
            if note.kind == WAKE:
                text = text or self._due(seen, books, note.slot)
                books.lived.add(note.slot)
        books.slot, books.refused = seen.node.slot, _refused(seen)
        return text

    def knows(self, seen: Seen, peer: int, number: int) -> bool:
        """Tell whether a message was acknowledged as it came, in this step or before."""
        return number in self._books(seen.host).acknowledged[peer]

    def _books(self, host: "Host") -> _Waiting:
        return self._of.setdefault((host.number, host.process), _Waiting())

    @staticmethod
    def _note(seen: Seen, books: _Waiting) -> str:
        """Note what came over the band; it is not taken before its transfer ends."""
        peer, data = seen.event.peer, seen.event.data  # type: ignore[union-attr]
        if len(data) < HEADER_BYTES or version_of(data) == VERSION:
            return ""
        header, network = header_of(peer, data), seen.world.setting.network
        books.acknowledged[peer].add(header.sequence)
        ends = network.end_of(peer, header.round, seen.host.number)
        if ends is not None and ends >= books.slot:
            books.numbers[peer, header.round] = header.sequence, ends
        of_peer = [key for key in books.numbers if key[0] == peer]
        if len(of_peer) > MOST_WAITING:
            del books.numbers[min(of_peer)]
        first = seen.world.setting.first_sender(seen.host.number)
        is_new = (peer, header.round) not in books.came
        books.came.add((peer, header.round))
        if is_new and ends is not None and _was_given_up(books, ends):
            held = heard_number(seen.node, peer, first)
            if held < header.sequence and _refused(seen) == books.refused:
                text = f"node {seen.host.number} went on without transfer {header.round} of {peer}"
                return f"{text}, and does not take {header.sequence} now that it has come"
        taken = heard_number(seen.node, peer, first) == header.sequence
        if taken and ends is not None and ends > seen.node.slot:
            text = f"node {seen.host.number} takes {header.sequence} of {peer} in slot"
            return f"{text} {seen.node.slot}, and its transfer ends in slot {ends}"
        return ""

    @staticmethod
    def _due(seen: Seen, books: _Waiting, slot: int) -> str:
        """See that all was taken or refused whose transfers had ended before a slot was lived."""
        over = [key for key, (_, ends) in books.numbers.items() if ends < slot]
        first = seen.world.setting.first_sender(seen.host.number)
        for peer, transfer in over:
            number, ends = books.numbers.pop((peer, transfer))
            if ends < slot - MOST_MISSED or heard_number(seen.node, peer, first) >= number:
                continue
            books.missed += 1
            if books.missed > _refused(seen):
                return (
                    f"node {seen.host.number} acknowledged {number} of {peer} as it came, and did "
                    f"not take it when transfer {transfer} ended in slot {ends}"
                )
        return ""


def _was_given_up(books: _Waiting, ends: int) -> bool:
    """Tell whether a process lived the slot in which a transfer ends and a later one, not long ago.

    Then it has waited for the message, and has gone on without it.
    """
    later = max(books.lived, default=0)
    return ends in books.lived and ends < later <= ends + MOST_LATE


def _refused(seen: Seen) -> int:
    """Return how many parameter messages a process has refused."""
    return sum(
        count
        for reason, count in seen.node.mailbox.refused.items()
        if not reason.startswith(("control_", "link_"))
    )


class AsItIs(Invariant):
    """32: an own part of a sum, and an own copy, is not older than it must be."""

    number = 32
    sentence = "what a node sends of its own, in sums and copies to be passed on, is as it is then"
    looks_at = (Publish, Start, Note)

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}  # member -> its number and slot, a step ago

    def asks(self, world: "World") -> bool:
        """Ask where messages are sums, or copies that are passed on."""
        return world.plan.carries in ("sum", "forward")

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del world, start
        self._before.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """Look at what is sent under a new number."""
        own, node = seen.host.number, seen.node
        self._look_at_own_share(seen)
        number, slot = self._before.get(own, (node.sequence, node.slot))
        self._before[own] = node.sequence, node.slot
        for header, formed in self._own_parts(seen):
            if header.sequence <= number:  # said before
                continue
            may = {slot, node.slot}
            if seen.world.plan.in_slots:
                begins = seen.world.setting.network.start_of(own, header.round)
                may = {begins} if begins == node.slot else {formed}  # else it is late
            if formed not in may:
                text = f"node {own} in slot {node.slot} sends its parameters of slot {formed}"
                raise broken(self, text)

    def _look_at_own_share(self, seen: Seen) -> None:
        """See that the own part of a sum is the own share, and that copies have their stamps."""
        own, node, box = seen.host.number, seen.node, seen.node.mailbox
        if seen.world.plan.carries == "forward":
            headers = {origin: header_of(-1, data) for origin, data in node.letters.items()}
            for origin, header in headers.items():
                stamp = (header.sequence >> LIFE_BITS << LIFE_BITS) + header.slot
                if node.stamps()[origin] != stamp:
                    raise broken(self, f"node {own} takes its copy of {origin} for another")
            return
        part = box.past.get((node.sequence >> LIFE_BITS << LIFE_BITS) + node.slot)
        if part is None:
            return
        shares, bits = seen.world.setting.shares, box.parts.bits
        unit = step_of(box.parts.packing) / len(shares) if bits else 1.0
        params = np.asarray(node.params(), np.float64)
        most = unit if bits else ROUNDING * max(1.0, np.abs(params).max())
        if np.abs(part * unit - shares[own] * params).max() > most:
            raise broken(self, f"the part of node {own} in its sum is not its share")

    @staticmethod
    def _own_parts(seen: Seen) -> list[tuple[Header, int]]:
        """Return the messages with own parts, and the slots after which these were formed."""
        own, nodes = seen.host.number, len(seen.node.mailbox.sequence)
        if seen.world.plan.carries == "sum":
            sums = [each for each in seen.published if version_of(each.data) != VERSION]
            return [(each, int(slots_of(stamps_in(each.data, nodes))[own])) for each in sums]
        both = zip(seen.published, seen.contents, strict=True)
        return [(header, content.slot) for header, content in both if content.origin == own]
