"""The cores of a schedule: the same classes as on a device, built around a small problem."""

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.arrays import Array
from folkman.packing.packing import NONE, Packing, fixed, top_k
from folkman.runtime.codec import SERVER, Verify
from folkman.runtime.core.core import Core
from folkman.runtime.core.pace import Pace
from folkman.runtime.core.settings import Settings
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Node, Wire
from folkman.runtime.server_node import ServerNode
from folkman.runtime.ways import way_of
from folkman.runtime.world.plan import ON_A_BAND, Plan
from folkman.runtime.world.quadratic import Quadratic
from folkman.runtime.world.signing import signer

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host

__all__ = ["Setting"]

RUN = 0x5EED
STEP = 0.1
NEAR_SLOTS = 256
"""Slots of the emulated channel that are kept for all schedules."""
BAND_SLOTS = 0.6
"""Slots of a message on the emulated band."""
LARGEST = 64.0
"""Of an entry of a sum of whole numbers; the optimum is within 4."""
KEPT = 0.5
"""Of the entries of a message, where what is left out is remembered."""
_NEIGHBOURS: dict[tuple[str, int], dict[int, list[int]]] = {}
"""Who hears whom, by method and number of nodes: the same in every schedule."""


@cache
def _algorithm(method: str) -> Algorithm:
    """Return the algorithm of a method; one object for all schedules."""
    if method == "rounds":
        from folkman.algorithm.dpsgd import dpsgd

        return dpsgd(STEP)
    if method == "server":
        from folkman.algorithm.fedavg import fedavg

        return fedavg(STEP, local_steps=2)
    from folkman.algorithm.async_sharing import async_sharing

    return async_sharing(STEP)


def _kind(plan: Plan) -> Any:
    """Return what builds the learners of a schedule."""
    if plan.carries not in ("sum", "forward"):
        return Node
    from folkman.runtime.fresh_node import ForwardNode, SumNode
    from folkman.runtime.sum_box import SumRules

    rules = SumRules(frozenset(range(plan.nodes)), paced=plan.in_slots)
    return partial({"sum": SumNode, "forward": ForwardNode}[plan.carries], rules=rules)


@cache
def _packing(method: str, *, on_grid: bool) -> Packing:
    if on_grid:
        return fixed(largest=LARGEST)
    return top_k(KEPT, feedback=True) if method == "feedback" else NONE


class Setting:
    """What all members of a schedule have in common."""

    run = RUN

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.algorithm = _algorithm(plan.method)
        self.shares = np.full(plan.nodes, 1.0 / plan.nodes)
        self.settings = settings_of(plan)
        self._problems = [
            Quadratic.of(plan.seed, index, plan.nodes, plan.dim) for index in range(plan.nodes)
        ]
        self.members = members_of(plan)
        key = (plan.method, plan.nodes)
        if key not in _NEIGHBOURS:
            _NEIGHBOURS[key] = {
                number: list(self.node(number, None).neighbours) for number in self.members
            }
        self.neighbours = _NEIGHBOURS[key]
        self._way = way_of(self.algorithm)
        self.counts_on = self._way.loses_nothing
        """Do messages keep counting over lives, since none may be lost?"""
        self.network: Any = None  # the emulated channel or band, rolled out once for all
        self.lost = frozenset(f.node for f in plan.faults if f.kind in ("lost", "flip"))
        """Who may go on from an earlier state than its last save, or from none."""

    def node(self, number: int, verify: Verify | None) -> Any:
        """Return a node without a core."""
        packing = _packing(self.plan.method, on_grid=self.plan.on_grid)
        wire = Wire(RUN, signer(number), Checks(verify), packing=packing)
        if number == SERVER:
            first = self._problems[0].initial
            return ServerNode(first, self.algorithm, self.shares, seed=self.plan.seed, wire=wire)
        problem: Any = self._problems[number]
        kind = _kind(self.plan)
        return kind(number, problem, self.algorithm, self.shares, seed=self.plan.seed, wire=wire)

    def replaying_node(self, number: int) -> Any:
        """Return one that hears whole copies, whatever messages hold; of sums the same kind."""
        if self.plan.carries == "sum":
            return self.node(number, None)
        problem: Any = self._problems[number]
        wire = Wire(RUN)
        return Node(number, problem, self.algorithm, self.shares, seed=self.plan.seed, wire=wire)

    def core(self, number: int, verify: Verify) -> Core:
        """Return a new core, as a process begins with."""
        node = self.node(number, verify)
        settings = self.settings if self.learns(number) else self.settings._replace(steps=None)
        return Core(node, settings, self._pace(number, node), verify=verify)

    def _pace(self, number: int, node: Any) -> Pace:
        if not self.learns(number):
            from folkman.runtime.core.rounds import Serving

            return Serving()
        if self.plan.method in ("rounds", "server"):
            from folkman.runtime.core.rounds import InRounds

            return InRounds()
        if self.plan.method == "emulated":
            from folkman.runtime.core.slots import EmulatedSlots

            return EmulatedSlots(self._air(number))
        if self.plan.method in ON_A_BAND:
            from folkman.runtime.core.fresh_slots import FreshSlots

            return FreshSlots(self._band(number, node))
        if self.plan.carries in ("sum", "forward"):
            from folkman.runtime.core.fresh_beat import FreshBeat

            return FreshBeat(node, self.settings.period_timeout_s)
        from folkman.runtime.core.own_beat import OwnBeat

        return OwnBeat()

    def _air(self, number: int) -> Any:
        if self.network is None:
            self.network = _RolledOnce()
        network: Any = self.network
        bits = 32 * self.plan.dim
        return self._way.air(
            network, self.plan.nodes, number, seed=self.plan.seed, message_bits=bits
        )[0]

    def _band(self, number: int, node: Any) -> Any:
        from folkman.runtime.fresh_air import FreshAir

        nodes, message = self.plan.nodes, self.plan.carries
        self.network = told = _told_once(message, nodes, node.bits())
        peers = told.peers
        return FreshAir(peers, nodes, number, seed=0, message_bits=node.bits(), told=_Telling(told))

    def gradient(self, number: int, point: Array) -> tuple[Array, Array]:
        """Return loss and gradient, as a device's worker does (`Node.gradient`)."""
        return self._problems[number].gradient(point)

    def learns(self, number: int) -> bool:
        """Tell whether a member takes gradients."""
        return number != SERVER

    def first_sender(self, number: int) -> int:
        """Return the number of the first row of a member's mailbox."""
        return self._way.first_sender(number) if self.learns(number) else 0

    def heard_by(self, number: int) -> list[int]:
        """Return whom a member hears."""
        return self.neighbours[number]

    def has_lost(self, a: int, b: int) -> bool:
        """Tell whether one of two members loses its last state in this schedule."""
        return a in self.lost or b in self.lost

    def is_done(self, host: "Host") -> bool:
        """Tell whether a member has taken all its steps, or has ended by itself."""
        core: Any = host.core
        if core is None:
            return host.code is not None
        steps = self.settings.steps
        return self.learns(host.number) and steps is not None and core.node.steps >= steps


