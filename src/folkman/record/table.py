"""What a sweep found, gathered: all rows of all its jobs in one tidy table, and arms to compare."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from folkman.checks import require
from folkman.files import write_whole
from folkman.record.folder import RunFolder
from folkman.record.json_file import Table, read_json
from folkman.record.run import AXES, ENDED, METRICS, Run, known, read_table
from folkman.record.store import SweepFolder
from folkman.record.sweep import is_sweep, note_verdicts, runs_of_arms
from folkman.record.tuned import Side, sides_of

__all__ = ["KEPT", "Arm", "arms_of", "gather", "networks_of", "read_rows", "save_results"]
__all__ += ["named_in", "objectives_of", "settings_of_arms", "sides_of_arms", "sides_of_jobs"]
__all__ += ["unfinished"]

KEPT = ("slots", "seconds", "gradients", "rounds", "bits", "train_loss", "test_loss")
KEPT += ("test_accuracy", "consensus", "node_norm", "mean_age", "max_age", "kappa", "gamma_t")
KEPT += ("gamma_w", "optimum_distance", "energy_j", "station_j", "joules_per_percent")
"""The metrics that the table of a reproduction keeps of its jobs."""

LEADING = ("algorithm", "label", "seed")
"""The first columns of a job's own table."""


def gather(folder: SweepFolder) -> pa.Table:
    """Return all rows of the jobs that ended, in the order of the index.

    Rows of a job whose folder is gone are taken from the table that is there. A reproduction keeps
    fewer columns.
    """
    index = folder.read_index()
    jobs = [job for job in index["jobs"] if job["state"] in ENDED]
    before, tables = {}, []
    for job in jobs:
        path = RunFolder(folder.root / job["folder"]).metrics
        if path.is_file():
            tables.append(_tidy(read_table(path, "delete its folder and resume"), job))
            continue
        before = before or _by_job(folder)
        require(
            job["key"] in before,
            f"the job {job['arm']}, seed {job['seed']} has ended, there is no {path}; resume",
        )
        tables.append(before[job["key"]])
    if not tables:
        return pa.table({})
    values = {axis: [job["settings"].get(axis) for job in jobs] for axis in index["axes"]}
    whole = pa.concat_tables(tables, promote_options="permissive")
    if "paper" in index:
        names = [name for name in whole.column_names if name not in METRICS or name in KEPT]
        whole = whole.select(names)
    counts = [table.num_rows for table in tables]
    for position, axis in enumerate(index["axes"]):
        # `slots` is a column already
        name = axis if axis not in whole.column_names else f"set.{axis}"
        whole = whole.add_column(1 + position, name, _column(values[axis], counts))
    return whole


def _by_job(folder: SweepFolder) -> dict[str, pa.Table]:
    """Return the rows of the table that is there, by job and without its axes."""
    if not folder.results.is_file():
        return {}
    table = read_table(folder.results, "delete it and resume")
    own = {"arm", *LEADING, "job", *AXES, *METRICS}
    kept = table.select([name for name in table.column_names if name in own])
    keys = dict.fromkeys(kept["job"].to_pylist())
    return {key: kept.filter(pc.field("job") == key) for key in keys}


def _tidy(rows: pa.Table, job: Table) -> pa.Table:
    """Return the rows of a job behind the names of its arm and key."""
    named = rows.add_column(0, "arm", pa.array([job["arm"]] * rows.num_rows))
    return named.add_column(1 + len(LEADING), "job", pa.array([job["key"]] * rows.num_rows))


def _column(values: Sequence[Any], counts: Sequence[int]) -> pa.Array:
    """Return an axis as a column; what is mixed, or a table, as JSON text."""
    kinds = {type(value) for value in values if value is not None}
    plain: Sequence[object] = values
    if kinds == {int, float}:
        plain = [None if value is None else float(value) for value in values]
    elif not (len(kinds) <= 1 and kinds <= {int, float, bool, str}):
        as_is = (str, type(None))
        plain = [v if isinstance(v, as_is) else json.dumps(v, sort_keys=True) for v in values]
    repeated = zip(plain, counts, strict=True)
    return pa.array([value for value, count in repeated for _ in range(count)])


def save_results(folder: SweepFolder) -> None:
    """Write `results.parquet`."""
    table = gather(folder)
    write_whole(folder.results, lambda part: pq.write_table(table, part, compression="zstd"))


def read_rows(root: Path) -> dict[str, list[dict[str, float]]]:
    """Return the rows of a table by job; a value that is not there is not a number."""
    path, rows = SweepFolder(root).results, {}
    if path.is_file():
        table = read_table(path, "make it again: what is finished is not run again")
        for row in table.to_pylist():
            rows.setdefault(row["job"], []).append(known(row))
    return rows


