"""Figures: curves with intervals, and who holds which labels.

People with any colour vision tell the colours apart (`report.palette`); line styles differ as well,
so that a black-and-white print still reads.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.files import write_whole
from folkman.record.json_file import Json
from folkman.record.run import AXES, HIGHER_IS_BETTER, METRICS, SPENT, Run
from folkman.report.kept import best_named, seeds_note
from folkman.report.palette import LIGHT, curve_colours, grey, ground
from folkman.report.panels import short_name, spread_out
from folkman.report.statistics import (
    FEWEST_FOR_AN_INTERVAL,
    RATIO_FOR_LOG,
    Curve,
    curves,
    interval,
    squeezed,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "bound_by_means",
    "check_target",
    "curves_to_draw",
    "draw_curves",
    "draw_labels",
    "finish",
    "finite_means",
    "fit_labels",
    "log_of",
    "name_ends",
    "new_figure",
    "paint_curves",
    "save",
    "set_log_y",
    "shades_of",
    "spans_much",
    "tick_bits",
    "typeset",
]

COLOURS = (*LIGHT, "#000000", "#8a8a8a")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)))
BESIDE: Json = {"bbox_to_anchor": (1.01, 1.0), "loc": "upper left", "borderaxespad": 0.0}
"""Where the names of curves are that do not fit among them."""
NAME_GAP = 0.085
"""The least distance between two names at the ends of curves, as a share of the axes of a figure
of 3.2 inches."""
EARLY = 0.93
"""A curve that ends before this share of the axes is named within them."""
MOST_LETTERS = 32
"""Letters of a name beside a curve."""
NORM = re.compile(r"\|\|(.+?)\|\|")
LONG_WORD = 4
"""Letters by which a line of a label may be longer than its share of the text."""
SHARES = (*HIGHER_IS_BETTER, "node_test_accuracy_spread", "node_local_accuracy_spread")
"""Metrics that are at most 1."""


def new_figure(width_in: float, height_in: float) -> "tuple[Figure, Axes]":
    """Return a figure that belongs to no window: safe in threads, scripts and servers."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def draw_curves(
    runs: Sequence[Run],
    x: str = "seconds",  # a cost, for the horizontal axis
    y: str = "train_loss",  # a metric, for the vertical axis
) -> "Figure":
    """Draw metric `y` against axis `x`: the mean over seeds, its 95 % interval shaded."""
    found = curves_to_draw(runs, x, y)
    named = best_named(found, y)
    figure, axes = new_figure(4.6, 3.2)
    names = AXES | METRICS
    looks = {label: index for index, label in enumerate(named)}
    paint_curves(axes, found, looks, (log_of(found, x), None))
    bound_by_means(axes, finite_means(found), y)
    finish(axes, names[x], names[y], seeds_note(found, len(named)))
    tick_bits(axes, x)
    name_ends(axes)
    fit_labels(figure)
    return figure


def curves_to_draw(runs: Sequence[Run], x: str, y: str) -> list[Curve]:
    """Return the curves of runs, or say what they lack."""
    for given in (x, y):
        if given not in AXES | METRICS:
            raise ValueError(
                f"no column '{given}'; an axis is one of {', '.join(AXES)}, a metric of "
                f"{', '.join(METRICS)}"
            )
    found = curves(runs, x, y)
    if not any(np.isfinite(curve.mean).any() for curve in found):
        raise ValueError(
            f"these runs have no '{y}': their problem does not define it; choose another metric"
        )
    return found


def log_of(found: Sequence[Curve], x: str) -> bool:
    """Tell whether an axis of what was spent is better logarithmic."""
    return x in SPENT and squeezed([curve.x for curve in found])


