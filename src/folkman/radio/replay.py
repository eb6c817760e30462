"""Networks that repeat a recorded timeline: deliveries or rounds of peers, transfers to a server.

What happened is data (`folkman.radio.trace`). Nobody is waited for, since everything has happened.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, ArrayLike, Bool, PRNGKeyArray, jnp
from folkman.checks import require
from folkman.radio.delivery import Delivery, Network, Transfer, Unmeasured, as_value
from folkman.radio.trace import PeerTimeline, StarTimeline, check_timeline, last_slots, load

__all__ = [
    "Replay",
    "RoundReplay",
    "StarReplay",
    "from_file",
    "replay",
    "replay_rounds",
    "replay_star",
]

FEW = 64
"""Payloads of a sender that a replay keeps at most for the sake of the same bits."""
MOST_AT_FIRST = 4
"""Payloads of a sender that a replay has room for at first; a pair that never hears the other keeps
one for ever."""
MOST_ALIKE = 8
"""The same for replays that share a program: growing would compile another one."""


class ReplayState(NamedTuple):
    """The recorded tables and the place in them."""

    slot: Array  # () slots ended so far
    held: Array  # (slot, rx, tx)
    sends: Array  # (slot, tx)
    waiting: Array | None = None  # (slot, place, origin), as `_waiting` finds them


class StarReplayState(NamedTuple):
    """The recorded tables and the places in them, one a direction."""

    up_slot: Array  # ()
    down_slot: Array  # ()
    waiting: Array  # (node,) bool; always False


@as_value("timeline", "waiting")
@dataclass(frozen=True, eq=False)
class Replay(Network):
    """A network that repeats a timeline between peers on their own beat."""

    timeline: PeerTimeline
    recent: int  # newest payloads of a sender that may still be delivered
    at_once: int  # payloads of one sender that are in use at once, or a first guess
    bits_per_parameter: int | None = None
    message: str = "copy"  # what a message holds, which decides its price and its rounding
    # payloads that are still to be held, where payloads travel on
    waiting: NDArray[np.int32] | None = None
    name = "a recorded timeline"
    reliable = False

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.held)

    def peers(self) -> "ReplayedPeers":
        """Return what was recorded."""
        return ReplayedPeers(self)


@dataclass(frozen=True, eq=False)
class ReplayedPeers(Unmeasured):
    """A timeline between peers, once more."""

    network: Replay

    @property
    def forwards(self) -> bool:
        """Tell whether a message may bring payloads of others than its sender."""
        return self.network.waiting is not None

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.network.recent

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender are needed at once, or a first guess."""
        _check_nodes(self.network.timeline, num_nodes)
        return self.network.at_once

    def init(self, num_nodes: int, key: PRNGKeyArray) -> ReplayState:
        """Return the beginning of the recording."""
        del key
        waiting = self.network.waiting
        begun = _beginning(self.network.timeline, num_nodes)
        return begun if waiting is None else begun._replace(waiting=jnp.asarray(waiting))

    def step(
        self,
        state: ReplayState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery."""
        del offers, message_bits, key
        return _next(state)


@as_value("timeline")
@dataclass(frozen=True, eq=False)
class RoundReplay(Network):
    """A network that repeats rounds between peers.

    `held` changes on the diagonal too when a node's round ends.
    """

    timeline: PeerTimeline
    bits_per_parameter: int | None = None
    recent: int = 2  # newest payloads of a sender that may still be delivered
    name = "recorded rounds"

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.held)

    def rounds(self) -> "ReplayedRounds":
        """Return what was recorded."""
        return ReplayedRounds(self)


@dataclass(frozen=True, eq=False)
class ReplayedRounds(Unmeasured):
    """Rounds between peers, once more."""

    network: RoundReplay

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.network.recent

    def init(self, num_nodes: int, key: PRNGKeyArray) -> ReplayState:
        """Return the beginning of the recording."""
        del key
        return _beginning(self.network.timeline, num_nodes)

    def step(
        self,
        state: ReplayState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery."""
        del offers, wanted, message_bits, key
        return _next(state)


@as_value("timeline")
@dataclass(frozen=True, eq=False)
class StarReplay(Network):
    """A network that repeats the transfers around a server."""

    timeline: StarTimeline
    bits_per_parameter: int | None = None
    name = "recorded transfers"

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.finished)

    def star(self) -> "ReplayedStar":
        """Return what was recorded."""
        return ReplayedStar(self)


