"""The sums themselves, carried from node to node: the slow twin of a timeline of sums.

The simulator follows sums by their stamps: it looks up every contribution and sums anew. Here
nobody looks anything up. A node k that sends puts its aggregate on the air,

    v_k = u_k + c_k(s),   c_k(s) = alpha_k w_k(s),   u_k the sum of the others' contributions,

and a node i that adopts it takes its own old part out, from its own memory:

    u_i := v_k - c_i(tau_ki),   tau_i := tau_k          so that v_i = u_i + alpha_i w_i(t)

That both end with the same parameters is the identity behind `message = "sum"`. A node keeps its
own contributions of the stamps that are still in circulation, I + 1 at most where one node sends at
a time (`folkman.radio.transfers.own_past`); `room` keeps fewer, and a node that needs one that is
gone cannot adopt, which ends the run with a sentence.

Where a packing puts contributions onto a grid (`folkman.packing.sums`), u and c are whole numbers.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, SummedInbox
from folkman.engine.learner import FinalParameters, Learner, World, written_out
from folkman.packing.packing import place_bits, step_of
from folkman.packing.sums import contributions, grid_numbers, on_grid, settled_sums, signed
from folkman.problem.objective import model_weights
from folkman.radio.trace import PeerTimeline
from folkman.radio.transfers import AT_THE_START, Adoption, adoptions

__all__ = ["CarriedSums", "follow_sums"]

Hop: TypeAlias = Callable[[NDArray], NDArray]


def _unchanged(values: NDArray) -> NDArray:
    return values


class CarriedSums:
    """All nodes' sums and own memories along a timeline: `freeze`, then `end_slot`, slot by slot.

    `events` are its adoptions. `first` (node, d) are the contributions of stamp 0, in the number
    type of all sums. `hop` is what the air does to a sum. `room`: how many own contributions a node
    keeps, None for all that are needed.
    """

    def __init__(
        self,
        events: list[Adoption],
        first: NDArray,
        *,
        hop: Hop = _unchanged,
        room: int | None = None,
    ) -> None:
        self.events = events
        self.hop, self.room = hop, room
        self.hops = np.zeros(len(first), int)  # of the sum that each node holds
        self.others = first.sum(axis=0, dtype=first.dtype)[None] - first  # u_i
        self.most_kept = 0
        self._past: list[dict[int, NDArray]] = [{0: each} for each in first]
        self._needed = _last_needs(self.events)
        self._after: dict[int, tuple[NDArray, int]] = {}  # u and hops after an adoption
        self._last_use = _last_uses(self.events)
        self._at_start = self.others.copy()
        self._next = 0

    def freeze(self, node: int, stamp: int, contribution: NDArray) -> None:
        """Let a node that sends remember its contribution."""
        self._past[node][stamp] = contribution

    def end_slot(self, slot: int) -> None:
        """Let nodes adopt what has arrived at the end of a slot, and forget what is not needed."""
        while self._next < len(self.events) and self.events[self._next].used <= slot + 1:
            self._adopt(self._next, self.events[self._next])
            self._next += 1
        for number in [n for n in self._after if self._last_use.get(n, -1) < self._next]:
            del self._after[number]
        self.most_kept = max(self.most_kept, *(len(past) for past in self._past))
        for node, past in enumerate(self._past):
            gone = [s for s in past if self._needed.get((node, s), -1) <= slot + 1]
            if self.room is not None:
                gone += sorted(s for s in past if s not in gone)[: -self.room]
            for stamp in gone:
                del past[stamp]

    def _adopt(self, number: int, event: Adoption) -> None:
        first = (self._at_start[event.sender], 0)
        others, hops = first if event.after == AT_THE_START else self._after[event.after]
        value = self.hop(others + self._own(event.sender, int(event.stamps[event.sender])))
        left = value - self._own(event.receiver, int(event.stamps[event.receiver]))
        self._after[number] = (left, hops + 1)
        if event.kept:
            self.others[event.receiver], self.hops[event.receiver] = left, hops + 1

    def _own(self, node: int, stamp: int) -> NDArray:
        try:
            return self._past[node][stamp]
        except KeyError:
            raise ValueError(
                f"node {node} was sent a sum with its own parameters of stamp {stamp}, which it no "
                f"longer keeps; keep more than {self.room} of them, or ask for copies"
            ) from None


def _last_needs(events: list[Adoption]) -> dict[tuple[int, int], int]:
    """Return the slot in which each own contribution is used last: sent, or taken out of a sum."""
    last: dict[tuple[int, int], int] = {}
    for event in events:
        for node in (event.sender, event.receiver):
            stamp = int(event.stamps[node])
            last[node, stamp] = max(last.get((node, stamp), -1), event.used)
    return last


def _last_uses(events: list[Adoption]) -> dict[int, int]:
    """Return for each adoption the last one that builds on it."""
    return {event.after: number for number, event in enumerate(events)}


def follow_sums(
    world: World, timeline: PeerTimeline, algorithm: Algorithm, nodes: list[Learner]
) -> FinalParameters:
    """Follow a timeline by its sums, one node at a time."""
    share, number = world.shares(), len(nodes)
    packing = settled_sums(world.packing, algorithm.name)
    initial = np.array(world.problem.initial, np.float64)
    whole = on_grid(packing)

    def contribution(node: int, message: NDArray) -> NDArray:
        if whole:
            return grid_numbers(packing, message, initial, number * share[node])
        seen = contributions(packing, jnp.asarray(message[None]), jnp.asarray(initial), jnp.ones(1))
        return share[node] * np.asarray(seen[0], np.float64)

    def mixed(node: int, others: NDArray) -> NDArray:
        if not whole:
            return others
        own = contribution(node, nodes[node].message())
        bits = (packing.bits or 0) + place_bits(number)
        read = signed(others + own, bits) - own  # what is known is the sum, in its lowest bits
        return (1 - share[node]) * initial + read * (step_of(packing) / number)

    first = np.stack([contribution(i, node.message()) for i, node in enumerate(nodes)])
    sums = CarriedSums(adoptions(timeline), first)
    for t, held in enumerate(timeline.held):
        moved = held != timeline.held[max(t - 1, 0)]
        for i in np.flatnonzero(world.present(t)).tolist():
            others = np.arange(number) != i
            inbox = _inbox(share, i, mixed(i, sums.others[i]), moved[i] & others, t - held[i])
            nodes[i].slot(inbox, finishes=bool(timeline.finished[t, i]))
        if timeline.sends[t].any():
            messages = world.sent(nodes, t)
            for j in np.flatnonzero(timeline.sends[t]).tolist():
                sums.freeze(j, t + 1, contribution(j, messages[j]))
                nodes[j].note_sent()
        sums.end_slot(t)
    params = np.stack([node.params() for node in nodes])
    weights = model_weights(world.problem, evenly=algorithm.declares.evenly)
    return FinalParameters(np.array(weights, np.float64) @ params, params)


def _inbox(share: NDArray, node: int, sums: NDArray, heard: NDArray, age: NDArray) -> SummedInbox:
    """Return an inbox that has a sum and no copies."""
    others = np.arange(len(share)) != node
    parts = written_out(
        np.full((len(share), len(sums)), np.nan),  # who looks at a copy sees that there is none
        weight=share * others,
        own_weight=share[node],
        heard=heard,
        age=age,
        finite=np.ones(len(share), bool),
    )
    known = {name: getattr(parts, name) for name in Inbox.__dataclass_fields__}
    return SummedInbox(**known, sums=jnp.asarray(sums))
