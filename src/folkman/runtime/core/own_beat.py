"""Algorithm 1 on measured links: learn on one's own beat, and send by line 10.

A broadcast starts when there is something new, the last period is over, and the node's share of the
medium is free.
"""

import math
from typing import TYPE_CHECKING

from folkman.runtime.control import Period
from folkman.runtime.core.pace import Pace
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Beat", "OwnBeat"]

REST_S = 1e-3
"""After a slot without a gradient, where no time is set for slots."""
NEWS_SHARE, NEWS_S = 0.1, 4.0
"""Neighbours are told of R_i when it has changed by this share, and after this time anyway."""
TRY_S = 0.05
"""Until links are looked at again that are all below the threshold."""


class Beat:
    """One slot after the other, no sooner than its time."""

    def __init__(self) -> None:
        self._due_s = -math.inf

    def act(self, core: "Core", now_s: float) -> None:
        """Begin the next slot, if the last is over and its time has come."""
        if core.is_in_slot:
            return
        # Before the rest, not after it: a kill costs what is unsaved.
        core.saving.now_and_then(now_s)
        if now_s >= self._due_s:
            self.begin(core, now_s)

    def begin(self, core: "Core", now_s: float) -> None:
        """Begin a slot now."""
        self._due_s = now_s + core.settings.slot_s
        core.begin_slot(now_s)
        if not core.is_in_slot:  # it rests
            self._due_s = max(self._due_s, now_s + REST_S)

    def next_s(self, core: "Core") -> float:
        """Return when the next slot may begin."""
        return math.inf if core.is_in_slot else self._due_s


class OwnBeat(Pace):
    """See the module."""

    greet_every = 4  # nobody goes by the others' clocks or counts

    def __init__(self) -> None:
        self._told: tuple[float, float] = (math.nan, -math.inf)  # R_i as last told, and when
        self._beat = Beat()
        self._sent_after = -1  # slot after which the last message was formed
        self._due_s = -math.inf  # of the next broadcast, by the share of the medium

    def act(self, core: "Core", now_s: float) -> None:
        """Send if it is time, then begin a slot."""
        self._send(core, now_s)
        if core.goes_on():
            self._beat.act(core, now_s)
        elif not core.is_in_slot:
            core.sending.broadcast(self._there(core), now_s)  # whoever goes on has the last of it
            core.finish()

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when a slot, a broadcast or the end of somebody's time is due."""
        sends_s = core.sending.owed.next_s()
        if self._has_news(core) and not core.sending.owed.waiting(core.there()):
            sends_s = min(sends_s, max(self._due_s, now_s) if self._there(core) else math.inf)
        return min(self._beat.next_s(core) if core.goes_on() else math.inf, sends_s)

    @staticmethod
    def _there(core: "Core") -> list[int]:
        node = core.node
        assert isinstance(node, Node)  # noqa: S101 - a server has a pace of its own
        there = core.there()
        return [peer for peer in node.receivers() if peer in there]

    def _has_news(self, core: "Core") -> bool:
        node = core.node
        assert isinstance(node, Node)  # noqa: S101 - a server has a pace of its own
        return node.slot != self._sent_after and node.may_send and node.offers()

    def _send(self, core: "Core", now_s: float) -> None:
        sending = core.sending
        sending.give_up(now_s)
        if not self._has_news(core) or now_s < self._due_s or sending.owed.waiting(core.there()):
            return
        there = self._there(core)
        receivers = sending.links.receivers(there) if there else []  # Y_i
        if not receivers:
            self._due_s = now_s + TRY_S
            return
        self._sent_after = core.node.slot
        self._tell_rate(core, sending.period(receivers), now_s)
        bits = sending.broadcast(receivers, now_s)
        pause_s = sending.links.period_s(receivers, bits) if core.settings.shared_medium else 0.0
        self._due_s = now_s + min(pause_s, core.settings.period_timeout_s)

    def _tell_rate(self, core: "Core", period: Period, now_s: float) -> None:
        rate, told_s = self._told
        if abs(period.rate - rate) <= NEWS_SHARE * rate and now_s - told_s < NEWS_S:
            return
        self._told = period.rate, now_s
        core.hands.tell_all(core.node.neighbours, period)
