"""The run folder: what is written, where, and never half.

    config.toml          the resolved configuration
    provenance.json      versions, machine, commit, command, times
    metrics.parquet      one row a recorded slot: algorithm, label, seed, then the columns of `record`
    summary.json         the last row of each run, as `folkman run --json` prints it
    figures/             PNG and SVG
    models/              the last model of each run, named tensors, safetensors
    timelines/           who held what when, if asked for
    parts/               the rows of each run, and the checkpoint of one that is not finished

Files appear by rename. A run that ended is never run again; one that was interrupted goes on from its checkpoint.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.files import write_whole
from folkman.record import Run

__all__ = ["RunFolder", "list_runs", "provenance"]


class RunFolder:
    """The files of one comparison."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.metrics = root / "metrics.parquet"
        self.summary = root / "summary.json"
        self.figures = root / "figures"

    @classmethod
    def create(cls, root: Path, config: str) -> "RunFolder":
        """Make a new folder with its configuration; refuse one that is there and not empty."""
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise FileExistsError(
                f"expected a new or empty folder, {root} has content; "
                f"choose another --out, or go on with --resume {root}"
            )
        folder = cls(root)
        for name in ("", "parts", "figures", "models"):
            (root / name).mkdir(parents=True, exist_ok=True)
        folder.write_text("config.toml", config)
        return folder

    @classmethod
    def open(cls, root: Path) -> "RunFolder":
        """Open a folder that `create` made."""
        if not (root / "config.toml").is_file():
            raise FileNotFoundError(f"expected a run folder with a config.toml, {root} is none; check the path")
        return cls(root)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file, whole or not at all."""
        write_whole(self.root / name, lambda part: part.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file, whole or not at all."""
        self.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def checkpoint(self, run: Run) -> Path:
        """Return where the checkpoint of a run stands."""
        return self.root / "parts" / f"{slug(run)}.safetensors"

    def model(self, run: Run) -> Path:
        """Return where the last model of a run stands."""
        return self.root / "models" / f"{slug(run)}.safetensors"

    def timeline(self, run: Run) -> Path:
        """Return where the timeline of a run stands."""
        path = self.root / "timelines" / f"{slug(run)}.npz"
        path.parent.mkdir(exist_ok=True)
        return path

    def save_part(self, run: Run) -> None:
        """Write the rows of one run and how it stands."""
        table = pa.Table.from_pylist(run.rows)
        notes = {"status": run.status, "message": run.message}
        table = table.replace_schema_metadata({"folkman": json.dumps(notes)})
        write_whole(self.root / "parts" / f"{slug(run)}.parquet", lambda part: pq.write_table(table, part))

    def load_part(self, run: Run) -> None:
        """Fill a run with the rows written so far, if any."""
        path = self.root / "parts" / f"{slug(run)}.parquet"
        if not path.is_file():
            return
        table = pq.read_table(path)
        notes = json.loads((table.schema.metadata or {}).get(b"folkman", b"{}"))
        run.rows, run.status, run.message = table.to_pylist(), notes.get("status", "running"), notes.get("message", "")

    def save_results(self, runs: Iterable[Run]) -> None:
        """Write `metrics.parquet` and `summary.json`."""
        runs = list(runs)
        heads = [{"algorithm": run.algorithm, "label": run.label, "seed": run.seed} for run in runs]
        table = pa.Table.from_pylist([head | row for head, run in zip(heads, runs, strict=True) for row in run.rows])
        write_whole(self.metrics, lambda part: pq.write_table(table, part))
        self.write_json("summary.json", {"folder": str(self.root), "runs": [run.summary() for run in runs]})

    def load_results(self) -> list[Run]:
        """Read the runs of a finished folder."""
        if not self.metrics.is_file():
            raise FileNotFoundError(
                f"expected metrics.parquet in {self.root}, there is none yet; "
                f"finish it: folkman run --resume {self.root}"
            )
        try:
            table = pq.read_table(self.metrics)
        except pa.ArrowInvalid as error:
            raise ValueError(f"expected a Parquet file, {self.metrics} is damaged: {error}") from None
        runs: dict[tuple[str, int], Run] = {}
        for row in table.to_pylist():
            name, label, seed = (row.pop(key) for key in ("algorithm", "label", "seed"))
            runs.setdefault((label, seed), Run(name, label, seed, status="finished")).rows.append(row)
        return list(runs.values())


def slug(run: Run) -> str:
    """Return a file name for a run: its label in plain letters, and its seed."""
    return f"{re.sub(r'[^A-Za-z0-9.=_-]+', '-', run.label).strip('-').lower()}-seed{run.seed}"


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Return a line for each run folder under `root`, newest first."""
    found = []
    for config in sorted(root.glob("*/config.toml"), key=lambda path: path.stat().st_mtime, reverse=True):
        summary = config.parent / "summary.json"
        state, runs = "unfinished", []
        if summary.is_file():
            runs = json.loads(summary.read_text(encoding="utf-8")).get("runs", [])
            state = "diverged" if any(run.get("status") == "diverged" for run in runs) else "finished"
        changed = datetime.fromtimestamp(config.stat().st_mtime, UTC)
        found.append({"folder": str(config.parent), "state": state, "made": f"{changed:%Y-%m-%d %H:%M}", "runs": runs})
    return found


def provenance(arguments: list[str]) -> dict[str, Any]:
    """Return what is needed to repeat a run elsewhere."""
    from importlib.metadata import PackageNotFoundError, version

    import jax

    versions = {}
    for package in ("folkman", "jax", "jaxlib", "numpy", "optax", "pyarrow", "scikit-learn", "scipy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "command": arguments,
        "commit": _commit(),
        "versions": versions,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the commit of the source tree that is running, if it is one."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=40"],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
