"""`jax` on NumPy: nothing is compiled, batches are loops, and there are no derivatives.

Gradients are written by hand (`folkman.problem.by_hand`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from folkman.light import threefry as random
from folkman.light import trees
from folkman.light import trees as tree
from folkman.light import trees as tree_util
from folkman.light.array import Array, NotHereError, canonical, plain, settings

__all__ = ["Array", "config", "lax", "nn", "random", "tree", "tree_util"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise NotHereError(f"jax.{name}")


class _Config:
    """`jax.config`, as far as it means something here."""

    @property
    def jax_enable_x64(self) -> bool:
        """Tell whether arrays may have 64 bits."""
        return settings.wide

    def update(self, name: str, value: Any) -> None:
        """Set the precision; what is for the compiler has no meaning here."""
        if name == "jax_enable_x64":
            settings.wide = bool(value)


config = _Config()


def default_backend() -> str:
    """Return where arrays are."""
    return "cpu"


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return the function as it is."""
    del options
    return function


def eval_shape(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns: its shape is what is looked at."""
    return function(*args)


def device_put(value: Any) -> Any:
    """Return arrays of our own: whoever gave them may change them."""
    if type(value) is np.ndarray:
        return canonical(np.array(value))
    if type(value) is dict and all(type(each) is np.ndarray for each in value.values()):
        return {name: canonical(np.array(each)) for name, each in value.items()}
    return trees.map(lambda leaf: np.array(plain(leaf)), value)


def block_until_ready(value: Any) -> Any:
    """Return what is ready already."""
    return value


def ensure_compile_time_eval() -> AbstractContextManager[None]:
    """Return a context in which everything is computed at once, as it is everywhere here."""
    return nullcontext()


def vmap(function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
    """Return a function over the first axis of its arguments, one call after the other."""

    def each(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        if any(axis not in (0, None) for axis in axes):
            raise NotHereError("jax.vmap over another axis than the first")
        batched = [arg for arg, axis in zip(args, axes, strict=True) if axis == 0]
        number = len(trees.leaves(batched)[0])
        rows = []
        for i in range(number):
            row = [
                arg if axis is None else trees.map(lambda leaf, i=i: leaf[i], arg)
                for arg, axis in zip(args, axes, strict=True)
            ]
            rows.append(function(*row))
        return _stacked(rows)

    return each


def _stacked(rows: list[Any]) -> Any:
    return trees.map(lambda *leaves: np.stack([np.asarray(plain(x)) for x in leaves]), *rows)


def _cond(wanted: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *of: Any) -> Any:
    return (if_true if wanted else if_false)(*of)


def _fori_loop(
    begin: int, end: int, body: Callable[..., Any], value: Any, *, unroll: object = None
) -> Any:
    del unroll  # for a compiler
    for i in range(int(begin), int(end)):
        value = body(canonical(np.int32(i)), value)
    return value


def _while_loop(goes_on: Callable[..., Any], body: Callable[..., Any], value: Any) -> Any:
    while goes_on(value):
        value = body(value)
    return value


def _bitcast(value: Any, dtype: Any) -> Any:
    return canonical(np.ascontiguousarray(plain(value)).view(dtype).reshape(np.shape(value)))


def _top_k(value: Any, most: int) -> tuple[Any, Any]:
    order = np.argsort(-plain(value), axis=-1, stable=True)[..., :most]
    return canonical(np.take_along_axis(plain(value), order, -1)), canonical(order)


def _scan(
    body: Callable[..., Any],
    begun: Any,
    rows: Any,
    length: int | None = None,
    *,
    unroll: object = None,
) -> Any:
    del unroll  # for a compiler
    number = len(trees.leaves(rows)[0]) if length is None else length
    made = []
    for i in range(number):
        begun, out = body(begun, trees.map(lambda leaf, i=i: leaf[i], rows))
        made.append(out)
    return begun, _stacked(made)


class _Refusing(SimpleNamespace):
    """A part of JAX; what it lacks is refused with a sentence."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotHereError(f"jax.{self.__dict__['_part']}.{name}")


lax = _Refusing(
    _part="lax",
    cond=_cond,
    fori_loop=_fori_loop,
    while_loop=_while_loop,
    scan=_scan,
    map=lambda function, rows: vmap(function)(rows),
    bitcast_convert_type=_bitcast,
    top_k=_top_k,
)


def _log_softmax(scores: Any) -> Any:
    shifted = plain(scores) - plain(scores).max(axis=-1, keepdims=True)
    return canonical(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


nn = _Refusing(
    _part="nn",
    relu=lambda x: canonical(np.maximum(plain(x), 0)),
    softplus=lambda x: canonical(np.logaddexp(plain(x), 0)),
    log_softmax=_log_softmax,
)


class _CustomVmap:
    """A function with its own way over a batch; here it is called for each in turn."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Take the rule for batches, which is not needed."""
        return rule


custom_batching = _Refusing(_part="custom_batching", custom_vmap=_CustomVmap)
