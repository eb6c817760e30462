"""Figures of docs/comparison.md and docs/which-method.md; benchmarks/comparison_page.py calls."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray
from scipy.stats import t

from benchmarks.comparison import Cell
from benchmarks.comparison_judge import YARDSTICK, Side, compared

__all__ = ["against_fedavg", "apart", "group_figure", "section", "sections_of"]

CURVES = 6
"""Curves of a panel that have a colour and a name, references included."""
ALWAYS = (YARDSTICK, "Algorithm 1")
"""Named in every panel, wherever they end; the best others fill the rest."""
SHOWN = ("Algorithm 1", "AD-PSGD", "FedBuff", "DFedAvgM")
"""Columns of the figure of all cells."""
GREY = "#B0B0B0"
COLOURS = {
    "FedAvg": "#0072B2",
    "Algorithm 1": "#D55E00",
    "DFedAvgM": "#009E73",
    "AD-PSGD": "#AA3377",
    "FedBuff": "#6A3D9A",
    "DisPFL": "#8B5A2B",
    "SGP": "#B8860B",
    "CGA": "#4D4D4D",
    "FedAsync": "#1B9CA8",
    "HierFAVG": "#7A8B00",
    "FedAP": "#C2185B",
    "AdaFL": "#3B3B98",
    "TWAFL": "#E0218A",
    "SGP, asynchronous": "#A0522D",
    "SWIFT": "#2E7D32",
    "D-PSGD": "#5C6BC0",
    "FedSA": "#795548",
    "CompCGA": "#607D8B",
}
"""One colour for a method in all figures; black is of the references."""
GAP = 0.075
"""Least distance of two names, as a share of the panel's height."""
WIDEST = (0.07, 30.0)
"""Ratios that the figure of all cells has room for; intervals go on beyond."""
RADIO = "on the radio"

Cells = Mapping[str, list[Side]]
Values = NDArray[np.float64]


