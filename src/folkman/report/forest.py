"""Forest plots: of every claim the effect, its interval, what counts as equal, and the draws."""

from collections.abc import Sequence
from io import StringIO
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "LOOKS",
    "POINTS",
    "RATIO",
    "RATIOS_KEY",
    "Effect",
    "Forest",
    "draw_ratios",
    "forest_figure",
]
__all__ += ["forest_svg", "outline", "ratios_svg"]

LOOKS = {
    "holds": ("H", "#1f6fb2", "white"),
    "better than claimed": ("B", "#56a0d3", "white"),
    "equal": ("=", "#b8b8b8", "black"),
    "one cause of several": ("P", "#9cc3e3", "black"),
    "contradicted": ("C", "#c8553d", "white"),
    "vacuous here": ("V", "#8a7fa8", "white"),
    "open": ("o", "#f1ead2", "black"),
    "not run": ("-", "#ffffff", "#888888"),
}
"""Letter, colour and the letter's colour of each verdict; the letter tells without the colour."""

RATIO, POINTS = "ratio", "points"
"""Units of an effect: the logarithm of ours over the other's, and points of accuracy."""

MOST_PER_CENT = 400.0
"""Effects beyond this are drawn at the edge."""

TICKS = (-80, -50, 0, 100, 400)
"""Per cent that have a mark."""

ROW_IN = 0.17
KEY_LETTERS, TITLE_LETTERS = 150, 124
WIDTH_IN = 8.6


class Effect(NamedTuple):
    """A row of a forest plot."""

    label: str
    mean: float
    low: float
    high: float
    margin: float
    n: int
    verdict: str
    unit: str = RATIO  # or points, or "" where there is no interval
    says: str = ""  # beside the row; where there is no interval, in its place


class Forest(NamedTuple):
    """One figure of the paper: what it claims, and the effects behind the verdicts."""

    name: str
    title: str
    claims: Sequence[tuple[str, str, str]]  # name, words of the paper, verdict
    effects: Sequence[Effect]
    lacking: Sequence[str] = ()  # middle readings that nobody ran


def outline(verdict: str) -> str:
    """Return a verdict's colour where it is drawn on white; light ones are darker there."""
    darker = {"open": "#8d7b3f", "equal": "#6b6b6b", "not run": "#888888"}
    return darker.get(verdict, LOOKS.get(verdict, ("", darker["open"], ""))[1])


def draw_ratios(axes: "Axes", effects: Sequence[Effect]) -> None:
    """Draw effects on losses in one panel; `RATIOS_KEY` says what is seen."""
    _draw_rows(axes, effects, RATIO, size=5.2)


KEY = (
    "blue: as claimed, red: against the claim, olive: open, grey: equal, violet: vacuous; "
    "grey band: counts as equal"
)

RATIOS_KEY = (
    "training loss of Algorithm 1 over the other side's, 95 % interval (log scale; left: lower)"
    f"\n{KEY}"
)


