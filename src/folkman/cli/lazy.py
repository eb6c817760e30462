"""Commands that are imported when they are called or listed: `folkman node` then imports no command but its own."""

import typer
from typer.core import TyperCommand, TyperGroup
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


class LazyGroup(TyperGroup):
    """The commands registered at once, and those of `LATER`."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] - typer's is a click.Context
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | None:  # type: ignore[override]
        """Return a command, imported now if need be."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)  # type: ignore[return-value]
        found, part = LATER[cmd_name], typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=cmd_name)
        else:
            part.command(name=cmd_name)(found)
        return get_group(part).commands[cmd_name]  # type: ignore[return-value]
