"""What can be learnt from: samples, targets and options, looked at before anything is computed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jax
from folkman.problem.data import DataSet
from folkman.problem.models import Model

__all__ = ["check_samples", "check_targets"]


def check_targets(data: DataSet, model: Model) -> None:
    """Refuse a model whose loss does not fit the targets."""
    y, kind = data.y_train, model.head.targets
    fits = {
        "labels": np.issubdtype(y.dtype, np.integer) and y.ndim == 1 and data.num_classes >= 2,
        "numbers": y.ndim == 1,
        "curvatures": y.shape == data.x_train.shape and np.issubdtype(y.dtype, np.floating),
    }[kind]
    if not fits:
        came = (
            f"{data.num_classes} classes"
            if data.num_classes
            else f"{y.dtype} targets of shape {y.shape[1:] or '()'}"
        )
        raise ValueError(
            f"this model's loss expects {kind} as targets, '{data.name}' has {came}; "
            "labels go with softmax, mlp, cnn, logistic and svm, numbers with linear, the "
            "quadratic data with quadratic"
        )


def check_samples(
    data: DataSet, parts: Sequence[NDArray], l2: float, batch: int | None, dtype: str
) -> None:
    """Refuse what cannot be learnt from, before anything is compiled."""
    if not parts:
        raise ValueError(
            "a problem needs at least one node, got no parts; give one index array a node"
        )
    for node, part in enumerate(parts):
        if len(part) == 0:
            raise ValueError(
                f"every node needs a sample, node {node} of {len(parts)} has none; "
                "use fewer nodes, more data or another partition"
            )
    for name, samples in (
        ("x_train", data.x_train),
        ("y_train", data.y_train),
        ("x_test", data.x_test),
    ):
        if np.issubdtype(samples.dtype, np.floating) and not np.isfinite(samples).all():
            bad = int(
                np.flatnonzero(~np.isfinite(samples.reshape(len(samples), -1)).all(axis=1))[0]
            )
            raise ValueError(f"{name} must be finite, sample {bad} is not; clean or drop it")
    if l2 < 0:
        raise ValueError(f"l2 must not be negative, got {l2}; use 0 for no penalty")
    if batch is not None and batch < 1:
        raise ValueError(
            f"batch must be at least 1, got {batch}; leave it out for full-batch gradients"
        )
    precise = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    if dtype == "float64" and not precise:
        raise ValueError(
            "float64 needs JAX's 64-bit mode, which is off; "
            "call jax.config.update('jax_enable_x64', True) before any array is made"
        )
