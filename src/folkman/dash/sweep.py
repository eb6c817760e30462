"""What the live page knows of a sweep folder: its jobs, and a small curve of each."""

import time
from pathlib import Path

from folkman.dash.run import columns, thinned
from folkman.record.json_file import Json, read_json
from folkman.record.live import Tail
from folkman.record.run import ENDED, METRICS, RUNNING, STOPPED, Run
from folkman.record.store import SweepFolder
from folkman.record.sweep import is_held, job_folder
from folkman.record.terms import TERM_OF, TERMS

__all__ = ["SweepSource"]

CURVES = ("train_loss", "test_accuracy", "consensus", "mean_age")
MOST_POINTS = 60
CHECK_S = 0.5
MOST_READ = 20
"""Jobs whose curves are read at one look: a large store is read in pieces."""


class WatchedJob:
    """One job of the index and its curve."""

    def __init__(self, folder: SweepFolder, entry: Json) -> None:
        self.entry = entry
        self.folder = job_folder(folder, entry)
        self.run = Run(
            str(entry.get("algorithm")), str(entry.get("label")), int(entry.get("seed", 0))
        )
        self.tail = Tail(self.folder.live(self.run).lines)
        self.read_as = ""  # the state under which its rows were read

    def look(self) -> bool:
        """Read new rows; tell whether there are any."""
        state = str(self.entry.get("state"))
        if state in ENDED and self.read_as != state:
            self._keep(self.folder.read_run(self.run.algorithm, self.run.label, self.run.seed).rows)
            self.read_as = state
            return True
        if state == RUNNING and (news := self.tail.look()):
            self.run.rows = news.rows if news.again else self.run.rows + news.rows
            return True
        return False

    def _keep(self, rows: list[dict[str, float]]) -> None:
        """Keep what the page shows of a job that has ended: a small curve."""
        self.run.rows = thinned(_shown(rows), MOST_POINTS)[0]

    def told(self) -> Json:
        """Return everything of this job."""
        kept = ("key", "arm", "label", "seed", "settings", "state", "message", "verdict", "reason")
        kept += ("seconds", "rss_mb", "worker")
        rows = thinned(_shown(self.run.rows), MOST_POINTS)[0]
        head = {name: self.entry.get(name) for name in kept}
        return head | {"columns": columns(rows)}


def _shown(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the columns that the page shows of a job."""
    return [{name: row[name] for name in ("slots", *CURVES) if name in row} for row in rows]


class SweepSource:
    """The source of a sweep folder."""

    def __init__(self, root: Path) -> None:
        self.folder = SweepFolder(root)
        self.jobs: dict[str, WatchedJob] = {}
        self.index: Json = {}
        self._next_check_s = 0.0
        self._renew()

    def _renew(self) -> list[WatchedJob]:
        """Read the index; return the jobs that changed."""
        index = read_json(self.folder.index) or {}
        changed = []
        for entry in index.get("jobs", []):
            job = self.jobs.get(entry["key"])
            if job is None or job.entry != entry:
                job = self.jobs.setdefault(entry["key"], WatchedJob(self.folder, entry))
                job.entry = entry
                changed.append(job)
        self.index = index or self.index
        return changed

    def _head(self) -> Json:
        kept = ("name", "state", "axes", "started", "updated", "engine", "workers")
        head = {name: self.index.get(name) for name in kept}
        head |= {"kind": "sweep", "folder": self.folder.root.name}
        if head["state"] == RUNNING and not is_held(self.folder):
            head["state"] = STOPPED
        return head

    def standing(self) -> Json:
        """Return how the sweep stands, without news of jobs."""
        return self._head() | {"jobs": []}

    def state(self) -> Json:
        """Return everything."""
        metrics = {name: METRICS[name] for name in CURVES}
        jobs = [job.told() for job in self.jobs.values()]
        return self._head() | {"metrics": metrics, "jobs": jobs, "terms": TERMS, "term_of": TERM_OF}

    def poll(self) -> Json | None:
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
