"""Small figures of curves as SVG text: they take the page's colours and cost next to nothing.

    panel("loss", lines, "simulated time (s)", "training loss F(w)", description)

At most six curves have a colour; each is named where it ends. Others are grey.
"""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, inf, isfinite, log10
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.report.palette import MOST_CURVES
from folkman.report.statistics import RATIO_FOR_LOG, Curve, interval, squeezed

__all__ = ["LEFT", "WIDE", "Line", "Scale", "lines_of", "number", "numbers_beside", "panel"]
__all__ += ["short_name", "spread_out", "ticks", "ticks_below"]

WIDE, TALL = 400, 250
LEFT, TOP, BOTTOM = 52, 10, 40
LETTER = 7.2
"""Width of a letter of a name, in units of the drawing."""
MOST_LETTERS = 18
"""Letters of a name that are shown; the whole one is its tooltip."""
NAME_TALL = 14
"""Least distance between two names."""
NOTE_TALL = 18
"""Room above a figure for a note."""
LARGEST = 1e290
"""Values beyond this, and positive ones below its inverse, are drawn at the edge: an axis needs
room, and a number ends at 1e308."""
DASHES = ("", "7 3", "9 3 2 3", "2 3", "12 3", "5 2 1 2")
"""Of the first curve, the second, ...; `figures.STYLES` are the same, and those of the page."""


class Line(NamedTuple):
    """One curve: its points, half of its interval, and its colour; None is grey, without name."""

    label: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64] | None = None
    look: int | None = None


class Scale(NamedTuple):
    """How values become places along an axis."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def place(self, value: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return where values are, as far as the axis reaches."""
        low, high = (log10(v) if self.log else v for v in (self.low, self.high))
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.log10(value) if self.log else np.asarray(value, float)
        within = np.clip(np.nan_to_num(at, nan=low, neginf=low, posinf=high), low, high)
        return self.start + (within - low) / (high - low) * (self.end - self.start)


def lines_of(found: Sequence[Curve], looks: dict[str, int], fewest: int) -> list[Line]:
    """Return curves as lines, coloured by `looks`.

    Intervals of fewer than `fewest` seeds are left out.
    """
    return [
        Line(
            curve.label,
            curve.x,
            curve.mean,
            curve.half if curve.num_seeds >= fewest else None,
            looks.get(curve.label),
        )
        for curve in found
    ]


