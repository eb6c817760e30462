"""The search for the best options of one method: successive halving on a grid, within a budget.

    search = halving(axes, start, seeds=2, budget=28)
    found = solved(search, score)

It is pure: it yields the trials that it wants and is sent their scores. A **setting** has one
value for each axis; a **trial** is a setting under one seed; less is better.

1. Every point of the grid is tried under the first seed, and the configured setting under all.
2. While the best point lies at an end of an axis that may be extended, one more value is tried
   beyond that end, if the budget allows it.
3. The better half is tried under the second seed, the better half of it under the third, and so on.
4. What is left of the budget is spent around the best setting, where an axis may be refined.

A trial that diverged has the score infinity. Among equal scores the first in the order of the grid
wins, which is the smallest step.
"""

import itertools
import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from folkman.checks import require

__all__ = ["Axis", "Search", "Setting", "Solution", "Trial", "halving", "least_budget", "solved"]
__all__ += ["usual_budget"]

Setting: TypeAlias = tuple[float, ...]
Trial: TypeAlias = tuple[Setting, int]
"""A setting and the number of a seed, counted from 0."""

EXTENSIONS = 6
"""Values beyond the grid that the usual budget has room for."""
REFINEMENTS = 2
"""Rounds of two settings around the best one that the usual budget has room for."""
FINEST_RATIO = 1.3
"""Steps nearer to each other than this are not told apart."""


class Axis(NamedTuple):
    """One option and the values to try, increasing."""

    name: str
    values: tuple[float, ...]
    below: bool = False  # smaller values may be added
    above: bool = False  # larger values may be added, up to `most`
    most: float = math.inf
    finer: bool = False  # values in between may be added

    @property
    def whole(self) -> bool:
        """Tell whether the option counts something."""
        return all(isinstance(value, int) for value in self.values)

    def next(self, value: float, *, up: bool) -> float | None:
        """Return the value beyond an end, in the ratio of the two nearest it; None if none may."""
        if not (self.above if up else self.below) or len(self.values) < 2 or self.values[0] <= 0:
            return None
        last, before = (self.values[-1], self.values[-2]) if up else self.values[:2]
        beyond = self.rounded(value * last / before)
        return beyond if beyond <= self.most and beyond != value else None

    def rounded(self, value: float) -> float:
        """Return a number of few digits: three, or one of a count."""
        return round(float(f"{value:.0e}")) if self.whole else float(f"{value:.2e}")


class Solution(NamedTuple):
    """The end of a search."""

    best: Setting
    score: float  # mean over the seeds
    start: Setting
    start_score: float
    scores: Mapping[Trial, float]  # all trials that were made
    at_edge: tuple[str, ...]  # options whose best value is at an end that could not be extended


Search: TypeAlias = Generator[list[Trial], Mapping[Trial, float], Solution]


def solved(search: Search, score: Callable[[Setting, int], float]) -> Solution:
    """Return what a search finds by a score function of a setting and the number of a seed."""
    wanted = next(search)
    while True:
        try:
            wanted = search.send({trial: score(*trial) for trial in wanted})
        except StopIteration as end:
            return end.value


def _rungs(points: int, seeds: int) -> list[int]:
    """Return how many settings are tried under each seed: n, n/2, n/4, ..., at least one."""
    return [math.ceil(points / 2**seed) for seed in range(seeds)]


def _points(axes: Sequence[Axis]) -> int:
    return math.prod(len(axis.values) for axis in axes)


def least_budget(axes: Sequence[Axis], seeds: int) -> int:
    """Return the runs that a grid needs: all its rungs, and the configured setting."""
    points = _points(axes)
    return points + seeds + sum(_rungs(points + 1, seeds)[1:])


def usual_budget(axes: Sequence[Axis], seeds: int) -> int:
    """Return the least budget and room to extend and to refine."""
    return least_budget(axes, seeds) + EXTENSIONS + 2 * REFINEMENTS * seeds


