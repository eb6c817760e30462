"""Nodes of fresh air: they carry sums, or pass on what they hold of others.

    node.freeze()                    remember the present parameters under a stamp, once
    node.carry(number) -> bytes      what to send now: the sum, or the copy of a chosen origin
    node.take(data)                  adopt, keep, or say why not

Everything else is as of `folkman.runtime.node`: no sockets, no time.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array
from folkman.checks import require
from folkman.packing.packing import message_bits, width_of
from folkman.packing.sums import forward_bits, settled_sums, sum_bits
from folkman.problem.learnable import Learnable
from folkman.runtime import codec, fresh_codec
from folkman.runtime.codec import CodecError, EquivocationError, Message, encode
from folkman.runtime.contributions import Contributions
from folkman.runtime.fresh_codec import LIFE_BITS, Carried, slots_of, stamp_of
from folkman.runtime.mailbox import Mailbox
from folkman.runtime.node import Node, Wire
from folkman.runtime.sum_box import SumBox, SumRules

__all__ = ["ForwardNode", "FreshNode", "Frozen", "SumNode", "check_method"]


def check_method(algorithm: Algorithm, message: str) -> None:
    """Refuse a method whose messages cannot travel so."""
    name, travel = algorithm.name, algorithm.travel
    require(
        isinstance(travel, Broadcast) and travel.mixing is None and travel.has_news is None,
        f"message = '{message}' on devices is for Algorithm 1 (async_sharing), in which everyone "
        f"hears of everyone; {name} travels another way: use message = 'copy'",
    )
    require(
        message != "sum" or algorithm.declares.sums,
        f"message = 'sum' sends the aggregate of all copies by data share, and {name} as built "
        "uses the copies in another way; use message = 'forward' or 'copy', or Algorithm 1 "
        "(async_sharing) with the rule 'mean' and without max_age",
    )


class Frozen(NamedTuple):
    """Own parameters that were frozen: their number in journals, and the slots lived by then."""

    number: int
    slot: int


class FreshNode(Node):
    """What nodes of fresh air have in common."""

    def __init__(
        self,
        index: int,
        problem: Learnable,
        algorithm: Algorithm,
        shares: NDArray,
        *,
        run: int = 0,
        seed: int = 0,
        wire: Wire | None = None,
        rules: SumRules | None = None,
    ) -> None:
        check_method(algorithm, self.message)
        wire = wire or Wire(run)
        require(
            not wire.packing.remembers,
            f"error feedback builds each message on the one before, and message = '{self.message}' "
            "does not come to everyone; leave feedback out",
        )
        self.rules = rules or SumRules(frozenset(range(len(shares))))
        super().__init__(index, problem, algorithm, shares, seed=seed, wire=wire)

    @property
    def life(self) -> int:
        """Return the number of the node's life, 0 where nobody counts lives."""
        return self.sequence >> LIFE_BITS

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

    def stamps(self) -> NDArray[np.int64]:
        """Return the stamps of what the node holds, on its own place of what it froze last."""
        raise NotImplementedError

    def rows_heard(self) -> NDArray[np.int64]:
        """Return the stamps that others hold, (node, origin), as last heard or believed."""
        return self._rows().copy()

    def slots_known(self) -> NDArray[np.int64]:
        """Return the slots of what every node holds of every origin, (node, origin)."""
        rows = slots_of(self.rows_heard())
        rows[self.index] = slots_of(self.stamps())
        return rows

    def believe(self, peer: int, stamps: NDArray[np.int64], origin: int) -> None:
        """Take it that a peer has taken a message with these stamps."""
        raise NotImplementedError

    def _rows(self) -> NDArray[np.int64]:
        raise NotImplementedError

    def freeze(self) -> Frozen | None:
        """Remember the present parameters; None if they were."""
        raise NotImplementedError

    def holds(self, origin: int) -> bool:
        """Tell whether there is something of an origin to send; own parameters are frozen first."""
        del origin
        return True

    def carry(self, number: int = 0, origin: int | None = None) -> tuple[bytes, int]:
        """Return what to send now and its sequence number."""
        raise NotImplementedError

    def exclude(self, first: bytes, second: bytes) -> int | None:
        """Keep proof against a node where copies can be compared; a sum names no signer."""
        del first, second
        return None

    def bits(self) -> int:
        """Return the bits of a message, as the simulator prices it."""
        raise NotImplementedError


