"""What is said and heeded beside parameters: invariants 24 and 25."""

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from folkman.runtime import fresh_codec
from folkman.runtime.codec import HEADER_BYTES, version_of
from folkman.runtime.control import LIFE_BITS, Ack, Claim, Hello, Known, Refusal
from folkman.runtime.core.core import Phase
from folkman.runtime.core.events import (
    Health,
    MembersChanged,
    Publish,
    Received,
    Start,
    Unlinked,
)
from folkman.runtime.world.audit import Invariant, Seen, broken

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Claims", "Words"]

KNOWN_S = 1.0
"""One that has lost a life is told so at most once in this time."""
BACK = 4
"""Slots by which a clock goes back at a time, at most."""
TOO_FAR_S = 86_400.0
"""A clock that is further ahead is nobody's."""
MOST_VALUE = 1e15
UNMEASURED_S = 1e-3
"""Of a message while no link has been measured."""
SLACK = 1.5
"""A claim is of the rates when the message was chosen, which may have changed since."""


class _Clock:
    """Where slot 0 began, told again: the middle of what all say who are there."""

    def __init__(self, slot_s: float) -> None:
        self.slot_s, self.origin_s = slot_s, 0.0
        self.said: dict[int, float] = {}

    def heard(self, peer: int, hello: Hello, now_s: float, there: list[int]) -> None:
        """Take notice of a neighbour's clock."""
        if hello.clock_s - (now_s - self.origin_s) >= TOO_FAR_S:
            self.said.pop(peer, None)
        else:
            self.said[peer] = now_s - hello.clock_s
        all_ = sorted([self.origin_s] + [self.said.get(j, self.origin_s) for j in there])
        middle = all_[(len(all_) - 1) // 2]
        self.origin_s = min(middle, self.origin_s + BACK * self.slot_s)


class _Process:
    def __init__(self, slot_s: float) -> None:
        self.clock = _Clock(slot_s)
        self.phase, self.slot, self.life = Phase.START, 0, 0
        self.members: frozenset[int] | None = None
        self.told_known_s: dict[int, float] = {}
        self.looked_s = math.inf  # when it last looked around
        self.silent_looks = 0  # times that it looked around without a hello
        self.went_on = False


class Words(Invariant):
    """24: a node says what it must, as it is, and heeds every word once."""

    number = 24
    sentence = "words are heeded once and answered; a node greets as often as it should, truly"

    def __init__(self) -> None:
        self._of: dict[int, _Process] = {}

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        self._of[host.number] = _Process(world.setting.settings.slot_s)
        self._of[host.number].slot = 0 if start.state is None else int(start.state["counters"][0])

    def stepped(self, seen: Seen) -> None:
        """Tell a step again, and compare."""
        core: Any = seen.host.core
        of, now_s, was = self._of[seen.host.number], core._now_s, self._of[seen.host.number].phase
        self._learn(seen, of, core, now_s)
        phases = {was, core.phase}
        if was in (Phase.START, Phase.WAIT) and core.phase in (Phase.LEARN, Phase.WRITE):
            of.clock.origin_s = now_s - of.slot * of.clock.slot_s
            phases.add(Phase.LEARN)
            greeted = {peer for peer, each in seen.told if isinstance(each.body, Hello)}
            if not greeted.issuperset(core.node.neighbours):
                raise broken(self, f"node {seen.host.number} begins to learn, and greets not all")
        self._look_at_hellos(seen, of, now_s, phases)
        self._look_at_answers(seen, of, core, now_s)
        self._look_around(seen, of, core, now_s)
        if core.node.mailbox.refused["control_stale"] != seen.repeated:
            raise broken(self, f"node {seen.host.number} heeds a word twice")
        of.phase, of.slot = core.phase, int(core.node.slot)

    @staticmethod
    def _learn(seen: Seen, of: _Process, core: Any, now_s: float) -> None:
        event, body = seen.event, seen.word
        if isinstance(event, Unlinked):
            of.clock.said.pop(event.peer, None)
        elif isinstance(event, MembersChanged) and event.members != of.members:
            of.members = event.members
            for peer in [peer for peer in of.clock.said if peer not in event.members]:
                del of.clock.said[peer]
        elif isinstance(body, Hello):
            peer = event.peer  # type: ignore[union-attr] - a word has one
            if not body.clock_s:
                of.clock.said.pop(peer, None)
            elif of.phase is Phase.LEARN:
                of.clock.heard(peer, body, now_s, list(core.there()))

    def _look_at_hellos(self, seen: Seen, of: _Process, now_s: float, phases: set[Phase]) -> None:
        """See that a hello has the clock of slots, the steps and the life that the node is in."""
        core: Any = seen.host.core
        clock_s = max(now_s - of.clock.origin_s, 0.0)
        may = {0.0} if Phase.LEARN not in phases else {clock_s}
        if len(phases) > 1:
            may.add(0.0)
        for _, control in seen.told:
            body = control.body
            if not isinstance(body, Hello):
                continue
            if min(abs(body.clock_s - each) for each in may) > 1e-6 * (1.0 + clock_s):
                text = f"node {seen.host.number} says its clock is {body.clock_s}"
                raise broken(self, f"{text}, by all that it heard it is {clock_s}")
            if body.incarnation != core.life.number or body.steps > core.node.steps:
                raise broken(self, f"node {seen.host.number} says {body}")
        lives = {control.sequence >> LIFE_BITS for _, control in seen.told}
        if not lives <= {of.life, core.life.number}:
            raise broken(self, f"node {seen.host.number} numbers words as of life {max(lives)}")
        of.life = core.life.number

    def _look_at_answers(self, seen: Seen, of: _Process, core: Any, now_s: float) -> None:
        """See that a member's whole message is answered at once, and a stranger's is not."""
        answered = {
            peer for peer, each in seen.told if isinstance(each.body, Ack | Refusal | Known)
        }
        for peer, each in seen.told:
            if isinstance(each.body, Known):
                of.told_known_s[peer] = now_s
        if of.members is not None and not answered <= of.members:
            raise broken(self, f"node {seen.host.number} answers one who is no member")
        event = seen.event
        if not isinstance(event, Received) or core.hands.voice is None or of.members is None:
            return
        waits = seen.world.plan.method in ("emulated", "rounds") or seen.world.plan.liars
        late = now_s - of.told_known_s.get(event.peer, -math.inf) < KNOWN_S
        whole = len(event.data) >= HEADER_BYTES and event.peer in core.there()
        if whole and not (waits or late or event.peer in answered):
            raise broken(self, f"node {seen.host.number} does not answer {event.peer}")

    def _look_around(self, seen: Seen, of: _Process, core: Any, now_s: float) -> None:
        """See that a node that is up looks around as often as it should, and greets."""
        if core.phase not in (Phase.WAIT, Phase.LEARN, Phase.WRITE, Phase.LINGER):
            return
        every_s = seen.world.setting.settings.keep_every_s
        if of.looked_s == math.inf:
            of.looked_s = now_s
        if not seen.of(Health):
            if now_s > of.looked_s + every_s + 1e-6:
                raise broken(self, f"node {seen.host.number} looks around too seldom")
            return
        of.looked_s = now_s
        greets = any(isinstance(each.body, Hello) for _, each in seen.told)
        of.silent_looks = 0 if greets else of.silent_looks + 1
        if of.silent_looks >= core.pace.greet_every:
            raise broken(self, f"node {seen.host.number} greets too seldom")


class _Band:
    """Who has the band, told again."""

    def __init__(self, nodes: int, longest_s: float) -> None:
        self._longest_s = longest_s
        self._share = min(0.5, 1.0 / max(nodes - 1, 1))
        self.until_s: dict[int, float] = {}
        self.last_bytes = 0  # of the last message
        self._left: dict[int, tuple[float, float]] = {}  # seconds that one may claim, as of when

    def heard(self, peer: int, claim: Claim, now_s: float) -> None:
        """Take notice of a claim; nobody may have more than its part of the time."""
        unused_s = max(self.until_s.pop(peer, now_s) - now_s, 0.0)
        left_s, as_of_s = self._left.get(peer, (self._longest_s, now_s))
        left_s = min(self._longest_s, left_s + unused_s + self._share * (now_s - as_of_s))
        granted_s = min(claim.seconds, left_s)
        self._left[peer] = left_s - granted_s, now_s
        if claim.seconds > 0:
            self.until_s[peer] = now_s + granted_s


class Claims(Invariant):
    """25: on a shared band whoever sends says so first, while nobody else has it."""

    number = 25
    sentence = "nobody sends on a band that another has claimed, nor without a claim of its own"

    def __init__(self) -> None:
        self._of: dict[int, _Band] = {}

    def asks(self, world: "World") -> bool:
        """Ask where nodes contend."""
        return world.plan.method in ("sum", "forward")

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del start
        longest_s = world.setting.settings.period_timeout_s
        self._of[host.number] = _Band(world.plan.nodes, longest_s)

    def stepped(self, seen: Seen) -> None:
        """Look at claims that are heard and said."""
        core: Any = seen.host.core
        number, now_s = seen.host.number, core._now_s
        band = self._of[number]
        self._learn(seen, band, now_s)
        waits = core.sending.owed.waiting(core.there())
        if core.phase is Phase.LEARN and not waits and core.goes_on():
            due_s = max(core.pace._think_s, now_s)
            if core.next_s() > due_s + 1e-6:
                raise broken(self, f"node {number} would look at the band after {due_s:.3f} s")
        claims = [(peer, each.body) for peer, each in seen.told if isinstance(each.body, Claim)]
        sent = [e for e in seen.of(Publish) if version_of(e.data) == fresh_codec.VERSION]
        taken = [(peer, claim) for peer, claim in claims if claim.seconds > 0]
        if (
            sent
            and core.phase is Phase.LEARN
            and {peer for peer, _ in taken} != {*core.node.neighbours}
        ):
            raise broken(self, f"node {number} sends and does not tell all that it does")
        busy_s = max(band.until_s.values(), default=now_s) - now_s
        if abs(core.pace.band.busy_s(now_s) - max(busy_s, 0.0)) > 1e-6:
            text = f"node {number} takes the band as taken for {core.pace.band.busy_s(now_s):.3f} s"
            raise broken(self, f"{text}, by what it heard that is {max(busy_s, 0.0):.3f} s")
        if taken and busy_s > 1e-9:
            raise broken(
                self, f"node {number} takes the band, which is not free for {busy_s:.3f} s"
            )
        if any(not 0 < claim.value < MOST_VALUE for _, claim in taken):
            raise broken(self, f"node {number} claims {taken[0][1]}")
        most_s = self._longest_s(seen, core, band)
        if taken and taken[0][1].seconds > most_s:
            text = f"node {number} claims the band for {taken[0][1].seconds:.4f} s"
            raise broken(self, f"{text}, its message takes {most_s:.4f} s at most")
        band.last_bytes = len(sent[-1].data) if sent else band.last_bytes

    @staticmethod
    def _longest_s(seen: Seen, core: Any, band: _Band) -> float:
        """Return how long a message like the last one takes to the slowest neighbour, at most."""
        bits = 8 * (band.last_bytes or seen.node.mailbox.payload[0].nbytes)
        rates = core.sending.links.qualities()
        usual = median(rates.values()) if rates else bits / UNMEASURED_S
        slowest = min((rates.get(peer, usual) for peer in core.there()), default=usual)
        return SLACK * bits / max(slowest, 1e-3)

    @staticmethod
    def _learn(seen: Seen, band: _Band, now_s: float) -> None:
        event, body = seen.event, seen.word
        if isinstance(body, Claim):
            band.heard(event.peer, body, now_s)  # type: ignore[union-attr] - a word has one
        elif isinstance(event, Unlinked):
            band.until_s.pop(event.peer, None)
        elif isinstance(event, MembersChanged):
            for peer in [peer for peer in band.until_s if peer not in event.members]:
                del band.until_s[peer]
