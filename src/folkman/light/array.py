"""A NumPy array that keeps JAX's rules.

precision      32 bits, whatever NumPy would widen to, unless 64 are switched on
no change      `x[i] = y` is refused and `x += y` makes a new array, so that a state that is
               passed on stays what it was
`x.at[i]`      a changed copy, as JAX writes it
beyond an end  `x[i]` of an array i is the last entry there is, `x.at[i].set(y)` does nothing
numbers        a sum or an element is an array without axes, not a number of NumPy's: those
               widen when they meet each other
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Array", "NotHereError", "canonical", "plain", "settings"]

NARROW: dict[np.dtype, np.dtype] = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        (np.float64, np.float32),
        (np.int64, np.int32),
        (np.uint64, np.uint32),
        (np.complex128, np.complex64),
    )
}


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
            return canonical(getattr(ufunc, method)(*map(plain, inputs), **options))

    def __getitem__(self, index: Any) -> Any:
        held = self.view(np.ndarray)
        if _is_number(index):
            index = np.clip(index, -len(held), len(held) - 1)
        return canonical(held[plain(index)])

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


for _name in ("mean", "std", "var", "argmax", "argmin", "argsort", "nonzero", "round", "take"):
    setattr(Array, _name, _own(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(Array, f"__i{_name}__", getattr(np.ndarray, f"__{_name}__"))


class _At:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: object) -> "_Place":
        return _Place(self._array, plain(index))


class _Place:
    """Some entries of an array."""

    def __init__(self, array: Array, index: Any) -> None:
        self._array, self._index = array, index

    @property
    def _beyond(self) -> bool:
        """Tell whether the place is one row that the array does not have."""
        number = self._index[0] if isinstance(self._index, tuple) else self._index
        size = len(self._array)
        return _is_number(number) and not -size <= int(number) < size

    def get(self, **mode: object) -> Any:
        """Return the entries."""
        del mode
        return self._array[self._index]

    def set(self, value: object, **mode: object) -> Any:
        """Return a copy with these entries."""
        del mode
        changed = np.array(self._array)
        if not self._beyond:
            changed[self._index] = plain(value)
        return changed.view(Array)

    def add(self, value: object, **mode: object) -> Any:
        """Return a copy to which these were added, one after the other where an entry repeats."""
        return self._changed(np.add, value, **mode)

    def multiply(self, value: object, **mode: object) -> Any:
        """Return a copy that was multiplied by these."""
        return self._changed(np.multiply, value, **mode)

    def max(self, value: object, **mode: object) -> Any:
        """Return a copy with the larger of each pair."""
        return self._changed(np.maximum, value, **mode)

    def min(self, value: object, **mode: object) -> Any:
        """Return a copy with the smaller of each pair."""
        return self._changed(np.minimum, value, **mode)

    def _changed(self, change: np.ufunc, value: object, **mode: object) -> Any:
        del mode
        changed = np.array(self._array)
        if not self._beyond:
            change.at(changed, self._index, np.asarray(plain(value), changed.dtype))
        return changed.view(Array)


def _is_number(index: Any) -> bool:
    """Tell whether an index is an array without axes, which JAX would trace."""
    whole = isinstance(index, np.ndarray | np.generic) and np.issubdtype(index.dtype, np.integer)
    return whole and index.ndim == 0


def canonical(value: Any) -> Any:
    """Return what NumPy has computed as JAX would: an `Array`, 32 bits unless told."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if not settings.wide and array.dtype in NARROW:
            with np.errstate(over="ignore"):
                array = array.astype(NARROW[array.dtype])
        return array.view(Array)
    if isinstance(value, tuple | list):
        parts = [canonical(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def plain(value: Any) -> Any:
    """Return arrays, also those within tuples and lists, as NumPy's own."""
    if isinstance(value, Array):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list) and any(isinstance(x, Array | tuple | list) for x in value):
        return type(value)(plain(each) for each in value)
    return value