def paint_curves(
    axes: "Axes",
    found: Sequence[Curve],
    looks: Mapping[str, int],
    log: tuple[bool | None, bool | None] = (None, None),
) -> None:
    """Paint curves on axes: label -> colour and line style; others are grey and have no name.

    `log` is whether x and y are logarithmic; None leaves it to what there is to draw.
    """
    log_y = spans_much(finite_means(found)) if log[1] is None else log[1]
    for curve in sorted(found, key=lambda curve: curve.label in looks):
        look = looks.get(curve.label)
        if log[0]:  # nothing is spent at the start
            after = curve.x > 0
            curve = curve._replace(x=curve.x[after], mean=curve.mean[after], half=curve.half[after])
        if look is None:
            axes.plot(curve.x, curve.mean, color=grey(0.75), linewidth=0.8, zorder=1)
            continue
        colour = curve_colours()[look]
        axes.plot(curve.x, curve.mean, color=colour, linestyle=STYLES[look], linewidth=1.6,
                  label=curve.label)  # fmt: skip
        if curve.num_seeds >= FEWEST_FOR_AN_INTERVAL:
            ends = interval(curve.mean, curve.half, log=log_y)
            axes.fill_between(curve.x, *ends, color=colour, alpha=0.18, linewidth=0)
    if log[0]:
        axes.set_xscale("log")
    if log_y:
        set_log_y(axes)


def finite_means(found: Sequence[Curve]) -> NDArray[np.float64]:
    """Return all means of curves that are numbers."""
    return np.concatenate([curve.mean[np.isfinite(curve.mean)] for curve in found])


def spans_much(values: NDArray[np.float64]) -> bool:
    """Tell whether values are positive and span so much that an axis is better logarithmic."""
    return bool(len(values) and values.min() > 0 and values.max() / values.min() > RATIO_FOR_LOG)