@dataclass(frozen=True, eq=False)
class ReplayedStar(Unmeasured):
    """Transfers around a server, once more."""

    network: StarReplay

    def init(self, num_nodes: int, key: PRNGKeyArray) -> StarReplayState:
        """Return the beginning of the recording."""
        del key
        zero = jnp.zeros((), jnp.int32)
        return StarReplayState(zero, zero, jnp.zeros(num_nodes, bool))

    def uplink(
        self,
        state: StarReplayState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarReplayState, Transfer]:
        """Return the uploads of the next slot."""
        del message_bits, key
        table, at = self.network.timeline, state.up_slot
        started = jnp.asarray(table.up_started)[at]
        arrived = jnp.asarray(table.up_arrived)[at]
        return state._replace(up_slot=at + 1), Transfer(started, arrived, jnp.zeros_like(offers))

    def downlink(
        self,
        state: StarReplayState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarReplayState, Transfer]:
        """Return the answers of the next slot."""
        del message_bits, key
        table, at = self.network.timeline, state.down_slot
        started = jnp.asarray(table.down_started)[at]
        arrived = jnp.asarray(table.down_arrived)[at]
        return state._replace(down_slot=at + 1), Transfer(started, arrived, jnp.zeros_like(offers))


def replay(
    timeline: PeerTimeline,
    bits_per_parameter: int | None = None,
    message: str = "copy",
    *,
    alike: bool = False,
) -> Replay:
    """Build a network that repeats `timeline`, after checking that it can have happened.

    Payloads that are in use at once are kept, where they are few: copies of a delay law then stand
    in the rows that they had when it was recorded, and sum to the same bits. Where nodes have
    passed on what they hold (`message` says so, or old copies come that are many) a payload is kept
    exactly as long as somebody will hold it.

    `message` is what the messages held: "copy", "forward" or "sum". It decides what they cost and
    how they are rounded, not who holds what.

    With `alike` all timelines of as many slots and nodes have the same shapes, so that a loop over
    many of them compiles one program. It has room for more payloads than most of them need.
    """
    check_timeline(timeline)
    if alike:
        waiting = _waiting(timeline)
        require(
            waiting is not None,
            "alike is for timelines in which few payloads of one sender are on their way at once; "
            "this one has more than there are nodes: leave `alike` out",
        )
        return Replay(timeline, 1, MOST_ALIKE, bits_per_parameter, message, waiting)
    needed = _versions(timeline)
    recent = needed if needed <= FEW else _recent(timeline)
    at_once = min(needed, MOST_AT_FIRST)
    travels_on = message != "copy" or recent > FEW or (needed > FEW and _goes_back(timeline))
    waiting = _waiting(timeline) if travels_on else None
    return Replay(timeline, recent, at_once, bits_per_parameter, message, waiting)


def from_file(
    path: str, bits_per_parameter: int | None = None, message: str = "copy", alike: bool = False
) -> Replay:
    """Build a network that repeats the peer timeline saved at `path`; `message` as for `replay`."""
    timeline = load(path)
    if not isinstance(timeline, PeerTimeline):
        raise ValueError(
            f"expected a timeline between peers, {path} was recorded around a server; "
            "record another"
        )
    return replay(timeline, bits_per_parameter, message, alike=alike)


def replay_rounds(timeline: PeerTimeline, bits_per_parameter: int | None = None) -> RoundReplay:
    """Build a network that repeats rounds between peers."""
    return RoundReplay(timeline, bits_per_parameter, max(2, _recent(timeline)))


