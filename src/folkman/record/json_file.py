"""JSON files of folders: one reader, one writer, one format, one clock for their times."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from folkman.files import write_whole

__all__ = ["FORMAT", "dated", "now", "parsed", "read_json", "write_json", "write_text"]

FORMAT = 1
"""Of the JSON files of run folders, sweeps and stores; a later folkman writes a larger one."""


def dated(name: str) -> str:
    """Return the name of a new folder: the local time, and what it holds."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{name.replace(' ', '-')}"


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: Any, indent: int | None = 1) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(content, indent=indent, allow_nan=False) + "\n")


def parsed(text: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object of a text; None if there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_json(path: Path) -> dict[str, Any] | None:
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
