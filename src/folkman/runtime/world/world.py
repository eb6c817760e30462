"""A heap of events under one virtual clock, and what becomes of every effect of every core.

Ties are broken by a counter, so that a seed has one order of events and no other.
"""

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.runtime.core.events import (
    Asked,
    Compute,
    Computed,
    Drop,
    Effect,
    Event,
    Finish,
    Health,
    Linked,
    MembersChanged,
    Note,
    Publish,
    Received,
    Save,
    Saved,
    SaveFailed,
    Tell,
    Tick,
    Told,
    Unlinked,
)
from folkman.runtime.journal import WAKE
from folkman.runtime.world.air import Arrival, Way
from folkman.runtime.world.byzantine import lie_of
from folkman.runtime.world.clock import Clock
from folkman.runtime.world.contents import formed_slots
from folkman.runtime.world.cores import Setting
from folkman.runtime.world.draws import stream
from folkman.runtime.world.host import OPERATION_S, Host, begin, carry_out
from folkman.runtime.world.members import VALID_S, Authority, Held, Issue
from folkman.runtime.world.plan import ENDS, IN_A_SAVE, Fault, Plan
from folkman.runtime.world.trace import Trace

if TYPE_CHECKING:
    from folkman.runtime.world.audit import Auditor

__all__ = ["FAULTED", "STUCK", "Broken", "Outcome", "World"]

FAULTED, STUCK = 20, 21
"""In place of an invariant's number: a node's code raised an exception; time stood still."""
GRACE_S = 60.0
"""After the end of a schedule members have so long to end by themselves."""
AGAIN_S = 1.0
"""After so long a process that could not begin is started again."""
PATIENCE_S = 3.0
"""A link over which nothing has come for so long goes down."""
NOTICED_S = 0.15
"""By so much later, at most, does the other side of a link notice that it is up."""
MOST_AT_ONCE = 2_000
"""Events of one instant: a core that asks for more turns in a circle."""


