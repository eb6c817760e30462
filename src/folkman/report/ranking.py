"""Methods in order: mean ranks over seeds at equal cost, and which differences are sure.

    budget B    of an axis (time, bits, gradients, joules): the median over methods of what they
                spent in all, each in the mean over its seeds; a run is judged by its last record
                within B, and one that spent less in all by its end
    rank        1 for the best of a seed, equal values share their mean rank; the mean over seeds
                has Student's 95 % interval
    Friedman    the p-value of "all methods are alike", from the ranks [1]
    pairs       Student's paired t test over seeds, of the logarithm where all scores are positive
                and less is better; p-values corrected by Holm's method for all pairs at once [2]; 1
                where scores vary with the seed and their difference does not, as the test then
                says nothing

A run that diverged ranks last, and in the pairs counts as ten times the worst score of its seed (of
a score of which more is better: as 0). One that diverged in every seed is surely behind one that
never did.

[1] M. Friedman. The Use of Ranks to Avoid the Assumption of Normality Implicit in the Analysis of
    Variance. JASA 32, 1937.
[2] S. Holm. A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of
    Statistics 6, 1979.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.record.run import DIVERGED, HIGHER_IS_BETTER, Run
from folkman.report import html
from folkman.report.statistics import SINGLE, half_width

__all__ = ["COSTS", "Ranking", "map_lines", "order", "rank_runs", "ranking_section", "table_rows"]

COSTS = {"seconds": "time", "bits": "bits", "gradients": "gradients", "energy_j": "joules"}
"""The axes at which methods are judged, by the names of their columns."""
LEVEL = 0.05
"""Below this corrected p-value a difference is sure."""
WORSE = 10.0
"""A run that diverged counts as so many times the worst of its seed."""
AHEAD, BEHIND, UNSURE, SELF = "+", "-", ".", " "


class Ranking(NamedTuple):
    """The methods at one cost, the best mean rank first."""

    axis: str
    budget: float
    labels: tuple[str, ...]
    rank: tuple[float, ...]  # mean over seeds
    half: tuple[float, ...]  # of its 95 % interval; NaN with one seed
    score: tuple[float, ...]  # mean over seeds; infinite where a run diverged
    p: tuple[tuple[float, ...], ...]  # corrected, of each pair
    friedman: float

    def sign(self, left: int, right: int) -> str:
        """Return whether one method is surely ahead of another, behind it, or neither."""
        if left == right:
            return SELF
        if not self.p[left][right] < LEVEL:
            return UNSURE
        return AHEAD if left < right else BEHIND

    def answer(self) -> Json:
        """Return it as JSON."""
        methods = [
            {"label": label, "rank": rank, "half": half, "score": score}
            for label, rank, half, score in zip(
                self.labels, self.rank, self.half, self.score, strict=True
            )
        ]
        head = {"axis": self.axis, "budget": self.budget, "friedman_p": self.friedman}
        return head | {"methods": methods, "p": [list(row) for row in self.p]}

    @classmethod
    def read(cls, answer: Json) -> "Ranking":
        """Return what `answer` wrote."""
        methods = answer["methods"]
        rank, half, score = (
            tuple(float("nan") if each[key] is None else float(each[key]) for each in methods)
            for key in ("rank", "half", "score")
        )
        labels = tuple(each["label"] for each in methods)
        p = tuple(tuple(row) for row in answer["p"])
        friedman_p = float("nan") if answer["friedman_p"] is None else answer["friedman_p"]
        return cls(answer["axis"], answer["budget"], labels, rank, half, score, p, friedman_p)


def rank_runs(arms: Mapping[str, Mapping[int, Run]], metric: str) -> list[Ranking]:
    """Rank the arms (arm -> seed -> run) at every cost that all runs tell; each has all seeds."""
    found = []
    for axis in COSTS:
        budget = _budget(arms, axis)
        if budget > 0:
            found.append(_ranked(arms, metric, axis, budget))
    return found


def _budget(arms: Mapping[str, Mapping[int, Run]], axis: str) -> float:
    """Return B; 0 where a run does not tell its cost, or none ended."""
    spent = []
    for runs in arms.values():
        ends = [run.rows[-1].get(axis, np.nan) for run in runs.values() if run.status != DIVERGED]
        spent += [np.mean(ends)] if ends else []
    return float(np.median(spent)) if spent and np.all(np.isfinite(spent)) else 0.0


def _ranked(
    arms: Mapping[str, Mapping[int, Run]], metric: str, axis: str, budget: float
) -> Ranking:
    seeds = sorted(next(iter(arms.values())))
    found = [[_score(runs[seed], metric, axis, budget) for runs in arms.values()] for seed in seeds]
    scores = np.array(found)  # (seed, method), less is better
    ranks = np.array([_ranks(row) for row in scores])
    mean = ranks.mean(axis=0)
    best = sorted(range(len(arms)), key=lambda place: (mean[place], place))
    labels = list(arms)
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    p = _pairs(_tested(scores[:, best], metric), ~np.isfinite(scores[:, best]))
    return Ranking(
        axis,
        budget,
        tuple(labels[place] for place in best),
        tuple(float(mean[place]) for place in best),
        tuple(float(half_width(ranks[:, place])) for place in best),
        tuple(float(sign * scores[:, place].mean()) for place in best),
        tuple(tuple(map(float, row)) for row in p),
        friedman(ranks),
    )


def _score(run: Run, metric: str, axis: str, budget: float) -> float:
    """Return what a run had reached within a budget; less is better, infinity if it diverged."""
    within = [row for row in run.rows if row.get(axis, np.inf) <= budget * (1 + 1e-9)]
    value = within[-1].get(metric) if within and run.status != DIVERGED else None
    value = np.nan if value is None else float(value)
    return (-value if metric in HIGHER_IS_BETTER else value) if np.isfinite(value) else np.inf


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ranks from 1; equal scores share the mean of their places.

    >>> _ranks(np.array([0.3, 0.1, 0.3, np.inf])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    below = (scores[None] < scores[:, None]).sum(axis=1)
    equal = (scores[None] == scores[:, None]).sum(axis=1)
    return below + (equal + 1) / 2


def friedman(ranks: NDArray[np.float64]) -> float:
    """Return the p-value of Friedman's test, corrected for ties; ranks are (seed, method)."""
    from scipy.special import chdtrc  # of chi^2; scipy.stats takes a second to import

    seeds, methods = ranks.shape
    if seeds < 2 or methods < 2:
        return float("nan")
    between = seeds * np.sum((ranks.mean(axis=0) - (methods + 1) / 2) ** 2)
    within = np.sum((ranks - (methods + 1) / 2) ** 2) / (seeds * (methods - 1))
    return 1.0 if within == 0 else float(chdtrc(methods - 1, between / within))


