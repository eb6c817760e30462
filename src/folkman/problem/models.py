"""The models: a network and a head, from a flat vector and samples to one loss a sample.

Every seam of the package (algorithms, mixing, wire, checkpoints) sees a model as one vector of
length d; only `problem` opens it. A `Layout` is the map between the vector and the named tensors
inside it. A network is the parametric part: a frozen value with `layout`, `init(key) -> w` and
`scores(w, x) -> (n, output)`. A head goes from the scores of a sample to its loss and to right or
wrong. A model is a frozen value as well (equal settings, equal hash), so that a compiled program is
reused wherever the same model is trained.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    IEEE JSAC 37(6), 2019.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from folkman.arrays import Array, Float, jax, jnp
from folkman.builders import Builders
from folkman.checks import require

if TYPE_CHECKING:
    from folkman.problem.data import DataSet
    from folkman.problem.layers import Layer

__all__ = ["MODELS", "Model", "cnn", "linear", "logistic", "mlp", "quadratic", "softmax", "svm"]
__all__ += ["CROSS_ENTROPY", "ENERGY", "HINGE", "LOGISTIC", "SQUARE", "Head"]
__all__ += ["PRECISIONS", "Dense", "Fitted", "Layout", "Offset", "Precision", "ScoreNetwork"]
__all__ += ["check_targets"]

Precision: TypeAlias = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the segments of a flat vector, in order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Return d, the number of parameters."""
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def segments(self) -> dict[str, slice]:
        """Return the slice of the flat vector that each name occupies."""
        slices, start = {}, 0
        for name, shape in self.shapes:
            slices[name] = slice(start, start + prod(shape))
            start += prod(shape)
        return slices

    def unflatten(self, vector: Float[Array, " d"] | dict[str, Array]) -> dict[str, Array]:
        """Cut a flat vector into its named tensors; a dictionary of them is returned as it is."""
        if isinstance(vector, dict):
            return vector
        segments = self.segments
        return {name: vector[segments[name]].reshape(shape) for name, shape in self.shapes}

    def flatten(self, tensors: dict[str, Array]) -> Float[Array, " d"]:
        """Join named tensors into the flat vector."""
        return jnp.concatenate([jnp.reshape(tensors[name], -1) for name, _ in self.shapes])


class ScoreNetwork(Protocol):
    """What a model needs of its network."""

    @property
    def layout(self) -> Layout:
        """Return the map of the flat vector."""
        ...

    def init(self, key: Array) -> Array:
        """Return the first flat vector, float32."""
        ...

    def prepare(self, x: Array) -> Array:
        """Return n samples in the form that `scores` is fastest at; it takes both."""
        ...

    def scores(self, w: Array, x: Array) -> Array:
        """Return the scores (n, output) of n samples."""
        ...


