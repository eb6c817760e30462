"""One member of a world: a disk that outlives it, clocks, and a process that comes and goes."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from folkman.runtime import durable
from folkman.runtime.core.events import Effect, Event, Health, Note, Received, Save, Start, Told
from folkman.runtime.world.clock import Clock, TimeOfDay
from folkman.runtime.world.disk import Interrupted, Trouble, VirtualDisk
from folkman.runtime.world.draws import stream
from folkman.runtime.world.plan import DISK_KINDS, ENDS, Fault, Plan

if TYPE_CHECKING:
    from folkman.runtime.world.byzantine import Lie
    from folkman.runtime.world.members import Held

__all__ = ["FINGERPRINT", "Core", "Host", "begin", "carry_out", "write"]

FINGERPRINT = "world"
MOST_TOLD = 256
"""Control messages of one neighbour that wait for a suspended process."""
OPERATION_S = 0.002
"""Of a disk without faults."""


class Core(Protocol):
    """What the world asks of a core."""

    def step(self, now_s: float, event: Event) -> list[Effect]:
        """Take an event, and return what is to be done, in this order."""
        ...

    def next_s(self) -> float:
        """Return when a Tick is wanted at the latest."""
        ...


class Host:
    """A member: what of it lasts, and its process while there is one."""

    def __init__(self, number: int, plan: Plan, held: "Held", lie: "Lie | None") -> None:
        self.number, self.held, self.lie = number, held, lie
        mine = [fault for fault in plan.faults if fault.node == number and fault.peer < 0]
        ails = [fault for fault in mine if fault.kind in DISK_KINDS]
        self.disk = VirtualDisk(
            stream(plan.seed, "folder", number), lambda now_s: _trouble(ails, now_s)
        )
        self._ends = sorted(f.start_s for f in mine if f.kind in ENDS and not f.amount)
        self.day = TimeOfDay()
        self.draws = stream(plan.seed, "host", number)
        self.clock = Clock(0.0, 0.0)
        self.core: Core | None = None
        self.process = 0  # how often one has begun
        self.code: int | None = None  # with which the process ended by itself
        self.health: Health | None = None
        self.notes: list[Note] = []
        self.members: frozenset[int] = frozenset()
        self.dropped: set[int] = set()
        self.knows: set[int] = set()  # peers whose links this side has noticed: words go to these
        self.is_suspended = False
        self.ambush: Fault | None = None  # an end that waits for the next save
        self.asked: Fault | None = None  # somebody wants the process to stop, and begin again
        self.queue: deque[Event] = deque()
        self.tick_s = float("inf")  # when the next Tick is on the heap

    @property
    def is_alive(self) -> bool:
        """Tell whether there is a process."""
        return self.core is not None

    def ends_s(self, now_s: float) -> float:
        """Return when the process will be ended from outside."""
        return next((each for each in self._ends if each > now_s), float("inf"))

    def keep(self, event: Event) -> None:
        """Keep what comes while the process is suspended: as transports do."""
        if isinstance(event, Received):
            self.queue = deque(
                each
                for each in self.queue
                if not (isinstance(each, Received) and each.peer == event.peer)
            )
        if isinstance(event, Told):
            waiting = [e for e in self.queue if isinstance(e, Told) and e.peer == event.peer]
            if len(waiting) >= MOST_TOLD:  # the oldest word goes, as in `folkman.runtime.drive`
                self.queue.remove(waiting[0])
        self.queue.append(event)


def begin(disk: VirtualDisk, draw: int = 0) -> Start:
    """Read what a process begins with, by the functions that a device uses."""
    durable.remove_parts(disk)
    saved, life = durable.read_state(disk, FINGERPRINT), durable.read_life(disk)
    return Start(saved.arrays, life.life, saved.warnings + life.warnings, draw)


def carry_out(
    host: Host, save: Save, now_s: float, operation_s: float, ends_s: float
) -> tuple[float, str]:
    """Save by the functions that a device uses; return when it is done, and what went wrong.

    A process that will end at `ends_s`, in the middle of it, leaves the disk as it is then; the
    time is infinite.
    """
    disk = host.disk
    disk.now_s, disk.operation_s, disk.ends_s = now_s, operation_s, ends_s
    try:
        write(disk, save)
    except Interrupted:
        return float("inf"), ""
    except (OSError, ValueError) as error:
        return disk.now_s, str(error) or type(error).__name__
    finally:
        disk.ends_s, disk.operation_s = float("inf"), 0.0
    return disk.now_s, ""


def write(disk: VirtualDisk, save: Save) -> None:
    """Write what a save asks for, by the functions that a device uses and in its order."""
    if save.life is not None:
        durable.save_life(disk, save.life)
    if save.state is not None:
        durable.save_state(disk, save.state, FINGERPRINT)
    if save.final is not None:
        durable.save_final(disk, save.final, FINGERPRINT)


def _trouble(ails: Iterable[Fault], now_s: float) -> Trouble:
    on = [fault for fault in ails if fault.on(now_s)]
    if not on:
        return _WELL
    kinds = {fault.kind for fault in on}
    slow = max((fault.amount for fault in on if fault.kind == "slow"), default=1.0)
    return Trouble("full" in kinds, "failing" in kinds, slow)


_WELL = Trouble()
