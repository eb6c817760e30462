"""Runs that differ only in their seed: mean and 95 % interval of a metric along an axis."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkman.record.run import Run

__all__ = ["FEWEST_FOR_AN_INTERVAL", "RATIO_FOR_LOG", "Curve", "curves", "half_width", "interval"]
__all__ += ["SINGLE", "Paired", "paired", "squeezed", "student"]


FEWEST_FOR_AN_INTERVAL = 3
"""Draws from which an interval is drawn or decides: that of two is thirteen times their distance to
the mean."""
RATIO_FOR_LOG = 30.0
"""A positive metric that spans more than this is drawn on a logarithmic axis."""
SQUEEZED = 0.1
"""A curve that ends before this share of an axis is squeezed: the axis is better logarithmic."""
ROUNDING = 1e-12
"""Share of the mean below which a half-width is the rounding of equal values, and so 0."""
SINGLE = 1e-6
"""Share of the values below which differences of them vary by the rounding of single precision."""
STUDENT_95 = (12.706204736174694, 4.302652729749462, 3.1824463052837078, 2.7764451051977934)
STUDENT_95 += (2.5705818356363146, 2.4469118511449786, 2.364624251592784, 2.306004135204166)
STUDENT_95 += (2.262157162798205, 2.228138851986274, 2.200985160091639, 2.1788128296672284)
STUDENT_95 += (2.1603686564627913, 2.144786687917804, 2.131449545559776, 2.1199052992212546)
STUDENT_95 += (2.1098155778333156, 2.1009220402410382, 2.0930240544083087)
"""What `scipy.special.stdtrit` returns for 95 % and 1 to 19 degrees of freedom: up to 20 seeds need
no SciPy, which takes a tenth of a second to import."""


class Curve(NamedTuple):
    """One label: its mean over seeds and the half-width of the 95 % interval of that mean."""

    label: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]  # NaN with one seed
    num_seeds: int


class Paired(NamedTuple):
    """The differences of two arms, seed by seed: their mean and half of its 95 % interval."""

    mean: float
    half: float  # NaN with one seed; 0 where all seeds are alike
    num_seeds: int
    fixed: bool = False  # neither arm depends on the seed

    @property
    def alike(self) -> bool:
        """Tell whether arms that vary with the seed differ by the same in every one, and not by 0.

        Student's test then says nothing: it takes the size of chance from the spread over seeds. An
        accuracy of few test samples often differs by the same few samples in every seed.
        """
        return self.num_seeds > 1 and self.half == 0 and self.mean != 0 and not self.fixed

    @property
    def apart(self) -> bool:
        """Tell whether the interval is known and leaves out 0, or chance has no part in it."""
        certain = self.fixed and self.mean != 0
        return certain or (self.half > 0 and abs(self.mean) > self.half)


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Paired:
    """Return the differences a - b over the seeds that both have."""
    seeds = [seed for seed in a if seed in b]
    if not seeds:
        return Paired(float("nan"), float("nan"), 0)
    left, right = (np.array([side[seed] for seed in seeds]) for side in (a, b))
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        differences = left - right
        half = float(half_width(differences))
        least = SINGLE * float(np.max(np.abs([left, right])))
        fixed = len(seeds) > 1 and bool(np.ptp(left) <= least and np.ptp(right) <= least)
    return Paired(float(differences.mean()), 0.0 if half <= least else half, len(seeds), fixed)


def half_width(values: ArrayLike, confidence: float = 0.95) -> NDArray[np.float64]:
    """Return the half-width of Student's interval of the mean over axis 0, of 95 % if not told.

    NaN for one value, and 0 for values that differ by rounding alone.
    """
    values = np.asarray(values, float)
    count = len(values)
    if count < 2:
        return np.full(values.shape[1:], np.nan)
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        half = student(count - 1, confidence) * values.std(axis=0, ddof=1) / np.sqrt(count)
        return np.where(half < ROUNDING * abs(values.mean(axis=0)), 0.0, half)


def student(freedom: int, confidence: float = 0.95) -> float:
    """Return how many standard errors of the mean half of Student's interval is."""
    if confidence == 0.95 and freedom <= len(STUDENT_95):
        return STUDENT_95[freedom - 1]
    from scipy.special import stdtrit  # what scipy.stats.t.ppf calls; that one imports for a second

    return float(stdtrit(freedom, (1 + confidence) / 2))


def interval(
    mean: NDArray[np.float64], half: NDArray[np.float64], *, log: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of an interval; on a logarithmic axis those of the mean's logarithm.

    The standard error of log(mean) is that of the mean over the mean, so that no interval falls
    below zero. On a linear axis it ends at zero where no mean is negative: a loss cannot be below.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        if not log:
            below = mean - half
            signed = bool((mean < 0).any())
            return below if signed else np.maximum(below, 0.0), mean + half
        factor = np.exp(half / mean)
        return mean / factor, mean * factor


def squeezed(spent: Iterable[NDArray[np.float64]]) -> bool:
    """Tell whether some curve spends less than a tenth of what another does, and none nothing."""
    ends = [float(np.nanmax(x)) for x in spent if len(x) and np.isfinite(x).any()]
    return bool(ends) and 0 < min(ends) < SQUEEZED * max(ends) < np.inf


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
        with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
            mean = ys.mean(axis=0)
        found.append(Curve(label, xs.mean(axis=0), mean, half_width(ys), len(group)))
    return found


def _stack(rows: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    return np.array(
        [[np.nan if value is None else value for value in row] for row in rows], np.float64
    )
