"""The statistics behind verdicts: numbers in, numbers out; nothing here knows a run or a claim.

is A lower than B        p of the paired differences: sign flips from 8 draws on, Student's below;
                         or by their ranks: Wilcoxon's exact test
are A and B equal        the 90 % interval lies within a margin (two one-sided tests at 5 %)
is A sooner than B       sign test over draws; who never came is later, and both never is a tie
is it more often so      Fisher's exact test
of a family of p         Benjamini and Hochberg's correction
how many draws           for 80 % power at the effect that was seen
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf, isfinite, isnan, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, half_width

__all__ = ["FEWEST_FOR_RANKS", "LEVEL", "Spread", "corrected", "draws_needed", "fisher", "paired"]
__all__ += ["ranked", "sign_flip_p", "sooner", "thrown_back"]

LEVEL = 0.05
"""Of every test, after the correction."""

FEWEST_FOR_SIGN_FLIPS = 8
"""Draws from which signs are flipped: 2^-7 is then the least p; with five it is 6 %."""

FEWEST_FOR_RANKS = 8
"""Draws from which ranks decide."""

MOST_FOR_ALL_FLIPS = 40
"""Draws up to which all flips are counted, half against half: 2^20 sums each."""

SAMPLED_FLIPS = 200_000
"""Flips that are drawn beyond that."""

NORMAL_Z = 1.959964
"""Of 5 % on two sides."""

POWER_Z = NORMAL_Z + 0.841621
"""Of 5 % on two sides and 80 % power."""

EQUAL_Z = 1.644854 + 1.281552
"""Of 5 % on one side and 80 % power of two one-sided tests."""

THROWN_BACK = 1.5
"""Times its least loss so far: above it a run has been thrown back."""

SETTLING = 0.1
"""Part of a run in which it is not yet looked for."""


class Spread(NamedTuple):
    """Paired differences over draws."""

    n: int
    mean: float
    low: float  # of Student's 95 % interval
    high: float
    effect: float  # mean over standard deviation
    p: float = nan  # that there is no difference, both sides
    inner_low: float = nan  # of the 90 % interval
    inner_high: float = nan

    def within(self, margin: float) -> bool:
        """Return whether two one-sided tests show the difference within a margin."""
        known = self.n >= FEWEST_FOR_AN_INTERVAL
        return known and -margin <= self.inner_low and self.inner_high <= margin


def paired(differences: ArrayLike) -> Spread:
    """Return mean, intervals, effect and p of paired differences."""
    d = np.array(differences, float)
    if len(d) < 2 or not np.isfinite(d).all():
        mean = float(d.mean()) if len(d) else nan
        ends = (-inf, inf) if len(d) < 2 else (mean, mean)
        return Spread(len(d), mean, *ends, nan)
    mean, half, inner = float(d.mean()), float(half_width(d)), float(half_width(d, 0.9))
    spread = float(d.std(ddof=1))
    effect = mean / spread if half > 0 else float(np.sign(mean)) * inf if mean else 0.0
    return Spread(
        len(d), mean, mean - half, mean + half, effect, _p(d, half), mean - inner, mean + inner
    )


def _p(d: NDArray[np.float64], half: float) -> float:
    """Return the probability of so large a mean if there is no difference."""
    if len(d) < FEWEST_FOR_AN_INTERVAL:
        return nan
    if len(d) >= FEWEST_FOR_SIGN_FLIPS:
        return sign_flip_p(d)
    if half == 0:
        return 1.0 if d.mean() == 0 else 0.0
    from scipy.special import stdtr

    t = abs(d.mean()) / (d.std(ddof=1) / np.sqrt(len(d)))
    return float(2 * stdtr(len(d) - 1, -t))


def sign_flip_p(differences: ArrayLike) -> float:
    """Return the share of all flips of signs whose sum is at least as far from 0.

    All flips of one half of the draws meet all of the other half, sorted, so that 30 draws cost
    32,768 searches in the place of 2^30 sums: `scipy.stats.permutation_test` makes those.
    """
    d = np.asarray(differences, float)
    seen = abs(d.sum()) * (1 - 1e-12) - 1e-300
    if len(d) > MOST_FOR_ALL_FLIPS:
        signs = np.random.default_rng(0).integers(0, 2, (SAMPLED_FLIPS, len(d))) * 2 - 1
        return float((1 + np.sum(abs(signs @ d) >= seen)) / (1 + SAMPLED_FLIPS))
    left, right = _flipped_sums(d[: len(d) // 2]), np.sort(_flipped_sums(d[len(d) // 2 :]))
    if seen <= 0:
        return 1.0
    above = len(right) - np.searchsorted(right, seen - left, side="left")
    below = np.searchsorted(right, -seen - left, side="right")
    return float((above.sum() + below.sum()) / (len(left) * len(right)))


def _flipped_sums(d: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums under every choice of signs."""
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def ranked(differences: ArrayLike) -> Spread:
    """Return location, intervals, effect and p of paired differences by their signed ranks.

    The location is the median of the means of all pairs of draws, each draw with itself too (Hodges
    and Lehmann). Of these means the positive ones are as many as Wilcoxon's sum of ranks, so that
    their order statistics are the ends of the exact interval. One draw far from all others moves
    neither far. The effect is over the deviation that a normal law of that interval would have.
    """
    d = np.array(differences, float)
    n = len(d)
    if n < FEWEST_FOR_RANKS or not np.isfinite(d).all():
        return Spread(n, nan, nan, nan, nan)
    first, second = np.triu_indices(n)
    means = np.sort((d[first] + d[second]) / 2)
    below = np.cumsum(_rank_sums(n))
    less = min(np.sum(means < 0), np.sum(means > 0)) + np.sum(means == 0) / 2
    p = min(1.0, 2 * float(below[int(less)]))
    (low, high), (inner_low, inner_high) = (_ends(means, below, part) for part in (0.05, 0.1))
    middle = float(np.median(means))
    deviation = (high - low) / 2 * np.sqrt(n) / NORMAL_Z
    effect = (
        middle / deviation if deviation > 0 else float(np.sign(middle)) * inf if middle else 0.0
    )
    return Spread(n, middle, low, high, float(effect), p, inner_low, inner_high)


