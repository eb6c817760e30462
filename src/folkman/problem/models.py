"""The models: a network and a head, from a flat vector and samples to one loss a sample.

A model is a frozen value (equal settings, equal hash), so that a compiled program is reused
wherever the same model is trained.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from folkman.arrays import Array
from folkman.checks import require
from folkman.problem.heads import CROSS_ENTROPY, ENERGY, HINGE, LOGISTIC, SQUARE, Head
from folkman.problem.layout import Layout
from folkman.problem.networks import PRECISIONS, Dense, Offset, Precision, ScoreNetwork

__all__ = ["MODELS", "Model", "cnn", "linear", "logistic", "mlp", "quadratic", "softmax", "svm"]


@dataclass(frozen=True)
class Model:
    """Scores by `network`, judged by `head`."""

    network: ScoreNetwork
    head: Head
    convolutional: bool = False  # XLA's CPU convolutions are slow inside loops and under vmap

    @property
    def layout(self) -> Layout:
        """Return the map of the flat vector."""
        return self.network.layout

    def init(self, key: Array) -> Array:
        """Return the common first model, a flat float32 vector."""
        return self.network.init(key)

    def prepare(self, x: Array) -> Array:
        """Return samples (n, ...) in the form that the network is fastest at."""
        return self.network.prepare(x)

    def losses(self, w: Array, x: Array, y: Array) -> Array:
        """Return the loss of each sample, shape (n,)."""
        return self.head.losses(self.network.scores(w, x), y)

    def hits(self, w: Array, x: Array, y: Array) -> Array | None:
        """Return whether each sample is predicted rightly, or None where that has no meaning."""
        return self.head.hits(self.network.scores(w, x), y) if self.head.hits else None


def quadratic(sample: tuple[int, ...], classes: int) -> Model:
    """Build a quadratic, loss 0.5 sum_k y_k (w_k - x_k)^2.

    A sample is a centre x, its target a curvature y.
    """
    del classes
    return Model(Offset(prod(sample)), ENERGY)


def linear(sample: tuple[int, ...], classes: int, *, intercept: bool = False) -> Model:
    """Build least squares on the flattened sample."""
    del classes
    return Model(Dense((prod(sample), 1), bias=intercept), SQUARE)


def logistic(sample: tuple[int, ...], classes: int) -> Model:
    """Build binary logistic regression; more than two labels are taken by parity."""
    del classes
    return Model(Dense((prod(sample), 1)), LOGISTIC)


def svm(sample: tuple[int, ...], classes: int) -> Model:
    """Build the smooth support vector machine; more than two labels are taken by parity."""
    del classes
    return Model(Dense((prod(sample), 1)), HINGE)


def softmax(sample: tuple[int, ...], classes: int) -> Model:
    """Build softmax (multinomial logistic) regression."""
    return Model(Dense((prod(sample), classes)), CROSS_ENTROPY)


def mlp(sample: tuple[int, ...], classes: int, *, hidden: tuple[int, ...] = (64,)) -> Model:
    """Build a dense network with the given hidden widths."""
    require(
        all(width >= 1 for width in hidden), f"hidden widths must be at least 1, got {list(hidden)}"
    )
    return Model(Dense((prod(sample), *hidden, classes)), CROSS_ENTROPY)


def cnn(sample: tuple[int, ...], classes: int, *, precision: Precision = "float32") -> Model:
    """Build the paper's nine-layer CNN.

    `precision` "bfloat16" computes in 16 bits and keeps float32 parameters.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if len(sample) != 3:
        raise ValueError(
            f"the CNN expects samples of shape (height, width, channels), got {sample}; "
            "use a data set of images or another model"
        )
    from folkman.problem.cnn import (
        CNN,
    )  # here and not above: its kernels are a third of this folder

    return Model(
        CNN((sample[0], sample[1], sample[2]), classes, precision),
        CROSS_ENTROPY,
        convolutional=True,
    )


MODELS: dict[str, Callable[..., Model]] = {
    "quadratic": quadratic,
    "linear": linear,
    "logistic": logistic,
    "svm": svm,
    "softmax": softmax,
    "mlp": mlp,
    "cnn": cnn,
}
"""Builders by name: (sample shape, number of classes, *, options) -> Model."""
