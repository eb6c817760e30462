"""Figures of a scene as SVG text: the map, the ages of copies, shares of the bandwidth.

They look like those of `report.scenes` and take the page's colours. A page draws them in
milliseconds; what `folkman plot` writes is drawn by matplotlib.
"""

from collections.abc import Sequence
from html import escape
from math import cos, hypot, isfinite, pi, sin

import numpy as np

from folkman.record.scene import Scene
from folkman.report.palette import ON_HIGH, ON_LOW, PALE, RAMP_LIGHT
from folkman.report.panels import LEFT, WIDE, Scale, number, numbers_beside, ticks, ticks_below
from folkman.report.scenes import (
    MAP_RADIUS,
    MOST_LINES,
    PAINTS,
    arrows,
    best_paint,
    busiest,
    gap_slots,
    shares_seen,
    span,
)

__all__ = ["ages_panel", "map_panel", "shares_panel"]

TOP, BOTTOM = 22, 40
SIDE = 262
"""Length of a side of the map and of the table of ages, in units of the drawing."""
NODE, SMALL = 8.5, 4.5
"""Radius of a node that has room for its number, and of one that has none."""
BEND = 0.15
"""How far an arrow leaves the straight line, as a share of its length: both ways can be seen."""
LEAST_BAR = 4.0
"""Width of the bar of a moment, where one slot is too narrow to be seen."""
MOST_NUMBERED, MOST_NAMED = 12, 20
"""Rows of the table of ages up to which cells have numbers, and rows have names."""


def map_panel(scene: Scene, description: str, frame: int | None = None) -> str:
    """Return the map: nodes, what is on the air (or who holds whose copy), interferers."""
    shown, paint = busiest(scene) if frame is None else frame, best_paint(scene)
    reach = MAP_RADIUS * (scene.cell_radius_m if scene.placed else 1.0)
    across = Scale(-reach, reach, False, LEFT, LEFT + SIDE)
    up = Scale(-reach, reach, False, TOP + SIDE, TOP)
    where = [_at(across, up, x, y) for x, y in scene.where(shown)]
    people, (low, high) = scene.size - scene.server, span(scene, paint)
    few = people <= MOST_LINES * 2
    radius = NODE if few else SMALL
    parts = [_surroundings(scene, across, up)] if scene.placed else []
    for rx, tx, value in arrows(scene, shown, paint):
        colour = _shade((value - low) / (high - low)) if isfinite(value) else "var(--ink-2)"
        parts.append(_arrow(where[tx], where[rx], radius, colour))
    for index, (x, y) in enumerate(where[:people]):
        colour, ink = "var(--c1)", "var(--paper)"
        if paint == "disagreement":
            share = (float(scene.disagreement[shown, index]) - low) / (high - low)
            colour, ink = _shade(share), _ink(share)
        parts.append(_node(x, y, radius, colour, ink, str(index) if few else ""))
    parts += [_server(*where[-1])] if scene.server else []
    title = f"slot {int(scene.slot[shown])}, {scene.seconds[shown]:g} s"
    parts += [f'<text x="{LEFT}" y="14">{title}</text>']
    parts += [_bar(low, high, PAINTS[paint])]
    return _drawn(TOP + SIDE + (BOTTOM if scene.placed else 8), parts, description)


def _at(across: Scale, up: Scale, x: float, y: float) -> tuple[float, float]:
    """Return where a place is on the drawing."""
    return float(across.place(float(x))), float(up.place(float(y)))


def _surroundings(scene: Scene, across: Scale, up: Scale) -> str:
    """Return the axes, the edge of the cell, the interferers around it, and what is what."""
    ground = TOP + SIDE
    parts = ticks_below(across, ground) + numbers_beside(up)
    for value in ticks(up, 5):
        at = float(up.place(value))
        parts.append(f'<path class="rule" d="M{LEFT - 4} {at:.1f}h4"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{ground}H{LEFT + SIDE}"/>')
    parts.append(_named_axes("x (m)", "y (m)"))
    x, y = _at(across, up, 0.0, 0.0)
    edge = abs(float(across.place(scene.cell_radius_m)) - x)
    parts.append(f'<circle class="edge" cx="{x:.1f}" cy="{y:.1f}" r="{edge:.1f}"/>')
    near = [p for p in scene.interferers_m if max(abs(p[0]), abs(p[1])) <= across.high]
    parts += [_cross(*_at(across, up, *place)) for place in near]
    if near:
        parts.append(_cross(LEFT + SIDE - 68, 10))
        parts.append(f'<text x="{LEFT + SIDE - 60}" y="14">interferer</text>')
    return "".join(parts)


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"/>'


