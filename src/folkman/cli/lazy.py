"""Commands that are imported when they are called or listed: `folkman node` then imports no command but its own."""

import typer
from typer.core import TyperCommand, TyperGroup
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


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] - typer's is a click.Context
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return a command, imported now if need be."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found, part = COMMANDS[cmd_name], typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=cmd_name)
        else:
            part.command(name=cmd_name)(found)
        return get_group(part).commands[cmd_name]  # type: ignore[return-value]