def arms_of(roots: Sequence[Path]) -> dict[str, dict[int, Run]]:
    """Read folders: arm -> seed -> run; of several folders, arms are named with theirs."""
    apart = len({root.resolve() for root in roots}) == len(roots)
    require(apart, "each folder can be given once; one came twice")
    found: dict[str, dict[int, Run]] = {}
    for root in roots:
        for run in _runs(root):
            run.label = named_in(run.label, root, roots)
            found.setdefault(run.label, {})[run.seed] = run
    return found


def _ended(folder: RunFolder) -> list[Run]:
    """Return the runs that have ended in a folder that is not finished."""
    if folder.metrics.is_file():
        return []
    return [run for run in folder.read().runs if run.status in ENDED and run.rows]


def unfinished(roots: Sequence[Path]) -> list[str]:
    """Return a line for each run folder of which only the runs that have ended can be shown."""
    lines = []
    for root in (root for root in roots if not is_sweep(root)):
        folder = RunFolder.open(root)
        if found := _ended(folder):
            contents = folder.read()
            runs = f"{len(found)} of {len(contents.runs)} runs have ended and are shown"
            again = f"folkman run --resume {root}"
            how = "call it again from Python" if contents.made_in_python else again
            lines.append(f"{root} is not finished: {runs}; finish it: {how}")
    return lines


def named_in(label: str, root: Path, roots: Sequence[Path]) -> str:
    """Return the name of an arm: with several folders, with that of its folder."""
    short = len({each.name for each in roots}) == len(roots)
    return f"{label} ({root.name if short else root})" if len(roots) > 1 else label


def sides_of_arms(roots: Sequence[Path]) -> list[Side]:
    """Return the arms of folders with the configurations they were run from, as far as known."""
    found: dict[str, Side] = {}
    for root in roots:
        for side in _sides(root):
            name = named_in(side.name, root, roots)
            found.setdefault(name, side._replace(name=name))
    return list(found.values())


def _sides(root: Path) -> Iterator[Side]:
    if not is_sweep(root):
        yield from sides_of(RunFolder(root).read_config())
        return
    folder = SweepFolder.open(root)
    yield from sides_of_jobs(folder, folder.read_index()["jobs"])


def sides_of_jobs(folder: SweepFolder, jobs: Sequence[Table]) -> Iterator[Side]:
    """Yield each arm of a sweep with the configuration of its first job that ended and is whole."""
    seen = set()
    for job in jobs:
        place = RunFolder(folder.root / job["folder"])
        if job["arm"] not in seen and job["state"] in ENDED and place.config.is_file():
            with suppress(ValueError):  # a damaged one says nothing of its arm
                found = sides_of(place.read_config())
                seen.add(job["arm"])
                yield from (side._replace(name=job["arm"]) for side in found)


class Arm(NamedTuple):
    """What an arm of a sweep is: its algorithm's label, and its setting of each axis."""

    label: str
    settings: Table


def settings_of_arms(roots: Sequence[Path]) -> dict[str, Arm]:
    """Return the label and the settings of each arm; a run folder's arms have no settings."""
    found: dict[str, Arm] = {}
    for root in roots:
        jobs = SweepFolder.open(root).read_index()["jobs"] if is_sweep(root) else ()
        for job in jobs:
            name = named_in(job["arm"], root, roots)
            found.setdefault(name, Arm(named_in(job["label"], root, roots), job["settings"]))
    return found


def objectives_of(roots: Sequence[Path]) -> list[str]:
    """Return what the runs of folders minimise, each of `samples` and `nodes` once."""
    found: list[str] = []
    for root in roots:
        if is_sweep(root):
            folder = SweepFolder.open(root)
            found += folder.objectives((read_json(folder.index) or {}).get("jobs", []))
        else:
            found += RunFolder.open(root).objectives()
    return list(dict.fromkeys(found))


def networks_of(roots: Sequence[Path]) -> list[str]:
    """Return what run folders say of their networks, each line once; a sweep says it job by job."""
    folders = [RunFolder.open(root) for root in roots if not is_sweep(root)]
    return list(dict.fromkeys(line for folder in folders for line in folder.networks()))


def _runs(root: Path) -> list[Run]:
    """Return the runs of a folder, labelled by arm; those that have ended, if not all have."""
    if not is_sweep(root):
        folder = RunFolder.open(root)
        return _ended(folder) or folder.load_results()
    folder = SweepFolder.open(root)
    runs = runs_of_arms(gather(folder).to_pylist())
    require(bool(runs), f"{root} has no finished job yet; go on with: {folder.again()}")
    note_verdicts(runs, folder.read_index()["jobs"])
    return runs
