"""What a node holds of the others: one message per sender, and in lock-step the next round's too.

Memory is bounded by construction. A message is kept if it is whole, from a known sender, newer than
what is held and sane; any other is refused, counted by reason and otherwise without effect.

A sender that is no member any more is forgotten: its first message takes the place of what was held
of it. The number of its newest message stays, so that nothing older is ever taken again.
"""

from collections import Counter
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Inbox
from folkman.arrays import jax
from folkman.runtime.codec import CodecError, Message, Verify, decode

__all__ = ["Checks", "Mailbox"]


class Checks(NamedTuple):
    """What is asked of a message beyond being whole."""

    verify: Verify | None = None  # whose signature it is; None: insecure, anybody's
    largest: float = 1e6  # of a parameter: beyond it a sender has gone bad, finite or not
    farthest: float = 10.0  # steps and medians (`folkman.runtime.reach`); 0: no limit


class Mailbox:
    """The freshest message of each of `num_senders` senders, numbered from `first_sender`.

    With `note_broken` a message that is whole but not finite still counts as heard, so that a
    server that waits for everyone can drop it and go on; its payload is zeros and marked. With
    `in_rounds` a sender is heard once a round, and may be one round ahead. With `loses_nothing`
    somebody waits for every message, in rounds and around a server.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("payload", "sequence", "slot", "heard", "finite", "newest")
    """What is saved, by name."""

    def __init__(
        self,
        first: NDArray,
        num_senders: int,
        run: int,
        *,
        first_sender: int = 0,
        note_broken: bool = False,
        in_rounds: bool = False,
        loses_nothing: bool = False,
        checks: Checks = Checks(),  # noqa: B008 - immutable
    ) -> None:
        self.run, self.checks = run, checks
        self._first = np.asarray(first)
        self.payload = np.tile(first, (num_senders, 1))
        self.sequence = np.zeros(num_senders, np.int64)  # of what is held; 0: the first message
        self.newest = np.zeros(num_senders, np.int64)  # of all that was ever held
        self.slot = np.zeros(num_senders, np.int64)
        self.heard = np.zeros(num_senders, bool)
        self.finite = np.ones(num_senders, bool)
        self.round = 1 if in_rounds else 0
        self.ahead: dict[int, Message] = {}  # of the next round, at most one a sender
        self.refused: Counter[str] = Counter()
        self.guard: Callable[[Message], None] | None = None  # raises `CodecError` for a bad one
        self._first_sender, self._note_broken = first_sender, note_broken
        self._loses_nothing = loses_nothing

    def put(self, data: bytes, own: int | None = None) -> bool:
        """Keep a message that passes; tell whether it was kept."""
        try:
            self.take(data, own)
        except CodecError:
            return False
        return True

    def take(self, data: bytes, own: int | None = None) -> Message:
        """Keep a message and return it, or count and raise why not."""
        try:
            message = self._whole(data, own)
            self._check_new(message)
            message = self._built(message)
            if self.guard is not None:
                self.guard(message)
            self._keep(message)
        except CodecError as error:
            self.refused[error.reason] += 1
            if (
                error.reason in ("finite", "absurd", "base")
                and self._note_broken
                and error.node is not None
            ):
                self._note(error.node - self._first_sender, error.sequence or 0)
            raise
        return message

    def _whole(self, data: bytes, own: int | None) -> Message:
        """Return the message, every check passed that needs no look at what is held."""
        message = decode(data, self.run, self.payload.shape[1], self.checks.verify)
        if not 0 <= message.node - self._first_sender < len(self.payload) or message.node == own:
            raise CodecError(
                "sender", f"expected another of {len(self.payload)} nodes, got {message.node}"
            )
        if message.params.dtype != self.payload.dtype:
            message = self._in_our_precision(message)
        self._check_size(message)
        return message

    def _in_our_precision(self, message: Message) -> Message:
        with np.errstate(over="ignore"):
            params = message.params.astype(self.payload.dtype)
        if not np.isfinite(params).all():  # finite on a wider wire, and too large for us
            raise CodecError(
                "finite",
                "expected parameters that fit our precision",
                message.node,
                message.sequence,
            )
        return message._replace(params=params)

    def _check_size(self, message: Message) -> None:
        if not np.abs(message.params).max(initial=0.0) <= self.checks.largest:
            text = (
                f"expected parameters of at most {self.checks.largest:g}; "
                f"node {message.node} has gone bad"
            )
            raise CodecError("absurd", text, message.node, message.sequence)

    def _built(self, message: Message) -> Message:
        """Return the whole of a message that may be a change of the one held before it."""
        if message.base is None:
            return message
        row = message.node - self._first_sender
        on, changed = message.base
        if self.sequence[row] != on or not self.finite[row]:
            text = (
                f"message {message.sequence} of node {message.node} builds on {on}, "
                f"held is {self.sequence[row]}; expected a whole one first"
            )
            raise CodecError("base", text, message.node, message.sequence)
        params = message.params.copy()
        params[:changed] += self.payload[row, :changed]
        whole = message._replace(params=params, base=None)
        self._check_size(whole)
        return whole

    def held_of(self, node: int) -> int:
        """Return the number of the message that is held of a node."""
        return int(self.sequence[node - self._first_sender])

    def newest_of(self, node: int) -> int:
        """Return the number above which messages of a node are new."""
        return int(self.newest[node - self._first_sender])

    def newest_with_next_round(self, node: int) -> int:
        """Return the same, messages that wait for the next round included."""
        early = self.ahead.get(node - self._first_sender)
        return max(self.newest_of(node), 0 if early is None else early.sequence)

    def forget(self, node: int) -> bool:
        """Hold a node's first message again; tell whether another was held."""
        row = node - self._first_sender
        if not 0 <= row < len(self.payload):
            return False
        self.ahead.pop(row, None)
        known = self.sequence[row] != 0
        self.payload[row], self.sequence[row], self.slot[row] = self._first, 0, 0
        self.heard[row], self.finite[row] = False, True
        return bool(known)

    def _check_new(self, message: Message) -> None:
        """Refuse a repeat, a replay, what was overtaken, and in lock-step what is not due."""
        row, known = (
            message.node - self._first_sender,
            f"message {message.sequence} of node {message.node}",
        )
        early = self.ahead.get(row)
        last = self._last(row)
        if early is not None and message.round > self.round:
            last = early.sequence
        if message.sequence <= last or (self.round and message.round < self.round):
            raise CodecError(
                "stale", f"{known} is not newer than held", message.node, message.sequence
            )
        if not self.round:
            return
        taken = self.heard[row] if message.round == self.round else early is not None
        if taken or message.round > self.round + 1:
            text = f"{known} is of round {message.round}, expected {self.round} or the next, once"
            raise CodecError("round", text)

    def _last(self, row: int) -> int:
        """Return the number above which messages are new.

        Where nobody goes on without it, the newest message of a sender that was forgotten may come
        once more, when it is a member again.
        """
        is_forgotten = self._loses_nothing and self.sequence[row] == 0
        return int(self.newest[row]) - int(is_forgotten and self.newest[row] > 0)

    def _keep(self, message: Message) -> None:
        row = message.node - self._first_sender
        if self.round and message.round == self.round + 1:
            self.ahead[row] = message
            return
        self.payload[row] = message.params
        self.sequence[row] = self.newest[row] = message.sequence
        self.slot[row] = message.slot
        self.heard[row] = self.finite[row] = True

    def _note(self, row: int, sequence: int) -> None:
        """Count a broken message as heard, once: it may be sent again."""
        if 0 <= row < len(self.payload) and sequence > self.newest[row]:
            self.sequence[row] = self.newest[row] = sequence
            self.payload[row] = 0.0
            self.heard[row], self.finite[row] = True, False

    def inbox(
        self, weight: NDArray, own_weight: float, slot: int, lockstep_of: int | None = None
    ) -> Inbox:
        """Return what is held as an inbox, and mark it as heard.

        In lock-step (`lockstep_of`: the node's own number) nothing counts as heard until all
        neighbours are, and then the node itself is marked too, and the next round begins.
        """
        heard = self.heard.copy()
        if lockstep_of is not None:
            heard[:] = self.heard[weight > 0].all()
        box = self._shown(weight, own_weight, slot, heard)
        self.heard[heard] = False
        if self.round and heard.any():
            self._begin_round()
        return box

    def peek(self, weight: NDArray, own_weight: float, slot: int) -> Inbox:
        """Return what is held as an inbox in which nothing is new, and change nothing."""
        return self._shown(weight, own_weight, slot, np.zeros_like(self.heard))

    def _shown(self, weight: NDArray, own_weight: float, slot: int, heard: NDArray) -> Inbox:
        dtype = self.payload.dtype
        shown = {
            "store": self.payload.copy(),  # JAX may read later, and the mailbox goes on
            "row": np.arange(len(self.payload)),
            "weight": weight.astype(dtype),
            "own_weight": np.asarray(own_weight, dtype),
            "heard": heard,
            "age": np.maximum(slot - self.slot, 0).astype(
                np.int32
            ),  # a sender may have lived more slots
            "finite": self.finite.copy(),
        }
        return Inbox(**jax.device_put(shown))  # unlike jnp.asarray it compiles no program

    def _begin_round(self) -> None:
        """Go on to the next round with what has come of it already."""
        self.round += 1
        early, self.ahead = self.ahead, {}
        for row, message in early.items():
            if message.sequence > self.newest[row]:  # else its sender has numbered rounds backwards
                self._keep(message)
