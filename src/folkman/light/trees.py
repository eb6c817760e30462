"""Arrays inside tuples, dictionaries and dataclasses, flattened in JAX's order and under its names.

A saved node is written leaf by leaf, so a node may go on under the other arithmetic.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from folkman.light.array import canonical

__all__ = [
    "Structure",
    "all_leaves",
    "flatten",
    "keystr",
    "leaves",
    "map",
    "register_dataclass",
    "register_pytree_node",
    "register_static",
    "structure",
    "tree_flatten_with_path",
    "tree_leaves_with_path",
    "unflatten",
]

Kind = TypeVar("Kind", bound=type)
Parts = tuple[list[tuple[str, Any]], Callable[[list[Any]], Any]]

_FIELDS: dict[type, list[str]] = {}  # dataclasses: their fields that hold arrays


class Structure(NamedTuple):
    """How a tree is put together again."""

    tree: Any


def register_dataclass(kind: Kind, data_fields: Sequence[str], meta_fields: Sequence[str]) -> Kind:
    """Let the fields of a dataclass be arrays in a tree."""
    del meta_fields
    _FIELDS[kind] = list(data_fields)
    return kind


def register_static(kind: Kind) -> Kind:
    """Let values of a class be part of a tree's structure."""
    _FIELDS[kind] = []
    return kind


def register_pytree_node(kind: type, flatten: object, unflatten: object) -> None:
    """Do nothing: nothing is compiled here, so no such value is ever taken apart."""
    del kind, flatten, unflatten


def keystr(path: tuple[str, ...]) -> str:
    """Return the name of a leaf."""
    return "".join(path)


def _parts(tree: Any) -> Parts | None:
    """Return the parts of a tree under their names, and what joins them; None of a leaf."""
    if tree is None:
        return [], lambda _: None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        kind = type(tree)
        names = [f".{name}" for name in kind._fields]  # type: ignore[attr-defined]
        return list(zip(names, tree, strict=True)), lambda parts: kind(*parts)
    if isinstance(tree, tuple | list):
        return [(f"[{i}]", each) for i, each in enumerate(tree)], type(tree)
    if isinstance(tree, dict):
        keys = sorted(tree)
        named = [(f"[{key!r}]", tree[key]) for key in keys]
        return named, lambda parts: dict(zip(keys, parts, strict=True))
    if type(tree) in _FIELDS:
        from dataclasses import replace

        fields = _FIELDS[type(tree)]
        named = [(f".{name}", getattr(tree, name)) for name in fields]
        return named, lambda parts: replace(tree, **dict(zip(fields, parts, strict=True)))
    return None


def tree_flatten_with_path(tree: Any) -> tuple[list[tuple[tuple[str, ...], Any]], Structure]:
    """Return the leaves with their paths, and the structure."""
    return _flat(tree, ()), Structure(tree)


def _flat(tree: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    parts = _parts(tree)
    if parts is None:
        return [(path, tree)]
    return [leaf for name, part in parts[0] for leaf in _flat(part, (*path, name))]


def tree_leaves_with_path(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Return the leaves with their paths."""
    return _flat(tree, ())


def leaves(tree: Any) -> list[Any]:
    """Return the leaves."""
    return [leaf for _, leaf in _flat(tree, ())]


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves and the structure."""
    return leaves(tree), Structure(tree)


def structure(tree: Any) -> Structure:
    """Return the structure alone."""
    return Structure(tree)


def all_leaves(parts: Sequence[Any]) -> bool:
    """Tell whether none of these is a tree."""
    return all(_parts(each) is None for each in parts)


def unflatten(like: Structure, found: Sequence[Any]) -> Any:
    """Return leaves in a structure."""
    rest = list(found)
    joined = map(lambda _: rest.pop(0), like.tree)
    if rest:
        raise ValueError(f"expected as many leaves as the structure has, got {len(rest)} more")
    return joined


def map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:  # noqa: A001 - as JAX has it
    """Return the tree of what a function makes of each leaf, and of those in its place."""
    parts = _parts(tree)
    if parts is None:
        return canonical(function(tree, *others))
    named, join = parts
    beside = [[part for _, part in (_parts(other) or ([], None))[0]] for other in others]
    return join(
        [map(function, part, *(row[i] for row in beside)) for i, (_, part) in enumerate(named)]
    )
