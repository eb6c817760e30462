"""Figures of a scene: the map, how old the copies are, who has which share of the bandwidth, who disagrees."""

from typing import TYPE_CHECKING, Any

import numpy as np

from folkman.record.scene import Scene
from folkman.report.figures import COLOURS, STYLES, new_figure, shades_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PAINTS",
    "busiest",
    "draw_age_table",
    "draw_disagreement",
    "draw_scene",
    "draw_shares",
    "paint_scene",
]

PAINTS = {
    "sinr": "SINR of what is on the air (dB)",
    "age": "age of the copy held (slots)",
    "disagreement": "disagreement ||v_i - w||",
}
"""What a map can be coloured by."""

MAP_RADIUS = 1.25
"""How far the map reaches, in cell radii."""
MOST_LINES = 16
"""Senders that are told apart on a figure of shares; the others are one."""


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
    """Return what says most on a map: SINR if it is known, else ages, or disagreement where pairs were not kept."""
    if np.isfinite(scene.sinr_db).any():
        return "sinr"
    return "age" if scene.paired else "disagreement"


def paint_scene(figure: "Figure", axes: Any, scene: Scene, frame: int, paint: str) -> None:
    """Paint one frame of a scene on axes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Circle

    if paint not in PAINTS:
        raise ValueError(f"a map is coloured by one of {', '.join(PAINTS)}, got '{paint}'")
    where = scene.where(frame)
    reach = MAP_RADIUS * (scene.cell_radius_m if scene.placed else 1.0)
    low, high = _span(scene, paint)
    shades = ScalarMappable(Normalize(low, high), "viridis_r" if paint == "age" else "viridis")
    if scene.placed:
        axes.add_patch(
            Circle((0, 0), scene.cell_radius_m, fill=False, edgecolor="0.55", linewidth=1.0)
        )
        outside = scene.interferers_m
        axes.scatter(
            outside[:, 0],
            outside[:, 1],
            marker="x",
            s=14,
            color="0.55",
            linewidth=0.8,
            label="interferer",
        )
    for rx, tx, value in _arrows(scene, frame, paint):
        arrow = {
            "arrowstyle": "-|>",
            "color": shades.to_rgba(np.asarray(value)) if np.isfinite(value) else "0.6",
        }
        arrow |= {"linewidth": 1.3, "connectionstyle": "arc3,rad=0.15", "shrinkA": 5, "shrinkB": 5}
        axes.annotate("", where[rx], where[tx], arrowprops=arrow)
    people = scene.size - scene.server
    filled = (
        shades.to_rgba(scene.disagreement[frame, :people])
        if paint == "disagreement"
        else COLOURS[1]
    )
    axes.scatter(
        *where[:people].T,
        s=44,
        color=filled,
        zorder=3,
        edgecolor="white",
        linewidth=0.8,
        label="node",
    )
    if scene.server:
        axes.scatter(
            *where[people:].T,
            marker="^",
            s=54,
            color="0.25",
            zorder=3,
            edgecolor="white",
            label="server",
        )
    for index in range(people if people <= MOST_LINES * 2 else 0):
        axes.annotate(
            str(index), where[index], textcoords="offset points", xytext=(5, 4), fontsize="small"
        )
    figure.colorbar(shades, ax=axes, label=PAINTS[paint], shrink=0.85)
    _frame_map(axes, scene, frame, reach)


def _frame_map(axes: Any, scene: Scene, frame: int, reach: float) -> None:
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_title(
        f"slot {int(scene.slot[frame])}, {scene.seconds[frame]:g} s", fontsize="small", color="0.35"
    )
    if scene.placed:
        axes.set_xlabel("x (m)")
        axes.set_ylabel("y (m)")
        axes.legend(frameon=False, fontsize="x-small", loc="upper right")
    else:
        axes.set_axis_off()


def _arrows(scene: Scene, frame: int, paint: str) -> list[tuple[int, int, float]]:
    """Return (rx, tx, value) of the links to draw: those on the air, or, of a law without air, all by age."""
    if not scene.paired:
        return []
    drawn = (
        scene.on_air[frame] if paint != "age" or scene.on_air.any() else scene.age_slots[frame] >= 0
    )
    values = scene.sinr_db[frame] if paint == "sinr" else scene.age_slots[frame].astype(float)
    pairs = [(int(rx), int(tx)) for rx, tx in np.argwhere(drawn) if rx != tx]
    return [
        (rx, tx, float("nan") if paint == "disagreement" else float(values[rx, tx]))
        for rx, tx in pairs
    ]


def _span(scene: Scene, paint: str) -> tuple[float, float]:
    """Return the range of colours, the same for all frames of a scene."""
    values = {"sinr": scene.sinr_db, "age": scene.age_slots, "disagreement": scene.disagreement}[
        paint
    ]
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
    ages = np.where(scene.age_slots >= 0, scene.age_slots, np.nan).mean(axis=0)
    np.fill_diagonal(ages, np.nan)
    edges = np.arange(scene.size + 1) - 0.5
    mesh = axes.pcolormesh(edges, edges, np.ma.masked_invalid(ages), cmap="viridis_r", linewidth=0)
    if scene.size <= 12:
        middle = np.nanmean([np.nanmin(ages), np.nanmax(ages)]) if np.isfinite(ages).any() else 0.0
        for rx, tx in np.argwhere(np.isfinite(ages)):
            ink = (
                "#fefefe" if ages[rx, tx] > middle else "#111111"
            )  # on its own ground, whatever the page's
            axes.text(
                tx,
                rx,
                f"{ages[rx, tx]:.3g}",
                ha="center",
                va="center",
                fontsize="xx-small",
                color=ink,
            )
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
    """Draw the share of the bandwidth of each sender over time, stacked."""
    if not np.isfinite(scene.share).any():
        raise ValueError("this run has no bandwidth: its network is a delay law, not a radio")
    figure, axes = new_figure(4.6, 2.8)
    people = scene.size - scene.server
    share = np.nan_to_num(scene.share[:, :people])
    kept = np.sort(np.argsort(-share.mean(axis=0), kind="stable")[:MOST_LINES])
    rest = share.sum(axis=1) - share[:, kept].sum(axis=1)
    bottom = np.zeros(len(share))
    names = [f"node {i}" for i in kept] + (["others"] if people > MOST_LINES else [])
    shades = shades_of(len(names))
    time_s = scene.seconds
    for index, name in enumerate(names):
        top = bottom + (share[:, kept[index]] if index < len(kept) else rest)
        axes.fill_between(time_s, bottom, top, step="post", color=shades[index], linewidth=0)
        axes.plot([], [], color=shades[index], linewidth=5, label=name)
        bottom = top
    axes.set_ylim(0, 1.02)
    axes.set_xlim(time_s[0], time_s[-1] if len(time_s) > 1 else time_s[0] + 1)
    axes.set_xlabel("simulated time (s)")
    axes.set_ylabel("share of the bandwidth")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False,
        fontsize="xx-small",
        bbox_to_anchor=(1.01, 1.0),
        loc="upper left",
        borderaxespad=0.0,
    )
    return figure


def draw_disagreement(scene: Scene) -> "Figure":
    """Draw how far each node's own model is from the network's over time."""
    figure, axes = new_figure(4.6, 2.8)
    people = scene.size - scene.server
    far = scene.disagreement[:, :people]
    for index in range(min(people, len(COLOURS))):
        style = STYLES[index % len(STYLES)]
        axes.plot(
            scene.seconds,
            far[:, index],
            color=COLOURS[index],
            linestyle=style,
            linewidth=1.2,
            label=f"{index}",
        )
    for index in range(len(COLOURS), people):
        axes.plot(scene.seconds, far[:, index], color="0.6", linewidth=0.7)
    axes.set_xlabel("simulated time (s)")
    axes.set_ylabel("disagreement ||v_i - w||")
    axes.grid(visible=True, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="node", frameon=False, fontsize="x-small", title_fontsize="x-small",
                bbox_to_anchor=(1.01, 1.0), loc="upper left", borderaxespad=0.0)  # fmt: skip
    return figure