def short_name(text: str, most: int) -> str:
    """Return a name in so many letters; a long one without its middle, as arms differ at the end.

    >>> short_name("Algorithm 1, network.gamma=15", 18)
    'Algorithm…gamma=15'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def panel(
    name: str,
    lines: Sequence[Line],
    x: str,
    y: str,
    description: str,
    note: str = "",
    *,
    spent: bool = False,
) -> str:
    """Return a figure of curves as SVG; `name` tells it from the others of a page.

    A `note` stands above it. Where x is what was `spent`, of which some curves spend far less than
    others, its axis is logarithmic.
    """
    named = [line for line in lines if line.look is not None and np.isfinite(line.mean).any()]
    letters = max((min(len(line.label), MOST_LETTERS) for line in named), default=0)
    right = WIDE - 10.0 - (LETTER * letters + 8 if letters else 0)
    across = _across(lines, right, spent=spent)
    up = _up(lines)
    parts = [_axes(across, up, x, y)]
    parts += [_curve(line, across, up, name) for line in sorted(lines, key=_last_first)]
    parts += _names(named, across, up)
    about = escape(description, quote=True)
    clip = (
        f'<clipPath id="{name}-clip"><rect x="{LEFT}" y="{TOP}" width="{right - LEFT:.1f}" '
        f'height="{TALL - TOP - BOTTOM}"/></clipPath>'
    )
    above = NOTE_TALL if note else 0
    if note:
        parts.append(f'<text x="{LEFT}" y="-4">{escape(note)}</text>')
    box = f"0 {-above} {WIDE} {TALL + above}"
    return (
        f'<svg class="panel" viewBox="{box}" role="img" aria-label="{about}">'
        f"{clip}{''.join(parts)}</svg>"
    )


def _last_first(line: Line) -> int:
    """Return the order of drawing: what is grey first, the first curve on top."""
    return -MOST_CURVES if line.look is None else -line.look


def _across(lines: Sequence[Line], right: float, *, spent: bool = False) -> Scale:
    reached = max((float(np.nanmax(line.x)) for line in lines if len(line.x)), default=1.0)
    if spent and squeezed([line.x for line in lines]):
        least = min(float(line.x[line.x > 0].min()) for line in lines if (line.x > 0).any())
        return Scale(least, reached, True, LEFT, right)
    return Scale(0.0, reached if isfinite(reached) and reached > 0 else 1.0, False, LEFT, right)


def _up(lines: Sequence[Line]) -> Scale:
    """Return the axis of values.

    It holds all means; wide intervals of few seeds may leave it, or they would press curves flat.
    """
    every = [line.mean[np.isfinite(line.mean)] for line in lines]
    means = np.clip(np.concatenate([*every, np.empty(0)]), -LARGEST, LARGEST)
    low, high = (float(means.min()), float(means.max())) if means.size else (0.0, 1.0)
    ground, top = TALL - BOTTOM, TOP
    if low > 0 and high / low > RATIO_FOR_LOG:
        low = max(low, 1 / LARGEST)
        room = min((high / low) ** 0.04, 1e10)
        return Scale(low / room, high * room, True, ground, top)
    room = max(0.06 * (high - low) or 0.5, 1e-6 * max(abs(low), abs(high)))
    least = 0.0 if low >= 0 else -inf
    low = low - room if low != 0 else low
    return Scale(max(least, low), high + room, False, ground, top)


def ticks(scale: Scale, most: int) -> list[float]:
    """Return round values along an axis."""
    if scale.log:
        powers = range(ceil(log10(scale.low)), floor(log10(scale.high)) + 1)
        step = max(1, ceil(len(powers) / most))
        found = [10.0**power for power in powers][::step]
        if len(found) > 1:
            return found
        decades = range(floor(log10(scale.low)), ceil(log10(scale.high)) + 1)
        marks = [m * 10.0**p for p in decades for m in (1, 2, 5)]
        return [mark for mark in marks if scale.low <= mark <= scale.high]
    raw = (scale.high - scale.low) / most
    base = 10.0 ** floor(log10(raw))
    step = next(m * base for m in (1, 2, 5, 10) if m * base >= raw)
    first = ceil(scale.low / step - 1e-9)
    count = floor((scale.high - first * step) / step + 1e-9) + 1
    return [(first + index) * step for index in range(count)]


def number(value: float) -> str:
    """Return the text of a tick."""
    size = abs(value)
    if size >= 1e15:
        return f"{value:g}".replace("e+", "e")
    if size >= 1e3:
        unit, letter = next((u, s) for u, s in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
                            if size >= u)  # fmt: skip
        return f"{value / unit:g}{letter}"
    if 0 < size < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{round(value, 10):g}"


def ticks_below(across: Scale, ground: float) -> list[str]:
    """Return the ticks of a horizontal axis at a height, with their numbers."""
    parts = []
    for value in ticks(across, 5):
        at = float(across.place(value))
        parts.append(f'<path class="rule" d="M{at:.1f} {ground:.5g}v4"/>')
        parts.append(f'<text x="{at:.1f}" y="{ground + 17:.5g}" class="mid">{number(value)}</text>')
    return parts


def numbers_beside(up: Scale) -> list[str]:
    """Return the numbers of the vertical axis."""
    places = [(float(up.place(value)), number(value)) for value in ticks(up, 5)]
    return [
        f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="end">{text}</text>' for at, text in places
    ]


def _axes(across: Scale, up: Scale, x: str, y: str) -> str:
    parts = []
    for value in ticks(up, 5):
        at = float(up.place(value))
        parts.append(f'<path class="rule" d="M{LEFT} {at:.1f}H{across.end:.1f}"/>')
    parts += numbers_beside(up)
    parts += ticks_below(across, TALL - BOTTOM)
    parts.append(f'<path class="axis" d="M{LEFT} {TALL - BOTTOM}H{across.end:.1f}"/>')
    middle = (LEFT + across.end) / 2
    parts.append(f'<text x="{middle:.1f}" y="{TALL - 6}" class="mid">{escape(x)}</text>')
    side = (TALL - BOTTOM + TOP) / 2
    parts.append(
        f'<text transform="translate(13 {side:.0f}) rotate(-90)" class="mid">{escape(y)}</text>'
    )
    return "".join(parts)


def _curve(line: Line, across: Scale, up: Scale, name: str) -> str:
    known = np.isfinite(line.mean) & np.isfinite(line.x)
    known &= (line.x > 0) | (not across.log)  # nothing is spent at the start
    if not known.any():
        return ""
    xs, ys = across.place(line.x[known]), up.place(line.mean[known])
    if line.look is None:
        return f'<path class="other" d="{_path(xs, ys)}"/>'
    dash = DASHES[line.look % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash else ""
    drawn = f'<path class="line c{line.look}" d="{_path(xs, ys)}"{style}/>'
    if line.half is None or not np.isfinite(line.half[known]).any():
        return drawn
    half = np.nan_to_num(line.half[known])
    below, above = (up.place(end) for end in interval(line.mean[known], half, log=up.log))
    around = _path(np.concatenate([xs, xs[::-1]]), np.concatenate([above, below[::-1]]))
    clip = f'clip-path="url(#{name}-clip)"'
    return f'<path class="band c{line.look}" {clip} d="{around}Z"/>{drawn}'


def _path(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(xs, ys, strict=True))


def _names(named: Sequence[Line], across: Scale, up: Scale) -> list[str]:
    """Return the names of curves, each beside its end and clear of the others."""
    if not named:
        return []
    ends = []
    for line in named:
        known = np.isfinite(line.mean)
        x = float(across.place(line.x[known][-1]))
        ends.append((float(up.place(line.mean[known][-1])), x, line))
    ends.sort(key=lambda end: end[0])
    places = spread_out([end[0] for end in ends], NAME_TALL, TOP + 4, TALL - BOTTOM)
    parts = []
    for (end, x, line), at in zip(ends, places, strict=True):
        text = line.label
        short = short_name(text, MOST_LETTERS)
        # one that ends early is named where it ends
        start = across.end + 8 if x > across.end - 20 else x + 8
        parts.append(f'<circle class="dot c{line.look}" cx="{x:.1f}" cy="{end:.1f}" r="3"/>')
        parts.append(
            f'<path class="lead c{line.look}" d="M{x:.1f} {end:.1f}L{start - 2:.1f} {at:.1f}"/>'
        )
        parts.append(
            f'<text class="name" x="{start:.1f}" y="{at + 4:.1f}"><title>{escape(text)}</title>'
            f"{escape(short)}</text>"
        )
    return parts


def spread_out(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places in the same order, at least `gap` apart where there is room, and not far off.

    Places that would overlap become a block about their mean.
    """
    blocks: list[tuple[float, int]] = []  # middle, number of places
    for place in places:
        block = (place, 1)
        while blocks:
            middle, count = blocks[-1]
            least = middle + gap * (count + block[1]) / 2
            if block[0] >= least:
                break
            blocks.pop()
            total = count + block[1]
            block = ((middle * count + block[0] * block[1]) / total, total)
        blocks.append(block)
    found: list[float] = []
    for middle, count in blocks:
        reach = gap * (count - 1) / 2
        centre = min(max(middle, low + reach), high - reach)
        found += [centre + gap * (index - (count - 1) / 2) for index in range(count)]
    for index in range(len(found) - 2, -1, -1):  # blocks pushed together at the end of the axis
        found[index] = min(found[index], found[index + 1] - gap)
    return found
