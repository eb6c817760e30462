"""What the lines of benchmarks/comparison.py say: the rules of docs/comparison-plan.md in code.

Every number here is pure arithmetic on results: nothing is run.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["AXES", "NEVER_WAITS", "Side", "Standing", "best_of", "compared", "mean_ranks", "ranked"]
__all__ += ["has_all", "sides_of"]

AXES = ("time", "bits", "gradients")
NEVER_WAITS = ("Algorithm 1", "SGP, asynchronous", "SWIFT", "AD-PSGD", "FedAsync", "FedBuff")
"""Methods of which no node waits for all others."""
YARDSTICK = "FedAvg"
DIVERGED = 10.0
"""A run that diverged counts as so many times its first loss."""
MARGIN = math.log(1.05)
RESAMPLES = 2_000
FAMILY = 17
"""Sides that are compared with FedAvg: an interval has the level 1 - 0.05 / FAMILY."""

Json = dict[str, Any]
Values = NDArray[np.float64]


class Side(NamedTuple):
    """One method in one cell: the measure of every judging seed, on each axis."""

    label: str
    line: Json
    seeds: tuple[str, ...]
    measure: Mapping[str, Values]  # axis -> ln loss by seed
    accuracy: Values  # at the end


class Standing(NamedTuple):
    """A place in a cell, and the interval of that place."""

    rank: int
    low: int
    high: int


class Compared(NamedTuple):
    """The loss as a multiple of another side's, with its interval."""

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Return ahead, behind or level."""
        if self.high < 1 and math.log(self.ratio) < -MARGIN:
            return "ahead"
        return "behind" if self.low > 1 and math.log(self.ratio) > MARGIN else "level"


def sides_of(lines: Sequence[Json], cell: str, bits_in_messages: int, gradients: int) -> list[Side]:
    """Return the sides of a cell that were judged."""
    found = []
    for line in lines:
        if line["cell"] != cell or "judged" not in line:
            continue
        points = {"bits": bits_in_messages * line["message_bits"], "gradients": gradients}
        runs = line["judged"]
        seeds = tuple(sorted(runs, key=int))
        measure = {axis: np.array([_at(runs[s], axis, points) for s in seeds]) for axis in AXES}
        accuracy = np.array([_number(runs[seed]["test_accuracy"][-1]) for seed in seeds])
        found.append(Side(line["label"], line, seeds, measure, accuracy))
    return found


def has_all(sides: Sequence[Side], labels: Collection[str]) -> bool:
    """Tell whether a cell has a side of each label: ranks among fewer would not compare."""
    return set(labels) <= {side.label for side in sides}


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _at(run: Json, axis: str, points: Mapping[str, float]) -> float:
    """Return ln loss at the last record that is not beyond the point of an axis."""
    losses = run["train_loss"]
    worst = math.log(DIVERGED * losses[0])
    place = len(losses) - 1
    if axis in points:
        place = max(i for i, value in enumerate(run[axis]) if value <= points[axis])
    reached = losses[place]
    if reached is None or (place == len(losses) - 1 and run["status"] != "finished"):
        return worst
    return min(math.log(reached), worst)


def _places(means: Values) -> NDArray[np.int64]:
    """Return 1 + the number of sides with a lower mean, along the last axis."""
    return 1 + (means[..., None, :] < means[..., :, None]).sum(axis=-1)


def _table(sides: Sequence[Side], axis: str) -> Values:
    return np.stack([side.measure[axis] for side in sides], axis=1)  # (seed, side)


def _resampled(table: Values, rng: np.random.Generator) -> Values:
    """Return the means of bootstrap samples of the seeds, (sample, side)."""
    rows = rng.integers(0, len(table), (RESAMPLES, len(table)))
    return table[rows].mean(axis=1)


def ranked(sides: Sequence[Side], axis: str) -> dict[str, Standing]:
    """Return the place of each side with the central 95 % of its places over redrawn seeds."""
    table = _table(sides, axis)
    places = _places(table.mean(axis=0))
    drawn = _places(_resampled(table, np.random.default_rng(0)))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0, method="nearest")
    return {
        side.label: Standing(int(places[i]), int(low[i]), int(high[i]))
        for i, side in enumerate(sides)
    }


def mean_ranks(
    cells: Sequence[Sequence[Side]], axis: str
) -> dict[str, tuple[float, float, float, int]]:
    """Return the mean place over the cells that have all sides, its interval, and their number.

    Cells without a side that others have would rank the rest among fewer: they are left out.
    """
    labels = [side.label for side in max(cells, key=len)] if cells else []
    whole = [cell for cell in cells if {side.label for side in cell} == set(labels)]
    rng, places, drawn = np.random.default_rng(0), [], []
    for cell in whole:
        by_label = {side.label: side for side in cell}
        table = _table([by_label[label] for label in labels], axis)
        places.append(_places(table.mean(axis=0)))
        drawn.append(_places(_resampled(table, rng)))
    if not whole:
        return {}
    middle, spread = np.mean(places, axis=0), np.mean(drawn, axis=0)
    low, high = np.percentile(spread, [2.5, 97.5], axis=0)
    return {
        label: (float(middle[i]), float(low[i]), float(high[i]), len(whole))
        for i, label in enumerate(labels)
    }


def compared(side: Side, other: Side, axis: str = "time", level: float | None = None) -> Compared:
    """Return the geometric mean ratio of losses, seed by seed, and its Student interval."""
    from scipy.stats import t

    difference = side.measure[axis] - other.measure[axis]
    count = len(difference)
    tail = 0.5 * (0.05 / FAMILY if level is None else 1 - level)
    half = float(t.ppf(1 - tail, count - 1)) * difference.std(ddof=1) / math.sqrt(count)
    middle = float(difference.mean())
    return Compared(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def best_of(sides: Sequence[Side], labels: Sequence[str]) -> Side | None:
    """Return the side with the lowest tuning score among `labels`."""
    own = [side for side in sides if side.label in labels]
    return min(own, key=lambda side: side.line["score"], default=None)
