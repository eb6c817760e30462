"""What the live page knows of a sweep folder: its jobs, and a small curve of each."""

import fcntl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from folkman.dash.run import columns, thinned
from folkman.record.live import Tail, read_json
from folkman.record.reading import check_sweep, known, read_part
from folkman.record.run import METRICS, Run, slug

__all__ = ["SweepSource"]

CURVES = ("train_loss", "test_accuracy", "consensus", "mean_age")
MOST_POINTS = 60
CHECK_S = 0.5
MOST_READ = 20
"""Jobs whose curves are read at one look: a large store is read in pieces."""


class Job:
    """One job of the index and its curve."""

    def __init__(self, root: Path, entry: dict[str, Any]) -> None:
        self.entry = entry
        self.folder = root / str(entry.get("folder"))
        self.run = Run(str(entry.get("algorithm")), str(entry.get("label")), int(entry.get("seed", 0)))
        self.tail = Tail(self.folder / "live" / f"{slug(self.run.label, self.run.seed)}.jsonl")
        self.read_as = ""  # the state under which its rows were read

    def look(self) -> bool:
        """Read new rows; tell whether there are any."""
        state = str(self.entry.get("state"))
        if state in ("finished", "diverged") and self.read_as != state:
            self._keep(read_part(self.folder, self.run.algorithm, self.run.label, self.run.seed).rows)
            self.read_as = state
            return True
        if state == "running" and (news := self.tail.look()):
            rows = [known(each["row"]) for each in news.rows]
            self.run.rows = rows if news.again else self.run.rows + rows
            return True
        return False

    def _keep(self, rows: list[dict[str, float]]) -> None:
        """Keep what the page shows of a job that has ended: a small curve."""
        self.run.rows = thinned([{n: row[n] for n in ("slots", *CURVES) if n in row} for row in rows], MOST_POINTS)[0]

    def told(self) -> dict[str, Any]:
        """Return everything of this job."""
        kept = ("key", "arm", "label", "seed", "settings", "state", "message", "seconds", "rss_mb", "worker")
        rows = [{name: row[name] for name in ("slots", *CURVES) if name in row} for row in self.run.rows]
        head = {name: self.entry.get(name) for name in kept}
        return head | {"columns": columns(thinned(rows, MOST_POINTS)[0])}


class SweepSource:
    """The source of a sweep folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs: dict[str, Job] = {}
        self.index: dict[str, Any] = {}
        self._next_check_s = 0.0
        check_sweep(root, read_json(root / "index.json"))
        self._renew()

    def _renew(self) -> list[Job]:
        """Read the index; return the jobs that changed."""
        index = read_json(self.root / "index.json")
        changed = []
        for entry in index.get("jobs", []):
            job = self.jobs.get(entry["key"])
            if job is None or job.entry != entry:
                job = self.jobs.setdefault(entry["key"], Job(self.root, entry))
                job.entry = entry
                changed.append(job)
        self.index = index or self.index
        return changed

    def _head(self) -> dict[str, Any]:
        kept = ("name", "state", "axes", "started", "updated", "engine", "workers")
        head = {name: self.index.get(name) for name in kept} | {"kind": "sweep", "folder": self.root.name}
        if head["state"] == "running" and not _is_swept(self.root):
            head["state"] = "stopped"
        return head

    def state(self) -> dict[str, Any]:
        """Return everything."""
        metrics = {name: METRICS[name] for name in CURVES}
        return self._head() | {"metrics": metrics, "jobs": [job.told() for job in self.jobs.values()]}

    def poll(self) -> dict[str, Any] | None:
        """Return what is new, twice a second."""
        if time.monotonic() < self._next_check_s:
            return None
        self._next_check_s = time.monotonic() + CHECK_S
        before = {key: value for key, value in self.index.items() if key != "jobs"}
        changed = {id(job): job for job in self._renew()}
        read = 0
        for job in self.jobs.values():
            if read < MOST_READ and job.look():
                changed[id(job)] = job
                read += 1
        after = {key: value for key, value in self.index.items() if key != "jobs"}
        if not changed and before == after:
            return None
        return self._head() | {"jobs": [job.told() for job in changed.values()]}


def _is_swept(root: Path) -> bool:
    """Tell whether a process holds the sweep's lock; where that cannot be told, take its index at its word."""
    with suppress(OSError), (root / "sweep.lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    return True
