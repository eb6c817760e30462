"""What nodes do besides that carry sums or pass copies on: care for a lost past, and for proof."""

import math
from typing import TYPE_CHECKING

from folkman.runtime import control, journal
from folkman.runtime.codec import CodecError, LostPastError, sequence_of, slot_of
from folkman.runtime.core.pace import Pace
from folkman.runtime.fresh_node import FreshNode, SumNode

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["FreshPace", "freeze", "fresh_node"]

ASK_EVERY_S = 1.0
"""Between two requests for copies, and two answers to one neighbour."""
MOST_PROOF_BYTES = control.LARGEST_BYTES - 1024
"""Of two messages that are passed on as proof in one word of control; larger ones stay here."""
ON_THE_BAND = 16
"""Messages of an emulated band that may wait for one neighbour's acknowledgement."""


def fresh_node(core: "Core") -> FreshNode:
    """Return the node of such a pace."""
    assert isinstance(core.node, FreshNode)  # noqa: S101 - the pace was chosen for one
    return core.node


def freeze(core: "Core") -> None:
    """Let the node remember its present parameters, and note that."""
    frozen = fresh_node(core).freeze()
    if frozen is not None:
        core.hands.note(journal.SEND, frozen.slot, [frozen.number])


class FreshPace(Pace):
    """What the two paces of fresh air have in common."""

    room = ON_THE_BAND

    def __init__(self) -> None:
        self.progress: dict[int, int] = {}  # neighbour -> gradients that it says it has taken
        self._asked_s = -math.inf
        self._answered_s: dict[int, float] = {}
        self._proved_s: dict[int, float] = {}  # neighbour -> when it was last told who is excluded

    def lost(self, core: "Core", error: LostPastError, now_s: float) -> None:
        """Note that own parameters are lost, and ask for copies."""
        core.hands.note(journal.LOST, core.node.slot, [error.node or 0, error.stamp])
        if now_s - self._asked_s >= ASK_EVERY_S:
            self._asked_s = now_s
            core.hands.tell_all(core.node.neighbours, control.Ask(error.stamp))

    def heed(self, core: "Core", peer: int, body: control.Body, now_s: float) -> None:
        """Act on what a neighbour says."""
        if isinstance(body, control.Hello):
            self.progress[peer] = body.steps
        elif isinstance(body, control.Ask):
            self._answer(core, peer, now_s)
        elif isinstance(body, control.Proof):
            self._judge(core, peer, body)

    def _judge(self, core: "Core", peer: int, body: control.Proof) -> None:
        """Check a proof that a neighbour passes on; what proves nothing is refused."""
        try:
            self.equivocated(core, body.first, body.second)
        except CodecError as error:
            core.node.mailbox.refused["control_proof"] += 1
            core.hands.log_refused(peer, "proof", str(error))

    def equivocated(self, core: "Core", first: bytes, second: bytes) -> None:
        """Exclude a node that has signed two contents under one number, and pass the proof on.

        Raises `CodecError` for two messages that prove nothing.
        """
        origin = fresh_node(core).exclude(first, second)
        if origin is None:
            return
        core.exclude(origin, f"it has signed two contents under number {sequence_of(first)}")
        if len(first) + len(second) <= MOST_PROOF_BYTES:
            core.hands.tell_all(core.there(), control.Proof(first, second))

    def prove(self, core: "Core", peer: int, now_s: float) -> None:
        """Pass proof on to one that was away when it went round."""
        if now_s - self._proved_s.get(peer, -math.inf) < ASK_EVERY_S:
            return
        self._proved_s[peer] = now_s
        for first, second in fresh_node(core).excluded.values():
            if len(first) + len(second) <= MOST_PROOF_BYTES:
                core.hands.tell(peer, control.Proof(first, second))

    def _answer(self, core: "Core", peer: int, now_s: float) -> None:
        """Send a copy of our own parameters to one that has lost its past."""
        node = core.node
        often = now_s - self._answered_s.get(peer, -math.inf) < ASK_EVERY_S
        if often or not isinstance(node, SumNode):
            return
        self._answered_s[peer] = now_s
        data, stamp = node.copy()
        if stamp is not None:
            core.hands.note(journal.SEND, slot_of(data), [stamp])
        core.hands.publish(peer, data)
        core.hands.counts["copies_sent"] += 1