def halving(axes: Sequence[Axis], start: Setting, seeds: int, budget: int) -> Search:
    """Search the grid of `axes` within `budget` trials under `seeds` seeds; see above.

    `start` is the configured setting, which need not be on the grid.
    """
    needed = least_budget(axes, seeds)
    require(
        budget >= needed,
        f"a grid of {_points(axes)} settings under {seeds} seeds needs a budget of {needed} runs, "
        f"got {budget}; raise --budget, or give fewer values, as --over step=0.1,1",
    )
    known: dict[Trial, float] = {}
    first = list(itertools.product(*(axis.values for axis in axes)))
    before = [(start, seed) for seed in range(seeds)]
    yield from _tried(known, [*((setting, 0) for setting in first), *before])
    first += [] if start in first else [start]
    yield from _extended(known, axes, first, seeds, budget)
    kept = first
    for seed, number in list(enumerate(_rungs(len(first), seeds)))[1:]:
        kept = sorted(kept, key=lambda each: _mean(known, each, seed))[:number]
        yield from _tried(known, [(setting, seed) for setting in kept])
    yield from _refined(known, axes, seeds, budget)
    best = _best(known, seeds)
    tried = [setting for setting, _ in known]
    at_edge = [axes[place].name for place, _ in _ends(axes, best, tried)]
    scores = (_mean(known, best, seeds), start, _mean(known, start, seeds))
    return Solution(best, *scores, known, tuple(at_edge))


Step: TypeAlias = Generator[list[Trial], Mapping[Trial, float], None]


def _tried(known: dict[Trial, float], trials: Iterable[Trial]) -> Step:
    """Ask for the trials that are not known."""
    wanted = [trial for trial in dict.fromkeys(trials) if trial not in known]
    if wanted:
        scores = yield wanted
        known.update({trial: scores[trial] for trial in wanted})


def _mean(known: Mapping[Trial, float], setting: Setting, seeds: int) -> float:
    """Return the mean score over the first seeds; infinity where one diverged."""
    values = [known[setting, seed] for seed in range(seeds)]
    return math.fsum(values) / seeds if all(map(math.isfinite, values)) else math.inf


def _best(known: Mapping[Trial, float], seeds: int) -> Setting:
    """Return the best of the settings that were tried under all seeds."""
    whole = sorted(setting for setting, seed in known if seed == seeds - 1)
    return min(whole, key=lambda setting: _mean(known, setting, seeds))


def _ends(
    axes: Sequence[Axis], best: Setting, tried: Collection[Setting]
) -> list[tuple[int, float]]:
    """Return (place of the axis, value beyond it) for each end that `best` is at."""
    found = []
    for place, axis in enumerate(axes):
        column = [setting[place] for setting in tried]
        for up in (False, True):
            at_end = best[place] == (max(column) if up else min(column))
            beyond = axis.next(best[place], up=up) if at_end else None
            if beyond is not None:
                found.append((place, beyond))
    return found


def _beyond(axes: Sequence[Axis], best: Setting, tried: Collection[Setting]) -> list[Setting]:
    """Return the settings to try beyond the ends that `best` is at.

    Options depend on each other (more local steps want a smaller step), so that the other options
    are tried at their best values and at the next ones on both sides.
    """
    found = []
    for place, beyond in _ends(axes, best, tried):
        near = []
        for other, axis in enumerate(axes):
            column = sorted({setting[other] for setting in tried})
            at = column.index(best[other])
            near.append(column[max(at - 1, 0) : at + 2] if axis.above else [best[other]])
        near[place] = [beyond]
        found += itertools.product(*near)
    return list(dict.fromkeys(found))


def _extended(
    known: dict[Trial, float], axes: Sequence[Axis], first: list[Setting], seeds: int, budget: int
) -> Step:
    """Go beyond the ends of axes while the best lies there; new settings are added to `first`.

    What the next seeds need is left in the budget.
    """
    while True:
        least = min(known[each, 0] for each in first)
        bests = sorted(each for each in first if known[each, 0] == least)
        inside = [each for each in bests if not _ends(axes, each, first)]
        if math.isfinite(least) and inside:  # as good as what is at the end
            return
        more = _beyond(axes, bests[0], first)
        rest = sum(_rungs(len(first) + len(more), seeds)[1:])
        if not more or len(known) + len(more) + rest > budget:
            return
        yield from _tried(known, [(setting, 0) for setting in more])
        first += more


def _refined(known: dict[Trial, float], axes: Sequence[Axis], seeds: int, budget: int) -> Step:
    """Try settings between the best one and its neighbours, nearer in every round."""
    for place, axis in enumerate(axes):
        if not axis.finer or len(axis.values) < 2 or axis.values[0] <= 0:
            continue
        ratio = math.sqrt(axis.values[-1] / axis.values[-2])
        while ratio > FINEST_RATIO:
            best = _best(known, seeds)
            values = (axis.rounded(best[place] / ratio), axis.rounded(best[place] * ratio))
            around = [(*best[:place], value, *best[place + 1 :]) for value in values]
            trials = [(setting, seed) for setting in around for seed in range(seeds)]
            if len(known) + sum(trial not in known for trial in trials) > budget:
                return
            yield from _tried(known, trials)
            ratio = math.sqrt(ratio)
