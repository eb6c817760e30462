"""Commands that are imported when they are called or listed: `folkman node` then imports no command but its own."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from folkman.builders import Builders

__all__ = ["LazyGroup"]

LATER: Builders[None] = Builders(
    {
        "reproduce": "folkman.cli.paper:reproduce",
        "audit": "folkman.cli.paper:audit",
        "bench": "folkman.cli.bench:bench",
        "plot": "folkman.cli.look:plot",
        "report": "folkman.cli.look:report",
        "dash": "folkman.cli.look:dash",
        "theory": "folkman.cli.theory:theory_app",
        "certs": "folkman.cli.certs:certs_app",
    }
)
"""Command -> where it is: a function, or a group of commands."""


class _Commands(MutableMapping[str, Any]):
    """The commands registered at once, and those of `LATER`, imported when they are asked for."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = dict(known)

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = _command(name, LATER[name])
        return self._known[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in LATER

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *LATER]))

    def __len__(self) -> int:
        return len({*self._known, *LATER})


def _command(name: str, found: Any) -> Any:
    part = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        part.add_typer(found, name=name)
    else:
        part.command(name=name)(found)
    return get_group(part).commands[name]


class LazyGroup(TyperGroup):
    """A group some of whose commands are imported later."""

    def __init__(self, *, commands: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = _Commands(commands or {})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(self.commands)
