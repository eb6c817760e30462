"""The command line for editors: `folkman schema`."""

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["KINDS", "schema", "schema_of"]

KINDS = ("run", "sweep", "node")
"""Files that have a schema."""


def schema(
    of: Annotated[
        str, typer.Option(help="Which file: run, sweep or node (node.toml of a device).")
    ] = "run",
    out: Annotated[Path | None, typer.Option(help="File to write; default: print it.")] = None,
) -> None:
    """Print the JSON schema of a configuration, for editors that check TOML files.

    Put `#:schema FILE` into the first line of a TOML file to name the schema that you wrote.
    """
    from folkman.record.json_file import write_text

    text = json.dumps(schema_of(of), indent=1, allow_nan=False)
    if out is None:
        print(text)
        return
    write_text(out, text + "\n")
    print(out)


def schema_of(kind: str) -> dict:
    """Return the schema of a kind of file."""
    from folkman.checks import one_of

    one_of("schema", kind, KINDS)
    if kind == "node":
        from folkman.config.schema import DIALECT, plain
        from folkman.runtime.assembly import NodeConfig

        head = {"$schema": DIALECT, "title": "folkman node", "description": "One device node."}
        return {**head, **plain(NodeConfig.model_json_schema())}
    from folkman.config.schema import comparison_schema

    if kind == "run":
        return comparison_schema()
    from folkman.experiment.plan import LANGUAGE

    return comparison_schema(LANGUAGE)
