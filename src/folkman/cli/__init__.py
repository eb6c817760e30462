"""The command line: one file per group of commands, thin over functions that Python can call.

Exit codes: 0 done; 2 wrong input; 3 a run diverged; 4 the disk refused; 5 a job failed; 130
interrupted (resumable). Heavy packages and other folders are imported inside the commands, so that
`folkman --help` answers at once and a group works where the folders of the others are missing.
"""

import os
import sys
import traceback
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from folkman.builders import Builders
from folkman.checks import Notice
from folkman.cli.common import FAULTS, of_own_code, outcome, say
from folkman.files import keep_programs

__all__ = ["COMMANDS", "app", "main"]

COMMANDS: Builders[None] = Builders(
    {
        "demo": "folkman.cli.demo:demo",
        "init": "folkman.cli.init:init",
        "run": "folkman.cli.run:run",
        "ls": "folkman.cli.run:list_command",
        "plot": "folkman.cli.look:plot",
        "report": "folkman.cli.look:report",
        "dash": "folkman.cli.look:dash",
        "predict": "folkman.cli.deploy:predict",
        "export": "folkman.cli.deploy:export",
        "sweep": "folkman.cli.sweep:sweep",
        "compare": "folkman.cli.sweep:compare",
        "tune": "folkman.cli.tune:tune",
        "rank": "folkman.cli.rank:rank",
        "reproduce": "folkman.cli.paper:reproduce",
        "audit": "folkman.cli.paper:audit",
        "papers": "folkman.cli.paper:papers",
        "radio": "folkman.cli.radio:radio",
        "algorithms": "folkman.cli.methods:algorithms",
        "graphs": "folkman.cli.methods:graphs",
        "cite": "folkman.cli.methods:cite",
        "node": "folkman.cli.node:node",
        "up": "folkman.cli.node:up",
        "status": "folkman.cli.node:status",
        "down": "folkman.cli.node:down",
        "replay": "folkman.cli.node:replay",
        "simulate-node": "folkman.cli.world:simulate_node",
        "world": "folkman.cli.world:world",
        "schema": "folkman.cli.schema:schema",
        "doctor": "folkman.cli.doctor:doctor",
        "data": "folkman.cli.data:data_app",
        "theory": "folkman.cli.theory:theory_app",
        "certs": "folkman.cli.certs:certs_app",
        "fleet": "folkman.cli.fleet:fleet_app",
        "shards": "folkman.cli.shards:shards",
    }
)
"""Command -> where it is: a function, or a group of commands."""

SECTIONS = {
    "Start": ("demo", "init", "doctor", "data", "schema"),
    "Run and compare": ("run", "sweep", "compare", "tune", "rank"),
    "Look at it": ("ls", "plot", "report", "dash"),
    "Use what was learnt": ("predict", "export"),
    "Look up": ("algorithms", "graphs", "radio", "theory", "cite"),
    "Repeat a paper": ("reproduce", "audit", "papers"),
    "Between devices": ("up", "status", "down", "replay", "node", "shards", "certs", "fleet"),
    "Test the device node": ("simulate-node", "world"),
}
"""What a user wants, and the commands for it, in the order of the help."""

WITH_JAX = frozenset(
    ("demo", "run", "sweep", "tune", "rank", "reproduce", "audit", "radio", "up", "replay")
) | {"algorithms", "shards", "theory"}
"""Commands that compute with all nodes, or look at methods as compiled programs: JAX alone can."""


class _Imported(dict[str, Any]):
    """The commands as typer wants them, each imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        found, part = COMMANDS[name], typer.Typer(rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            part.add_typer(found, name=name)
        else:
            part.command(name=name)(found)
        command = get_group(part).commands[name]
        if name in WITH_JAX:
            for each in command.commands.values() if isinstance(command, TyperGroup) else [command]:
                _check_first(each, name)
        return command

    def get(self, name: str, default: object = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 - this is `get`


def _check_first(command: Any, name: str) -> None:
    """Let a command see that JAX computes here before it does anything else."""
    invoke = command.invoke

    def checked(context: typer.Context) -> Any:
        _need_jax(name)
        return invoke(context)

    command.invoke = checked


def _need_jax(name: str) -> None:
    from folkman.arithmetic import VARIABLE, chosen

    found = chosen()
    if found.name == "jax":
        return
    if VARIABLE in found.why:
        raise ValueError(
            f"folkman {name} needs JAX, and {VARIABLE}={found.name} asks for another arithmetic; "
            f"unset {VARIABLE}, or set it to jax. For a cluster of nodes that compute with NumPy: "
            "folkman up --node-set arithmetic=numpy"
        )
    if name == "up":  # other commands miss more than JAX, and say so themselves
        raise ModuleNotFoundError("folkman up needs JAX", name="jax")


class LazyGroup(TyperGroup):
    """A group whose commands are those of `COMMANDS`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Imported(dict.fromkeys(COMMANDS))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by what they are for."""
        del ctx
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            told = [self.commands[name].get_short_help_str(99) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    list(zip((each.ljust(width) for each in names), told, strict=True))
                )


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would double the time that it takes to appear
    help=(
        "Decentralized federated learning with asynchronous parameter sharing: "
        "simulate, compare, plot."
    ),
)


def _print_version(asked: bool) -> None:
    if asked:
        import folkman

        print(f"folkman {folkman.__version__}")
        raise typer.Exit


@app.callback()
def _before_a_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that go before a command; the commands are in `COMMANDS`."""


def _tell_warnings() -> None:
    """Let warnings that are meant for a user come as a line, without a place in the source."""
    show, said = warnings.showwarning, set()

    def told(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category not in (UserWarning, Notice):
            show(message, category, *place, **more)
        elif str(message) not in said:  # data are read anew for every seed
            said.add(str(message))
            say(f"warning: {message}")

    warnings.simplefilter("default", Notice)
    warnings.showwarning = told


def main(commands: typer.Typer = app) -> None:
    """Run the commands; an error ends in a sentence and an exit code, never in a traceback."""
    keep_programs()
    # XLA tells its makers of slow compilations; what concerns a user comes as an exception
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with warnings.catch_warnings():
            _tell_warnings()
            commands()
    except BrokenPipeError:  # `folkman ls | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if not isinstance(error, FAULTS) and of_own_code(error) is None:
            raise
        if os.environ.get("FOLKMAN_TRACEBACK", "0") not in ("", "0"):
            traceback.print_exception(error)
        text, code = outcome(error)
        say(f"error: {text}")
        sys.exit(code)