def _named_axes(x: str, y: str) -> str:
    middle = TOP + SIDE / 2
    return (
        f'<text x="{LEFT + SIDE / 2:.1f}" y="{TOP + SIDE + 34}" class="mid">{x}</text>'
        f'<text transform="translate(13 {middle:.0f}) rotate(-90)" class="mid">{y}</text>'
    )


def _arrow(start: tuple[float, float], end: tuple[float, float], away: float, colour: str) -> str:
    """Return a bent arrow between two nodes that ends short of both by `away`."""
    (x0, y0), (x1, y1) = start, end
    length = hypot(x1 - x0, y1 - y0)
    if length < 2 * away + 4:  # one lies on the other
        return ""
    bent = (x0 + x1) / 2 + BEND * (y1 - y0), (y0 + y1) / 2 - BEND * (x1 - x0)
    (x0, y0), (x1, y1) = _towards(start, bent, away), _towards(end, bent, away)
    dx, dy = (x1 - bent[0]), (y1 - bent[1])
    size = hypot(dx, dy) or 1.0
    dx, dy = dx / size, dy / size
    back_x, back_y = x1 - 7 * dx, y1 - 7 * dy
    head = " ".join(
        f"{x:.1f},{y:.1f}"
        for x, y in (
            (x1, y1),
            (back_x - 3 * dy, back_y + 3 * dx),
            (back_x + 3 * dy, back_y - 3 * dx),
        )
    )
    curve = f"M{x0:.1f} {y0:.1f}Q{bent[0]:.1f} {bent[1]:.1f} {back_x:.1f} {back_y:.1f}"
    line = f'<path class="air" stroke="{colour}" d="{curve}"/>'
    return f'{line}<polygon fill="{colour}" points="{head}"/>'


def _towards(
    start: tuple[float, float], end: tuple[float, float], by: float
) -> tuple[float, float]:
    """Return the place so far from `start` on the way to `end`."""
    length = hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    return (
        start[0] + by * (end[0] - start[0]) / length,
        start[1] + by * (end[1] - start[1]) / length,
    )


def _node(x: float, y: float, radius: float, colour: str, ink: str, text: str) -> str:
    drawn = f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'
    if text:
        drawn += f'<text x="{x:.1f}" y="{y + 4:.1f}" class="on" style="fill:{ink}">{text}</text>'
    return drawn


def _server(x: float, y: float) -> str:
    points = " ".join(
        f"{x + 9 * sin(turn):.1f},{y - 9 * cos(turn):.1f}" for turn in (0, 2 * pi / 3, 4 * pi / 3)
    )
    return (
        f'<polygon class="node" fill="var(--ink)" points="{points}"><title>server</title></polygon>'
    )


def _shade(part: float) -> str:
    """Return the colour of a value, by its part of the range; a run that diverged has none."""
    if not isfinite(part):
        return "var(--ink-2)"
    index = min(len(RAMP_LIGHT) - 1, max(0, int(part * len(RAMP_LIGHT))))
    return f"var(--r{index}, {RAMP_LIGHT[index]})"


def _ink(part: float) -> str:
    """Return a colour that is read on that of a value."""
    return f"var(--on-high, {ON_HIGH})" if part > PALE else f"var(--on-low, {ON_LOW})"


def _bar(low: float, high: float, text: str) -> str:
    """Return the colours of values beside a figure, with what they mean."""
    left, top, tall = LEFT + SIDE + 16, TOP + 18, SIDE - 36
    each = tall / len(RAMP_LIGHT)
    parts = [
        f'<rect x="{left}" y="{top + tall - (index + 1) * each:.2f}" width="12" '
        f'height="{each + 0.3:.2f}" fill="{_shade((index + 0.5) / len(RAMP_LIGHT))}"/>'
        for index in range(len(RAMP_LIGHT))
    ]
    scale = Scale(low, high, False, top + tall, top)
    for value in ticks(scale, 6):
        at = float(scale.place(value))
        parts.append(f'<text x="{left + 17}" y="{at + 4:.1f}">{number(value)}</text>')
    middle = f"translate({left + 62} {top + tall / 2:.0f}) rotate(-90)"
    return "".join(parts) + f'<text transform="{middle}" class="mid">{escape(text)}</text>'


