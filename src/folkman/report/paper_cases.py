"""A paper's figure of many curves: a row per metric and case, so that few curves meet."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from folkman.record.json_file import Json
from folkman.record.run import AXES, Run
from folkman.report.answer import NOUNS
from folkman.report.figures import COLOURS, STYLES
from folkman.report.paper import LETTERS_A_COLUMN, Lines, Panel, bound, draw_one, line_of, new_grid
from folkman.report.statistics import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = ["draw_cases", "have_rows"]

MOST_CASES = 4
"""Cases that have a row each."""
BY_CASE = ", by case"
"""Added to the name of a method whose curve of the case stands beside one of no case."""


def have_rows(panels: Sequence[Panel], own: str, lines: Lines) -> bool:
    """Tell whether the panels have the same few cases of the own method."""
    named = []
    for panel in panels:
        ours = {_split(run, lines)[0] for run in panel.runs if run.algorithm == own}
        cases = _ordered_cases(panel, lines)
        named.append([case for family in sorted(ours) for case in cases[family]])
    return 1 < len(named[0]) <= MOST_CASES and all(each == named[0] for each in named)


def draw_cases(panels: Sequence[Panel], x: str, title: str, own: str, lines: Lines) -> "Figure":
    """Draw a row per metric and case, a column per panel; a method looks the same everywhere."""
    names = _case_names(panels, own, lines)
    families = list(dict.fromkeys(_kind(run, panels, lines) for p in panels for run in p.runs))
    looks = {
        family: _family_look(index, lines.get(family.removesuffix(BY_CASE)))
        for index, family in enumerate(families)
    }
    rows = [(metric, case) for metric in NOUNS for case in range(len(names))]
    size_in = (4.1 * len(panels), 1.75 * len(rows) + 0.9)
    figure, grid = new_grid(size_in, (len(rows), len(panels)), sharex="col")
    for line, (metric, case) in enumerate(rows):
        for column, panel in enumerate(panels):
            axes = grid[line, column]
            if metric == "train_loss" and axes is not grid[0, 0]:
                axes.sharey(grid[0, 0])
            axes.label_outer()
            shown = Panel(panel.title, _of_case(panel, case, lines))
            of = {run.label: looks[_kind(run, panels, lines)] for run in shown.runs}
            draw_one(axes, shown, x, metric, of)
            axes.set_title(panel.title if line == 0 else "", fontsize="small")
            reached = max(run.rows[-1][x] for run in panel.runs if run.algorithm == own)
            axes.set_xlim(-0.03 * reached, 1.03 * reached)
        grid[line, 0].set_ylabel(f"{NOUNS[metric]}\n{names[case]}")
    bound(list(grid[: len(names)].ravel()))
    for axes in grid[len(names) :].ravel():
        axes.set_ylim(0.0, 1.0)
    for axes in grid[-1]:
        axes.set_xlabel(AXES[x])
    handles = [_sample(look) for look in looks.values()]
    across = min(len(families), 2 * len(panels))
    look: Json = {"frameon": False, "fontsize": "small", "handlelength": 3.5}
    figure.legend(handles, families, loc="outside lower center", ncols=across, **look)
    counts = sorted({c.num_seeds for p in panels for c in curves(p.runs, x, "train_loss")})
    draws = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    told = f"{title}; mean of {draws} draws, 95 % interval"
    figure.suptitle(fill(told, LETTERS_A_COLUMN * len(panels)), fontsize="medium")
    return figure


def _kind(run: Run, panels: Sequence[Panel], lines: Lines) -> str:
    """Return the method of a run; its cases are told from a curve of it that has none."""
    family, case = _split(run, lines)
    both = any(not _split(r, lines)[1] for p in panels for r in p.runs
               if _split(r, lines)[0] == family)  # fmt: skip
    return family + BY_CASE if case and both else family


def _sample(look: Json) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], linewidth=1.6, **look)


def _family_look(index: int, line: str | Sequence[float] | None) -> Json:
    style = STYLES[index % len(STYLES)] if line is None else line
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": line_of(style)}


def _split(run: Run, lines: Lines) -> tuple[str, str]:
    """Return the method and the case that a label names."""
    family, _, case = run.label.partition(", ")
    return (family, case) if family in lines else (run.algorithm, run.label)


def _ordered_cases(panel: Panel, lines: Lines) -> dict[str, list[str]]:
    """Return the cases of each method in order; those of two methods belong together by it."""
    cases: dict[str, list[str]] = {}
    for run in panel.runs:
        family, case = _split(run, lines)
        known = cases.setdefault(family, [])
        known += [case] if case and case not in known else []
    return cases


def _of_case(panel: Panel, case: int, lines: Lines) -> list[Run]:
    """Return the runs of a case, and of methods that have none."""
    cases = _ordered_cases(panel, lines)

    def belongs(run: Run) -> bool:
        family, name = _split(run, lines)
        return not name or (case < len(cases[family]) and cases[family][case] == name)

    return [run for run in panel.runs if belongs(run)]


def _case_names(panels: Sequence[Panel], own: str, lines: Lines) -> list[str]:
    """Return what the cases of the own method are called, in order; or of the one with most."""
    by_family = [_ordered_cases(panel, lines) for panel in panels]
    ours = {_split(run, lines)[0] for p in panels for run in p.runs if run.algorithm == own}
    found = [names for cases in by_family for family, names in cases.items() if family in ours]
    most = max((len(names) for cases in by_family for names in cases.values()), default=1)
    names = max(found, key=len, default=[])
    return [*names, *(f"case {index + 1}" for index in range(len(names), max(most, 1)))]
