"""Nothing is written half: a file appears by rename, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["save_tensors", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` make a file beside `path`, then rename it into place; on any error nothing is left behind.

    The file beside it keeps the suffix, for writers that choose the format by it.
    """
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: dict[str, Any], notes: dict[str, str] | None = None) -> None:
    """Write arrays as safetensors, whole or not at all; a disk that refuses is an OSError."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        write_whole(path, lambda part: save_file(tensors, part, metadata=notes))
    except SafetensorError as error:
        raise OSError(f"could not write {path}: {error}") from error
