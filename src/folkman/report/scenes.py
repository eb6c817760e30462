"""Figures of a scene: the map, the ages of copies, shares of the bandwidth, who disagrees."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.record.json_file import Json
from folkman.record.scene import Scene
from folkman.report.figures import BESIDE, STYLES, finish, name_ends, new_figure, typeset
from folkman.report.palette import MOST_CURVES, curve_colours, grey, ground, ink_on, ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PAINTS", "busiest", "draw_age_table", "draw_disagreement", "draw_scene", "draw_shares"]
__all__ += ["arrows", "best_paint", "gap_slots", "paint_scene", "shares_seen", "span"]

PAINTS = {
    "sinr": "SINR of what is on the air (dB)",
    "age": "age of the copy held (slots)",
    "disagreement": "disagreement ||v_i - w||",
}
"""What a map can be coloured by."""

MAP_RADIUS = 1.25
"""How far the map reaches, in cell radii."""
MOST_LINES = 16
"""Twice as many nodes are numbered on a map."""
LEAST_BAR = 0.012
"""Width of the bar of a moment where one slot is too narrow to be seen, as a share of the axis."""
NODE_SIZE = 120
"""The area of a node that has room for its number, in square points."""


def busiest(scene: Scene) -> int:
    """Return the last frame with the most on the air: what there is to see on a still picture."""
    links = scene.on_air.sum(axis=(1, 2))
    return int(len(links) - 1 - np.argmax(links[::-1])) if links.size else len(scene.slot) - 1


def draw_scene(scene: Scene, frame: int | None = None, paint: str | None = None) -> "Figure":
    """Draw the map: nodes, what is on the air (or who holds whose copy), interferers."""
    figure, axes = new_figure(4.6, 3.9)
    shown = busiest(scene) if frame is None else frame
    paint_scene(figure, axes, scene, shown, paint or best_paint(scene))
    return figure


def best_paint(scene: Scene) -> str:
    """Return what says most on a map.

    SINR if it is known, else ages, or disagreement where pairs were not kept.
    """
    if np.isfinite(scene.sinr_db).any():
        return "sinr"
    return "age" if scene.paired else "disagreement"


def paint_scene(figure: "Figure", axes: "Axes", scene: Scene, frame: int, paint: str) -> None:
    """Paint one frame of a scene on axes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    if paint not in PAINTS:
        raise ValueError(f"a map is coloured by one of {', '.join(PAINTS)}, got '{paint}'")
    where = scene.where(frame)
    reach = MAP_RADIUS * (scene.cell_radius_m if scene.placed else 1.0)
    low, high = span(scene, paint)
    shades = ScalarMappable(Normalize(low, high), ramp())
    if scene.placed:
        draw_surroundings(axes, scene.cell_radius_m, scene.interferers_m)
    for rx, tx, value in arrows(scene, frame, paint):
        colour = shades.to_rgba(np.asarray(value)) if np.isfinite(value) else grey(0.6)
        draw_link(axes, where, rx, tx, colour)
    people = scene.size - scene.server
    apart = scene.disagreement[frame, :people]
    filled = shades.to_rgba(apart) if paint == "disagreement" else curve_colours()[1]
    above: Json = {"zorder": 3, "edgecolor": ground()}
    few = people <= MOST_LINES * 2
    size = NODE_SIZE if few else 44
    axes.scatter(*where[:people].T, s=size, color=filled, linewidth=0.8, label="node", **above)
    if scene.server:
        axes.scatter(*where[people:].T, marker="^", s=54, color=grey(0.25), label="server", **above)
    number_nodes(axes, where[: people if few else 0])
    figure.colorbar(shades, ax=axes, label=typeset(PAINTS[paint]), shrink=0.85)
    frame_map(axes, reach, placed=scene.placed)
    title = f"slot {int(scene.slot[frame])}, {scene.seconds[frame]:g} s"
    axes.set_title(title, fontsize="small", color=grey(0.35))


