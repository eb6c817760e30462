"""From packed results to the paper's figures: which runs a panel shows is said in the figure's file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from folkman.experiment.arms import BEYOND, FIGURES, figure
from folkman.experiment.results import Found, read_results, select
from folkman.record import Run
from folkman.report.figures import save
from folkman.report.paper import Panel, draw_panels

__all__ = ["draw_all", "panel_runs"]

AXES = ("gradients", "seconds", "bits")
"""The paper's axis, then those on which communication is paid for."""

OWN = "async_sharing"
"""The paper's method: a panel without it compares nothing yet."""

WAITING = ("timed", "radio")
"""Links on which FedAvg waits: per gradient it is the free one, and is not drawn twice."""


def draw_all(source: Path, names: Sequence[str], out: Path) -> list[Path]:
    """Draw each figure on three axes from the packed metrics in `source`; what has no runs is left out."""
    results = read_results(source)
    written: list[Path] = []
    for name in names:
        declared = figure(name, results.size)
        for variant in declared.variants:
            known = [found for found in results.runs if name == BEYOND or set(found.figures) & set(FIGURES)]
            for axis in AXES:
                panels = [Panel(each["title"], panel_runs(known, variant, each, axis)) for each in declared.panels]
                panels = [panel for panel in panels if any(run.algorithm == OWN for run in panel.runs)]
                if panels:
                    out.mkdir(parents=True, exist_ok=True)
                    drawn = draw_panels(panels, axis, f"{declared.title} ({variant})", OWN)
                    written += save(drawn, out / f"{name}-{variant}-{axis}.png")
    return written


def panel_runs(runs: Sequence[Found], variant: str, panel: dict[str, Any], axis: str) -> list[Run]:
    """Return the runs of a panel that reach somewhere along the axis, each labelled with its curve's name."""
    chosen = []
    for curve in panel["curves"]:
        if axis == "gradients" and curve["method"] == "fedavg" and curve.get("links") in WAITING:
            continue
        facts = {key: value for key, value in curve.items() if key != "label"}
        for found in select(runs, variant, **facts):
            run = found.run
            if len(run.rows) > 1 and run.rows[-1].get(axis, float("nan")) > 0:
                label = curve["label"].format(**found.facts)
                chosen.append(Run(run.algorithm, label, found.seed, run.rows, run.status))
    return chosen
