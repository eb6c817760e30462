"""Means against a setting: a point with its 95 % interval for each value, a line per group.

A value of which some runs failed or diverged has a cross at the mean of the others, off its line. A
group that the setting does not concern is a level line: what it reaches is the same at every value.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.record.run import HIGHER_IS_BETTER
from folkman.report.figures import STYLES, set_log_y, spans_much
from folkman.report.palette import MOST_CURVES, curve_colours, grey
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, half_width, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Groups", "Value", "best_groups", "means_of", "paint_points", "places_of", "seeds_in"]

Value = str | float | bool | None
"""A value of a setting; None where the setting does not concern a group."""
Groups = Mapping[str, Mapping[Value, Sequence[float]]]
"""Group -> value of the setting -> what its runs ended at, seed by seed; NaN where one failed."""
MARKERS = "os^Dv*"
"""Shapes of points, in the order of the colours: a print without colours tells them apart."""
DODGE = 0.07
"""How far points of two groups at one name are apart, where names have a distance of 1."""


class Places(NamedTuple):
    """Where the values of a setting are on an axis."""

    at: Mapping[Value, float]
    names: Mapping[Value, str]
    numeric: bool


def places_of(groups: Groups) -> Places:
    """Return where values are: numbers at themselves and in order, names side by side."""
    met = list(dict.fromkeys(x for group in groups.values() for x in group if x is not None))
    numbers = {x: float(x) for x in met if isinstance(x, int | float) and not isinstance(x, bool)}
    numeric = len(numbers) == len(met)
    at: dict[Value, float] = {x: float(index) for index, x in enumerate(met)}
    if numeric:
        at = {x: numbers[x] for x in sorted(numbers)}
    names = {x: f"{x:g}" if isinstance(x, float) else str(x) for x in at}
    return Places(at, names, numeric)


def paint_points(
    axes: "Axes",
    groups: Groups,
    looks: Mapping[str, int],
    places: Places,
    log: tuple[bool | None, bool | None] = (None, None),
) -> None:
    """Paint groups on axes: group -> colour, line style and marker; others are grey.

    `log` is whether x and y are logarithmic; None leaves it to what there is to draw.
    """
    means = means_of(groups)
    log_y = spans_much(means) if log[1] is None else log[1]
    for name, group in sorted(groups.items(), key=lambda each: each[0] in looks):
        _paint_group(axes, name, group, looks.get(name), places, log_y=log_y)
    at = np.array(list(places.at.values()))
    axes.set_xticks(at, [*places.names.values()])
    if places.numeric and (spans_much(at) if log[0] is None else log[0]):
        axes.set_xscale("log")
        axes.set_xticks(at, [*places.names.values()])
        axes.minorticks_off()
    if log_y:
        set_log_y(axes)


def _paint_group(
    axes: "Axes",
    name: str,
    group: Mapping[Value, Sequence[float]],
    look: int | None,
    places: Places,
    *,
    log_y: bool,
) -> None:
    colour = grey(0.75) if look is None else curve_colours()[look]
    style = "-" if look is None else STYLES[look]
    label = "_" if look is None else name
    level = group.get(None, ())
    if len(level) and np.isfinite(level).all() and places.at:
        ends = [min(places.at.values()), max(places.at.values())]
        axes.plot(ends, [np.mean(level)] * 2, color=colour, linestyle=style, linewidth=1.0,
                  label=label)  # fmt: skip
    dodge = 0.0 if places.numeric or look is None else DODGE * (look - 1.5)
    xs = [x for x in places.at if len(group.get(x, ())) and np.isfinite(group[x]).all()]
    at = np.array([places.at[x] + dodge for x in xs])
    mean = np.array([float(np.mean(group[x])) for x in xs])
    if xs:
        joined = style if places.numeric else "none"  # between names there is nothing
        axes.plot(at, mean, color=colour, linestyle=joined, linewidth=1.4, label=label,
                  marker="o" if look is None else MARKERS[look], markersize=4)  # fmt: skip
        half = np.array([_half(group[x]) for x in xs])
        low, high = interval(mean, half, log=log_y)
        axes.errorbar(at, mean, yerr=[mean - low, high - mean], fmt="none", capsize=2.5,
                      color=colour, linewidth=1.0)  # fmt: skip
    _paint_broken(axes, group, places, {"color": colour, "label": "_" if xs else label}, dodge)


def _paint_broken(
    axes: "Axes",
    group: Mapping[Value, Sequence[float]],
    places: Places,
    look: Json,
    dodge: float,
) -> None:
    """Paint a cross where some runs failed, at the mean of the others."""
    found = {x: np.asarray(group[x]) for x in places.at if len(group.get(x, ()))}
    left = {x: values[np.isfinite(values)] for x, values in found.items()
            if not np.isfinite(values).all()}  # fmt: skip
    at = [places.at[x] + dodge for x, values in left.items() if values.size]
    means = [float(values.mean()) for values in left.values() if values.size]
    if at:
        axes.plot(at, means, linestyle="none", marker="x", markersize=6, **look)


def _half(values: Sequence[float]) -> float:
    """Return half of the interval of the mean; 0, and so no bar, for too few values."""
    return float(half_width(values)) if len(values) >= FEWEST_FOR_AN_INTERVAL else 0.0


def means_of(groups: Groups) -> NDArray[np.float64]:
    """Return the means that are drawn as points and level lines."""
    found = [np.mean(values) for group in groups.values() for values in group.values()
             if len(values) and np.isfinite(values).all()]  # fmt: skip
    return np.array(found, float)


def seeds_in(groups: Groups) -> list[int]:
    """Return how many runs the points are means of, each number once."""
    return sorted({len(values) for group in groups.values() for values in group.values() if values})


def best_groups(groups: Groups, metric: str) -> list[str]:
    """Return the groups that have a colour and a name, in their order: the best where many are."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0

    def least(name: str) -> float:
        means = [sign * float(np.mean(values)) for values in groups[name].values() if values]
        return min((mean for mean in means if np.isfinite(mean)), default=np.inf)

    best = sorted(groups, key=least)[:MOST_CURVES]
    return [name for name in groups if name in best]
