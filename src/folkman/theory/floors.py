"""Floors: the time before which no first-order method can have a small gradient, on quadratics.

    F = sum_i alpha_i F_i,   grad F_i(w) = A_i (w - x_i)
    V_i(0) = {0}
    V_i(t) = V_i(t-1) + sum_{j != i} V_j(t - h)                    messages take h slots
             + A_i V_i(t - c_i) + span{grad F_i(w(0))}             a gradient takes c_i slots
    w(t) in w(0) + sum_i V_i(t),   so that
    ||grad F(w(t))|| >= min over v in sum_i V_i(t) of ||grad F(w(0) + v)||

V_i(t) is all that node i can hold in slot t. A method may choose every coefficient with knowledge
of the whole problem, so the floor holds on this problem and not only for the worst of a class; it
is low where d is not far above the number of nodes times the slots. The argument is that of lower
bounds by Krylov spaces [1], with the time of messages and gradients as in [2, 3].

Assumes:
  * models, and all that is sent, are w(0) plus linear combinations of gradients that the node has
    taken or been sent. Momentum, tracking, control variates and any mixing are of this kind.
    Steps that scale each coordinate by itself (Adam, sparsity, quantisation) are not;
  * one gradient at a time at a node, none in less than c_i slots, no message in less than h;
  * full gradients.

For logistic losses see `folkman.theory.logistic_floors`.

[1] A. Nemirovski, D. Yudin. Problem Complexity and Method Efficiency in Optimization. Wiley, 1983.
[2] A. Tyurin, P. Richtarik. On the Optimal Time Complexities in Decentralized Stochastic
    Asynchronous Optimization. NeurIPS 2024. arXiv:2405.16218
[3] K. Scaman, F. Bach, S. Bubeck, Y. T. Lee, L. Massoulie. Optimal Algorithms for Smooth and
    Strongly Convex Distributed Optimization in Networks. ICML 2017. arXiv:1702.08704
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from folkman.arrays import Float
from folkman.checks import require

__all__ = ["MODEL", "Floor", "Parts", "floor_of", "joined", "spaces_of"]

MODEL = "quadratic"
"""The model for which there is a floor."""

DEPENDENT = 1e-12
"""Part of its length below which a vector is taken to lie in a space."""


class Parts(NamedTuple):
    """The quadratics of all nodes."""

    curvature: Float[ndarray, "node d d"]  # curvature of each node, A_i
    least: Float[ndarray, "node d"]  # where each node has its least loss, x_i
    share: Float[ndarray, " node"]  # share of each node in the loss, alpha_i


class Floor(NamedTuple):
    """What no first-order method can go below, by slots from 0."""

    gradient_norm: Float[ndarray, " slot"]  # ||grad F||
    excess_loss: Float[ndarray, " slot"]  # F - F*

    def slots_to(
        self,
        gradient_norm: float,  # ||grad F|| to reach
    ) -> int | None:
        """Return the first slot at whose start a gradient may be as small; None: not in these."""
        found = np.flatnonzero(self.gradient_norm <= gradient_norm)
        return int(found[0]) if len(found) else None


def floor_of(
    parts: Parts,  # quadratics of all nodes
    start: Float[ndarray, " d"],
    slots: int,
    *,
    compute_slots: int | Sequence[int] = 1,
    message_slots: int = 0,
) -> Floor:
    """Return the floor of the first `slots` slots from w(0) = `start`."""
    whole = np.einsum("i,ijk->jk", parts.share, parts.curvature)
    first = [a @ (start - x) for a, x in zip(parts.curvature, parts.least, strict=True)]
    gradient = np.einsum("i,ij->j", parts.share, first)

    def gradients(node: int, held: ndarray) -> ndarray:
        return np.column_stack([parts.curvature[node] @ held, first[node]])

    spaces = spaces_of(gradients, parts.least.shape, slots, compute_slots, message_slots)
    found = [_least(whole, gradient, joined(*held)) for held in spaces]
    return Floor(*(np.array(column) for column in zip(*found, strict=True)))


def spaces_of(
    # (node, basis) -> columns that span all its gradients there
    gradients: Callable[[int, ndarray], ndarray],
    shape: tuple[int, int],  # number of nodes, and of parameters
    slots: int,
    compute_slots: int | Sequence[int],
    message_slots: int,
) -> list[list[ndarray]]:
    """Return an orthonormal basis of V_i(t), by slot from 0 and by node; `shape` is (node, d).

    `gradients(node, basis)` are columns that span all gradients of a node at points of a space.
    """
    nodes, dim = shape
    takes = [compute_slots] * nodes if isinstance(compute_slots, int) else list(compute_slots)
    require(
        len(takes) == nodes and min(takes) >= 1 and message_slots >= 0,
        f"expected {nodes} numbers of slots of at least 1 for gradients and at least 0 for a "
        f"message, got {takes} and {message_slots}",
    )
    spaces = [[np.zeros((dim, 0))] * nodes]
    for slot in range(1, slots + 1):
        held = []
        for node in range(nodes):
            more = [spaces[slot - 1][node]]
            if slot >= takes[node]:
                more.append(gradients(node, spaces[slot - takes[node]][node]))
            if message_slots and slot >= message_slots:
                others = spaces[slot - message_slots]
                more += [others[j] for j in range(nodes) if j != node]
            held.append(joined(*more))
        if message_slots == 0:  # what is told at once, all hold
            held = [joined(*held)] * nodes
        spaces.append(held)
    return spaces


def joined(*spaces: ndarray) -> ndarray:
    """Return an orthonormal basis of the sum of spaces, each given by columns; the first is one."""
    basis = spaces[0][:, :0]
    for column in np.concatenate(spaces, axis=1).T:
        length = np.linalg.norm(column)
        if basis.shape[1] == len(column) or length == 0:
            continue
        rest = column / length
        for _ in range(2):  # twice is enough
            rest = rest - basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > DEPENDENT:
            basis = np.concatenate([basis, (rest / np.linalg.norm(rest))[:, None]], axis=1)
    return basis


def _least(whole: ndarray, gradient: ndarray, basis: ndarray) -> tuple[float, float]:
    """Return the least gradient norm and the least F - F* over w(0) + the space."""
    solution = np.linalg.solve(whole, gradient)
    gap = 0.5 * float(gradient @ solution)  # F(w(0)) - F*
    if not basis.shape[1]:
        return float(np.linalg.norm(gradient)), gap
    image = whole @ basis
    coefficients = np.linalg.lstsq(image, -gradient, rcond=None)[0]
    norm = float(np.linalg.norm(gradient + image @ coefficients))
    pull = basis.T @ gradient
    gained = 0.5 * float(pull @ np.linalg.solve(basis.T @ image, pull))
    return norm, max(gap - gained, 0.0)
