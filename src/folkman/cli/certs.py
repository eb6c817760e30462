"""The command line of identities: `folkman certs init`, `issue`, `revoke`, `show`."""

from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.common import AsJson, print_json

__all__ = ["certs_app"]

certs_app = typer.Typer(
    no_args_is_help=True,
    help="Certificates of a cluster: a small authority, short-lived certificates.",
)

MOST_DAYS = 36_500
"""A century: the longest that a certificate may be asked to last."""

Folder = Annotated[Path, typer.Option(help="Where the authority is kept.")]


@certs_app.command(name="init")
def init_command(
    folder: Folder = Path("certs"),
    days: Annotated[int, typer.Option(help="How long the authority is valid.")] = 3650,
) -> None:
    """Make an authority; its key stays in this folder."""
    from folkman.runtime.identity import init

    _check_days(days)
    init(folder, days)
    print(f"authority in {folder}; next: folkman certs issue node-0 --folder {folder}")


@certs_app.command()
def issue(
    nodes: Annotated[
        list[str], typer.Argument(help="Names of the nodes: node-0, node-1, ..., server.")
    ],
    folder: Folder = Path("certs"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address it is dialled by. May be repeated; default this machine."
        ),
    ] = None,
    days: Annotated[float, typer.Option(help="How long the certificates are valid.")] = 90,
) -> None:
    """Make keys and certificates, and enter the nodes in the list of members."""
    from folkman.runtime.identity import issue as make
    from folkman.runtime.identity import number_of

    _check_days(days)
    for name in nodes:
        print(make(folder, number_of(name), tuple(host or ("127.0.0.1", "localhost")), days))


@certs_app.command()
def revoke(
    nodes: Annotated[list[str], typer.Argument(help="Name of the node: node-0, ...")],
    folder: Folder = Path("certs"),
) -> None:
    """Mark members as revoked; copy members.json to the nodes, which read it while running."""
    from folkman.runtime.identity import number_of
    from folkman.runtime.identity import revoke as mark

    for name in nodes:
        mark(folder, number_of(name))
        print(f"{name} revoked in {folder / 'members.json'}")


@certs_app.command()
def show(
    folder: Folder = Path("certs"),
    as_json: AsJson = False,
) -> None:
    """List the members and how they stand."""
    from folkman.runtime.identity import show as rows_of

    rows = rows_of(folder)
    if as_json:
        print_json({"members": rows})
        return
    for row in rows:
        head = f"{row['name']:<10} {row['state']:<8} until {row['not_after']}"
        print(f"{head}  key {row['key'][:16]}...")


def _check_days(days: float) -> None:
    """Refuse what would be expired when it is made, or beyond what a certificate can say."""
    if not 0 < days <= MOST_DAYS:
        raise ValueError(f"--days must lie in 0 .. {MOST_DAYS}, got {days:g}; 90 is usual")