class SumNode(FreshNode):
    """A node that sends its aggregate with stamps, and adopts that of others."""

    message = "sum"
    mailbox: SumBox

    def _open(self, first: Array, num_nodes: int) -> SumBox:  # type: ignore[override]
        del first, num_nodes
        wire = self.wire
        require(
            wire.dtype is None,
            "wire = 'float16' rounds a sum at every hop; leave it out, or use the compression "
            "'fixed', which rounds once",
        )
        initial = np.asarray(self.problem.initial)
        packing = settled_sums(wire.packing, self.algorithm.name)
        self.parts = Contributions(packing, initial, self._shares.astype(initial.dtype))
        return SumBox(
            self.index,
            wire.run,
            self.parts,
            self.contribution,
            checks=wire.checks,
            rules=self.rules,
        )

    def warm(self) -> None:
        """Compile everything that a slot needs, and a look at stamps."""
        super().warm()
        self.mailbox.younger(self.mailbox.sequence)

    def contribution(self) -> tuple[int, NDArray]:
        """Return the stamp of the present parameters, and what they are in a sum."""
        state, slot, life = self.state, self.slot, self.life
        params = np.asarray(self.algorithm.message(state))
        return stamp_of(life, slot), self.parts.of(self.index, params)

    def freeze(self) -> Frozen | None:
        """Remember the present contribution; None if it was frozen before."""
        stamp, contribution = self.contribution()
        known, self.frozen = stamp in self.mailbox.past, stamp
        if known:
            return None
        self.mailbox.freeze(stamp, contribution)
        return Frozen(stamp, fresh_codec.slot_of(stamp))

    def stamps(self) -> NDArray[np.int64]:
        """Return the stamps of the sum."""
        found = self.mailbox.sequence.copy()
        found[self.index] = self.frozen
        return found

    frozen = 0
    """The own stamp that was frozen last."""

    def _rows(self) -> NDArray[np.int64]:
        return self.mailbox.rows

    def believe(self, peer: int, stamps: NDArray[np.int64], origin: int) -> None:
        """Take it that a peer has adopted a sum, if that made its stamps younger."""
        del origin
        rows = self.mailbox.rows
        others = np.arange(len(stamps)) != peer
        steps = slots_of(stamps) - slots_of(rows[peer])
        omega = self.rules.omega
        weighed = steps if omega is None else omega[peer] * steps
        if weighed[others].sum() > 0:
            rows[peer, others] = stamps[others]

    def carry(self, number: int = 0, origin: int | None = None) -> tuple[bytes, int]:
        """Return the sum with the contribution that was frozen last, and its sequence number."""
        del origin
        sequence = self._next()
        entries, stamps = self.mailbox.total(self.frozen)
        slot = max(self.slot, int(slots_of(stamps).max()))  # others may be ahead of this node
        carried = Carried(
            self.wire.run,
            self.index,
            sequence,
            slot,
            stamps,
            entries,
            round=number,
            bits=self.parts.bits,
        )
        return fresh_codec.encode(carried, self.wire.sign), sequence

    def copy(self) -> tuple[bytes, int | None]:
        """Return the node's own parameters, for one that has lost its past, and their stamp.

        None: they were frozen before.
        """
        state, slot, life = self.state, self.slot, self.life
        self.sequence += 1
        sequence = self.sequence
        params = np.asarray(self.algorithm.message(state))
        stamp = stamp_of(life, slot)
        known = stamp in self.mailbox.past
        if not known:
            self.mailbox.freeze(stamp, self.parts.of(self.index, params))
        message = Message(self.wire.run, self.index, sequence, slot, params)
        return encode(message, self.wire.sign), None if known else stamp

    def bits(self) -> int:
        """Return the bits of a sum, stamps included."""
        initial = self.parts.initial
        return sum_bits(
            self.parts.packing, len(initial), len(self._shares), width_of(initial.dtype)
        )

    def more_arrays(self) -> dict[str, NDArray]:
        """Return the own past, to be saved."""
        box = self.mailbox
        stamps = sorted(box.past)
        past = np.stack([box.past[stamp] for stamp in stamps])
        numbers = [self.frozen, box.newest, -1 if box.lost is None else box.lost]
        return {
            "past": past,
            "past.stamps": np.array(stamps, np.int64),
            "past.numbers": np.array(numbers, np.int64),
        }

    def restore_more(self, arrays: dict[str, NDArray]) -> None:
        """Take up what was saved."""
        box = self.mailbox
        stamps = arrays["past.stamps"].tolist()
        require(
            arrays["past"].shape == (len(stamps), len(self.parts.initial)),
            "the saved own past is of another model; move the state away to begin anew",
        )
        box.past = dict(zip(stamps, arrays["past"].copy(), strict=True))
        self.frozen, box.newest, lost = (int(each) for each in arrays["past.numbers"])
        box.lost = None if lost < 0 else lost


