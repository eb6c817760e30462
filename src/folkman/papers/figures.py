"""From the results of a reproduction to a paper's figures.

Which runs a panel shows is said in the figure's file.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from folkman.papers.paper import Found, Paper
from folkman.papers.plan import drawn_figure
from folkman.papers.results import Reproduction, select
from folkman.record.json_file import Table
from folkman.record.run import Run
from folkman.report.figures import save
from folkman.report.paper import Panel, draw_panels, ends_markdown

__all__ = ["draw_all", "final_values", "panel_runs"]

AXES = ("gradients", "seconds", "bits")
"""The axis that papers use, then those on which communication is paid for."""


def draw_all(results: Reproduction, names: Sequence[str], out: Path) -> list[Path]:
    """Draw each figure on three axes; what has no runs is left out."""
    written: list[Path] = []
    head = results.paper.head
    for name in names:
        for title, variant, axis, panels in _each(results, name, AXES):
            out.mkdir(parents=True, exist_ok=True)
            figure = draw_panels(panels, axis, title, head["method"], head.get("lines", {}))
            written += save(figure, out / f"{name}-{variant}-{axis}.png")
    return written


def final_values(results: Reproduction, names: Sequence[str]) -> str:
    """Return as Markdown where every curve of these figures ends, against gradients."""
    found = [each for name in names for each in _each(results, name, AXES[:1])]
    return "\n".join(ends_markdown(title, panels) for title, _, _, panels in found)


def _each(
    results: Reproduction, name: str, axes: Sequence[str]
) -> Iterator[tuple[str, str, str, list[Panel]]]:
    """Yield title, variant, axis and panels of every picture that has something to compare."""
    paper, own = results.paper, results.paper.head["method"]
    declared, known = drawn_figure(paper, name, results.size), results.runs
    if name not in paper.beyond:
        known = [found for found in known if set(found.figures) & set(paper.figures)]
    newest = paper.newest_draws  # draws of two plans are not pooled in a curve either
    known = [found for found in known if found.seed < newest] or known
    for variant in declared.variants:
        called = paper.head.get("names", {}).get(variant, variant)
        for axis in axes:
            panels = [
                Panel(each["title"], panel_runs(paper, known, variant, each, axis))
                for each in declared.panels
            ]
            panels = [panel for panel in panels if any(run.algorithm == own for run in panel.runs)]
            if panels:
                yield f"{declared.title} ({called})", variant, axis, panels


def panel_runs(
    paper: Paper, runs: Sequence[Found], variant: str, panel: Table, axis: str
) -> list[Run]:
    """Return the runs of a panel that reach somewhere along the axis, labelled by curve.

    The cases of a curve are ordered by the facts that the paper names, whichever was run first.
    """
    order = paper.head.get("order", {}).get("cases", ())
    hidden = paper.head.get("hidden", {}).get(axis)
    chosen = []
    for curve in panel["curves"]:
        facts = {key: value for key, value in curve.items() if key != "label"}
        if hidden is not None and select([Found(variant, facts, 0, NOTHING)], **hidden):
            continue
        cases = select(runs, variant, **facts)
        for found in sorted(cases, key=lambda each: [each.facts.get(key, 0) for key in order]):
            run = found.run
            if len(run.rows) > 1 and run.rows[-1].get(axis, float("nan")) > 0:
                label = _label(curve["label"], found.facts)
                chosen.append(Run(run.algorithm, label, found.seed, run.rows, run.status))
    return chosen


def _label(text: str, facts: Table) -> str:
    """Return the label of a curve with the facts of a run filled in."""
    try:
        return text.format(**facts)
    except (KeyError, IndexError, ValueError) as error:
        wrong = f"the label '{text}' cannot be filled in: {error!r}"
        raise ValueError(f"{wrong}; a run has the facts {', '.join(facts)}") from None


NOTHING = Run("", "", 0)