def group_figure(
    cells: Sequence[Cell], all_sides: Cells, references: set[str], partly: Collection[str]
) -> Figure:
    """Return a panel for each cell: loss against time, the best and the references named."""
    columns = min(2, len(cells))
    height = -(-len(cells) // columns)
    figure = Figure(figsize=(4.9 * columns, 3.3 * height), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).flat
    for axes, cell in zip(panels, cells, strict=False):
        _panel(axes, all_sides[cell.name], references)
        title = f"{cell.name} (partly run)" if cell.name in partly else cell.name
        axes.set_title(title, fontsize="small", loc="left")
    return figure


def _named(sides: Sequence[Side], references: set[str]) -> list[Side]:
    """Return the sides of a panel with a name: references, FedAvg, Algorithm 1, the best others."""
    shown = [side for side in sides if side.label in references or side.label in ALWAYS]
    others = sorted(
        (side for side in sides if side not in shown), key=lambda side: side.measure["time"].mean()
    )
    return [*shown, *others[: CURVES - len(shown)]]


def _panel(axes: Axes, sides: Sequence[Side], references: set[str]) -> None:
    """Draw one cell: mean over seeds with its 95 % interval for what is named."""
    named = _named(sides, references)
    for side in sides:
        if side not in named:
            slots, loss, _ = _curve(side)
            axes.plot(slots, loss, color=GREY, linewidth=0.6, zorder=1)
    ends, lowest = [], math.inf
    for side in named:
        is_reference = side.label in references
        colour = "black" if is_reference else COLOURS[side.label]
        style = ("--" if side.label.startswith("FedAvg") else ":") if is_reference else "-"
        slots, loss, spread = _curve(side)
        axes.plot(slots, loss, color=colour, linestyle=style, linewidth=1.5, zorder=3)
        if not is_reference:
            low, high = loss / spread, loss * spread
            axes.fill_between(slots, low, high, color=colour, alpha=0.12, linewidth=0, zorder=2)
        lowest = min(lowest, float(loss.min()))
        ends.append((float(loss[-1]), side.label, colour))
    axes.set_yscale("log")
    first = max(_curve(side)[1][0] for side in sides)
    axes.set_ylim(lowest / 1.4, 1.5 * first)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    _write_names(axes, ends)
    axes.set_xlabel("seconds (slots of 1 s)", fontsize="small")
    axes.set_ylabel("training loss", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25, linewidth=0.5)


def _curve(side: Side) -> tuple[Values, Values, Values]:
    """Return slots, the geometric mean of the loss over seeds, and the factor of its interval."""
    runs = [side.line["judged"][seed] for seed in side.seeds]
    length = min(len(run["slots"]) for run in runs)
    rows = np.log([[value or np.nan for value in run["train_loss"][:length]] for run in runs])
    count = len(runs)
    half = float(t.ppf(0.975, count - 1)) * np.nanstd(rows, axis=0, ddof=1) / math.sqrt(count)
    return np.array(runs[0]["slots"][:length]), np.exp(np.nanmean(rows, axis=0)), np.exp(half)


def apart(heights: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> Values:
    """Return heights, ascending, moved as little as makes them `gap` apart (least squares).

    With the multiples of `gap` taken off, that is the regression to a sequence that never falls.
    """
    room = gap * np.arange(len(heights))
    blocks: list[tuple[float, int]] = []
    for value in np.asarray(heights, dtype=float) - room:
        mean, size = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    flat = np.concatenate([np.full(size, mean) for mean, size in blocks])
    return np.asarray(np.clip(flat, low, high - room[-1]) + room, dtype=np.float64)


def _write_names(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each name beside the end of its curve, with a line to it where it was moved."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    ordered = sorted(ends)
    true = [(math.log(loss) - low) / (high - low) for loss, _, _ in ordered]
    left, right = axes.get_xlim()
    slots = max(float(np.max(line.get_xdata())) for line in axes.lines)
    end = (slots - left) / (right - left)
    for (_, label, colour), own, height in zip(ordered, true, apart(true, GAP), strict=True):
        axes.annotate(
            label,
            xy=(end, own),
            xytext=(1.045, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize="x-small",
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "shrinkA": 1,
                "relpos": (0.0, 0.5),  # to the first letter, and through no other name
            },
        )


def section(cell: Cell) -> str:
    """Return the heading under which the figure of all cells has a cell."""
    if cell.config["network"]["name"] != "pipelined":
        return RADIO
    data = "even data" if "-even" in cell.name else "skewed data"
    return f"{data}, {'unequal' if 'unequal' in cell.name else 'equal'} compute times"


def _rows(cells: Sequence[Cell]) -> list[tuple[str, bool]]:
    """Return the rows of the figure of all cells, top first; a heading is marked True."""
    found = []
    for heading in sections_of(cells):
        found += [(heading, True)]
        found += [(cell.name, False) for cell in cells if section(cell) == heading]
    return found


def sections_of(cells: Sequence[Cell]) -> list[str]:
    """Return the headings of cells, the radio last."""
    return sorted({section(cell) for cell in cells}, key=lambda name: (name == RADIO, name))


def against_fedavg(cells: Sequence[Cell], judged: Cells) -> Figure:
    """Return a column for each method of SHOWN: its loss over FedAvg's in every cell."""
    rows = _rows([cell for cell in cells if judged[cell.name]])
    figure = Figure(figsize=(10, 0.6 + 0.225 * len(rows)), layout="constrained")
    panels = list(figure.subplots(1, len(SHOWN), sharey=True, squeeze=False).flat)
    for axes, label in zip(panels, SHOWN, strict=True):
        for row, (name, is_heading) in enumerate(rows):
            if is_heading:
                axes.axhspan(row - 0.45, row + 0.45, color="#F0F0F0", linewidth=0, zorder=0)
            else:
                _mark(axes, row, judged[name], label)
        axes.axvline(1.0, color="black", linewidth=0.8, zorder=1)
        axes.set_xscale("log")
        axes.set_xlim(*WIDEST)
        axes.set_xticks([0.1, 0.3, 1, 3, 10], ["0.1", "0.3", "1", "3", "10"])
        axes.minorticks_off()
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set_ylim(len(rows) - 0.3, -0.7)
        axes.tick_params(labelsize="x-small", left=False)
        axes.set_title(label, color=COLOURS[label], fontsize="small")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(visible=True, axis="x", alpha=0.25, linewidth=0.5)
    for text, (_, is_heading) in zip(panels[0].get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if is_heading else "normal")
    figure.supxlabel("loss / FedAvg's loss: left of 1 is better than FedAvg", fontsize="small")
    return figure


def _mark(axes: Axes, row: int, sides: Sequence[Side], label: str) -> None:
    """Draw one ratio with its interval; hollow where the two are level."""
    by_label = {side.label: side for side in sides}
    if label not in by_label or YARDSTICK not in by_label:
        return
    found, colour = compared(by_label[label], by_label[YARDSTICK]), COLOURS[label]
    axes.plot([found.low, found.high], [row, row], color=colour, linewidth=1.2)
    face = "white" if found.verdict == "level" else colour
    axes.plot(found.ratio, row, "o", color=colour, markerfacecolor=face, markersize=4.5)
