"""`report.html` of a run or sweep folder, and of every job of a sweep."""

import multiprocessing
import re
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from folkman.files import write_whole
from folkman.record.live import read_json
from folkman.record.reading import check_sweep, kind_of, read_folder, read_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["JobReports", "write_job_reports", "write_report"]

ENDED = ("finished", "diverged")


class JobReports(NamedTuple):
    """The reports of a sweep's jobs: the pages written, and for each folder without one what was wrong."""

    written: list[Path]
    failed: dict[Path, str]

    def told(self) -> str:
        """Return it in words, with what to do."""
        lines = [f"reports of {len(self.written)} jobs written"]
        for folder, problem in self.failed.items():
            lines.append(f"warning: no report.html: {problem}; make it with: folkman report {folder}")
        return "\n".join(lines)


def write_report(root: Path, target: Path | None = None, *, figures: bool = False) -> Path:
    """Write the report of a folder as it stands, into it unless told otherwise, and return where.

    With `figures` the curves of a run folder are also kept in its `figures/`, PNG and SVG; each is drawn once.
    """
    if kind_of(root) == "sweep":
        from folkman.report.sweep_page import sweep_page

        text = sweep_page(read_sweep(root))
    else:
        from folkman.report.run_page import run_page

        text = run_page(read_folder(root), partial(_keep, root / "figures") if figures else None)
    path = target or root / "report.html"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def _keep(place: Path, name: str, figure: "Figure", svg: str) -> None:
    """Keep a curve of the page as figures: the SVG on white, and the same layout as PNG."""
    if name.endswith("-rounds"):  # on the page alone
        return
    from folkman.report.figures import save

    place.mkdir(exist_ok=True)
    figure.set_layout_engine("none")  # it has been laid out for the page: as expensive as drawing
    save(figure, place / f"{name}.png")
    on_white = re.sub(r"(<svg[^>]*>)", r'\1\n <rect width="100%" height="100%" fill="#ffffff"/>', svg, count=1)
    write_whole(place / f"{name}.svg", lambda part: part.write_text(on_white, encoding="utf-8"))


def write_job_reports(root: Path, workers: int = 1) -> JobReports:
    """Write the report of every ended job of a sweep that has none since it ended, on so many processes.

    Returns the pages written, in the order of the index, and what was wrong with the others.
    """
    if kind_of(root) != "sweep":
        raise ValueError(f"expected a sweep folder, {root} is a run folder and has no jobs; leave out --jobs")
    index = read_json(root / "index.json")
    check_sweep(root, index)
    ended = [root / str(job.get("folder")) for job in index.get("jobs", []) if job.get("state") in ENDED]
    wanted = [folder for folder in ended if not _is_current(folder)]
    if not wanted:
        return JobReports([], {})
    failed: dict[Path, str] = {}
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(min(workers, len(wanted)), spawn) as pool:
        pages = {pool.submit(write_report, folder): folder for folder in wanted}
        for done in as_completed(pages):
            try:
                done.result()
            except (OSError, ValueError, KeyError, TypeError, BrokenExecutor) as error:  # the others are written
                failed[pages[done]] = str(error)
    return JobReports([folder / "report.html" for folder in wanted if folder not in failed], failed)


def _is_current(folder: Path) -> bool:
    """Tell whether a job's report is of its last end."""
    page, end = folder / "report.html", folder / "job.json"
    return page.is_file() and (not end.is_file() or page.stat().st_mtime_ns >= end.stat().st_mtime_ns)
