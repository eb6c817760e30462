"""The command line: one file per group of commands, thin over functions that Python can call.

Exit codes: 0 done; 2 wrong input; 3 a run diverged; 4 the disk refused; 5 a job failed; 130 interrupted (resumable).
Heavy packages and other folders are imported inside the commands, so that `folkman --help` answers at once and a group
works where the folders of the others are missing.
"""

import sys

import typer

from folkman.cli.common import DISK, WRONG_INPUT, plain, say
from folkman.cli.lazy import LazyGroup
from folkman.files import keep_programs

__all__ = ["app", "main"]

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would double the time that it takes to appear
    help="Decentralized federated learning with asynchronous parameter sharing: simulate, compare, plot.",
)


@app.callback()
def _no_command() -> None:
    """Do nothing before a command: typer wants one function, and all commands are in `folkman.cli.lazy`."""


def main(commands: typer.Typer = app) -> None:
    """Run the commands; an error ends in a sentence and an exit code, never in a traceback."""
    keep_programs()
    try:
        commands()
    except BrokenPipeError:  # `folkman ls | head`
        sys.stderr.close()
        sys.exit(0)
    except (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError) as error:
        say(f"error: {plain(error)}")
        sys.exit(WRONG_INPUT)
    except OSError as error:
        say(f"error: {plain(error)}; files are never written half, so what is there is whole")
        sys.exit(DISK)
    except ModuleNotFoundError as error:  # a node's installation has no simulator
        say(f"error: this needs '{error.name}', which is not installed here; pip install folkman brings all commands")
        sys.exit(WRONG_INPUT)
    except (ValueError, RuntimeError, OverflowError) as error:
        say(f"error: {error}")
        sys.exit(WRONG_INPUT)
