"""The tests that decide claims: paired over draws, with an interval and the size of the effect.

Two runs of one draw (first model, delays, fading) are compared where both still go on: at the
largest value of the axis that both reach. For losses and durations the difference is log(ours /
other), for accuracies ours - other. Over the draws Student's 95 % interval of the mean is taken,
from three draws on; the effect d is the mean over the standard deviation. Nothing is corrected for
the number of tests.

    lower, higher   the interval lies on the claimed side of 0, and is not all within the margin of
                    what counts as equal
    ordered         the same for every step from one level to the next
    similar         the interval lies within the margin
    explained       which part of a gain a control shows that lacks what the claim gives as the
                    cause
    formula         a measured quantity agrees with a printed formula within 2 %
    measured        what the paper's own code measured (`Own.measure`)
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite, isnan, log, nan
from typing import NamedTuple

import numpy as np

from folkman.checks import require
from folkman.papers.paper import Formula, Found
from folkman.papers.results import at
from folkman.record import run as record
from folkman.record.json_file import Table
from folkman.record.run import Run
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, half_width

__all__ = ["MARGINS", "Reading", "compare_pairs", "explained", "formula", "ordered", "paired"]

MARGINS = {"test_accuracy": 0.002}
"""Differences that count as none: two in a thousand images; 1 % of anything else."""
MARGIN = 0.01
FORMULA_MARGIN = 0.02

DIVERGED = log(1e6)
"""The most that one run counts as behind another, diverged or not: it decides nothing unless other
draws agree."""

WITHOUT_AXIS = ("gamma_t", "mean_age")
"""Metrics that are told without the point of the axis: they are means over the whole run."""

HOLDS, FAILS, OPEN = "holds", "fails", "open"


class Reading(NamedTuple):
    """One way to take a claim, decided."""

    name: str
    verdict: str  # holds, fails, open
    says: str
    n: int = 0  # draws
    mean: float = nan  # difference: relative, or of accuracies
    low: float = nan
    high: float = nan
    effect: float = nan  # mean over standard deviation of the paired differences
    # of several levels each; the reading is the least favourable of them
    levels: "tuple[Reading, ...]" = ()


class Spread(NamedTuple):
    """Paired differences over draws."""

    n: int
    mean: float
    low: float
    high: float
    effect: float


def paired(differences: Sequence[float]) -> Spread:
    """Return mean, Student's 95 % interval and standardised effect."""
    d = np.array(differences, float)
    if len(d) < 2 or not np.isfinite(d).all():
        mean = float(d.mean()) if len(d) else nan
        ends = (-np.inf, np.inf) if len(d) < 2 else (mean, mean)
        return Spread(len(d), mean, *ends, nan)
    half = float(half_width(d))
    spread = float(d.std(ddof=1))
    effect = float(d.mean()) / spread if spread > 0 else float(np.sign(d.mean())) * np.inf
    return Spread(len(d), float(d.mean()), float(d.mean()) - half, float(d.mean()) + half, effect)


def difference(ours: float, other: float, metric: str) -> float:
    """Return log(ours / other), or ours - other for accuracies.

    A run that diverged is a million times worse.
    """
    if metric == "test_accuracy":
        return ours - other
    if not (ours > 0 and other > 0):
        return nan if ours != other else 0.0
    if np.isinf(ours) and np.isinf(other):
        return nan
    return float(np.clip(np.log(ours) - np.log(other), -DIVERGED, DIVERGED))


def value_at(
    found: Found, axis: str, where: float, metric: str, targets: Mapping[int, float] | None
) -> float:
    """Return a metric of a run at a point.

    With `targets`, the gradients until it first reaches that of its draw.
    """
    if targets is None:
        return at(found.run, axis, where, metric)
    return first_reach(found.run, targets.get(found.seed, nan))


def first_reach(run: Run, target: float) -> float:
    """Return the gradients after which the loss is first at most `target`.

    Not a number if it never is.
    """
    losses, steps = run.column("train_loss"), run.column("gradients")
    for index, loss in enumerate(losses):
        if loss <= target * (1 + 1e-9):
            if index == 0:
                return steps[0]
            before = losses[index - 1]
            part = (before - target) / (before - loss) if before > loss else 1.0
            return steps[index - 1] + part * (steps[index] - steps[index - 1])
    return nan


