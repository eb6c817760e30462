"""How a node treats its disk, its journal and what must arrive: invariants 26 to 29."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.runtime import state
from folkman.runtime.codec import VERSION, sequence_of, version_of
from folkman.runtime.control import Hello
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import (
    Compute,
    Finish,
    Health,
    Linked,
    Note,
    Publish,
    Received,
    Save,
    Saved,
    SaveFailed,
    Start,
    Tick,
    Told,
)
from folkman.runtime.journal import FORGOT, LOST, SEND, WAKE
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.contents import Header
from folkman.runtime.world.plan import ON_A_BAND

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Resends", "Restored", "Saves", "Unmoved"]

AGAIN_S = 1.0
"""A disk that refused is given this time."""
GIVE_UP_S = 5.0
"""A process that shall end waits so long for what is under way."""
SLOT, STEPS, SEQUENCE = 0, 1, 2
"""Places in the counters of a saved state."""
FAR = 1e4
"""No honest parameter of the world comes near this; a poisoned one is at 9e5."""


class _Disk:
    """What one process asked of its disk."""

    def __init__(self, slot: int, said: int) -> None:
        self.open: dict[int, int | None] = {}  # ticket -> steps in its state, None: no state
        self.state_s = math.inf  # when a state was last to be saved, or the count of time began
        self.failed_s = self.stop_s = -math.inf
        self.taken = self.refused = 0
        self.steps: int | None = None
        self.slot = slot  # the next to live
        self.slots: tuple[int, int] = (-1, -1)  # it, in the state being saved and in the last saved
        self.said = said  # number of the last message before this process
        self.noted: dict[int, int] = {}  # number of a message in the journal -> its slot
        self.forgotten = 0  # members, by the journal


class Saves(Invariant):
    """26: what is lost at an end is never more than it must be."""

    number = 26
    sentence = "states are saved one at a time, as often as they should be, and the last is awaited"
    looks_at = (Save, Saved, SaveFailed, Compute, Finish, Health, Note, Publish, Start)

    def __init__(self) -> None:
        self._of: dict[int, _Disk] = {}
        self._damaged: set[int] = set()

    def flipped(self, host: "Host") -> None:
        """Let a disk that has rotted be warned of."""
        self._damaged.add(host.number)

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew; of a disk that is whole there is nothing to warn of."""
        del world
        self._of[host.number] = _Disk(_counter(start, SLOT), _counter(start, SEQUENCE))
        if start.warnings and host.number not in self._damaged:
            raise broken(self, f"node {host.number} is warned of its disk: {start.warnings}")

    def stepped(self, seen: Seen) -> None:
        """Look at saves and at their answers."""
        core: Any = seen.host.core
        of, now_s, number = self._of[seen.host.number], core._now_s, seen.host.number
        self._learn(seen, of, now_s)
        if of.steps is None and core.phase is not Phase.START:
            of.state_s, of.steps = now_s, int(core.node.steps)
        self._look_at_notes(seen, of)
        for save in seen.of(Save):
            self._look_at(seen, of, save, now_s)
        if seen.of(Compute) and not seen.world.setting.counts_on:
            late = now_s - of.state_s > seen.world.setting.settings.save_every_s + 1e-6
            if late and not of.open and of.slot != of.slots[1]:
                raise broken(self, f"node {number} has saved nothing for {now_s - of.state_s} s")
        if core.phase is Phase.WRITE and not of.open:
            raise broken(self, f"node {number} has a result, its disk is idle, and it waits")
        if core.phase is Phase.STOP and of.stop_s == -math.inf:
            of.stop_s = now_s
        if seen.of(Finish) and of.open and now_s < of.stop_s + GIVE_UP_S - 1e-6:
            raise broken(self, f"node {number} ends in the middle of a save")
        if seen.of(Finish):
            self._look_at_last(seen, of, core, now_s)
        for said in seen.of(Health):
            counts: Any = said.facts["counts"]
            told = counts["saves"], counts["saves_failed"], said.facts["saved_steps"]
            if counts["forgotten"] != of.forgotten:
                text = f"node {number} has forgotten {counts['forgotten']} members"
                raise broken(self, f"{text}, its journal has {of.forgotten}")
            if of.steps is not None and told != (of.taken, of.refused, of.steps):
                text = f"node {number} says {told} of its saves"
                raise broken(self, f"{text}, there were {of.taken}, {of.refused}, {of.steps}")

    @staticmethod
    def _learn(seen: Seen, of: _Disk, now_s: float) -> None:
        event = seen.event
        if isinstance(event, Saved) and event.ticket in of.open:
            steps = of.open.pop(event.ticket)
            of.taken += 1
            if steps is not None:
                of.steps, of.slots = steps, (of.slots[0], of.slots[0])
        elif isinstance(event, SaveFailed) and event.ticket in of.open:
            del of.open[event.ticket]
            of.refused, of.failed_s = of.refused + 1, now_s

    def _look_at(self, seen: Seen, of: _Disk, save: Save, now_s: float) -> None:
        number, core = seen.host.number, seen.host.core
        if of.open:
            raise broken(self, f"node {number} begins a save in the middle of another")
        must = save.life is not None or (
            seen.world.setting.counts_on and save.final is None and core.phase is Phase.LEARN  # type: ignore[union-attr]
        )
        if must and now_s < of.failed_s + AGAIN_S - 1e-6:
            raise broken(self, f"node {number} does not give its disk a second")
        of.open[save.ticket] = None if save.state is None else int(save.state["counters"][STEPS])
        if save.state is not None:
            again = of.slots[1] == of.slot and not seen.world.setting.counts_on
            if again and core.phase is Phase.LEARN:  # type: ignore[union-attr]
                raise broken(self, f"node {number} saves twice that slot {of.slot} is the next")
            of.state_s, of.slots = now_s, (of.slot, of.slots[1])

    def _look_at_last(self, seen: Seen, of: _Disk, core: Any, now_s: float) -> None:
        """See that who ends well has saved where it is, if its disk and its time allowed it.

        In rounds and around a server the last save is that of the last message.
        """
        stop_s = of.stop_s if math.isfinite(of.stop_s) else now_s
        tried = of.failed_s >= stop_s or now_s >= stop_s + GIVE_UP_S - 1e-6
        if core.code or not core.life.number or seen.world.setting.counts_on or tried:
            return
        if of.steps != int(core.node.steps):
            text = f"node {seen.host.number} ends after {core.node.steps} gradients"
            raise broken(self, f"{text}, and has saved {of.steps}")

    def _look_at_loss(self, seen: Seen, note: Note) -> None:
        """See that the journal has who brought a sum without the own part, where that is plain."""
        brought = seen.event.peer if isinstance(seen.event, Received) else None
        if brought is not None and not seen.world.plan.in_slots and note.sequence[0] != brought:
            text = f"the journal of node {seen.host.number} names {note.sequence[0]}"
            raise broken(self, f"{text} as who brought a sum, it was {brought}")

    def _look_at_notes(self, seen: Seen, of: _Disk) -> None:
        """See that the journal has every slot, one after the other, and every message."""
        for note in seen.of(Note):
            if note.kind == SEND:
                of.noted |= dict.fromkeys(note.sequence, note.slot)
            elif note.kind == FORGOT:
                of.forgotten += len(note.sequence)
            elif note.kind == LOST:
                self._look_at_loss(seen, note)
            if note.kind != WAKE:
                continue
            skips = seen.world.plan.in_slots
            if note.slot < of.slot or (note.slot > of.slot and not skips):
                text = f"the journal of node {seen.host.number} has slot {note.slot}"
                raise broken(self, f"{text} after {of.slot - 1}")
            of.slot = note.slot + 1
        if seen.world.plan.carries in ("sum", "forward"):  # a cover has a number of its own
            return
        for header in seen.published:
            if header.sequence > of.said and of.noted.get(header.sequence) != header.slot:
                text = f"the journal of node {seen.host.number} lacks its message {header.sequence}"
                raise broken(self, text)


