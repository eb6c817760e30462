"""Run and sweep folders as a report and a live page read them: files only, finished or not.

A run is taken from its part (`parts/`), which says how it ended; from what it tells while it goes on (`live/`), if
that is further; or, where the parts are gone, from `metrics.parquet`. What is not understood is left out: a folder of
a later version still shows what both know.
"""

import json
import tomllib
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from folkman.record.live import Tail, read_json
from folkman.record.run import AXES, METRICS, Run, read_table, runs_of, slug
from folkman.record.scene import load_scene

__all__ = ["Folder", "Sweep", "check_sweep", "kind_of", "read_folder", "read_part", "read_sweep"]

SWEEP_FORMAT = 1


class Folder(NamedTuple):
    """A run folder: what was asked for, where, and what came of it."""

    root: Path
    config: dict[str, Any]
    config_text: str
    provenance: dict[str, Any]
    runs: list[Run]  # in the order of the configuration; status "waiting" for one not begun


class Sweep(NamedTuple):
    """A sweep folder."""

    root: Path
    jobs_index: dict[str, Any]  # index.json
    text: str  # sweep.toml
    runs: list[Run]  # finished jobs, labelled by their arm

    @property
    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs of the index."""
        return [job for job in self.jobs_index.get("jobs", []) if isinstance(job, dict)]


def kind_of(root: Path) -> str:
    """Tell a run folder from a sweep folder."""
    if (root / "index.json").is_file() or (root / "sweep.toml").is_file():
        return "sweep"
    if (root / "config.toml").is_file():
        return "run"
    what = "a folder" if root.is_dir() else "no folder"
    raise FileNotFoundError(f"expected a run or a sweep folder, {root} is {what} with neither; check the path")


def read_folder(root: Path) -> Folder:
    """Read a run folder as it stands now."""
    kind_of(root)
    text = (root / "config.toml").read_text(encoding="utf-8")
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"expected TOML in {root / 'config.toml'}: {error}; restore the file") from None
    if not isinstance(config.get("algorithm"), list) or not isinstance(config.get("seeds"), list):
        raise ValueError(f"expected [[algorithm]] and seeds in {root / 'config.toml'}; is it of a later version?")
    runs = [
        read_part(root, str(table.get("name")), str(table.get("label")), int(seed))
        for seed in config["seeds"]
        for table in config["algorithm"]
    ]
    if all(run.status == "waiting" for run in runs) and (root / "metrics.parquet").is_file():
        table = read_table(root / "metrics.parquet", "run its configuration again")
        runs = runs_of(table.to_pylist())
        for run in runs:
            run.scene = load_scene(root / "network" / f"{slug(run.label, run.seed)}.npz")
    return Folder(root, config, text, read_json(root / "provenance.json"), runs)


def read_part(root: Path, algorithm: str, label: str, seed: int) -> Run:
    """Read one run as it stands now."""
    run, name = Run(algorithm, label, seed, status="waiting"), slug(label, seed)
    part = root / "parts" / f"{name}.parquet"
    if part.is_file():
        table = read_table(part, "delete it to run this part again")
        notes = json.loads((table.schema.metadata or {}).get(b"folkman", b"{}"))
        run.rows = [known(row) for row in table.to_pylist()]
        run.status, run.message = notes.get("status", "finished"), notes.get("message", "")
    if run.status in ("waiting", "running"):
        _take_live(run, Tail(root / "live" / f"{name}.jsonl"))
    run.scene = load_scene(root / "network" / f"{name}.npz")
    return run


def _take_live(run: Run, tail: Tail) -> None:
    """Take what a run tells while it goes on, if that is further than its part."""
    rows: list[dict[str, float]] = []
    while news := tail.look():  # one look reads a few megabytes
        run.status = "running"
        rows = [] if news.again else rows
        rows += [known(each["row"]) for each in news.rows]
    if rows and (not run.rows or rows[-1]["slots"] >= run.rows[-1]["slots"]):
        run.rows = rows


def known(row: dict[str, Any]) -> dict[str, float]:
    """Return the columns that this version knows; a value that is not there is not a number."""
    return {name: nan if row[name] is None else row[name] for name in (*AXES, *METRICS) if name in row}


def check_sweep(root: Path, index: dict[str, Any]) -> None:
    """Refuse a sweep that this version does not understand."""
    if index and index.get("format") != SWEEP_FORMAT:
        raise ValueError(
            f"expected a sweep of format {SWEEP_FORMAT}, {root / 'index.json'} has {index.get('format')!r}; "
            "read it with the version that wrote it"
        )


def read_sweep(root: Path) -> Sweep:
    """Read a sweep folder as it stands now."""
    index = read_json(root / "index.json")
    check_sweep(root, index)
    path = root / "sweep.toml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    results = root / "results.parquet"
    if results.is_file() and index.get("state") in ("finished", "failed"):  # while it goes on the jobs know more
        table = read_table(results, f"make it again: folkman sweep --resume {root}")
        rows = [
            {"algorithm": row["algorithm"], "label": row["arm"], "seed": row["seed"]} | known(row)
            for row in table.to_pylist()
        ]
        runs = runs_of(rows)
        jobs = {(job.get("arm"), job.get("seed")): job for job in index.get("jobs", [])}
        for run in runs:
            job = jobs.get((run.label, run.seed), {})
            run.status, run.message = job.get("state", run.status), job.get("message", "")
        return Sweep(root, index, text, runs)
    runs = []
    for job in index.get("jobs", []):
        if job.get("state") in ("finished", "diverged", "running"):
            run = read_part(root / job["folder"], job["algorithm"], job["label"], job["seed"])
            run.label = job["arm"]
            runs += [run] if run.rows else []
    return Sweep(root, index, text, runs)
