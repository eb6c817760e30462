"""Every decision of a node, in one owner without clock, lock or I/O.

    core.step(now_s, event) -> [effect, ...]        core.next_s() -> when it wants a Tick

A core goes through these phases:

    start      the disk was read; the number of this life is noted, then the node speaks
    wait       for the neighbours, at most `start_wait_s`
    learn      its pace (`folkman.runtime.core.pace`) lives slots and sends
    finish     the result is written; the node stays until its neighbours are done too
    stop       a last save, and `Finish`
"""

import math
from enum import Enum
from typing import TYPE_CHECKING

from folkman.record import run as record
from folkman.record.cluster import DONE, LEARNING, STARTING
from folkman.runtime import control, journal
from folkman.runtime.codec import Verify
from folkman.runtime.control import SlotClock
from folkman.runtime.core import events
from folkman.runtime.core.events import Effect, Event
from folkman.runtime.core.hands import Hands
from folkman.runtime.core.health import Watch, facts
from folkman.runtime.core.hearing import Hearing
from folkman.runtime.core.life import Life
from folkman.runtime.core.pace import Pace
from folkman.runtime.core.saving import Saving
from folkman.runtime.core.sending import Sending
from folkman.runtime.core.settings import DISK, DIVERGED, FAULT, Settings
from folkman.runtime.identity import name_of
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.server_node import ServerNode

__all__ = ["Core"]

TELL_QUALITY = 16
"""Times that a node looks around until it tells its neighbours again what it measured."""
GREET_OFTEN = 8
"""Times that a node looks around, after a link came up, with a hello at each."""
SHORT_WAIT_S = 2.0
"""For the neighbours, where a node begins again: they are there, or it goes on without."""
GIVE_UP_S = 5.0
"""For a gradient or a save that is under way when the node is asked to stop."""


class Phase(Enum):
    """Where a core is."""

    START = 0
    WAIT = 1
    LEARN = 2
    WRITE = 3  # the result
    LINGER = 4
    STOP = 5
    OVER = 6


