"""Arms side by side: each metric's mean and interval, paired differences, and the winner.

As text, Markdown or LaTeX.

A difference is taken seed by seed, as all arms met the same draws: its 95 % interval (Student's) is
that of the mean of the differences, which is narrower than the two arms' own intervals suggest. The
best mean wins; an arm whose difference from the winner has an interval that contains 0 is tied with
it. With one seed there is no interval, and nothing is tied. Intervals are not adjusted for the
number of arms.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from folkman.checks import nearest, require
from folkman.record.json_file import Json
from folkman.record.run import AXES, DIVERGED, HIGHER_IS_BETTER, METRICS, Run, jsonable
from folkman.record.tuned import told
from folkman.record.verdict import NOT_LEARNING
from folkman.report.statistics import half_width
from folkman.report.tables import HEADINGS, markdown_table, objective_text, spread

__all__ = ["FORMATS", "HIGHER_IS_BETTER", "ArmTable", "Cell", "compare_arms", "complaints"]
__all__ += ["render"]


class Cell(NamedTuple):
    """One arm under one metric."""

    mean: float
    half: float  # NaN with one seed
    difference: float  # paired, from the reference arm; NaN for that arm itself
    difference_half: float
    num_seeds: int
    num_paired: int
    rank: str  # "winner", "tied", ""


class ArmTable(NamedTuple):
    """Arms by metrics."""

    arms: Sequence[str]
    metrics: Sequence[str]
    references: Mapping[str, str]  # metric -> the arm that differences are taken from
    cells: Mapping[tuple[str, str], Cell]  # (arm, metric)
    tuned: Mapping[str, str] = {}  # arm -> how it stands (`record.tuned`), where that is known
    objectives: Sequence[str] = ()  # what the arms minimise, as far as it is known

    def rows(self) -> list[Json]:
        """Return one JSON object an arm and metric."""
        found = []
        for (arm, metric), cell in self.cells.items():
            values = {
                key: jsonable(value) if isinstance(value, float) else value
                for key, value in cell._asdict().items()
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
) -> ArmTable:
    """Compare arms (arm -> seed -> run) at the last recorded slot.

    Or at the last one with axis `at[0]` <= `at[1]`.
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
    cells, references = {}, {}
    for metric in metrics:
        values = {
            arm: {seed: _value(run, metric, at) for seed, run in runs.items()}
            for arm, runs in arms.items()
        }
        winner = _winner(values, metric)
        references[metric] = against or winner
        for arm in arms:
            cells[arm, metric] = _cell(values, arm, references[metric], winner)
    return ArmTable(list(arms), list(metrics), references, cells)


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
    """Return the arm of the best mean over the common seeds, or over its own if there are none.

    One with a value that is not finite cannot win, unless all have.
    """
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    shared = set.intersection(*(set(own) for own in values.values()))
    means = {
        arm: sign
        * float(np.mean([value for seed, value in own.items() if seed in (shared or own)]))
        for arm, own in values.items()
    }
    return min(means, key=lambda arm: means[arm] if np.isfinite(means[arm]) else np.inf)


def _cell(values: Mapping[str, Mapping[int, float]], arm: str, reference: str, winner: str) -> Cell:
    own = np.array(list(values[arm].values()))
    difference, half, paired = _paired(values[arm], values[reference])
    mean = float(np.mean(own))
    rank = ""
    if arm == winner and np.isfinite(mean):
        rank = "winner"
    elif np.isfinite(mean):
        to_winner, winner_half, _ = _paired(values[arm], values[winner])
        rank = "tied" if abs(to_winner) <= winner_half else ""  # one seed: no interval, no tie
    if arm == reference:
        difference, half = float("nan"), float("nan")
    return Cell(mean, float(half_width(own)), difference, half, len(own), paired, rank)


def _paired(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float, int]:
    """Return mean, half-width and number of the differences a - b over the seeds that both have."""
    seeds = [seed for seed in a if seed in b]
    if not seeds:
        return float("nan"), float("nan"), 0
    differences = np.array([a[seed] - b[seed] for seed in seeds])
    return float(differences.mean()), float(half_width(differences)), len(seeds)


