"""Floors for logistic losses: the time before which no first-order method can be near the optimum.

    F = sum_i alpha_i F_i,   F_i(w) = 1/n_i sum_s log(1 + exp(-z_s . w)) + mu/2 ||w||^2,   z = y x
    V_i(0) = {0}
    V_i(t) = V_i(t-1) + sum_{j != i} V_j(t - h) + G_i(V_i(t - c_i))
    G_i({0}) = span{grad F_i(w(0))}
    G_i(V) = V + span{w(0)} + span{z_s : sample s can be felt from w(0) + V}
    F(w(t)) >= min over v in sum_i V_i(t) of F(w(0) + v)
    ||grad F(w)||^2 >= 2 mu (F(w) - F*)                                     mu-strong convexity

A gradient is a combination of the z_s. Samples with the same line through z_s, n+ of them along z
and n- against it, add -n+ s(-u) + n- s(u) times z, where u = z . w and s is the logistic function.
Such a line is *felt* from w(0) + V if that is not 0 at w(0), or if V moves u. Otherwise it is 0 in
all of w(0) + V: no gradient there has any part of z. This is how lower bounds for the worst
function let a method see one more coordinate with each gradient [1, 2]; here the spaces are those
of the given data, so that the floor holds on this problem.

The floor is high where samples form a chain over the nodes, as in the worst cases of [1, 2]: then
each link of the chain costs a gradient and a message. It is low on data whose samples overlap: from
the second gradient on every sample is felt, and only the first c_i slots are bounded. Nothing
better is known to us for a given data set.

The least F over a space is found by Newton's method; what may be left, ||grad||^2 / (2 mu) within
the space, is taken off. So rounding apart the floor is never too high.

Assumes what `folkman.theory.floors` does, mu > 0 on all entries, and no bias that is left out of
it. Where each sample (x, y) has its mirror (-x, -y) at the same node, a bias that begins at 0 stays
there and may be left out.

[1] K. Scaman, F. Bach, S. Bubeck, Y. T. Lee, L. Massoulie. Optimal Algorithms for Smooth and
    Strongly Convex Distributed Optimization in Networks. ICML 2017. arXiv:1702.08704
[2] A. Tyurin, P. Richtarik. On the Optimal Time Complexities in Decentralized Stochastic
    Asynchronous Optimization. NeurIPS 2024. arXiv:2405.16218
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from folkman.arrays import Float
from folkman.checks import require
from folkman.theory.floors import DEPENDENT, Floor, joined, spaces_of

__all__ = ["LogisticParts", "logistic_floor_of"]

NEWTON_STEPS = 60


class LogisticParts(NamedTuple):
    """The samples of all nodes."""

    margins: Sequence[Float[ndarray, "sample d"]]  # z = y x of each node, y = -1 or 1
    share: Float[ndarray, " node"]  # share of each node in the loss, alpha_i
    l2: float  # weight of the penalty, mu

    def loss(self, w: ndarray) -> tuple[float, ndarray, ndarray]:
        """Return F, its gradient and its second derivative."""
        value, slope = 0.5 * self.l2 * float(w @ w), self.l2 * w
        bend = self.l2 * np.eye(len(w))
        for alpha, z in zip(self.share, self.margins, strict=True):
            weight, u = alpha / len(z), z @ w
            away = _logistic(-u)
            value += weight * float(np.logaddexp(0.0, -u).sum())
            slope = slope - weight * (away @ z)
            bend = bend + weight * (z.T * (away * (1 - away))) @ z
        return value, slope, bend


def logistic_floor_of(
    parts: LogisticParts,  # samples of all nodes
    start: Float[ndarray, " d"],
    slots: int,
    *,
    compute_slots: int | Sequence[int] = 1,
    message_slots: int = 0,
) -> Floor:
    """Return the floor of the first `slots` slots from w(0) = `start`."""
    require(
        parts.l2 > 0,
        f"the floor of a logistic loss needs an l2 above 0, got {parts.l2}; without one the least "
        "loss may be nowhere",
    )
    first = [
        parts._replace(margins=[z], share=np.ones(1)).loss(start)[1][:, None] for z in parts.margins
    ]
    lines = [_lines(z, start) for z in parts.margins]

    def gradients(node: int, held: ndarray) -> ndarray:
        if not held.shape[1]:
            return first[node]
        z, felt = lines[node]
        moved = np.linalg.norm(z @ held, axis=1) > DEPENDENT * np.linalg.norm(z, axis=1)
        return np.column_stack([held, start, z[felt | moved].T])

    shape = len(parts.margins), len(start)
    spaces = spaces_of(gradients, shape, slots, compute_slots, message_slots)
    best = _least(parts, start, np.eye(len(start)))[1]
    known: dict[int, float] = {}
    excess = []
    for held in spaces:  # spaces grow: those of one size are one
        basis = joined(*held)
        size = basis.shape[1]
        if size not in known:
            known[size] = max(_least(parts, start, basis)[0] - best, 0.0)
        excess.append(known[size])
    return Floor(np.sqrt(2 * parts.l2 * np.array(excess)), np.array(excess))


def _lines(z: ndarray, start: ndarray) -> tuple[ndarray, ndarray]:
    """Return the lines of the samples, and whether each has a slope at the start."""
    found: dict[bytes, tuple[ndarray, float]] = {}
    for each in z:
        side = 1.0 if each[np.flatnonzero(each)[:1]].sum() >= 0 else -1.0
        line = side * each + 0.0  # no -0.0
        slope = -side * _logistic(-np.atleast_1d(each @ start))[0]
        found[line.tobytes()] = line, found.get(line.tobytes(), (line, 0.0))[1] + slope
    slopes = np.array([slope for _, slope in found.values()])
    return np.array([line for line, _ in found.values()]), np.abs(slopes) > DEPENDENT * len(z)


def _logistic(u: ndarray) -> ndarray:
    return np.exp(-np.logaddexp(0.0, -u))


def _least(parts: LogisticParts, start: ndarray, basis: ndarray) -> tuple[float, float]:
    """Return what F is at least, and at most, at its least over w(0) + the space."""
    at = np.zeros(basis.shape[1])
    for _ in range(NEWTON_STEPS):
        value, slope, bend = parts.loss(start + basis @ at)
        pull = basis.T @ slope
        if float(pull @ pull) <= 1e-30 or not len(at):
            break
        step = np.linalg.solve(basis.T @ bend @ basis, pull)
        scale = 1.0
        while scale > 1e-6 and parts.loss(start + basis @ (at - scale * step))[0] > value:
            scale /= 2
        at = at - scale * step
    value, slope, _ = parts.loss(start + basis @ at)
    pull = basis.T @ slope
    return value - float(pull @ pull) / (2 * parts.l2), value