def set_log_y(axes: "Axes") -> None:
    """Make the y axis logarithmic; where it spans less than two decades, numbers stay plain."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if not 0 < low < high < 100 * low:
        return
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    if high < 5 * low:  # no round number of a decade may lie within: even steps do as well
        axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def tick_bits(axes: "Axes", x: str) -> None:
    """Write bits as 20M rather than 2e7."""
    from matplotlib.ticker import EngFormatter

    if x == "bits" or (x in SPENT and axes.get_xscale() == "log"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def name_ends(axes: "Axes", gap: float = NAME_GAP) -> None:
    """Write the name of each labelled line beside its end, clear of the other names.

    `gap` is the least distance of two names, as a share of the height of the axes.
    """
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = []
    for line in lines:
        points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
        shown = points[np.isfinite(to_axes.transform(points)).all(axis=1)]
        if len(shown):
            at = to_axes.transform(shown[-1])
            ends.append((float(np.clip(at[1], 0, 1)), float(at[0]), shown[-1].tolist(), line))
    ends.sort(key=lambda end: end[0])
    # names within the axes, where curves end early, have nothing to do with those beside them
    for early in (True, False):
        some = [end for end in ends if (end[1] < EARLY) == early]
        places = spread_out([end[0] for end in some], gap, 0.0, 1.0)
        for (_, x, end, line), place in zip(some, places, strict=True):
            at = ((x if early else 1.0) + 0.03, place)
            _name_end(axes, line, end, at, early=early)


def _name_end(
    axes: "Axes",
    line: "Line2D",
    end: Sequence[float],
    at: tuple[float, float],
    *,
    early: bool,
) -> None:
    """Write the name of a line at a place of the axes, with a thin line from its end to there."""
    lead: Json = {"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.6, "shrinkB": 0}
    lead["relpos"] = (0.0, 0.5)  # to the first letter, rather than through the name
    look: Json = {"fontsize": "small", "va": "center", "annotation_clip": False, "zorder": 5}
    if early:  # among the curves: they shall not run through it
        look["bbox"] = {"facecolor": ground(), "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
    name = short_name(str(line.get_label()), MOST_LETTERS)
    axes.annotate(name, (end[0], end[1]), at, textcoords=axes.transAxes, arrowprops=lead, **look)
    axes.plot(*end, marker="o", markersize=3, color=line.get_color(), clip_on=False)


def finish(axes: "Axes", x: str, y: str, title: str = "", *, grid: bool = True) -> None:
    """Label axes, and take away what does not tell anything."""
    axes.set_xlabel(typeset(x))
    axes.set_ylabel(typeset(y))
    axes.set_title(title, fontsize="small", color=grey(0.35))
    if grid:
        axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def typeset(label: str) -> str:
    """Return a label with its norms as mathematics: `||v_i - w||` has bars and an index.

    Without spaces, where lines could break.
    """
    return NORM.sub(
        lambda found: rf"$\Vert{{}}{found[1].replace(' ', '').replace('*', '^*')}\Vert$", label
    )


def fit_labels(figure: "Figure") -> None:
    """Break an upright label that leaves its figure into two lines, or three."""
    shared = [figure._supylabel] if figure.get_supylabel() else []  # type: ignore[attr-defined]
    labels = [axes.yaxis.label for axes in figure.axes] + shared
    texts = [label.get_text() for label in labels]
    for lines in (2, 3):
        figure.draw_without_rendering()
        for label, text in zip(labels, texts, strict=True):
            box = label.get_window_extent()
            if text and (box.y0 < 0 or box.y1 > figure.bbox.height):
                label.set_text(fill(text, len(text) // lines + LONG_WORD))


def bound_by_means(axes: "Axes", means: NDArray[np.float64], metric: str) -> None:
    """Let wide intervals of few seeds leave the figure; a logarithmic axis stays as it is.

    Otherwise they would press its curves flat or pass what can be.
    """
    if axes.get_yscale() == "log":
        return
    room = 0.5 * float(np.ptp(means)) or 1.0
    low, high = axes.get_ylim()
    # no metric that is positive has a negative mean
    least = -0.02 * float(means.max()) if means.min() >= 0 else -np.inf
    most = 1.02 if metric in SHARES else np.inf
    axes.set_ylim(
        max(low, least, float(means.min()) - room), min(high, most, float(means.max()) + room)
    )


def draw_labels(
    counts: NDArray[np.integer],  # samples of each class at each node, (node, class)
) -> "Figure":
    """Draw how many samples of each class each node holds, from counts (node, class)."""
    nodes, classes = counts.shape
    figure, axes = new_figure(4.6, max(1.6, 0.28 * nodes + 1.0))
    left = np.zeros(nodes)
    shades = shades_of(classes)
    for label in range(classes):
        look: Json = {"color": shades[label], "label": str(label), "height": 0.8}
        axes.barh(np.arange(nodes), counts[:, label], left=left, **look)
        left += counts[:, label]
    axes.set_yticks(np.arange(nodes))
    axes.invert_yaxis()
    finish(axes, "samples", "node", grid=False)
    axes.legend(title="label", fontsize="x-small", title_fontsize="x-small", ncols=1, frameon=False,
                bbox_to_anchor=(1.0, 1.0), loc="upper left", labelspacing=0.2)  # fmt: skip
    return figure


def shades_of(count: int) -> NDArray[np.float64]:
    """Return so many colours (colour, rgba) from dark to light."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.0, 1.0, count))


def check_target(path: Path) -> None:
    """Refuse a figure that could not be written, before any work."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a file that ends in .png, .svg or .pdf, got {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"expected a folder to write into, there is no {path.parent}; make it first"
        )


def save(figure: "Figure", path: Path, kinds: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Write a figure as the one kind that `path` names.

    If it names none, as each of `kinds` beside each other.
    """
    from matplotlib import rc_context

    kinds = [path.suffix] if path.suffix in (".png", ".svg", ".pdf") else kinds
    written, layout = [], figure.get_layout_engine()
    for kind in kinds:
        target = path if path.suffix == kind else path.with_name(path.name + kind)
        # same runs, same bytes
        notes = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind)
        # TrueType: submission systems refuse Type 3
        with rc_context({"svg.hashsalt": "folkman", "pdf.fonttype": 42}):
            dpi = max(figure.dpi, 200)
            write_whole(target, partial(figure.savefig, dpi=dpi, metadata=notes))
        written.append(target)
        figure.set_layout_engine("none")  # it is laid out: as expensive as drawing
    figure.set_layout_engine(layout)
    return written
