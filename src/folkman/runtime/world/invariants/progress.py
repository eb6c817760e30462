"""What goes on whatever happens: invariants 9, 11, 14, 15 and 18."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.record.cluster import DONE, LEARNING
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import Health, Log, MembersChanged, Note, Received, Start
from folkman.runtime.identity import name_of
from folkman.runtime.journal import WAKE
from folkman.runtime.world.audit import Invariant, Moved, Seen, broken
from folkman.runtime.world.contents import header_of
from folkman.runtime.world.plan import AIR_SLOTS, CARRIED

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["FreshAfterHeal", "HonestHealth", "InStep", "Together", "TwinSpread"]

BLOCKS_ROUNDS = ("never_acknowledges", "wrong_round", "flapping", "old_life", "flood")
"""Lies with which a member of a round keeps its neighbours waiting: lock-step has no remedy."""
MOST_REFUSED = 2
"""Messages of one round that a node may refuse after heal for their numbers: until a liar says the
next, a quarter of the limit goes by."""
EXCLUDES = ("revoke", "expire", "skew", "jump")
"""Faults by which a member is none for a while."""
AHEAD = 2
"""Slots by which honest slot clocks may differ once they have heard each other."""
TWINS = ("alone", "rounds", *CARRIED)
"""Methods in which nodes come together, without a server."""
MISSED = 20
"""Slots without one being lived after which a node is no longer well."""
DRIFT = 0.03
"""Of a monotonic clock, at most."""


def _alive_honest(world: "World") -> list["Host"]:
    return [host for host in world.hosts.values() if host.is_alive and host.lie is None]


def _slot(host: "Host") -> int:
    core: Any = host.core
    return int(core.node.slot)


class FreshAfterHeal(Invariant):
    """9: every honest linked pair exchanges fresh messages after the faults have ended."""

    number = 9
    sentence = (
        "every honest linked pair exchanges a fresh message within X s after heal, whatever "
        "byzantine members do"
    )
    looks_at = (Moved,)

    def __init__(self) -> None:
        self._before: dict[tuple[int, int], int] = {}
        self._best: dict[tuple[int, int], int] = defaultdict(int)
        self._apart = 0  # slots between the first and the last, as faults end
        self._refused: dict[int, int] = {}  # member -> messages with bad numbers, as faults end

    def asks(self, world: "World") -> bool:
        """In rounds a liar may keep its neighbours waiting, and so does one who lost its state.

        A poisoned sum spoils all that hold it, and makes them absurd to each other: who may send
        sums is trusted.
        """
        lies = [lie for _, lie in world.plan.liars]
        blocked = world.setting.lost or any(lie in BLOCKS_ROUNDS for lie in lies)
        spoiled = world.plan.carries == "sum" and "poison" in lies
        return not (world.setting.counts_on and blocked) and not spoiled

    def healed(self, world: "World") -> None:
        """Note what is held now, of those who still learn, and how far their slots are apart."""
        slots = [_slot(host) for host in world.hosts.values() if host.is_alive]
        self._apart = max(slots, default=0) - min(slots, default=0)
        for host in _alive_honest(world):
            core: Any = host.core
            self._refused[host.number] = _bad(core)
            for sender in world.setting.heard_by(host.number):
                other = world.hosts[sender]
                if other.lie is None and other.is_alive:
                    self._before[host.number, sender] = core.node.mailbox.newest_of(sender)

    def stepped(self, seen: Seen) -> None:
        """Remember the newest message of each pair."""
        if not self._before or seen.world.now_s < seen.world.plan.heal_s:
            return
        box, number = seen.node.mailbox, seen.host.number
        for sender in seen.world.setting.heard_by(number):
            pair = (number, sender)
            self._best[pair] = max(self._best[pair], box.newest_of(sender))

    def over(self, world: "World") -> None:
        """See that each pair has heard something new.

        On the emulated channel who is ahead of the middle stands still until it is caught up with.
        """
        needs_s = (AIR_SLOTS + self._apart) * world.plan.slot_s
        if world.plan.in_slots and needs_s > world.plan.end_s - world.plan.heal_s:
            return
        for (receiver, sender), before in self._before.items():
            done = world.setting.is_done(world.hosts[sender]) or world.setting.is_done(
                world.hosts[receiver]
            )
            misled = {receiver, sender} & world.auditor.misled
            if not done and not misled and self._best[receiver, sender] <= before:
                if world.setting.counts_on and self._is_held_up(world):
                    return
                waited_s = world.plan.end_s - world.plan.heal_s
                text = f"node {receiver} heard nothing new of {sender} in {waited_s:.1f} s"
                raise broken(self, text)

    def _is_held_up(self, world: "World") -> bool:
        """Tell whether all wait for a liar, in rounds or around a server.

        It may wait itself for a message that it said it holds, and that is not sent again for that.
        In rounds what it says may also not be finite, or beyond the limits, time after time.
        """
        lies = dict(world.plan.liars)
        for host in _alive_honest(world):
            core: Any = host.core
            refused = _bad(core) - self._refused.get(host.number, 0)
            if world.plan.method == "rounds" and refused > MOST_REFUSED:
                return True
            for peer in world.setting.heard_by(host.number):
                liar: Any = world.hosts[peer].core
                if liar is None or lies.get(peer) != "acknowledges_all":
                    continue
                held = liar.node.mailbox.newest_with_next_round(host.number)
                if core.sending.holds(peer) > held:
                    return True
        return False


class Together(Invariant):
    """11: slots go on and up, and honest nodes agree about them."""

    number = 11
    sentence = "slot clocks of honest nodes are monotone and together"
    looks_at = (Note,)

    def __init__(self) -> None:
        self._slot: dict[tuple[int, int], int] = {}

    def stepped(self, seen: Seen) -> None:
        """See that slots rise, and no faster than time."""
        key = (seen.host.number, seen.host.process)
        plan = seen.world.plan
        for effect in seen.of(Note):
            if effect.kind != WAKE:
                continue
            if effect.slot <= self._slot.get(key, -1):
                raise broken(self, f"node {key[0]} lives slot {effect.slot} again")
            self._slot[key] = effect.slot
            most = (seen.world.now_s * (1 + DRIFT)) / plan.slot_s + 1 + AHEAD
            misled = key[0] in seen.world.auditor.misled
            if plan.in_slots and effect.slot > most and not misled:
                text = f"node {key[0]} lives slot {effect.slot} at {seen.world.now_s:.2f} s"
                raise broken(self, f"{text}, there were {most:.0f} at most")

    def over(self, world: "World") -> None:
        """See that the clocks of those who hear each other agree at the end."""
        if not world.plan.in_slots:
            return
        now = {
            host.number: self._slot.get((host.number, host.process))
            for host in world.hosts.values()
            if host.lie is None
            and host.number not in self._early(world)
            and host.number not in world.auditor.misled
        }
        slots = [slot for slot in now.values() if slot is not None]
        if slots and max(slots) - min(slots) > AHEAD + 1:
            raise broken(self, f"slots at the end: {now}")

    @staticmethod
    def _early(world: "World") -> list[int]:
        """Return the nodes that had taken all their steps before the end."""
        return [n for n, host in world.hosts.items() if world.setting.is_done(host)]


class InStep(Invariant):
    """14: rounds are complete, and end."""

    number = 14
    sentence = "in rounds nobody is more than one ahead; no round is lost; all finish after heal"

    def __init__(self) -> None:
        self._round: dict[int, int] = {}
        self._took: dict[int, int] = {}  # messages
        self._of_round: dict[int, set[tuple[int, int]]] = {}  # (sender, round) that were taken
        self._rounds: dict[int, dict[tuple[int, int], int]] = {}  # (sender, number) -> its round

    def asks(self, world: "World") -> bool:
        """Only of methods that wait, among honest members."""
        return world.setting.counts_on

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Let a process that begins again go on from its last save."""
        del world, start
        self._round.pop(host.number, None)
        self._took[host.number], self._of_round[host.number] = 0, set()
        self._rounds[host.number] = {}

    def lost_folder(self, host: "Host") -> None:
        """Let a node without a folder begin with the first round."""
        self._round.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """Compare the rounds of neighbours."""
        number, round_ = seen.host.number, int(seen.node.mailbox.round)
        if not round_:
            return
        before = self._round.get(number)
        if before is not None and round_ not in (before, before + 1):
            raise broken(self, f"node {number} goes from round {before} to {round_}")
        self._look_at_taken(seen, round_ if before is None else before)
        self._look_at_heard(seen, round_)
        empty = any(note.kind == WAKE and not note.computed for note in seen.of(Note))
        if empty and round_ == before:
            raise broken(self, f"node {number} lives a slot in which it takes and hears nothing")
        self._round[number] = round_
        for peer in seen.world.setting.heard_by(number):
            other = self._round.get(peer)
            if (
                other is not None
                and not seen.world.setting.has_lost(number, peer)
                and round_ > other + 1
            ):
                raise broken(self, f"node {number} is in round {round_}, {peer} in {other}")

    def _look_at_taken(self, seen: Seen, round_: int) -> None:
        """See that of each neighbour one message of this round is taken, and one of the next."""
        core: Any = seen.host.core
        number, taken = seen.host.number, core.hands.counts["taken"]
        before, self._took[number] = self._took[number], taken
        if isinstance(seen.event, MembersChanged):  # who is a member again may say it again
            self._of_round[number].clear()
        if taken == before or not isinstance(seen.event, Received):
            return
        header = header_of(seen.event.peer, seen.event.data)
        key = (header.node, header.round)
        self._rounds[number][header.node, header.sequence] = header.round
        if header.round not in (round_, round_ + 1) or key in self._of_round[number]:
            text = f"node {number} takes a message of round {header.round} in round {round_}"
            raise broken(self, text)
        lies = header.node in {liar for liar, _ in seen.world.plan.liars}
        if header.round == round_ or not lies:  # a liar may take back what it said of the next
            self._of_round[number].add(key)

    def _look_at_heard(self, seen: Seen, round_: int) -> None:
        """See that what counts as heard is of this round."""
        box, own = seen.node.mailbox, seen.host.number
        for sender in np.flatnonzero(box.heard).tolist():
            of = self._rounds[own].get((sender, int(box.sequence[sender])), round_)
            if of != round_:
                raise broken(self, f"node {own} uses {sender}'s round {of} in round {round_}")

    def over(self, world: "World") -> None:
        """See that everyone has taken all its steps where that was asked."""
        plan = world.plan
        asked = plan.steps is not None and not plan.liars and not world.setting.lost
        if plan.method == "server" and any(f.kind in EXCLUDES for f in plan.faults):
            return  # who misses a round has steps left when the others are done, and waits
        for host in world.hosts.values():
            if asked and world.setting.learns(host.number) and not world.setting.is_done(host):
                core: Any = host.core
                steps = core.node.steps if core is not None else "no process"
                text = f"node {host.number} is not done: {steps} of {plan.steps}"
                raise broken(self, text)


