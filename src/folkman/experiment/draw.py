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


def draw_all(source: Path, names: Sequence[str], out: Path) -> list[Path]:
    """Draw each figure on three axes from the packed metrics in `source`; what has no runs is left out."""
    results = read_results(source)
    written: list[Path] = []
    for name in names:
        declared = figure(name, results.size)
        for variant in declared.variants:
            known = [found for found in results.runs if name == BEYOND or set(found.figures) & set(FIGURES)]
            panels = [Panel(each["title"], panel_runs(known, variant, each)) for each in declared.panels]
            panels = [panel for panel in panels if panel.runs]
            if not panels:
                continue
            out.mkdir(parents=True, exist_ok=True)
            for axis in AXES:
                shown = [Panel(p.title, [r for r in p.runs if _has(r, axis)]) for p in panels]
                drawn = draw_panels([p for p in shown if p.runs], axis, f"{declared.title} ({variant})")
                written += save(drawn, out / f"{name}-{variant}-{axis}.png")
    return written


def _has(run: Run, axis: str) -> bool:
    return len(run.rows) > 1 and run.rows[-1].get(axis, float("nan")) > 0


def panel_runs(runs: Sequence[Found], variant: str, panel: dict[str, Any]) -> list[Run]:
    """Return the runs of a panel, each labelled with its curve's name."""
    chosen = []
    for curve in panel["curves"]:
        facts = {key: value for key, value in curve.items() if key != "label"}
        for found in select(runs, variant, **facts):
            label = curve["label"].format(**found.facts)
            chosen.append(Run(found.run.algorithm, label, found.seed, found.run.rows, found.run.status))
    return chosen
