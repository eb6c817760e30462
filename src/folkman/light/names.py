"""`jax.numpy` on NumPy: every function is NumPy's, its result under JAX's rules (`array`)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from folkman.light.array import Array, NotHereError, canonical, plain

__all__ = ["array", "asarray", "linalg"]

ndarray = Array


def _ruled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's under JAX's rules, without NumPy's warnings."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        options.pop("precision", None)  # of a GPU's products
        with np.errstate(all="ignore"):
            return canonical(
                function(*map(plain, args), **{k: plain(v) for k, v in options.items()})
            )

    return call


class _Linear:
    """`jax.numpy.linalg`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.linalg, name):
            raise AttributeError(name)
        return _ruled(getattr(np.linalg, name))


linalg = _Linear()


def asarray(value: Any, dtype: Any = None, **options: Any) -> Any:
    """Return an array; what is NumPy's is copied, since its owner may change it."""
    del options
    if isinstance(value, Array) and (dtype is None or value.dtype == dtype):
        return value
    return array(value, dtype)


def array(value: Any, dtype: Any = None, **options: Any) -> Any:
    """Return an array of its own."""
    del options
    return canonical(np.array(plain(value), dtype))


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    found = getattr(np, name, None)
    if found is None:  # bfloat16, for instance
        raise NotHereError(f"jax.numpy.{name}")
    made = _ruled(found) if callable(found) and not isinstance(found, type) else found
    globals()[name] = made  # asked for once
    return made
