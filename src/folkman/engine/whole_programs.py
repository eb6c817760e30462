"""Compiled programs, kept on disk whole: the next process neither traces nor lowers them.

JAX keeps what XLA compiled, by the program's text. To have the text a process must trace every
program again, which takes as long as a short run. Here a program is found by what it would be
traced from: folkman's own source, the function, the structure and shapes of its arguments and all
that is fixed in them. Only what can be told for certain is kept: values, and functions and classes
of folkman. A program that anything else enters (one's own method or problem) is traced each time.

`folkman.files.keep_programs` turns it on, for the commands; Python code and tests are without.
"""

import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import jax
import numpy as np

import folkman
from folkman.files import whole_programs, write_whole

__all__ = ["WholeProgram", "digest", "load", "store"]

MOST_BYTES = 2**28
"""Of all programs on disk; the oldest go first."""
ROOT = Path(str(folkman.__file__)).parent
FOLDERS = ("algorithm", "engine", "packing", "problem", "radio", "theory")
OURS = frozenset((*FOLDERS, *(path.stem for path in ROOT.glob("*.py"))))
"""Folders and modules of folkman that programs are made of."""
KNOWN = ("builtins", "collections", "jax", "numpy", "optax")
"""Packages whose classes are told by their names and the packages' versions."""


class UnknownError(Exception):
    """Something enters a program that cannot be told for certain."""


def digest(
    function: Callable[..., Any], structure: Any, leaves: Sequence[object], fixed: object
) -> str | None:
    """Return what a program is found by; None if it is not to be kept."""
    if whole_programs() is None or jax.default_backend() != "cpu" or jax.device_count() != 1:
        return None
    found = hashlib.sha256(_surroundings().encode())
    try:
        for piece in _told((function, [_aval(leaf) for leaf in leaves], fixed)):
            found.update(piece + b"\0")
        for piece in _told_of(structure):
            found.update(piece + b"\0")
    except (UnknownError, RecursionError):
        return None
    return found.hexdigest()


def _aval(leaf: object) -> tuple[object, ...]:
    """Return what a program knows of an argument."""
    kind = jax.typeof(leaf)
    return (tuple(kind.shape), str(kind.dtype), bool(getattr(kind, "weak_type", False)))


@cache
def _source() -> str:
    """Return the digest of the source that programs are made of."""
    found = hashlib.sha256()
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in sorted([*ROOT.glob("*.py"), *paths]):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _surroundings() -> str:
    """Return what else decides about a program: versions, and the settings of JAX and XLA."""
    versions = [version(name) for name in ("jax", "jaxlib", "numpy", "optax")]
    settings = sorted((name, repr(value)) for name, value in jax.config.values.items())
    precise = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    flags = os.environ.get("XLA_FLAGS", "")
    return repr((_source(), versions, settings, precise, flags, os.cpu_count()))


def _told_of(structure: Any) -> Iterator[bytes]:
    """Yield what the structure of arguments is made of, with all that is fixed in it."""
    node = structure.node_data()
    if node is None:
        yield b"leaf" if structure.num_leaves else b"none"
        return
    kind, inside = node
    yield from _told(kind)
    yield from _told(inside)
    yield b"("
    for child in structure.children():
        yield from _told_of(child)
    yield b")"


def _told(thing: Any) -> Iterator[bytes]:
    """Yield what a value is; raise for one that cannot be told."""
    kind = type(thing)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if thing is None or kind in (bool, int, float, complex, str, bytes):
        yield repr(thing).encode()
    elif isinstance(thing, np.ndarray | np.generic) and thing.dtype != object:
        yield f"{thing.dtype} {thing.shape}".encode() + thing.tobytes()
    elif isinstance(thing, np.dtype):
        yield str(thing).encode()
    elif isinstance(thing, type):
        yield from _named(thing, KNOWN)
    elif isinstance(thing, FunctionType):
        yield from _named(thing)
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        yield from _told((*cells, thing.__defaults__, thing.__kwdefaults__))
    elif isinstance(thing, partial):
        yield from _told((thing.func, thing.args, thing.keywords))
    else:
        yield from _told_each(thing)


def _named(thing: type | FunctionType, packages: Sequence[str] = ()) -> Iterator[bytes]:
    """Yield the name of a function or class of folkman's, or of these packages."""
    package, *inside = thing.__module__.split(".")
    if not (OURS & {*inside[:1]} if package == "folkman" else package in packages):
        raise UnknownError(f"{thing.__module__}.{thing.__qualname__}")
    yield f"{thing.__module__}.{thing.__qualname__}".encode()


def _told_each(thing: Any) -> Iterator[bytes]:
    """Yield the parts of a container, or of an object that is the sum of its fields."""
    if isinstance(thing, tuple | list):
        yield from _named(type(thing), KNOWN)
        parts: Sequence[object] = thing
    elif type(thing) is dict:
        parts = [part for item in thing.items() for part in item]
    elif is_dataclass(thing):
        yield from _named(type(thing))
        parts = [getattr(thing, field.name) for field in fields(thing)]
    else:
        raise UnknownError(type(thing).__qualname__)
    yield str(len(parts)).encode()
    for part in parts:
        yield from _told(part)


class WholeProgram:
    """A program of flat arguments: found on disk when it is first called, or compiled and kept."""

    def __init__(self, name: str, traced: Callable[..., Any], flat: Callable[..., Any]) -> None:
        self.traced = traced  # the same program as JAX keeps it, for arguments of other types
        self._name, self._flat = name, flat
        self._ready: Callable[..., Any] | None = None
        self._making = Lock()

    def __call__(self, leaves: Sequence[object]) -> Any:
        """Run it; TypeError if the leaves have other types than it was made for."""
        with self._making:
            self._ready = self._ready or load(self._name, len(leaves)) or self._made(leaves)
        return self._ready(*leaves)

    def _made(self, leaves: Sequence[object]) -> Callable[..., Any]:
        # A name that was never used before: an executable that JAX has read from its own cache
        # cannot be written again (its functions are then missing), so that one must be compiled.
        self._flat.__name__ = f"{self._flat.__name__}_{os.urandom(6).hex()}"
        program = jax.jit(self._flat).lower(*leaves).compile()
        store(self._name, program)
        return program


def load(name: str, count: int) -> Callable[..., Any] | None:
    """Return a program of so many arguments; None if there is none on disk."""
    from jax.experimental.serialize_executable import deserialize_and_load

    folder = whole_programs()
    path = None if folder is None else folder / name
    if path is None or not path.is_file():
        return None
    with suppress(Exception):  # a damaged file, or one that this JAX cannot read: traced again
        program, out_tree = pickle.loads(path.read_bytes())  # noqa: S301 - the user's own cache
        path.touch()
        return deserialize_and_load(program, jax.tree.structure(((0,) * count, {})), out_tree)
    return None


def store(name: str, program: Any) -> None:
    """Keep a compiled program, unless JAX cannot write it or the disk refuses."""
    from jax.experimental.serialize_executable import serialize

    folder = whole_programs()
    if folder is None:
        return
    with suppress(Exception):  # a program that calls Python back is not written
        content, _, out_tree = serialize(program)
        data = pickle.dumps((content, out_tree))
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder, len(data))
        write_whole(folder / name, lambda part: part.write_bytes(data))


def _make_room(folder: Path, size: int) -> None:
    """Remove the programs that were used longest ago, so that `size` bytes more find room."""
    known = sorted(
        (path.stat().st_mtime_ns, path.stat().st_size, path) for path in folder.iterdir()
    )
    total = sum(each for _, each, _ in known) + size
    for _, each, path in known:
        if total <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= each
