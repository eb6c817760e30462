"""The command line of shards: `folkman shards`."""

from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.common import AsJson, Settings, print_json, say, stream

__all__ = ["shards"]


def shards(
    config: Annotated[Path, typer.Argument(help="A TOML file as for `folkman run`.")],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    settings: Settings = None,
    label: Annotated[
        str | None, typer.Option(help="Which of the algorithms; default the first.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Which of the seeds; default the first.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Address of a board, one for each node, in their order."),
    ] = None,
    node_settings: Annotated[
        list[str] | None,
        typer.Option("--node-set", help="A key of every board's file: --node-set slot_s=0.5."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cut a data set into one file per node, as the simulator deals it, with a manifest.

    With --host, also write the boards' own files and fleet.toml.
    """
    from folkman.config.comparison import resolve
    from folkman.config.text import override, read
    from folkman.record.cluster import ClusterFolder
    from folkman.runtime.assembly import task_of
    from folkman.runtime.cut import cut

    if node_settings and not host:
        raise ValueError("--node-set goes with --host: without addresses no files are written")
    task = task_of(resolve(override(read(config), settings or [])), label, seed)
    found = cut(out, task, host or (), override({}, node_settings or []))
    for name, each in found["nodes"].items():
        held = {key: count for key, count in (each["labels"] or {}).items() if count}
        text = f"{each['samples']:>7} samples  {each['bytes'] / 1e6:8.2f} MB"
        labels = "  labels " + " ".join(f"{k}:{n}" for k, n in held.items()) if held else ""
        print(f"{name:<10} {text}{labels}", file=stream(quiet=as_json))
    say(f"in {out}; each board gets its own file alone")
    if host:
        say(f"next: folkman certs init --folder {ClusterFolder(out).certs}")
    if as_json:
        print_json({"folder": str(out), **found})
