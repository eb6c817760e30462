"""A NumPy array that keeps JAX's rules.

precision      32 bits, whatever NumPy would widen to, unless 64 are switched on
no change      `x[i] = y` is refused and `x += y` makes a new array, so that a state that is
               passed on stays what it was
`x.at[i]`      a changed copy, as JAX writes it
beyond an end  `x[i]` is the last entry there is (before the front the first), `x.at[i].set(y)` does
               nothing there; a `mode` may say otherwise
16 bits        whole numbers that meet a float16 become one
numbers        a sum or an element is an array without axes, not a number of NumPy's: those
               widen when they meet each other
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

__all__ = ["Array", "Mode", "NotHereError", "alike", "call_ufunc", "canonical", "plain", "settings"]

Mode: TypeAlias = Literal["clip", "drop", "fill", "promise_in_bounds"]
"""What an index beyond an end means."""

NARROW: dict[np.dtype, np.dtype] = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        (np.float64, np.float32),
        (np.int64, np.int32),
        (np.uint64, np.uint32),
        (np.complex128, np.complex64),
    )
}
MAY_BE_WIDE = "dDlLqQgG"
"""Letters of types that may be among these, on any machine; no other one is looked up."""


USUAL = "fi?"
"""Letters of float32, int32 and bool."""


class NotHereError(NotImplementedError):
    """Something of JAX that NumPy does not do here: says what, and what to install."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not among what a node computes with NumPy; install JAX beside it "
            "(pip install jax, or folkman-node[jax]) and leave arithmetic = 'numpy' out"
        )


class Settings:
    """Of the process: one precision, as in JAX."""

    wide = False


settings = Settings()


class Array(np.ndarray):
    """An array as JAX has them, on NumPy."""

    __slots__ = ()

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: object = None, **options: Any
    ) -> Any:
        if out is not None:
            raise TypeError("arrays are never changed in place; write x.at[i].set(y) or x = x + y")
        with np.errstate(all="ignore"):  # what is not finite is found by whoever looks at it
            if (
                method == "__call__"
                and ufunc.nout == 1
                and not options
                and all(map(_is_usual, inputs))
            ):
                found = np.asarray(ufunc(*map(plain, inputs)))
                if found.dtype.char in USUAL:
                    return found.view(Array)
            return canonical(call_ufunc(ufunc, method, *map(plain, inputs), **options))

    def __getitem__(self, index: Any) -> Any:
        held = self.view(np.ndarray)
        if type(index) is int and held.ndim and -len(held) <= index < len(held):
            return canonical(held[index])  # by far the most common index
        return canonical(held[_bounded(plain(index), held.shape, clip=True)[0]])

    def __setitem__(self, index: object, value: object) -> None:
        raise TypeError("arrays are never changed in place; write x = x.at[i].set(y)")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any, **options: Any) -> Any:  # type: ignore[override] - as JAX has it
        """Return the array in another type; 32 bits at most unless 64 are switched on."""
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            raise NotHereError(f"the type {dtype}") from None
        return canonical(self.view(np.ndarray).astype(wanted, **options))

    def sort(  # type: ignore[override] - as JAX has it
        self, axis: int = -1, *, stable: bool = True, descending: bool = False
    ) -> Any:
        """Return a sorted copy."""
        del stable  # among equal numbers nobody can tell
        ordered = np.sort(self.view(np.ndarray), axis=axis)
        return (np.flip(ordered, axis) if descending else ordered).view(Array)

    def take(  # type: ignore[override] - as JAX has it
        self, indices: Any, axis: int | None = None, mode: Mode = "fill", fill_value: Any = None
    ) -> Any:
        """Return entries along an axis, or of the flat array; beyond an end `fill_value`."""
        along: Any = self.reshape(-1) if axis is None else self
        before = (slice(None),) * ((axis or 0) % along.ndim)
        return along.at[(*before, np.asarray(indices))].get(mode=mode, fill_value=fill_value)

    @property
    def at(self) -> "_At":
        """Return what makes changed copies: `x.at[i].set(y)`, `.add(y)`, `.get()`."""
        return _At(self)


