"""The newest lines of a node's log, kept in memory for operators, whoever reads the log itself."""

import json
import secrets
import threading
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from folkman.record.json_file import parsed
from folkman.runtime.fleet.words import LEVELS, MOST_LINES, MOST_LINES_BYTES, Lines

__all__ = ["KeptLines", "in_order", "seconds_of"]

MOST_KEPT_BYTES = 1 << 20
FROM_FILE_BYTES = 1 << 18
"""Of the end of the log file of earlier lives."""


class _Line(NamedTuple):
    number: int
    time_s: float
    level: int
    text: str


class KeptLines:
    """Lines by numbers that grow; beyond a megabyte the oldest go. Any thread may add one."""

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes, self._bytes, self._next = most_bytes, 0, 1
        self.life = secrets.token_hex(16)  # numbers of lines are of one life of the node
        self._lines: deque[_Line] = deque()
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Keep a line that is a JSON object with `time` and `level`; others are not of the log."""
        found = parsed(text)
        if found is None:
            return
        level = found.get("level")
        rank = LEVELS.index(level) if level in LEVELS else LEVELS.index("info")
        with self._lock:
            self._lines.append(_Line(self._next, seconds_of(found.get("time")), rank, text))
            self._next += 1
            self._bytes += len(text)
            while self._bytes > self._most_bytes:
                self._bytes -= len(self._lines.popleft().text)

    def add_file(self, path: Path) -> None:
        """Keep the end of a log file: what was logged in earlier lives."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - FROM_FILE_BYTES))
                tail = file.read(FROM_FILE_BYTES)
        except OSError:
            return
        lines = tail.decode(errors="replace").splitlines()
        for line in lines[1:] if size > FROM_FILE_BYTES else lines:  # the first may be a part
            self.add(line)

    def since(self, after: int, since_s: float, level: str) -> Lines:
        """Return lines with numbers above `after`, of a time or later, of a level or above."""
        rank, found, size = LEVELS.index(level), [], 0
        with self._lock:
            first = self._lines[0].number if self._lines else self._next
            last = self._next - 1
            for line in self._lines:
                if line.number <= after or line.time_s < since_s or line.level < rank:
                    continue
                if len(found) == MOST_LINES or size + len(line.text) > MOST_LINES_BYTES:
                    last = line.number - 1
                    break
                found.append(line.text)
                size += len(line.text)
        return Lines(self.life, found, last, max(0, first - 1 - after))


def seconds_of(stamp: object) -> float:
    """Return a time of the log in seconds since 1970; 0 of what is none."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


def in_order(lines: list[tuple[str, str]]) -> list[str]:
    """Return lines of several nodes by their times, each written anew as plain JSON.

    `lines` are pairs of a node's name and a line. The name is the one that the operator dialled,
    whatever the line says, and signs that a terminal would obey are written as escapes.
    """
    rows = []
    for name, line in lines:
        found = parsed(line)
        if found is not None:
            rows.append((seconds_of(found.get("time")), name, found | {"node": name}))
    rows.sort(key=lambda row: row[:2])
    return [json.dumps(found) for _, _, found in rows]
