"""Following what a run writes while it goes on: `live/RUN.jsonl`, line by line, wherever it starts again."""

import json
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["News", "Tail", "read_json"]

MOST_BYTES = 4_000_000
"""Read at once: a page that is late catches up in pieces."""


class News(NamedTuple):
    """What has come since the last look."""

    again: bool  # the file is another one, or was cut: forget what was read before
    head: dict[str, Any]  # of the run: label, seed, slots, pid, host
    rows: list[dict[str, Any]]  # each with `at`, the time it was written, and `row`
    lines: list[dict[str, Any]]  # everything, also what is no row


class Tail:
    """A reader that remembers where it stands in a file that grows, is replaced, or goes away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._offset, self._rest = 0, b""
        self.head: dict[str, Any] = {}

    def look(self) -> News | None:
        """Return what is new; None if nothing is, or there is no file."""
        try:
            facts = self.path.stat()
            identity = (facts.st_dev, facts.st_ino)
            again = identity != self._file or facts.st_size < self._offset
            if not again and facts.st_size == self._offset:
                return None
            with self.path.open("rb") as file:
                file.seek(0 if again else self._offset)
                data = file.read(MOST_BYTES)
        except OSError:
            self._file = None
            return None
        if again:
            self._file, self._offset, self._rest, self.head = identity, 0, b"", {}
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [content for line in lines if (content := _parsed(line)) is not None]
        self.head = next((content for content in found if "row" not in content), self.head)
        return News(again, self.head, [content for content in found if isinstance(content.get("row"), dict)], found)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that may not be there or may be damaged: both are an empty one."""
    try:
        return _parsed(path.read_bytes()) or {}
    except OSError:
        return {}
