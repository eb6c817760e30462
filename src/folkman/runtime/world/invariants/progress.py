"""What goes on whatever happens: invariants 9, 11, 14, 15 and 18."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.runtime.core.events import Health, Note, Start
from folkman.runtime.journal import WAKE
from folkman.runtime.world.audit import Invariant, Moved, Seen
from folkman.runtime.world.invariants.messages import _broken
from folkman.runtime.world.plan import CARRIED

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["FreshAfterHeal", "HonestHealth", "InStep", "Together", "TwinSpread"]

BLOCKS_ROUNDS = ("never_acknowledges", "wrong_round", "flapping", "old_life", "flood")
"""Lies with which a member of a round keeps its neighbours waiting: lock-step has no remedy."""
EXCLUDES = ("revoke", "expire", "skew", "jump")
"""Faults by which a member is none for a while."""
AHEAD = 2
"""Slots by which honest slot clocks may differ once they have heard each other."""
TWINS = ("alone", "rounds", *CARRIED)
"""Methods in which nodes come together, without a server."""
DRIFT = 0.03
"""Of a monotonic clock, at most."""


def _alive_honest(world: "World") -> list["Host"]:
    return [host for host in world.hosts.values() if host.is_alive and host.lie is None]


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
        """Note what is held now, of those who still learn."""
        for host in _alive_honest(world):
            core: Any = host.core
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
        """See that each pair has heard something new."""
        for (receiver, sender), before in self._before.items():
            done = world.setting.is_done(world.hosts[sender]) or world.setting.is_done(
                world.hosts[receiver]
            )
            misled = {receiver, sender} & world.auditor.misled
            if not done and not misled and self._best[receiver, sender] <= before:
                waited_s = world.plan.end_s - world.plan.heal_s
                text = f"node {receiver} heard nothing new of {sender} in {waited_s:.1f} s"
                raise _broken(self, text)


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
                raise _broken(self, f"node {key[0]} lives slot {effect.slot} again")
            self._slot[key] = effect.slot
            most = (seen.world.now_s * (1 + DRIFT)) / plan.slot_s + 1 + AHEAD
            misled = key[0] in seen.world.auditor.misled
            if plan.in_slots and effect.slot > most and not misled:
                text = f"node {key[0]} lives slot {effect.slot} at {seen.world.now_s:.2f} s"
                raise _broken(self, f"{text}, there were {most:.0f} at most")

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
            raise _broken(self, f"slots at the end: {now}")

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

    def asks(self, world: "World") -> bool:
        """Only of methods that wait, among honest members."""
        return world.setting.counts_on

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Let a process that begins again go on from its last save."""
        del world, start
        self._round.pop(host.number, None)

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
            raise _broken(self, f"node {number} goes from round {before} to {round_}")
        self._round[number] = round_
        for peer in seen.world.setting.heard_by(number):
            other = self._round.get(peer)
            if (
                other is not None
                and not seen.world.setting.has_lost(number, peer)
                and round_ > other + 1
            ):
                raise _broken(self, f"node {number} is in round {round_}, {peer} in {other}")

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
                raise _broken(self, text)


class HonestHealth(Invariant):
    """15: a node that does nothing says so."""

    number = 15
    sentence = "health is honest"
    looks_at = (
        Note,
        Health,
    )

    def __init__(self) -> None:
        self._moved_s: dict[int, float] = {}

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Count from the beginning of a process."""
        del start
        self._moved_s[host.number] = world.now_s

    def stepped(self, seen: Seen) -> None:
        """Compare what a node says of itself with what it does."""
        number = seen.host.number
        if any(note.kind == WAKE for note in seen.of(Note)):
            self._moved_s[number] = seen.world.now_s
        for said in seen.of(Health):
            self._check(seen, said)

    def _check(self, seen: Seen, said: Health) -> None:
        number, settings = seen.host.number, seen.world.setting.settings
        idle_s = seen.world.now_s - self._moved_s[number]
        limit_s = 2 * settings.alone_s + 10 * max(settings.slot_s, settings.keep_every_s)
        learns = seen.world.setting.learns(number) and not seen.world.setting.is_done(seen.host)
        if said.ok and idle_s > limit_s and learns:
            text = f"node {number} says it is well, and lived no slot for {idle_s:.1f} s"
            raise _broken(self, text)
        steps = said.facts.get("steps")
        if steps is not None and steps != seen.node.steps:
            raise _broken(self, f"node {number} says {steps} steps, it took {seen.node.steps}")


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
            raise _broken(self, f"nodes are {own:.3f} apart, without faults {twin:.3f}")


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