class Broken(AssertionError):  # noqa: N818 - a finding, not a fault of the program
    """An invariant does not hold."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number, self.text = number, text


class Outcome(NamedTuple):
    """What became of a schedule."""

    plan: Plan
    broken: int  # number of the invariant; 0: none
    text: str
    digest: str  # of the trace
    events: int
    node_slots: int
    simulated_s: float  # of all members together
    faults_met: tuple[str, ...]  # kinds that were switched on
    unasked: tuple[int, ...] = ()  # invariants that this schedule could not ask


class Flight(NamedTuple):
    """A message on its way, for those who look."""

    sent_s: float
    at_s: float
    sender: int
    receiver: int
    kind: str  # model, word or lost


class World:
    """One schedule."""

    def __init__(
        self,
        plan: Plan,
        setting: Setting,
        auditor: "Auditor",
        *,
        keeps_trace: bool = False,
        compares: bool = False,
    ) -> None:
        self.plan, self.setting, self.auditor = plan, setting, auditor
        self.compares = compares  # may a second run be compared with this one?
        self.now_s = 0.0
        self.trace = Trace(keeps=keeps_trace)
        self.authority = Authority(setting.members)
        first = self.authority.issues[0]
        self.hosts = {
            number: Host(number, plan, Held(first), lie_of(plan, number, setting))
            for number in setting.members
        }
        self.ways = {
            (a, b): Way(
                stream(plan.seed, "way", a, b),
                [fault for fault in plan.faults if (fault.node, fault.peer) == (a, b)],
            )
            for a in setting.members
            for b in setting.neighbours[a]
        }
        self._heap: list[tuple[float, int, Callable[..., None], tuple]] = []
        self._count = 0
        self._tells_s: dict[tuple[int, int], float] = {}  # when a side learns of its link, in order
        self.flights: list[Flight] = []  # only if a trace is kept, as are ages
        self.ages: list[tuple[float, int, tuple[int, ...], int]] = []
        self._watched = keeps_trace
        self.node_slots = 0
        self.last_params: dict[int, NDArray] = {}  # member -> its parameters when it ended

    # -- time --------------------------------------------------------------------------------------

    def at(self, when_s: float, what: Callable[..., None], *args: object) -> None:
        """Let something happen."""
        if when_s < float("inf"):
            self._count += 1
            heapq.heappush(self._heap, (max(when_s, self.now_s), self._count, what, args))

    def run(self) -> None:
        """Let the schedule happen; an invariant that does not hold raises `Broken`."""
        self.auditor.begin(self)
        self._prepare()
        end_s, at_once = self.plan.end_s + GRACE_S, 0
        while self._heap:
            when_s, _, what, args = heapq.heappop(self._heap)
            if when_s > end_s or (when_s > self.plan.end_s and not self._anyone()):
                break
            at_once = at_once + 1 if when_s - self.now_s < 1e-9 else 0
            self.now_s = when_s
            what(*args)
            if at_once > MOST_AT_ONCE:
                raise Broken(STUCK, f"{MOST_AT_ONCE} events in one instant, and no end of them")
        for host in self.hosts.values():
            self._remember(host)
        self.auditor.end(self)

    @property
    def simulated_s(self) -> float:
        """Return the time that all members lived together."""
        return self.now_s * len(self.hosts)

    def _remember(self, host: Host) -> None:
        core: Any = host.core
        if core is not None:
            self.last_params[host.number] = np.array(core.node.params())

    def _anyone(self) -> bool:
        return any(host.is_alive and host.lie is None for host in self.hosts.values())

    def _prepare(self) -> None:
        self.at(self.plan.end_s, self._over)
        for number in self.hosts:
            first_s = 0.01 * self.hosts[number].draws.random()
            self.at(max(first_s, self.plan.late_s(number)), self._begin, number)
            if self.hosts[number].lie is not None:
                self.at(self.plan.slot_s, self._lie, number)
            self.at(self.plan.end_s, self._tell, number, Asked("the schedule is over"), -1)
        for fault in self.plan.faults:
            self.at(fault.start_s, self._strike, fault)
            self.at(fault.stop_s, self._relieve, fault)
        self.at(self.plan.heal_s, self._heal)

    # -- processes ---------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        host = self.hosts[number]
        if host.is_alive or host.code is not None:
            return
        host.disk.now_s = self.now_s
        try:
            draws = stream(self.plan.seed, "count", number, host.process)
            start = begin(host.disk, draws.getrandbits(31))
        except OSError as error:  # whoever supervises the process tries again
            self.trace.say(self.now_s, number, "cannot begin", detail=str(error))
            self.at(self.now_s + AGAIN_S, self._begin, number)
            return
        host.process += 1
        host.clock = Clock(self.now_s, host.draws.uniform(0.0, 1000.0))
        host.dropped.clear()
        host.knows.clear()
        host.queue.clear()
        host.is_suspended, host.tick_s = False, float("inf")
        host.members = host.held.issue.valid(host.day.now_s(self.now_s))
        host.core = self.setting.core(number, self._verify(host))
        self.trace.say(self.now_s, number, "begins", detail=f"process {host.process}")
        self.auditor.began(self, host, start)
        self._step(host, start)
        if host.is_alive:
            self._step(host, MembersChanged(host.members))
        for peer in self.setting.neighbours[number]:
            self._relink(number, peer)

    def _begin_anew(self, host: Host) -> None:
        """Start a process again that was asked to stop."""
        host.code = None
        self._begin(host.number)

    def _verify(self, host: Host) -> Callable[[int, bytes, bytes], bool]:
        from folkman.runtime.world.signing import signed_by

        def verify(member: int, content: bytes, signature: bytes) -> bool:
            return member in host.members and signed_by(member, content, signature)

        return verify

    def _end(self, host: Host, why: str) -> None:
        self.trace.say(self.now_s, host.number, "ends", detail=why)
        self.auditor.ended(self, host)
        self._remember(host)
        host.core = None
        for peer in self.setting.neighbours[host.number]:
            self._relink(host.number, peer)

    def _tell(self, number: int, event: Event, process: int) -> None:
        """Hand an event to a process, if it is still the one that it is for; -1: to any."""
        host = self.hosts[number]
        if not host.is_alive or process not in (-1, host.process):
            return
        if host.is_suspended:
            host.keep(event)
        else:
            self._step(host, event)

    def _step(self, host: Host, event: Event, at_least_s: float = 0.0) -> None:
        core = host.core
        assert core is not None  # noqa: S101 - the caller looked
        own_s = max(host.clock.now_s(self.now_s), at_least_s)
        effects = core.step(own_s, event)
        self.trace.step(self.now_s, host.number, event, effects)
        if host.lie is not None:
            effects = host.lie.said(own_s, event, effects)
        else:
            self.auditor.stepped(self, host, event, effects)
        for effect in effects:
            self._carry_out(host, effect)
            if host.core is not core:
                return
        self._ask_tick(host)

    def _ask_tick(self, host: Host) -> None:
        assert host.core is not None  # noqa: S101 - the caller looked
        own_s = host.core.next_s()
        wanted_s = max(host.clock.world_s(own_s), self.now_s)
        if wanted_s < host.tick_s:
            host.tick_s = wanted_s
            self.at(wanted_s, self._tick, host.number, host.process, wanted_s, own_s)

    def _tick(self, number: int, process: int, asked_s: float, own_s: float) -> None:
        """Let a process look at its clock; it is not called a rounding error too early."""
        host = self.hosts[number]
        if host.process != process or not host.is_alive or asked_s != host.tick_s:
            return
        host.tick_s = float("inf")
        if not host.is_suspended:
            self._step(host, Tick(), own_s)

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, host: Host, effect: Effect) -> None:
        if isinstance(effect, Publish | Tell):
            self._put_on_its_way(host, effect)
        elif isinstance(effect, Compute):
            self._compute(host, effect)
        elif isinstance(effect, Save):
            self._save(host, effect)
        elif isinstance(effect, Note):
            host.notes.append(effect)
            self.node_slots += effect.computed
            if self._watched and effect.kind == WAKE:
                self._see_ages(host)
        elif isinstance(effect, Health):
            host.health = effect
        elif isinstance(effect, Drop):
            host.dropped.add(effect.peer)
            self._relink(host.number, effect.peer)
        elif isinstance(effect, Finish):
            host.code = effect.code
            self._end(host, f"finished with code {effect.code}")
            if host.asked is not None and effect.code == 0:
                self.at(max(host.asked.stop_s, self.now_s + AGAIN_S), self._begin_anew, host)
            host.asked = None

    def _put_on_its_way(self, host: Host, effect: Publish | Tell) -> None:
        way = self.ways.get((host.number, effect.peer))
        if way is None:
            return
        if isinstance(effect, Publish):
            if (when_s := way.publish(self.now_s, effect.data)) is not None:
                self.at(when_s, self._send, host.number, effect.peer)
        elif effect.peer in host.knows:
            coming = way.tell(self.now_s, effect.data)
            if coming is not None:
                self.at(coming.at_s, self._arrive, host.number, effect.peer, coming)
                self._see(host.number, effect.peer, coming.at_s, "word")

    def _compute(self, host: Host, effect: Compute) -> None:
        usual_s = takes_s = self.plan.slot_s * host.draws.uniform(0.05, 0.6)
        faults = (fault for fault in self.plan.faults if fault.node == host.number)
        slow = [fault for fault in faults if fault.kind == "slow_gradients"]
        for fault in slow:
            if fault.on(self.now_s):  # it ends soon after the fault does
                takes_s = min(fault.amount * takes_s, fault.stop_s - self.now_s + usual_s)
        loss, grad = self.setting.gradient(host.number, effect.point)
        done = Computed(effect.ticket, loss, grad)
        self.at(self.now_s + takes_s, self._tell, host.number, done, host.process)

    def _save(self, host: Host, effect: Save) -> None:
        operation_s = OPERATION_S * host.draws.uniform(0.5, 2.0)
        ends_s = host.ends_s(self.now_s)
        if host.ambush is not None:
            ends_s = min(ends_s, self.now_s + operation_s * host.draws.uniform(0.5, 9.0))
        done_s, wrong = carry_out(host, effect, self.now_s, operation_s, ends_s)
        if done_s == float("inf") and host.ambush is not None:
            self.at(ends_s, self._end_by, host.ambush, host.process)
        event = SaveFailed(effect.ticket, wrong) if wrong else Saved(effect.ticket)
        if not wrong and done_s < float("inf") and host.lie is None:
            self.auditor.saved(self, host, effect)
        self.at(done_s, self._tell, host.number, event, host.process)

    def _send(self, sender: int, receiver: int) -> None:
        way = self.ways[sender, receiver]
        found = way.send(self.now_s)
        for coming in found:
            self.at(coming.at_s, self._arrive, sender, receiver, coming)
            self._see(sender, receiver, coming.at_s, "model")
        if not found and way.is_up:
            self._see(sender, receiver, self.now_s + 0.3 * self.plan.slot_s, "lost")

    def _see(self, sender: int, receiver: int, at_s: float, kind: str) -> None:
        if self._watched:
            self.flights.append(Flight(self.now_s, at_s, sender, receiver, kind))

    def _see_ages(self, host: Host) -> None:
        core: Any = host.core
        formed_in = formed_slots(core.node)
        ages = tuple(max(int(core.node.slot) - formed, 0) for formed in formed_in)
        self.ages.append((self.now_s, host.number, ages, int(core.node.steps)))

    def _arrive(self, sender: int, receiver: int, coming: Arrival) -> None:
        way = self.ways[sender, receiver]
        if way.is_up and way.link == coming.link:
            event = (Told if coming.is_control else Received)(sender, coming.data)
            self._tell(receiver, event, -1)

    # -- links -------------------------------------------------------------------------------------

    def _relink(self, a: int, b: int) -> None:
        """Let the link of two members be as it should be now."""
        if (a, b) not in self.ways or (b, a) not in self.ways:
            return
        is_up = self.ways[a, b].is_up
        wanted = self._may_link(a, b)
        if wanted and not is_up:
            self.at(self.now_s + self.hosts[a].draws.uniform(0.01, 0.2), self._link_up, a, b)
        elif is_up and not wanted:
            for way in (self.ways[a, b], self.ways[b, a]):
                way.down()
            self.trace.say(self.now_s, a, "link down", b)
            self._tell_link(a, b, Unlinked(b), self.hosts[a].draws.uniform(0.0, 0.5))
            self._tell_link(b, a, Unlinked(a), self.hosts[b].draws.uniform(0.0, 0.5))

    def _may_link(self, a: int, b: int) -> bool:
        first, second = self.hosts[a], self.hosts[b]
        return (
            first.is_alive
            and second.is_alive
            and b in first.members
            and a in second.members
            and b not in first.dropped
            and a not in second.dropped
            and not self._is_silent(a, b)
        )

    def _is_silent(self, a: int, b: int) -> bool:
        return any(
            fault.on(self.now_s)
            and (
                fault.kind == "flap"
                or (fault.kind == "partition" and self.now_s >= fault.start_s + PATIENCE_S)
            )
            and {fault.node, fault.peer} == {a, b}
            for fault in self.plan.faults
        )

    def _link_up(self, a: int, b: int) -> None:
        if self.ways[a, b].is_up or not self._may_link(a, b):
            return
        for way in (self.ways[a, b], self.ways[b, a]):
            way.up()
        self.trace.say(self.now_s, a, "link up", b)
        self._tell_link(a, b, Linked(b), 0.0)
        self._tell_link(b, a, Linked(a), self.hosts[b].draws.uniform(0.0, NOTICED_S))

    def _tell_link(self, number: int, peer: int, event: Linked | Unlinked, after_s: float) -> None:
        when_s = max(self.now_s + after_s, self._tells_s.get((number, peer), 0.0))
        self._tells_s[number, peer] = when_s
        self.at(when_s, self._notice_link, number, event, self.hosts[number].process)

    def _notice_link(self, number: int, event: Linked | Unlinked, process: int) -> None:
        """Let one side notice its link: as with zenoh, a word said before that is lost."""
        host = self.hosts[number]
        if host.process == process:
            (host.knows.add if isinstance(event, Linked) else host.knows.discard)(event.peer)
            self._tell(number, event, process)

    def _relink_all(self, number: int) -> None:
        for peer in self.setting.neighbours[number]:
            self._relink(number, peer)

    # -- faults ------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        self.trace.say(self.now_s, fault.node, f"fault {fault.kind}", fault.peer, fault.said())
        host = self.hosts[fault.node]
        if fault.kind in ENDS and host.is_alive:
            if fault.amount == IN_A_SAVE:
                host.ambush = fault
            else:
                self._end_by(fault, host.process)
        elif fault.kind in ("asked", "suspend") and host.is_alive:
            self._disturb(host, fault)
        elif fault.kind == "drift":
            host.clock.run_at(self.now_s, 1.0 + fault.amount)
            self._ask_tick_anew(host)
        elif fault.kind in ("skew", "jump"):
            host.day.off_s = fault.amount
            self._read_list(host)
        elif fault.kind == "flap":
            self._relink(fault.node, fault.peer)
        elif fault.kind == "partition":
            self.at(self.now_s + PATIENCE_S, self._relink, fault.node, fault.peer)
        elif fault.kind == "revoke":
            self._issue(self.authority.change(fault.node, None))
        elif fault.kind == "expire":
            self._issue(self.authority.change(fault.node, self.now_s))
        elif fault.kind in ("old_list", "damaged_list"):
            self._offer(host, None if fault.kind == "damaged_list" else self.authority.issues[0])

    def _disturb(self, host: Host, fault: Fault) -> None:
        """Ask a process to stop, or hold it for a while."""
        if fault.kind == "asked":
            host.asked = fault
            self._tell(host.number, Asked("somebody asked"), host.process)
            return
        host.is_suspended = True
        if host.draws.random() < 0.5:  # a laptop that sleeps, not a stopped process
            host.clock.run_at(self.now_s, 0.0)

    def _end_by(self, fault: Fault, process: int) -> None:
        """End a process, and do to its disk what the fault does."""
        host = self.hosts[fault.node]
        if not host.is_alive or host.process != process:
            return
        host.ambush = None
        self._end(host, fault.kind)
        if fault.kind == "cut":
            host.disk.cut()
        elif fault.kind == "lost":
            host.disk.wipe()
            self.auditor.lost_folder(host)
        elif fault.kind == "flip":
            name = host.disk.flip()
            self.auditor.flipped(host)
            self.trace.say(self.now_s, fault.node, "bit flipped", detail=name)
        if not fault.on(self.now_s):  # the save that it waited for came as the fault was over
            self.at(self.now_s + AGAIN_S, self._begin, fault.node)

    def _relieve(self, fault: Fault) -> None:
        self.trace.say(self.now_s, fault.node, f"end of {fault.kind}", fault.peer)
        host = self.hosts[fault.node]
        if fault.kind in ENDS:
            host.ambush = None
            self._begin(fault.node)
        elif fault.kind == "suspend":
            self._resume(host)
        elif fault.kind == "drift":
            host.clock.run_at(self.now_s, 1.0)
            self._ask_tick_anew(host)
        elif fault.kind in ("skew", "jump"):
            host.day.off_s = 0.0
            self._read_list(host)
        elif fault.kind in ("flap", "partition"):
            self._relink(fault.node, fault.peer)
        elif fault.kind in ("revoke", "expire"):
            self._issue(self.authority.change(fault.node, VALID_S))
        elif fault.kind in ("old_list", "damaged_list", "late_list"):
            self._offer(host, self.authority.issues[-1])

    def _over(self) -> None:
        self.auditor.over(self)

    def _heal(self) -> None:
        self.trace.say(self.now_s, -1, "heals")
        self.auditor.healed(self)

    def _resume(self, host: Host) -> None:
        if not host.is_alive or not host.is_suspended:
            return
        host.is_suspended = False
        host.clock.run_at(self.now_s, 1.0)
        host.tick_s = float("inf")  # its clock may have stood still: when it wants one is another
        process, waiting = host.process, list(host.queue)
        host.queue.clear()
        for event in waiting:
            self._tell(host.number, event, process)
        if host.is_alive and host.process == process:
            self._step(host, Tick())
            self._read_list(host)

    def _ask_tick_anew(self, host: Host) -> None:
        if host.is_alive:
            host.tick_s = float("inf")
            self._ask_tick(host)

    def _lie(self, number: int) -> None:
        """Let a liar say what nobody asked for, once a slot."""
        host = self.hosts[number]
        assert host.lie is not None  # noqa: S101 - the caller looked
        if host.is_alive and not host.is_suspended:
            own_s = host.clock.now_s(self.now_s)
            for effect in host.lie.unasked(own_s):
                self._carry_out(host, effect)
            if host.lie.flaps:
                for peer in self.setting.neighbours[number]:
                    if self.ways[number, peer].is_up:
                        host.dropped.add(peer)
                        self._relink(number, peer)
                        host.dropped.discard(peer)
                        self._relink(number, peer)
        if self.now_s < self.plan.end_s:
            self.at(self.now_s + self.plan.slot_s, self._lie, number)

    # -- lists of members --------------------------------------------------------------------------

    def _issue(self, issue: Issue) -> None:
        """Bring a new list to every node; to some it comes late."""
        for host in self.hosts.values():
            late = any(
                fault.kind == "late_list" and fault.node == host.number and fault.on(self.now_s)
                for fault in self.plan.faults
            )
            if not late:
                self.at(self.now_s + host.draws.uniform(0.0, 0.5), self._offer, host, issue)

    def _offer(self, host: Host, issue: Issue | None) -> None:
        host.held.offer(issue)
        self._read_list(host)

    def _read_list(self, host: Host) -> None:
        """Take up who is a member now, by the node's list and its time of day."""
        members = host.held.issue.valid(host.day.now_s(self.now_s))
        changed = members != host.members
        if not host.is_alive or host.is_suspended or not (changed or host.held.refused):
            return  # a suspended process reads no list until it goes on
        host.dropped -= members - host.members  # who is a member again may be linked again
        host.members = members
        self._tell(host.number, MembersChanged(members, host.held.refused), host.process)
        if host.is_alive:
            self._relink_all(host.number)
