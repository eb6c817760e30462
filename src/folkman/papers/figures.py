"""From packed results to the paper's figures: which runs a panel shows is said in the figure's file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from folkman.papers.arms import BEYOND, FIGURES, figure
from folkman.papers.results import Found, Results, read_results, select
from folkman.record.run import Run
from folkman.report.figures import save
from folkman.report.paper import Panel, draw_panels, ends_markdown

__all__ = ["draw_all", "final_values", "panel_runs"]

AXES = ("gradients", "seconds", "bits")
"""The paper's axis, then those on which communication is paid for."""

OWN = "async_sharing"
"""The paper's method: a panel without it compares nothing yet."""

NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
"""How data are called in a title."""

VARIED = ("nodes", "gamma", "threshold_db")
"""Facts by which the cases of a curve are ordered, whichever was run first."""

WAITING = ("timed", "radio")
"""Links on which FedAvg waits: per gradient it is the free one, and is not drawn twice."""


def draw_all(source: Path, names: Sequence[str], out: Path) -> list[Path]:
    """Draw each figure on three axes from the packed metrics in `source`; what has no runs is left out."""
    results = read_results(source)
    written: list[Path] = []
    for name in names:
        for title, variant, axis, panels in _each(results, name, AXES):
            out.mkdir(parents=True, exist_ok=True)
            written += save(draw_panels(panels, axis, title, OWN), out / f"{name}-{variant}-{axis}.png")
    return written


def final_values(source: Path, names: Sequence[str]) -> str:
    """Return as Markdown where every curve of these figures ends, against gradients."""
    results = read_results(source)
    found = [each for name in names for each in _each(results, name, AXES[:1])]
    return "\n".join(ends_markdown(title, panels) for title, _, _, panels in found)


def _each(results: Results, name: str, axes: Sequence[str]) -> Iterator[tuple[str, str, str, list[Panel]]]:
    """Yield title, variant, axis and panels of every picture of a figure that has something to compare."""
    declared = figure(name, results.size)
    known = [found for found in results.runs if name == BEYOND or set(found.figures) & set(FIGURES)]
    for variant in declared.variants:
        for axis in axes:
            panels = [Panel(each["title"], panel_runs(known, variant, each, axis)) for each in declared.panels]
            panels = [panel for panel in panels if any(run.algorithm == OWN for run in panel.runs)]
            if panels:
                yield f"{declared.title} ({NAMES.get(variant, variant)})", variant, axis, panels


def panel_runs(runs: Sequence[Found], variant: str, panel: dict[str, Any], axis: str) -> list[Run]:
    """Return the runs of a panel that reach somewhere along the axis, each labelled with its curve's name."""
    chosen = []
    for curve in panel["curves"]:
        if axis == "gradients" and curve["method"] == "fedavg" and curve.get("links") in WAITING:
            continue
        facts = {key: value for key, value in curve.items() if key != "label"}
        cases = sorted(select(runs, variant, **facts), key=lambda each: [each.facts.get(key, 0) for key in VARIED])
        for found in cases:
            run = found.run
            if len(run.rows) > 1 and run.rows[-1].get(axis, float("nan")) > 0:
                label = curve["label"].format(**found.facts)
                chosen.append(Run(run.algorithm, label, found.seed, run.rows, run.status))
    return chosen
