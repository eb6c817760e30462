"""What a node holds where messages are sums: one sum, its stamps, and the node's own past.

A node i that adopts the sum v_k of another takes over its stamps, and its own old part out of it:

    tau_i := tau_k (its own stamp excepted),     u_i := v_k - c_i(tau_ki)

so that v_i = u_i + alpha_i w_i(t) is equation (9) with younger stamps. It adopts a sum whole, and
only if that lowers its weighted sum of ages (`folkman.radio.fresh.younger`).

It keeps its own contributions of the last `room` stamps that it has frozen. A sum that holds an
older one, or one of an earlier life that was lost, is refused (`past`), and the node is `lost`:
others are asked for copies of their own parameters, of which it forms a sum anew, until a sum comes
that it can adopt. A copy is signed by its origin. A sum cannot be: `trusted` says whose are taken.
"""

from collections import Counter
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Inbox, SummedInbox
from folkman.arrays import jax, jnp
from folkman.radio import fresh
from folkman.runtime import codec, fresh_codec
from folkman.runtime.codec import CodecError, LostPastError
from folkman.runtime.contributions import Contributions
from folkman.runtime.fresh_codec import Carried, slots_of, stamp_of
from folkman.runtime.mailbox import Checks

__all__ = ["SumBox", "SumRules"]

_younger = jax.jit(fresh.younger)


class SumRules(NamedTuple):
    """What is asked of sums, and how many own contributions are kept."""

    trusted: frozenset[int] = frozenset()  # whose sums are taken
    omega: NDArray | None = None  # (rx, origin) weights of pairs; None: all alike
    room: int | None = None  # None: 8 (I + 1)
    paced: bool = False  # slots are those of a common clock: no stamp is ahead of its carrier
    thrift: float = 1.0  # the index divides by the time of a message to this power


