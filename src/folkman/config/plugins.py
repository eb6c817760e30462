"""Builders from outside the package: a file of one's own, a module, an installed package.

    name = "mine.py:gossip"           a function of a file, beside the configuration or by its path
    name = "package.module:gossip"    a function of a module that can be imported
    name = "gossip"                   an entry point of the group `folkman.algorithm`, ...

A file is compiled from the bytes that are hashed, under a private module name. Its folder is
importable while the file is imported and no longer. Modules that it imports from there belong to
it: they are hashed and sent along with it. Importing a file runs it, so a configuration must be
trusted as the code that it names.
"""

import base64
import hashlib
import importlib
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from folkman.checks import nearest, require

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Parcel", "Plugin", "anchored", "check_unchanged", "import_file", "is_file", "load"]
__all__ += ["looked_up", "own_texts", "place_of", "raised"]
__all__ += ["title", "unpacked", "write_files"]

Builder: TypeAlias = Callable[..., Any]
Files: TypeAlias = dict[str, bytes]
"""The files of a plug-in by their path below its folder; the one that was named comes first."""

Parcel: TypeAlias = Mapping[str, Mapping[str, str]]
"""Own files on their way elsewhere: place -> path below its folder -> content in base64."""

OWN = re.compile(
    r"(?P<place>.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<builder>[^\W\d]\w*(\.[^\W\d]\w*)*)"
)
FORMS = "write FILE.py:FUNCTION or package.module:FUNCTION"


class Plugin(NamedTuple):
    """A builder, and the files that it is made of."""

    builder: Builder
    folder: Path
    files: Files

    @property
    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file by its path."""
        return {str(self.folder / name): _digest(content) for name, content in self.files.items()}

    @property
    def digest(self) -> str:
        """Return one SHA-256 of all files; where they lie does not matter."""
        listed = [f"{name}\0{_digest(content)}\n" for name, content in self.files.items()]
        return _digest("".join(listed).encode())


class _Source(NamedTuple):
    module: ModuleType
    folder: Path
    files: Files


_SOURCES: dict[str, _Source] = {}  # by the place that a name gives
_ENTRIES: dict[tuple[str, str], str] = {}  # (kind, name) -> package.module:function
_SENT: dict[str, Path] = {}  # place -> where its files lie on this machine


def title(name: Any) -> Any:
    """Return the function that a name of own code gives, for labels; anything else as it is."""
    found = OWN.fullmatch(name) if isinstance(name, str) else None
    return found["builder"] if found else name


def anchored(value: Any, here: Path, key: str = "", *, warn: bool = False) -> Any:
    """Return tables with every own file that a `name` gives by its absolute path, from `here`.

    A file that a `topology` gives is a graph, and is found likewise.

    With `warn`, a file outside `here` is named once on standard error: it will be run.
    """
    if isinstance(value, Mapping):
        return {name: anchored(item, here, name, warn=warn) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [anchored(item, here, key, warn=warn) for item in value]
    if key.rpartition(".")[2] == "topology":  # also as an axis of a sweep
        return _anchored_graph(value, here)
    found = OWN.fullmatch(value) if key == "name" and isinstance(value, str) else None
    if found is None or not is_file(value):
        return value
    path = Path(found["place"])
    path = path if path.is_absolute() else (here / path).resolve()
    if warn and not path.resolve().is_relative_to(here.resolve()):
        _warn(str(path))
    return f"{path}:{found['builder']}"


def _anchored_graph(value: Any, here: Path) -> Any:
    """Return the file of a graph by its absolute path; a name or the edges themselves stay."""
    if not isinstance(value, str) or "." not in value:
        return value
    from folkman.algorithm.pieces.graph_sources import is_file as is_graph  # here: few have graphs

    return str((here / value).resolve()) if is_graph(value) else value


@cache  # once per process and file
def _warn(path: str) -> None:
    text = f"warning: this configuration runs code from outside its folder: {path}"
    print(text, file=sys.stderr, flush=True)


def looked_up(name: str, kind: str, built_in: Iterable[str]) -> Plugin:
    """Import the builder of a name that is not built in, as it is now, or raise `ValueError`."""
    built_in = list(built_in)
    if OWN.fullmatch(name) is None:
        own = ":" in name or name.endswith(".py")
        require(not own, f"has no '{name}'; for own code {FORMS}")
        registered = _registered(kind, built_in)
        require(name in registered, f"has no '{name}'; {nearest(name, [*built_in, *registered])}")
        _ENTRIES[kind, name] = registered[name].value.partition("[")[0].strip()
    else:
        own = title(name)
        taken = f"names '{name}', but '{own}' is a built-in {kind}"
        require(own not in built_in, f"{taken}; rename the function")
        if _is_stale(place_of(name)):
            del _SOURCES[place_of(name)]
    return load(name, kind)


def load(name: str, kind: str) -> Plugin:
    """Return the builder of a name as it was last looked up, also if its file changed since."""
    target = _ENTRIES.get((kind, name), name)
    place = place_of(target)
    if place not in _SOURCES:
        _SOURCES[place] = _from_file(place) if place.endswith(".py") else _from_module(place)
    source = _SOURCES[place]
    found: Any = source.module
    for attribute in title(target).split("."):
        if not hasattr(found, attribute):
            named = vars(source.module).items()
            there = [each for each, item in named if callable(item) and each[:1] != "_"]
            raise ValueError(
                f"names '{name}', but {place} has no '{attribute}'; {nearest(attribute, there)}"
            )
        found = getattr(found, attribute)
    came = f"{type(found).__name__} {found!r:.60}"
    require(
        callable(found),
        f"names '{name}', expected a function that builds the {kind}, got {came}; {FORMS}",
    )
    return Plugin(found, source.folder, source.files)


def import_file(path: Path) -> tuple[ModuleType, dict[str, str]]:
    """Import a file of own code as it is now; return it with the digests of its files."""
    module, folder, files = _from_file(str(path.resolve()))
    return module, {str(folder / name): _digest(content) for name, content in files.items()}


def own_texts() -> dict[str, str]:
    """Return the text of every file of own code that was imported, by the path that Python has."""
    found = {}
    for place, source in _SOURCES.items():
        for name, content in source.files.items():
            text = content.decode(errors="replace")
            for folder in {source.folder, _SENT.get(place, source.folder)}:
                found[str(folder / name)] = text
    return found


def place_of(name: str) -> str:
    """Return the file or module of a name of own code."""
    return name.rpartition(":")[0]


def is_file(name: str) -> bool:
    """Tell a function of a file from one of a module."""
    return place_of(name).endswith(".py")


def _registered(kind: str, built_in: Iterable[str]) -> "dict[str, EntryPoint]":
    """Return the entry points of a kind; one with a built-in name, or another's, is refused."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"folkman.{kind}"):
        package = f"package '{entry.dist.name}'" if entry.dist else "a package"
        taken = "another package's" if entry.name in found else ""
        taken = "built in" if entry.name in built_in else taken
        require(
            not taken,
            f"{package} registers the {kind} '{entry.name}', which is {taken}; rename it, or "
            "remove it",
        )
        found[entry.name] = entry
    return found