def _table(found: ArmTable, mark: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Return heading and lines as text; `mark` has a template for each rank."""
    head, lines = ["arm"], [[arm] for arm in found.arms]
    for metric in found.metrics:
        title = HEADINGS.get(metric, metric.replace("_", " "))
        head += [title, f"{title}: difference"]
        for line, arm in zip(lines, found.arms, strict=True):
            cell = found.cells[arm, metric]
            delta = spread(cell.difference, cell.difference_half)
            sign = "" if delta.startswith("-") else "+"
            shown = "" if arm == found.references[metric] else sign + delta
            line += [mark[cell.rank].format(spread(cell.mean, cell.half)), shown]
    return head, lines


def _ties(found: ArmTable, words: str) -> str:
    """Return how ties are marked, or that one seed cannot find any."""
    alone = all(cell.num_seeds < 2 for cell in found.cells.values())
    return ", by one seed: run more to see what is chance" if alone else words


def _note(found: ArmTable) -> str:
    counts = sorted({cell.num_seeds for cell in found.cells.values()})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    from_ = "; ".join(dict.fromkeys(f"'{arm}'" for arm in found.references.values()))
    what = objective_text(found.objectives)
    mean = "" if counts == [1] else f"mean and 95 % interval over {seeds} seeds"
    paired = f"differences paired by seed, from {from_}"
    return "; ".join(filter(None, (what, mean, paired, told(found.tuned))))


def as_text(found: ArmTable) -> str:
    """Return columns of plain text; the best has a star, what is tied with it a tilde."""
    head, lines = _table(found, {"winner": "{} *", "tied": "{} ~", "": "{}  "})
    head = [head[0], *(f"{title}  " for title in head[1:])]
    widths = [max(len(row[column]) for row in [head, *lines]) for column in range(len(head))]
    aligned = [
        "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]).rstrip()
        for row in [head, *lines]
    ]
    rule = "-" * max(map(len, aligned))
    note = f"* best{_ties(found, ', ~ tied with it')}; {_note(found)}"
    return "\n".join([aligned[0], rule, *aligned[1:], "", note])


def as_markdown(found: ArmTable) -> str:
    """Return a table of Markdown; the winner is bold, what is tied with it in italics."""
    head, lines = _table(found, {"winner": "**{}**", "tied": "*{}*", "": "{}"})
    body = markdown_table(head, lines, numbers=True)
    return f"{body}\n\nBold: best{_ties(found, '; italics: tied with it')}; {_note(found)}."


def as_latex(found: ArmTable) -> str:
    """Return a `tabular` for booktabs; the winner is bold, what is tied with it underlined.

    Numbers are in math mode, where a hyphen is a minus sign.
    """
    mark = {"winner": "\\mathbf{{{}}}", "tied": "\\underline{{{}}}", "": "{}"}
    head, lines = _table(found, mark)
    rows = [[_escaped(cell) for cell in head]]
    rows += [[_escaped(row[0]), *map(_in_math, row[1:])] for row in lines]
    body = [" & ".join(row) + r" \\" for row in rows]
    note = f"% bold: best{_ties(found, '; underlined: tied with it')}; {_note(found)}"
    start = f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    top = [note, start, r"\toprule", body[0], r"\midrule"]
    return "\n".join([*top, *body[1:], r"\bottomrule", r"\end{tabular}"])


def _in_math(cell: str) -> str:
    """Return a number as LaTeX sets it; a value that is not there is a dash."""
    if not cell.strip("-+"):
        return "--" if cell else ""
    power = re.sub(r"e([+-])0*(\d+)", lambda e: rf" \cdot 10^{{{e[1].strip('+')}{e[2]}}}", cell)
    return f"${power.replace('±', chr(92) + 'pm')}$"


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)


FORMATS = {"text": as_text, "markdown": as_markdown, "latex": as_latex}
"""Name -> how a comparison is written."""


def render(found: ArmTable, form: str = "text", notes: Sequence[str] = ()) -> str:
    """Return a comparison as text, Markdown or LaTeX, with a line below for each note."""
    require(form in FORMATS, f"there is no format '{form}'; {nearest(form, FORMATS)}")
    before = {"text": "", "markdown": "\n", "latex": "% "}[form]
    return "\n".join([FORMATS[form](found), *(f"{before}{note}" for note in notes)])
