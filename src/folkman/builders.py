"""Builders by name, each imported when it is first used: a node then imports one method and not sixteen."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

__all__ = ["Builders"]

Built = TypeVar("Built")


class Builders(Mapping[str, Callable[..., Built]], Generic[Built]):
    """A table name -> builder, made of names -> "module:attribute". Listing the names imports nothing."""

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
