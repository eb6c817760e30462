"""The command line of a new project: `folkman init`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.joined import OWN_TABLES, joined

__all__ = ["KINDS", "SCHEMA_FILE", "init", "project_files"]

TEMPLATES = Path(__file__).with_name("templates")
KINDS = ("own_algorithm", "own_data", "own_model", "own_network", "paper", "devices")
"""The projects that can be begun, besides the plain one; a folder of templates each."""
HIDDEN = {"gitignore": ".gitignore"}
"""Files that are not hidden in the package."""
SCHEMA_FILE = "folkman.schema.json"
"""What `#:schema` in the first line of a configuration names."""


def _named(text: str | Path) -> Path:
    """Return the folder that is named; an empty name, as of an unset variable, names none."""
    if text == "":
        raise typer.BadParameter("expected a folder, got an empty name; leave it out to write here")
    return Path(text)


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", parser=_named, help="Where to write; default the working directory."
        ),
    ] = Path(),
    own_algorithm: Annotated[
        bool, typer.Option("--own-algorithm", help="With a method of your own.")
    ] = False,
    own_data: Annotated[bool, typer.Option("--own-data", help="With data of your own.")] = False,
    own_model: Annotated[
        bool, typer.Option("--own-model", help="With a model of your own, in JAX.")
    ] = False,
    own_network: Annotated[
        bool, typer.Option("--own-network", help="With a radio of your own.")
    ] = False,
    paper: Annotated[bool, typer.Option("--paper", help="Figures and claims of a paper.")] = False,
    devices: Annotated[bool, typer.Option("--devices", help="Nodes that are processes.")] = False,
) -> None:
    """Write a small project that runs: a commented configuration, own code, a README.

    Several of one's own go together: --own-algorithm --own-data. Nothing is ever written over.
    """
    asked = (own_algorithm, own_data, own_model, own_network, paper, devices)
    kinds = [kind for kind, wanted in zip(KINDS, asked, strict=True) if wanted]
    alone = [kind for kind in kinds if kind not in OWN_TABLES]
    if len(kinds) > 1 and alone:
        asked_for = " and ".join(_option(kind) for kind in kinds)
        raise ValueError(
            f"a project with {_option(alone[0])} is of one kind, got {asked_for}; choose one: only "
            f"{', '.join(map(_option, OWN_TABLES))} go together"
        )
    projects = {kind: project_files(kind) for kind in kinds or ["plain"]}
    files = joined(projects) if len(projects) > 1 else projects[kinds[0] if kinds else "plain"]
    _refuse_files_in_the_way(folder, files)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with (folder / name).open("x", encoding="utf-8") as file:  # x: never over another
            file.write(text)
        print(folder / name)
    where = "" if folder == Path() else f"cd {folder}; "
    print(f"next: {where}{_first_command(files)}")


def _option(kind: str) -> str:
    return f"--{kind.replace('_', '-')}"


def project_files(kind: str) -> dict[str, str]:
    """Return the files of a project by name."""
    from folkman.cli.schema import schema_of

    found = {}
    for path in sorted((TEMPLATES / kind).iterdir()) + sorted((TEMPLATES / "common").iterdir()):
        if path.is_file():
            found[HIDDEN.get(path.name, path.name)] = path.read_text(encoding="utf-8")
    if any(text.startswith(f"#:schema ./{SCHEMA_FILE}") for text in found.values()):
        found[SCHEMA_FILE] = json.dumps(schema_of("run"), allow_nan=False) + "\n"
    return found


def _refuse_files_in_the_way(folder: Path, files: dict[str, str]) -> None:
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"expected a folder, {folder} is a file; choose another DIR")
    there = [name for name in files if (folder / name).exists()]
    if there:
        raise FileExistsError(
            f"expected none of a project's files in {folder}, there are {', '.join(there)}; "
            "choose another DIR: folkman init DIR"
        )


def _first_command(files: dict[str, str]) -> str:
    """Return the first command of the project's README."""
    block = files["README.md"].partition("```sh\n")[2]
    return block.partition("\n")[0].partition("  #")[0].strip()
