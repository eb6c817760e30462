"""`report.html` of a run or sweep folder, and of every job of a sweep."""

import multiprocessing
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from folkman.record.folder import JobFolder, RunFolder
from folkman.record.json_file import read_json, write_text
from folkman.record.run import ENDED
from folkman.record.store import SweepFolder
from folkman.record.sweep import is_sweep, job_folder, read_sweep

__all__ = ["JobReports", "write_job_reports", "write_report", "write_run_report"]


class JobReports(NamedTuple):
    """The reports of a sweep's jobs: the pages written, and the error of each missing one."""

    written: list[Path]
    failed: dict[Path, str]

    def told(self) -> str:
        """Return it in words, with what to do."""
        lines = [f"reports of {len(self.written)} jobs written"]
        for folder, problem in self.failed.items():
            remedy = f"make it with: folkman report {folder}"
            lines.append(f"warning: no report.html: {problem}; {remedy}")
        return "\n".join(lines)


def write_report(root: Path, target: Path | None = None) -> Path:
    """Write the report of a folder as it stands, into it by default, and return where."""
    if not is_sweep(root):
        return write_run_report(RunFolder.open(root), target)
    from folkman.report.sweep_page import sweep_page

    path = target or SweepFolder(root).report
    write_text(path, sweep_page(read_sweep(root)))
    return path


def write_run_report(
    folder: RunFolder, target: Path | None = None, *, figures: bool = False
) -> Path:
    """Write the report of a run folder; see `write_report`.

    With `figures` its goals over time are also kept in `figures/`, PNG and SVG.
    """
    from folkman.report.run_page import run_page

    path = target or folder.report
    contents = folder.read()
    write_text(path, run_page(contents))
    if figures:
        from folkman.report.kept import keep_curves

        keep_curves([run for run in contents.runs if run.rows], folder.figures)
    return path


def write_job_reports(root: Path, workers: int = 1) -> JobReports:
    """Write the reports of a sweep's ended jobs that lack a current one, on so many processes.

    Returns the pages written, in the order of the index, and what was wrong with the others.
    """
    if not is_sweep(root):
        raise ValueError(
            f"expected a sweep folder, {root} is a run folder and has no jobs; leave out --jobs"
        )
    sweep = SweepFolder(root)
    jobs = (read_json(sweep.index) or {}).get("jobs", [])
    ended = [job_folder(sweep, job) for job in jobs if job.get("state") in ENDED]
    wanted = [folder for folder in ended if not _is_current(folder)]
    if not wanted:
        return JobReports([], {})
    failed: dict[Path, str] = {}
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(min(workers, len(wanted)), spawn) as pool:
        pages = {pool.submit(write_report, folder.root): folder.root for folder in wanted}
        for done in as_completed(pages):
            try:
                done.result()
            except (OSError, ValueError, KeyError, TypeError, BrokenExecutor) as error:
                failed[pages[done]] = str(error)  # the others are written
    return JobReports([folder.report for folder in wanted if folder.root not in failed], failed)


def _is_current(folder: JobFolder) -> bool:
    """Tell whether a job's report is of its last end."""
    page, end = folder.report, folder.job
    return page.is_file() and (
        not end.is_file() or page.stat().st_mtime_ns >= end.stat().st_mtime_ns
    )
