"""How far from a node's own parameters a neighbour's may be: beyond that it has gone bad.

Between peers on their own beat nodes drift apart where data differ, by a step a slot, for as long
as they learn. So no fixed distance is right. A message is refused (`far`) if its distance from the
own one is above both

    farthest * s * (100 + slots)    s: the longest own step so far; slots: those lived here
    farthest * median               of the distances of all neighbours' newest messages, refused
                                    ones too, and of 0 for the node itself

An honest neighbour is within the first unless its steps are `farthest` times as long as the longest
here, slot after slot. The second lets a node in that begins when the others are far along: they are
all alike far away. It needs more than half of the neighbours to move it.
"""

import numpy as np
from numpy.typing import NDArray

from folkman.runtime.codec import CodecError, Message

__all__ = ["Reach"]

GRACE_SLOTS = 100
"""Slots that a neighbour may be ahead from the start."""
FIRST_STEP = 1.0
"""What stands for the longest step before the first was taken."""


class Reach:
    """One node's measure of what is far."""

    def __init__(self, farthest: float, neighbours: int) -> None:
        self._farthest, self._neighbours = farthest, neighbours
        self.step = 0.0  # the longest so far
        self.share = 0.0  # the largest share of the limit that a message came to, of those taken
        self._seen: dict[int, float] = {}

    def moved(self, before: NDArray, after: NDArray) -> None:
        """Take notice of an own step."""
        self.step = max(self.step, _distance(before, after))

    def check(self, message: Message, own: NDArray, slots: int) -> None:
        """Refuse a message that is too far away."""
        found = _distance(message.params, own)
        self._seen[message.node] = found
        limit = self._farthest * max(
            (self.step or FIRST_STEP) * (GRACE_SLOTS + slots), self._median()
        )
        if found > limit:
            text = (
                f"expected parameters within {limit:.3g} of our own, those of node {message.node} "
                f"are {found:.3g} away; it has gone bad, or set farthest in the node's file"
            )
            raise CodecError("far", text, message.node, message.sequence)
        self.share = max(self.share, found / limit)

    def _median(self) -> float:
        silent = self._neighbours - len(self._seen)
        return sorted([0.0] * (1 + max(silent, 0)) + [*self._seen.values()])[self._neighbours // 2]


def _distance(one: NDArray, other: NDArray) -> float:
    apart = np.subtract(one, other, dtype=np.float64)
    return float(np.sqrt(apart @ apart))
