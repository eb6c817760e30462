"""The tests that decide claims: paired over draws, with an interval and the size of the effect.

Two runs of one draw (first model, delays, fading) are compared where both still go on: at the
largest value of the axis that both reach. For losses and durations the difference is log(ours /
other), for accuracies ours - other. A loss or an accuracy is the median over the last quarter of
the way there, and the last value is looked at beside it: where the two lead to different verdicts,
the reading is open. The statistics are those of `folkman.papers.evidence`, the words those of
`folkman.papers.verdicts`.

    lower, higher   a difference is shown, after the correction for the number of tests, and is not
                    within the margin of what counts as equal
    ordered         the same for every step from one level to the next
    similar         the 90 % interval lies within the margin
    oftener         more runs of one side are thrown back
    explained       which part of a gain a control shows that lacks what the claim gives as the
                    cause

With targets the time to reach them is compared, and who never comes there is later.

`ranks` of claims.toml has the first draw of each later plan. The draws of the newest plan that has
enough decide, by their ranks, and all others are left out: no test has draws of two plans. A last
value that decides nothing does not open what their median decides.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite, isnan, log, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from folkman.checks import require
from folkman.papers.evidence import (
    FEWEST_FOR_RANKS,
    LEVEL,
    Spread,
    corrected,
    draws_needed,
    fisher,
    paired,
    ranked,
    sooner,
    thrown_back,
)
from folkman.papers.paper import Found
from folkman.papers.results import QUARTER, late_points, settled
from folkman.papers.verdicts import (
    CONTRADICTED,
    EQUAL,
    HOLDS,
    NOT_RUN,
    OPEN,
    PARTLY,
    VACUOUS,
    Reading,
    weakest,
)
from folkman.record import run as record
from folkman.record.json_file import Table
from folkman.record.run import Run
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL

__all__ = ["MARGINS", "Leaf", "Reading", "compare_pairs", "correct", "decide", "explained"]
__all__ += ["leaves_of", "oftener", "ordered"]

MARGINS = {"test_accuracy": 0.002, "gamma_t": 0.05, "gamma_w": 0.05}
MARGINS |= {"mean_age": 0.05, "max_age": 0.05}
"""Differences that count as none: two in a thousand images; 5 % of ages and durations, which have
no noise; 2 % of anything else, as much as one setting differs from itself compiled anew."""
MARGIN = 0.02

DIVERGED = log(1e6)
"""The most that one run counts as behind another, diverged or not: it decides nothing unless other
draws agree."""

FRESH = ", fresh draws"
"""Said of what new draws decide, in a folder that has older ones too."""

WITHOUT_AXIS = ("gamma_t", "gamma_w", "mean_age", "max_age")
"""Metrics that are told without the point of the axis: they are of the whole run."""


class Leaf(NamedTuple):
    """What was found at one level of a reading: all that a verdict needs but the correction."""

    level: str
    sign: int  # -1: lower is claimed; 1: higher; 0: equal
    spread: Spread  # by the median of the last quarter
    last: Spread  # by the last value
    margin: float
    says: str
    fixed: tuple[str, str] | None = None  # verdicts by both that no correction changes
    share: float = nan  # of a gain that a control has
    ranked: bool = False  # by draws that ranks decide

    @property
    def key(self) -> str:
        """Return what tells this test from others: equal numbers are one test."""
        return f"{self.spread.n} {abs(self.spread.mean):.12g} {self.spread.p:.12g}"

    @property
    def last_key(self) -> str:
        """Return the same of the test by the last value."""
        return f"{self.last.n} {abs(self.last.mean):.12g} {self.last.p:.12g}"


class Correction(NamedTuple):
    """Corrected p by the keys of leaves."""

    spread: Mapping[str, float]
    last: Mapping[str, float]


def correct(leaves: Sequence[Leaf]) -> Correction:
    """Correct the p of a family: all its tests of a difference, equal ones once."""
    tests = [leaf for leaf in leaves if leaf.sign and leaf.fixed is None]
    return Correction(
        corrected({leaf.key: leaf.spread.p for leaf in tests}),
        corrected({leaf.last_key: leaf.last.p for leaf in tests}),
    )


def decide(name: str, leaves: Sequence[Leaf], correction: Correction) -> Reading:
    """Decide a reading: each of its levels, then the one that speaks least for the claim."""
    if not leaves or all(leaf.spread.n == 0 for leaf in leaves):
        return Reading(name, NOT_RUN, "no such runs")
    levels = [_decided(leaf, correction) for leaf in leaves]
    verdict = weakest([each.verdict for each in levels])
    favours = [-_against(leaf) for leaf in leaves]
    ranked = [(f, i) for i, f in enumerate(favours) if levels[i].verdict == verdict]
    worst = levels[min(ranked)[1]]
    says = f"{worst.says} ({worst.name})" if worst.name else worst.says
    shown = tuple(levels) if len(levels) > 1 else ()
    return worst._replace(name=name, says=says, levels=shown)


def _against(leaf: Leaf) -> float:
    """Return how much the end of the interval that speaks least for the claim speaks against it."""
    if leaf.fixed is not None:
        return np.inf if isnan(leaf.share) else leaf.share
    spread = leaf.spread
    ends = {-1: spread.high, 1: -spread.low, 0: max(-spread.low, spread.high)}[leaf.sign]
    if isnan(ends):
        ends = -leaf.sign * spread.mean
    return np.inf if isnan(ends) else ends


def _decided(leaf: Leaf, correction: Correction) -> Reading:
    """Decide one level by the median and by the last value; if they disagree it is open."""
    q = correction.spread.get(leaf.key, nan)
    q_last = correction.last.get(leaf.last_key, nan)
    if leaf.fixed is not None:
        by_median, by_last = leaf.fixed
    else:
        by_median = _word(leaf.spread, leaf, q)
        by_last = _word(leaf.last, leaf, q_last)
    agree = by_last == by_median or (leaf.ranked and by_last == OPEN)
    verdict = by_median if agree else OPEN
    says = leaf.says
    if leaf.fixed is None and isfinite(leaf.spread.p) and leaf.sign:
        says += f", p = {leaf.spread.p:.2g}, corrected {q:.2g}"
    if not agree:
        says += f"; {by_median} by the median, {by_last} by the last value"
    equal = leaf.sign == 0
    needed = draws_needed(leaf.spread, leaf.margin, equal=equal) if verdict == OPEN else None
    numbers = (*leaf.spread[:5], (), leaf.spread.p, q, by_last, leaf.margin, needed, leaf.ranked)
    return Reading(leaf.level, verdict, says, *numbers)


def _word(spread: Spread, leaf: Leaf, q: float) -> str:
    """Return the word for one spread."""
    if spread.n == 0:
        return NOT_RUN
    if spread.n < FEWEST_FOR_AN_INTERVAL or isnan(spread.mean):
        return OPEN
    if leaf.sign == 0:
        outside = spread.low > leaf.margin or spread.high < -leaf.margin
        return HOLDS if spread.within(leaf.margin) else CONTRADICTED if outside else OPEN
    if spread.within(leaf.margin):
        return EQUAL
    if not q <= LEVEL:
        return OPEN
    return HOLDS if spread.mean * leaf.sign > 0 else CONTRADICTED


def difference(ours: float, other: float, metric: str) -> float:
    """Return log(ours / other), of accuracies ours - other; who diverged is far behind."""
    if metric == "test_accuracy":
        return ours - other
    if not (ours > 0 and other > 0):
        return nan if ours != other else 0.0
    if np.isinf(ours) and np.isinf(other):
        return nan
    return float(np.clip(np.log(ours) - np.log(other), -DIVERGED, DIVERGED))


def first_reach(run: Run, target: float) -> float:
    """Return the gradients after which the loss is first at most `target`, NaN if never."""
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
    """Return one run per draw; refuse two, which a claim that says too little would mix."""
    chosen: dict[int, Found] = {}
    for found in runs:
        known = chosen.setdefault(found.seed, found)
        require(
            known.run.label == found.run.label,
            f"expected one run a draw, got two of draw {found.seed}: {dict(known.facts)} and "
            f"{dict(found.facts)}; say more in the claim",
        )
    return chosen


def reach(runs: Sequence[Found], axis: str) -> float:
    """Return the largest value of an axis that all runs reach, those that diverged aside."""
    ends = [found.run.last(axis) for found in runs if found.run.status != record.DIVERGED]
    return min(ends, default=nan)


SIGNS = {"lower": -1, "higher": 1, "similar": 0}


def deciding(seeds: Sequence[int], ranks: Sequence[int]) -> tuple[list[int], bool]:
    """Return the draws that decide, and whether by ranks: of the newest plan with enough."""
    for first, end in newest_first(ranks):
        new = [seed for seed in seeds if first <= seed < end]
        if len(new) >= FEWEST_FOR_RANKS:
            return new, True
    return [seed for seed in seeds if seed < min(ranks, default=inf)], False


def newest_first(ranks: Sequence[int]) -> list[tuple[int, float]]:
    """Return the first draw of each plan and the first that is no more of it, newest plan first."""
    return [*zip(ranks, (*ranks[1:], inf), strict=False)][::-1]


def leaves_of(
    pairs: Mapping[str, tuple[Sequence[Found], Sequence[Found]]],
    ask: Table,
    targets: Mapping[int, float] | None = None,
) -> list[Leaf]:
    """Measure lower, higher or similar at each level."""
    metric, axis = ask.get("metric", "train_loss"), ask.get("axis", "gradients")
    margin, sign = ask.get("margin", MARGINS.get(metric, MARGIN)), SIGNS[ask["test"]]
    found = []
    for level, (ours, other) in pairs.items():
        left, right = by_seed(ours), by_seed(other)
        seeds, new = deciding(sorted(left.keys() & right.keys()), ask.get("ranks", ()))
        if targets is not None:
            times = [
                tuple(first_reach(side[seed].run, targets.get(seed, nan)) for side in (left, right))
                for seed in seeds
            ]
            found.append(_sooner(level, sign, times, new))  # type: ignore[arg-type] - two each
            continue
        wheres = [reach([left[seed], right[seed]], axis) for seed in seeds]
        spreads: list[Spread] = []
        for part in (ask.get("part", QUARTER), 0.0):
            values = []
            for seed, where in zip(seeds, wheres, strict=True):
                pair = (left[seed].run, right[seed].run)
                points = late_points(pair, axis, where, part)
                mine, theirs = (settled(run, axis, points, metric) for run in pair)
                values.append(difference(mine, theirs, metric))
            spreads.append(ranked(values) if new else paired(values))
        says = _say(spreads[0], metric, axis, wheres, margin) + (FRESH if new else "")
        found.append(Leaf(level, sign, spreads[0], spreads[1], margin, says, ranked=new))
    return found


def compare_pairs(
    name: str,
    pairs: Mapping[str, tuple[Sequence[Found], Sequence[Found]]],
    ask: Table,
    targets: Mapping[int, float] | None = None,
) -> Reading:
    """Decide lower, higher or similar at each level, as a family of its own."""
    leaves = leaves_of(pairs, ask, targets)
    return decide(name, leaves, correct(leaves))


def _sooner(level: str, sign: int, times: Sequence[tuple[float, float]], new: bool) -> Leaf:
    """Compare when runs came to a target: less is sooner, and "never" is later."""
    found = sooner(times)
    balance = (found.other - found.ours) / len(times) if times else nan
    spread = Spread(len(times), balance, nan, nan, nan, found.p)
    says = f"sooner in {found.ours} of {len(times)} draws, later in {found.other}"
    says += f", {found.ties} ties" if found.ties else ""
    return Leaf(level, sign, spread, spread, MARGIN, says + (FRESH if new else ""), ranked=new)


def oftener(
    level: str, ours: Sequence[Found], other: Sequence[Found], ranks: Sequence[int] = ()
) -> Leaf:
    """Compare how many runs of each side are thrown back; draws need not be the same."""
    sides, fresh = _of_one_plan([ours, other], ranks)
    counts = [
        (sum(thrown_back(f.run.column("train_loss")) for f in side), len(side)) for side in sides
    ]
    (k, n), (k_other, n_other) = counts
    if not (n and n_other):
        empty = Spread(0, nan, nan, nan, nan)
        return Leaf(level, 1, empty, empty, 0.0, "no such runs")
    spread = Spread(min(n, n_other), k / n - k_other / n_other, nan, nan, nan, fisher(*counts))
    says = f"{k} of {n} runs thrown back, {k_other} of {n_other}" + (FRESH if fresh else "")
    return Leaf(level, 1, spread, spread, 0.0, says, ranked=fresh)


def _of_one_plan(
    sides: Sequence[Sequence[Found]], ranks: Sequence[int]
) -> tuple[list[list[Found]], bool]:
    """Return the runs of the newest plan of which all sides have enough, and whether there is one.

    Without one the older runs.
    """
    for first, end in newest_first(ranks):
        new = [[found for found in side if first <= found.seed < end] for side in sides]
        if min(map(len, new)) >= FEWEST_FOR_RANKS:
            return new, True
    since = min(ranks, default=inf)
    return [[found for found in side if found.seed < since] for side in sides], False


def _say(spread: Spread, metric: str, axis: str, wheres: Sequence[float], margin: float) -> str:
    """Return a difference in words."""
    if spread.n < 2:
        return "one draw has no interval" if spread.n else "no such runs"
    if not isfinite(spread.mean):
        return "a run never came so far, or has no such metric"
    points = metric == "test_accuracy"
    unit = "points" if points else "%"
    ends = (spread.mean, spread.low, spread.high)
    shown = [100 * (value if points else np.expm1(value)) for value in ends]
    equal = ", equal within the margin" if spread.within(margin) else ""
    first, last = f"{min(wheres):.4g}", f"{max(wheres):.4g}"
    where = first if first == last else f"{first} to {last}"
    at_point = f" at {where} {axis}" if metric not in WITHOUT_AXIS else ""
    return (
        f"{metric} {shown[0]:+.3g} {unit} ({shown[1]:+.3g} to {shown[2]:+.3g}){at_point}, n "
        f"= {spread.n}{equal}"
    )


def ordered(
    groups: Mapping[str, Sequence[Found]],
    ask: Table,
    targets: Mapping[int, float] | None = None,
) -> list[Leaf]:
    """Measure whether the metric improves from each level to the next."""
    better = "higher" if ask.get("metric") == "test_accuracy" else "lower"
    steps = {f"{b} against {a}": (groups[b], groups[a]) for a, b in pairwise(groups)}
    return leaves_of(steps, {**ask, "test": better}, targets)


def explained(
    groups: Mapping[str, Sequence[Found]],
    level: str = "",
    part: float = QUARTER,
    ranks: Sequence[int] = (),
) -> Leaf:
    """Decide "because": how much of the gain log(other/ours) a control has which lacks the cause.

    If it has nine tenths or more the cause has nothing left to explain; a tenth or less supports
    it. In between, shown against both limits, it is one cause of several. Where there is no gain
    the claim is vacuous.
    """
    sides = {key: by_seed(runs) for key, runs in groups.items()}
    seeds, new = deciding(sorted(set.intersection(*(set(side) for side in sides.values()))), ranks)
    spread_of = ranked if new else paired
    found = [_explained(sides, seeds, spread_of, each) for each in (part, 0.0)]
    (gain, word, says, share), (last, word_last, _, _) = found
    says += FRESH if new else ""
    return Leaf(level, -1, gain, last, MARGIN, says, (word, word_last), share, new)


def _explained(
    sides: Mapping[str, Mapping[int, Found]],
    seeds: Sequence[int],
    spread_of: Callable[[ArrayLike], Spread],
    part: float,
) -> tuple[Spread, str, str, float]:
    """Return the gain, the word, what it says and the control's share, by one statistic."""
    gains, controls = [], []
    for seed in seeds:
        runs = {key: side[seed] for key, side in sides.items()}
        where = reach([*runs.values()], "gradients")
        points = late_points([found.run for found in runs.values()], "gradients", where, part)
        place = ("gradients", points, "train_loss")
        loss = {key: log(settled(found.run, *place)) for key, found in runs.items()}
        gains.append(loss["other"] - loss["ours"])
        controls.append(loss.get("control_other", loss["other"]) - loss["control"])
    gain = spread_of(gains)
    if gain.n < FEWEST_FOR_AN_INTERVAL or not isfinite(gain.mean):
        says = "too few draws, or one that diverged" if gain.n else "no such runs"
        return gain, OPEN if gain.n else NOT_RUN, says, nan
    told = f"a gain of {gain.mean:+.3g} in log loss ({gain.low:+.3g} to {gain.high:+.3g})"
    told += f", n = {gain.n}"
    if gain.low <= MARGIN:
        known = gain.high <= MARGIN
        says = "there is no gain to explain" if known else "it is open whether there is a gain"
        return gain, VACUOUS if known else OPEN, f"{says}: {told}", nan
    share = spread_of(controls).mean / gain.mean
    most, least = (spread_of(np.array(controls) - p * np.array(gains)) for p in (0.9, 0.1))
    between = most.high < 0 < least.low
    decided = CONTRADICTED if most.low >= 0 else HOLDS if least.high <= 0 else OPEN
    word = PARTLY if between else decided
    return gain, word, f"the control has {100 * share:.3g} % of {told}", share