def _drawn(tall: float, parts: Sequence[str], description: str) -> str:
    about = escape(description, quote=True)
    return (
        f'<svg class="panel" viewBox="0 0 {WIDE} {tall:.0f}" role="img" aria-label="{about}">'
        f"{''.join(parts)}</svg>"
    )


def ages_panel(scene: Scene, description: str) -> str:
    """Return the mean age of the copy that each node (row) held of each other (column)."""
    ages = scene.mean_ages
    low, high = float(np.nanmin(ages)), float(np.nanmax(ages))
    each, size, parts = SIDE / scene.size, scene.size, []
    for rx, tx in np.argwhere(np.isfinite(ages)):
        share = (float(ages[rx, tx]) - low) / (high - low) if high > low else 0.0
        x, y = LEFT + tx * each, TOP + rx * each
        parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{each:.2f}" height="{each:.2f}" '
            f'fill="{_shade(share)}"/>'
        )
        if size <= MOST_NUMBERED:
            parts.append(
                f'<text x="{x + each / 2:.1f}" y="{y + each / 2 + 3:.1f}" class="cell" '
                f'style="fill:{_ink(share)}">{ages[rx, tx]:.3g}</text>'
            )
    step = 1 if size <= MOST_NAMED else -(-size // 8)
    for index in range(0, size, step):
        name, at = scene.name(index), (index + 0.5) * each
        parts.append(f'<text x="{LEFT - 6}" y="{TOP + at + 4:.1f}" class="end">{name}</text>')
        parts.append(f'<text x="{LEFT + at:.1f}" y="{TOP + SIDE + 15}" class="mid">{name}</text>')
    parts.append(f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{SIDE}" height="{SIDE}"/>')
    parts.append(_named_axes("copy of node", "held by node"))
    parts.append(_bar(low, high if high > low else low + 1.0, "mean age (slots)"))
    return _drawn(TOP + SIDE + BOTTOM, parts, description)


def shares_panel(scene: Scene, description: str) -> str:
    """Return the share of the bandwidth of each sender at each frame, stacked.

    A frame is a moment: its bar is one slot wide, or as wide as can be seen.
    """
    seen, rest = shares_seen(scene)
    columns = [(f"node {n}", f"var(--c{i})", own) for i, (n, own) in enumerate(seen.items())]
    columns += [("others", "var(--rule)", rest)] if rest.any() else []
    time_s, ground, right = scene.seconds, 210, WIDE - 76
    first, last = float(time_s[0]), float(time_s[-1])
    across = Scale(first, last if last > first else first + 1, False, LEFT, right)
    up = Scale(0.0, 1.02, False, ground, 10)
    slot_wide = (right - LEFT) / max(int(scene.slot[-1] - scene.slot[0]), 1)
    wide = max(slot_wide, min(LEAST_BAR, slot_wide * gap_slots(scene)))
    parts, bottom = [], np.zeros(len(scene.slot))
    for index, (name, colour, own) in enumerate(columns):
        top = bottom + own
        parts += _bars(across.place(time_s), wide, up.place(bottom), up.place(top), colour)
        at = 20 + 17 * (len(columns) - 1 - index)
        parts.append(
            f'<rect x="{right + 10}" y="{at - 9}" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(f'<text x="{right + 25}" y="{at}">{name}</text>')
        bottom = top
    parts += numbers_beside(up) + ticks_below(across, ground)
    parts.append(f'<path class="axis" d="M{LEFT} {ground}H{right}"/>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle:.0f}" y="244" class="mid">simulated time (s)</text>')
    turned = "translate(13 110) rotate(-90)"
    parts.append(f'<text transform="{turned}" class="mid">share of the bandwidth</text>')
    return _drawn(250, parts, description)


def _bars(
    xs: np.ndarray, wide: float, bottom: np.ndarray, top: np.ndarray, colour: str
) -> list[str]:
    """Return bars around these places, without those that have no height."""
    return [
        f'<rect class="share" fill="{colour}" x="{x - wide / 2:.1f}" y="{high:.1f}" '
        f'width="{wide:.1f}" height="{low - high:.1f}"/>'
        for x, low, high in zip(xs, bottom, top, strict=True)
        if high != low
    ]
