"""Who waits, and for what: invariant 22."""

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from folkman.record.cluster import DONE
from folkman.runtime.control import Ack, Done, Refusal
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import (
    Asked,
    Linked,
    MembersChanged,
    Publish,
    Start,
    Told,
    Unlinked,
)
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.plan import CALM_KINDS

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Prompt"]

ROUNDING_S = 1e-6
ENDING = (Phase.STOP, Phase.OVER)
ON_ITS_WAY_S = 1.0
"""A word comes within this, where nothing goes wrong."""


class _Known:
    """What one process was told of its neighbours."""

    def __init__(self) -> None:
        self.linked: set[int] = set()
        self.done: set[int] = set()
        self.members: frozenset[int] = frozenset()
        self.stays_s = math.inf  # since when it stays though all that count are done
        self.phase = Phase.START
        self.lingers_s = self.last_s = math.inf  # since when it lingers, and all are done meanwhile


class Prompt(Invariant):
    """22: a limit is for what went wrong; who has all that it waits for goes on."""

    number = 22
    sentence = "nobody waits out a limit for nothing"

    def __init__(self) -> None:
        self._known: dict[int, _Known] = defaultdict(_Known)
        self._is_calm = False
        self._acknowledged: dict[tuple[int, int], tuple[int, float]] = {}  # newest, and when

    def asks(self, world: "World") -> bool:
        """Ask always; where nothing goes wrong, no answer may be missing either."""
        kinds = {fault.kind for fault in world.plan.faults}
        self._is_calm = kinds <= set(CALM_KINDS) - {"revoke"} and not world.plan.liars
        return True

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del world, start
        self._known[host.number] = _Known()

    def stepped(self, seen: Seen) -> None:
        """Look at what a node waits for, and at what it was told."""
        known, core = self._known[seen.host.number], _core(seen)
        self._learn(seen, known)
        near = [peer for peer in seen.node.neighbours if peer in known.members]
        if core.phase is Phase.WAIT and near and known.linked.issuperset(near):
            raise broken(self, f"node {seen.host.number} waits, and all neighbours are linked")
        stays = core.phase is Phase.LINGER and near and known.done.issuperset(near)
        now_s = core._now_s  # its own time, which may stand still while it is suspended
        known.stays_s = min(known.stays_s, now_s) if stays else math.inf
        last_words_s = 2 * seen.world.setting.settings.keep_every_s if core.there() else 0.0
        if now_s > known.stays_s + last_words_s + ROUNDING_S:
            raise broken(self, f"node {seen.host.number} stays, and all neighbours are done")
        self._look_at_last_words(seen, known, core)
        self._look_at_refusal(seen, core)
        at_end = core.phase is Phase.LEARN and not core.goes_on() and not core.is_in_slot
        if at_end and not seen.world.setting.counts_on:
            raise broken(self, f"node {seen.host.number} has all its gradients, and does not end")
        if seen.world.plan.method == "rounds" and core.phase is Phase.LEARN:
            self._look_at_round(seen, core)
        if seen.world.plan.method == "emulated" and core.phase is Phase.LEARN:
            self._look_at_slot(seen, core)
        if self._is_calm:
            self._look_at_answers(seen, core)

    def _look_at_last_words(self, seen: Seen, known: _Known, core: Any) -> None:
        """See that who is done stays until its last word is heard, if somebody is there."""
        was, known.phase, now_s = known.phase, core.phase, core._now_s
        if core.state != DONE:
            return
        settings = seen.world.setting.settings
        known.lingers_s = min(known.lingers_s, now_s)
        if core.everyone_done():
            known.last_s = min(known.last_s, now_s)
        leaves = core.phase in ENDING and was not in ENDING and not isinstance(seen.event, Asked)
        until_s = min(
            known.lingers_s + settings.linger_s,
            known.last_s + (2 * settings.keep_every_s if core.there() else 0.0),
        )
        if leaves and core.code == 0 and now_s < until_s - ROUNDING_S:
            text = f"node {seen.host.number} leaves {until_s - now_s:.2f} s before"
            raise broken(self, f"{text} its last word may have come")

    def _look_at_refusal(self, seen: Seen, core: Any) -> None:
        """See that nobody waits for one who has said that it cannot take the message."""
        if not isinstance(seen.event, Told) or not isinstance(seen.word, Refusal):
            return
        peer, owed = seen.event.peer, core.sending.owed
        again = any(effect.peer == peer for effect in seen.of(Publish))
        if owed.owes(peer) and not again and owed._sent[peer].sequence <= seen.word.sequence:
            raise broken(self, f"node {seen.host.number} waits for {peer}, which has refused")

    def _look_at_round(self, seen: Seen, core: Any) -> None:
        """See that who has heard all neighbours goes on, unless its disk or its beat is waited for.

        Every neighbour hears every message here, so nobody waits for acknowledgements.
        """
        ready = seen.node.complete() and core.goes_on() and not core.is_in_slot
        if ready and core.saving.is_idle and core.pace.next_s(core, core._now_s) == math.inf:
            raise broken(self, f"node {seen.host.number} has heard all of its round, and waits")

    def _look_at_slot(self, seen: Seen, core: Any) -> None:
        """See that a slot begins in its time, unless a message is missing that it may hear.

        That is one that the channel has delivered since the slot before, of a node that is there.
        """
        slot, now_s, air = core.pace._slot, core._now_s, core.pace.emulation
        slot = max(core.clock.slot(now_s), slot)
        if core.is_in_slot or not core.goes_on() or now_s < core.clock.begins_s(slot):
            return
        if slot + 1 >= air._rolled:  # far behind: the channel is rolled out first
            return
        now, before = air.plan(slot).held, air.plan(max(slot - 1, 0)).held
        for peer in core.there():
            came = air._air.get(peer, {})
            if now[peer] != before[peer] and all(number > now[peer] for number in came):
                return
        raise broken(self, f"node {seen.host.number} has what slot {slot} may hear, and waits")

    def _look_at_answers(self, seen: Seen, core: Any) -> None:
        """See that no answer is lost: neither is one given up, nor asked for by sending again."""
        number, now_s = seen.host.number, seen.world.now_s
        if core.hands.counts["periods_given_up"]:
            raise broken(self, f"node {number} waits for an answer in vain")
        for header in seen.published:
            last, at_s = self._acknowledged.get((header.peer, number), (0, 0.0))
            if header.sequence <= last and now_s > at_s + ON_ITS_WAY_S:
                text = f"node {number} sends {header.sequence} to {header.peer} again"
                raise broken(self, f"{text}, which has acknowledged {last}")
        for peer, control in seen.told:
            before = self._acknowledged.get((number, peer), (0, 0.0))[0]
            if isinstance(control.body, Ack) and control.body.sequence > before:
                self._acknowledged[number, peer] = control.body.sequence, now_s

    @staticmethod
    def _learn(seen: Seen, known: _Known) -> None:
        event = seen.event
        if isinstance(event, Linked):
            known.linked.add(event.peer)
        elif isinstance(event, Unlinked):
            known.linked.discard(event.peer)
        elif isinstance(event, MembersChanged):
            known.members = event.members
        elif isinstance(event, Told) and isinstance(seen.word, Done):
            known.done.add(event.peer)


def _core(seen: Seen) -> Any:
    return seen.host.core
