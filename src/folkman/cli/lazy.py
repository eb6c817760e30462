"""Commands that are imported when they are called or listed: `folkman node` then imports no command but its own."""

from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from folkman.builders import Builders

__all__ = ["LazyGroup"]

COMMANDS: Builders[None] = Builders(
    {
        "run": "folkman.cli.run:run",
        "ls": "folkman.cli.run:list_command",
        "plot": "folkman.cli.look:plot",
        "report": "folkman.cli.look:report",
        "dash": "folkman.cli.look:dash",
        "sweep": "folkman.cli.sweep:sweep",
        "compare": "folkman.cli.sweep:compare",
        "reproduce": "folkman.cli.paper:reproduce",
        "audit": "folkman.cli.paper:audit",
        "papers": "folkman.cli.paper:papers",
        "radio": "folkman.cli.radio:radio",
        "algorithms": "folkman.cli.methods:algorithms",
        "cite": "folkman.cli.methods:cite",
        "node": "folkman.cli.node:node",
        "up": "folkman.cli.node:up",
        "status": "folkman.cli.node:status",
        "down": "folkman.cli.node:down",
        "replay": "folkman.cli.node:replay",
        "data": "folkman.cli.data:data_app",
        "theory": "folkman.cli.theory:theory_app",
        "certs": "folkman.cli.certs:certs_app",
    }
)
"""Command -> where it is: a function, or a group of commands."""


class _Imported(Mapping[str, Any]):
    """The commands as typer wants them, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        found, part = COMMANDS[name], typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=name)
        else:
            part.command(name=name)(found)
        return get_group(part).commands[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """A group whose commands are those of `COMMANDS`."""

    def __init__(self, *, commands: Any = None, **options: Any) -> None:
        del commands
        super().__init__(**options)
        self.commands: Any = _Imported()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        del ctx
        return list(COMMANDS)
