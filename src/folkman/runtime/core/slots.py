"""Learning in the slots of an emulated channel: one gradient a slot, and messages when due."""

import math
from typing import TYPE_CHECKING

from folkman.runtime.codec import HEADER_BYTES, round_of
from folkman.runtime.core.pace import Pace
from folkman.runtime.emulation import Emulation
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["GRACE", "MOST_MISSED", "EmulatedSlots"]

MOST_MISSED = 64
"""Slots that a node looks back at when it was asleep or slow: older broadcasts have been overtaken
anyway."""
GRACE = 0.3
"""Part of a slot that a node waits for messages which the emulated channel has already
delivered."""


class EmulatedSlots(Pace):
    """See the module."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self._slot = 0  # the next to live, at the earliest
        self._lived: int | None = None  # a slot whose gradient is under way
        self._wants_s = -math.inf  # when there is something to do

    def begin(self, core: "Core", now_s: float) -> None:
        """Go on where the node is."""
        self._slot, self._wants_s = core.node.slot, now_s

    def sort(self, core: "Core", peer: int, data: bytes, now_s: float) -> None:
        """Put a message on the emulated air."""
        if len(data) < HEADER_BYTES:
            core.hearing.take(peer, data, now_s)
        else:
            self.emulation.receive(peer, round_of(data), data)

    def act(self, core: "Core", now_s: float) -> None:
        """Send what the slot that is over sends, and begin the next."""
        if core.is_in_slot:
            self._wants_s = math.inf
            return
        if self._lived is not None:
            self._send(core, self._lived, now_s)
            self._slot, self._lived = self._lived + 1, None
        core.saving.now_and_then(now_s)  # the disk may have been busy as the slot ended
        if not core.goes_on():
            core.finish()
            return
        slot = max(core.clock.slot(now_s), self._slot)
        if not self.emulation.rolled_to(slot):  # far behind: some stretches now, others later
            self._wants_s = now_s
        elif self._is_due(core, slot, now_s):
            self._begin(core, slot, now_s)

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when a slot begins, or what it waits for is given up."""
        del now_s
        return math.inf if core.is_in_slot else self._wants_s

    def _is_due(self, core: "Core", slot: int, now_s: float) -> bool:
        """Tell whether a slot has begun and what it hears is there, or is waited for no longer."""
        begins_s = core.clock.begins_s(slot)
        late_s = begins_s + GRACE * core.settings.slot_s
        self._wants_s = begins_s if now_s < begins_s else late_s
        there = frozenset(core.there())
        return now_s >= late_s or (now_s >= begins_s and not self.emulation.missing(slot, there))

    def _begin(self, core: "Core", slot: int, now_s: float) -> None:
        for peer, data in self.emulation.due(slot):
            core.hearing.take(peer, data, now_s)
        core.node.slot = slot
        self._lived, self._wants_s = slot, now_s
        core.begin_slot(now_s)

    def _send(self, core: "Core", slot: int, now_s: float) -> None:
        """Send what a slot sends, and of slots that were missed what they would have sent."""
        node, end = core.node, max(core.clock.slot(now_s), slot + 1)
        assert isinstance(node, Node)  # noqa: S101 - a server has a pace of its own
        if not self.emulation.rolled_to(end):
            return
        for past in range(max(slot, end - MOST_MISSED), end):
            plan = self.emulation.plan(past)
            if plan.sends and node.offers():
                core.sending.broadcast(plan.receivers, now_s, past + 1)