def replay_star(timeline: StarTimeline, bits_per_parameter: int | None = None) -> StarReplay:
    """Build a network that repeats transfers around a server."""
    return StarReplay(timeline, bits_per_parameter)


def _beginning(timeline: PeerTimeline, num_nodes: int) -> ReplayState:
    _check_nodes(timeline, num_nodes)
    held, sends = jnp.asarray(timeline.held), jnp.asarray(timeline.sends)
    return ReplayState(jnp.zeros((), jnp.int32), held, sends)


def _next(state: ReplayState) -> tuple[ReplayState, Delivery]:
    """Return the next delivery; what is held after the last slot was not recorded, and stays."""
    last = state.held.shape[0] - 1
    held = state.held[jnp.minimum(state.slot + 1, last)]
    sends = state.sends[jnp.minimum(state.slot, last)] & (state.slot <= last)
    linked = sends[None] & ~jnp.eye(len(sends), dtype=bool)
    kept = sends & (state.slot < last)  # sent in the last slot: on the air, nobody will hold it
    waiting = state.waiting
    carried = None if waiting is None else waiting[jnp.minimum(state.slot + 1, last)]
    return state._replace(slot=state.slot + 1), Delivery(held, kept, linked, carried)


def _check_nodes(timeline: PeerTimeline, num_nodes: int) -> None:
    recorded = timeline.held.shape[1]
    if recorded != num_nodes:
        raise ValueError(
            f"the timeline was recorded between {recorded} nodes, the problem has {num_nodes}; "
            "use a problem of that size or record again"
        )


def _goes_back(timeline: PeerTimeline) -> bool:
    """Tell whether some node is brought a copy that is older than the one it holds."""
    others = ~np.eye(timeline.held.shape[1], dtype=bool)
    return bool(((np.diff(timeline.held, axis=0) < 0) & others).any())


def _waiting(timeline: PeerTimeline) -> NDArray[np.int32] | None:
    """Return the stamps that nobody holds in a slot and somebody will hold later, by origin.

    (slot, place, origin), -1 for none, as a `Delivery` has those that messages carry. None where
    more stamps of one origin wait than there are nodes.
    """
    slots, nodes = timeline.sends.shape
    last = last_slots(timeline.held)
    waiting = np.full((slots, nodes, nodes), -1, np.int32)
    for origin in range(nodes):
        alive = {0}  # frozen, and held later
        others = np.delete(timeline.held[:, :, origin], origin, axis=1)
        for t in range(slots):
            alive = {stamp for stamp in alive | {t} if last[stamp, origin] > t}
            left = sorted(alive - set(others[t].tolist()))
            if len(left) > nodes:
                return None
            waiting[t, : len(left), origin] = left
    return waiting


def _recent(timeline: PeerTimeline) -> int:
    """Return from how many of its newest payloads per sender may still deliver.

    The oldest that newly arrives decides.
    """
    nodes = timeline.sends.shape[1]
    sent = np.concatenate(
        [np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]]
    )  # stamps up to a slot
    before, after = timeline.held[:-1], timeline.held[1:]
    older = sent[np.maximum(after - 1, 0), np.arange(nodes)[None, None]] * (
        after > 0
    )  # sent before the one that arrives
    new = (after != before) & ~np.eye(nodes, dtype=bool)[None]
    return int(np.max((sent[:-1, None] - older)[new], initial=1))


def _versions(timeline: PeerTimeline) -> int:
    """Return the most payloads of one sender needed at once: sent, and held now or later."""
    slots, nodes = timeline.sends.shape
    held = np.where(np.eye(nodes, dtype=bool), np.iinfo(np.int32).max, timeline.held)
    oldest = np.minimum.accumulate(held.min(axis=1)[::-1])[
        ::-1
    ]  # (slot, tx) oldest stamp needed from here on
    sent_upto = np.concatenate(
        [np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]]
    )
    before = np.take_along_axis(sent_upto, np.clip(oldest, 1, slots) - 1, axis=0) * (oldest > 0)
    return int(np.max(sent_upto - np.where(oldest > slots, sent_upto - 1, before), initial=1))
