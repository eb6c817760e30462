"""What each node puts into a sum, as a device computes it: the numbers of `folkman.packing.sums`.

    c_j(s) = alpha_j w_j(s)      in float64, rounded to the wire's type once at every hop
    q_j(s)                       whole numbers on the grid of `fixed`, never rounded again

A sum v_k = u_k + c_k goes on the air; u_k is the sum of the others' contributions.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.packing.packing import CASTS, Packing, place_bits, step_of
from folkman.packing.sums import on_grid, signed

__all__ = ["Contributions"]


class Contributions(NamedTuple):
    """How contributions are formed, added and read; `packing` is that of sums, settled."""

    packing: Packing
    initial: NDArray[np.floating]  # (d,) the first model
    shares: NDArray[np.floating]  # (node,) alpha_j, in the precision of the model

    @property
    def bits(self) -> int:
        """Return the bits of an entry of a sum of whole numbers, 0 where it is floating."""
        if not on_grid(self.packing):
            return 0
        return (self.packing.bits or 0) + place_bits(len(self.shares))

    def of(self, node: int, params: NDArray[np.floating]) -> NDArray:
        """Return the contribution of a node with these parameters."""
        if self.bits:  # as `packing.sums.contributions` rounds, in the same precision
            nodes = len(self.shares)
            factor = self.shares * nodes / step_of(self.packing)  # I alpha_j / c
            return np.round((params - self.initial) * factor[node]).astype(np.int64)
        if self.packing.name in CASTS:
            most = CASTS[self.packing.name][1]
            params = np.clip(params, -most, most).astype(self.packing.name)
        return np.float64(self.shares[node]) * params.astype(np.float64)

    def first_others(self, node: int) -> NDArray:
        """Return the sum of the others' contributions of the first model."""
        every = [self.of(j, self.initial) for j in range(len(self.shares)) if j != node]
        return np.sum(every, axis=0, dtype=every[0].dtype)

    def on_air(self, total: NDArray) -> NDArray:
        """Return a sum as it is sent."""
        if self.bits:
            return total
        wide = self.initial.dtype == np.float64 and self.packing.name not in CASTS
        return total.astype(np.float64 if wide else np.float32)

    def without(self, total: NDArray, own: NDArray) -> NDArray:
        """Return a sum that was received less the receiver's own old part."""
        if self.bits:
            return signed(total - own, self.bits)
        return total.astype(np.float64) - own

    def mixed(self, node: int, others: NDArray, own: NDArray) -> NDArray[np.floating]:
        """Return sum_{j != i} alpha_j w_j; `own` is the node's contribution now."""
        if not self.bits:
            return others.astype(self.initial.dtype)
        # what is known is the sum, in its lowest bits
        read = signed(others + own, self.bits) - own
        step = step_of(self.packing) / len(self.shares)
        base = (1.0 - np.float64(self.shares[node])) * self.initial.astype(np.float64)
        return (base + read * step).astype(self.initial.dtype)
