"""A sweep folder as it stands: what a report and a live page read of it, finished or not."""

import fcntl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from folkman.record.cluster import refuse_cluster
from folkman.record.folder import JobFolder, RunFolder
from folkman.record.json_file import Json, Table, read_json, read_text
from folkman.record.run import ENDED, FAILED, FINISHED, RUNNING, Run, known, read_table, runs_of
from folkman.record.store import SweepFolder, refuse_old

__all__ = ["Sweep", "is_held", "is_sweep", "job_folder", "read_sweep"]


class Sweep(NamedTuple):
    """A sweep folder as it stands."""

    folder: SweepFolder
    facts: Json  # index.json
    text: str  # sweep.toml
    runs: list[Run]  # of the jobs that have rows, labelled by their arm

    @property
    def jobs(self) -> list[Json]:
        """Return the jobs of the index."""
        return [job for job in self.facts.get("jobs", []) if isinstance(job, dict)]


def is_sweep(root: Path) -> bool:
    """Tell a sweep folder from a run folder; refuse what is neither."""
    refuse_old(root)
    refuse_cluster(root)
    folder = SweepFolder(root)
    if folder.index.is_file() or folder.definition.is_file():
        return True
    if RunFolder(root).config.is_file():
        return False
    what = "neither" if root.is_dir() else "no folder"
    raise FileNotFoundError(f"expected a run or a sweep folder, {root} is {what}; check the path")


def job_folder(folder: SweepFolder, job: Table) -> JobFolder:
    """Return the folder of a job of the index."""
    return JobFolder(folder.root / str(job.get("folder")))


def is_held(folder: SweepFolder) -> bool:
    """Tell whether a process sweeps a folder; where that cannot be told, its index is believed."""
    with suppress(OSError), folder.lock.open("rb") as lock:
        try:
            # also seen while several share the folder
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    return True


def read_sweep(root: Path) -> Sweep:
    """Read a sweep folder as it stands now."""
    folder = SweepFolder(root)
    text = read_text(folder.definition) if folder.definition.is_file() else ""
    sweep = Sweep(folder, read_json(folder.index) or {}, text, [])
    gathered = folder.results.is_file() and sweep.facts.get("state") in (FINISHED, FAILED)
    return sweep._replace(runs=_gathered(sweep) if gathered else _job_by_job(sweep))


def _gathered(sweep: Sweep) -> list[Run]:
    """Return the runs of `results.parquet`, each with the state and the message of its job."""
    remedy = f"make it again: {sweep.folder.again()}"
    runs = runs_of_arms(read_table(sweep.folder.results, remedy).to_pylist())
    for run, job in note_verdicts(runs, sweep.jobs):
        run.status, run.message = job.get("state", run.status), job.get("message", "")
    return runs


def note_verdicts(runs: Sequence[Run], jobs: Sequence[Table]) -> list[tuple[Run, Table]]:
    """Fill in the verdict of each run by its job of the index; return both side by side."""
    known = {(job.get("arm"), job.get("seed")): job for job in jobs}
    pairs = [(run, known.get((run.label, run.seed), {})) for run in runs]
    for run, job in pairs:
        run.verdict, run.reason = job.get("verdict", ""), job.get("reason", "")
    return pairs


def runs_of_arms(rows: Sequence[Json]) -> list[Run]:
    """Return the runs of a gathered table, each labelled by its arm."""
    return runs_of(
        {"algorithm": row["algorithm"], "label": row["arm"], "seed": row["seed"]} | known(row)
        for row in rows
    )


def _job_by_job(sweep: Sweep) -> list[Run]:
    """Return the runs of the jobs' folders: while a sweep goes on they know more than the table."""
    runs = []
    for job in sweep.jobs:
        if job.get("state") in (*ENDED, RUNNING):
            folder = job_folder(sweep.folder, job)
            run = folder.read_run(job["algorithm"], job["label"], job["seed"])
            run.label = job["arm"]
            runs += [run] if run.rows else []
    return runs