def _own(name: str) -> Callable[..., Any]:
    """Return a function of NumPy's arrays, whose result is an array under these rules."""
    function = getattr(np.ndarray, name)

    def call(self: Array, *args: Any, **options: Any) -> Any:
        with np.errstate(all="ignore"):
            return canonical(function(self.view(np.ndarray), *map(plain, args), **options))

    call.__name__, call.__doc__ = name, function.__doc__
    return call


for _name in ("mean", "std", "var", "argmax", "argmin", "argsort", "nonzero", "round"):
    setattr(Array, _name, _own(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Array, f"__i{_name}__", getattr(np.ndarray, f"__{_name}__"))


def _refusing(name: str) -> Callable[..., Any]:
    """Return a function that refuses: NumPy's would change the array."""

    def call(self: Array, *args: object, **options: object) -> Any:
        del self, args, options
        raise TypeError(f"x.{name}(...) changes x, and arrays are never changed; write x.at[i]")

    return call


for _name in ("fill", "put", "partition", "resize", "setfield"):
    setattr(Array, _name, _refusing(_name))


class _At:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: object) -> "_Place":
        return _Place(self._array, plain(index))


class _Place:
    """Some entries of an array; `promised` may say that they are sorted or unique, as in JAX."""

    def __init__(self, array: Array, index: Any) -> None:
        self._array, self._index = array, index

    def get(self, *, mode: Mode | None = None, fill_value: Any = None, **promised: bool) -> Any:
        """Return the entries; with "fill" or "drop", `fill_value` for those that are not there."""
        if not _drops(mode or "clip", promised):
            return self._array[self._index]
        fill = _lacking(self._array.dtype) if fill_value is None else plain(fill_value)
        held, index = self._opened(fill)
        return canonical(held[index])

    def set(self, value: object, *, mode: Mode | None = None, **promised: bool) -> Any:
        """Return a copy with these entries."""
        return self._changed(None, value, mode, promised)

    def add(self, value: object, *, mode: Mode | None = None, **promised: bool) -> Any:
        """Return a copy to which these were added, one after the other where an entry repeats."""
        return self._changed(np.add, value, mode, promised)

    def multiply(self, value: object, *, mode: Mode | None = None, **promised: bool) -> Any:
        """Return a copy that was multiplied by these."""
        return self._changed(np.multiply, value, mode, promised)

    def max(self, value: object, *, mode: Mode | None = None, **promised: bool) -> Any:
        """Return a copy with the larger of each pair."""
        return self._changed(np.maximum, value, mode, promised)

    def min(self, value: object, *, mode: Mode | None = None, **promised: bool) -> Any:
        """Return a copy with the smaller of each pair."""
        return self._changed(np.minimum, value, mode, promised)

    def _changed(
        self, change: np.ufunc | None, value: object, mode: Mode | None, promised: dict[str, bool]
    ) -> Any:
        if _drops(mode or "drop", promised):
            held, index = self._opened(0)
        else:
            held = np.array(self._array)
            index = _bounded(self._index, held.shape, clip=True)[0]
        if change is None:
            held[index] = plain(value)
        else:
            change.at(held, index, np.asarray(plain(value), held.dtype))
        if held.shape != self._array.shape:
            held = held[tuple(map(slice, self._array.shape))].copy()
        return held.view(Array)

    def _opened(self, fill: Any) -> tuple[Any, Any]:
        """Return a copy that has one entry more on each axis that is left, and the index into it.

        What lies beyond an end is in that entry.
        """
        held = np.array(self._array)
        index, beyond = _bounded(self._index, held.shape, clip=False)
        if beyond:
            more = [(0, int(axis in beyond)) for axis in range(held.ndim)]
            held = np.pad(held, more, constant_values=fill)
        return held, index


def _drops(mode: str, promised: dict[str, bool]) -> bool:
    """Tell whether what lies beyond an end is left out; refuse what JAX has and this has not."""
    if mode not in ("clip", "drop", "fill", "promise_in_bounds"):
        raise NotHereError(f"mode = {mode!r} of an index")
    for name in promised:
        if name not in ("indices_are_sorted", "unique_indices"):
            raise NotHereError(f"{name} of an index")
    return mode in ("drop", "fill")


