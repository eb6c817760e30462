"""A digest of objects that were built in Python: a folder is continued with the same ones only.

Numbers, texts, arrays, containers and the fields of objects count by value, but for fields that a
data class leaves out of comparisons. A function counts by its code, its defaults and the values
that it closes over. Module globals and files that a function reads are not looked at.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["fingerprint"]


def fingerprint(*things: object) -> str:
    """Return the SHA-256 of what can be known of objects, the same in every process."""
    digest = hashlib.sha256()
    for piece in _pieces(things, ()):
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()


def _pieces(thing: object, above: tuple[int, ...]) -> Iterator[bytes]:
    """Yield what a thing is made of; `above` holds it, for an object that holds itself."""
    if id(thing) in above:
        yield b"again"
        return
    yield type(thing).__qualname__.encode()
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        yield repr(thing).encode()
    elif isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
        yield np.asarray(jax.random.key_data(thing)).tobytes()
    elif isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(thing)
        yield f"{array.dtype} {array.shape}".encode()
        yield array.tobytes()
    else:
        for part in _parts(thing):
            yield from _pieces(part, (*above, id(thing)))


Kind: TypeAlias = type | tuple[type, ...]

_PARTS: tuple[tuple[Kind, Callable[[Any], Iterable[object]]], ...] = (
    (Mapping, lambda thing: [part for item in thing.items() for part in item]),
    ((set, frozenset), lambda thing: sorted(map(str, thing))),
    ((tuple, list), lambda thing: thing),
    (partial, lambda thing: (thing.func, thing.args, thing.keywords)),
    (FunctionType, lambda thing: _parts_of_function(thing)),
    (CodeType, lambda thing: (thing.co_code, thing.co_names, thing.co_consts)),
    (MethodType, lambda thing: (thing.__func__, thing.__self__)),
    ((type, ModuleType), lambda thing: (thing.__name__,)),
)
"""What things are made of, by kind."""


def _parts(thing: object) -> Iterable[object]:
    """Return the parts of a thing that is no plain value."""
    for kind, parts in _PARTS:
        if isinstance(thing, kind):
            return parts(thing)
    if hasattr(thing, "__wrapped__"):  # a compiled function
        return (getattr(thing, "__wrapped__"),)  # noqa: B009 - no type has it
    if is_dataclass(thing):
        return [getattr(thing, field.name) for field in fields(thing) if field.compare]
    return (getattr(thing, "__qualname__", ""), getattr(thing, "__dict__", {}))


def _parts_of_function(function: FunctionType) -> Iterable[object]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = (function.__defaults__, function.__kwdefaults__)
    return (function.__qualname__, function.__code__, *defaults, *cells)