class Core:
    """One node's decisions. `verify` looks at signatures of control messages; None: insecure."""

    def __init__(
        self,
        node: "Node | ServerNode",
        settings: Settings,
        pace: Pace,
        *,
        verify: Verify | None = None,
    ) -> None:
        self.node, self.settings, self.pace, self.verify = node, settings, pace, verify
        self.linked: dict[int, None] = {}  # in the order in which they came
        self.hands = Hands(node.neighbours, self.linked)
        self.sending = Sending(node, settings, self.hands, pace.room)
        self.hearing = Hearing(self)
        self.saving = Saving(node, self.hands, settings.save_every_s)
        self.life = Life(self)
        self.clock = SlotClock(settings.slot_s or 1.0)
        self.watch = Watch(settings)
        self.phase = Phase.START
        self.state = STARTING
        self.code = 0
        self.began_s = 0.0
        self.members: frozenset[int] | None = None  # None: nobody asks
        self._there: dict[int, None] | None = None  # None: to be formed anew
        self._computing: int | None = None  # the ticket
        self._computes = 0
        self._ticket: int | None = None  # of the save that a phase waits for
        self._until_s = math.inf  # of the phase
        self._keep_s = math.inf  # when to look around
        self._kept = 0
        self._linked_at = 0  # value of `_kept` when a link last came up
        self._now_s = 0.0  # of the last step

    # -- the seam ----------------------------------------------------------------------------------

    def step(self, now_s: float, event: Event) -> list[Effect]:
        """Take notice of what happened; return what is to be done, in order."""
        if self.phase is Phase.OVER:
            return []
        getattr(self, _HANDLERS[type(event)])(event, now_s)
        self._act(now_s)
        return self.hands.taken()

    def next_s(self) -> float:
        """Return when a `Tick` is wanted, at the latest."""
        if self.phase is Phase.OVER:
            return math.inf
        own_s = min(self._until_s, self._keep_s, self.life.next_s(), self.pace.deliver_s())
        if self.phase is Phase.LEARN:
            return min(own_s, self.pace.next_s(self, self._now_s))
        return own_s

    def _act(self, now_s: float) -> None:
        self._now_s = now_s
        if self.phase is Phase.OVER:  # nothing is begun behind the end
            return
        self.life.act(now_s)
        self.pace.deliver(self, now_s)
        if self.phase is Phase.WAIT and (self.everyone_linked() or now_s >= self._until_s):
            self._learn(now_s)
        if self.phase is Phase.LEARN:
            self.pace.act(self, now_s)
        if self.phase is Phase.WRITE:
            self._write()
        if self.phase is Phase.LINGER:
            self._linger(now_s)
        if self.phase is Phase.STOP:
            self._stop(now_s)
        elif now_s >= self._keep_s:
            self._keep(now_s)

    # -- what a pace asks --------------------------------------------------------------------------

    @property
    def in_rounds(self) -> bool:
        """Tell whether messages must not be lost: in lock-step and around a server."""
        return self.node.way.loses_nothing

    @property
    def is_learning(self) -> bool:
        """Tell whether slots are lived."""
        return self.phase is Phase.LEARN

    @property
    def is_in_slot(self) -> bool:
        """Tell whether a gradient is under way."""
        return self._computing is not None

    def there(self) -> dict[int, None]:
        """Return the neighbours that can be reached, members alone."""
        excluded = self.node.excluded
        if self.members is None and not excluded:
            return self.linked
        if self._there is None:
            members = self.linked if self.members is None else self.members
            self._there = {
                peer: None for peer in self.linked if peer in members and peer not in excluded
            }
        return self._there

    def everyone_linked(self) -> bool:
        """Tell whether all neighbours can be reached that take part."""
        there = self.there()
        return all(peer in there for peer in self._counting())

    def _counting(self) -> list[int]:
        """Return the neighbours that take part: nobody waits for one who is no member any more.

        If that is nobody, our own list or time of day is to blame, and all are waited for.
        """
        near, excluded = self.node.neighbours, self.node.excluded
        members = near if self.members is None else self.members
        return [peer for peer in near if peer in members and peer not in excluded] or list(near)

    def everyone_done(self) -> bool:
        """Tell whether all neighbours that take part say that they are done."""
        return self.hearing.done.issuperset(self._counting())

    def goes_on(self) -> bool:
        """Tell whether there are gradients left to take."""
        most = self.settings.steps
        return most is None or self.node.steps < most

    def begin_slot(self, now_s: float) -> None:
        """Begin a slot; it ends now if no gradient is wanted, else when that is there."""
        node = self.node
        assert isinstance(node, Node)  # noqa: S101 - a server has no slots
        point = node.begin_slot()
        if point is None:
            self._slot_ended(now_s, computed=False)
            return
        self._computes += 1
        self._computing = self._computes
        self.hands.do(events.Compute(self._computes, point, node.steps))

    def _slot_ended(self, now_s: float, *, computed: bool) -> None:
        node = self.node
        self.watch.slot_ended(now_s)
        self.hands.note(journal.WAKE, node.slot - 1, node.used.tolist(), computed=computed)

    def finish(self) -> None:
        """Write the result, and stay for those who still need us."""
        self.phase, self._ticket = Phase.WRITE, None
        self._write()

    def stop(self, why: str, code: int = 0) -> None:
        """End: save if there is something to save, and finish."""
        if self.phase in (Phase.STOP, Phase.OVER):
            return
        self.code = self.code or code
        self.hands.log("stopping", why=why, code=code)
        self.phase, self._ticket = Phase.STOP, None
        self._until_s = self._keep_s = math.inf

    # -- events ------------------------------------------------------------------------------------

    def _on_start(self, event: events.Start, now_s: float) -> None:
        self.began_s = now_s
        self.life.start(event)
        self.saving.steps = self.node.steps

    def _on_tick(self, event: events.Tick, now_s: float) -> None:
        """Do nothing but what is due."""
        del event, now_s

    def _on_linked(self, event: events.Linked, now_s: float) -> None:
        peer = event.peer
        if peer not in self.node.neighbours:
            return
        self.linked.setdefault(peer)
        self._linked_at, self._there = self._kept, None
        self.hands.log("link", peer=name_of(peer), up=True)
        self.hands.tell(peer, self._hello(now_s))
        self.hands.answer(peer)
        self.sending.linked(peer, now_s)

    def _on_unlinked(self, event: events.Unlinked, now_s: float) -> None:
        del now_s
        peer = event.peer
        if peer not in self.linked:
            return
        del self.linked[peer]
        self._there = None
        self.hands.log("link", peer=name_of(peer), up=False)
        self.hands.owe_no_answer(peer)
        self.sending.unlinked(peer)
        self.clock.forget(peer)
        self.pace.unlinked(peer)

    def _on_received(self, event: events.Received, now_s: float) -> None:
        self.pace.sort(self, event.peer, event.data, now_s)

    def _on_told(self, event: events.Told, now_s: float) -> None:
        self.hearing.heed(event.peer, event.data, now_s)

    def _on_computed(self, event: events.Computed, now_s: float) -> None:
        if event.ticket != self._computing:
            return
        self._computing = None
        node = self.node
        assert isinstance(node, Node)  # noqa: S101 - a server takes no gradient
        node.end_slot(event.loss, event.grad)
        self._slot_ended(now_s, computed=True)
        if not math.isfinite(node.loss):
            self.stop("the loss is no longer finite; try a smaller step", DIVERGED)

    def _on_compute_failed(self, event: events.ComputeFailed, now_s: float) -> None:
        del now_s
        if event.ticket == self._computing:
            self._computing = None
            self.hands.log("fault", level="error", text=event.text)
            self.stop("the gradient could not be computed", FAULT)

    def _on_saved(self, event: events.Saved, now_s: float) -> None:
        self.saving.saved(event.ticket)
        if self.life.saved(event.ticket):
            if self.phase is Phase.START:  # else it was asked to stop meanwhile
                self._begin(now_s)
        elif event.ticket == self._ticket:
            self._written(now_s)

    def _on_save_failed(self, event: events.SaveFailed, now_s: float) -> None:
        self.saving.failed(event.ticket, event.text, now_s)
        self.life.failed(event.ticket)
        if event.ticket == self._ticket:
            self.code = self.code or (DISK if self.phase is Phase.WRITE else 0)
            self._written(now_s)

    def _on_members(self, event: events.MembersChanged, now_s: float) -> None:
        del now_s
        if event.text:
            self.hands.log("members", level="warning", reason="list", text=event.text)
        if event.members == self.members:
            return
        if self.members is not None:
            self.hands.log("members", allowed=[name_of(j) for j in sorted(event.members)])
        self.members, self._there = event.members, None
        for peer in self.node.neighbours:
            if peer not in event.members:
                self._forget(peer, "it is no longer a member")

    def exclude(self, origin: int, text: str) -> None:
        """Take no part any more with one that said two things under one number; proof is kept."""
        self.hands.counts["excluded"] += 1
        self._there = None
        self.hands.log("excluded", level="error", peer=name_of(origin), text=text)
        self._forget(origin, text)

    def _forget(self, peer: int, why: str) -> None:
        """Let go of what a node left here that takes no part any more."""
        if peer in self.linked:
            self.hands.do(events.Drop(peer, why))
        self.hands.owe_no_answer(peer)
        self.sending.unlinked(peer)
        self.clock.forget(peer)
        self.pace.unlinked(peer)
        if self.node.forget(peer):
            self.hands.counts["forgotten"] += 1
            self.hands.note(journal.FORGOT, self.node.slot, [peer])
            self.hands.log("forgotten", peer=name_of(peer), text=why)

    def _on_refused(self, event: events.Refused, now_s: float) -> None:
        del now_s
        self.node.mailbox.refused[f"link_{event.reason}"] += 1
        self.watch.refused(event.reason, event.text)
        self.hands.log("refused", level="warning", reason=event.reason, text=event.text)

    def _on_asked(self, event: events.Asked, now_s: float) -> None:
        del now_s
        self.stop(event.why)

    # -- phases ------------------------------------------------------------------------------------

    def _begin(self, now_s: float) -> None:
        """Speak, as the life's number is on disk, and wait for the neighbours."""
        first = self.life.number == 1
        patience_s = self.settings.start_wait_s
        self._until_s = now_s + (patience_s if first else min(patience_s, SHORT_WAIT_S))
        self._keep_s = now_s + self.settings.keep_every_s
        self.saving.begin(now_s)
        self.phase = Phase.WAIT
        self.hands.log(
            "start",
            incarnation=self.life.number,
            steps=self.node.steps,
            slot=self.node.slot,
            resumed=self.life.resumed,
        )
        self.hands.tell_all(self.linked, self._hello(now_s))

    def _learn(self, now_s: float) -> None:
        self.phase, self.state, self._until_s = Phase.LEARN, LEARNING, math.inf
        self.clock.restart(now_s, self.node.slot)
        self.watch.begin(now_s)
        self.hands.tell_all(self.node.neighbours, self._hello(now_s))
        self.hands.log(self.state, linked=sorted(name_of(j) for j in self.there()))
        self.pace.begin(self, now_s)

    def _write(self) -> None:
        if self._ticket is None and self.saving.is_idle:
            final = {"params": self.node.params(), "model": self.node.model()}
            self._ticket = self.saving.start(with_state=True, final=final)

    def _written(self, now_s: float) -> None:
        """Go on to what comes after the disk's answer."""
        self._ticket = None
        if self.phase is Phase.STOP:
            self._end(now_s)
            return
        self.phase, self.state = Phase.LINGER, DONE
        self._until_s = now_s + self.settings.linger_s
        self.hands.log(self.state, steps=self.node.steps, slot=self.node.slot)
        self.hands.tell_all(self.node.neighbours, control.Done(self.node.steps))

    def _linger(self, now_s: float) -> None:
        """Stay until the neighbours are done, and a little longer: our last word is on its way.

        If nobody is there to hear it, no longer.
        """
        last_words_s = 2 * self.settings.keep_every_s if self.there() else 0.0
        if self.everyone_done():
            self._until_s = min(self._until_s, now_s + last_words_s)
        if now_s >= self._until_s:
            self.stop(DONE)

    def _stop(self, now_s: float) -> None:
        if self._until_s == math.inf:
            self._until_s = now_s + GIVE_UP_S
        if now_s >= self._until_s:
            self._end(now_s)
        elif not self.is_in_slot and self.saving.is_idle and self._ticket is None:
            settled = self.state == DONE or not self.in_rounds  # else the last save is the one
            if self.code == 0 and settled and self.life.number:
                self._ticket = self.saving.start(with_state=True)
            if self._ticket is None:
                self._end(now_s)

    def _end(self, now_s: float) -> None:
        ended = {FAULT: record.FAILED, DIVERGED: record.DIVERGED}.get(self.code, record.STOPPED)
        self.state = DONE if self.state == DONE else ended
        self._say_health(now_s)
        saved = self.saving.steps
        self.hands.log("end", code=self.code, steps=self.node.steps, saved_steps=saved)
        self.hands.do(events.Finish(self.code))
        self.phase = Phase.OVER

    # -- keeping -----------------------------------------------------------------------------------

    def _hello(self, now_s: float) -> control.Hello:
        clock_s = self.clock.elapsed_s(now_s) if self.is_learning else 0.0
        return control.Hello(max(clock_s, 0.0), self.node.steps, self.life.number)

    def _keep(self, now_s: float) -> None:
        """Look around: say hello, say what was measured, send again, and tell how it stands."""
        self._keep_s = now_s + self.settings.keep_every_s
        near = self.node.neighbours
        new = self._kept - self._linked_at < GREET_OFTEN
        if new or self._kept % self.pace.greet_every == 0:
            self.hands.tell_all(near, self._hello(now_s))
        links = self.sending.links
        if links.goodput_bit_s and self._kept % TELL_QUALITY == 0:
            self.hands.tell_all(near, control.Quality(links.table()))
        self._kept += 1
        if self.state == DONE:
            self.hands.tell_all(near, control.Done(self.node.steps))
        self.sending.retry(now_s, self.settings.retry_s)
        self._say_health(now_s)

    def _say_health(self, now_s: float) -> None:
        found, ok = facts(self, now_s)
        self.hands.do(events.Health(found, ok))


_HANDLERS = {
    events.Start: "_on_start",
    events.Tick: "_on_tick",
    events.Linked: "_on_linked",
    events.Unlinked: "_on_unlinked",
    events.Received: "_on_received",
    events.Told: "_on_told",
    events.Computed: "_on_computed",
    events.ComputeFailed: "_on_compute_failed",
    events.Saved: "_on_saved",
    events.SaveFailed: "_on_save_failed",
    events.MembersChanged: "_on_members",
    events.Refused: "_on_refused",
    events.Asked: "_on_asked",
}
