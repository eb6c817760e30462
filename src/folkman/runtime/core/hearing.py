"""The hearing side of a core: what is taken, what is refused, and what is answered.

An `Ack` means: taken, or a newer message of this life is held. Whatever else becomes of a whole
message is answered by `Refusal` with a word, so that no sender waits for nothing. A sender that
speaks as of an earlier life than the one held of it is told so (`Known`), and goes beyond it.
"""

from typing import TYPE_CHECKING

import numpy as np

from folkman.runtime import control
from folkman.runtime.codec import (
    HEADER_BYTES,
    CodecError,
    EquivocationError,
    LostPastError,
    round_of,
    sender_of,
    sequence_of,
)
from folkman.runtime.control import LIFE_BITS
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Hearing"]

ANSWER_EVERY_S = 1.0
"""Between two words to one neighbour that it has lost a life."""
ACCEPTED_BY_SERVER = ("stale", "finite", "absurd", "far", "base")
"""A server notes what it must refuse as heard, and goes on without it."""


class Hearing:
    """What comes in."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.lives: dict[int, int] = {}  # neighbour -> its incarnation
        self.done: set[int] = set()  # neighbours that say so
        self.qualities: dict[int, tuple[float, float]] = {}
        """Neighbour -> goodput and loss of its link to us, as it says."""
        self.refusals: dict[int, str] = {}  # neighbour -> why it refused our last message
        self.taken_s: dict[int, float] = {}  # neighbour -> when its last message was taken
        self._answered_s: dict[int, float] = {}

    # -- parameters --------------------------------------------------------------------------------

    def take(self, peer: int, data: bytes, now_s: float) -> None:
        """Hand a message to the node, and answer."""
        core = self._core
        try:
            if len(data) >= 20 and sender_of(data) != peer:
                core.node.mailbox.refused["sender"] += 1
                raise CodecError("sender", f"node {peer} brings a message under another's number")
            if peer in core.node.excluded:
                core.node.mailbox.refused["excluded"] += 1
            self._check_not_excluded(peer)
            message = core.node.take(data)
        except CodecError as error:
            self._refuse(peer, data, error, now_s)
            return
        core.hands.counts["taken"] += 1
        self.taken_s[peer] = now_s
        if not self._early(data):
            core.hands.tell(message.node, control.Ack(message.sequence))

    def _refuse(self, peer: int, data: bytes, error: CodecError, now_s: float) -> None:
        core, reason, early = self._core, error.reason, self._early(data)
        core.hands.log_refused(peer, reason, str(error))
        if isinstance(error, LostPastError):
            core.pace.lost(core, error, now_s)
        elif isinstance(error, EquivocationError):
            core.pace.equivocated(core, *error.proof)
        elif reason == "excluded" and peer not in core.node.excluded:
            core.pace.prove(core, peer, now_s)
        known = error.node == peer and error.sequence is not None
        settled = ("stale",) if isinstance(core.node, Node) else ACCEPTED_BY_SERVER
        if reason == "stale" and known and self._is_of_earlier_life(peer, error.sequence or 0):
            self._say_known(peer, now_s)
        elif known and not early and reason in settled and self._is_held(peer, error.sequence or 0):
            core.hands.tell(peer, control.Ack(self._held_for(peer, error.sequence or 0)))
        elif reason == "base":
            core.hands.tell(peer, control.Ack(core.node.mailbox.held_of(peer)))
        elif reason == "round" and self._repeated(data):
            core.hands.tell(peer, control.Ack(sequence_of(data)))
        elif known and not early:
            core.hands.tell(peer, control.Refusal(error.sequence or 0, reason))

    def _is_held(self, peer: int, sequence: int) -> bool:
        """Tell whether this message or a newer one is held; one of a past round may be neither.

        Of copies that are passed on, their covers count: what is in them may be another's.
        """
        node = self._core.node
        if isinstance(node, Node) and node.message == "forward":
            return sequence <= node.newest_from(peer)
        return sequence <= node.mailbox.newest_with_next_round(peer)

    def _held_for(self, peer: int, sequence: int) -> int:
        """Return what is acknowledged in place of a message that is not newer than what is held.

        That is the newest one: a sender that has lost its disk, and its count, so learns of it.
        """
        core = self._core
        if core.in_rounds or not isinstance(core.node, Node):
            return sequence
        return core.node.newest_from(peer)

    def _early(self, data: bytes) -> bool:
        """Tell whether a message is acknowledged later: when its round begins."""
        node = self._core.node
        early = isinstance(node, Node) and node.holds_back and len(data) >= HEADER_BYTES
        return early and round_of(data) > node.mailbox.round

    def _repeated(self, data: bytes) -> bool:
        """Tell whether a message of this round, heard before, came again under a new number.

        Its sender has begun anew, and waits for an acknowledgement.
        """
        node = self._core.node
        return isinstance(node, Node) and node.holds_back and round_of(data) == node.mailbox.round

    def acknowledge_begun(self) -> None:
        """Acknowledge what came early and is of the round that has begun."""
        box = self._core.node.mailbox
        for row in np.flatnonzero(box.heard):
            self._core.hands.tell(int(row), control.Ack(int(box.sequence[row])))

    # -- lives -------------------------------------------------------------------------------------

    def _is_of_earlier_life(self, peer: int, sequence: int) -> bool:
        return not self._core.in_rounds and sequence >> LIFE_BITS < self._life_held(peer)

    def _life_held(self, peer: int) -> int:
        """Return the latest life of a neighbour that is known here."""
        core = self._core
        said = core.hands.voice.life_heard(peer) if core.hands.voice is not None else 0
        if core.in_rounds:  # its sequences count on over lives
            return said
        return max(said, core.node.mailbox.newest_of(peer) >> LIFE_BITS)

    def _say_known(self, peer: int, now_s: float) -> None:
        if now_s - self._answered_s.get(peer, -ANSWER_EVERY_S) >= ANSWER_EVERY_S:
            self._answered_s[peer] = now_s
            self._core.hands.tell(peer, control.Known(self._life_held(peer)))

    # -- control -----------------------------------------------------------------------------------

    def heed(self, peer: int, data: bytes, now_s: float) -> None:
        """Act on what a neighbour says."""
        core, voice = self._core, self._core.hands.voice
        if voice is None:  # we have not begun: it will say it again
            return
        body = None
        try:
            self._check_not_excluded(peer)
            body = voice.hear(peer, data)
            self._check_answer(peer, body)
        except CodecError as error:
            core.node.mailbox.refused[f"control_{error.reason}"] += 1
            core.hands.log_refused(peer, error.reason, str(error))
            life = (error.sequence or 0) >> LIFE_BITS
            if isinstance(body, control.Ack) and not core.in_rounds:  # it holds what we forgot
                core.life.told(peer, body.sequence >> LIFE_BITS, now_s)
            # words come in order: who repeats numbers has begun again and lost count of its lives
            if error.reason == "stale" and life <= self._life_held(peer):
                self._say_known(peer, now_s)
            return
        core.pace.heed(core, peer, body, now_s)
        if isinstance(body, control.Ack):
            self.refusals.pop(peer, None)
            core.sending.acknowledged(peer, body.sequence, now_s)
        elif isinstance(body, control.Refusal):
            self._refused(peer, body, now_s)
        elif isinstance(body, control.Hello):
            self._greeted(peer, body, now_s)
        elif isinstance(body, control.Known):
            core.life.told(peer, body.life, now_s)
        elif isinstance(body, control.Period):
            core.sending.links.note_rate(peer, body.rate)
        elif isinstance(body, control.Quality):
            self.qualities[peer] = body.links.get(core.node.index, (0.0, 0.0))
        elif isinstance(body, control.Done):
            self.done.add(peer)

    def _check_not_excluded(self, peer: int) -> None:
        if peer in self._core.node.excluded:
            raise CodecError("excluded", f"node {peer} has signed two contents under one number")

    def _check_answer(self, peer: int, body: control.Body) -> None:
        """Refuse an answer to what was never said."""
        most = self._core.node.sequence
        if isinstance(body, control.Ack | control.Refusal) and body.sequence > most:
            text = f"node {peer} answers message {body.sequence}, and our last is {most}"
            raise CodecError("range", text)

    def _refused(self, peer: int, body: control.Refusal, now_s: float) -> None:
        core = self._core
        self.refusals[peer] = body.reason
        text = f"our message {body.sequence} was not taken"
        core.hands.log_refused(peer, f"by_neighbour_{body.reason}", text)
        core.sending.refused(peer, body.sequence, now_s, waits=core.in_rounds)

    def _greeted(self, peer: int, body: control.Hello, now_s: float) -> None:
        core = self._core
        if body.incarnation < self._life_held(peer):
            self._say_known(peer, now_s)
        if self.lives.setdefault(peer, body.incarnation) != body.incarnation:
            self.lives[peer] = body.incarnation  # it may have lost what it heard
            core.sending.begun_again(peer, now_s)
        if not body.clock_s:  # it has not begun, or is done: it lives no slots
            core.clock.forget(peer)
        elif core.is_learning:
            core.clock.heard(peer, body.clock_s, now_s, core.there())
