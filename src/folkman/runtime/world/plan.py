"""What one seed switches on: a schedule as plain data, so that it can be shown and shrunk.

Every seed draws its own few kinds of faults (swarm testing): a schedule with all of them at once
rarely gets far enough to show what two of them do together. All faults end at `heal_s`; liars stay
liars.
"""

from random import Random
from typing import NamedTuple

from folkman.runtime.codec import SERVER
from folkman.runtime.world.draws import stream

__all__ = ["DISK_KINDS", "LIES", "LINK_KINDS", "METHODS", "NODE_KINDS", "Fault", "Plan", "plan_of"]

FIRST_METHODS = ("alone", "emulated", "rounds", "server")
"""Algorithm 1 on measured links, the same on the emulated channel, D-PSGD, FedAvg."""
CARRIED = ("sum", "forward", "feedback")
"""Algorithm 1 on measured links whose messages are sums, copies that are passed on, or changes of
the message before (error feedback)."""
ON_A_BAND = {"band_sum": "sum", "band_forward": "forward"}
"""The same sums and copies in the slots of an emulated band."""
METHODS = (*FIRST_METHODS, *CARRIED, *ON_A_BAND)
LINK_KINDS = ("loss", "duplicate", "reorder", "delay", "partition", "narrow", "flap")
NODE_KINDS = ("kill", "cut", "lost", "suspend", "slow_gradients", "drift", "skew", "jump")
MEMBER_KINDS = ("revoke", "expire", "late_list", "old_list", "damaged_list")
DISK_KINDS = ("full", "slow", "failing", "flip")
OF_A_SERVER = ("kill", "cut", "suspend", "drift", "full", "slow", "failing")
"""Kinds that a server may meet; one that loses its state has lost the run."""
LIES = (
    "never_acknowledges",
    "acknowledges_all",
    "poison",
    "clock",
    "rate",
    "flood",
    "old_life",
    "equivocation",
    "wrong_round",
    "flapping",
)
"""What a byzantine member does; it keeps to the format and has a member's key."""
LIVENESS_S = 8.0
"""X: after the last fault honest nodes have so long to hear from each other."""
AIR_SLOTS = 8
"""Slots that a message may wait and travel on the emulated air, beyond that."""
CARRIED_SHARE = 0.25
"""Of the schedules on measured links: in so many, messages are of another kind."""
GRID_SHARE = 0.5
"""Of the schedules of sums: in so many their entries are whole numbers."""
BAND_SHARE = 0.2
"""Of the schedules on the emulated channel: in so many it is a band of sums or copies."""
ASKED_SHARE = 0.1
"""Of the schedules: in so many somebody asks a node to stop, and starts it again."""
MET_SHARE = 0.25
"""Of the schedules in which a process ends: in so many it ends when it hurts most."""
SERVER_SHARE = 0.4
"""Of the faults around a server: in so many it is the server's, or on the way from it."""
LOST_SHARE = 0.2
"""Of the schedules with error feedback: in so many a folder is lost soon."""
CALM_SHARE = 0.06
"""Of the schedules: in so many nothing goes wrong, but starts, disks and gradients take long."""
CALM_KINDS = ("late", "slow", "slow_gradients", "revoke")
"""What may happen in these: nobody may wait out a limit."""
ONE_LIAR_FROM = 3
"""Nodes from which one may lie: two honest ones must be left to ask something of."""


IN_A_SAVE = 1.0
"""Amount of an end that comes in the middle of the next save, not at its own time."""


class Fault(NamedTuple):
    """One thing that goes wrong, from `start_s` to `stop_s`."""

    kind: str
    node: int
    start_s: float
    stop_s: float
    amount: float = 0.0
    peer: int = -1  # of faults of a link from `node` to `peer`

    def on(self, now_s: float) -> bool:
        """Tell whether it is on."""
        return self.start_s <= now_s < self.stop_s

    def said(self) -> str:
        """Return the fault in words."""
        ends = ["server" if each == SERVER else str(each) for each in (self.node, self.peer)]
        where = "->".join(ends) if self.peer >= 0 else f"node {self.node}"
        amount = f" {self.amount:.3g}" if self.amount else ""
        return f"{self.kind}{amount} at {where}, {self.start_s:.2f} to {self.stop_s:.2f} s"


