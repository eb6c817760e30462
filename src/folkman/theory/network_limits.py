"""Which steps Algorithm 1 bears with momentum of the network: nodes alike, copies of one age.

On F_i(w) = (L/2) |w|^2 for all i, all copies D slots old and centred own parts, the nodes move as
one, and what they remember is a vector x = (w(t), ..., w(t-D), w(t-1), m, M, gbar, v(t-1)):

    m'    = m + k ( w(t) - w(t-1) - m )                          k = 1 / (1 + LONG D)
    v     = (1 - alpha) w(t-D) + alpha ( w(t) - D m' )           alpha = 1/I
    M'    = M + k ( v - v(t-1) - M )
    gbar' = gbar + k ( L v - gbar )
    w'    = w(t) - eta ( L v - theta gbar' ) + beta M'

The step is stable where no root of this map lies outside the unit circle. The roots depend on eta L
alone. They are found as eigenvalues (`radius_alike`), and the limit by looking at steps one after
the other, 0.002 apart, from the shortest on.

>>> [round(limit_alike(5, 1 / 5, beta), 3) for beta in (None, 0.5, 0.875)]
[0.39, 0.444, 0.46]
"""

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.pieces.network_momentum import THETA
from folkman.algorithm.pieces.own_part import LONG

__all__ = ["limit_alike", "radius_alike"]

STEPS = np.arange(1, 1251) * 0.002
"""eta L of the steps that are looked at."""
ROUNDING = 1e-9
"""A root on the circle, as that of the mean at rest, may be so far outside."""


def limit_alike(delay: int, share: float, beta: float | None) -> float:
    """Return the least eta L at which a swing grows; beta None: without momentum."""
    grows = (step for step in STEPS if radius_alike(step, delay, share, beta) > 1 + ROUNDING)
    return float(next(grows, np.inf))


def radius_alike(step: float, delay: int, share: float, beta: float | None) -> float:
    """Return the largest root, eta L being `step`."""
    return float(np.abs(np.linalg.eigvals(_map(step, delay, share, beta))).max())


def _map(step: float, delay: int, share: float, beta: float | None) -> NDArray[np.float64]:
    """Return x' = A x; gbar is kept as gbar / L."""
    unit = np.eye(delay + 6)
    newest, oldest = unit[0], unit[delay]
    before, pace, network, slope, point = unit[delay + 1 :]
    part = 1 / (1 + LONG * delay)
    paced = pace + part * (newest - before - pace)
    seen = (1 - share) * oldest + share * (newest - delay * paced)
    networked = network + part * (seen - point - network)
    sloped = slope + part * (seen - slope)
    moved = newest - step * seen
    if beta is not None:
        moved = newest - step * (seen - THETA * sloped) + beta * networked
    return np.array([moved, *unit[:delay], newest, paced, networked, sloped, seen])
