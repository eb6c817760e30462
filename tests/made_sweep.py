"""A sweep folder whose runs end where a test wants: real files, read as any other."""

import json
from collections.abc import Callable, Iterable
from math import isnan, nan
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.record.folder import RunFolder
from folkman.record.json_file import Json
from folkman.record.run import AXES, COLUMNS, METRICS, Run
from folkman.record.store import SweepFolder
from folkman.record.table import save_results

SLOTS = (0.0, 50.0, 100.0)
"""The recorded slots of every job."""


def make_sweep(
    root: Path,
    arms: Iterable[tuple[str, Json]],
    ends: Callable[[str, Json, int], float],
    seeds: Iterable[int] = (0, 1, 2),
) -> Path:
    """Write a finished sweep of arms (label, settings); `ends` is the last loss of each job.

    A loss falls by half from one record to the next; accuracy is 1 - loss. NaN is a run that
    diverged.
    """
    jobs = []
    for label, settings in arms:
        told = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())
        arm = f"{label}, {told}" if told else label
        for seed in seeds:
            key = f"{len(jobs):020x}"
            loss = ends(label, settings, seed)
            state = "diverged" if isnan(loss) else "finished"
            jobs.append({
                "key": key, "folder": f"jobs/{key}", "arm": arm, "algorithm": "fedavg",
                "label": label, "seed": seed, "settings": settings, "state": state, "message": "",
                "verdict": state, "seconds": 1.0, "compute_s": 1.0, "rss_mb": 1.0, "peak_mb": 1.0,
                "worker": "host:1",
            })  # fmt: skip
            _write_rows(root / "jobs" / key, label, seed, loss)
    axes = list(dict.fromkeys(key for job in jobs for key in job["settings"]))
    index = {"format": 1, "name": "made", "axes": axes, "metrics": ["train_loss", "test_accuracy"],
             "started": "2026-01-01T12:00:00+00:00", "updated": "2026-01-01T12:01:00+00:00",
             "state": "finished", "engine": "processes", "workers": [], "jobs": jobs}  # fmt: skip
    (root / "index.json").write_text(json.dumps(index))
    (root / "sweep.toml").write_text('name = "made"\n')
    save_results(SweepFolder(root))
    return root


def _write_rows(folder: Path, label: str, seed: int, loss: float) -> None:
    folder.mkdir(parents=True)
    rows = []
    for place, slot in enumerate(SLOTS):
        now = loss * 2.0 ** (len(SLOTS) - 1 - place)
        row = dict.fromkeys(METRICS, nan) | {name: slot * (1 + n) for n, name in enumerate(AXES)}
        row |= {"slots": slot, "train_loss": now, "test_accuracy": 1 - now}
        rows.append({"algorithm": "fedavg", "label": label, "seed": seed} | row)
    pq.write_table(pa.Table.from_pylist(rows), folder / "metrics.parquet")
    kept = [{name: value for name, value in row.items() if name in COLUMNS} for row in rows]
    state = "diverged" if isnan(loss) else "finished"
    (folder / "parts").mkdir()
    RunFolder(folder).save_part(Run("fedavg", label, seed, kept, state), "")
