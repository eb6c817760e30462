"""The figures that every run folder keeps: its goals over time, and who holds which labels.

They are drawn without matplotlib, in a fraction of a second; `folkman plot` draws them, and all
others, for papers.
"""

from collections.abc import Sequence
from html import escape
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from folkman.record.run import AXES, HIGHER_IS_BETTER, METRICS, Run
from folkman.report.painting import save_drawing
from folkman.report.palette import CLASSES, MOST_CURVES
from folkman.report.panels import LEFT, WIDE, Scale, lines_of, panel, ticks_below
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, Curve, curves

__all__ = ["KEPT", "best_named", "keep_curves", "keep_labels", "labels_panel", "seeds_note"]

KEPT = ("train_loss", "test_accuracy", "optimum_distance")
"""Metrics whose figures a run folder keeps."""
TOP = 18
BAR_TALL, MOST_TALL = 22, 1000
"""Height of a node's bar, and of all bars at most."""
MOST_NAMES = 40
"""Nodes, and labels, that are named at most: every second, every third, ... beyond."""


def keep_curves(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Draw the goals that these runs define against seconds, PNG and SVG, and return the files."""
    written = []
    for metric in KEPT:
        if not any(isfinite(run.last(metric)) for run in runs):
            continue
        folder.mkdir(exist_ok=True)
        found = curves(runs, "seconds", metric)
        looks = {label: index for index, label in enumerate(best_named(found, metric))}
        lines = lines_of(found, looks, FEWEST_FOR_AN_INTERVAL)
        about = f"{METRICS[metric]} against {AXES['seconds']}"
        name = f"{metric}-seconds"
        note = seeds_note(found, len(looks))
        drawn = panel(name, lines, AXES["seconds"], METRICS[metric], about, note)
        written += save_drawing(drawn, folder / name)
    return written


def best_named(found: Sequence[Curve], metric: str) -> list[str]:
    """Return the labels that have a colour and a name, in their order: the best where many are."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    ends = {curve.label: sign * float(curve.mean[-1]) for curve in found}
    best = sorted(ends, key=lambda label: (not np.isfinite(ends[label]), ends[label]))
    return [label for label in ends if label in best[:MOST_CURVES]]


def seeds_note(found: Sequence[Curve], named: int) -> str:
    """Return what the lines of a figure stand for."""
    seeds = {curve.num_seeds for curve in found}
    band = ", 95 % interval" if min(seeds) >= FEWEST_FOR_AN_INTERVAL else ""
    noted = [f"mean of {max(seeds)} seeds{band}"] if min(seeds) > 1 else []
    rest = len(found) - named
    noted += [f"named: the best {named} of {len(found)}, grey: the others"] if rest else []
    return "; ".join(noted)


def keep_labels(counts: NDArray[np.integer], folder: Path) -> list[Path]:
    """Draw how many samples of each class each node holds, PNG and SVG, and return the files."""
    return save_drawing(labels_panel(counts), folder / "labels")


def labels_panel(counts: NDArray[np.integer]) -> str:
    """Return how many samples of each class each node holds, from counts (node, class), as SVG."""
    nodes, classes = counts.shape
    each = min(BAR_TALL, MOST_TALL / nodes)
    ground, right = TOP + each * nodes, WIDE - 50
    across = Scale(0.0, max(1.0, float(counts.sum(axis=1).max())), False, LEFT, right)
    ends = np.pad(np.cumsum(counts, axis=1).astype(float), ((0, 0), (1, 0)))
    places, parts = across.place(ends), []
    for node, label in np.argwhere(counts > 0):
        start, end = places[node, label], places[node, label + 1]
        parts.append(
            f'<rect x="{start:.2f}" y="{TOP + each * (node + 0.1):.2f}" width="{end - start:.2f}" '
            f'height="{0.8 * each:.2f}" fill="{_shade(label, classes)}"/>'
        )
    for node in range(0, nodes, -(-nodes // MOST_NAMES)):
        at = TOP + each * (node + 0.5) + 4
        parts.append(f'<text x="{LEFT - 6}" y="{at:.1f}" class="end">{node}</text>')
    parts += ticks_below(across, ground)
    parts.append(f'<path class="axis" d="M{LEFT} {ground:.1f}H{right}"/>')
    middle = f"translate(13 {(TOP + ground) / 2:.0f}) rotate(-90)"
    parts.append(f'<text transform="{middle}" class="mid">node</text>')
    parts.append(
        f'<text x="{(LEFT + right) / 2:.0f}" y="{ground + 34:.1f}" class="mid">samples</text>'
    )
    named = range(0, classes, -(-classes // MOST_NAMES))
    parts.append(_legend(named, classes, right + 10))
    tall = max(ground + 40, TOP + 15 * len(named) + 6)
    about = escape("How many samples of each label each node holds", quote=True)
    return (
        f'<svg class="panel" viewBox="0 0 {WIDE} {tall:.0f}" role="img" aria-label="{about}">'
        f"{''.join(parts)}</svg>"
    )


def _legend(named: Sequence[int], classes: int, left: float) -> str:
    """Return which colour is which label."""
    parts = [f'<text x="{left}" y="12">label</text>']
    for row, label in enumerate(named):
        at = TOP + 4 + 15 * row
        parts.append(
            f'<rect x="{left}" y="{at}" width="10" height="10" fill="{_shade(label, classes)}"/>'
        )
        parts.append(f'<text x="{left + 15}" y="{at + 9}">{label}</text>')
    return "".join(parts)


def _shade(label: int, classes: int) -> str:
    """Return the colour of a label: from dark to light."""
    at = label / max(classes - 1, 1) * (len(CLASSES) - 1)
    low = min(int(at), len(CLASSES) - 2)
    ends = [
        [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        for colour in CLASSES[low : low + 2]
    ]
    mixed = [round(a + (b - a) * (at - low)) for a, b in zip(*ends, strict=True)]
    return f"#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x}"