def _is_stale(place: str) -> bool:
    """Tell whether the files of a loaded source have changed."""
    source = _SOURCES.get(place)
    if source is None or not place.endswith(".py"):  # a module is imported once, as Python does
        return False
    folder = _SENT.get(place, source.folder)
    try:
        return any(
            (folder / name).read_bytes() != content for name, content in source.files.items()
        )
    except OSError:
        return True


def _from_file(place: str) -> _Source:
    """Import a file from its bytes; what it imports from its folder becomes part of it."""
    path = Path(place)
    folder = _SENT.get(place, path.parent)
    try:
        content = (folder / path.name).read_bytes()
    except OSError as error:
        raise ValueError(
            f"names the file {place}, which cannot be read: {error.strerror}; check the path"
        ) from None
    name = f"_folkman_own_{path.stem}_{_digest(place.encode() + content)[:12]}"
    module = ModuleType(name)
    module.__file__ = place
    before = set(sys.modules)
    with _importable(folder):
        sys.modules[name] = module
        try:
            exec(compile(content, place, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise ValueError(
                f"names the file {place}, whose import {raised(error, place)}; correct it"
            ) from None
        finally:
            beside = _beside(folder)
            for each in set(beside.values()) - before:
                del sys.modules[each]  # another file may have a neighbour of the same name
    return _Source(
        module,
        path.parent,
        {path.name: content} | {each: (folder / each).read_bytes() for each in beside},
    )


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported, from their sources as they are now."""
    importlib.invalidate_caches()
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes


def _beside(folder: Path) -> dict[str, str]:
    """Return the imported modules that lie in a folder: path below it -> module."""
    found = {}
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None)
        stem = name.replace(".", "/")
        for below in (f"{stem}.py", f"{stem}/__init__.py"):
            if origin == str(folder / below):
                found[below] = name
    return dict(sorted(found.items()))


def _from_module(place: str) -> _Source:
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ValueError(
                f"names the module {place}, whose import {raised(error, '')}; install it"
            ) from None
        raise ValueError(
            f"names the module {place}, which is not installed here; install it, or write "
            "FILE.py:FUNCTION"
        ) from None
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"names the module {place}, whose import {raised(error, '')}; correct it"
        ) from None
    origin = Path(getattr(module.__spec__, "origin", None) or "")
    return _Source(
        module, origin.parent, {origin.name: origin.read_bytes()} if origin.is_file() else {}
    )


def raised(error: BaseException, place: str) -> str:
    """Return what an error says and the line of own code that it came from."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or place, error.lineno))
    path, line = ([frame for frame in frames if frame[0] == place] or frames)[-1]
    said = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
    found = f"raised {type(error).__name__}: {said} ({path}, line {line})"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "jax":
        found += "; folkman.arrays has these arrays with and without JAX"
    return found


def check_unchanged(digests: Mapping[str, str]) -> None:
    """Refuse to go on with what was begun under files that have changed or are gone."""
    for path, before in digests.items():
        try:
            now = _digest(Path(path).read_bytes())
        except OSError as error:
            raise ValueError(
                f"{path}, own code of what was begun here, cannot be read: {error.strerror}; "
                "put it back, or run into a new folder"
            ) from None
        require(
            now == before,
            f"{path} has changed since this was begun: SHA-256 {before[:12]} then, {now[:12]} now; "
            "restore the file, or run into a new folder",
        )


@contextmanager
def unpacked(parcel: Parcel) -> Iterator[None]:
    """Take own files from a parcel and not from the paths that their names give."""
    with tempfile.TemporaryDirectory(prefix="folkman-own-") as root:
        for number, (place, contents) in enumerate(parcel.items()):
            folder = Path(root).resolve() / str(number)
            files = {path: base64.b64decode(content) for path, content in contents.items()}
            write_files(files, folder)
            _SENT[place] = folder
        try:
            yield
        finally:
            for place in parcel:
                del _SENT[place]


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a plug-in into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
