"""The run folder: what is written, where, and never half.

    config.toml          the resolved configuration
    provenance.json      versions, machine, commit, command, times
    metrics.parquet      one row a recorded slot: algorithm, label, seed, then the columns of `record`
    summary.json         the last row of each run, as `folkman run --json` prints it
    figures/             PNG and SVG
    models/              the last model of each run, named tensors, safetensors
    timelines/           who held what when, if asked for
    parts/               the rows of each run, and the checkpoint of one that is not finished
    network/             where nodes were, how old copies, who was on the air: at most sixty frames of each run
    live/                what a run tells while it goes on; gone when it has ended
    report.html          all of it on one page

Files appear by rename. A run that ended is never run again; one that was interrupted goes on from its checkpoint.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.files import write_whole
from folkman.record.run import Run, read_table, runs_of, slug

__all__ = ["FORMAT", "MADE_IN_PYTHON", "RunFolder", "list_runs", "provenance"]


FOLDERS = ("parts", "figures", "models")

FORMAT = 1
"""Of a run folder, kept in `provenance.json`; a folder of a larger one was written by a later folkman."""

MADE_IN_PYTHON = "made_in_python"
"""The key of `config.toml` in a folder that was made in Python, without a configuration."""


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
        if root.exists() and not root.is_dir():
            raise FileExistsError(f"expected a folder, {root} is a file; choose another --out")
        if root.exists() and any(root.iterdir()):
            raise FileExistsError(
                f"expected a new or empty folder, {root} has content; "
                f"choose another --out, or go on with --resume {root}"
            )
        folder = cls(root)
        root.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            (root / name).mkdir(exist_ok=True)
        folder.write_text("config.toml", config)
        return folder

    @classmethod
    def open(cls, root: Path) -> "RunFolder":
        """Open a folder that `create` made."""
        if not (root / "config.toml").is_file():
            raise FileNotFoundError(f"expected a run folder with a config.toml, {root} is none; check the path")
        _check_format(root / "provenance.json")
        for name in FOLDERS:
            (root / name).mkdir(exist_ok=True)
        return cls(root)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file, whole or not at all."""
        write_whole(self.root / name, lambda part: part.write_text(text, encoding="utf-8"))

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file, whole or not at all."""
        self.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def checkpoint(self, run: Run) -> Path:
        """Return where the checkpoint of a run stands."""
        return self.root / "parts" / f"{slug(run.label, run.seed)}.safetensors"

    def model(self, run: Run) -> Path:
        """Return where the last model of a run stands."""
        return self.root / "models" / f"{slug(run.label, run.seed)}.safetensors"

    def timeline(self, run: Run) -> Path:
        """Return where the timeline of a run stands."""
        path = self.root / "timelines" / f"{slug(run.label, run.seed)}.npz"
        path.parent.mkdir(exist_ok=True)
        return path

    def save_part(self, run: Run, fingerprint: str) -> None:
        """Write the rows of one run and how it stands, under the fingerprint of its configuration."""
        notes = {"status": run.status, "message": run.message, "fingerprint": fingerprint}
        table = pa.Table.from_pylist(run.rows).replace_schema_metadata({"folkman": json.dumps(notes)})
        write_whole(self._part(run), lambda part: pq.write_table(table, part))

    def load_part(self, run: Run, fingerprint: str) -> None:
        """Fill a run with the rows written so far, if any; refuse those of another configuration."""
        path = self._part(run)
        if not path.is_file():
            return
        table = read_table(path, "delete it to run this part again")
        notes = json.loads((table.schema.metadata or {}).get(b"folkman", b"{}"))
        if notes.get("fingerprint") != fingerprint:
            raise ValueError(
                f"{path} was made under another configuration than {self.config}; "
                "restore that file, or run the new one into a new folder"
            )
        run.rows, run.status, run.message = table.to_pylist(), notes["status"], notes["message"]

    def _part(self, run: Run) -> Path:
        return self.root / "parts" / f"{slug(run.label, run.seed)}.parquet"

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
        return runs_of(read_table(self.metrics, "run its configuration again").to_pylist())


def _check_format(provenance_file: Path) -> None:
    """Refuse a folder that a later folkman wrote; one that does not say is of the first format."""
    try:
        known = json.loads(provenance_file.read_text(encoding="utf-8"))
        version, by = known.get("format", FORMAT), (known.get("versions") or {}).get("folkman")
    except (FileNotFoundError, ValueError, AttributeError):
        return
    if not isinstance(version, int) or version > FORMAT:
        raise ValueError(
            f"{provenance_file.parent} has format {version!r}, written by folkman {by}; this one reads up to {FORMAT}: "
            "upgrade folkman to read it"
        )


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Return a line for each run folder under `root`, newest first."""
    found = []
    for config in sorted(root.glob("*/config.toml"), key=lambda path: path.stat().st_mtime, reverse=True):
        state, runs = _state(config.parent / "summary.json")
        changed = datetime.fromtimestamp(config.stat().st_mtime, UTC)
        found.append({"folder": str(config.parent), "state": state, "made": f"{changed:%Y-%m-%d %H:%M}", "runs": runs})
    return found


def _state(summary: Path) -> tuple[str, list[dict[str, Any]]]:
    """Tell how a folder stands by its summary; one damaged file does not spoil the listing."""
    if not summary.is_file():
        return "unfinished", []
    try:
        runs = json.loads(summary.read_text(encoding="utf-8"))["runs"]
        diverged = any(run["status"] == "diverged" for run in runs)
    except (ValueError, KeyError, TypeError):
        return "damaged", []
    return "diverged" if diverged else "finished", runs


def provenance(arguments: list[str] | None, folder: RunFolder) -> dict[str, Any]:
    """Return what is needed to repeat a run elsewhere; a resumed folder keeps what first made it.

    `arguments` are those of the command line; None if a Python program made the folder.
    """
    facts = {
        "format": FORMAT,
        "command": arguments,
        **_machine(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    first = folder.root / "provenance.json"
    if not first.is_file():
        return facts
    known = json.loads(first.read_text(encoding="utf-8"))
    return {**known, "resumed": [*known.get("resumed", []), facts]}


@lru_cache(maxsize=1)
def _machine() -> dict[str, Any]:
    """Return the software and the machine of this process."""
    from importlib.metadata import PackageNotFoundError, version

    import jax

    versions = {}
    for package in ("folkman", "jax", "jaxlib", "numpy", "optax", "pyarrow", "scikit-learn", "scipy", "torch"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "commit": _commit(),
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),  # they choose kernels, and so the last bits
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "devices": [device.device_kind for device in jax.devices()],
    }


def _commit() -> str | None:
    """Return the commit of the source tree that is running, if git tracks this very file."""
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=40")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