class Plan(NamedTuple):
    """A schedule before it is run."""

    seed: int
    method: str
    nodes: int  # learners; around a server there is one more member
    slots: int
    slot_s: float
    steps: int | None  # gradients to take; None: until asked to stop
    heal_s: float
    end_s: float
    liars: tuple[tuple[int, str], ...]
    faults: tuple[Fault, ...]
    dim: int = 8
    on_grid: bool = False  # are sums of whole numbers, which add up exactly?

    def lie_of(self, node: int) -> str:
        """Return what a member lies about; nothing if it is honest."""
        return dict(self.liars).get(node, "")

    @property
    def honest(self) -> list[int]:
        """Return the learners that do not lie."""
        return [node for node in range(self.nodes) if not self.lie_of(node)]

    @property
    def carries(self) -> str:
        """Return what a message is: sum, forward, feedback, or copy."""
        method = ON_A_BAND.get(self.method, self.method)
        return method if method in CARRIED else "copy"

    @property
    def in_slots(self) -> bool:
        """Tell whether nodes live in the slots of an emulated channel."""
        return self.method == "emulated" or self.method in ON_A_BAND

    def late_s(self, node: int) -> float:
        """Return when a member is first started."""
        return max(
            (f.stop_s for f in self.faults if (f.kind, f.node) == ("late", node)), default=0.0
        )

    def without_faults(self) -> "Plan":
        """Return the fault-free twin."""
        return self._replace(faults=(), liars=())