@dataclass(frozen=True)
class Offset:
    """Scores w - x: with the ENERGY head, a quadratic centred at each sample. Starts at zero."""

    features: int

    @property
    def layout(self) -> Layout:
        """Return one segment, `w`."""
        return Layout((("w", (self.features,)),))

    def init(self, key: Array) -> Array:
        """Return zeros."""
        del key
        return jnp.zeros(self.features, jnp.float32)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the offset from each centre."""
        return w[None] - x


@dataclass(frozen=True)
class Dense:
    """Dense layers with ReLU between.

    One layer starts at zero (its loss is convex); more start with He-normal kernels and zero
    biases. Kernels are (outputs, inputs): the gradient is then one fast product on the CPU, three
    times as fast as its transpose.
    """

    widths: tuple[int, ...]  # features, hidden ..., outputs
    bias: bool = True

    @property
    def layout(self) -> Layout:
        """Return `kernel<l>` and `bias<l>` for each layer l from 0."""
        shapes = []
        for layer, (fan_in, fan_out) in enumerate(
            zip(self.widths[:-1], self.widths[1:], strict=True)
        ):
            shapes.append((f"kernel{layer}", (fan_out, fan_in)))
            if self.bias:
                shapes.append((f"bias{layer}", (fan_out,)))
        return Layout(tuple(shapes))

    def init(self, key: Array) -> Array:
        """Return zeros for one layer, He-normal kernels for more."""
        if len(self.widths) == 2:
            return jnp.zeros(self.layout.size, jnp.float32)
        keys = jax.random.split(key, len(self.layout.shapes))
        tensors = {}
        for (name, shape), tensor_key in zip(self.layout.shapes, keys, strict=True):
            scale = (2.0 / shape[-1]) ** 0.5 if name.startswith("kernel") else 0.0
            tensors[name] = (
                scale * jax.random.normal(tensor_key, shape[::-1], jnp.float32).T
            )  # drawn input by input
        return self.layout.flatten(tensors)

    @property
    def layers(self) -> "tuple[Layer, ...]":
        """Return the layers of `scores`, in order."""
        from folkman.problem.layers import Affine, Flatten, Relu  # here: a node never asks

        found: list[Layer] = [Flatten()]
        for layer in range(len(self.widths) - 1):
            found += [Relu()] if layer else []
            bias = f"bias{layer}" if self.bias else None
            found.append(Affine(f"kernel{layer}", bias, outputs_first=True))
        return tuple(found)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the last layer's outputs for the flattened samples."""
        tensors = self.layout.unflatten(w)
        h = x.reshape(x.shape[0], -1)
        for layer in range(len(self.widths) - 1):
            h = (jax.nn.relu(h) if layer else h) @ tensors[f"kernel{layer}"].T
            h = h + tensors[f"bias{layer}"][None] if self.bias else h
        return h


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


@dataclass(frozen=True)
class Model:
    """Scores by `network`, judged by `head`."""

    network: ScoreNetwork  # goes from parameters and samples to scores
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


class Fitted(NamedTuple):
    """A model, and the samples that it is built for."""

    model: Model
    sample: tuple[int, ...]  # shape of a sample
    classes: int  # 0: regression


def quadratic(sample: tuple[int, ...], classes: int) -> Model:
    """Build a quadratic, loss 0.5 sum_k y_k (w_k - x_k)^2.

    A sample is a centre x, its target a curvature y.
    """
    del classes
    return Model(Offset(prod(sample)), ENERGY)


def linear(
    sample: tuple[int, ...],
    classes: int,
    *,
    intercept: bool = False,  # whether a constant is learnt too
) -> Model:
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


def cnn(
    sample: tuple[int, ...],
    classes: int,
    *,
    precision: Precision = "float32",  # precision of the arithmetic; parameters are float32
) -> Model:
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


def check_targets(data: "DataSet", model: Model) -> None:
    """Refuse a model whose loss does not fit the targets."""
    y, kind = data.y_train, model.head.targets
    fits = {
        "labels": np.issubdtype(y.dtype, np.integer) and y.ndim == 1 and data.num_classes >= 2,
        "numbers": y.ndim == 1,
        "curvatures": y.shape == data.x_train.shape and np.issubdtype(y.dtype, np.floating),
    }[kind]
    if not fits:
        of_shape = f" of shape {y.shape[1:]}" if y.shape[1:] else ""
        came = f"numbers ({y.dtype}){of_shape}"
        if data.num_classes:
            came = f"{data.num_classes} classes"
        if data.num_classes == 1:
            came = "one class, of which nothing can be learned"
        raise ValueError(
            f"this model's loss expects {kind} as targets, '{data.name}' has {came}; "
            "labels go with softmax, mlp, cnn, conv1d, gru, logistic and svm, numbers with linear, "
            "the quadratic data with quadratic"
        )


HERE = ("quadratic", "linear", "logistic", "svm", "softmax", "mlp", "cnn")
MODELS: Builders[Model] = Builders(
    {
        **{name: f"folkman.problem.models:{name}" for name in HERE},
        "conv1d": "folkman.problem.sequences:conv1d",
        "gru": "folkman.problem.sequences:gru",
    }
)
"""Builders by name: (sample shape, number of classes, *, options) -> Model."""