def _tested(scores: NDArray[np.float64], metric: str) -> NDArray[np.float64]:
    """Return what the pairs are tested on, finite; (seed, method)."""
    finite = np.isfinite(scores)
    if metric in HIGHER_IS_BETTER:
        return np.where(finite, scores, 0.0)
    worst = np.max(np.where(finite, scores, -np.inf), axis=1, keepdims=True)
    worst = np.where(np.isfinite(worst), worst, 1.0)
    whole = np.where(finite, scores, WORSE * np.abs(worst))
    return np.log(whole) if np.all(whole > 0) else whole


def _pairs(values: NDArray[np.float64], lost: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return Holm's p-value of each pair of methods, (method, method); `lost` runs diverged."""
    from scipy.special import stdtr

    seeds, methods = values.shape
    p = np.ones((methods, methods))
    if seeds < 2:
        return p
    rows, columns = np.triu_indices(methods, 1)
    differences = values[:, rows] - values[:, columns]
    mean, spread = differences.mean(axis=0), differences.std(axis=0, ddof=1) / np.sqrt(seeds)
    largest = np.maximum(np.abs(values[:, rows]), np.abs(values[:, columns])).max(axis=0)
    alike = spread <= SINGLE * largest
    ranges = np.ptp(values, axis=0)
    fixed = np.maximum(ranges[rows], ranges[columns]) <= SINGLE * largest
    left, right = lost[:, rows], lost[:, columns]
    plain = (left & ~right).all(axis=0) | (right & ~left).all(axis=0)
    # what stands in for a run that diverged may differ by the same in every seed
    certain = plain | (fixed & (np.abs(mean) > SINGLE * largest))
    t = np.where(alike, np.where(certain, np.inf, 0.0), np.abs(mean) / np.maximum(spread, 1e-300))
    found = holm(2 * stdtr(seeds - 1, -t))
    p[rows, columns] = p[columns, rows] = found
    return p


def holm(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values corrected for having looked at all of them.

    >>> holm(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    by_size = np.argsort(p, kind="stable")
    raised = p[by_size] * (len(p) - np.arange(len(p)))
    corrected = np.empty_like(p)
    corrected[by_size] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return corrected


def order(rankings: Sequence[Ranking]) -> tuple[str, ...]:
    """Return the methods by their rank at equal time, the first ranking."""
    return rankings[0].labels


def table_rows(rankings: Sequence[Ranking], metric: str) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for each method: its score and its rank at each cost."""
    heads = ["", "method", metric.split("_")[-1], *(COSTS[each.axis] for each in rankings)]
    rows = []
    for place, label in enumerate(order(rankings)):
        cells = []
        for each in rankings:
            at = each.labels.index(label)
            half = "" if np.isnan(each.half[at]) else f"±{each.half[at]:.1f}"
            cells.append(f"{each.rank[at]:.1f}{half}")
        rows.append([str(place + 1), label, f"{rankings[0].score[place]:.3g}", *cells])
    return heads, rows


def map_lines(ranking: Ranking, width: int = 78) -> list[str]:
    """Return the significance map: a line a method, a sign for each other one."""
    labels = ranking.labels
    room = max(8, min(24, width - len(labels) - 5))
    lines = [" " * (room + 4) + "".join(str((place + 1) % 10) for place in range(len(labels)))]
    for place, label in enumerate(labels):
        name = label if len(label) <= room else label[: room - 1] + "…"
        signs = "".join(ranking.sign(place, other) for other in range(len(labels)))
        lines.append(f"{place + 1:>2} {name:<{room}} {signs}".rstrip())
    return lines


LEGEND = "+ surely ahead of, - surely behind the method of that number; . no sure difference"


def ranking_section(answer: Json) -> html.Section:
    """Return the section of a report on a ranking: the table, and a map for each cost."""
    rankings = [Ranking.read(each) for each in answer["rankings"]]
    heads, rows = table_rows(rankings, answer["score"])
    seeds = len(answer["seeds"])
    text = (
        f"Mean rank over {seeds} fresh seeds, with its 95 % interval. Each method was tuned by one "
        "search of the same budget on other seeds. At equal cost a run is judged by what it had "
        "reached when it had spent what the median method spends in all."
    )
    parts = [f"<p>{html.escape(text)}</p>", html.table(heads, rows)]
    for each in rankings:
        title = f"Equal {COSTS[each.axis]} ({each.budget:.4g}), Friedman p {each.friedman:.2g}"
        shown = "\n".join([*map_lines(each), "", LEGEND])
        parts.append(html.details(title, html.preformatted(shown), opened=each is rankings[0]))
    floor = answer.get("floor")
    if floor is not None:
        line = (
            f"No first-order method has a training loss of {floor['train_loss']:.4g} before slot "
            f"{floor['slots']:g}; the best had it in slot {floor['best_slots']:g}."
        )
        parts.append(f"<p>{html.escape(line)}</p>")
    for label, why in answer["left_out"].items():
        parts.append(f"<p>{html.escape(f'{label} is left out: {why}')}</p>")
    return html.Section("ranking", "Ranking", "".join(parts))
