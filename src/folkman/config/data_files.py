"""Where the user's own files of data are: beside the configuration that names them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from folkman.checks import notice

__all__ = ["with_data_files"]

KEYS = ("path", "folder")
"""Keys of [data] that name a file or a folder of the user's own."""


def with_data_files(value: Any, here: Path, key: str = "", *, warn: bool = True) -> Any:
    """Return tables with the files of their [data] by absolute paths, looked up from `here`.

    Earlier versions looked from the working directory alone. What is there and not here stays as it
    is written; with `warn` a notice says so.
    """
    if isinstance(value, Mapping):
        within = f"{key}." if key == "data" else ""
        return {
            name: with_data_files(item, here, f"{within}{name}", warn=warn)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [with_data_files(item, here, key, warn=warn) for item in value]
    named = key in {f"data.{each}" for each in KEYS} and isinstance(value, str) and value
    return _found(value, here, warn=warn) if named else value


def _found(value: str, here: Path, *, warn: bool) -> str:
    """Return one file by its absolute path, or as it is written where only that one is there."""
    path = Path(value).expanduser()
    beside = (here / path).resolve()
    if beside.exists() or not path.exists():
        return str(beside)
    if warn:
        notice(
            f"there is no {beside}, so {path.resolve()} is read; a path in a configuration is "
            "looked up beside its file: correct it there, or give it as --set data.path=..."
        )
    return value
