"""The last step of a model: from the scores of a sample to its loss and to right or wrong.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    IEEE JSAC 37(6), 2019.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from folkman.arrays import Array, jax, jnp

__all__ = ["CROSS_ENTROPY", "ENERGY", "HINGE", "LOGISTIC", "SQUARE", "Head"]


class Head(NamedTuple):
    """Two pure functions of the scores (n, output) and the targets of n samples."""

    losses: Callable[[Array, Array], Array]  # -> (n,)
    hits: Callable[[Array, Array], Array] | None  # -> (n,) bool; None for regression
    targets: Literal["labels", "numbers", "curvatures"]  # what y must be


def _sign(scores: Array, y: Array) -> Array:
    """Return labels as -1 / +1.

    By value for two classes, by parity for more, as [1] does for its SVM.
    """
    return (2 * (y % 2) - 1).astype(scores.dtype)


def _margin(scores: Array, y: Array) -> Array:
    return _sign(scores, y) * scores[:, 0]


def _half_square(scores: Array, y: Array) -> Array:
    return 0.5 * (scores[:, 0] - y.astype(scores.dtype)) ** 2


def _half_energy(scores: Array, y: Array) -> Array:
    return 0.5 * jnp.sum(y * scores**2, axis=-1)


def _logistic(scores: Array, y: Array) -> Array:
    return jax.nn.softplus(-_margin(scores, y))


def _half_square_hinge(scores: Array, y: Array) -> Array:
    return 0.5 * jnp.maximum(0.0, 1.0 - _margin(scores, y)) ** 2


def _cross_entropy(scores: Array, y: Array) -> Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=-1)[:, 0]


def _right_side(scores: Array, y: Array) -> Array:
    return _margin(scores, y) > 0


def _highest(scores: Array, y: Array) -> Array:
    return jnp.argmax(scores, axis=-1) == y


ENERGY = Head(_half_energy, None, "curvatures")
"""0.5 sum_k y_k s_k^2: a quadratic whose curvatures are the targets."""

SQUARE = Head(_half_square, None, "numbers")
"""0.5 (s - y)^2."""

LOGISTIC = Head(_logistic, _right_side, "labels")
"""log(1 + exp(-y s)), y = +-1."""

HINGE = Head(_half_square_hinge, _right_side, "labels")
"""0.5 max(0, 1 - y s)^2, y = +-1: the smooth SVM of [1, Table I], its lambda being the problem's
`l2`."""

CROSS_ENTROPY = Head(_cross_entropy, _highest, "labels")
"""-log softmax(s)_y."""
