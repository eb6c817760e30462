"""Arms side by side: each metric's mean and interval, paired differences, and the winner.

A difference is taken seed by seed, as all arms met the same draws: its 95 % interval (Student's) is
that of the mean of the differences, which is narrower than the two arms' own intervals suggest. The
best mean wins; an arm whose difference from the winner has an interval that contains 0 is tied with
it. So is an arm that varies with the seed and differs by the same in every one: without a spread
the interval says nothing. With one seed there is no interval, and nothing is tied. Intervals are
not adjusted for the number of arms. Means are over the seeds that all ranked arms have. An arm with
too few of them, and one whose messages take no time beside others whose do, is shown and not
ranked.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from folkman.checks import nearest, require
from folkman.record.json_file import Json
from folkman.record.run import AXES, DIVERGED, HIGHER_IS_BETTER, METRICS, Run, jsonable
from folkman.record.verdict import NOT_LEARNING
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, Paired, half_width, paired

__all__ = ["HIGHER_IS_BETTER", "ArmTable", "Cell", "common_seeds", "compare_arms", "complaints"]

FREE, FEW = "its messages take no time", "too few common seeds: it has {}"
"""Why an arm is not ranked."""


class Cell(NamedTuple):
    """One arm under one metric."""

    mean: float
    half: float  # NaN with one seed
    difference: float  # paired, from the reference arm; NaN for that arm itself
    difference_half: float
    num_seeds: int
    num_paired: int
    rank: str  # "winner", "tied", ""

    fixed: bool = False  # neither this arm nor the reference depends on the seed

    @property
    def alike(self) -> bool:
        """Tell whether a difference that chance has a part in is the same in every seed, not 0."""
        return Paired(self.difference, self.difference_half, self.num_paired, self.fixed).alike


class ArmTable(NamedTuple):
    """Arms by metrics."""

    arms: Sequence[str]
    metrics: Sequence[str]
    references: Mapping[str, str]  # metric -> the arm that differences are taken from
    cells: Mapping[tuple[str, str], Cell]  # (arm, metric)
    tuned: Mapping[str, str] = {}  # arm -> how it stands (`record.tuned`), where that is known
    searched: str = ""  # which options were tuned, in words
    objectives: Sequence[str] = ()  # what the arms minimise, as far as it is known
    unranked: Mapping[str, str] = {}  # arm -> why it is not ranked
    setting: str = ""  # the data and nodes that all arms share, in words

    def tied(self, metric: str) -> list[str]:
        """Return who cannot be told from the winner, the best first, by enough seeds to tell.

        A difference that is the same in every seed is not one of chance, nor surely another: it is
        no tie.
        """
        sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
        cells = {arm: self.cells[arm, metric] for arm in self.arms}
        found = [
            arm
            for arm, cell in cells.items()
            if cell.rank == "tied" and cell.num_paired >= FEWEST_FOR_AN_INTERVAL and not cell.alike
        ]
        return sorted(found, key=lambda arm: sign * cells[arm].mean)

    def rows(self) -> list[Json]:
        """Return one JSON object an arm and metric."""
        found = []
        for (arm, metric), cell in self.cells.items():
            values = {
                key: jsonable(value) if isinstance(value, float) else value
                for key, value in cell._asdict().items()
                if key != "fixed"
            }
            found.append(
                {"arm": arm, "metric": metric, "reference": self.references[metric], **values}
            )
        return found


def compare_arms(
    arms: Mapping[str, Mapping[int, Run]],
    metrics: Sequence[str],
    against: str | None = None,
    at: tuple[str, float] | None = None,
    bounds: Collection[str] = (),
) -> ArmTable:
    """Compare arms (arm -> seed -> run) at the last recorded slot.

    Or at the last one with axis `at[0]` <= `at[1]`. Arms in `bounds`, references
    for the others, are not ranked.
    """
    known = [*METRICS, *AXES]
    for metric in metrics:
        require(metric in known, f"there is no metric '{metric}'; {nearest(metric, known)}")
    require(
        against is None or against in arms,
        f"there is no arm '{against}'; {nearest(against or '', arms)}",
    )
    require(
        at is None or at[0] in AXES,
        f"there is no axis '{at and at[0]}'; {nearest(at[0] if at else '', AXES)}",
    )
    rivals = [arm for arm in arms if arm not in bounds] or list(arms)
    ranked, shared = common_seeds({arm: set(arms[arm]) for arm in rivals})
    unranked = {arm: FREE for arm in arms if arm not in rivals}
    few = {arm: FEW.format(len(arms[arm])) for arm in rivals if arm not in ranked or not shared}
    cells, references = {}, {}
    for metric in metrics:
        values = {
            arm: {seed: _value(run, metric, at) for seed, run in _counted(runs, shared).items()}
            for arm, runs in arms.items()
        }
        winner = _winner({arm: values[arm] for arm in ranked}, metric)
        references[metric] = against or winner
        for arm in arms:
            cell = _cell(values, arm, references[metric], winner)
            cells[arm, metric] = cell._replace(rank="") if arm in unranked | few else cell
    return ArmTable(list(arms), list(metrics), references, cells, unranked=unranked | few)


def common_seeds(seeds: Mapping[str, set[int]]) -> tuple[list[str], set[int]]:
    """Return the labels that can be ranked, and the seeds that all of them have.

    Labels with the fewest seeds are left out where the common seeds would be too few otherwise.
    """
    enough = min(FEWEST_FOR_AN_INTERVAL, max(map(len, seeds.values())))
    kept = sorted(seeds, key=lambda label: -len(seeds[label]))
    while len(kept) > 1 and len(_common(seeds, kept)) < enough:
        kept.pop()
    kept = kept if len(kept) > 1 else list(seeds)
    return kept, _common(seeds, kept)


def _common(seeds: Mapping[str, set[int]], labels: Sequence[str]) -> set[int]:
    return set.intersection(*(seeds[label] for label in labels))


def _counted(runs: Mapping[int, Run], shared: set[int]) -> Mapping[int, Run]:
    """Return the runs of the seeds that all have; all of an arm's own if it lacks one of them."""
    if not shared or not shared <= set(runs):
        return runs
    return {seed: run for seed, run in runs.items() if seed in shared}


