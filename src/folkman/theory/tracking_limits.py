"""How long a step of R-FAST may be on a graph, for nodes of one curvature whose messages are new.

    p_j = z_j c_j of the slot before,   z_i <- z_i + sum_j p_j
    v_i = x_i - eta z_i,   x_i <- (v_i + sum_j v_j of the slot before) / (in_i + 1)
    z_i <- z_i + L (x_i - x_i before),   z_i <- c_i z_i            c_i = 1 / (out_i + 1)

is a linear map of (x, z, v, p). It is stable where no eigenvalue is outside the unit circle; one is
1, as the sum of what is tracked stays. On a ring in one direction what is tracked goes round in
slowly turning modes, and the longest stable eta L falls with the number of nodes. Later or lost
messages are not in the map: beyond its limit a run diverges, below it nothing is proved.
"""

import numpy as np
from numpy import ndarray

from folkman.arrays import Bool

__all__ = ["TRACKING", "is_stable", "tracking_limit"]

TRACKING = "rfast"
"""The method whose limits these are."""

MOST = 4.0
"""No step is longer by eta L: gradient descent bears 2."""
LEAST = 1e-9
"""A shorter step is of no use, and 0 is told instead."""


def is_stable(
    hears: Bool[ndarray, "rx tx"],  # who hears whom, (rx, tx)
    step: float,
) -> bool:
    """Tell whether R-FAST is stable with eta L = `step`; `hears` is the graph."""
    nodes = len(hears)
    listens = hears.astype(float)
    row = 1.0 / (1.0 + listens.sum(axis=1))[:, None]
    part = 1.0 / (1.0 + listens.sum(axis=0))[:, None]
    x, z, v, p = np.split(np.eye(4 * nodes), 4)
    z = z + listens @ p
    moved = x - step * z
    mixed = row * (moved + listens @ v)
    tracked = part * (z + mixed - x)
    whole = np.concatenate([mixed, tracked, moved, tracked])
    return bool(np.abs(np.linalg.eigvals(whole)).max() < 1 + 1e-7)


def tracking_limit(
    hears: Bool[ndarray, "rx tx"],  # who hears whom, (rx, tx)
) -> float:
    """Return the longest stable eta L, to a thousandth of itself.

    >>> both = ~np.eye(2, dtype=bool)
    >>> tracking_limit(both) > 1
    True
    """
    low, high = 0.0, MOST
    while high - low > 1e-3 * high and high > LEAST:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_stable(hears, middle) else (low, middle)
    return low
