"""Stable steps and bias of own parts that may be set back by the mean pace (Theorem G).

Nodes alike, F_i(w) = L/2 w^2, with equal shares and all ages D, follow with e = eta L, y = z - 1
and k = 1 / (1 + 4 D)

    mean          y + e [ rho + (1 - rho) z^-D - sigma D k y / (y + k) ] = 0
    differences   1 + e [ rho (z^-1 + ... + z^-D) - sigma D k / (y + k) ] = 0

as the equations of their roots z (`own_part`, equation (1)). At e = 0 all roots but the mean's
z = 1 are inside the unit circle, and that one moves inside. A root leaves where z = exp(i theta):
there the imaginary part of what e multiplies, after division by y for the mean, changes its sign,
and the real part is -1 / e; where it is 0 and keeps its sign, a root touches the circle and turns
back (proof: docs/fresh-air-theory.md, section 5). With s = sin^2(theta / 2) and
N = k^2 + 4 (1 - k) s these are

    mean          (1 - rho) cos((D + 1/2) theta) = - cos(theta / 2) (rho - 4 sigma D k s / N)
                  e = 2 / [ rho + (1 - rho) sin((D + 1/2) theta) / sin(theta / 2)
                            + 2 sigma D k (k - 2 s) / N ]
    differences   rho sin((D + 1) theta / 2) sin(D theta / 2)
                    = sigma D k sin(theta) sin(theta / 2) / N
                  e = 1 / [ sigma D k (k - 2 s) / N
                            - rho cos((D + 1) theta / 2) sin(D theta / 2) / sin(theta / 2) ]

and the stable steps are those below the least positive e. For sigma = 0 and rho = 0 it is
2 sin(pi / (2 (2 D + 1))), at theta = pi / (2 D + 1).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from folkman.algorithm.pieces.own_part import LONG
from folkman.checks import require
from folkman.theory.own_part import Quadratics, Setting, optimum

__all__ = ["bias_bound_any_ages", "limit_alike", "rest_displacement", "slope_bound"]

Curve = Callable[[ndarray], ndarray]


def limit_alike(age: int, rho: float, set_back: float = 0.0) -> float:
    """Return the largest stable eta L of nodes alike with equal shares and ages (Theorem G).

    `centred` has rho = set_back = 1/I.

    >>> round(limit_alike(5, 0.0), 3), round(limit_alike(5, 0.2), 3)
    (0.285, 0.408)
    >>> round(limit_alike(5, 0.2, 0.2), 3)
    0.39
    """
    require(
        age >= 0 and 0 <= set_back <= rho <= 1,
        f"age >= 0 and 0 <= set_back <= rho <= 1, got {age}, {set_back} and {rho}",
    )
    if age == 0:
        return 2.0
    late, k = float(age), 1.0 / (1.0 + LONG * age)
    pulled = set_back * late * k

    def filtered(angle: ndarray) -> tuple[ndarray, ndarray]:
        s = np.sin(angle / 2) ** 2
        return s, k**2 + 4 * (1 - k) * s

    def mean_turn(angle: ndarray) -> ndarray:
        s, n = filtered(angle)
        share = rho - 4 * pulled * s / n
        return (1 - rho) * np.cos((late + 0.5) * angle) + np.cos(angle / 2) * share

    def mean_pull(angle: ndarray) -> ndarray:
        s, n = filtered(angle)
        delayed = (1 - rho) * np.sin((late + 0.5) * angle) / np.sin(angle / 2)
        return (rho + delayed + 2 * pulled * (k - 2 * s) / n) / 2

    def apart_turn(angle: ndarray) -> ndarray:
        _, n = filtered(angle)
        turned = rho * np.sin((late + 1) * angle / 2) * np.sin(late * angle / 2)
        return pulled * np.sin(angle) * np.sin(angle / 2) / n - turned

    def apart_pull(angle: ndarray) -> ndarray:
        s, n = filtered(angle)
        summed = np.cos((late + 1) * angle / 2) * np.sin(late * angle / 2) / np.sin(angle / 2)
        return pulled * (k - 2 * s) / n - rho * summed

    pulls = np.concatenate(
        [_crossings(mean_turn, mean_pull, age), _crossings(apart_turn, apart_pull, age)]
    )
    return float(1.0 / pulls[pulls > 0].max())


def _crossings(turn: Curve, pull: Curve, age: int) -> Float[ndarray, " crossing"]:
    """Return 1 / e at all angles in (0, pi] at which a root can leave; z = -1 always is one."""
    ends = np.linspace(0.0, np.pi, 400 * (age + 1) + 1)[1:-1]
    signs = np.sign(turn(ends))
    changes = np.flatnonzero(signs[1:] * signs[:-1] <= 0)
    low, high = ends[changes], ends[changes + 1]
    below = signs[changes]
    for _ in range(50):
        middle = (low + high) / 2
        same = np.sign(turn(middle)) == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return pull(np.append((low + high) / 2, np.pi))


def rest_displacement(s: Setting, shares: Float[ndarray, " node"]) -> Float[ndarray, "node other"]:
    """Return R' of v_i = w + eta sum_j R'_ij g_j at rest, with as small entries as b_i allows.

    R'_ij = alpha_j (a_ij - b_i), and (sigma_i - rho_i) b_i on the diagonal. It is R of Theorem E
    less alpha_j b_i in row i, which changes nothing where sum_j alpha_j g_j = 0.
    """
    back = np.zeros(len(s.rho)) if s.set_back is None else s.set_back
    found = np.asarray(shares)[None] * (s.ages - s.own_age[:, None])
    np.fill_diagonal(found, (back - s.rho) * s.own_age)
    return found


def slope_bound(
    s: Setting,
    shares: Float[ndarray, " node"],
    smoothness: Float[ndarray, " node"],
    step: float,
    slopes: Float[ndarray, "node d"],
) -> float:
    """Return a bound on ||grad F(w)|| at rest, for any L_i-smooth F_i and any constant ages.

    It is eta sum_i alpha_i L_i ||sum_j R'_ij g_j||, with g_j = grad F_j(v_j) in `slopes`.
    """
    moved = np.linalg.norm(rest_displacement(s, shares) @ np.asarray(slopes), axis=1)
    return step * float(np.asarray(shares) @ (np.asarray(smoothness) * moved))


def bias_bound_any_ages(q: Quadratics, s: Setting, step: float) -> float:
    """Return a bound on ||w - w*|| at rest from what is known beforehand (Theorem G).

    With kappa_i = eta L_i sum_j |R'_ij|, their largest kappa, their mean kappa' by shares, L the
    largest L_i and G the largest ||grad F_i(w*)||: kappa' G / (mu (1 - kappa) - kappa' L), for F
    mu-strongly convex. Infinite where this says nothing.
    """
    values = np.linalg.eigvalsh(q.curvature)
    whole = np.einsum("i,iab->ab", q.shares, q.curvature)
    least = float(np.linalg.eigvalsh(whole).min())
    slopes = np.einsum("iab,ib->ia", q.curvature, optimum(q) - q.centre)
    each = step * values.max(axis=1) * np.abs(rest_displacement(s, q.shares)).sum(axis=1)
    mean, most = float(q.shares @ each), float(each.max())
    left = least * (1 - most) - mean * float(values.max())
    steepest = float(np.linalg.norm(slopes, axis=1).max())
    return mean * steepest / left if left > 0 else np.inf
