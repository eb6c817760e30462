"""Builders by name, each imported when it is first used: a node then imports one method only."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Generic, TypeVar

__all__ = ["Builders", "find_methods"]

Built = TypeVar("Built")
CONTRACT = ("base", "method", "travel")
"""The modules of `folkman.algorithm` that are no methods."""


class Builders(Mapping[str, Callable[..., Built]], Generic[Built]):
    """A table name -> builder, made of names -> "module:attribute"; listing imports nothing."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = dict(homes)

    def __getitem__(self, name: str) -> Callable[..., Built]:
        module, attribute = self._homes[name].split(":")
        return getattr(import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __repr__(self) -> str:
        return f"Builders({', '.join(self._homes)})"


def find_methods() -> list[str]:
    """Return the names of the methods: the other files of `folkman/algorithm/`, in order."""
    folder = Path(__file__).parent / "algorithm"
    files = [found for found in iter_modules([str(folder)]) if not found.ispkg]
    return sorted(found.name for found in files if found.name not in CONTRACT)