def _lacking(dtype: np.dtype) -> Any:
    """Return what JAX puts where there is no entry."""
    if dtype.kind in "fc":
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind == "u" else np.iinfo(dtype).min


def _bounded(index: Any, shape: tuple[int, ...], *, clip: bool) -> tuple[Any, set[int]]:
    """Return an index with no number beyond an end, and the axes that had some.

    Such a number becomes the nearest that there is or, without `clip`, the one after the last.
    """
    if isinstance(index, slice) or index is Ellipsis:
        return index, set()
    items = list(index) if isinstance(index, tuple) else [index]
    axis, left = 0, sum(map(_axes, items))
    beyond: set[int] = set()
    for place, item in enumerate(items):
        taken = _axes(item)
        if item is Ellipsis:
            axis = len(shape) - left
        elif taken == 1 and axis < len(shape) and not isinstance(item, slice):
            numbers, size = np.asarray(item), shape[axis]
            if numbers.dtype.kind in "iu":
                outside = (numbers < -size) | (numbers >= size)
                if outside.any():
                    beyond.add(axis)
                    numbers = numbers.astype(np.int64)
                    items[place] = (
                        np.clip(numbers, -size, size - 1)
                        if clip
                        else np.where(outside, size, numbers % max(size, 1))
                    )
        axis, left = axis + taken, left - taken
    return tuple(items), beyond


def _axes(item: Any) -> int:
    """Return how many axes a part of an index takes."""
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def call_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """Return what a function of NumPy's makes of numbers, in the type in which JAX computes it."""
    function = getattr(ufunc, method)
    found = function(*(inputs if ufunc is np.ldexp else alike(inputs)), **options)
    short = isinstance(found, _NUMBERS) and found.dtype.char == "e"
    if short and "e" not in _types(inputs) and "dtype" not in options:  # the root of an int8
        wide = [np.asarray(x, np.float32) if hasattr(x, "dtype") else x for x in inputs]
        return function(*wide, **options)
    return found


def _is_usual(value: Any) -> bool:
    """Tell whether a number is of a usual type: if what they make is too, no other rule applies.

    A number of Python's takes the type of what it meets.
    """
    kind = type(value)
    if kind is float or kind is int:
        return True
    return kind is Array and value.dtype.char in USUAL


def alike(inputs: Any) -> Any:
    """Return numbers that meet; whole ones beside a float16, and nothing wider, as float16."""
    types = _types(inputs)
    if "e" not in types or not types.isdisjoint("fdFD"):
        return inputs
    return [
        x.astype(np.float16) if hasattr(x, "dtype") and x.dtype.kind in "iu" else x for x in inputs
    ]


def _types(inputs: Any) -> set[str]:
    return {x.dtype.char for x in inputs if isinstance(x, _NUMBERS)}


_NUMBERS = (np.ndarray, np.generic)
_NEVER_ARRAYS = frozenset({np.ndarray, int, float, bool, type(None), str, slice, np.dtype, type})


def canonical(value: Any) -> Any:
    """Return what NumPy has computed as JAX would: an `Array`, 32 bits unless told."""
    if isinstance(value, _NUMBERS):
        array = np.asarray(value)
        if array.dtype.char in MAY_BE_WIDE and not settings.wide and array.dtype in NARROW:
            with np.errstate(over="ignore"):
                array = array.astype(NARROW[array.dtype])
        return array.view(Array)
    if isinstance(value, tuple | list):
        parts = [canonical(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def plain(value: Any) -> Any:
    """Return arrays, also those within tuples and lists, as NumPy's own."""
    kind = type(value)
    if kind is Array:
        return value.view(np.ndarray)
    if kind in _NEVER_ARRAYS:
        return value
    if isinstance(value, tuple | list) and any(isinstance(x, Array | tuple | list) for x in value):
        return type(value)(plain(each) for each in value)
    return value
