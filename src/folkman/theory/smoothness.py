"""How fast gradients change: L_1 of Assumption 2(b), measured, and bounded where the model allows.

    curvatures   the largest |eigenvalue| of the Hessian of each F_i at a point, by power iteration
                 on Hessian-vector products: never above L_1
    ceiling      an upper bound of L_1 everywhere, for models with one dense layer and for
                 quadratics: c lambda_max(X_i^T X_i / n_i) + l2, c = 1 (square, squared hinge), 1/4
                 (logistic), 1/2 (cross-entropy)

Between the two lies L_1. A bound that uses a measured L is a proof where the two agree (quadratics,
least squares), one that uses the ceiling is one always; elsewhere it is an estimate. Networks with
ReLU have no L_1: their gradient jumps where a unit turns on.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.learnable import Analysable, Learnable, analysable
from folkman.problem.models import CROSS_ENTROPY, ENERGY, HINGE, LOGISTIC, SQUARE, Dense
from folkman.problem.problem import Problem
from folkman.theory.trajectory import full_gradients

__all__ = ["ceiling", "curvatures", "whole_curvature"]

ROUNDS = 60
"""Hessian-vector products of one power iteration."""


def curvatures(
    problem: Learnable,
    w: Array | NDArray,
    rounds: int = ROUNDS,  # power iterations
) -> NDArray[np.float64]:
    """Return the largest |eigenvalue| of the Hessian of every F_i at w (d,), shape (node,).

    It is approached from below.
    """
    point = jnp.broadcast_to(
        jnp.asarray(w, problem.initial.dtype), (problem.num_nodes, problem.dim)
    )
    start = jnp.broadcast_to(_start(problem), point.shape)
    return np.asarray(_power(problem, point, start, rounds, whole=False), float)


def whole_curvature(
    problem: Learnable,
    w: Array | NDArray,
    rounds: int = ROUNDS,  # power iterations
) -> float:
    """Return the largest |eigenvalue| of the Hessian of F = sum_i alpha_i F_i at w (d,).

    It is approached from below.
    """
    point = jnp.broadcast_to(
        jnp.asarray(w, problem.initial.dtype), (problem.num_nodes, problem.dim)
    )
    start = jnp.broadcast_to(_start(problem), point.shape)
    return float(_power(problem, point, start, rounds, whole=True)[0])


def _start(problem: Learnable) -> Array:
    """Return a direction that has something of every eigenvector."""
    return jnp.asarray(np.random.default_rng(0).standard_normal(problem.dim), problem.initial.dtype)


def _power(problem: Learnable, point: Array, u: Array, rounds: int, *, whole: bool) -> Array:
    if isinstance(problem, Problem):
        require(
            getattr(problem.model.network, "precision", "float32") == "float32",
            "the curvature of a model needs float32, and this one computes in bfloat16; "
            "leave 'precision' out of [model]",
        )
    problem = analysable(problem, "measuring curvature", differentiable=True).full_batch()
    if not problem.called_from_python:
        return _compiled(problem, point, u, rounds, whole)
    size = jnp.zeros(len(point), point.dtype)
    for _ in range(rounds):
        u, size = _round(problem, point, u, whole)
    return size


@jax.jit
def _compiled(problem: Analysable, point: Array, u: Array, rounds: int, whole: bool) -> Array:
    """Run the rounds as one program; node by node, or with all nodes' products summed by share."""

    def one(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return _round(problem, point, state[0], whole)

    return lax.fori_loop(0, rounds, one, (u, jnp.zeros(len(point), point.dtype)))[1]


def _round(problem: Analysable, point: Array, u: Array, whole: bool) -> tuple[Array, Array]:
    """Return H u over its length, and ||H u|| / ||u||, row by row."""
    u = u / jnp.maximum(jnp.linalg.norm(u, axis=1, keepdims=True), jnp.finfo(u.dtype).tiny)
    product = jax.vjp(lambda v: full_gradients(problem, v)[1], point)[
        1
    ]  # H is symmetric; some kernels know no jvp
    turned = product(u)[0]
    mixed = jnp.broadcast_to(jnp.dot(problem.share, turned, precision="highest"), turned.shape)
    turned = jnp.where(whole, mixed, turned)
    return turned, jnp.linalg.norm(turned, axis=1)


def ceiling(problem: Learnable) -> NDArray[np.float64]:
    """Return an upper bound of the L_1 of every F_i (node,).

    Infinite where the model has no simple one.
    """
    counts = np.asarray(problem.count)
    if not isinstance(problem, Problem):
        return np.full(len(counts), np.inf)
    head, network = problem.model.head, problem.model.network
    if head == ENERGY:  # a diagonal Hessian: the mean curvatures
        means = [np.asarray(problem.y[i, :n], float).mean(axis=0) for i, n in enumerate(counts)]
        return np.array([np.abs(mean).max() for mean in means]) + problem.l2
    factor = {SQUARE: 1.0, HINGE: 1.0, LOGISTIC: 0.25, CROSS_ENTROPY: 0.5}.get(head)
    if factor is None or not isinstance(network, Dense) or len(network.widths) > 2:
        return np.full(len(counts), np.inf)
    found = []
    for node, n in enumerate(counts):
        x = np.asarray(problem.x[node, :n], float).reshape(n, -1)
        x = np.concatenate([x, np.ones((n, 1))], axis=1) if network.bias else x
        found.append(np.linalg.norm(x, 2) ** 2 / n)  # the largest singular value, squared
    return factor * np.array(found) + problem.l2
