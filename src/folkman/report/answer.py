"""The answer that a report begins with: who won, by how much, how sure, and what it cost.

A winner has the best mean over the seeds that all methods have. It is sure if the paired 95 %
interval of its difference from every other method leaves out 0, which takes at least three seeds,
and differences that are not by chance the same in all of them; otherwise it is said to be tied with
those that are not told apart from it. A method with too few seeds to be
compared is named, and not ranked. Costs are those of the first recorded slot at which a run reaches
a target that every run of the comparison reaches.
"""

from collections.abc import Mapping, Sequence
from math import floor, isfinite, log10, nan
from typing import NamedTuple

import numpy as np

from folkman.record.run import FINISHED, HIGHER_IS_BETTER, Run
from folkman.report.comparison import ArmTable, common_seeds, compare_arms
from folkman.report.networks import IDEAL
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, half_width, paired
from folkman.report.tables import MOST_PLAIN, spread

__all__ = ["CURRENCIES", "Cost", "Costs", "answer", "costs_to", "learners", "quantity"]
__all__ += ["NOUNS"]

CURRENCIES: dict[str, tuple[str, str]] = {
    "seconds": ("s", "time"),
    "gradients": ("gradients per node", "gradients"),
    "bits": ("bit", "bits"),
    "energy_j": ("J", "energy"),
}
"""Axis of cost -> its unit, and what it is called."""
LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SMALL = ((1e-3, "m"), (1e-6, "µ"))
SCALES = {
    "seconds": ((1.0, ""), *SMALL),
    "bits": (*LARGE, (1.0, "")),
    "energy_j": (*LARGE, (1.0, ""), *SMALL),
}
"""Axis of cost -> the sizes of its units and their letters, the largest first."""

NOUNS = {"train_loss": "training loss", "test_accuracy": "accuracy"}
MOST_TIED = 4
"""Methods that are named where more are tied."""
NOWHERE: Mapping[str, str] = {}
"""Where nobody says on which network methods run: they count as on one."""


class Cost(NamedTuple):
    """What one method paid: mean and half of the 95 % interval over seeds."""

    label: str
    mean: float
    half: float
    by_seed: Mapping[int, float]


class Costs(NamedTuple):
    """What methods paid on one axis for the same target, the cheapest first."""

    metric: str
    target: float
    axis: str
    paid: Sequence[Cost]
    apart: Sequence[Cost] = ()  # by methods on another network
    set_by: str = ""  # whose run reaches no lower loss than the target

    @property
    def sure(self) -> bool:
        """Tell whether everybody else is told apart from who paid least."""
        return all(_apart(self.paid[0], cost) for cost in self.paid[1:])

    def cheapest(self) -> str:
        """Return who paid least, and that it is tied where somebody is not told apart from it."""
        return self.paid[0].label if self.sure else f"{self.paid[0].label} (tied)"

    def told(self) -> str:
        """Return it as a sentence that begins with the conclusion."""
        beside = "; ".join(f"{c.label} {quantity(self.axis, c.mean)}" for c in self.apart)
        return self._conclusion() + (f" On another network: {beside}." if beside else "")

    def _conclusion(self) -> str:
        goal = f"{NOUNS[self.metric]} {self.target:.3g}"
        first, *others = self.paid
        what = CURRENCIES[self.axis][1]
        if not others:
            return f"{first.label} needs {quantity(self.axis, first.mean)} to {goal}."
        tied = [cost for cost in others if not _apart(first, cost)]
        shown = "; ".join(f"{c.label} {quantity(self.axis, c.mean)}" for c in self.paid[:4])
        few = min(len(first.by_seed.keys() & cost.by_seed.keys()) for cost in others)
        if few < FEWEST_FOR_AN_INTERVAL:
            return f"In {what} to {goal}, with {_seeds(few)}: {shown}."
        if len(tied) == len(others) and all(_alike(first, cost) for cost in others):
            return f"In {what} to {goal}, all seeds alike: {shown}."
        if len(tied) == len(others):
            return f"No clear difference in {what} to {goal}: {shown}."
        least = {"gradients": "fewest gradients", "bits": "fewest bits"}.get(
            self.axis, f"least {what}"
        )
        named = ", ".join(cost.label for cost in tied[:3]) + (", ..." if len(tied) > 3 else "")
        also = f" (tied: {named})" if tied else ""
        return f"{first.label} needs the {least} to {goal}{also}: {shown}."


