"""Gradients on NumPy, written by hand: what a node without JAX takes its steps by.

Of the models those of dense layers and the quadratic are here, with all their losses; networks over
time are in `problem/sequences_by_hand.py`. With the
scores s of a sample, f its loss and h_l the input of layer l,

    df/ds       by the loss, in the table below
    df/dK_l     = delta_l h_l^T,   df/db_l = delta_l
    delta_{l-1} = K_l^T delta_l where the ReLU let its input through, else 0

The penalty and the draws of mini-batches are those of `problem/problem.py`; tests compare both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, Float, Int, jax, jnp
from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.problem.data import DataSet
from folkman.problem.learnable import Evaluation
from folkman.problem.models import (
    CROSS_ENTROPY,
    ENERGY,
    HINGE,
    LOGISTIC,
    SQUARE,
    Dense,
    Fitted,
    Head,
    Layout,
    Model,
    Offset,
    check_targets,
)
from folkman.problem.objective import Objective, shares
from folkman.problem.partition import check_samples
from folkman.problem.sampling import SAMPLINGS, Sampling, Turns, draw
from folkman.problem.sequences import Convolutions, Gru
from folkman.problem.sequences_by_hand import Back, convolve, recur

__all__ = ["HandProblem", "check_model", "loss_and_gradient", "make_hand_problem"]

Judged: TypeAlias = tuple[NDArray, NDArray]
"""Losses (n,) and their derivatives by the scores (n, output)."""


def _cross_entropy(scores: NDArray, y: NDArray) -> Judged:
    """-log softmax(s)_y, and softmax(s) - e_y."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    losses = np.log(total[:, 0]) - shifted[rows, y]
    slopes = powers / total
    slopes[rows, y] -= 1
    return losses, slopes


def _square(scores: NDArray, y: NDArray) -> Judged:
    """0.5 (s - y)^2, and s - y."""
    gap = scores[:, 0] - y.astype(scores.dtype)
    return 0.5 * gap**2, gap[:, None]


def _energy(scores: NDArray, y: NDArray) -> Judged:
    """0.5 sum_k y_k s_k^2, and y_k s_k."""
    slopes = y * scores
    return 0.5 * (slopes * scores).sum(axis=1), slopes


