"""What a sweep found, gathered: all rows of all its jobs in one tidy table, and arms to compare."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from folkman.checks import nearest, require
from folkman.files import write_whole
from folkman.record.folder import RunFolder
from folkman.record.run import COLUMNS, ENDED, METRICS, Run
from folkman.record.store import SweepFolder
from folkman.record.sweep import is_sweep

__all__ = ["arms_of", "gather", "save_results"]

LEADING = ("algorithm", "label", "seed")
"""The first columns of a job's own table."""


def gather(folder: SweepFolder) -> pa.Table:
    """Return all rows of the jobs that ended, in the order of the index."""
    index = folder.read_index()
    jobs = [job for job in index["jobs"] if job["state"] in ENDED]
    tables = []
    for job in jobs:
        path = RunFolder(folder.root / job["folder"]).metrics
        try:
            rows = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"expected the rows of a finished job, {path} is damaged: {error}; delete its folder and resume"
            ) from None
        tables.append(_tidy(rows, job))
    if not tables:
        return pa.table({})
    values = {axis: [job["settings"].get(axis) for job in jobs] for axis in index["axes"]}
    whole = pa.concat_tables(tables, promote_options="permissive")
    counts = [table.num_rows for table in tables]
    for position, axis in enumerate(index["axes"]):
        name = axis if axis not in whole.column_names else f"set.{axis}"  # `slots` is a column already
        whole = whole.add_column(1 + position, name, _column(values[axis], counts))
    return whole


def _tidy(rows: pa.Table, job: Mapping[str, Any]) -> pa.Table:
    """Return the rows of a job behind the names of its arm and key."""
    named = rows.add_column(0, "arm", pa.array([job["arm"]] * rows.num_rows))
    return named.add_column(1 + len(LEADING), "job", pa.array([job["key"]] * rows.num_rows))


def _column(values: Sequence[Any], counts: Sequence[int]) -> pa.Array:
    """Return an axis as a column: numbers and truths as such, whatever is mixed or a table as JSON text."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    plain: list[Any] = list(values)
    if kinds == {int, float}:
        plain = [None if value is None else float(value) for value in values]
    elif not (len(kinds) <= 1 and kinds <= {int, float, bool, str}):
        plain = [None if v is None else v if isinstance(v, str) else json.dumps(v, sort_keys=True) for v in values]
    return pa.array([value for value, count in zip(plain, counts, strict=True) for _ in range(count)])


def save_results(folder: SweepFolder) -> None:
    """Write `results.parquet`."""
    table = gather(folder)
    write_whole(folder.results, lambda part: pq.write_table(table, part))


def arms_of(roots: Sequence[Path]) -> dict[str, dict[int, Run]]:
    """Read sweep and run folders: arm -> seed -> run. With several folders, an arm is named with its folder."""
    require(len({root.resolve() for root in roots}) == len(roots), "each folder can be compared once; one came twice")
    found: dict[str, dict[int, Run]] = {}
    short = len({root.name for root in roots}) == len(roots)
    for root in roots:
        for run in _runs(root):
            arm = f"{run.label} ({root.name if short else root})" if len(roots) > 1 else run.label
            found.setdefault(arm, {})[run.seed] = run
    return found


def _runs(root: Path) -> list[Run]:
    """Return the runs of a folder, labelled by arm."""
    if not is_sweep(root):
        return RunFolder.open(root).load_results()
    folder = SweepFolder.open(root)
    runs: dict[tuple[str, int], Run] = {}
    for row in gather(folder).to_pylist():
        run = runs.setdefault((row["arm"], row["seed"]), Run(row["algorithm"], row["arm"], row["seed"]))
        run.rows.append({key: value for key, value in row.items() if key in COLUMNS})
    require(bool(runs), f"{root} has no finished job yet; go on with: folkman sweep --resume {root}")
    return list(runs.values())


def check_metric(name: str) -> None:
    """Refuse a metric that no run has."""
    require(name in COLUMNS, f"there is no metric '{name}'; {nearest(name, METRICS)}")
