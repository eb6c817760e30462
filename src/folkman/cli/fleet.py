"""The command line of a fleet: `folkman fleet status`, `logs`, `stop`, `collect`.

One operator's certificate opens the doors of all nodes; see `folkman certs operator`.
"""

import asyncio
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from folkman.cli.common import FAILED, AsJson, print_json, say, stream

if TYPE_CHECKING:
    from folkman.record.json_file import Json
    from folkman.runtime.entrance import Address
    from folkman.runtime.operators import OperatorFiles

__all__ = ["fleet_app"]

fleet_app = typer.Typer(
    no_args_is_help=True,
    help="Look at the nodes of a fleet, stop them, and fetch their results, over mutual TLS.",
)

File = Annotated[
    Path | None,
    typer.Option("--fleet", help="The fleet's file; default fleet.toml, if it is there."),
]
Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node", help="A node of the file, or NAME=HOST:PORT. May be repeated; default all."
    ),
]
Certs = Annotated[
    Path | None, typer.Option(help="Folder of the operator's key; default as the file says.")
]
As = Annotated[str | None, typer.Option("--as", help="Name of the operator.")]
Patience = Annotated[float, typer.Option("--timeout-s", help="How long a node may take, seconds.")]


@fleet_app.command()
def status(
    file: File = None,
    node: Nodes = None,
    certs: Certs = None,
    operator: As = None,
    patience_s: Patience = 5.0,
    watch: Annotated[bool, typer.Option("--watch", help="Look again until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option(help="Between two looks, seconds.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Tell how all nodes stand.

    The exit code is 0 if all are well, else 5.
    """
    if every_s < 0.1:
        raise ValueError(f"--every-s must be at least 0.1, got {every_s:g}; 2 is the default")
    nodes, files = _chosen(file, node, certs, operator, patience_s)
    from folkman.runtime.fleet.look import standings

    while True:
        rows = standings(nodes, files, patience_s)
        _show(rows, as_json=as_json, clear=watch and sys.stdout.isatty())
        if not watch:
            break
        try:
            time.sleep(every_s)
        except KeyboardInterrupt:
            break
    if not all(row["well"] for row in rows):
        raise typer.Exit(FAILED)


def _show(rows: "list[Json]", *, as_json: bool, clear: bool) -> None:
    """Print the nodes as a table, or as a line of JSON."""
    from folkman.runtime.fleet.look import COLUMNS, cells

    if as_json:
        print_json({"nodes": rows, "well": sum(row["well"] for row in rows)})
        sys.stdout.flush()
        return
    told = [cells(row) for row in rows]
    used = [name for name in COLUMNS if name == "node" or any(row.get(name) for row in told)]
    width = {name: max(len(name), *(len(row.get(name, "")) for row in told)) for name in used}
    if clear:
        print("\033[H\033[2J", end="")
    for row in [dict(zip(COLUMNS, COLUMNS, strict=True)), *told]:
        print("  ".join(f"{row.get(name, ''):<{width[name]}}" for name in used).rstrip())
    print(f"{sum(row['well'] for row in rows)} of {len(rows)} nodes are well", flush=True)


@fleet_app.command()
def logs(
    file: File = None,
    node: Nodes = None,
    certs: Certs = None,
    operator: As = None,
    patience_s: Patience = 5.0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    since: Annotated[
        str | None, typer.Option(help="A time, 2026-01-31T12:00, or an age: 90s, 10m, 2h, 1d.")
    ] = None,
    level: Annotated[
        str, typer.Option(help="Least level: debug, info, warning or error.")
    ] = "debug",
) -> None:
    """Print the logs of all nodes as JSON lines, merged by time."""
    from folkman.checks import one_of

    one_of("level", level, ("debug", "info", "warning", "error"))
    since_s = 0.0 if since is None else _since(since, time.time())
    nodes, files = _chosen(file, node, certs, operator, patience_s)
    from folkman.runtime.fleet.look import followed
    from folkman.runtime.fleet.look import logs as fetch

    chosen: Any = level
    if follow:
        try:
            asyncio.run(_print_all(followed(nodes, files, patience_s, since_s, chosen)))
        except KeyboardInterrupt:
            return
    lines, found = asyncio.run(fetch(nodes, files, patience_s, since_s, chosen))
    for line in lines:
        print(line)
    for each in found:
        if each.found is None:
            say(f"{each.node} at {each.address}: {each.why}")
        elif each.found:
            say(f"{each.node}: {each.found} older lines are kept no longer")
    if any(each.found is None for each in found):
        raise typer.Exit(FAILED)


async def _print_all(batches: Any) -> None:
    async for lines in batches:
        print("\n".join(lines), flush=True)


def _since(text: str, now_s: float) -> float:
    """Return a time, or an age before now, in seconds since 1970."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if text[-1:] in units and text[:-1].replace(".", "", 1).isdigit():
        return now_s - float(text[:-1]) * units[text[-1]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(
            f"--since is a time, as 2026-01-31T12:00, or an age, as 10m; got '{text}'"
        ) from None


@fleet_app.command()
def stop(
    file: File = None,
    node: Nodes = None,
    certs: Certs = None,
    operator: As = None,
    patience_s: Patience = 5.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether to stop them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let nodes save and end; the exit code is 0 if all have."""
    nodes, files = _chosen(file, node, certs, operator, patience_s)
    from folkman.runtime.fleet.look import stop as end

    names = ", ".join(nodes)
    if not yes and not sys.stdin.isatty():
        raise ValueError(f"this stops {names}, and nobody is there to ask; say --yes")
    if not yes and not typer.confirm(f"stop {names}?"):
        raise ValueError("nothing was stopped")
    found = end(nodes, files, patience_s)
    for each in found:
        text = "stopped" if each.found else f"{each.why} ({each.address})"
        print(f"{each.node:<10} {text}", file=stream(quiet=as_json))
    if as_json:
        rows = [{"node": e.node, "stopped": bool(e.found), "why": e.why} for e in found]
        print_json({"nodes": rows})
    if not all(each.found for each in found):
        raise typer.Exit(FAILED)


@fleet_app.command()
def collect(
    out: Annotated[Path, typer.Option(help="The folder to make, or to bring up to date.")],
    file: File = None,
    node: Nodes = None,
    certs: Certs = None,
    operator: As = None,
    patience_s: Patience = 15.0,
    config: Annotated[
        Path | None,
        typer.Option(help="Your own configuration; needed where it names code of your own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch results and logs of all nodes into a folder.

    It is a cluster folder, with journals and states too, for replay, status and dash. Samples and
    keys stay on the boards. What broke off goes on at the next call.
    """
    nodes, files = _chosen(file, node, certs, operator, patience_s)
    from folkman.runtime.fleet.collect import collect as fetch

    found = fetch(out, nodes, files, patience_s, config)
    for each in found:
        if each.found is None:
            text = f"{each.why} ({each.address})"
        else:
            text = f"{each.found.files} files, {each.found.received_bytes / 1e3:.0f} kB received"
        print(f"{each.node:<10} {text}", file=stream(quiet=as_json))
    if as_json:
        rows = [
            {"node": e.node, "why": e.why, **(e.found._asdict() if e.found else {})} for e in found
        ]
        print_json({"folder": str(out), "nodes": rows})
    if not all(each.found for each in found):
        raise typer.Exit(FAILED)


def _chosen(
    file: Path | None,
    words: list[str] | None,
    certs: Path | None,
    operator: str | None,
    patience_s: float,
) -> "tuple[dict[str, Address], OperatorFiles]":
    """Return where the nodes are, and the operator's files."""
    from folkman.arithmetic import VARIABLE
    from folkman.checks import need
    from folkman.record.cluster import ClusterFolder

    os.environ.setdefault(VARIABLE, "numpy")  # nothing is computed; JAX takes a second to import
    need("msgspec")
    need("cryptography.x509")
    from folkman.runtime.fleet.addresses import chosen, read_fleet
    from folkman.runtime.operators import operator_in

    if not 0 < patience_s <= 3600:
        raise ValueError(f"--timeout-s must lie in 0 .. 3600, got {patience_s:g}; 5 is usual")
    usual = ClusterFolder(Path()).fleet
    path = file if file is not None else usual if usual.is_file() else None
    fleet = chosen(None if path is None else read_fleet(path), words or (), certs)
    return fleet.nodes, operator_in(fleet.certs, operator or fleet.operator)
