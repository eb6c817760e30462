"""What a core is told, and what it wants done: the whole seam between decisions and the world.

    core.step(now_s, event) -> [effect, ...]        core.next_s() -> when it wants a Tick, or inf

A core never waits, reads a clock, or touches a socket or a file. Whoever owns these carries the
effects out in their order and reports back by events. In production that is one asyncio loop with
two workers; in `folkman.runtime.world` it is a heap of events under a virtual clock.

`now_s` is monotonic time: it never falls, and it says nothing of the time of day. A ticket names
one piece of work of a worker; there is at most one gradient and one save under way at a time.
"""

from typing import NamedTuple, TypeAlias

from numpy.typing import NDArray

from folkman.arrays import Array

__all__ = [
    "Asked",
    "Compute",
    "ComputeFailed",
    "Computed",
    "Drop",
    "Effect",
    "Event",
    "Finish",
    "Health",
    "Linked",
    "Log",
    "MembersChanged",
    "Note",
    "Publish",
    "Received",
    "Refused",
    "Save",
    "SaveFailed",
    "Saved",
    "Start",
    "Tell",
    "Tick",
    "Told",
    "Unlinked",
]

Arrays: TypeAlias = dict[str, NDArray]
"""A node by the names of its arrays."""


# -- events: what happened ---------------------------------------------------------------------


class Start(NamedTuple):
    """The process has begun, and this is what its disk had."""

    state: Arrays | None  # of the last good save; None: a first start, or nothing readable
    life: int  # number of the last life that the disk remembers; 0: none
    warnings: tuple[str, ...] = ()  # what was found damaged, one sentence each
    draw: int = 0  # at random below 2^31: where numbers may begin in this life


class Tick(NamedTuple):
    """Time has passed; at the latest when `next_s` asked for it."""


class Linked(NamedTuple):
    """A link is up."""

    peer: int


class Unlinked(NamedTuple):
    """A link is down; what was on it may be lost."""

    peer: int


class Received(NamedTuple):
    """Parameters came: the newest of this peer, others may have been overwritten."""

    peer: int
    data: bytes


class Told(NamedTuple):
    """A control message came, in order after those before it on this link."""

    peer: int
    data: bytes


class Computed(NamedTuple):
    """The gradient of `Compute` is there."""

    ticket: int
    loss: Array
    grad: Array


class ComputeFailed(NamedTuple):
    """The gradient raised an exception: a fault of the problem's code."""

    ticket: int
    text: str


class Saved(NamedTuple):
    """The save of this ticket would survive a power cut from now on."""

    ticket: int


class SaveFailed(NamedTuple):
    """The disk refused the save of this ticket; what was there before still is."""

    ticket: int
    text: str


class MembersChanged(NamedTuple):
    """The signed list of members was read again: these are in it and valid now."""

    members: frozenset[int]
    text: str = ""  # why a list was refused; the members are then those of before


class Refused(NamedTuple):
    """The transport let somebody not in."""

    reason: str
    text: str


class Asked(NamedTuple):
    """A signal, or the owner of the process, wants the node to stop."""

    why: str


Event: TypeAlias = (
    Start
    | Tick
    | Linked
    | Unlinked
    | Received
    | Told
    | Computed
    | ComputeFailed
    | Saved
    | SaveFailed
    | MembersChanged
    | Refused
    | Asked
)


# -- effects: what is to be done -----------------------------------------------------------------


class Publish(NamedTuple):
    """Send parameters, in place of any that wait to be sent to this peer."""

    peer: int
    data: bytes


class Tell(NamedTuple):
    """Send a control message, in order; it is lost if the link is down."""

    peer: int
    data: bytes


class Save(NamedTuple):
    """Write what is not None so that it survives a power cut, then report `Saved`."""

    ticket: int
    state: Arrays | None = None
    life: int | None = None
    final: Arrays | None = None  # the result, at the end


class Compute(NamedTuple):
    """Take the gradient of the node's own loss at `point`, as its gradient number `step`.

    That is `Node.gradient`, which may run anywhere. `Computed` has what it returns.
    """

    ticket: int
    point: Array
    step: int


class Note(NamedTuple):
    """Append a record to the journal (`folkman.runtime.journal`)."""

    kind: int
    slot: int
    sequence: tuple[int, ...]
    computed: bool = False


class Log(NamedTuple):
    """Write a line of the log."""

    event: str
    level: str = "info"
    fields: tuple[tuple[str, object], ...] = ()


class Health(NamedTuple):
    """Write the health file, and answer with it: `ok` False is 503."""

    facts: dict[str, object]
    ok: bool


class Drop(NamedTuple):
    """Close the link to a peer, and do not take it up again until it is a member again."""

    peer: int
    why: str


class Finish(NamedTuple):
    """Close everything and end the process with this code."""

    code: int


Effect: TypeAlias = Publish | Tell | Save | Compute | Note | Log | Health | Drop | Finish
