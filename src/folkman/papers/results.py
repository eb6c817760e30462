"""The results of a reproduction: every run, read from the folder's index and its one table.

Figures and verdicts are made from these alone. What follows from other runs without being run is
added by the paper's own code (`Own.derive`).
"""

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.papers.paper import Found, Paper, find
from folkman.record.json_file import Json
from folkman.record.run import DIVERGED, ENDED, Run
from folkman.record.store import SweepFolder, refuse_old
from folkman.record.table import read_rows

__all__ = ["QUARTER", "Reproduction", "at", "late_points", "read_reproduction", "select"]
__all__ += ["settled", "trailing"]

QUARTER = 0.25
"""The last part of a run over which medians are taken."""

SMOOTHED = {
    "train_loss": (np.log, np.exp),
    "test_loss": (np.log, np.exp),
    "test_accuracy": (np.asarray, np.asarray),
}
"""What `trailing` averages, on which scale, and the way back."""


class Reproduction(NamedTuple):
    """All that is known of one size of a paper."""

    paper: Paper
    size: str
    runs: list[Found]
    measured: list[Json]  # rows of `Own.measure`
    origin: str = ""
    smoothed: bool = False  # by `trailing`: no median is taken of means


def read_reproduction(folder: Path, paper: Paper | None = None) -> Reproduction:
    """Read the runs of a reproduction that have ended, and add those that follow from others."""
    index, measured = _opened(folder)
    paper = paper or find(index["paper"])
    size = str(index.get("size"))
    wanted = f"expected a size of {', '.join(paper.sizes)} in the index of {folder}"
    require(size in paper.sizes, f"{wanted}, got {size!r}; reproduce it again")
    rows = read_rows(folder)
    runs = []
    for job in index["jobs"]:
        if job["state"] in ENDED:
            key, seed, method = job["key"], job["seed"], job["settings"]["method"]
            run = Run(method, key, seed, rows.get(key, []), job["state"])
            facts = job["settings"] | ({"kind": "clock"} if job.get("clock") else {})
            runs.append(Found(job["variant"], facts, job["seed"], run, tuple(job["figures"])))
    return Reproduction(paper, size, paper.own.derive(runs), measured, str(folder))


def _opened(folder: Path) -> tuple[Json, list[Json]]:
    """Return the index of a reproduction and what was measured, or say what is there instead."""
    refuse_old(folder)
    place = SweepFolder(folder)
    if not place.index.is_file():
        raise FileNotFoundError(
            f"expected a reproduction in {folder}, there is none; make one with: folkman "
            "reproduce all"
        )
    index = place.read_index()
    if "paper" not in index:
        raise ValueError(
            f"expected a reproduction in {folder}, it is a sweep; compare its arms: folkman "
            f"compare {folder}"
        )
    return index, place.read_measured()


def select(runs: Iterable[Found], variant: str | None = None, **facts: object) -> list[Found]:
    """Return the runs with these facts.

    A list is any of its values; None, which TOML writes "none", is "has no such fact".
    """
    left = [
        found
        for found in runs
        if variant in (None, found.variant) and found.facts.get("kind") != "clock"
    ]
    for name, wanted in facts.items():
        left = _fitting(left, name, wanted)
    return left


def _fitting(runs: Sequence[Found], name: str, wanted: object) -> list[Found]:
    """Return the runs with one fact: thousands have few values of it, and each is compared once."""
    known: dict[Hashable, bool] = {}
    left = []
    for found in runs:
        value = found.facts.get(name)
        key = repr(value) if isinstance(value, list | dict) else value
        if key not in known:
            known[key] = _fits(value, wanted)
        if known[key]:
            left.append(found)
    return left


def _fits(value: object, wanted: object) -> bool:
    if isinstance(wanted, list | tuple):
        return any(_fits(value, each) for each in wanted)
    if value is None and wanted == "none":
        return True
    if isinstance(value, int | float) and isinstance(wanted, int | float):
        return abs(value - wanted) <= 1e-6 * max(1.0, abs(wanted))
    return value == wanted


def at(run: Run, axis: str, where: float, metric: str) -> float:
    """Return a metric at a point of an axis, by proportion; not a number beyond its end."""
    x, y = np.array(run.column(axis)), np.array(run.column(metric))
    if not len(x) or where > x[-1] * (1 + 1e-9):
        return float("inf") if run.status == DIVERGED and metric == "train_loss" else float("nan")
    keep = _moved(x)
    return float(np.interp(where, x[keep], y[keep]))


def late_points(
    runs: Sequence[Run], axis: str, where: float, part: float = QUARTER
) -> NDArray[np.float64]:
    """Return where some of these runs recorded in the last `part` of the way to a point, and it.

    All runs are looked at in the same places: one that recorded more often is not seen earlier or
    later on its way than the others.
    """
    if not part or not np.isfinite(where):
        return np.array([where])
    seen = np.unique(np.concatenate([np.array(run.column(axis)) for run in runs]))
    late = (seen >= (1 - part) * where * (1 - 1e-9)) & (seen < where * (1 - 1e-9))
    return np.append(seen[late], where)


def settled(run: Run, axis: str, points: NDArray[np.float64], metric: str) -> float:
    """Return the median of a loss or an accuracy at some points; of other metrics the last."""
    end = at(run, axis, points[-1], metric)
    if metric not in SMOOTHED or not np.isfinite(end):
        return end
    x, y = np.array(run.column(axis)), np.array(run.column(metric))
    keep = _moved(x)
    return float(np.median(np.interp(points, x[keep], y[keep])))


def _moved(x: np.ndarray) -> np.ndarray:
    """Return which records are the last of a stretch in which nothing was computed."""
    return np.append(np.diff(x) > 0, True)


def trailing(results: Reproduction, part: float) -> Reproduction:
    """Replace losses and accuracies by means over the last `part` of the gradients so far.

    Losses are averaged by their logarithms. What is decided by the result does not rest on one
    instant.
    """
    wanted = "a window is a part of the gradients, above 0 and at most 1"
    require(0 < part <= 1, f"{wanted}; got {part:g}")
    runs = [found._replace(run=_trailing(found.run, part)) for found in results.runs]
    return results._replace(runs=runs, smoothed=True)


def _trailing(run: Run, part: float) -> Run:
    if not run.rows:
        return run
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
    """Return the mean of y, linear between its values, over the last `part` of the way to each end.

    From the first value on that is not finite it is the value at the end.
    """
    # values before the first that is not
    sound = np.append(np.flatnonzero(~np.isfinite(y)), len(y))[0]
    there = np.interp(ends, x, y)
    if sound == 0:
        return there
    known, values = x[:sound], y[:sound]
    areas = np.append(0.0, np.cumsum(np.diff(known) * (values[1:] + values[:-1]) / 2))

    def area(points: np.ndarray) -> np.ndarray:
        before = np.clip(np.searchsorted(known, points, side="right") - 1, 0, None)
        heights = values[before] + np.interp(points, known, values)
        return areas[before] + (points - known[before]) * heights / 2

    lengths = part * ends
    means = (area(ends) - area(ends - lengths)) / np.where(lengths > 0, lengths, 1.0)
    return np.where((lengths > 0) & (ends <= known[-1]), means, there)