def _counter(start: Start, place: int) -> int:
    return 0 if start.state is None else int(start.state["counters"][place])


class Resends(Invariant):
    """29: what must arrive is sent again when that is due, and not before."""

    number = 29
    sentence = "who is linked or begins again is sent what waits for it, others after a while alone"
    looks_at = (Publish, Linked, Told)

    def __init__(self) -> None:
        self._sent_s: dict[int, dict[tuple[int, int], float]] = {}  # (peer, number) -> when
        self._lives: dict[int, dict[int, int]] = {}

    def asks(self, world: "World") -> bool:
        """Ask where messages wait for their acknowledgement."""
        return world.setting.counts_on or world.plan.method in ON_A_BAND

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del world, start
        self._sent_s[host.number], self._lives[host.number] = {}, {}

    def stepped(self, seen: Seen) -> None:
        """Look at what is sent a second time, and at what is not."""
        core: Any = seen.host.core
        number, now_s, event = seen.host.number, core._now_s, seen.event
        sent = self._sent_s[number]
        published = [each for each in seen.published if self._must_arrive(seen, each)]
        now = {header.peer for header in published}
        if self._is_new(seen) and event.peer not in now:  # type: ignore[union-attr] - it has one
            waits = any(peer == event.peer for peer, _ in sent)  # type: ignore[union-attr]
            if waits and core.phase in (Phase.LEARN, Phase.LINGER):
                raise broken(self, f"node {number} sends nothing again to {event.peer}")  # type: ignore[union-attr]
        after_s = seen.world.setting.settings.retry_s
        for header in published:
            key = (header.peer, header.sequence)
            if isinstance(event, Tick) and now_s < sent.get(key, -math.inf) + after_s - 1e-6:
                raise broken(self, f"node {number} sends {header.sequence} again too soon")
            sent[key] = now_s

    @staticmethod
    def _must_arrive(seen: Seen, header: Header) -> bool:
        """Tell whether a message waits for its acknowledgement: on a band, copies do not."""
        copy = version_of(header.data) == VERSION
        return not (copy and seen.world.plan.method in ON_A_BAND)

    def _is_new(self, seen: Seen) -> bool:
        """Tell whether a link came up in this step, or a neighbour said that it began again."""
        lives, event = self._lives[seen.host.number], seen.event
        if isinstance(seen.word, Hello) and isinstance(event, Told):
            said = seen.word.incarnation
            before, lives[event.peer] = lives.get(event.peer, said), said
            return said != before
        return isinstance(event, Linked) and event.peer in seen.node.neighbours


