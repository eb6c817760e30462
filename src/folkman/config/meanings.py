"""What every parameter and every field means, read where it is written.

    slot_s: float = 1.0,  # T, seconds a slot

Four places may say it, and the first of these counts:

    the comment beside the parameter or the field, or on the lines right above it
    the text in quotes right below a field
    for an option of a method that comes from a group (`Decay`, `Graph`): the group's own field
    `VOCABULARY`, for names that mean the same wherever they stand

So a meaning stands once, beside the name. The API reference, the JSON schema for editors and a test
read it here; the test finds every name that is left without one.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from textwrap import dedent
from typing import Any, NamedTuple

from folkman.config.vocabulary import VOCABULARY

__all__ = ["Meant", "meanings"]

TOOLS = ("noqa", "type:", "pyright:")
"""How comments begin that are for tools."""

RECORDS = ("_fields", "__dataclass_fields__", "__pydantic_fields__")
"""What classes have whose fields are written in their body."""

BELOW = 1
"""A comment on a line of its own belongs to the name so many lines below it."""


class Meant(NamedTuple):
    """A parameter or a field, as a reader meets it."""

    kind: str  # its type as written; empty where none is
    default: str | None  # as written; None where there is none
    meaning: str  # empty where nothing says it


def meanings(thing: Any) -> dict[str, Meant]:
    """Return what each parameter of a function, or each field of a class, means.

    >>> meanings(meanings)["thing"].kind
    'Any'
    """
    if inspect.isclass(thing):
        found = _fields(thing)
        return {name: _told(name, each) for name, each in found.items()}
    found = _parameters(thing)
    kinds: dict[str, Any] = inspect.get_annotations(inspect.unwrap(thing))
    shown = inspect.signature(thing).parameters
    flat: dict[str, Meant] = {}
    for name, each in found.items():
        group: Any = kinds.get(name)
        if set(shown) >= set(getattr(group, "_fields", (None,))):  # they stand in its place
            for field, one in _fields(group).items():
                flat[field] = one._replace(default=_written(shown[field].default, one.default))
        else:
            flat[name] = each
    return {name: _told(name, each) for name, each in flat.items()}


def _told(name: str, each: Meant) -> Meant:
    """Return it with the meaning of the vocabulary where it has none of its own."""
    return each if each.meaning else each._replace(meaning=VOCABULARY.get(name, ""))


def _written(value: object, otherwise: str | None) -> str | None:
    """Return a default as one writes it, where it is a plain value."""
    plain = isinstance(value, str | int | float | bool | tuple | None)
    return repr(value) if plain and value is not inspect.Parameter.empty else otherwise


def _parameters(function: Callable[..., Any]) -> dict[str, Meant]:
    tree, comments = _source(inspect.unwrap(function))
    (node,) = (each for each in tree.body if isinstance(each, ast.FunctionDef))
    given = node.args
    pairs = list(_with_defaults([*given.posonlyargs, *given.args], given.defaults))
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return {
        each.arg: Meant(_text(each.annotation) or "", _text(default), _beside(each, comments))
        for each, default in pairs
        if each.arg not in ("self", "cls")
    }


def _with_defaults(
    names: list[ast.arg], defaults: list[ast.expr]
) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    bare = len(names) - len(defaults)
    yield from zip(names, [None] * bare + defaults, strict=True)


def _fields(kind: type) -> dict[str, Meant]:
    """Return the fields of a class and its bases, or what its constructor takes."""
    found: dict[str, Meant] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] in ("builtins", "pydantic", "typing"):
            continue
        if "__init__" in vars(base) and not _is_record(base):
            found |= _parameters(vars(base)["__init__"])
        elif base is kind or _is_record(base):
            found |= _written_fields(base)
    return found


def _is_record(kind: type) -> bool:
    return any(hasattr(kind, mark) for mark in RECORDS)


def _written_fields(kind: type) -> dict[str, Meant]:
    if not _is_record(kind):
        return {}
    tree, comments = _source(kind)
    (node,) = (each for each in tree.body if isinstance(each, ast.ClassDef))
    found = {}
    for each, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        if each.target.id.startswith("_") or "ClassVar" in (_text(each.annotation) or ""):
            continue
        said = _beside(each, comments) or _quoted(after)
        found[each.target.id] = Meant(_text(each.annotation) or "", _text(each.value), said)
    return found


def _quoted(after: ast.stmt | None) -> str:
    """Return the text that stands right below a field, if there is one."""
    if not isinstance(after, ast.Expr) or not isinstance(after.value, ast.Constant):
        return ""
    return " ".join(str(after.value.value).split())


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _beside(node: ast.arg | ast.AnnAssign, comments: dict[int, tuple[bool, str]]) -> str:
    """Return the comment on the lines of a name, or the whole lines of it right above."""
    lines = range(node.lineno, (node.end_lineno or node.lineno) + BELOW)
    here = [comments[line][1] for line in lines if line in comments]
    if here:
        return " ".join(here)
    above: list[str] = []
    line = node.lineno - BELOW
    while line in comments and comments[line][0]:
        above.insert(0, comments[line][1])
        line -= 1
    return " ".join(above)


@cache
def _source(thing: Any) -> tuple[ast.Module, dict[int, tuple[bool, str]]]:
    """Return a thing's own source as a tree, and by line its comments: alone there, and what."""
    text = dedent(inspect.getsource(thing))
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        said = token.string.lstrip("# ").partition("  # noqa")[0]
        if token.type == tokenize.COMMENT and not said.startswith(TOOLS):
            comments[token.start[0]] = (not token.line[: token.start[1]].strip(), said)
    return ast.parse(text), comments
