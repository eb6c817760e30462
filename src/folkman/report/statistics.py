"""Runs that differ only in their seed: mean and 95 % interval of a metric along an axis."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkman.record.run import Run

__all__ = ["FEWEST_FOR_AN_INTERVAL", "Curve", "curves", "half_width"]


FEWEST_FOR_AN_INTERVAL = 3
"""Draws from which an interval is drawn or decides: that of two is thirteen times their distance to
the mean."""


class Curve(NamedTuple):
    """One label: its mean over seeds and the half-width of the 95 % interval of that mean."""

    label: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]  # NaN with one seed
    num_seeds: int


def half_width(values: ArrayLike) -> NDArray[np.float64]:
    """Return the half-width of Student's 95 % interval of the mean over axis 0.

    NaN for one value.
    """
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls; that one imports for a second

    values = np.asarray(values, float)
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    return stdtrit(count - 1, 0.975) * values.std(axis=0, ddof=1) / np.sqrt(count)


def curves(runs: Iterable[Run], x: str, y: str, scale: Callable = np.asarray) -> list[Curve]:
    """Gather the runs by label, in the order of their first appearance.

    Mean and interval are those of `scale(y)`.

    Seeds are aligned by recorded slot; a label is drawn as far as its shortest run reaches, so that
    no mean is ever over fewer seeds than its neighbours.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    found = []
    for label, group in groups.items():
        length = min(len(run.rows) for run in group)
        xs = _stack([run.column(x)[:length] for run in group])
        ys = scale(_stack([run.column(y)[:length] for run in group]))
        found.append(Curve(label, xs.mean(axis=0), ys.mean(axis=0), half_width(ys), len(group)))
    return found


def _stack(rows: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    return np.array(
        [[np.nan if value is None else value for value in row] for row in rows], np.float64
    )