def by_seed(runs: Sequence[Found]) -> dict[int, Found]:
    """Return one run per draw.

    Refuse two different ones, which a claim that says too little would mix.
    """
    chosen: dict[int, Found] = {}
    for found in runs:
        known = chosen.setdefault(found.seed, found)
        require(
            known.run.label == found.run.label,
            f"expected one run a draw, got two of draw {found.seed}: {dict(known.facts)} and "
            f"{dict(found.facts)}; "
            "say more in the claim",
        )
    return chosen


def reach(runs: Sequence[Found], axis: str) -> float:
    """Return the largest value of an axis that all runs reach.

    Runs that diverged are not waited for.
    """
    ends = [found.run.last(axis) for found in runs if found.run.status != record.DIVERGED]
    return min(ends, default=nan)


def verdict_of(spread: Spread, margin: float, sign: float) -> str:
    """Decide "on the side of `sign`": holds, fails or open."""
    if spread.n < FEWEST_FOR_AN_INTERVAL or np.isnan(spread.mean):
        return OPEN
    if -margin <= spread.low and spread.high <= margin:
        return FAILS
    low, high = (spread.low, spread.high) if sign > 0 else (-spread.high, -spread.low)
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


class Outcome(NamedTuple):
    """What was found at one level of what a claim must hold across, or at none."""

    level: str
    verdict: str
    favour: float  # how much the end of the interval that speaks least for the claim does so
    spread: Spread
    says: str


def compare_pairs(
    name: str,
    pairs: Mapping[str, tuple[Sequence[Found], Sequence[Found]]],
    ask: Table,
    targets: Mapping[int, float] | None = None,
) -> Reading:
    """Decide lower, higher or similar for the pair of groups at each level.

    The least favourable is reported.
    """
    metric, axis = ask.get("metric", "train_loss"), ask.get("axis", "gradients")
    margin = ask.get("margin", MARGINS.get(metric, MARGIN))
    outcomes = []
    for level, (ours, other) in pairs.items():
        left, right = by_seed(ours), by_seed(other)
        seeds = sorted(left.keys() & right.keys())
        wheres = [reach([left[seed], right[seed]], axis) for seed in seeds]
        values = []
        for seed, where in zip(seeds, wheres, strict=True):
            mine, theirs = (
                value_at(side[seed], axis, where, metric, targets) for side in (left, right)
            )
            values.append(difference(mine, theirs, metric))
        spread = paired(values)
        says = _say(spread, metric, axis, wheres, margin, reached=targets is not None)
        outcomes.append(Outcome(level, *_decided(spread, ask["test"], margin), spread, says))
    return least_favourable(name, outcomes)


def least_favourable(name: str, outcomes: Sequence[Outcome]) -> Reading:
    """Return the outcome that speaks least for a claim.

    One that fails, else one that is open, else the weakest.
    """
    if all(each.spread.n == 0 for each in outcomes):
        return Reading(name, OPEN, "there are no such runs")
    order = {FAILS: 0, OPEN: 1, HOLDS: 2}
    worst = min(
        outcomes,
        key=lambda each: (order[each.verdict], -np.inf if isnan(each.favour) else each.favour),
    )
    levels = [Reading(each.level, each.verdict, each.says, *each.spread) for each in outcomes]
    says = f"{worst.says} ({worst.level})" if worst.level else worst.says
    return Reading(
        name, worst.verdict, says, *worst.spread, levels=tuple(levels) if len(levels) > 1 else ()
    )


def _decided(spread: Spread, test: str, margin: float) -> tuple[str, float]:
    """Return the verdict on one spread, and how much it speaks for the claim.

    The less favourable end of its interval counts.
    """
    if test != "similar":
        sign = 1.0 if test == "higher" else -1.0
        return verdict_of(spread, margin, sign), spread.low if sign > 0 else -spread.high
    inside = -margin <= spread.low and spread.high <= margin
    outside = spread.low > margin or spread.high < -margin
    known = spread.n >= FEWEST_FOR_AN_INTERVAL
    verdict = HOLDS if inside and known else FAILS if outside and known else OPEN
    return verdict, -max(-spread.low, spread.high)