def _margin(scores: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    sign = (2 * (y % 2) - 1).astype(scores.dtype)
    return sign, sign * scores[:, 0]


def _logistic(scores: NDArray, y: NDArray) -> Judged:
    """log(1 + exp(-m)) with the margin m = y s, y = +-1, and -y / (1 + exp(m))."""
    sign, margin = _margin(scores, y)
    losses = np.logaddexp(-margin, np.zeros_like(margin))
    return losses, (-sign * np.exp(-margin - losses))[:, None]


def _hinge(scores: NDArray, y: NDArray) -> Judged:
    """0.5 max(0, 1 - m)^2, and -y max(0, 1 - m)."""
    sign, margin = _margin(scores, y)
    short = np.maximum(0, 1 - margin)
    return 0.5 * short**2, (-sign * short)[:, None]


JUDGES: dict[Callable[..., object], Callable[[NDArray, NDArray], Judged]] = {
    CROSS_ENTROPY.losses: _cross_entropy,
    SQUARE.losses: _square,
    ENERGY.losses: _energy,
    LOGISTIC.losses: _logistic,
    HINGE.losses: _hinge,
}
"""By the loss of a head: the same loss with its derivative."""


def _judge(head: Head) -> Callable[[NDArray, NDArray], Judged]:
    return JUDGES[head.losses]


def check_model(model: Model) -> None:
    """Refuse a model whose gradient nobody has written here."""
    kinds = Dense | Offset | Convolutions | Gru
    known = isinstance(model.network, kinds) and model.head.losses in JUDGES
    require(
        known,
        "a node that computes with NumPy trains softmax, mlp, conv1d, gru, logistic, svm, linear "
        f"and quadratic, got {type(model.network).__name__}; for others install JAX "
        "(pip install jax)",
    )


def loss_and_gradient(
    model: Model, w: NDArray, x: NDArray, y: NDArray, weight: NDArray
) -> tuple[NDArray, NDArray]:
    """Return the weighted sum of losses at w (d,) and its gradient (d,).

    `x` (n, ...) and `y` are samples, `weight` (n,) what each counts. A weight of 0 silences a
    sample even where its loss is not finite.
    """
    with np.errstate(all="ignore"):  # a diverged model is found by its loss
        if isinstance(model.network, Offset):
            losses, slopes = _judge(model.head)(w[None] - x, y)
            return _weighted(losses, weight), _silenced(slopes, weight).sum(axis=0)
        if isinstance(model.network, Convolutions | Gru):
            scores, back = _over_time(model.network, w, x)
            losses, slopes = _judge(model.head)(scores, y)
            return _weighted(losses, weight), back(_silenced(slopes, weight))
        inputs, kernels = _forward(model, w, x)
        losses, slopes = _judge(model.head)(inputs.pop(), y)
        grad = _backward(model, kernels, inputs, _silenced(slopes, weight))
        return _weighted(losses, weight), grad


def _over_time(network: Convolutions | Gru, w: NDArray, x: NDArray) -> tuple[NDArray, Back]:
    return convolve(network, w, x) if isinstance(network, Convolutions) else recur(network, w, x)


def _weighted(losses: NDArray, weight: NDArray) -> NDArray:
    return np.where(weight > 0, weight * losses, 0).sum(dtype=losses.dtype)


def _silenced(slopes: NDArray, weight: NDArray) -> NDArray:
    return np.where(weight[:, None] > 0, weight[:, None] * slopes, 0)


def _forward(model: Model, w: NDArray, x: NDArray) -> tuple[list[NDArray], list[NDArray]]:
    """Return the input of each layer with the scores last, and the kernels."""
    network = model.network
    assert isinstance(network, Dense)  # noqa: S101 - `check_model` looked
    segments, shapes = network.layout.segments, dict(network.layout.shapes)
    inputs, kernels = [x.reshape(len(x), -1)], []
    for layer in range(len(network.widths) - 1):
        kernel = w[segments[f"kernel{layer}"]].reshape(shapes[f"kernel{layer}"])
        held = np.maximum(inputs[-1], 0) if layer else inputs[-1]
        inputs[-1] = held
        scores = held @ kernel.T
        inputs.append(scores + w[segments[f"bias{layer}"]] if network.bias else scores)
        kernels.append(kernel)
    return inputs, kernels


def _backward(
    model: Model, kernels: list[NDArray], inputs: list[NDArray], delta: NDArray
) -> NDArray:
    """Return the gradient, tensor after tensor as the layout has them."""
    network = model.network
    assert isinstance(network, Dense)  # noqa: S101 - `check_model` looked
    found: list[NDArray] = []
    for layer in reversed(range(len(kernels))):
        own = [(delta.T @ inputs[layer]).ravel()]
        found = own + ([delta.sum(axis=0)] if network.bias else []) + found
        if layer:
            delta = np.where(inputs[layer] > 0, delta @ kernels[layer], 0)
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class HandProblem:
    """The samples of one node, a model and the common start, on NumPy. A `Learnable`."""

    x: NDArray  # (sample, *feature)
    y: NDArray  # (sample, ...)
    initial: Float[Array, " d"]
    name: str
    model: Model
    l2: float
    batch: int | None
    objective: Objective = "samples"
    sampling: Sampling = "replacement"
    number: int = 0  # of the node
    part: float = 1.0  # alpha_i

    @property
    def num_nodes(self) -> int:
        """Return 1: a board holds its own samples alone."""
        return 1

    @property
    def dim(self) -> int:
        """Return d."""
        return self.initial.shape[0]

    @property
    def layout(self) -> Layout:
        """Return the names and shapes of the tensors in the flat vector."""
        return self.model.layout

    @property
    def fitted(self) -> Fitted:
        """Return the model, and the samples that it is built for."""
        return Fitted(self.model, self.x.shape[1:], 0)

    @property
    def count(self) -> Int[Array, " node"]:
        """Return the number of samples (1,)."""
        return jnp.asarray([len(self.x)], jnp.int32)

    @property
    def share(self) -> Float[Array, " node"]:
        """Return alpha_i (1,)."""
        return jnp.asarray([self.part], self.initial.dtype)

    @property
    def node(self) -> Int[Array, " node"]:
        """Return the node's identity (1,)."""
        return jnp.asarray([self.number], jnp.int32)

    @property
    def emphasis(self) -> None:
        """Return None: one node alone counts as itself."""
        return

    @property
    def called_from_python(self) -> bool:
        """Return True: nothing is compiled."""
        return True

    @property
    def differentiable(self) -> bool:
        """Return False: JAX cannot look inside."""
        return False

    def of_node(self, index: int) -> "HandProblem":
        """Return this: it has one node."""
        require(index == 0, f"this problem is of one node, numbered 0, got {index}")
        return self

    def full_batch(self) -> "HandProblem":
        """Return the same problem with gradients over all samples."""
        return replace(self, batch=None)

    def gradients(
        self, v: Float[Array, "node d"], keys: Array | Turns
    ) -> tuple[Float[Array, " node"], Float[Array, "node d"]]:
        """Return F_i(v_i) (1,) and grad F_i(v_i) (1, d)."""
        w = np.asarray(v)[0]
        x, y, weight = self._batch(keys, w.dtype)
        loss, grad = loss_and_gradient(self.model, w, x, y, weight)
        penalty, pull = _penalty(self.model, self.l2, w)
        return jnp.asarray(loss + penalty)[None], jnp.asarray(grad + pull)[None]

    def _batch(self, keys: Array | Turns, dtype: np.dtype) -> tuple[NDArray, NDArray, NDArray]:
        """Return the samples of the next gradient, and what each counts."""
        if self.batch is None:
            return self.x, self.y, np.full(len(self.x), 1 / len(self.x), dtype)
        own = Turns(keys.key[0], keys.turn[0]) if isinstance(keys, Turns) else keys[0]
        drawn = draw(self.batch, own, self.count[0], len(self.x), self.initial.dtype)
        rows = np.asarray(drawn.rows)
        return self.x[rows], self.y[rows], np.asarray(drawn.weight, dtype)

    def evaluate(self, w: Float[Array, " d"]) -> Evaluation:
        """Return F_i on the node's own samples; a board has no test data."""
        found = np.asarray(w)
        weight = np.full(len(self.x), 1 / len(self.x), found.dtype)
        loss, _ = loss_and_gradient(self.model, found, self.x, self.y, weight)
        nan = jnp.asarray(float("nan"), found.dtype)
        own = jnp.asarray(loss + _penalty(self.model, self.l2, found)[0])
        return Evaluation(own, nan, nan, nan)


def _penalty(model: Model, l2: float, w: NDArray) -> tuple[NDArray, NDArray]:
    """Return l2/2 times the squared norm of everything but biases, and its gradient."""
    pull = np.zeros_like(w)
    if l2:
        for name, cut in model.layout.segments.items():
            if "bias" not in name:
                pull[cut] = np.asarray(l2, w.dtype) * w[cut]
    return 0.5 * (pull * w).sum(dtype=w.dtype), pull


def make_hand_problem(  # noqa: PLR0913 - all but three by name
    data: DataSet,
    model: Model,
    parts: Sequence[NDArray[np.integer]],
    *,
    l2: float = 0.0,
    batch: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    objective: Objective = "samples",
    sampling: Sampling = "replacement",
) -> HandProblem:
    """Return the problem of a single node, as `make_problem` would, without its test data."""
    require(len(parts) == 1, f"gradients by hand are of one node, got {len(parts)} parts")
    check_model(model)
    check_samples(data, parts, l2, batch, dtype)
    require(sampling in SAMPLINGS, f"sampling must be 'replacement' or 'epochs', got {sampling!r}")
    check_targets(data, model)
    first = jax.jit(model.init)(make_key(seed, Stream.MODEL))
    return HandProblem(
        x=_as(data.x_train[parts[0]], dtype),
        y=_as(data.y_train[parts[0]], dtype),
        initial=first.astype(dtype),
        name=data.name,
        model=model,
        l2=l2,
        batch=batch,
        objective=objective,
        sampling=sampling,
        part=float(shares([len(parts[0])], objective)[0]),
    )


def _as(samples: NDArray, dtype: str) -> NDArray:
    """Return features in `dtype`, labels as int32."""
    return samples.astype(dtype if np.issubdtype(samples.dtype, np.floating) else np.int32)
