"""What a trained model says of samples.

A model for labels gives a class for each sample and, where its loss is a likelihood, probabilities:

    softmax, mlp, cnn    softmax(s), the class of the highest
    logistic             1 / (1 + exp(-s)) for class 1; more than two labels count by parity
    svm                  the class by the sign of s, no probability

A model for numbers gives the number. The loss of one's own model need not be known here: its class
is the label that its `hits` calls right.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jnp
from folkman.checks import require
from folkman.deploy.trained import Trained
from folkman.problem.models import CROSS_ENTROPY, LOGISTIC, Fitted, Model

__all__ = ["LIKELIHOODS", "Predictions", "as_samples", "predict"]

AT_ONCE = 500
"""Samples that go through a model at once: bounds the memory of activations."""


@dataclass(frozen=True)
class Predictions:
    """One row for each sample; what a model does not give is None."""

    scores: NDArray[np.float32]  # (n, output), before the head
    classes: NDArray[np.int64] | None = None  # (n,) the class of each sample
    probabilities: NDArray[np.float32] | None = None  # (n, class) the probability of each class
    values: NDArray[np.float32] | None = None  # (n,) the numbers, of a model that predicts them
    right: NDArray[np.bool_] | None = None  # (n,) whether each is right, where labels were given

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def probability(self) -> NDArray[np.float32] | None:
        """Return the probability of each predicted class, (n,)."""
        if self.probabilities is None or self.classes is None:
            return None
        return np.take_along_axis(self.probabilities, self.classes[:, None], axis=1)[:, 0]

    @property
    def accuracy(self) -> float | None:
        """Return the share of samples that are predicted rightly; None without labels."""
        return None if self.right is None else float(np.mean(self.right))

    def __repr__(self) -> str:
        told = "numbers" if self.classes is None else "classes"
        if self.probabilities is not None:
            told += " with probabilities"
        right = "" if self.accuracy is None else f", accuracy {self.accuracy:.4f}"
        return f"<Predictions of {len(self)} samples: {told}{right}>"


def _softmax(scores: NDArray) -> NDArray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _both(scores: NDArray) -> NDArray:
    one = np.exp(-np.logaddexp(np.zeros_like(scores), -scores))
    return np.concatenate([1 - one, one], axis=1)


LIKELIHOODS: dict[Callable[..., object], Callable[[NDArray], NDArray]] = {
    CROSS_ENTROPY.losses: _softmax,
    LOGISTIC.losses: _both,
}
"""By the loss of a head: scores (n, output) -> probabilities (n, class)."""


def predict(trained: Trained, x: NDArray, y: NDArray | None = None) -> Predictions:
    """Return predictions for samples x (n, ...); labels y (n,) say which of them are right."""
    model = trained.fitted.model
    require(
        model.head.targets != "curvatures",
        f"{trained.title} is a quadratic: it has an optimum and predicts nothing",
    )
    samples = as_samples(trained.fitted, x)
    if y is not None:
        require(len(y) == len(samples), f"expected {len(samples)} labels in y, got {len(y)}")
    scores = _scores(model, trained.w, samples)
    if model.head.targets == "numbers":
        return Predictions(scores, values=scores[:, 0])
    likelihood = LIKELIHOODS.get(model.head.losses)
    chances = None if likelihood is None else likelihood(scores)
    count = max(2, scores.shape[1], trained.fitted.classes if likelihood is None else 0)
    classes = _called_right(model, scores, count) if chances is None else chances.argmax(axis=1)
    right = None
    if y is not None and model.head.hits is not None:
        labels = jnp.asarray(_labels(y))
        right = np.asarray(model.head.hits(jnp.asarray(scores), labels), bool)
    return Predictions(scores, classes, chances, right=right)


def _called_right(model: Model, scores: NDArray, count: int) -> NDArray[np.int64]:
    """Return the first label of 0 .. count - 1 that the head calls right; -1 if it calls none."""
    hits = model.head.hits
    require(hits is not None, "this model has labels and no `hits`: it cannot name a class")
    found = np.full(len(scores), -1, np.int64)
    for label in reversed(range(count)):
        each = jnp.full(len(scores), label, jnp.int32)
        found[np.asarray(hits(jnp.asarray(scores), each), bool)] = label  # type: ignore[misc]
    return found


def _labels(y: NDArray) -> NDArray[np.int32]:
    whole = np.asarray(y).ndim == 1 and bool(np.all(np.asarray(y) == np.round(y)))
    require(whole, f"expected labels y as one row of whole numbers, got {np.asarray(y)[:5]} ...")
    return np.asarray(y).astype(np.int32)


def _scores(model: Model, w: NDArray, x: NDArray) -> NDArray[np.float32]:
    vector, rows = jnp.asarray(w), range(0, len(x), AT_ONCE)
    parts = [
        np.asarray(model.network.scores(vector, jnp.asarray(x[i : i + AT_ONCE]))) for i in rows
    ]
    return np.concatenate(parts).astype(np.float32)


def as_samples(fitted: Fitted, x: NDArray) -> NDArray[np.float32]:
    """Return samples in the shape of the model's own; refuse another shape, and what is no number.

    A sample may also be flat, or an image of one channel without its last axis.
    """
    given, sample = np.asarray(x), fitted.sample
    fits = {sample, (prod(sample),), sample[:-1] if sample[-1:] == (1,) else sample}
    flat = f" or (n, {prod(sample)})" if len(sample) > 1 else ""
    wanted = f"(n, {', '.join(map(str, sample))}){flat}"
    require(
        given.ndim >= 1 and given.shape[1:] in fits,
        f"expected samples of shape {wanted}, got {given.shape}; prepare them as the training data",
    )
    require(given.dtype.kind in "biuf", f"expected numbers, got {given.dtype}; convert them")
    require(len(given) > 0, f"expected at least one sample of shape {wanted}, got none")
    values = given.astype(np.float32).reshape(len(given), *sample)
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    require(
        len(bad) == 0,
        f"expected finite numbers, sample {bad[0] if len(bad) else 0} has others "
        f"({len(bad)} samples in all); clean the data",
    )
    return values
