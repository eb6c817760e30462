"""Figures of runs and sweeps alike: a metric against a cost or a setting, in groups and panels.

    draw_plot(arms_of(roots), settings_of_folders(roots), Asked(hue="algorithm"), STYLES["paper"])

`folkman plot` and `folkman.plot` draw by this. Colours, line styles and markers of a group are the
same in all panels, and its name stands at the end of its line: a figure needs no legend.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.checks import one_of, require
from folkman.record.run import AXES, DIVERGED, METRICS, Run
from folkman.record.settings import Settings, settings_of_folders
from folkman.record.table import arms_of
from folkman.report.chosen import LOGS, Asked, Chosen, Panel, chosen
from folkman.report.figures import (
    bound_by_means,
    curves_to_draw,
    finish,
    finite_means,
    log_of,
    name_ends,
    paint_curves,
    spans_much,
    tick_bits,
    typeset,
)
from folkman.report.kept import best_named, seeds_note
from folkman.report.palette import grey
from folkman.report.points import Groups, best_groups, means_of, paint_points, places_of, seeds_in
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL
from folkman.report.style import STYLES, Style, dressed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_plot", "plot_folders"]

PANEL_IN, PANEL_SHARE = 3.1, 0.78
"""Width of one of several panels, and its height as a share of that."""
FEW_TICKS = 5
"""Numbers on the x axis of one of several panels, at most."""
NAME_SHARE = 1.35
"""The distance of two names beside curves, in heights of their letters."""

Arms = Mapping[str, Mapping[int, Run]]


def plot_folders(roots: Sequence[Path], asked: Asked, style: str = "screen") -> "Figure":
    """Draw what is asked for of run and sweep folders."""
    return draw_plot(arms_of(roots), settings_of_folders(roots), asked, style)


def draw_plot(
    arms: Arms, facts: Mapping[str, Settings], asked: Asked, style: str = "screen"
) -> "Figure":
    """Draw what is asked for of arms (arm -> seed -> run), whose settings are `facts`."""
    one_of("style", style, STYLES)
    if asked.log is not None:
        one_of("logarithm", asked.log, LOGS)
    found = chosen(arms, facts, asked)
    draw = _curves if found.is_cost else _points
    log = LOGS[asked.log] if asked.log is not None else (None, None)
    return dressed(STYLES[style], lambda: draw(arms, found, log, STYLES[style]))


def _curves(
    arms: Arms, found: Chosen, log: tuple[bool | None, bool | None], style: Style
) -> "Figure":
    """Draw a curve for each group."""
    shown = [
        curves_to_draw(
            [replace(run, label=name) for name, at in panel.groups.items()
             for arm in at.values() for run in arms[arm].values()],
            found.x, found.y,
        )
        for panel in found.panels
    ]  # fmt: skip
    every = {curve.label: curve for curves in reversed(shown) for curve in curves}
    named = best_named([every[name] for name in _groups_of(found.panels)], found.y)
    looks = {name: index for index, name in enumerate(named)}
    means = finite_means([curve for curves in shown for curve in curves])
    every_x = log_of([curve for curves in shown for curve in curves], found.x)
    log = (every_x if log[0] is None else log[0], spans_much(means) if log[1] is None else log[1])
    _refuse_log(log, np.concatenate([c.x for curves in shown for c in curves]), means)

    def paint(axes: "Axes", index: int) -> None:
        paint_curves(axes, shown[index], looks, log)
        if len(shown) > 1 and not log[0]:
            axes.locator_params(axis="x", nbins=FEW_TICKS)
        tick_bits(axes, found.x)

    names = AXES | METRICS
    note = seeds_note([*every.values()], len(named))
    return _laid_out(found, paint, (names[found.x], names[found.y]), note, means, style)


def _points(
    arms: Arms, found: Chosen, log: tuple[bool | None, bool | None], style: Style
) -> "Figure":
    """Draw a point for each value of the setting, and a line for each group."""
    shown: list[Groups] = [
        {name: {value: _ends(arms[arm], found.y) for value, arm in at.items()}
         for name, at in panel.groups.items()}
        for panel in found.panels
    ]  # fmt: skip
    joined = {
        (name, index): values
        for index, groups in enumerate(shown)
        for name, values in groups.items()
    }
    every: Groups = {
        name: {(value, index): ends  # type: ignore[misc] - one place for each panel
               for (own, index), values in joined.items() if own == name
               for value, ends in values.items()}
        for name in _groups_of(found.panels)
    }  # fmt: skip
    means = means_of(every)
    require(
        means.size > 0,
        f"no arm has '{found.y}' from all of its runs: it is not defined, or runs diverged; choose "
        "another metric",
    )
    places = places_of({str(index): {x: [] for x in values} for index, values in
                        enumerate(joined.values())})  # fmt: skip
    named = best_groups(every, found.y)
    looks = {name: index for index, name in enumerate(named)}
    log = (log[0], spans_much(means) if log[1] is None else log[1])
    _refuse_log(log, np.array([*places.at.values()]) if places.numeric else None, means)

    def paint(axes: "Axes", index: int) -> None:
        paint_points(axes, shown[index], looks, places, log)

    labels = (found.x, f"{(AXES | METRICS)[found.y]} at the end")
    return _laid_out(found, paint, labels, _points_note(every, len(named)), means, style)


def _ends(runs: Mapping[int, Run], metric: str) -> list[float]:
    """Return what the runs of an arm ended at; NaN for those that diverged."""
    return [
        nan if DIVERGED in (run.verdict, run.status) else run.last(metric) for run in runs.values()
    ]


def _groups_of(panels: Sequence[Panel]) -> list[str]:
    return list(dict.fromkeys(name for panel in panels for name in panel.groups))


def _refuse_log(
    log: tuple[bool | None, bool | None], xs: NDArray[np.float64] | None, ys: NDArray[np.float64]
) -> None:
    require(
        not log[0] or xs is not None,
        "a logarithmic x axis needs numbers, this setting has names; leave out --log x",
    )
    require(
        not log[1] or bool((ys > 0).all()),
        "a logarithmic y axis needs values above 0, some are not; leave out --log y",
    )


def _points_note(groups: Groups, named: int) -> str:
    """Return what points and bars stand for."""
    counts, rest = seeds_in(groups), len(groups) - named
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    bars = ", 95 % interval" if counts[-1] >= FEWEST_FOR_AN_INTERVAL else ""
    few = counts[-1] < FEWEST_FOR_AN_INTERVAL
    noted = ["one seed: no interval"] if counts == [1] else [f"mean of {seeds} seeds{bars}"]
    noted += (
        [f"no interval of fewer than {FEWEST_FOR_AN_INTERVAL}"] if few and counts != [1] else []
    )
    noted += [f"named: the best {named} of {len(groups)}, grey: the others"] if rest else []
    broken = any(not np.isfinite(v).all() for group in groups.values() for v in group.values())
    noted += ["cross: some runs diverged, mean of the rest"] if broken else []
    return "; ".join(noted)


def _laid_out(
    found: Chosen,
    paint: Callable[["Axes", int], None],
    labels: tuple[str, str],
    note: str,
    means: NDArray[np.float64],
    style: Style,
) -> "Figure":
    """Draw panels side by side in rows, on common axes, and name their lines."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = found.panels
    across = min(len(panels), style.columns)
    rows = ceil(len(panels) / across)
    figure = Figure(figsize=_size(len(panels), across, rows, style), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    every = [axes for row in grid for axes in row]
    for axes in every[len(panels) :]:
        axes.remove()
    shown = every[: len(panels)]
    for index, axes in enumerate(shown):
        paint(axes, index)
    bound_by_means(shown[0], means, found.y)  # and with it all others: they share the axis
    note += _beyond(shown)
    for index, (axes, panel) in enumerate(zip(shown, panels, strict=True)):
        single = len(panels) == 1
        finish(axes, *(labels if single else ("", "")), note if single else panel.title)
        if index + across >= len(panels):  # nothing is below it
            axes.xaxis.set_tick_params(labelbottom=True)
    if len(panels) > 1:
        figure.supxlabel(typeset(labels[0]), fontsize="medium")
        figure.supylabel(typeset(labels[1]), fontsize="medium")
        if style.titled:
            figure.suptitle(note, fontsize="small", color=grey(0.35))
        else:
            figure.set_label(note)
    _name(figure, shown, across)
    return figure


def _beyond(shown: Sequence["Axes"]) -> str:
    """Return that bars leave the figure, where some do: few seeds may have wide intervals."""
    from matplotlib.collections import LineCollection

    low, high = shown[0].get_ylim()
    bars = [each for axes in shown for each in axes.collections if isinstance(each, LineCollection)]
    ends = [np.asarray(segment)[:, 1] for each in bars for segment in each.get_segments()]
    wide = any(end.min() < low or end.max() > high for end in ends)
    return "; a bar without ends is longer than the figure" if wide else ""


def _size(count: int, across: int, rows: int, style: Style) -> tuple[float, float]:
    """Return width and height in inches."""
    if count == 1:
        width = style.width_in or 4.6
        return width, 3.2 if style.width_in is None else width * style.height
    width = style.width_in or PANEL_IN * across + 1.2
    share = PANEL_SHARE if across > 1 else style.height - 0.1
    return width, rows * share * min(width / across, 2 * PANEL_IN) + 0.4


def _name(figure: "Figure", shown: Sequence["Axes"], across: int) -> None:
    """Name lines at the right end of each row; one that is not there, where it is last."""
    from matplotlib import rcParams
    from matplotlib.font_manager import font_scalings

    figure.draw_without_rendering()  # how high panels are decides how many names fit
    letter_in = rcParams["font.size"] * font_scalings["small"] / 72
    for first in range(0, len(shown), across):
        met: set[str] = set()
        for axes in reversed(shown[first : first + across]):
            lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
            for line in lines:
                if line.get_label() in met:
                    line.set_label("_")
            met |= {str(line.get_label()) for line in lines}
            height_in = axes.get_window_extent().height / figure.dpi
            name_ends(axes, NAME_SHARE * letter_in / height_in)
