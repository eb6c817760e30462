"""Nothing is written half: a file appears by rename, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["write_whole"]


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
