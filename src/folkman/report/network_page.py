"""The part of a report on what the network did: the cell, ages, bandwidth, consensus, nodes."""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from folkman.record.run import Run
from folkman.record.scene import Scene
from folkman.report import html
from folkman.report.curves_page import best_first, curve_block
from folkman.report.panels import Line, panel
from folkman.report.scene_panels import ages_panel, map_panel, shares_panel
from folkman.report.statistics import curves

__all__ = ["MOST_SCENES", "network_sections", "node_rows"]

MOST_SCENES = 2
"""Algorithms whose cell is drawn; the tables have all."""
UNLIKE = 0.05
"""Share of the mean age by which ages of pairs must differ to be drawn."""


def network_sections(runs: Sequence[Run]) -> list[html.Section]:
    """Return what the network did, folded.

    Of each label the first seed is shown that has kept its network, and figures of a few labels
    that differ in it: the first of the run, then those that learn best.
    """
    scenes: dict[str, Scene] = {}
    for run in runs:
        if run.scene is not None:
            scenes.setdefault(run.label, run.scene)
    shown = _telling(scenes, best_first(runs))
    parts = {
        "cell": ("The cell", _maps(shown)),
        "ages": ("Ages", _ages(runs, shown)),
        "bandwidth": ("Bandwidth", _shares(shown)),
        "consensus": ("Consensus", _apart(runs, scenes)),
    }
    nodes = [
        html.details(f"{label} (first seed)", html.table(*node_rows(scene), explained=True),
                     opened=index == 0)
        for index, (label, scene) in enumerate(scenes.items())
    ]  # fmt: skip
    folded = [
        html.Section(name, title, html.grid(blocks), folded=True)
        for name, (title, blocks) in parts.items()
    ]
    return [*folded, html.Section("nodes", "Nodes", "".join(nodes), folded=True)]


def _telling(scenes: dict[str, Scene], best: Sequence[str]) -> dict[str, Scene]:
    """Return a few scenes that differ in what was on the air and how old it was.

    The first label's and then the best ones'; those with something on the air come before others.
    """
    order = sorted(
        scenes,
        key=lambda label: (
            not scenes[label].on_air.any(), label != next(iter(scenes)), best.index(label)
        ),
    )  # fmt: skip
    kept: dict[str, Scene] = {}
    for label in order:
        scene = scenes[label]
        alike = any(
            np.array_equal(scene.age_slots, other.age_slots)
            and np.array_equal(scene.on_air, other.on_air)
            for other in kept.values()
        )
        if not alike and len(kept) < MOST_SCENES:
            kept[label] = scene
    return kept


def _maps(scenes: dict[str, Scene]) -> list[str]:
    """Return maps of networks that have positions, or whose links are not all or a star."""
    blocks = []
    for label, scene in scenes.items():
        sparse = scene.paired and not scene.server and not (scene.age_slots[-1] >= 0).all()
        if not (scene.placed or sparse):
            continue
        what = "links on the air" if scene.on_air.any() else "who holds whose copy"
        counted = scene.on_air.sum(axis=(1, 2))
        busy = f"; {counted.mean():.3g} links on the air in the mean" if scene.on_air.any() else ""
        how = "" if scene.placed else "; the network has no positions, nodes stand on a circle"
        caption = f"{label}: nodes and {what}{busy}{how}"
        blocks.append(html.panel_block(map_panel(scene, caption), caption))
    return blocks


def _ages(runs: Sequence[Run], scenes: dict[str, Scene]) -> list[str]:
    blocks = []
    known = _ends(runs, "mean_age")
    if any(value > 0 for value in known.values()):
        oldest = max(known, key=lambda label: known[label])
        caption = f"Mean age of the copies in use. {oldest} uses the oldest: {known[oldest]:.3g}"
        blocks.append(curve_block("age", runs, "seconds", "mean_age", f"{caption} slots."))
    for label, scene in scenes.items():
        if scene.paired and not scene.server and ages_differ(scene):
            ages = scene.mean_ages
            rx, tx = np.unravel_index(np.nanargmax(ages), ages.shape)
            caption = (
                f"{label}, one seed: mean age of what each node held of each other. The oldest: "
                f"node {rx}'s copy of node {tx}, {ages[rx, tx]:.3g} slots."
            )
            blocks.append(html.panel_block(ages_panel(scene, caption), caption))
    return blocks


def _ends(runs: Sequence[Run], metric: str) -> dict[str, float]:
    """Return the mean over seeds of a last value, as the curve beside it ends, where it is known.

    A curve ends where the shortest run of its label does.
    """
    ends = {curve.label: curve.mean[-1:] for curve in curves(runs, "seconds", metric)}
    return {label: float(end[0]) for label, end in ends.items() if np.isfinite(end).any()}


def ages_differ(scene: Scene) -> bool:
    """Tell whether some pairs of nodes held clearly older copies than others."""
    ages = scene.mean_ages[np.isfinite(scene.mean_ages)]
    return bool(ages.size and np.ptp(ages) > UNLIKE * ages.mean())


