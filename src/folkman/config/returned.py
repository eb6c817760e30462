"""What builders from outside the package must return; built-in ones do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.problem.data import DataSet
from folkman.problem.models import Model
from folkman.radio.delivery import Network

__all__ = ["CHECKS", "Check", "algorithm", "data", "model", "network", "partition", "projection"]

Check: TypeAlias = Callable[[Any, Mapping[str, Any]], str]
"""(what a builder returned, what it was given) -> expected and found; nothing if all is well."""


def algorithm(value: Any, given: Mapping[str, Any]) -> str:
    """Check that an algorithm was built."""
    del given
    return "" if isinstance(value, Algorithm) else _expected("an fm.Algorithm", value)


def model(value: Any, given: Mapping[str, Any]) -> str:
    """Check that a model was built."""
    del given
    return _hashable(value) if isinstance(value, Model) else _expected("an fm.Model", value)


def data(value: Any, given: Mapping[str, Any]) -> str:
    """Check that a data set was built: NumPy arrays, as many targets as samples."""
    del given
    if not isinstance(value, DataSet):
        return _expected("an fm.DataSet", value)
    for x, y in (("x_train", "y_train"), ("x_test", "y_test")):
        for name in (x, y):
            if not isinstance(getattr(value, name), np.ndarray):
                return _expected(f"{name} to be a NumPy array", getattr(value, name))
        samples, targets = len(getattr(value, x)), len(getattr(value, y))
        if samples != targets:
            return f"expected as many {y} as {x}, got {targets} and {samples}"
    return ""


def partition(value: Any, given: Mapping[str, Any]) -> str:
    """Check that every node has an array of sample numbers."""
    nodes, samples = given["nodes"], len(given["labels"])
    wanted = f"a list of {nodes} arrays of sample numbers, one per node"
    if not isinstance(value, Sequence) or len(value) != nodes:
        came = (
            f"a {type(value).__name__} of {len(value)}"
            if isinstance(value, Sequence)
            else type(value).__name__
        )
        return f"expected {wanted}, got {came}"
    for node, part in enumerate(value):
        if (
            not isinstance(part, np.ndarray)
            or part.ndim != 1
            or not np.issubdtype(part.dtype, np.integer)
        ):
            return _expected(
                f"{wanted}; of node {node} a one-dimensional array of whole numbers", part
            )
        if len(part) == 0:
            return f"expected samples on every node, got none on node {node}"
        low, high = int(part.min()), int(part.max())
        if low < 0 or high >= samples:
            return f"expected sample numbers in 0..{samples - 1}, got {low}..{high} on node {node}"
    return ""


def network(value: Any, given: Mapping[str, Any]) -> str:
    """Check that a network was built, and can be hashed."""
    del given
    if not isinstance(value, Network):
        return _expected("an fm.Network", value)
    return _hashable(value)


def projection(value: Any, given: Mapping[str, Any]) -> str:
    """Check that a projection was built."""
    del given
    return "" if callable(value) else _expected("a function (w, step) -> w", value)


def _hashable(value: Any) -> str:
    try:
        hash(value)
    except TypeError:
        return f"expected a value that can be hashed, got {type(value).__name__}; make it a frozen dataclass"
    return ""


def _expected(what: str, value: Any) -> str:
    shape = f" of {value.dtype} with shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"expected {what}, got {type(value).__name__}{shape}"


CHECKS: dict[str, Check] = {
    check.__name__: check for check in (algorithm, data, model, network, partition, projection)
}
"""By the table whose builder returned it."""
