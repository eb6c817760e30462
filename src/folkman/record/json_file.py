"""JSON files of folders: one reader, one writer, one format, one clock for their times."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from folkman.files import write_whole

__all__ = ["FORMAT", "Json", "Table", "dated", "now", "parsed", "read_json", "write_json"]
__all__ += ["quoted", "read_text", "write_text"]

Json: TypeAlias = dict[str, Any]
"""An object of JSON, or a table of TOML: what it holds is known when it has been read."""
Table: TypeAlias = Mapping[str, Any]
"""The same, to be read only."""

FORMAT = 1
"""Of the JSON files of run folders, sweeps and stores; a later folkman writes a larger one."""


def dated(name: str) -> str:
    """Return the name of a new folder: the local time, and what it holds."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{name.replace(' ', '-')}"


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_text(path: Path) -> str:
    """Read a text file; refuse one that is no text any more."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in {path}, it is damaged (byte {error.start}); restore the file"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: object, indent: int | None = 1) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")


def parsed(text: str | bytes) -> Json | None:
    """Return the JSON object of a text; None if there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_json(path: Path) -> Json | None:
    """Read a JSON object; None if there is none or it is damaged. Refuse one of a later format."""
    try:
        found = parsed(path.read_bytes())
    except FileNotFoundError:
        return None
    version = FORMAT if found is None else found.get("format", FORMAT)
    if not isinstance(version, int) or version > FORMAT:
        versions = (found or {}).get("versions") or {}
        writer = f"folkman {versions['folkman']}" if versions.get("folkman") else "a later one"
        raise ValueError(
            f"{path} has format {version!r}, this folkman reads up to {FORMAT}; "
            f"it was written by {writer}: upgrade folkman to read it"
        )
    return found


def quoted(text: str) -> str:
    """Return text as TOML writes it: as JSON does, but for one sign."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
