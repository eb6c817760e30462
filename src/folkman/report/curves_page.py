"""The curves of a report as small multiples: a row per goal, a column per kind of cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np

from folkman.record.run import AXES, FINISHED, METRICS, SPENT, Run
from folkman.report import html
from folkman.report.answer import NOUNS, NOWHERE, Costs, costs_to, learners
from folkman.report.palette import MOST_CURVES
from folkman.report.panels import lines_of, panel
from folkman.report.statistics import FEWEST_FOR_AN_INTERVAL, curves

__all__ = ["best_first", "curve_block", "curves_section", "multiples_section"]

GOALS = ("train_loss", "test_accuracy")
COSTS = ("seconds", "bits", "energy_j")
MORE = (("train_loss", "gradients"), ("test_accuracy", "gradients"), ("train_loss", "rounds"))
MORE += (("optimum_distance", "seconds"), ("optimum_distance", "bits"))
"""Curves of the folded part."""
SHORT = {"mean_age": "mean age (slots)", "optimum_distance": "distance ||w - w*||"}
"""Metrics whose names are longer than an axis."""
MOST_DRAWN = 60


def curves_section(
    runs: Sequence[Run], networks: Mapping[str, str] | None = NOWHERE
) -> html.Section:
    """Return the goals that the problem defines against what they cost, and more, folded.

    Labels that do not learn are drawn in the folded part alone, unless none learns.
    """
    shown = learners(runs) or runs
    priced = all(isfinite(run.last("energy_j")) for run in shown)  # not by earlier versions
    axes = COSTS if priced else ("seconds", "gradients", "bits")
    goals = [(y, x) for y in GOALS for x in axes]
    blocks = [_block(shown, x, y, networks) for y, x in goals if _defined(shown, y)]
    rest = [(y, x) for y, x in MORE if (y, x) not in goals and _defined(shown, y)]
    more = [_block(shown, x, y, networks) for y, x in rest]
    if len(shown) < len(runs):
        caption = "All runs, those that do not learn as well."
        more.insert(0, curve_block("all", runs, "seconds", "train_loss", caption))
    folded = html.details("More curves", html.grid(more)) if more else ""
    kept = {run.label for run in shown}
    note = _note(shown, [run for run in runs if run.label not in kept])
    return html.Section("curves", "What it costs to learn", note + html.grid(blocks) + folded)


def _defined(runs: Sequence[Run], metric: str) -> bool:
    return any(isfinite(run.last(metric)) for run in runs if run.rows)


def _note(runs: Sequence[Run], without: Sequence[Run]) -> str:
    """Return how to read the figures."""
    counts = Counter(run.label for run in runs)
    few = min(counts.values(), default=0)
    band = "; the band is the 95 % interval" if few >= FEWEST_FOR_AN_INTERVAL else ""
    seeds = f"Lines are means of {few} seeds{band}." if few > 1 else "Each line is one run."
    grey = (
        f" The {MOST_CURVES} of {len(counts)} with the lowest training loss have a colour; the "
        "others are grey."
        if len(counts) > MOST_CURVES
        else ""
    )
    bad = Counter(run.label for run in without if run.verdict not in ("", FINISHED))
    every = Counter(run.label for run in without)
    names = html.escape(", ".join(f"{n} ({bad[n]} of {every[n]} runs)" for n in sorted(bad)))
    left = f" With runs that do not learn, and so only under 'More curves': {names}."
    left = left if bad else ""
    return f"<p class='sub'>{seeds}{grey}{left}</p>"


def _block(runs: Sequence[Run], x: str, y: str, networks: Mapping[str, str] | None) -> str:
    found = costs_to(runs, y, x, networks) if y in NOUNS and x != "rounds" else None
    return curve_block(f"{y}-{x}", runs, x, y, _caption(runs, x, y, found))


def _caption(runs: Sequence[Run], x: str, y: str, found: Costs | None) -> str:
    """Return what a figure shows, in a sentence."""
    if found is not None:
        told = found.told()
        return told[0].upper() + told[1:]
    ends = {}
    for label in dict.fromkeys(run.label for run in runs):
        ends[label] = float(np.mean([run.last(y) for run in runs if run.label == label]))
    known = {label: value for label, value in ends.items() if isfinite(value)}
    shown = "; ".join(f"{label} {value:.3g}" for label, value in list(known.items())[:4])
    return f"{METRICS[y][0].upper()}{METRICS[y][1:]} against {AXES[x]}. At the end: {shown}."


def curve_block(name: str, runs: Sequence[Run], x: str, y: str, caption: str) -> str:
    """Return a metric against an axis; labels beyond six are grey."""
    order = list(dict.fromkeys(run.label for run in runs))
    if len(order) > MOST_CURVES:
        order = [label for label in order if label in best_first(runs)[:MOST_CURVES]]
    looks = {label: index for index, label in enumerate(order)}
    lines = lines_of(curves(runs, x, y), looks, FEWEST_FOR_AN_INTERVAL)
    about = f"{METRICS[y]} against {AXES[x]}"
    described = f"{about[0].upper()}{about[1:]}"
    words = AXES[x], SHORT.get(y, METRICS[y])
    drawn = panel(name, lines, *words, described, spent=x in SPENT)
    return html.panel_block(drawn, caption)


def best_first(runs: Sequence[Run]) -> list[str]:
    """Return the labels by their mean training loss at the end, the lowest first."""
    means = {
        label: np.mean([r.last("train_loss") for r in runs if r.label == label])
        for label in dict.fromkeys(r.label for r in runs)
    }
    return sorted(means, key=lambda label: (not np.isfinite(means[label]), means[label], label))


def multiples_section(runs: Sequence[Run]) -> html.Section:
    """Return a small figure for each label: its training loss in colour, the others in grey."""
    found = curves(runs, "seconds", "train_loss")
    blocks = []
    for index, curve in enumerate(found[:MOST_DRAWN]):
        lines = lines_of(found, {curve.label: 0}, FEWEST_FOR_AN_INTERVAL)
        lines = [line if line.look is None else line._replace(label="") for line in lines]
        end = curve.mean[-1] if len(curve.mean) else float("nan")
        caption = f"{curve.label}: ends at {end:.3g}"
        y = METRICS["train_loss"]
        drawn = panel(f"arm-{index}", lines, AXES["seconds"], y, f"{curve.label}: {y}")
        blocks.append(html.panel_block(drawn, caption))
    rest = len(found) - MOST_DRAWN
    more = f"<p>{rest} more are not drawn; the table of results has them.</p>" if rest > 0 else ""
    note = "<p class='sub'>Training loss over time, all on the same scale.</p>"
    return html.Section("arms", "One by one", note + html.grid(blocks) + more, folded=True)