def quantity(axis: str, value: float) -> str:
    """Return an amount with its unit, in three digits, or as whole digits from 1000 on."""
    unit = CURRENCIES[axis][0]
    if not isfinite(value):
        return "-"
    if axis == "gradients":
        return _digits(value, 4)
    size, letter = next(
        ((s, le) for s, le in SCALES[axis] if abs(float(f"{value:.3g}")) >= s),
        SCALES[axis][-1] if value else (1.0, ""),
    )
    return f"{_digits(value / size, 3)} {letter}{unit}"


def _digits(value: float, count: int) -> str:
    """Return a number in so many digits; larger ones whole, and from 1e5 on with an exponent."""
    short = f"{value:.{count}g}"
    return f"{value:.0f}" if "e+" in short and abs(value) < MOST_PLAIN else short


def _apart(a: Cost, b: Cost) -> bool:
    """Tell whether two costs differ by more than chance, seed by seed."""
    found = paired(a.by_seed, b.by_seed)
    return found.num_seeds >= FEWEST_FOR_AN_INTERVAL and found.apart


def _alike(a: Cost, b: Cost) -> bool:
    """Tell whether two costs differ by the same in every seed."""
    return paired(a.by_seed, b.by_seed).alike


def learners(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of those labels of which every run learns, as far as that is known."""
    bad = {run.label for run in runs if run.verdict not in ("", FINISHED)}
    return [run for run in runs if run.rows and run.label not in bad]


def costs_to(
    runs: Sequence[Run], metric: str, axis: str, networks: Mapping[str, str] | None = NOWHERE
) -> Costs | None:
    """Return what each method paid for the best value of a metric that all runs reach.

    None where that is the value that they begin with, or the axis is not known. Methods that are
    not on the network of most are apart; see `answer`. Without networks (None) runs met unlike
    settings, and no cost is compared. As in `answer`, seeds count that all methods have.
    """
    if networks is None:
        return None
    begun = [run for run in learners(runs) if isfinite(run.last(metric))]
    known = _comparable(begun)[0] if begun else []
    if not known or not all(isfinite(run.last(axis)) for run in known):
        return None
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    reached = [min(sign * value for value in run.column(metric)) for run in known]
    target = max(reached)
    if target >= max(sign * run.column(metric)[0] for run in known):
        return None
    paid: dict[str, dict[int, float]] = {}
    for run in known:
        values, spent = run.column(metric), run.column(axis)
        at = next(cost for value, cost in zip(values, spent, strict=True) if sign * value <= target)
        paid.setdefault(run.label, {})[run.seed] = at
    found = [
        Cost(label, float(np.mean([*own.values()])), float(half_width([*own.values()])), own)
        for label, own in paid.items()
    ]
    found.sort(key=lambda cost: cost.mean)
    main = _labels(_main(known, networks)[0])
    rivals = [cost for cost in found if cost.label in main]
    apart = [cost for cost in found if cost.label not in main]
    return Costs(metric, sign * target, axis, rivals, apart, known[reached.index(target)].label)


def answer(runs: Sequence[Run], networks: Mapping[str, str]) -> list[str]:
    """Return the answer in sentences.

    `networks` says on which network each label ran; methods are ranked on the network of most, and
    the others are named apart.
    """
    begun = [run for run in runs if run.rows]
    if not begun:
        return []
    main, apart = _main(begun, networks)
    if len(_labels(main)) == 1:
        compared, lines = main, _alone(main)
    else:
        where = f" on the network '{networks[main[0].label]}'" if apart else ""
        compared, left = _comparable(main)
        lines = (_ranked(compared, where) if compared else []) + left
    lines += _beside(apart, networks)
    few = min((len(own) for own in _arms(compared).values()), default=0)
    if 0 < few < FEWEST_FOR_AN_INTERVAL:
        lines.append(
            f"With {_seeds(few)} chance and effect cannot be told apart. Use at least three, for "
            "example seeds = [0, 1, 2, 3, 4]."
        )
    return lines


def _seeds(count: int) -> str:
    return {0: "no common seed", 1: "one seed", 2: "two seeds"}.get(count, f"{count} seeds")


def _comparable(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs of seeds that all labels have, and a line on what that leaves out.

    Labels with the fewest seeds are left out where the common seeds would be too few otherwise.
    """
    seeds = {label: set(own) for label, own in _arms(runs).items()}
    kept, common = common_seeds(seeds)
    if not common:
        return [], [f"No seed is common to {', '.join(kept)}, and so they are not ranked."]
    left = [f"{label} ({_seeds(len(seeds[label]))})" for label in seeds if label not in kept]
    named = ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
    lines = [f"With too few seeds, and so not ranked: {named}."] if left else []
    if any(seeds[label] != common for label in kept):
        lines.append(f"Compared over what all of them have: {_seeds(len(common))}.")
    return [run for run in runs if run.label in kept and run.seed in common], lines


def _labels(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.label for run in runs))