class HonestHealth(Invariant):
    """15: a node that does nothing says so, and one that is well says that."""

    number = 15
    sentence = "health is honest"

    def __init__(self) -> None:
        self._lived_s: dict[int, float] = {}
        self._linked_s: dict[int, float] = {}
        self._phase: dict[int, Phase] = {}
        self._wrong: set[int] = set()  # who said last that something is wrong

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Count from the beginning of a process."""
        del world, start
        self._phase[host.number] = Phase.START
        self._wrong.discard(host.number)

    def stepped(self, seen: Seen) -> None:
        """Compare what a node says of itself with what it does."""
        core: Any = seen.host.core
        number, now_s = seen.host.number, core._now_s
        was, self._phase[number] = self._phase[number], core.phase
        if was in (Phase.START, Phase.WAIT) and core.phase in (Phase.LEARN, Phase.WRITE):
            self._lived_s[number] = self._linked_s[number] = now_s
        if any(note.kind == WAKE for note in seen.of(Note)):
            self._lived_s[number] = now_s
        for said in seen.of(Health):
            self._check(seen, said, core, now_s)

    def _check(self, seen: Seen, said: Health, core: Any, now_s: float) -> None:
        number, settings, facts = seen.host.number, seen.world.setting.settings, said.facts
        expected = facts["state"] in (LEARNING, DONE)
        if facts["state"] == LEARNING:
            if core.there() or not core.node.neighbours:
                self._linked_s[number] = now_s
            longest_s = max(settings.alone_s, MISSED * settings.slot_s)
            still = now_s - self._lived_s[number] > longest_s and seen.world.setting.learns(number)
            expected = not still and now_s - self._linked_s[number] <= settings.alone_s
        if said.ok != expected or facts["ok"] != expected:
            text = f"node {number} says it is {'well' if said.ok else 'not well'}"
            raise broken(self, f"{text}, and is {'well' if expected else 'not'}")
        self._look_at_log(seen, said)
        own = core.node.steps, core.life.number, sorted(name_of(j) for j in core.there())
        if (facts["steps"], facts["incarnation"], facts["linked"]) != own:
            raise broken(self, f"node {number} says of itself what is not so; it is {own}")

    def _look_at_log(self, seen: Seen, said: Health) -> None:
        """See that what is wrong is logged when it begins, and once."""
        number, wrong = seen.host.number, bool(said.facts["wrong"])
        begins = wrong and number not in self._wrong
        if begins != any(log.event == "not well" for log in seen.of(Log)):
            raise broken(self, f"node {number} logs what is wrong with it too often, or never")
        (self._wrong.add if wrong else self._wrong.discard)(number)


class TwinSpread(Invariant):
    """18: what faults have driven apart comes together again."""

    number = 18
    sentence = "the distance between nodes falls to that of the fault-free twin"

    def asks(self, world: "World") -> bool:
        """Ask a sample, since a second schedule has to be run; a server has no distance."""
        plan = world.plan
        poisoned = any(lie in ("poison", "equivocation") for _, lie in plan.liars)
        return plan.seed % 16 == 0 and plan.method in TWINS and not poisoned

    def end(self, world: "World") -> None:
        """Compare with the twin, which has neither faults nor liars."""
        from folkman.runtime.world.swarm import spread_of_twin

        own = spread(world)
        if own is None:
            return
        twin = spread_of_twin(world.plan)
        if twin is not None and own > 3 * twin + 0.5:
            raise broken(self, f"nodes are {own:.3f} apart, without faults {twin:.3f}")


def spread(world: "World") -> float | None:
    """Return how far honest nodes are from their mean at the end; None: too few are left."""
    params = [
        world.last_params[host.number]
        for host in world.hosts.values()
        if host.lie is None and host.number in world.last_params
    ]
    if len(params) < 2:
        return None
    stacked = np.stack(params).astype(np.float64)
    return float(np.linalg.norm(stacked - stacked.mean(0), axis=1).max())


def _bad(core: Any) -> int:
    """Return how many messages were refused for numbers that are not finite, or too large."""
    refused = core.node.mailbox.refused
    return refused["finite"] + refused["absurd"]
