"""The results of the experiments: every run with what it is, packed into two small files, and read again.

    metrics.parquet   one row a recorded slot: key, seed, then the columns of `record`
    arms.json         what each key is: figures, variant, facts, how it ended, seconds it took; and the size

Figures and verdicts are made from these alone. FedAvg on a network that takes time is not run: with full gradients its
k-th model is that of the free run, only its rounds end later. `with_timed` adds those curves.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from folkman.files import write_whole
from folkman.papers.arms import SIZES, Arm
from folkman.papers.reproduce import Store
from folkman.record.folder import RunFolder
from folkman.record.run import DIVERGED, ENDED, Run, jsonable

__all__ = ["Found", "Results", "at", "pack", "read_results", "select", "trailing", "with_timed"]

KEPT = ("slots", "seconds", "gradients", "rounds", "bits", "train_loss", "test_loss", "test_accuracy", "consensus")
KEPT += ("node_norm", "mean_age", "max_age", "kappa", "gamma_t", "gamma_w", "optimum_distance")
"""The columns that are packed."""

SMOOTHED = {"train_loss": (np.log, np.exp), "test_loss": (np.log, np.exp), "test_accuracy": (np.asarray, np.asarray)}
"""What `trailing` averages, on which scale, and the way back."""


class Found(NamedTuple):
    """One run and what it is."""

    variant: str
    facts: Mapping[str, Any]
    seed: int
    run: Run
    figures: tuple[str, ...] = ()


class Results(NamedTuple):
    """All that is known of one size."""

    size: str
    runs: list[Found]
    theory: list[dict[str, Any]]  # measurements of `folkman.papers.xie2024.measure`
    origin: str = ""


def pack(arms: Sequence[Arm], store: Store, size: str, theory: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Write the runs that have ended into the two files; return the folder."""
    entries: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for arm in arms:
        if arm.key in entries:
            names = entries[arm.key]["figures"]
            names += [] if arm.figure in names else [arm.figure]
            continue
        run = store.load(arm)
        if run.status not in ENDED:
            continue
        entries[arm.key] = {
            "figures": [arm.figure],
            "variant": arm.variant,
            "kind": arm.kind,
            "seed": arm.seed,
            "facts": arm.facts,
            "status": run.status,
            "wall_s": round(store.wall_s.get(arm.key, 0.0), 2),
        }
        rows += [{"key": arm.key, **{name: row[name] for name in KEPT if name in row}} for row in run.rows]
    schema = pa.schema([("key", pa.string()), *((name, pa.float64()) for name in KEPT)])
    table = pa.Table.from_pylist(rows, schema=schema)
    write_whole(store.folder.metrics, lambda part: pq.write_table(table, part, compression="zstd"))
    store.folder.write_json("arms.json", {"size": size, "arms": entries})
    if theory:
        store.folder.write_json("theory.json", {"rows": [_plain(row) for row in theory]})
    return store.root


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that JSON can hold."""
    return {k: jsonable(float(v)) if isinstance(v, float | np.floating) else v for k, v in row.items()}


def read_results(folder: Path) -> Results:
    """Read what `pack` wrote, and add the curves that follow from others."""
    listed, metrics = folder / "arms.json", RunFolder(folder).metrics
    if not listed.is_file():
        raise FileNotFoundError(
            f"expected arms.json and metrics.parquet in {folder}, there is none; make them with: folkman reproduce all"
        )
    try:
        content = json.loads(listed.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected JSON in {listed}: {error}; pack the runs again") from None
    size = content.get("size") if isinstance(content, dict) else None
    if size not in SIZES:
        raise ValueError(f"expected a size of {', '.join(SIZES)} in {listed}, got {size!r}; pack the runs again")
    try:
        columns = pq.read_table(metrics).to_pydict()
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise ValueError(f"expected Parquet in {metrics}: {error}; pack the runs again") from None
    rows: dict[str, list[dict[str, float]]] = {}
    names = [name for name in columns if name != "key"]
    for index, key in enumerate(columns["key"]):
        rows.setdefault(key, []).append({name: _number(columns[name][index]) for name in names})
    runs = []
    for key, entry in content["arms"].items():
        run = Run(entry["facts"]["method"], key, entry["seed"], rows.get(key, []), entry["status"])
        facts = entry["facts"] | ({"kind": entry["kind"]} if entry["kind"] == "clock" else {})
        runs.append(Found(entry["variant"], facts, entry["seed"], run, tuple(entry["figures"])))
    theory = folder / "theory.json"
    measured = json.loads(theory.read_text(encoding="utf-8"))["rows"] if theory.is_file() else []
    return Results(content["size"], with_timed(runs), measured, str(folder))


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def select(runs: Iterable[Found], variant: str | None = None, **facts: Any) -> list[Found]:
    """Return the runs with these facts; a list is any of its values, None is "has no such fact"."""
    return [
        found
        for found in runs
        if variant in (None, found.variant)
        and found.facts.get("kind") != "clock"
        and all(_fits(found.facts.get(name), wanted) for name, wanted in facts.items())
    ]


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return any(_fits(value, each) for each in wanted)
    numbers = isinstance(value, int | float) and isinstance(wanted, int | float)
    return abs(value - wanted) <= 1e-6 * max(1.0, abs(wanted)) if numbers else value == wanted


def at(run: Run, axis: str, where: float, metric: str) -> float:
    """Return a metric at a point of an axis, between two records in proportion; not a number beyond the last one."""
    x, y = np.array(run.column(axis)), np.array(run.column(metric))
    if not len(x) or where > x[-1] * (1 + 1e-9):
        return float("inf") if run.status == DIVERGED and metric == "train_loss" else float("nan")
    keep = _moved(x)
    return float(np.interp(where, x[keep], y[keep]))


def _moved(x: np.ndarray) -> np.ndarray:
    """Return which records are the last of a stretch in which nothing was computed."""
    return np.append(np.diff(x) > 0, True)


def trailing(results: Results, part: float) -> Results:
    """Replace losses and accuracies by their means over the last `part` of the gradients up to each record.

    Losses are averaged by their logarithms. What is decided by the result does not rest on one instant.
    """
    if not 0 < part <= 1:
        raise ValueError(f"a window is a part of the gradients, above 0 and at most 1; got {part:g}")
    return results._replace(
        runs=[found._replace(run=_trailing(found.run, part)) if found.run.rows else found for found in results.runs]
    )


def _trailing(run: Run, part: float) -> Run:
    gradients = np.array(run.column("gradients"))
    keep = _moved(gradients)
    rows = [dict(row) for row in run.rows]
    for name in SMOOTHED.keys() & rows[0].keys():
        scale, back = SMOOTHED[name]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a run that diverged
            scaled = scale(np.array(run.column(name)))
            means = back(_means_before(gradients[keep], scaled[keep], gradients, part))
        for row, mean in zip(rows, means, strict=True):
            row[name] = float(mean)
    return Run(run.algorithm, run.label, run.seed, rows, run.status)


def _means_before(x: np.ndarray, y: np.ndarray, ends: np.ndarray, part: float) -> np.ndarray:
    """Return the mean of y, in proportion between its values, over the last `part` of the way to each end.

    From the first value on that is not finite it is the value at the end.
    """
    sound = np.append(np.flatnonzero(~np.isfinite(y)), len(y))[0]  # values before the first that is not
    there = np.interp(ends, x, y)
    if sound == 0:
        return there
    known, values = x[:sound], y[:sound]
    areas = np.append(0.0, np.cumsum(np.diff(known) * (values[1:] + values[:-1]) / 2))

    def area(points: np.ndarray) -> np.ndarray:
        before = np.clip(np.searchsorted(known, points, side="right") - 1, 0, None)
        return areas[before] + (points - known[before]) * (values[before] + np.interp(points, known, values)) / 2

    lengths = part * ends
    means = (area(ends) - area(ends - lengths)) / np.where(lengths > 0, lengths, 1.0)
    return np.where((lengths > 0) & (ends <= known[-1]), means, there)


def with_timed(runs: Sequence[Found]) -> list[Found]:
    """Add FedAvg under every Gamma and on every drop of the radio that other runs were made under."""
    added = []
    free = select(runs, method="fedavg", links="free")
    for found in free:
        seen = {f.facts["gamma"] for f in runs if f.variant == found.variant and "gamma" in f.facts}
        added += [_under_gamma(found, gamma) for gamma in sorted(seen)]
        for clock in runs:
            same = (clock.variant, clock.seed) == (found.variant, found.seed)
            if same and clock.facts.get("kind") == "clock":
                added.append(_on_radio(found, clock))
    return [*runs, *added]


def _under_gamma(found: Found, gamma: int) -> Found:
    """Return a free run with rounds of 1 + Gamma slots."""
    last = found.run.rows[-1]
    slot_s = last["seconds"] / last["slots"]
    rows = []
    for row in found.run.rows:
        slots = row["gradients"] * (1 + gamma)
        rows.append({**row, "slots": slots, "seconds": slots * slot_s, "kappa": 1 / (1 + gamma)})
    facts = {**found.facts, "links": "timed", "network": "snapshot", "gamma": gamma}
    run = Run("fedavg", f"{found.run.label}, Gamma {gamma}", found.seed, rows, found.run.status)
    return Found(found.variant, facts, found.seed, run, found.figures)


def _on_radio(found: Found, clock: Found) -> Found:
    """Return the learning of a free run at the times of a clock: a run on the same radio that learns nothing."""
    rows = []
    for tick in clock.run.rows:
        done = min(tick["rounds"], found.run.last("gradients"))  # of a free run, one aggregation each
        learnt = {name: at(found.run, "gradients", done, name) for name in ("train_loss", "test_loss", "test_accuracy")}
        rows.append({**{name: float("nan") for name in KEPT}, **tick, **learnt, "consensus": 0.0})
    facts = {**found.facts, "links": "radio", "network": "radio"}
    run = Run("fedavg", found.run.label, found.seed, rows, found.run.status)
    return Found(found.variant, facts, found.seed, run, found.figures)