class _RolledOnce:
    """A network that is rolled out once for all nodes and schedules.

    What becomes of a slot depends on the phases and on the slot's number alone: everybody offers in
    every slot, and `pipelined` draws its phases and nothing else.
    """

    def __init__(self) -> None:
        network, self._known = _pipelined()
        self._peers, self.packing = network.peers(), network.packing
        self._far: dict[tuple[int, bytes], Any] = {}

    def peers(self) -> "_RolledOnce":
        """Return itself."""
        return self

    def init(self, num_nodes: int, key: Array) -> Any:
        """Return the first state."""
        return self._peers.init(num_nodes, key)

    def step(self, state: Any, offers: Array, bits: int, key: Array) -> Any:
        """Return what becomes of a slot."""
        slot = int(state.slot)
        name, known = (slot, state.phase.tobytes()), self._known
        if slot >= NEAR_SLOTS:  # where a clock was led astray: of no use to other schedules
            known = self._far
        if name not in known:
            known[name] = self._peers.step(state, offers, bits, key)
        return known[name]


class _ToldOnce:
    """A band that is told once for all nodes and schedules: nothing of it is drawn."""

    def __init__(self, message: Any, nodes: int, bits: int) -> None:
        from folkman.keys import Stream, make_key
        from folkman.radio.shared import shared
        from folkman.radio.unrolled import Unrolled

        self.peers = shared(BAND_SLOTS, message=message).peers()
        band: Any = self.peers
        self._band = Unrolled(band, nodes, bits, make_key(0, Stream.DELAY))
        self._slots: list[list[Any]] = []
        self._starts: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int, int], int] = {}

    def slot(self, number: int) -> list[Any]:
        """Return what happens in a slot, counted from 0."""
        while len(self._slots) <= number:
            found = self._band.next_slot()
            self._slots.append(found)
            self._starts |= {(e.sender, e.number): e.slot for e in found if not e.ends}
            ends = (each for each in found if each.ends)
            self._ends |= {(e.sender, e.number, j): e.slot for e in ends for j in e.receivers}
        return self._slots[number]

    def start_of(self, sender: int, number: int) -> int | None:
        """Return the slot in which a transfer begins, of those that were told so far."""
        return self._starts.get((sender, number))

    def end_of(self, sender: int, number: int, receiver: int) -> int | None:
        """Return the slot in which a receiver takes a transfer, of those that were told so far."""
        return self._ends.get((sender, number, receiver))


@cache
def _told_once(message: str, nodes: int, bits: int) -> _ToldOnce:
    return _ToldOnce(message, nodes, bits)


class _Telling:
    """One node's place in a band that is told."""

    def __init__(self, told: _ToldOnce) -> None:
        self._told, self._next = told, 0

    def next_slot(self) -> list[Any]:
        """Return what happens in the next slot."""
        self._next += 1
        return self._told.slot(self._next - 1)


@cache
def _pipelined() -> tuple[Any, dict[tuple[int, bytes], Any]]:
    """Return the network of all schedules, and what is known of its slots."""
    from folkman.radio.delay import pipelined

    return pipelined(3), {}


def members_of(plan: Plan) -> list[int]:
    """Return the numbers of all members."""
    return [*range(plan.nodes), *([SERVER] if plan.method == "server" else [])]


def settings_of(plan: Plan) -> Settings:
    """Return how the nodes of a schedule live: shorter times than on devices, in proportion."""
    return Settings(
        steps=plan.steps,
        slot_s=plan.slot_s,
        save_every_s=3 * plan.slot_s,
        keep_every_s=2.0,
        period_timeout_s=3.0,
        retry_s=1.5,
        start_wait_s=2.0,
        linger_s=6.0,
        alone_s=5.0,
    )
