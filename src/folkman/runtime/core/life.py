"""A node's life: its number, taken before anything is said and noted on disk first.

A sequence number is the life above 32 bits and a count below. So a node whose disk was lost speaks
under numbers that its neighbours have heard, and is refused. They tell it so (`Known`), and it goes
on as of the life after. Each neighbour is believed once, and no number beyond 2^30: whoever lies
costs a node no more than half of its lives.

Where copies are forwarded, two contents under one number exclude whoever signed them. With error
feedback a change would be added to another message of the same number. So in both, the count of
every life begins at a number drawn at random below 2^31, and a node whose disk was lost uses none
again.
"""

from typing import TYPE_CHECKING

from folkman.runtime import control, journal, state
from folkman.runtime.control import LIFE_BITS
from folkman.runtime.core.events import Start
from folkman.runtime.durable import MOST_LIVES
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Life"]

MOST_BELIEVED = 2**30


class Life:
    """The number of the life that is on, and the one that is being noted."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.number = 0  # 0: none has begun
        self._next = 0  # to be noted, and begun when it is
        self._ticket: int | None = None
        self._believed: set[int] = set()
        self.resumed = False
        self._draw = 0

    def start(self, event: Start) -> None:
        """Take up what the disk had, and ask for a number."""
        core, self._draw = self._core, event.draw
        for text in event.warnings:
            core.hands.log("damaged", level="warning", text=text)
        if event.state is not None:
            state.restore(core.node, event.state)
            self.resumed = True
        spoken = 0 if core.in_rounds else core.node.sequence >> LIFE_BITS
        self._next = 1 + max(event.life, spoken)
        if self._next > MOST_LIVES:
            raise ValueError(
                f"expected at most {MOST_LIVES} lives, this would be number {self._next}; move the "
                "node's folder away and give the node a new number or key to begin anew"
            )

    def told(self, peer: int, life: int, now_s: float) -> None:
        """Hear that a neighbour holds a message of ours of some life, and go beyond it."""
        if peer in self._believed or not max(self.number, self._next) <= life < MOST_BELIEVED:
            return
        self._believed.add(peer)
        self._next = life + 1
        self._core.hands.log(
            "life",
            level="warning",
            text=f"node {peer} holds messages of our life {life}, and this is {self.number}: "
            f"what this node knew was lost; going on as of life {life + 1}",
        )
        self.act(now_s)

    def act(self, now_s: float) -> None:
        """Have a number noted, as soon as the disk is free."""
        saving = self._core.saving
        wants = self._next > self.number and self._ticket is None
        if wants and saving.is_idle and now_s >= saving.not_before_s:
            self._ticket = saving.start(life=self._next)

    def next_s(self) -> float:
        """Return when to try the disk again."""
        waits = self._next > self.number and self._ticket is None and self._core.saving.is_idle
        return self._core.saving.not_before_s if waits else float("inf")

    def saved(self, ticket: int) -> bool:
        """Begin the life that was noted; tell whether it is the first of this process."""
        if ticket != self._ticket:
            return False
        self._ticket = None
        first, self.number = self.number == 0, self._next
        core = self._core
        if not core.in_rounds:
            builds = core.node.message == "forward" or getattr(core.node, "memories", ())
            count = self._draw if builds else 0
            core.node.sequence = max(core.node.sequence, (self.number << LIFE_BITS) + count)
            if self.number > 1 and isinstance(core.node, Node):
                core.node.forget_receivers()
        if first:
            wire = core.node.wire
            core.hands.begin_to_speak(
                control.Voice(wire.run, core.node.index, self.number, wire.sign, core.verify)
            )
        elif core.hands.voice is not None:
            core.hands.voice.begin_life(self.number)
        core.hands.note(journal.START, core.node.slot, core.node.mailbox.sequence.tolist())
        return first

    def failed(self, ticket: int) -> None:
        """Ask again later: without a number nothing may be said."""
        if ticket == self._ticket:
            self._ticket = None
