"""What the live page knows of a run folder, finished or not, killed and resumed as it may be."""

import time
from math import isfinite
from pathlib import Path

from folkman.record.folder import RunFolder
from folkman.record.json_file import Json, read_json
from folkman.record.live import Tail
from folkman.record.run import AXES, COLUMNS, ENDED, METRICS, RUNNING, STOPPED, Run, slug
from folkman.record.scene import frame_json
from folkman.record.terms import TERM_OF, TERMS
from folkman.record.verdict import remarks

__all__ = ["RunSource"]

MOST_VALUES = 300_000
"""Numbers that a visitor is told at once."""
MOST_POINTS, LEAST_POINTS = 1500, 50
MOST_KEPT = 20_000
"""Rows of one run that the page's server remembers; of more, every second is let go."""
CHECK_S = 1.0
"""Seconds between two looks at files that change rarely: parts, and whether the process still
lives."""


class Watched:
    """One run and the files that tell of it."""

    def __init__(self, folder: RunFolder, run: Run) -> None:
        self.folder, self.run, self.name = folder, run, slug(run.label, run.seed)
        lines, self.moment = folder.live(run)
        self.tail, self.part = Tail(lines), folder.part(run)
        self.part_seen = _stamp(self.part)
        self.moment_seen: tuple[int, int, int] | None = None
        self.step = 1  # rows of the run for each one kept here
        self.scene: Json | None = None

    def poll(self, *, thorough: bool) -> Json | None:
        """Return what is new of this run."""
        found: Json = {}
        if thorough and self._ended_now():
            return self.told() | {"again": True, "ended": True}
        live = _stamp(self.tail.path)
        if self.run.status in ENDED and (
            live is None or (self.part_seen and live[1] <= self.part_seen[1])
        ):
            return None  # what is left of a live file that is older than the end
        if news := self.tail.look():
            if news.again:
                self.run.rows, self.step = [], 1
            self.run.rows.extend(news.rows)
            while len(self.run.rows) > MOST_KEPT:
                self.run.rows, self.step = self.run.rows[::2], 2 * self.step
            self.run.status = RUNNING
            kept, step = thinned(news.rows, MOST_POINTS)
            found = {"again": news.again, "columns": columns(kept), "step": step, "at": news.at}
        if thorough and self.run.status in (RUNNING, STOPPED):
            status = RUNNING if self.tail.is_written() else STOPPED
            found |= {"status": status} if status != self.run.status else {}
            self.run.status = status
        if (stamp := _stamp(self.moment)) is not None and stamp != self.moment_seen:
            self.moment_seen, self.scene = stamp, read_json(self.moment)
            found["scene"] = self.scene
        if not found:
            return None
        return {"id": self.name, "status": self.run.status, "done": self._done(), **found}

    def _ended_now(self) -> bool:
        """Look at the part; tell whether the run has ended since the last look."""
        stamp = _stamp(self.part)
        if stamp is None or stamp == self.part_seen:
            return False
        self.part_seen = stamp
        fresh = self.folder.read_run(self.run.algorithm, self.run.label, self.run.seed)
        if fresh.status not in ENDED or (
            fresh.status == self.run.status and len(fresh.rows) == len(self.run.rows)
        ):
            return False
        self.run = fresh
        return True

    def _done(self) -> float:
        return self.run.last("slots") if self.run.rows else 0

    def told(self, most: int = MOST_POINTS) -> Json:
        """Return everything of this run, at most `most` rows."""
        run = self.run
        head = {"id": self.name, "label": run.label, "algorithm": run.algorithm, "seed": run.seed}
        head |= {"status": run.status, "message": run.message, "done": self._done()}
        head |= {"verdict": run.verdict, "reason": run.reason}
        kept, step = thinned(run.rows, most)
        drawn = {"columns": columns(kept), "step": step * self.step}
        return head | drawn | {"scene": self.scene, "keeps": run.scene is not None}


class RunSource:
    """The source of a run folder."""

    def __init__(self, root: Path) -> None:
        self.folder = RunFolder.open(root)
        contents = self.folder.read()
        self.config = contents.config
        self.runs = [Watched(self.folder, run) for run in contents.runs]
        self._next_check_s = 0.0
        self.poll()

    def state(self) -> Json:
        """Return everything."""
        most = MOST_VALUES // max(1, len(self.runs) * len(COLUMNS))
        most = max(LEAST_POINTS, min(MOST_POINTS, most))
        return {
            "kind": "run",
            "name": self.config.get("name", self.folder.root.name),
            "folder": self.folder.root.name,
            "nodes": self.config.get("nodes"),
            "slots": self.config.get("slots"),
            "axes": AXES,
            "metrics": METRICS,
            "terms": TERMS,
            "term_of": TERM_OF,
            "runs": [
                watched.told(most) | {"slots": self.config.get("slots")} for watched in self.runs
            ],
            "swings": self.swings(),
        }

    def poll(self) -> Json | None:
        """Return what is new."""
        thorough = time.monotonic() >= self._next_check_s
        if thorough:
            self._next_check_s = time.monotonic() + CHECK_S
        found = [
            news for watched in self.runs if (news := watched.poll(thorough=thorough)) is not None
        ]
        if not found:
            return None
        ended = any("ended" in news for news in found)
        return {"runs": found, **({"swings": self.swings()} if ended else {})}

    def swings(self) -> list[str]:
        """Return what terminal and report say of runs that ended and have no bad verdict."""
        return remarks([watched.run for watched in self.runs])

    def scene(self, name: str) -> Json | None:
        """Return the scene that a run has kept, all frames."""
        run = next((watched.run for watched in self.runs if watched.name == name), None)
        scene = None if run is None else self.folder.load_scene(run)
        if scene is None:
            return None
        return {"frames": [frame_json(scene, index) for index in range(len(scene.slot))]}


def columns(rows: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """Return rows as columns for JSON, without those that no row defines."""
    names = [name for name in COLUMNS if any(isfinite(row.get(name, float("nan"))) for row in rows)]
    return {name: [_number(row.get(name)) for row in rows] for name in names}


def _number(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.6g}")


def thinned(rows: list[dict[str, float]], most: int) -> tuple[list[dict[str, float]], int]:
    """Return at most `most` rows, every step-th and the last, and the step."""
    if len(rows) <= most:
        return rows, 1
    step = -(-len(rows) // (most - 1))
    return [*rows[:-1:step], rows[-1]], step


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
