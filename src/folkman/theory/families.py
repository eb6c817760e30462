"""Losses of one node for which duality gaps are measured: known answers, and small models.

quadratic      a/2 (w - c)^2                                      convex: no gap
double_well    (1 - (w/b)^2)^2 + t w                              two wells, tilted
robust         mean_n e_n^2 / (s^2 + e_n^2), e_n = w x_n - y_n    robust regression with outliers
network        mean_n (a tanh(b x_n) - y_n)^2 / 2                 one hidden unit, w = (a, b)
wide_network   the same with three hidden units                   six parameters: not certified
worst          1, then a steep fall to 0 at |w| = 1               attains the sharp bound
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from folkman.theory.value import Floats, Loss

__all__ = ["FAMILIES", "Family"]


class Family(NamedTuple):
    """A kind of loss: how to draw one, and how finely its value function is looked at."""

    draw: Callable[[np.random.Generator], Loss]
    budgets: int
    refine: int
    kinds: int = 8  # different losses; more nodes take them in turn


def quadratic(rng: np.random.Generator) -> Loss:
    """Draw a/2 (w - c)^2."""
    a, c = rng.uniform(0.5, 2.0), rng.uniform(-1.5, 1.5)
    return Loss("quadratic", 1, 2.0, lambda w: 0.5 * a * (w[..., 0] - c) ** 2, curvature=a)


def double_well(rng: np.random.Generator) -> Loss:
    """Draw a tilted double well; its second derivative 12 w^2/b^4 - 4/b^2 is largest at the rim."""
    b, tilt, radius = rng.uniform(0.8, 1.2), rng.uniform(-0.1, 0.1), 1.6
    return Loss(
        "double_well",
        1,
        radius,
        lambda w: (1.0 - (w[..., 0] / b) ** 2) ** 2 + tilt * w[..., 0],
        curvature=12.0 * radius**2 / b**4 - 4.0 / b**2,
    )


def robust(rng: np.random.Generator) -> Loss:
    """Draw robust regression: a line with one sample in three on another line.

    |(e^2/(s^2+e^2))''| <= 2/s^2.
    """
    x = rng.uniform(0.5, 1.5, 12) * rng.choice([-1.0, 1.0], 12)
    y = np.where(np.arange(12) % 3 == 0, -0.6, 1.2) * x + 0.05 * rng.standard_normal(12)
    width = 0.3

    def value(w: Floats) -> Floats:
        e2 = (w[..., 0, None] * x - y) ** 2
        return np.mean(e2 / (width**2 + e2), axis=-1)

    return Loss("robust", 1, 2.0, value, curvature=2.0 * float(np.mean(x**2)) / width**2)


def network(rng: np.random.Generator) -> Loss:
    """Draw a one-unit network.

    Its Hessian is bounded by its largest absolute row sum, entry by entry.
    """
    x, radius = rng.uniform(-2.0, 2.0, 8), 2.5
    y = 1.1 * np.tanh(1.2 * x) + 0.1 * rng.standard_normal(8)

    def value(w: Floats) -> Floats:
        total = np.zeros(w.shape[:-1])
        for at, target in zip(x, y, strict=True):  # sample by sample: the grid is large
            total += 0.5 * (w[..., 0] * np.tanh(w[..., 1] * at) - target) ** 2
        return total / len(x)

    off = radius + np.abs(y)  # |a tanh - y|
    steepest = 4.0 / (3.0 * np.sqrt(3.0))  # of |tanh''|
    aa = float(np.mean(np.tanh(radius * np.abs(x)) ** 2))
    bb = float(np.mean((radius * x) ** 2 + off * radius * x**2 * steepest))
    ab = float(np.mean(np.abs(x) * (radius + off)))
    return Loss("network", 2, radius, value, curvature=max(aa, bb) + ab)


def wide_network(rng: np.random.Generator) -> Loss:
    """Draw a network with three hidden units, w = (a_1..3, b_1..3)."""
    import jax.numpy as jnp

    x = rng.uniform(-2.0, 2.0, 12)
    y = np.sin(2.0 * x) + 0.1 * rng.standard_normal(12)

    def value(w: Floats) -> Floats:
        hidden = jnp.tanh(w[None, 3:] * x[:, None])
        errors = jnp.sum(hidden * w[None, :3], axis=1) - y
        return 0.5 * jnp.mean(errors**2)  # pyright: ignore[reportReturnType]

    return Loss("wide_network", 6, 6.0, value)


FALL = 0.05
"""Width of the fall of the worst case: Delta is 1 - FALL."""


def worst(rng: np.random.Generator) -> Loss:
    """Build the worst case: nothing is gained before the budget is nearly 1, everything then."""
    del rng
    return Loss(
        "worst",
        1,
        1.25,
        lambda w: np.clip((1.0 - np.abs(w[..., 0])) / FALL, 0.0, 1.0),
        slope=1.0 / FALL,
    )


FAMILIES: dict[str, Family] = {
    "quadratic": Family(quadratic, 400, 16),
    "double_well": Family(double_well, 400, 16),
    "robust": Family(robust, 400, 16),
    "network": Family(network, 100, 6),
    "wide_network": Family(wide_network, 40, 1, kinds=2),
    "worst": Family(worst, 500, 64, kinds=1),
}
"""By name, as `folkman theory gap --model` takes them."""
