"""Fresh air in the slots of an emulated band: a node does its part of the transfers in their order.

In slot s a gradient is taken with what ended by slot s-1. A transfer that starts in slot s has the
parameters before that gradient.
"""

import math
from typing import TYPE_CHECKING

from folkman.runtime import control
from folkman.runtime.codec import HEADER_BYTES, VERSION, round_of, sequence_of, version_of
from folkman.runtime.core.fresh import FreshPace, freeze, fresh_node
from folkman.runtime.core.slots import GRACE, MOST_MISSED
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.fresh_node import ForwardNode

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["FreshSlots"]


class FreshSlots(FreshPace):
    """See the module."""

    def __init__(self, air: FreshAir) -> None:
        super().__init__()
        self.air = air
        self._slot = 0  # the next to live, at the earliest
        self._begun = False
        self._wants_s = -math.inf

    def warm(self) -> None:
        """Compile what rolls the band out."""
        self.air.warm()

    def begin(self, core: "Core", now_s: float) -> None:
        """Go on where the node is: it has done its part of what was before."""
        self._slot, self._wants_s = core.node.slot, now_s
        self.air.skip(self._slot)

    def sort(self, core: "Core", peer: int, data: bytes, now_s: float) -> None:
        """Keep a message until its transfer ends, and acknowledge it.

        A copy that was asked for is on no band, and what was given up is taken when it comes.
        """
        if (
            len(data) < HEADER_BYTES
            or version_of(data) == VERSION
            or self.air.receive(peer, round_of(data), data)
        ):
            core.hearing.take(peer, data, now_s)
        else:
            core.hands.tell(peer, control.Ack(sequence_of(data)))

    def act(self, core: "Core", now_s: float) -> None:
        """Do what is due on the band, and begin the next slot."""
        if core.is_in_slot:
            self._wants_s = math.inf
            return
        if self._begun:
            self._slot, self._begun = self._slot + 1, False
        core.saving.now_and_then(now_s)  # the disk may have been busy as the slot ended
        if not core.goes_on():
            core.finish()
            return
        self._slot = slot = max(core.clock.slot(now_s), self._slot)
        if not self.air.rolled_to(slot, slot - MOST_MISSED):  # far behind: others later
            self._wants_s = now_s
            return
        core.node.slot = slot  # before it sends what is late: no stamp is ahead of its carrier
        if self._is_settled(core, slot, now_s):
            if self.air.starts_own(slot):
                freeze(core)
            self._work(core, slot, now_s, ends=False)
            self._begun, self._wants_s = True, now_s
            core.begin_slot(now_s)

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when a slot begins, or what it waits for is given up."""
        del now_s
        return math.inf if core.is_in_slot else self._wants_s

    def _is_settled(self, core: "Core", slot: int, now_s: float) -> bool:
        """Do what should have ended before a slot; give up what is late, or of who is gone."""
        begins_s = core.clock.begins_s(slot)
        late_s = begins_s + GRACE * core.settings.slot_s
        self._wants_s = begins_s if now_s < begins_s else late_s
        over = self._work(core, slot - 1, now_s)
        while not over and now_s >= begins_s:
            event = self.air.next(slot - 1)
            assert event is not None  # noqa: S101 - something is left
            if now_s < late_s and event.sender in core.there():
                return False
            self.air.give_up()
            core.hands.counts["given_up"] += 1
            over = self._work(core, slot - 1, now_s)
        return now_s >= begins_s

    def _work(self, core: "Core", slot: int, now_s: float, *, ends: bool = True) -> bool:
        """Do what is due by the end of a slot, as far as possible; tell whether nothing is left.

        Without `ends` no message is taken.
        """
        while (event := self.air.next(slot)) is not None:
            if not event.ends:
                self._start(core, event.number, event.origin, event.receivers, now_s)
            elif not ends:
                return False
            else:
                data = self.air.fetch(event.sender, event.number)
                if data is None:
                    return False
                core.hearing.take(event.sender, data, now_s)
            self.air.done()
        return True

    @staticmethod
    def _start(
        core: "Core", number: int, origin: int, receivers: tuple[int, ...], now_s: float
    ) -> None:
        """Send what a planned transfer would carry, as the node has it."""
        node = fresh_node(core)
        if isinstance(node, ForwardNode) and origin not in node.letters:
            core.hands.counts["not_held"] += 1  # it was late, or lost
            return
        data, sequence = node.carry(number, origin)
        for peer in receivers:
            core.sending.push(peer, sequence, data, now_s)
        core.hands.counts["sent"] += 1