def _shares(scenes: dict[str, Scene]) -> list[str]:
    blocks = []
    for label, scene in scenes.items():
        if np.isfinite(scene.share).any():
            caption = (
                f"{label}, one seed: who had which share of {scene.bandwidth_hz / 1e6:g} MHz, at "
                f"{_times(len(scene.slot), 'moment')}; what was sent between them is not drawn. "
                f"{_longest_on_air(scene)}"
            )
            blocks.append(html.panel_block(shares_panel(scene, caption), caption))
    return blocks


def _longest_on_air(scene: Scene) -> str:
    """Return who was on the air longest: over all slots, or, where only frames tell, in those."""
    people = scene.size - scene.server
    airtimes, seen = scene.airtimes[:people], scene.seen[:people]
    if np.isfinite(airtimes).all():
        most = int(airtimes.argmax())
        total = float(airtimes.sum())
        in_all = f"; all nodes together {total:.0%}" if total < 1.005 else ""  # else side by side
        return (
            f"Over all slots node {most} was on the air longest, {airtimes[most]:.0%} of the time"
            f"{in_all}."
        )
    most = int(seen.argmax())
    return f"Node {most} was seen most often, in {seen[most]} of {len(scene.slot)} snapshots."


def _times(count: int, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


def _apart(runs: Sequence[Run], scenes: dict[str, Scene]) -> list[str]:
    """Return how far the nodes' models were from the network's, and from node to node."""
    blocks = []
    known = _ends(runs, "consensus")
    if known:
        most = max(known, key=lambda label: known[label])
        caption = (
            "Mean distance of the nodes' models from the network's. At the end it is largest for "
            f"{most}: {known[most]:.3g}."
        )
        blocks.append(curve_block("consensus", runs, "seconds", "consensus", caption))
    for label, scene in list(scenes.items())[:1]:
        far = scene.disagreement[:, : scene.size - scene.server].astype(float)
        if not np.isfinite(far).all():
            continue
        order = np.argsort(far[-1])
        looks = {int(order[-1]): 1, int(order[0]): 0} if len(order) > 1 else {0: 0}
        lines = [
            Line(f"node {node}", scene.seconds, far[:, node], None, looks.get(node))
            for node in range(far.shape[1])
        ]
        caption = (
            f"{label}, one seed: disagreement node by node. At the end node {order[-1]} is "
            f"farthest, {far[-1].max():.3g}, and node {order[0]} nearest, {far[-1].min():.3g}."
        )
        y = "disagreement ||v_i - w||"
        drawn = panel("apart-0", lines, "simulated time (s)", y, caption)
        blocks.append(html.panel_block(drawn, caption))
    return blocks


def node_rows(scene: Scene) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row a node: what it had, did, held and sent."""
    people = scene.size - scene.server
    ages = scene.mean_ages if scene.paired else np.full((people, people), np.nan)
    columns: dict[str, list[str]] = {
        "node": [str(i) for i in range(people)],
        "samples": [str(value) for value in scene.samples[:people]],
        "gradients": [str(value) for value in scene.gradients[-1, :people]],
        "age of what it holds": _means(ages[:people], 1, people, scene.paired),
        "age of its copies": _means(ages[:, :people], 0, people, scene.paired and not scene.server),
        "time on the air": _percent(scene.airtimes[:people]),
        "seen on the air": _seen(scene)[:people],
        "bandwidth when seen": _when_seen(scene)[:people],
        "disagreement": [f"{value:.3g}" for value in scene.disagreement[-1, :people]],
    }
    kept = {name: cells for name, cells in columns.items() if any(cell != "-" for cell in cells)}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def _means(values: NDArray, axis: int, count: int, known: bool) -> list[str]:
    if not known:
        return ["-"] * count
    total, number = np.nansum(values, axis=axis), np.isfinite(values).sum(axis=axis)
    return [
        f"{t / n:.3g}" if n else "-" for t, n in zip(total[:count], number[:count], strict=True)
    ]


def _percent(values: NDArray) -> list[str]:
    return [f"{100 * value:.3g} %" if isfinite(value) else "-" for value in values]


def _seen(scene: Scene) -> list[str]:
    """Return in how many snapshots each was on the air, where a scene tells that."""
    known = (scene.left_slots >= 0).any() or np.isfinite(scene.share).any()
    frames = _times(len(scene.slot), "snapshot")
    return [f"in {count} of {frames}" if known else "-" for count in scene.seen]


def _when_seen(scene: Scene) -> list[str]:
    """Return the mean share of the band over the snapshots in which each was on the air."""
    total = np.nan_to_num(scene.share).sum(axis=0)
    means = np.divide(total, scene.seen, out=np.full(len(total), np.nan), where=scene.seen > 0)
    known = np.isfinite(scene.share).any(axis=0)
    return _percent(np.where(known, means, np.nan))
