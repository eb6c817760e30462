"""Where gradients are taken: invariant 33, a re-telling of equation (9) of Algorithm 1."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from folkman.packing.packing import step_of
from folkman.runtime.core.events import Compute
from folkman.runtime.world.audit import Invariant, Seen, broken

if TYPE_CHECKING:
    from folkman.runtime.world.world import World

__all__ = ["AtTheMean"]

ROUNDING = 1e-5
"""Of the largest number in a mean, for what single precision leaves out."""


class AtTheMean(Invariant):
    """33: a gradient is that of the mean of all parameters, as far as they are known."""

    number = 33
    sentence = "a gradient is taken at the mean of the own parameters and of those that are held"
    looks_at = (Compute,)

    def asks(self, world: "World") -> bool:
        """Ask of Algorithm 1, whatever its messages hold."""
        return world.plan.method not in ("rounds", "server")

    def stepped(self, seen: Seen) -> None:
        """Form the mean anew, and compare."""
        shares, number = seen.world.setting.shares, seen.host.number
        own = np.asarray(seen.node.params(), np.float64)
        wanted = shares[number] * own + _others(seen, shares)
        held = np.abs(seen.node.mailbox.payload).max()
        largest = max(1.0, np.abs(own).max(), np.abs(wanted).max(), held)
        for effect in seen.of(Compute):
            point = np.asarray(effect.point, np.float64)
            if np.abs(point - wanted).max() > ROUNDING * largest:
                text = f"node {number} takes a gradient at {point.round(4)}"
                raise broken(self, f"{text}, the mean is {wanted.round(4)}")


def _others(seen: Seen, shares: NDArray) -> NDArray:
    """Return the weighted sum of what a node holds of others."""
    number, box = seen.host.number, seen.node.mailbox
    if seen.world.plan.carries != "sum":
        apart = np.where(np.arange(len(shares)) == number, 0.0, shares)
        return apart @ box.payload.astype(np.float64)
    if not seen.world.plan.on_grid:
        return np.asarray(box.others, np.float64)
    return _read(box, len(shares))


def _read(box: Any, nodes: int) -> NDArray:
    """Return a sum of whole numbers, of which the lowest bits are known, in its own unit.

    With the node's own part it lies around zero.
    """
    step, modulus = step_of(box.parts.packing) / nodes, 1 << box.parts.bits
    own = box._own()[1]
    whole = (box.others + own + modulus // 2) % modulus - modulus // 2
    return (whole - own) * step