def complaints(arms: Mapping[str, Mapping[int, Run]]) -> list[str]:
    """Return a line for each arm with runs that diverged or do not learn, and the first reason."""
    lines = []
    for arm, runs in arms.items():
        for word in (DIVERGED, NOT_LEARNING):
            bad = [run for run in runs.values() if run.verdict == word]
            if bad:
                lines.append(f"{arm}: {len(bad)} of {len(runs)} runs {word}; {bad[0].reason}")
    return lines


def _value(run: Run, metric: str, at: tuple[str, float] | None) -> float:
    rows = run.rows
    if at is not None:  # rows of earlier versions have no joules
        rows = [row for row in rows if row.get(at[0], float("nan")) <= at[1]]
    value = rows[-1].get(metric) if rows else None
    return float("nan") if value is None else float(value)


def _winner(values: Mapping[str, Mapping[int, float]], metric: str) -> str:
    """Return the arm of the best mean.

    One with a value that is not finite cannot win, unless all have.
    """
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    means = {arm: sign * float(np.mean([*own.values()])) for arm, own in values.items()}
    return min(means, key=lambda arm: means[arm] if np.isfinite(means[arm]) else np.inf)


def _cell(values: Mapping[str, Mapping[int, float]], arm: str, reference: str, winner: str) -> Cell:
    own = np.array(list(values[arm].values()))
    difference, half, num_paired, fixed = paired(values[arm], values[reference])
    mean = float(np.mean(own))
    rank = ""
    if arm == winner and np.isfinite(mean):
        rank = "winner"
    elif np.isfinite(mean):
        from_winner = paired(values[arm], values[winner])
        known = np.isfinite(from_winner.half)  # one seed: no interval, no tie
        rank = "tied" if known and not from_winner.apart else ""
    if arm == reference:
        difference, half = float("nan"), float("nan")
    return Cell(mean, float(half_width(own)), difference, half, len(own), num_paired, rank, fixed)