def forest_figure(forest: Forest) -> "Figure":
    """Draw the effects of one figure: ratios above, accuracies below, what has no interval last."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = {unit: [e for e in forest.effects if e.unit == unit] for unit in (RATIO, POINTS, "")}
    parts = {unit: rows for unit, rows in parts.items() if rows}
    heights = [_lines(rows) + (0.0 if not unit else 2.0) for unit, rows in parts.items()]
    lacking = fill(f"not run: {'; '.join(forest.lacking)}", KEY_LETTERS) if forest.lacking else ""
    key = f"{lacking}\n{KEY}" if lacking else KEY
    high = ROW_IN * sum(heights) + 0.5 + 0.12 * key.count("\n")
    figure = Figure(figsize=(WIDTH_IN, high), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (unit, rows) in zip(grid[:, 0], parts.items(), strict=True):
        _draw_rows(axes, rows, unit, size=6.4)
        axes.set_xlabel(HEADINGS[unit], fontsize=6.4, labelpad=1)
    title = fill(forest.title, TITLE_LETTERS)
    figure.suptitle(title, fontsize=7.6, weight="bold", x=0.01, ha="left")
    figure.supxlabel(key, fontsize=6.4)
    return figure


def _lines(effects: Sequence[Effect]) -> float:
    """Return how high some rows are: a row with two lines of text is higher."""
    return sum(0.35 + 0.65 * (1 + max(e.label.count("\n"), e.says.count("\n"))) for e in effects)


HEADINGS = {
    RATIO: "ours over the other side's, 95 % interval (log scale; left: lower)",
    POINTS: "accuracy, ours minus the other side's, points, 95 % interval (right: higher)",
    "": "",
}


def _draw_rows(axes: "Axes", effects: Sequence[Effect], unit: str, size: float) -> None:
    """Draw a row for each effect: interval, middle, margin, draws, and what stands beside it."""
    edge = _edge(effects, unit)
    for y, each in enumerate(effects):
        _draw_row(axes, y, each, edge, size)
    if unit:
        axes.axvline(0, color="black", linewidth=0.6)
    marks, names = _marks(edge, unit)
    axes.set_xticks(marks, names, fontsize=size)
    axes.set_yticks(range(len(effects)), [e.label for e in effects], fontsize=size)
    axes.set(xlim=(-edge, edge), ylim=(len(effects) - 0.4, -0.6))
    axes.tick_params(length=2 if unit else 0)
    axes.spines[["top", "right"]].set_visible(False)
    if not unit:
        axes.spines[:].set_visible(False)


def _draw_row(axes: "Axes", y: int, each: Effect, edge: float, size: float) -> None:
    colour = outline(each.verdict)
    if not each.unit:
        axes.text(-edge, y, each.says, fontsize=size, color=colour, va="center", parse_math=False)
        return
    axes.fill_betweenx([y - 0.5, y + 0.5], -each.margin, each.margin, color="#dddddd", linewidth=0)
    axes.plot(np.clip([each.low, each.high], -edge, edge), [y, y], color=colour, linewidth=1.3)
    axes.plot(np.clip(each.mean, -edge, edge), y, "o", color=colour, markersize=2.8)
    for beyond, place, mark in ((each.low < -edge, -edge, "<"), (each.high > edge, edge, ">")):
        if beyond:  # the interval goes on
            axes.plot(place, y, mark, color=colour, markersize=3.2, clip_on=False)
    told = f"n = {each.n}{each.says}"
    axes.text(edge * 1.03, y, told, fontsize=size - 0.4, va="center", parse_math=False)


def _edge(effects: Sequence[Effect], unit: str) -> float:
    """Return where the axis ends: fixed for ratios, as far as the intervals for points."""
    if unit == POINTS:
        ends = [abs(end) for each in effects for end in (each.low, each.high)]
        return 1.05 * max(ends)
    return float(np.log1p(MOST_PER_CENT / 100))


def _marks(edge: float, unit: str) -> tuple[list[float], list[str]]:
    """Return the marks of an axis and their names."""
    if unit == RATIO:
        names = [f"{v:+d} %" if v else "equal" for v in TICKS]
        return [float(np.log1p(v / 100)) for v in TICKS], names
    if unit == POINTS:
        step = next(s for s in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.0) if s <= edge / 2)
        places = [i * step for i in range(-int(edge / step), int(edge / step) + 1)] if step else []
        return places, [f"{100 * place:+.3g}" if place else "equal" for place in places]
    return [], []


def ratios_svg(effects: Sequence[Effect]) -> str:
    """Return the plot of a card as SVG."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    high = 0.6 + 0.105 * len(effects)
    figure = Figure(figsize=(8.5, high), layout="constrained")
    FigureCanvasSVG(figure)
    draw_ratios(axes := figure.subplots(), effects)
    axes.set_xlabel(RATIOS_KEY, fontsize=5.6, labelpad=1)
    return _svg(figure)


def forest_svg(forest: Forest) -> str:
    """Return the plot of a figure as SVG."""
    return _svg(forest_figure(forest))


def _svg(figure: "Figure") -> str:
    import matplotlib as mpl

    text = StringIO()
    notes: dict[str, Any] = {"Date": None}
    with mpl.rc_context({"svg.hashsalt": "card", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata=notes)
    return "".join(text.getvalue().partition("<svg")[1:])