def plan_of(seed: int, method: str | None = None, slots: int | None = None) -> Plan:
    """Draw the schedule of a seed."""
    draws = stream(seed, "plan")
    drawn_method = draws.choice((*FIRST_METHODS, "alone"))
    carried = stream(seed, "carried")  # of its own: other schedules stay what they were
    if drawn_method == "alone" and carried.random() < CARRIED_SHARE:
        drawn_method = carried.choice((*CARRIED, "feedback"))  # whose schedules are short
    band = stream(seed, "band")
    if drawn_method == "emulated" and band.random() < BAND_SHARE:
        drawn_method = band.choice(tuple(ON_A_BAND))
    grid = stream(seed, "grid")
    nodes = draws.choice((2, 2, 3, 3, 4, 5))
    drawn_slots = draws.choice((6, 8, 12, 20))
    method, slots = method or drawn_method, slots or drawn_slots
    slot_s = draws.choice((0.5, 1.0, 1.0, 1.0))
    steps = draws.choice((None, slots // 2, slots))
    heal_s = slots * slot_s * 0.6
    waits = method in ("rounds", "server") and steps is not None
    finishing_s = 2.0 * slots * slot_s if waits else 0.0  # all rounds may be left when faults end
    if method == "emulated" or method in ON_A_BAND:
        finishing_s = AIR_SLOTS * slot_s
    kinds = [*LINK_KINDS, *NODE_KINDS, *MEMBER_KINDS, *DISK_KINDS]
    on = draws.sample(kinds, draws.choice((0, 1, 1, 2, 2, 3, 4, 6)))
    if on and draws.random() < 0.4:  # most of what a disk does wrong shows after an end alone
        on = list(dict.fromkeys([*on, draws.choice(("kill", "cut", "cut", "flip"))]))
    faults: list[Fault] = []
    for kind in on:
        for number in range(draws.choice((1, 1, 2, 3))):
            faults.append(_fault(kind, stream(seed, kind, number), nodes, heal_s, slot_s))
    asked = stream(seed, "asked")
    if asked.random() < ASKED_SHARE:
        faults.append(_fault("asked", asked, nodes, heal_s, slot_s))
    lost = stream(seed, "lost")
    if method == "feedback" and lost.random() < LOST_SHARE:
        start_s = lost.uniform(0.5, 4.0) * slot_s  # before much was sent: numbers are used again
        stop_s = min(start_s + slot_s, heal_s)
        faults.append(Fault("lost", lost.randrange(nodes), min(start_s, heal_s / 2), stop_s))
    faults = _met(stream(seed, "met"), faults, nodes, heal_s)
    if method == "server":
        faults = _around(stream(seed, "around"), faults)
    calm = stream(seed, "calm")
    if is_calm := calm.random() < CALM_SHARE:
        faults = _calm(calm, nodes, heal_s)
    liars = ()
    if not is_calm and nodes >= ONE_LIAR_FROM and draws.random() < 0.35:
        liars = ((draws.randrange(nodes), draws.choice(LIES)),)
    return Plan(
        seed=seed,
        method=method,
        nodes=nodes,
        slots=slots,
        slot_s=slot_s,
        steps=steps,
        heal_s=heal_s,
        end_s=heal_s + max(0.4 * slots * slot_s, LIVENESS_S) + finishing_s,
        liars=liars,
        faults=tuple(_apart(faults)),
        on_grid=ON_A_BAND.get(method, method) == "sum" and grid.random() < GRID_SHARE,
    )


def _fault(kind: str, draws: Random, nodes: int, heal_s: float, slot_s: float) -> Fault:
    start_s = draws.uniform(0.0, 0.8) * heal_s
    stop_s = min(heal_s, start_s + draws.choice((1.0, 3.0, 10.0, 30.0)) * slot_s)
    node = draws.randrange(nodes)
    if kind in LINK_KINDS:
        peer = draws.choice([each for each in range(nodes) if each != node])
        if draws.random() < 0.3:
            start_s, stop_s = 0.0, heal_s
        return Fault(kind, node, start_s, stop_s, _amount(kind, draws, slot_s), peer)
    return Fault(kind, node, start_s, stop_s, _amount(kind, draws, slot_s))


def _calm(draws: Random, nodes: int, heal_s: float) -> list[Fault]:
    """Let nodes start one after the other, on disks and with gradients that take their time."""
    faults = []
    for node in range(nodes):
        late_s = min(draws.choice((0.0, 0.3, 1.0, 1.5, 3.0)), heal_s)
        faults.append(Fault("late", node, 0.0, late_s))
        if draws.random() < 0.4:
            faults.append(Fault("slow", node, 0.0, heal_s, draws.choice((3.0, 10.0, 30.0))))
        if draws.random() < 0.2:
            faults.append(Fault("slow_gradients", node, 0.0, heal_s, 2.0))
    if draws.random() < 0.2:
        other = draws.choice(faults)  # when another one begins, or some time after
        start_s = draws.choice((0.0, min(other.stop_s + 0.5 * draws.random(), heal_s)))
        faults.append(Fault("revoke", draws.randrange(nodes), start_s, heal_s))
    return faults


def _met(draws: Random, faults: list[Fault], nodes: int, heal_s: float) -> list[Fault]:
    """Let what rarely comes together do so: an end within a cut of its link, or after another."""
    ends = [fault for fault in faults if fault.kind in ENDS]
    if not ends or draws.random() >= MET_SHARE:
        return faults
    end = draws.choice(ends)
    start_s = draws.random() * end.start_s
    if draws.random() < 0.5:
        stop_s = start_s + 0.3 * (end.start_s - start_s)
        return [*faults, Fault("kill", end.node, start_s, stop_s)]
    peer = draws.choice([each for each in range(nodes) if each != end.node])
    return [*faults, Fault("partition", end.node, start_s, min(end.stop_s, heal_s), 0.0, peer)]


def _around(draws: Random, faults: list[Fault]) -> list[Fault]:
    """Let faults of links be on the way to the server, or back; some others are the server's."""

    def moved(fault: Fault) -> Fault:
        is_here = draws.random() < SERVER_SHARE
        if fault.peer >= 0:
            way = (SERVER, fault.node) if is_here else (fault.node, SERVER)
            return fault._replace(node=way[0], peer=way[1])
        return fault._replace(node=SERVER) if is_here and fault.kind in OF_A_SERVER else fault

    return [moved(fault) for fault in faults]


def _amount(kind: str, draws: Random, slot_s: float) -> float:  # noqa: PLR0911 - a table
    if kind in ("loss", "duplicate", "reorder"):
        return draws.choice((0.1, 0.5, 0.9))
    if kind == "delay":
        return draws.choice((0.2, 1.0, 3.0)) * slot_s
    if kind == "narrow":
        return draws.choice((500.0, 2000.0, 8000.0)) / slot_s  # bit/s; a message has about 1500
    if kind == "slow_gradients":
        return draws.choice((2.0, 5.0, 20.0))
    if kind == "drift":
        return draws.uniform(-0.02, 0.02)
    if kind in ("skew", "jump"):
        return draws.choice((-1.0, 1.0)) * draws.choice((1.0, 60.0, 86_400.0 * 30))
    if kind in ENDS:
        return draws.choice((0.0, IN_A_SAVE))
    return draws.choice((1.0, 10.0, 100.0)) if kind == "slow" else 0.0


def _apart(faults: list[Fault]) -> list[Fault]:
    """Let a node end and begin again before it ends again."""
    kept: list[Fault] = []
    ended_s: dict[int, float] = {}
    for fault in sorted(faults, key=lambda each: (each.start_s, each.kind, each.node)):
        if fault.kind in (*ENDS, "asked"):
            if fault.start_s < ended_s.get(fault.node, 0.0):
                continue
            ended_s[fault.node] = fault.stop_s
        kept.append(fault)
    return kept


ENDS = ("kill", "cut", "lost", "flip")
"""Faults that end a process: it alone, with the power, with its folder, with a bit of its disk."""
