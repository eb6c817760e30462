"""What is asked of a node or a schedule as a whole: invariants 6, 12 and 19."""

from collections import deque
from collections.abc import Iterable, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from folkman.runtime.codec import Message, encode
from folkman.runtime.core.events import Publish
from folkman.runtime.journal import WAKE
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.cores import RUN
from folkman.runtime.world.plan import ENDS

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Bounded", "Replays", "SameTrace", "bytes_held"]

COPIES = 24
"""c: models that a node may hold for itself and each neighbour, with their headers."""
FIXED_BYTES = 32_768
"""For what does not depend on neighbours or parameters: a stretch of the emulated channel."""
EVERY = 200
"""Steps between two looks."""
ROUNDED = 1e-5
"""Of a parameter: what sums of float32 have lost on their ways by the end of a schedule."""


def bytes_held(root: object, leave: Iterable[object]) -> int:
    """Return the bytes of all arrays and messages that can be reached from an object."""
    seen = {id(each) for each in leave}
    stack: list[Any] = [root]
    total = 0
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind in WEIGHTLESS or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            total += item.nbytes
        elif isinstance(item, bytes | bytearray):
            total += len(item)
        elif isinstance(item, dict):
            stack += item.keys()
            stack += item.values()
            total += 8 * len(item)
        elif isinstance(item, tuple | list | set | frozenset | deque):
            stack += item
            total += 8 * len(item)
        elif hasattr(item, "__dict__") and not isinstance(item, type):
            stack += vars(item).values()
    return total


WEIGHTLESS = frozenset(
    {str, int, float, bool, type(None), type, FunctionType, MethodType, ModuleType}
)
"""Kinds that hold no model."""


class Bounded(Invariant):
    """6: a node holds a fixed number of models for each neighbour, whatever comes."""

    number = 6
    sentence = "memory is bounded by c (neighbours + 1) d"

    def __init__(self) -> None:
        self._steps = 0

    def stepped(self, seen: Seen) -> None:
        """Weigh a core now and then."""
        self._steps += 1
        if self._steps % EVERY == 0:
            self._weigh(seen.world, seen.host)

    def ended(self, world: "World", host: "Host") -> None:
        """Weigh it at its end."""
        self._weigh(world, host)

    def _weigh(self, world: "World", host: "Host") -> None:
        core: Any = host.core
        neighbours = len(world.setting.neighbours[host.number])
        model = 8 * world.plan.dim + 256
        most = FIXED_BYTES + COPIES * (neighbours + 1) * model
        shared = [getattr(core.node, "problem", None), core.node.algorithm, world.setting.network]
        held = bytes_held(core, shared)
        if held > most:
            raise broken(self, f"node {host.number} holds {held} bytes, {most} at most")


class Replays(Invariant):
    """12: what the journal says is what happened.

    A journal has the stamps of a sum. Whole numbers add up to the same bits in any order. Floating
    sums are rounded wherever they were carried, and are compared within that.
    """

    number = 12
    sentence = "journals replay to the same bits"
    looks_at = (Publish,)

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int], bytes] = {}
        self._parts: dict[tuple[int, int], NDArray] = {}  # (origin, stamp) -> its part of a sum

    def asks(self, world: "World") -> bool:
        """Only schedules in which nobody began again, lied or forgot; except of sums a sample."""
        told = {*ENDS, "asked", "revoke", "expire", "skew", "jump", "old_list"}
        kinds = {fault.kind for fault in world.plan.faults}
        plan = world.plan
        asked = plan.method in ("alone", "emulated", "forward", "feedback") and plan.seed % 5 == 0
        return (asked or plan.carries == "sum") and not plan.liars and not kinds & told

    def stepped(self, seen: Seen) -> None:
        """Keep every message, and of sums every part that is put into one."""
        for content in seen.contents:
            params = np.frombuffer(content.params, np.float32)
            message = Message(RUN, content.origin, content.sequence, content.slot, params)
            self._messages[content.origin, content.sequence] = encode(message)
        if seen.world.plan.carries == "sum":
            for stamp, part in seen.node.mailbox.past.items():
                self._parts.setdefault((seen.host.number, stamp), part)

    def end(self, world: "World") -> None:
        """Live every journal again, slot by slot, on nodes that hear exactly what it says."""
        hear = self._hear_sum if world.plan.carries == "sum" else self._hear
        for number, host in world.hosts.items():
            node = world.setting.replaying_node(number)
            for note in host.notes:
                if note.kind != WAKE:
                    continue
                hear(node, note.sequence)
                node.slot = note.slot
                node.wake()
            ends, lived = np.asarray(node.params()), world.last_params.get(number)
            if lived is not None and not self._alike(world, ends, lived):
                raise broken(self, f"the journal of node {number} leads elsewhere")

    def _hear(self, node: Any, numbers: Sequence[int]) -> None:
        """Let a node take the messages of these numbers, by their senders."""
        for sender, sequence in enumerate(numbers[: len(node.mailbox.sequence)]):
            if sequence and sequence > node.mailbox.held_of(sender):
                node.receive(self._messages[sender, sequence])

    def _hear_sum(self, node: Any, stamps: Sequence[int]) -> None:
        """Let a node hold the sum of the parts with these stamps."""
        box = node.mailbox
        named = np.array(stamps[: len(box.sequence)], np.int64)
        if (named == box.sequence).all():
            return
        others = box.parts.first_others(node.index)
        for origin, stamp in enumerate(named.tolist()):
            if stamp:
                first = box.parts.of(origin, box.parts.initial)
                others = others + self._parts[origin, stamp] - first
        box.others, box.sequence = others, named

    @staticmethod
    def _alike(world: "World", ends: NDArray, lived: NDArray) -> bool:
        """Tell whether parameters are the same, bit for bit unless sums were rounded."""
        if world.plan.carries == "sum" and not world.plan.on_grid:
            return bool(np.allclose(ends, lived, rtol=0.0, atol=ROUNDED))
        return ends.tobytes() == lived.tobytes()


class SameTrace(Invariant):
    """19: a seed is all that a schedule depends on."""

    number = 19
    sentence = "same seed, same trace"

    def asks(self, world: "World") -> bool:
        """Every schedule has a second run to be compared with, so a sample is asked."""
        return world.plan.seed % 25 == 0 and world.compares

    def end(self, world: "World") -> None:
        """Run the schedule once more."""
        from folkman.runtime.world.swarm import digest_again

        again = digest_again(world.plan)
        if again != world.trace.digest:
            raise broken(self, f"the trace is {world.trace.digest}, and {again} the second time")