class ForwardNode(FreshNode):
    """A node that passes on what it holds of anyone, as its origin signed it."""

    message = "forward"

    @property
    def excluded(self) -> Mapping[int, tuple[bytes, bytes]]:
        """Return whom this node takes no part with any more, and the proof."""
        return self._proof

    def _open(self, first: Array, num_nodes: int) -> Mailbox:
        self.letters: dict[int, bytes] = {}  # origin -> its newest message, as it came
        self._before: dict[int, bytes] = {}  # origin -> the one before, to compare others' copies
        self._proof: dict[int, tuple[bytes, bytes]] = {}  # of excluded origins
        self.last = np.zeros(num_nodes, np.int64)
        self.rows = np.zeros((num_nodes, num_nodes), np.int64)
        return super()._open(first, num_nodes)

    def freeze(self) -> Frozen | None:
        """Form the own message of the present parameters; None if there is one."""
        kept = self.letters.get(self.index)
        if kept is not None and self._stamp(kept) == stamp_of(self.life, self.slot):
            return None
        self.letters[self.index], sequence, slot = self.formed()
        return Frozen(sequence, slot)

    def _rows(self) -> NDArray[np.int64]:
        return self.rows

    def believe(self, peer: int, stamps: NDArray[np.int64], origin: int) -> None:
        """Take it that a peer has kept the copy of an origin."""
        self.rows[peer, origin] = max(self.rows[peer, origin], stamps[origin])

    def slots_known(self) -> NDArray[np.int64]:
        """Return the slots of what every node holds of every origin, as they compare with ours.

        An origin that lost its state lives early slots in a later life. A copy of an earlier life
        than ours counts as none, and one of a later life as no older than ours.
        """
        stamps = self.rows_heard()
        stamps[self.index] = self.stamps()
        stamps[self.index, self.index] = stamp_of(self.life, self.slot)
        slots, lives = slots_of(stamps), stamps >> LIFE_BITS
        own = slots[self.index]
        later = np.where(lives > lives[self.index], np.maximum(slots, own), slots)
        return np.where(lives < lives[self.index], 0, later)

    @staticmethod
    def _stamp(data: bytes) -> int:
        return stamp_of(codec.sequence_of(data) >> LIFE_BITS, codec.slot_of(data))

    def stamps(self) -> NDArray[np.int64]:
        """Return the stamps of all copies that are held."""
        found = np.zeros(len(self.last), np.int64)
        for origin, data in list(self.letters.items()):
            found[origin] = self._stamp(data)
        return found

    def holds(self, origin: int) -> bool:
        """Tell whether there is a copy of an origin."""
        return origin == self.index or origin in self.letters

    def carry(self, number: int = 0, origin: int | None = None) -> tuple[bytes, int]:
        """Return the copy of an origin, in a cover of our own, and the cover's number."""
        of = self.index if origin is None else origin
        require(of in self.letters, f"node {self.index} holds no copy of node {of} yet")
        inner, sequence = self.letters[of], self._next()
        carried = Carried(
            self.wire.run,
            self.index,
            sequence,
            self.slot,
            self.stamps(),
            inner=inner,
            round=number,
            size=self.mailbox.payload.shape[1],
        )
        return fresh_codec.encode(carried, self.wire.sign), sequence

    def take(self, data: bytes) -> Carried:  # type: ignore[override] - with node and sequence too
        """Keep the copy within a message if it is newer than what is held of its origin."""
        size, nodes = self.mailbox.payload.shape[1], len(self.last)
        try:
            found = fresh_codec.decode(data, self.wire.run, size, nodes, self.wire.checks.verify)
            self._check(found)
        except CodecError as error:
            self.mailbox.refused[error.reason] += 1
            raise
        origin = codec.sender_of(found.inner)
        self._compare(origin, found)
        try:
            self.mailbox.take(found.inner, self._own)
        except CodecError as error:
            raise CodecError(error.reason, str(error), found.node, found.sequence) from None
        if origin in self.letters:
            self._before[origin] = self.letters[origin]
        self.letters[origin] = found.inner
        return found

    def _compare(self, origin: int, found: Carried) -> None:
        """Refuse a copy of an excluded origin, and one that contradicts a copy that is held."""
        if origin in self.excluded:
            self.mailbox.refused["excluded"] += 1
            text = f"node {origin} has signed two contents under one number"
            raise CodecError("excluded", text, found.node, found.sequence)
        for kept in (self.letters.get(origin), self._before.get(origin)):
            if kept is None or not _contradict(kept, found.inner):
                continue
            try:
                self._check_proof(kept, found.inner)
            except CodecError:  # not its origin's: refused by the mailbox, for what it is
                return
            self.mailbox.refused["equivocation"] += 1
            number = codec.sequence_of(kept)
            text = f"node {origin} has signed two contents under number {number}"
            raise EquivocationError(text, (found.node, found.sequence), (kept, found.inner))

    def _check_proof(self, first: bytes, second: bytes) -> int:
        """Return who has signed two contents under one number, or raise `CodecError`."""
        verify, size = self.wire.checks.verify, self.mailbox.payload.shape[1]
        if verify is None:
            raise CodecError("signature", "without signatures nothing is proven")
        if not _contradict(first, second):
            raise CodecError("proof", "expected two contents of one node under one number")
        one, other = (codec.decode(data, self.wire.run, size, verify) for data in (first, second))
        if not 0 <= one.node < len(self.last) or one.node == self.index or one.node != other.node:
            raise CodecError("sender", f"expected messages of another node, got {one.node}")
        return one.node

    def exclude(self, first: bytes, second: bytes) -> int | None:
        """Keep proof against a node; return which, None if there was proof before.

        Raises `CodecError` if it proves nothing. The caller lets go of what the node left.
        """
        if len(first) >= codec.HEADER_BYTES and codec.sender_of(first) in self.excluded:
            return None
        origin = self._check_proof(first, second)
        self._proof[origin] = (first, second)
        return origin

    def _check(self, found: Carried) -> None:
        if not 0 <= found.node < len(self.last) or found.node == self.index:
            raise CodecError("sender", f"expected another node, got {found.node}")
        if found.entries is not None:
            raise CodecError("dtype", "expected a copy that is passed on, got a sum")
        stale = found.sequence <= self.last[found.node]
        if not stale:
            self.last[found.node] = found.sequence
            self.rows[found.node] = found.stamps
        if stale or codec.sender_of(found.inner) == self.index:
            text = f"message {found.sequence} of node {found.node} brings nothing new"
            raise CodecError("stale", text, found.node, found.sequence)

    def receive(self, data: bytes) -> bool:
        """Take a message; tell whether it was kept."""
        try:
            self.take(data)
        except CodecError:
            return False
        return True

    def newest_from(self, peer: int) -> int:
        """Return the number of the newest cover that a neighbour brought."""
        return int(self.last[peer])

    def forget(self, sender: int) -> bool:
        """Let go of the copy of an origin that is no member, and pass it on no more."""
        self.letters.pop(sender, None)
        self._before.pop(sender, None)
        return super().forget(sender)

    def bits(self) -> int:
        """Return the bits of a copy that is passed on."""
        payload = self.mailbox.payload
        own = message_bits(self.packing, payload.shape[1], self.dim, width_of(payload.dtype))
        return forward_bits(own, len(self._shares))

    def more_arrays(self) -> dict[str, NDArray]:
        """Return the messages of all origins, to be saved."""
        letters = dict(self.letters)
        kept = {
            f"letter.{origin}": np.frombuffer(data, np.uint8) for origin, data in letters.items()
        }
        proof = {
            f"proof.{origin}.{k}": np.frombuffer(data, np.uint8)
            for origin, both in self.excluded.items()
            for k, data in enumerate(both)
        }
        return {**kept, **proof, "carriers": self.last.copy()}

    def restore_more(self, arrays: dict[str, NDArray]) -> None:
        """Take up what was saved."""
        self.last = arrays["carriers"].copy()
        for name, each in arrays.items():
            if name.startswith("letter."):
                self.letters[int(name.removeprefix("letter."))] = each.tobytes()
            elif name.startswith("proof.") and name.endswith(".0"):
                both = each.tobytes(), arrays[f"{name.removesuffix('0')}1"].tobytes()
                self._proof[int(name.split(".")[1])] = both


def _contradict(first: bytes, second: bytes) -> bool:
    """Tell whether two messages name one sender, one number and two contents; unchecked."""
    least = min(len(first), len(second))
    if least < codec.HEADER_BYTES or codec.sender_of(first) != codec.sender_of(second):
        return False
    same = codec.sequence_of(first) == codec.sequence_of(second)
    return same and first[: codec.DIGEST_END] != second[: codec.DIGEST_END]
