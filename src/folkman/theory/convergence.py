"""Bounds on how far Algorithm 1 has come, each on its own terms, from the measured path of a run.

With the step eta and weights beta_i of `folkman.theory.trajectory`, a_ij(t) = t - tau_ij(t),
g_j = grad F_j(v_j), F* <= F, L = max L_i and L_mean = sum_i beta_i L_i, all of them bound the mean
over J slots of ||grad F(w(t))||^2 (proofs in docs/theory-proofs.md):

    simple      2 (F(w(0)) - F*) / (eta J)  +  (eta L A G)^2                 if eta L_mean <= 1
                A the largest age, G the largest ||g_j||
    ages        2 (F(w(0)) - F*) / (eta J)                                   if eta L_mean <= 1
                  +  eta^2 mean_t ( sum_ij beta_i L_i beta_j a_ij(t) G_j )^2
                never above `simple`: measured ages instead of the largest, L_i and G_j node by node
    spread      ( 2 (1-q) (F(w(0)) - F*) / (eta J)  +  q zeta^2 ) / (1 - 2q)
                if eta L_mean <= 1 and q = 3 (eta L A_2)^2 < 1/2
                no bound on gradients; A_2 <= A an effective age,
                zeta^2 the mean of sum_i beta_i ||grad F_i(w) - grad F(w)||^2. Nodes alike have
                zeta = 0: then it goes to 0 as 1/J, which the two above do not
    afterwards  2 (F(w(0)) - F(w(J))) / (eta J)  -  (1 - eta L_mean) mean ||sum_i beta_i g_i||^2
                  +  eta^2 mean_t ( sum_ij beta_i L_i beta_j sum_{s = tau_ij}^{t-1} ||g_j(s)|| )^2
                for any eta

Theorem 2 of [1] is in `folkman.theory.printed`.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.theory.trajectory import Trajectory

__all__ = [
    "BOUNDS",
    "Bound",
    "all_bounds",
    "effective_age",
    "measured",
    "window_sums",
    "without_running",
]

Floats = NDArray[np.float64]


class Bound(NamedTuple):
    """A bound for every horizon J = 1, 2, ....

    `reason` says why it does not apply, where it does not.
    """

    name: str
    # (slot,) the bound on the mean squared gradient; not a number where it does not apply
    curve: Floats
    reason: str = ""  # why it does not apply; empty where it does

    def holds(
        self,
        path: Trajectory,  # what the run was
        slack: float = 1e-5,  # share by which it may be exceeded, for rounding
    ) -> bool | None:
        """Tell whether the measured mean stays below, None where the bound does not apply."""
        if self.reason:
            return None
        return bool(np.all(measured(path) <= self.curve * (1 + slack)))


def without_running(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float = 0.0,  # F*, a lower bound of the loss
) -> float:
    """Return 2 L_mean (F(w(0)) - F*), which bounds ||grad F(w(0))||^2 anyway.

    A bound not below it is vacuous.
    """
    return 2.0 * float(path.weights @ smooth) * (float(path.loss[0]) - floor)


def measured(
    path: Trajectory,  # what the run was
) -> Floats:
    """Return the mean of ||grad F(w(t))||^2 over the first J slots, J = 1, 2, ..."""
    return _mean(path.slope_sq)


def _mean(x: Floats) -> Floats:
    return np.cumsum(x) / np.arange(1, len(x) + 1)


def _progress(path: Trajectory, floor: float) -> Floats:
    """Return 2 (F(w(0)) - F*) / (eta J)."""
    return 2.0 * (path.loss[0] - floor) / (path.step * np.arange(1, len(path.slope_sq) + 1))


def _refusal(path: Trajectory, smooth: Floats) -> str:
    e = path.step * float(path.weights @ smooth)
    return f"eta L_mean = {e:.3g} is above 1, and the bound needs at most 1" if e > 1 + 1e-9 else ""


def _bound(name: str, curve: Floats, reason: str) -> Bound:
    """Return a bound; one that does not apply shows no values."""
    return Bound(name, np.full(len(curve), np.nan) if reason else curve, reason)


def simple(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float,  # F*, a lower bound of the loss
    constants: tuple[float, float] = (1.0, 1.0),
) -> Bound:
    """Return the bound from the largest age and gradient.

    `constants` multiply its two terms, for testing them.
    """
    error = path.step * np.max(smooth) * np.max(path.ages) * np.max(path.local)
    curve = constants[0] * _progress(path, floor) + constants[1] * error**2
    return _bound("simple", curve, _refusal(path, smooth))


def ages(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float,  # F*, a lower bound of the loss
    constants: tuple[float, float] = (1.0, 1.0),
) -> Bound:
    """Return the bound from every copy's own age and every node's own L_i and G_j."""
    reach = path.weights * path.local.max(axis=0)  # beta_j G_j
    late = path.step * ((path.ages @ reach) @ (path.weights * smooth))  # (slot,)
    curve = constants[0] * _progress(path, floor) + constants[1] * _mean(late**2)
    return _bound("ages", curve, _refusal(path, smooth))


def effective_age(ages: NDArray[np.integer], weights: Floats) -> float:
    """Return A_2 from ages (slot, rx, tx) and beta (node,); never above the largest age.

    A_2^2 is the largest, over senders j and slots s, of the sum of beta_i sum_k beta_k a_ik(t) over
    the nodes i and slots t in which i has not yet got g_j(s).
    """
    slots, nodes = ages.shape[:2]
    each = (ages @ weights) * weights[None]  # (slot, rx): beta_i sum_k beta_k a_ik(t)
    marks = np.zeros((slots + 1, nodes))
    t, rx, tx = np.nonzero(ages)
    np.add.at(marks, (t - ages[t, rx, tx], tx), each[t, rx])
    np.add.at(marks, (t, tx), -each[t, rx])
    return float(np.sqrt(max(np.cumsum(marks, axis=0).max(), 0.0)))


def spread(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float,  # F*, a lower bound of the loss
    constants: tuple[float, float] = (1.0, 1.0),
) -> Bound:
    """Return the bound that needs no bound on gradients, only how much nodes differ."""
    q = 3.0 * (path.step * float(np.max(smooth)) * effective_age(path.ages, path.weights)) ** 2
    reason = _refusal(path, smooth)
    if not reason and q >= 0.5:
        reason = (
            f"q = 3 (eta L A_2)^2 = {q:.3g} is not below 1/2: the step is too long for these ages"
        )
    curve = constants[0] * (1.0 - q) * _progress(path, floor) + constants[1] * q * _mean(
        path.spread_sq
    )
    return _bound("spread", curve / (1.0 if reason else 1.0 - 2.0 * q), reason)


def window_sums(
    path: Trajectory,  # what the run was
) -> Floats:
    """Return sum_{s = tau_ij(t)}^{t-1} ||g_j(s)||, shape (slot, rx, tx).

    This is what i has not yet got of j, in length.
    """
    slots, nodes = path.ages.shape[:2]
    sums = np.concatenate([np.zeros((1, nodes)), np.cumsum(path.local, axis=0)])
    t, tx = np.arange(slots)[:, None, None], np.arange(nodes)[None, None]
    return sums[t, tx] - sums[t - path.ages, tx]


def afterwards(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float,  # F*, a lower bound of the loss
    constants: tuple[float, float] = (1.0, 1.0),
) -> Bound:
    """Return the bound from the gradients and losses that were met.

    It needs no condition on the step.
    """
    del floor
    count = np.arange(1, len(path.slope_sq) + 1)
    gained = 2.0 * (path.loss[0] - path.loss[1:]) / (path.step * count)
    late = path.step * ((window_sums(path) @ path.weights) @ (path.weights * smooth))
    spare = 1.0 - path.step * float(path.weights @ smooth)
    curve = constants[0] * (gained - spare * _mean(path.move_sq)) + constants[1] * _mean(late**2)
    return Bound("afterwards", curve)


BOUNDS = {"simple": simple, "ages": ages, "spread": spread, "afterwards": afterwards}
"""By name: (path, L_i (node,), F*) -> Bound."""


def all_bounds(
    path: Trajectory,  # what the run was
    smooth: Floats,  # L_i of each node
    floor: float = 0.0,  # F*, a lower bound of the loss
) -> list[Bound]:
    """Return every bound; F* = 0 is valid for losses that are never negative, Assumption 2(a)."""
    return [build(path, smooth, floor) for build in BOUNDS.values()]
