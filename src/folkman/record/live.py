"""Live files: what a run writes while it goes on, and how it is followed.

    live/RUN.jsonl     first label, seed, slots and process, then a line per recorded slot
    live/RUN.json      the scene of this moment, replaced as the run goes on

At most fifty lines are written per second and at most `MOST_LINES` kept (every second one is then
dropped); looking at a scene takes at most a twentieth of the run's time. Both files are gone when
the run has ended.
"""

import json
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from folkman.record.json_file import Json, parsed, write_text
from folkman.record.run import RUNNING, Run, known
from folkman.record.scene import Scene, frame_json, plain

__all__ = ["LiveFiles", "LiveWriter", "News", "Tail", "read_live"]

LEAST_GAP_S = 0.02
MOST_LINES = 20_000
SCENE_GAP_S = 0.1
SCENE_COST = 20.0
"""A live scene waits for this many times as long as the last one took."""
MOST_BYTES = 4_000_000
"""Read at once: a page that is late catches up in pieces."""
FRESH_S = 60.0
"""A live file of another machine that is older than this is of a run that stopped."""


class LiveFiles(NamedTuple):
    """Where a run writes while it goes on."""

    lines: Path
    moment: Path


class LiveWriter:
    """The writer of one run's live files: `begin`, `add` each row, `show` the network, `end`."""

    def __init__(self, files: LiveFiles, run: Run, slots: int, nodes: int) -> None:
        self._files, self._run = files, run
        self._head = run.head | {"slots": slots, "nodes": nodes}
        self._head |= {"pid": os.getpid(), "host": socket.gethostname()}
        self._written = 0
        self._next_line_s = self._next_scene_s = 0.0

    def begin(self) -> None:
        """Write the rows that the run has; lines of later slots are dropped."""
        self._files.lines.parent.mkdir(exist_ok=True)
        self._rewrite(1)

    def add(self, *, last: bool) -> None:
        """Write the last of the run's rows, unless another was written just before it."""
        now_s = time.monotonic()
        if now_s < self._next_line_s and not last:
            return
        self._next_line_s = now_s + LEAST_GAP_S
        if self._written >= MOST_LINES:
            self._rewrite(2 * math.ceil(len(self._run.rows) / MOST_LINES))
            return
        with self._files.lines.open("a", encoding="utf-8") as file:
            file.write(_line({"at": time.time(), "row": self._run.rows[-1]}))
        self._written += 1

    def show(self, look: Callable[[], Scene]) -> None:
        """Replace the scene of this moment by what `look` returns, if it is time for it."""
        begun_s = time.monotonic()
        if begun_s < self._next_scene_s:
            return
        write_text(self._files.moment, _line({"at": time.time(), **frame_json(look(), -1)}))
        took_s = time.monotonic() - begun_s
        self._next_scene_s = begun_s + took_s + max(SCENE_GAP_S, SCENE_COST * took_s)

    def end(self) -> None:
        """Take the live files away."""
        for path in self._files:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another run of the folder goes on
            self._files.lines.parent.rmdir()

    def _rewrite(self, step: int) -> None:
        """Write the head and every `step`-th row, by rename: who follows the file starts again."""
        rows, now_s = self._run.rows[::step], time.time()
        lines = [_line({"at": now_s, **self._head})]
        lines += [_line({"at": now_s, "row": row}) for row in rows]
        write_text(self._files.lines, "".join(lines))
        self._written = len(rows)


def _line(content: Json) -> str:
    exact = plain(content) | {"at": content["at"]}
    return json.dumps(exact, allow_nan=False, separators=(",", ":")) + "\n"


class News(NamedTuple):
    """What has come since the last look."""

    again: bool  # the file is another one, or was cut: forget what was read before
    head: Json  # of the run: label, seed, slots, pid, host
    rows: list[dict[str, float]]  # the columns that this version knows
    at: float | None  # when the last of the rows was written
    lines: list[Json]  # everything, also what is no row


class Tail:
    """A reader that remembers where it stands in a file that grows, is replaced, or goes away."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._offset, self._rest = 0, b""
        self.head: Json = {}

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
        found = [content for line in lines if (content := parsed(line)) is not None]
        self.head = next((content for content in found if "row" not in content), self.head)
        rows = [content for content in found if isinstance(content.get("row"), dict)]
        at = rows[-1].get("at") if rows else None
        return News(again, self.head, [known(content["row"]) for content in rows], at, found)

    def is_written(self) -> bool:
        """Tell whether the writer is there; of one on another machine, whether it wrote lately."""
        try:
            age_s = time.time() - self.path.stat().st_mtime
        except OSError:
            return False
        pid = self.head.get("pid")
        if self.head.get("host") != socket.gethostname() or not isinstance(pid, int):
            return age_s < FRESH_S
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # it is there and another user's
            return True
        return True


def read_live(files: LiveFiles, run: Run) -> None:
    """Fill a run with what its live file says, if that is further than the rows it has."""
    tail, rows = Tail(files.lines), []
    while news := tail.look():  # one look reads a few megabytes
        run.status = RUNNING
        rows = news.rows if news.again else rows + news.rows
    if rows and (not run.rows or rows[-1]["slots"] >= run.rows[-1]["slots"]):
        run.rows = rows
