"""What a core has written to its disk: one save at a time, each under its ticket."""

from typing import TYPE_CHECKING

import numpy as np

from folkman.runtime import state
from folkman.runtime.core.events import Arrays, Save
from folkman.runtime.core.hands import Hands
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.server_node import ServerNode

__all__ = ["Saving"]

AGAIN_S = 1.0
"""After a disk that refused, where nothing may go on without it."""


class Saving:
    """The save that is under way, if any, and what the last one brought."""

    def __init__(self, node: "Node | ServerNode", hands: Hands, every_s: float) -> None:
        self._node, self._hands, self._every_s = node, hands, every_s
        self._ticket = 0
        self._under_way: int | None = None
        self._steps = 0  # in the save that is under way
        self._slot = 0  # in it too
        self._last_s = 0.0
        self.not_before_s = float("-inf")  # of the next one that must succeed
        self.slot, self.steps = -1, 0  # in the state on disk; -1: of an earlier process
        self.succeeded = 0  # the ticket of the last save that the disk took

    @property
    def is_idle(self) -> bool:
        """Tell whether the disk has nothing to do."""
        return self._under_way is None

    def begin(self, now_s: float) -> None:
        """Count the time to the first save from now on."""
        self._last_s, self.steps = now_s, self._node.steps

    def now_and_then(self, now_s: float) -> None:
        """Save the newest state if it is time and a slot was lived since; between two slots."""
        lived = self._node.slot != self.slot
        if lived and self.is_idle and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self.start(with_state=True)

    def start(
        self, *, with_state: bool = False, life: int | None = None, final: Arrays | None = None
    ) -> int | None:
        """Let something be written; return its ticket.

        A state that is not finite is left out, since it would make the last good one unreachable.
        None: nothing is left to write.
        """
        arrays = state.pack(self._node) if with_state else None
        if arrays is not None and not np.isfinite(arrays["params"]).all():
            arrays = None
        if arrays is None and life is None and final is None:
            return None
        self._ticket += 1
        self._under_way, self._slot, self._steps = self._ticket, self.slot, self.steps
        if arrays is not None:
            self._slot, self._steps = (int(each) for each in arrays["counters"][:2])
        self._hands.do(Save(self._ticket, arrays, life, final))
        return self._ticket

    def saved(self, ticket: int) -> None:
        """Take notice that a save would survive a power cut."""
        if ticket == self._under_way:
            self._under_way, self.succeeded = None, ticket
            self.slot, self.steps = self._slot, self._steps
            self._hands.counts["saves"] += 1

    def failed(self, ticket: int, text: str, now_s: float) -> None:
        """Take notice that the disk refused."""
        if ticket == self._under_way:
            self._under_way, self.not_before_s = None, now_s + AGAIN_S
            self._hands.counts["saves_failed"] += 1
            self._hands.log("not saved", level="error", reason="disk", text=text)