def _say(
    spread: Spread, metric: str, axis: str, wheres: Sequence[float], margin: float, *, reached: bool
) -> str:
    """Return a difference in words; one of when a target was `reached` has no point of the axis."""
    if spread.n < 2:
        return "one draw has no interval" if spread.n else "there are no such runs"
    if not isfinite(spread.mean):
        return "a run never came so far, or has no such metric"
    unit = "points" if metric == "test_accuracy" else "%"
    shown = [
        100 * v if metric == "test_accuracy" else 100 * np.expm1(v)
        for v in (spread.mean, spread.low, spread.high)
    ]
    equal = ", equal within the margin" if -margin <= spread.low and spread.high <= margin else ""
    first, last = f"{min(wheres):.4g}", f"{max(wheres):.4g}"
    where = first if first == last else f"{first} to {last}"
    at_point = f" at {where} {axis}" if metric not in WITHOUT_AXIS and not reached else ""
    return (
        f"{metric} {shown[0]:+.3g} {unit} ({shown[1]:+.3g} to {shown[2]:+.3g}){at_point}, n "
        f"= {spread.n}{equal}"
    )


def ordered(
    name: str,
    groups: Mapping[str, Sequence[Found]],
    ask: Table,
    targets: Mapping[int, float] | None = None,
) -> Reading:
    """Decide whether the metric improves from each level to the next."""
    better = "higher" if ask.get("metric") == "test_accuracy" else "lower"
    steps = {
        f"{late} against {early}": (groups[late], groups[early]) for early, late in pairwise(groups)
    }
    return compare_pairs(name, steps, {**ask, "test": better}, targets)


def explained(groups: Mapping[str, Sequence[Found]], level: str = "") -> Outcome:
    """Decide "because": how much of the gain log(other/ours) a control has which lacks the cause.

    If it has nine tenths or more the cause has nothing left to explain; a tenth or less supports
    it.
    """
    sides = {key: by_seed(runs) for key, runs in groups.items()}
    seeds = sorted(set.intersection(*(set(side) for side in sides.values())))
    gains, controls = [], []
    for seed in seeds:
        where = reach([side[seed] for side in sides.values()], "gradients")
        loss = {
            key: log(at(side[seed].run, "gradients", where, "train_loss"))
            for key, side in sides.items()
        }
        gains.append(loss["other"] - loss["ours"])
        controls.append(loss.get("control_other", loss["other"]) - loss["control"])
    gain = paired(gains)
    if gain.n < FEWEST_FOR_AN_INTERVAL or not isfinite(gain.mean):
        says = "too few draws, or one that diverged" if gain.n else "there are no such runs"
        return Outcome(level, OPEN, -np.inf, gain, says)
    told = (
        f"a gain of {gain.mean:+.3g} in log loss ({gain.low:+.3g} to {gain.high:+.3g}), n "
        f"= {gain.n}"
    )
    if gain.low <= MARGIN:
        known = gain.high <= MARGIN
        says = "there is no gain to explain" if known else "it is open whether there is a gain"
        return Outcome(level, FAILS if known else OPEN, gain.low, gain, f"{says}: {told}")
    share = float(np.mean(controls) / gain.mean)
    most, least = (paired(list(np.array(controls) - part * np.array(gains))) for part in (0.9, 0.1))
    verdict = FAILS if most.low >= 0 else HOLDS if least.high <= 0 else OPEN
    return Outcome(level, verdict, -share, gain, f"{100 * share:.3g} % of {told}")


def formula(name: str, asked: Formula, runs: Sequence[Found]) -> Reading:
    """Decide whether a quantity agrees with its printed formula in every run.

    Within 2 % or one count.
    """
    if not runs:
        return Reading(name, OPEN, "there are no such runs")
    pairs = [asked.values(found.run, found.facts) for found in runs]
    off = [abs(measured - wanted) / max(abs(wanted), 1e-12) for measured, wanted in pairs]
    loose = [
        max(FORMULA_MARGIN, 1 / max(wanted, 1.0)) if asked.counted else FORMULA_MARGIN
        for _, wanted in pairs
    ]
    worst = int(np.argmax(np.array(off) - np.array(loose)))
    measured, wanted = pairs[worst]
    if asked.truth:
        kappa = runs[worst].run.last("kappa")
        says = (
            f"computes in {100 * kappa:.3g} % of the slots, {runs[worst].run.last('gradients'):g} "
            "gradients"
        )
    else:
        says = f"measured {measured:.4g}, printed {asked.printed} = {wanted:.4g}, n = {len(runs)}"
    return Reading(name, HOLDS if off[worst] <= loose[worst] else FAILS, says, len(runs))