def _main(runs: Sequence[Run], networks: Mapping[str, str]) -> tuple[list[Run], list[Run]]:
    """Return the runs on the network that most labels have, and the others."""
    names = [networks.get(label, "") for label in _labels(runs)]
    most = max(dict.fromkeys(names), key=names.count)
    main = [run for run in runs if networks.get(run.label, "") == most]
    return main, [run for run in runs if networks.get(run.label, "") != most]


def _alone(runs: Sequence[Run]) -> list[str]:
    label, seconds = runs[0].label, runs[0].last("seconds")
    lines = []
    bad = sum(not isfinite(run.last("train_loss")) for run in runs)
    if bad:
        which = f"in {bad} of {len(runs)} runs " if len(runs) > 1 else ""
        return [f"{label} diverged: {which}its training loss is not finite at the end."]
    start, end = (_over(runs, "train_loss", at) for at in (0, -1))
    lines.append(
        f"{label} changes the training loss from {start[0]:.4g} to {_with(end)} "
        f"in {quantity('seconds', seconds)}."
    )
    accuracy = _over(runs, "test_accuracy", -1)
    if isfinite(accuracy[0]):
        lines.append(f"Its accuracy at the end is {_with(accuracy)}.")
    return lines


def _over(runs: Sequence[Run], metric: str, at: int) -> tuple[float, float]:
    """Return mean and half-width over runs of a metric at a recorded row."""
    values = np.array([run.rows[at].get(metric, nan) for run in runs])
    return float(values.mean()), float(half_width(values)) if len(values) > 1 else nan


def _with(value: tuple[float, float]) -> str:
    """Return a mean that ends where its interval ends."""
    return spread(*value)


def _arms(runs: Sequence[Run]) -> dict[str, dict[int, Run]]:
    arms: dict[str, dict[int, Run]] = {}
    for run in runs:
        arms.setdefault(run.label, {})[run.seed] = run
    return arms


def _ranked(runs: Sequence[Run], where: str) -> list[str]:
    """Return who has the lowest loss and who the highest accuracy, and how sure that is."""
    metrics = [m for m in NOUNS if any(isfinite(run.last(m)) for run in runs)]
    found = compare_arms(_arms(runs), metrics)
    first = {metric: _first(found, metric) for metric in metrics}
    if not any(first.values()):
        return [f"No method has a finite loss in all of its runs{where}."
                if metrics else f"No run has a finite loss{where}."]  # fmt: skip
    lines = []
    same = len(metrics) == 2 and first[metrics[0]] == first[metrics[1]]
    level = any(found.tied(metric) for metric in metrics)
    if same and len(first[metrics[0]]) == 1 and not level:
        (best,) = first[metrics[0]]
        loss, hit = (found.cells[best, metric] for metric in metrics)
        lines.append(
            f"{best} ends best{where}: training loss {_with((loss.mean, loss.half))}, "
            f"accuracy {_with((hit.mean, hit.half))}."
        )
    else:
        for metric in (metric for metric in metrics if first[metric]):
            lines.append(_leading(found, metric, first[metric], where))
            where = ""
    return lines + [line for m in metrics if first[m] and (line := _sureness(found, m, first[m]))]


def _first(found: ArmTable, metric: str) -> list[str]:
    """Return the winner and whoever has the same mean; nobody where no mean is finite."""
    best = found.cells[found.references[metric], metric].mean
    return [arm for arm in found.arms if found.cells[arm, metric].mean == best and isfinite(best)]