class SumBox:
    """One node's sum."""

    FIELDS: ClassVar[tuple[str, ...]] = ("others", "sequence", "last", "heard")
    """What is saved, by name."""

    def __init__(
        self,
        index: int,
        run: int,
        parts: Contributions,
        own: Callable[[], tuple[int, NDArray]],
        *,
        checks: Checks = Checks(),  # noqa: B008 - immutable
        rules: SumRules = SumRules(),  # noqa: B008
    ) -> None:
        nodes = len(parts.shares)
        self.index, self.run, self.parts, self.checks, self.rules = index, run, parts, checks, rules
        self.others = parts.first_others(index)  # u_i
        self.sequence = np.zeros(nodes, np.int64)  # stamps of what the sum holds; own: 0
        self.last = np.zeros(nodes, np.int64)  # number of the last message of each carrier
        self.heard = np.zeros(nodes, bool)
        self.finite = np.ones(nodes, bool)
        self.rows = np.zeros((nodes, nodes), np.int64)  # stamps that others hold, as last heard
        self.past = {0: parts.of(index, parts.initial)}
        self.copies: dict[int, tuple[int, NDArray]] = {}  # origin -> stamp and contribution
        self.lost: int | None = None  # an own stamp in circulation that is not kept
        self.round, self.ahead = 0, {}
        self.refused: Counter[str] = Counter()
        self.counts: Counter[str] = Counter(adopted=0, declined=0, rebuilt=0)
        self._own = own
        self.newest = 0  # own stamp that was frozen
        omega = np.ones((nodes, nodes), np.float32) if rules.omega is None else rules.omega
        self._omega = jnp.asarray(omega, jnp.float32)
        self._room = rules.room or 8 * (nodes + 1)

    @property
    def payload(self) -> NDArray:
        """Return what stands for the held messages: their size and precision."""
        return np.broadcast_to(self.parts.initial, (len(self.sequence), len(self.parts.initial)))

    def held_of(self, node: int) -> int:
        """Return the number of the last message of a carrier."""
        return int(self.last[node])

    def newest_of(self, node: int) -> int:
        """Return the number above which messages of a carrier are new."""
        return int(self.last[node])

    def newest_with_next_round(self, node: int) -> int:
        """Return the same: sums do not travel in rounds."""
        return self.newest_of(node)

    def forget(self, node: int) -> bool:
        """Let go of a node's copy; its part of the sum cannot be told from the rest, and stays."""
        return self.copies.pop(node, None) is not None

    def freeze(self, stamp: int, contribution: NDArray) -> None:
        """Remember an own contribution that is about to be sent; forget the oldest."""
        self.past[stamp] = contribution
        self.newest = max(self.newest, stamp)
        own = sorted(self.past.keys() - {0})  # the first model is always at hand
        for old in own[: -self._room]:
            del self.past[old]

    def total(self, stamp: int) -> tuple[NDArray, NDArray[np.int64]]:
        """Return the sum with the own contribution of a stamp, as it is sent, and its stamps."""
        stamps = self.sequence.copy()
        stamps[self.index] = stamp
        return self.parts.on_air(self.others + self.past[stamp]), stamps

    def take(self, data: bytes, own: int | None = None) -> Carried:
        """Adopt a sum or keep a copy, or count and raise why not."""
        del own
        try:
            if codec.version_of(data) == fresh_codec.VERSION:
                return self._take_sum(data)
            return self._take_copy(data)
        except CodecError as error:
            self.refused[error.reason] += 1
            raise

    def put(self, data: bytes, own: int | None = None) -> bool:
        """Take a message; tell whether it was kept or no longer needed."""
        try:
            self.take(data, own)
        except CodecError:
            return False
        return True

    def _take_sum(self, data: bytes) -> Carried:
        size = len(self.parts.initial)
        found = fresh_codec.decode(data, self.run, size, len(self.sequence), self.checks.verify)
        self._check_carrier(found.node)
        self._check_sum(found)
        if found.sequence <= self.last[found.node]:
            raise _stale(found)
        self._check_past(found)
        self.last[found.node] = found.sequence
        self.rows[found.node] = found.stamps
        if self.younger(found.stamps):
            self._adopt(found)
        else:
            self.counts["declined"] += 1
        return found

    def _check_carrier(self, node: int) -> None:
        if not 0 <= node < len(self.sequence) or node == self.index:
            text = f"expected another of {len(self.sequence)} nodes, got {node}"
            raise CodecError("sender", text)

    def _check_sum(self, found: Carried) -> None:
        if found.entries is None or found.bits != self.parts.bits:
            raise CodecError(
                "dtype",
                f"expected a sum of {self.parts.bits or 'floating'} bits, got "
                f"{'a forward' if found.entries is None else found.bits}",
            )
        if found.node not in self.rules.trusted:
            raise CodecError(
                "trust",
                f"node {found.node} sends a sum in the name of all nodes and is not trusted with "
                "it; enter it in [trust] sums of this node's file, or use message = 'forward'",
                found.node,
                found.sequence,
            )
        if self.rules.paced and slots_of(found.stamps).max() > found.slot:
            text = f"node {found.node} sends stamps beyond slot {found.slot}, which is on"
            raise CodecError("range", text, found.node, found.sequence)
        largest = np.abs(found.entries).max(initial=0.0)
        if not found.bits and not largest <= self.checks.largest:
            text = f"expected entries of at most {self.checks.largest:g}; node {found.node} is bad"
            raise CodecError("absurd", text, found.node, found.sequence)

    def _check_past(self, found: Carried) -> None:
        """Refuse a sum whose own part cannot be taken out."""
        stamp = int(found.stamps[self.index])
        if stamp in self.past:
            return
        life = self._own()[0] >> fresh_codec.LIFE_BITS
        if stamp > max(self.newest, (life << fresh_codec.LIFE_BITS) - 1):
            raise CodecError(
                "range",
                f"node {found.node} sends our own parameters of stamp {stamp}, which we have not "
                "sent yet",
                found.node,
                found.sequence,
            )
        self.lost = stamp
        raise LostPastError(
            f"the sum of node {found.node} holds our own parameters of slot "
            f"{fresh_codec.slot_of(stamp)}, which are no longer kept; asking for copies",
            (found.node, found.sequence),
            stamp,
        )

    def younger(self, stamps: NDArray[np.int64]) -> bool:
        """Tell whether a sum with these stamps lowers the weighted sum of ages."""
        nodes = len(stamps)
        held = np.broadcast_to(slots_of(self.sequence), (nodes, nodes)).astype(np.int32)
        offered = slots_of(stamps).astype(np.int32)
        return bool(_younger(held, offered, self._omega)[self.index])

    def _adopt(self, found: Carried) -> None:
        assert found.entries is not None  # noqa: S101 - a sum was asked for
        own = self.past[int(found.stamps[self.index])]
        self._put(self.parts.without(found.entries, own), found.stamps)
        self.lost = None
        self.counts["adopted"] += 1

    def _put(self, others: NDArray, stamps: NDArray[np.int64]) -> None:
        new = stamps.copy()
        new[self.index] = 0
        self.heard |= new != self.sequence
        self.others, self.sequence = others, new

    def _take_copy(self, data: bytes) -> Carried:
        """Keep a copy of another node's own parameters; where the past is lost, use it."""
        message = codec.decode(data, self.run, len(self.parts.initial), self.checks.verify)
        self._check_carrier(message.node)
        largest = np.abs(message.params).max(initial=0.0)
        if message.base is not None or not largest <= self.checks.largest:
            text = f"expected whole parameters of at most {self.checks.largest:g}"
            raise CodecError("absurd", text, message.node, message.sequence)
        origin, life = message.node, message.sequence >> fresh_codec.LIFE_BITS
        stamp = stamp_of(life, message.slot)
        none = np.zeros(0, np.int64)
        found = Carried(self.run, origin, message.sequence, message.slot, none)
        if message.sequence <= self.last[origin]:
            raise _stale(found)
        self.last[origin] = message.sequence
        params = message.params.astype(self.parts.initial.dtype)
        self.copies[origin] = (stamp, self.parts.of(origin, params))
        if self.lost is not None:
            self._rebuild()
        return found

    def _rebuild(self) -> None:
        """Form the sum of the copies, of the first model where there is none, if it is younger."""
        stamps, others = np.zeros_like(self.sequence), self.parts.first_others(self.index)
        for origin, (stamp, contribution) in self.copies.items():
            stamps[origin] = stamp
            others = others + contribution - self.parts.of(origin, self.parts.initial)
        if self.younger(stamps):
            self._put(others, stamps)
            self.counts["rebuilt"] += 1

    def inbox(
        self, weight: NDArray, own_weight: float, slot: int, lockstep_of: int | None = None
    ) -> Inbox:
        """Return what is held as an inbox, and mark it as heard."""
        del lockstep_of
        box = self._shown(weight, own_weight, slot, self.heard.copy())
        self.heard[:] = False
        return box

    def peek(self, weight: NDArray, own_weight: float, slot: int) -> Inbox:
        """Return what is held as an inbox in which nothing is new, and change nothing."""
        return self._shown(weight, own_weight, slot, np.zeros_like(self.heard))

    def _shown(self, weight: NDArray, own_weight: float, slot: int, heard: NDArray) -> Inbox:
        initial = self.parts.initial
        dtype = initial.dtype
        shown = {
            "store": np.full((1, len(initial)), np.nan, dtype),  # there is no copy to look at
            "row": np.zeros(len(self.sequence), int),
            "weight": weight.astype(dtype),
            "own_weight": np.asarray(own_weight, dtype),
            "heard": heard,
            "age": np.maximum(slot - slots_of(self.sequence), 0).astype(np.int32),
            "finite": self.finite.copy(),
            "sums": self.parts.mixed(self.index, self.others, self._own()[1]),
        }
        return SummedInbox(**jax.device_put(shown))


def _stale(found: Carried) -> CodecError:
    text = f"message {found.sequence} of node {found.node} is not newer than the last"
    return CodecError("stale", text, found.node, found.sequence)
