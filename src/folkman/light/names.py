"""`jax.numpy` on NumPy: every function is NumPy's, its result under JAX's rules (`array`)."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from folkman.light.array import Array, NotHereError, alike, call_ufunc, canonical, plain

__all__ = ["array", "asarray", "linalg", "take"]

ndarray = Array

MEET = ("where", "dot", "vdot", "inner", "outer", "tensordot", "clip")
"""Functions whose arguments must be of one type; those of a ufunc must too."""

MEET_IN_A_LIST = ("concatenate", "stack", "hstack", "vstack")


def _ruled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's under JAX's rules, without NumPy's warnings."""
    name = function.__name__
    ufunc = function if isinstance(function, np.ufunc) else None
    meets, meets_in_a_list = name in MEET, name in MEET_IN_A_LIST

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        options.pop("precision", None)  # of a GPU's products
        given, named = [*map(plain, args)], {k: plain(v) for k, v in options.items()}
        with np.errstate(all="ignore"):
            if ufunc is not None:
                return canonical(call_ufunc(ufunc, "__call__", *given, **named))
            if meets:
                given = alike(given)
            elif meets_in_a_list and given and isinstance(given[0], list | tuple):
                given = [alike(given[0]), *given[1:]]
            return canonical(function(*given, **named))

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


def take(value: Any, indices: Any, axis: int | None = None, **options: Any) -> Any:
    """Return entries along an axis, or of the flat array; `Array.take`."""
    return asarray(value).take(indices, axis, **options)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    found = getattr(np, name, None)
    if found is None:  # bfloat16, for instance
        raise NotHereError(f"jax.numpy.{name}")
    made = _ruled(found) if callable(found) and not isinstance(found, type) else found
    globals()[name] = made  # asked for once
    return made