def _leading(found: ArmTable, metric: str, first: Sequence[str], where: str) -> str:
    """Return who is first in a metric, or who shares that place."""
    cell = found.cells[first[0], metric]
    most = "highest" if metric in HIGHER_IS_BETTER else "lowest"
    if tied := [arm for arm in found.tied(metric) if arm not in first]:
        shown = [f"{arm} {_mean_of(found, arm, metric)}" for arm in [*first, *tied]]
        more = f"; and {len(shown) - MOST_TIED} more" if len(shown) > MOST_TIED else ""
        which = "" if len(shown) == len(found.arms) else f" for the {most}"
        return f"Tied{which} in {NOUNS[metric]}{where}: {'; '.join(shown[:MOST_TIED])}{more}."
    if len(first) == 1:
        value = _with((cell.mean, cell.half))
        return f"{first[0]} has the {most} {NOUNS[metric]}{where}: {value}."
    among = "" if len(first) == len(found.arms) else f", the {most}"
    return f"{', '.join(first)} are equal in {NOUNS[metric]}{where}: {cell.mean:.4g}{among}."


def _mean_of(found: ArmTable, arm: str, metric: str) -> str:
    cell = found.cells[arm, metric]
    return _with((cell.mean, cell.half))


def _sureness(found: ArmTable, metric: str, first: Sequence[str]) -> str:
    """Return by how much the winner is ahead of the next, and who cannot be told from it."""
    best, noun = found.references[metric], NOUNS[metric]
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    rest = {
        arm: found.cells[arm, metric]
        for arm in found.arms
        if arm not in first and isfinite(found.cells[arm, metric].difference)
    }
    if not rest:
        return ""
    second = min(rest, key=lambda arm: sign * rest[arm].mean)
    cell = rest[second]
    ahead, half = sign * cell.difference, cell.difference_half
    gap = f"The {noun} of {second}, the next, is {ahead:.3g} {'lower' if sign < 0 else 'higher'}"
    if cell.num_paired < FEWEST_FOR_AN_INTERVAL or not isfinite(half):
        return f"{gap}."
    tied = [arm for arm in rest if rest[arm].rank == "tied"]
    if cell.alike:
        others = ", ".join(arm for arm in tied if arm != second)
        also = f" {others} cannot be told from {best}." if others else ""
        return (
            f"{gap}, the same in all {cell.num_paired} seeds, which says nothing of chance.{also}"
        )
    how = (
        f"95 % interval {_ends(ahead, half)}, {cell.num_paired} seeds paired, "
        f"p {_p(ahead, half, cell.num_paired)}"
    )
    names = ", ".join(tied)
    if second in tied:
        how = how if len(tied) == 1 else f"{second}: {how}"
        return f"In {noun} this is no clear lead: {names} cannot be told from {best} ({how})."
    return f"{gap} ({how})." + (f" {names} cannot be told from {best}." if tied else "")


def _ends(middle: float, half: float) -> str:
    """Return the ends of an interval, with two digits of its half width and three of the ends."""
    low, high = middle - half, middle + half
    wide = max(abs(low), abs(high)) / half if half > 0 else 1.0
    digits = max(3, 2 + floor(log10(wide)))
    return f"{low:.{digits}g} to {high:.{digits}g}"


def _p(ahead: float, half: float, count: int) -> str:
    """Return p of the paired t test, from a difference and half of its 95 % interval."""
    from scipy.special import stdtr, stdtrit

    if half == 0:  # equal in every seed, or neither depends on it
        return "< 0.001" if ahead else "= 1"
    p = float(2 * stdtr(count - 1, -ahead / half * stdtrit(count - 1, 0.975)))
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


def _beside(apart: Sequence[Run], networks: Mapping[str, str]) -> list[str]:
    """Return sentences on methods that ran on another network: references, and others."""
    told: dict[bool, list[str]] = {True: [], False: []}
    for label in _labels(apart):
        loss = _over([run for run in apart if run.label == label], "train_loss", -1)
        value = _with(loss) if isfinite(loss[0]) else "not finite"
        free = networks[label].partition(",")[0] == IDEAL
        told[free].append(f"{label} (network '{networks[label]}', training loss {value})")
    words = "a reference, not an opponent" if len(told[True]) == 1 else "references, not opponents"
    what = {True: words, False: "not ranked"}
    return [
        f"On another network, and so {what[free]}: {'; '.join(lines)}."
        for free, lines in told.items()
        if lines
    ]