class Restored(Invariant):
    """27: a process that begins again is the one that was saved."""

    number = 27
    sentence = "a node that begins again holds all that was saved, and what was said last is saved"
    looks_at = (Start, Save, Publish)

    def __init__(self) -> None:
        self._said: dict[int, bytes] = {}  # member -> its newest message that was published

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Take up what was said last from the disk."""
        del world
        self._said.pop(host.number, None)
        if start.state is not None and "sent" in start.state:
            self._said[host.number] = start.state["sent"].tobytes()

    def stepped(self, seen: Seen) -> None:
        """Compare a node with the state that it began with, and a save with what was said."""
        if isinstance(seen.event, Start) and seen.event.state is not None:
            self._compare(seen, seen.event.state)
        if not seen.world.setting.counts_on or not seen.world.setting.learns(seen.host.number):
            return
        number = seen.host.number
        for save in seen.of(Save):
            said = self._said.get(number)
            if save.state is None or said is None:
                continue
            kept = save.state["sent"].tobytes() if "sent" in save.state else b""
            if len(kept) < len(said) or sequence_of(kept) < sequence_of(said):
                raise broken(self, f"node {number} saves without what it said last")
            if sequence_of(kept) == sequence_of(said) and kept != said:
                raise broken(self, f"node {number} saves something else than it said")
        for header in seen.published:
            said = self._said.get(number)
            if said is None or header.sequence > sequence_of(said):
                self._said[number] = header.data

    def _compare(self, seen: Seen, saved: Any) -> None:
        now = state.pack(seen.node)
        for name, array in saved.items():
            if name not in now or np.asarray(now[name]).tobytes() != array.tobytes():
                text = f"node {seen.host.number} began again without its '{name}'"
                raise broken(self, text)


class Unmoved(Invariant):
    """28: between peers one liar does not carry an honest node away."""

    number = 28
    sentence = "parameters of honest nodes stay finite, and within reach of each other"
    looks_at = (Save,)

    def asks(self, world: "World") -> bool:
        """Ask where messages are checked for their distance: not in rounds, nor of sums."""
        return world.plan.method in ("alone", "emulated", "feedback", "forward", "band_forward")

    def stepped(self, seen: Seen) -> None:
        """Look at what is saved."""
        for save in seen.of(Save):
            if save.state is None:
                continue
            for name in ("params", "mailbox.payload"):
                if not np.abs(save.state[name]).max() < FAR:
                    raise broken(self, f"'{name}' of node {seen.host.number} is out of reach")
