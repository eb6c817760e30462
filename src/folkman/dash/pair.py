"""Two folders on one page: runs or jobs of both side by side, each with its folder's name.

A method that both folders have keeps one colour; lines of the second folder are dashed.
"""

from collections.abc import Sequence
from pathlib import Path

from folkman.dash.run import RunSource
from folkman.dash.sweep import SweepSource
from folkman.record.json_file import Json
from folkman.record.run import FAILED, RUNNING, STOPPED, WAITING
from folkman.record.table import named_in

__all__ = ["RunPair", "SweepPair"]


def _names(both: Sequence[Json]) -> Json:
    """Return the name of a page of two: their names, or their folders' where those are alike."""
    folders = " and ".join(str(each.get("folder")) for each in both)
    names = [str(each.get("name")) for each in both]
    return {"name": " and ".join(names) if len(set(names)) > 1 else folders, "folder": folders}


class RunPair:
    """The source of two run folders."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.sources = [RunSource(root) for root in roots]

    def _told(self, place: int, run: Json) -> Json:
        """Return what a source tells of a run, by a name that no run of the other has."""
        own: Json = {"id": f"{place}-{run['id']}"}
        if "label" in run:
            label = named_in(str(run["label"]), self.roots[place], self.roots)
            own |= {"label": label, "method": run["label"], "place": place}
        return run | own

    def state(self) -> Json:
        """Return everything of both."""
        both = [source.state() for source in self.sources]
        runs = [self._told(place, run) for place, state in enumerate(both) for run in state["runs"]]
        return both[0] | _names(both) | {"runs": runs, "swings": self._swings()}

    def poll(self) -> Json | None:
        """Return what is new in either."""
        found, ended = [], False
        for place, source in enumerate(self.sources):
            news = source.poll() or {}
            found += [self._told(place, run) for run in news.get("runs", [])]
            ended = ended or "swings" in news
        if not found:
            return None
        return {"runs": found, **({"swings": self._swings()} if ended else {})}

    def _swings(self) -> list[str]:
        return [
            f"{root.name}: {line}"
            for root, source in zip(self.roots, self.sources, strict=True)
            for line in source.swings()
        ]

    def scene(self, name: str) -> Json | None:
        """Return the scene of a run of either."""
        place, _, own = name.partition("-")
        known = place.isdecimal() and int(place) < len(self.sources)
        return self.sources[int(place)].scene(own) if known else None


class SweepPair:
    """The source of two sweep folders; that of a job is one of its settings."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = roots
        self.sources = [SweepSource(root) for root in roots]

    def _told(self, place: int, job: Json) -> Json:
        root = self.roots[place]
        return job | {
            "key": f"{place}-{job['key']}",
            "arm": named_in(str(job["arm"]), root, self.roots),
            "settings": {**(job.get("settings") or {}), "folder": root.name},
        }

    def _joined(self, both: Sequence[Json]) -> Json:
        states = {str(each.get("state")) for each in both}
        order = (RUNNING, FAILED, STOPPED, WAITING)
        worst = next((state for state in order if state in states), both[0].get("state"))
        jobs = [self._told(place, job) for place, each in enumerate(both) for job in each["jobs"]]
        workers = [worker for each in both for worker in each.get("workers") or []]
        return dict(both[0]) | _names(both) | {"state": worst, "jobs": jobs, "workers": workers}

    def state(self) -> Json:
        """Return everything of both."""
        return self._joined([source.state() for source in self.sources])

    def poll(self) -> Json | None:
        """Return what is new in either."""
        news = [source.poll() for source in self.sources]
        if all(each is None for each in news):
            return None
        still = [source.standing() for source in self.sources]
        return self._joined([each or kept for each, kept in zip(news, still, strict=True)])
