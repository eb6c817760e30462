"""The command line of identities: `folkman certs`.

`init`, `issue`, `operator`, `request`, `sign`, `revoke`, `show`.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.common import AsJson, print_json, say

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
    node: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=HOST:PORT of a node's door for operators: writes fleet.toml. Repeatable."
        ),
    ] = None,
) -> None:
    """Make an authority; its key stays in this folder."""
    from folkman.record.cluster import ClusterFolder
    from folkman.runtime.fleet.addresses import chosen, write_fleet
    from folkman.runtime.identity import init

    _check_days(days)
    fleet = ClusterFolder(folder.parent).fleet
    nodes = chosen(None, node, None).nodes if node else {}
    if nodes and fleet.exists():
        raise FileExistsError(f"{fleet} is there; move it away, or add the nodes to it")
    init(folder, days)
    if nodes:
        write_fleet(fleet, nodes, folder.name)
        print(fleet)
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
    """Make keys and certificates of nodes.

    The nodes are entered in the list of members.
    """
    from folkman.runtime.identity import issue as make
    from folkman.runtime.identity import number_of

    _check_days(days)
    for name in nodes:
        print(make(folder, number_of(name), tuple(host or ("127.0.0.1", "localhost")), days))


@certs_app.command()
def operator(
    name: Annotated[str, typer.Argument(help="Whose certificate: a-z, 0-9 and '-'.")],
    folder: Folder = Path("certs"),
    days: Annotated[float, typer.Option(help="How long the certificate is valid.")] = 90,
) -> None:
    """Make an operator's key and certificate.

    `folkman fleet` uses them. The operator is entered in the list.
    """
    from folkman.runtime.operators import make_operator

    _check_days(days)
    print(make_operator(folder, name, days))


@certs_app.command()
def request(
    name: Annotated[str, typer.Argument(help="Name of this board: node-0, ..., or server.")],
    folder: Annotated[Path, typer.Option(help="Where the board keeps its keys.")] = Path("certs"),
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address the board is dialled by. May be repeated."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Replace the keys that the board has already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make this board's keys and a signing request.

    The keys stay here; the authority signs the request.
    """
    from folkman.runtime.enrolment import make_request

    made = make_request(folder, name, host or (), anew=anew)
    path = folder / f"{made.name}.csr"
    if as_json:
        print_json({"request": str(path), "name": made.name, "fingerprint": made.fingerprint})
        return
    print(f"{path}\nfingerprint {made.fingerprint}")
    say(f"next, where the authority is: folkman certs sign {path.name}, and compare fingerprints")


@certs_app.command()
def sign(
    request: Annotated[Path, typer.Argument(help="A request that a board made: node-0.csr.")],
    folder: Folder = Path("certs"),
    fingerprint: Annotated[
        str | None,
        typer.Option(help="What the board printed; must match. Without, you are asked to compare."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the certificate that the name has already.")
    ] = False,
    days: Annotated[float, typer.Option(help="How long the certificate is valid.")] = 90,
) -> None:
    """Sign a board's request.

    The board is entered in the list of members.
    """
    from folkman.runtime.enrolment import fingerprint_matches, read_request, sign_request

    _check_days(days)
    asked = read_request(request)
    say(f"{asked.name}, dialled at {', '.join(asked.hosts) or 'no address'}")
    say(f"fingerprint {asked.fingerprint}")
    if fingerprint is None:
        _confirm_fingerprint(asked.name)
    elif not fingerprint_matches(asked, fingerprint):
        raise ValueError(
            f"the fingerprint of {request} is not the one given; compare it on the board, and copy "
            "the request anew. If they still differ, somebody has changed it on its way"
        )
    print(sign_request(folder, asked, days, replace=replace))
    say(f"copy to the board: ca.crt, members.json and {asked.name}.crt; to all others members.json")


def _confirm_fingerprint(name: str) -> None:
    """Ask a person whether the board shows the same; without a person, refuse."""
    if not sys.stdin.isatty():
        raise ValueError(
            "nobody is there to compare fingerprints; give what the board printed as --fingerprint"
        )
    if not typer.confirm(f"does {name} show this fingerprint?"):
        raise ValueError("not signed; copy the request anew from the board")


@certs_app.command()
def revoke(
    names: Annotated[list[str], typer.Argument(help="Names: node-0, ..., or operator-NAME.")],
    folder: Folder = Path("certs"),
) -> None:
    """Mark members or operators as revoked.

    Then copy members.json to the nodes, which read it again.
    """
    from folkman.runtime.identity import number_of
    from folkman.runtime.identity import revoke as mark
    from folkman.runtime.operators import revoke_operator

    for name in names:
        if name.startswith("operator-"):
            revoke_operator(folder, name.removeprefix("operator-"))
        else:
            mark(folder, number_of(name))
        print(f"{name} revoked in {folder / 'members.json'}")


@certs_app.command()
def show(
    folder: Folder = Path("certs"),
    as_json: AsJson = False,
) -> None:
    """List the members and operators and how they stand."""
    from folkman.runtime.identity import read_list, standings

    listed = read_list(folder / "members.json", folder / "ca.crt")
    members, operators = standings(listed.members), standings(listed.operators)
    if as_json:
        print_json({"members": members, "operators": operators})
        return
    for row in members:
        head = f"{row['name']:<10} {row['state']:<8} until {row['not_after']}"
        print(f"{head}  key {row['key'][:16]}...")
    for row in operators:
        print(f"operator-{row['name']:<10} {row['state']:<8} until {row['not_after']}")


def _check_days(days: float) -> None:
    """Refuse what would be expired when it is made, or beyond what a certificate can say."""
    if not 0 < days <= MOST_DAYS:
        raise ValueError(f"--days must lie in 0 .. {MOST_DAYS}, got {days:g}; 90 is usual")