def draw_surroundings(axes: "Axes", radius_m: float, interferers_m: NDArray[np.float32]) -> None:
    """Draw the edge of the cell, and the interferers around it."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), radius_m, fill=False, edgecolor=grey(0.55), linewidth=1.0))
    look: Json = {"marker": "x", "s": 14, "color": grey(0.55), "linewidth": 0.8}
    axes.scatter(*interferers_m.T, label="interferer", **look)


def draw_link(axes: "Axes", where: NDArray[np.float32], rx: int, tx: int, colour: object) -> None:
    """Draw an arrow from sender to receiver, bent so that both ways can be seen."""
    look: Json = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.15"}
    look |= {"shrinkA": 7, "shrinkB": 7, "color": colour, "linewidth": 1.3}
    axes.annotate("", where[rx], where[tx], arrowprops=look)


def number_nodes(axes: "Axes", where: NDArray[np.float32]) -> None:
    """Write the number of each node on it."""
    on: Json = {"ha": "center", "va": "center", "fontsize": "x-small", "color": ink_on(1.0)}
    for index, place in enumerate(where):
        x, y = map(float, place)
        axes.text(x, y, str(index), zorder=4, fontweight="bold", **on)


def frame_map(axes: "Axes", reach: float, *, placed: bool) -> None:
    """Set how far a map reaches; one of a network without positions has no axes."""
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    if placed:
        axes.set_xlabel("x (m)")
        axes.set_ylabel("y (m)")
        axes.legend(frameon=False, fontsize="x-small", loc="upper right", markerscale=0.6)
    else:
        axes.set_axis_off()


def arrows(scene: Scene, frame: int, paint: str) -> list[tuple[int, int, float]]:
    """Return (rx, tx, value) of the links to draw.

    Those on the air, or, of a law without air, all by age.
    """
    if not scene.paired:
        return []
    held = paint == "age" and not scene.on_air.any()
    drawn = scene.age_slots[frame] >= 0 if held else scene.on_air[frame]
    values = scene.sinr_db[frame] if paint == "sinr" else scene.age_slots[frame].astype(float)
    values = np.full_like(values, np.nan) if paint == "disagreement" else values
    return [(rx, tx, values[rx, tx]) for rx, tx in np.argwhere(drawn) if rx != tx]


def span(scene: Scene, paint: str) -> tuple[float, float]:
    """Return the range of colours, the same for all frames of a scene."""
    every = {"sinr": scene.sinr_db, "age": scene.age_slots, "disagreement": scene.disagreement}
    values = every[paint]
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low = max(low, 0.0) if paint != "sinr" else low
    return (low, high) if high > low else (low, low + 1.0)


def draw_age_table(scene: Scene) -> "Figure":
    """Draw the mean age of the copy that each node (row) held of each other (column)."""
    if not scene.paired:
        raise ValueError(
            f"the ages of pairs are kept for at most 64 nodes, this run has {scene.size}"
        )
    figure, axes = new_figure(4.2, 3.5)
    ages = scene.mean_ages
    edges = np.arange(scene.size + 1) - 0.5
    mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(ages), cmap=ramp(), linewidth=0)
    if scene.size <= 12:
        low, high = np.nanmin(ages), np.nanmax(ages)
        for rx, tx in np.argwhere(np.isfinite(ages)):
            part = (ages[rx, tx] - low) / (high - low) if high > low else 0.0
            look: Json = {"ha": "center", "va": "center", "fontsize": "xx-small"}
            look["color"] = ink_on(float(part))
            axes.text(tx, rx, f"{ages[rx, tx]:.3g}", **look)
    names = [scene.name(i) for i in range(scene.size)]
    if scene.size <= 20:
        axes.set_xticks(range(scene.size), names)
        axes.set_yticks(range(scene.size), names)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.set_xlabel("copy of node")
    axes.set_ylabel("held by node")
    figure.colorbar(mesh, ax=axes, label="mean age (slots)", shrink=0.85)
    return figure


def draw_shares(scene: Scene) -> "Figure":
    """Draw the share of the bandwidth of each sender at each frame, stacked.

    A frame is a moment: its bar is one slot wide, or as wide as can be seen.
    """
    if not np.isfinite(scene.share).any():
        raise ValueError("this run has no bandwidth: its network is a delay law, not a radio")
    figure, axes = new_figure(4.6, 2.8)
    seen, rest = shares_seen(scene)
    columns = [(f"node {n}", curve_colours()[i], own) for i, (n, own) in enumerate(seen.items())]
    columns += [("others", grey(0.7), rest)] if rest.any() else []
    time_s, bottom = scene.seconds, np.zeros(len(scene.slot))
    long_s = float(time_s[-1] - time_s[0]) or 1.0
    slot_s = long_s / max(int(scene.slot[-1] - scene.slot[0]), 1)
    wide_s = max(slot_s, min(LEAST_BAR * long_s, slot_s * gap_slots(scene)))
    for name, colour, own in columns:
        edge: Json = {"linewidth": 0.2, "edgecolor": ground()}
        axes.bar(time_s, own, wide_s, bottom=bottom, color=colour, label=name, **edge)
        bottom = bottom + own
    axes.set_ylim(0, 1.02)
    axes.set_xlim(time_s[0] - wide_s / 2, time_s[0] + long_s + wide_s / 2)
    moments = f"at {len(time_s)} moments; what was sent between them is not drawn"
    finish(axes, "simulated time (s)", "share of the bandwidth", moments, grid=False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, fontsize="x-small", **BESIDE)
    return figure


def shares_seen(scene: Scene) -> tuple[dict[int, NDArray[np.float64]], NDArray[np.float64]]:
    """Return the shares at each frame: of those who had most, by node, and of the rest together.

    Nobody is named who was never seen on the air.
    """
    share = np.nan_to_num(scene.share[:, : scene.size - scene.server]).astype(float)
    most = np.argsort(-share.mean(axis=0), kind="stable")[:MOST_CURVES]
    seen = {int(node): share[:, node] for node in np.sort(most) if share[:, node].any()}
    others = np.setdiff1d(np.arange(share.shape[1]), list(seen))
    return seen, share[:, others].sum(axis=1)


def gap_slots(scene: Scene) -> int:
    """Return the least number of slots between two frames."""
    return int(np.diff(scene.slot).min(initial=max(int(scene.slot[-1]), 1)))


def draw_disagreement(scene: Scene) -> "Figure":
    """Draw how far each node's own model is from the network's over time.

    The nodes that end farthest, nearest and in the middle are named.
    """
    figure, axes = new_figure(4.6, 2.8)
    people = scene.size - scene.server
    far = scene.disagreement[:, :people]
    order = np.argsort(far[-1], kind="stable")
    told = {int(order[-1]): 1, int(order[len(order) // 2]): 2, int(order[0]): 0}
    for index in range(people):
        look: Json = {"color": grey(0.75), "linewidth": 0.7}
        if index in told:
            style = told[index]
            look = {"color": curve_colours()[style], "linestyle": STYLES[style], "linewidth": 1.4}
            look["label"] = f"node {index}"
        axes.plot(scene.seconds, far[:, index], **look)
    finish(axes, "simulated time (s)", PAINTS["disagreement"])
    name_ends(axes)
    return figure