def _rank_sums(n: int) -> NDArray[np.float64]:
    """Return the probability of every sum of the ranks 1 to n whose signs are tossed."""
    law = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(len(law) + rank)
        longer[: len(law)] += law / 2
        longer[rank:] += law / 2
        law = longer
    return law


def _ends(
    means: NDArray[np.float64], below: NDArray[np.float64], outside: float
) -> tuple[float, float]:
    """Return the ends of the interval that the test at this level does not refute."""
    cut = int(np.searchsorted(below, outside / 2, side="right"))
    return float(means[cut - 1]), float(means[-cut])


class Sooner(NamedTuple):
    """Over draws: in how many one side came first, the other did, and neither is known to."""

    ours: int
    other: int
    ties: int
    p: float


def sooner(times: Sequence[tuple[float, float]]) -> Sooner:
    """Compare when each of two came; NaN is "never came", which is later than any time."""
    ours = sum(_before(mine, theirs) for mine, theirs in times)
    other = sum(_before(theirs, mine) for mine, theirs in times)
    if ours + other == 0:
        return Sooner(0, 0, len(times), 1.0 if times else nan)
    from scipy.stats import binomtest

    p = float(binomtest(ours, ours + other).pvalue)
    return Sooner(ours, other, len(times) - ours - other, p)


def _before(first: float, second: float) -> bool:
    return not isnan(first) and (isnan(second) or first < second)


def thrown_back(losses: Sequence[float]) -> bool:
    """Tell whether the loss rose to 1.5 times its least so far, after the first tenth."""
    values = np.asarray(losses, float)
    least = np.minimum.accumulate(np.where(np.isfinite(values), values, inf))
    start = max(1, ceil(SETTLING * (len(values) - 1)))
    late = values[start:]
    return bool(np.any(~np.isfinite(late) | (late > THROWN_BACK * least[start - 1 : -1])))


def fisher(ours: tuple[int, int], other: tuple[int, int]) -> float:
    """Return Fisher's exact p of k of n against k of n."""
    from scipy.stats import fisher_exact

    table = [[k, n - k] for k, n in (ours, other)]
    return float(fisher_exact(table).pvalue)  # type: ignore[attr-defined] - a result with a name


def corrected(p: Mapping[str, float]) -> dict[str, float]:
    """Return Benjamini and Hochberg's corrected p of a family, by name; NaN are none of it."""
    from scipy.stats import false_discovery_control

    known = {name: value for name, value in p.items() if isfinite(value)}
    if not known:
        return {}
    found = false_discovery_control(np.clip(list(known.values()), 0.0, 1.0))
    return dict(zip(known, map(float, found), strict=True))


def draws_needed(spread: Spread, margin: float, *, equal: bool = False) -> int | None:
    """Return the draws that would decide at 80 % power, if the next are as those seen.

    Either a difference is shown or, where the middle is within the margin, that there is none: the
    fewer draws of the two. A claim that both are `equal` is held against its margin in both ways.
    None where nothing can be told.
    """
    if spread.n < FEWEST_FOR_AN_INTERVAL or not isfinite(spread.effect) or spread.effect == 0:
        return None
    middle, deviation = abs(spread.mean), abs(spread.mean / spread.effect)
    beyond = middle - margin if equal else middle
    ways = [(POWER_Z * deviation / beyond) ** 2 + 2] if beyond > 0 else []
    if middle < margin:
        ways.append((EQUAL_Z * deviation / (margin - middle)) ** 2 + 2)
    return ceil(min(ways)) if ways else None
