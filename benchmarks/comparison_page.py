"""Tables and figures of docs/comparison.md and docs/which-method.md, from the lines of results.

    python -m benchmarks.comparison --out docs/data/comparison --draw docs

A page has pairs of comments `<!-- begin NAME -->` and `<!-- end NAME -->`; what stands between them
is written here, and all else is left alone.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.comparison import Cell, Plan
from benchmarks.comparison_expected import expected
from benchmarks.comparison_judge import (
    AXES,
    NEVER_WAITS,
    YARDSTICK,
    Side,
    Standing,
    best_of,
    compared,
    mean_ranks,
    ranked,
    sides_of,
)
from folkman.report.figures import COLOURS

__all__ = ["draw"]

PAGES = ("comparison.md", "which-method.md")
CURVES = 6
"""Curves of a figure that have a colour and a name, references included."""
GREY = "#C8C8C8"
PALETTE = (*(each for each in COLOURS if each != "#000000"), "#8B5A2B", "#6A3D9A", "#B2182B")
"""Black is of the references."""

Json = dict[str, Any]
Cells = Mapping[str, list[Side]]


def draw(plan: Plan, lines: Sequence[Json], docs: Path) -> None:
    """Write the figures, and the parts of the pages that are made from results."""
    references = {method["label"] for method in plan.methods if method.get("reference")}
    fixed = (plan.bits_in_messages, plan.gradients)
    all_sides = {cell.name: sides_of(lines, cell.name, *fixed) for cell in plan.cells}
    judged = {
        name: [side for side in sides if side.label not in references]
        for name, sides in all_sides.items()
    }
    blocks = {"ranks": _ranks(judged), "factors": _factors(plan, judged)}
    blocks["expected"] = expected(all_sides)
    blocks["not-run"] = _not_run(plan, lines, all_sides)
    figures = docs / "figures" / "comparison"
    figures.mkdir(parents=True, exist_ok=True)
    for group in dict.fromkeys(cell.group for cell in plan.cells):
        cells = [cell for cell in plan.cells if cell.group == group and all_sides[cell.name]]
        if not cells:
            continue
        _figure(cells, all_sides, references).savefig(figures / f"{group}.png", dpi=150)
        tables = [_cell(cell, all_sides[cell.name], references) for cell in cells]
        link = f"![{cells[0].title}: training loss against time](figures/comparison/{group}.png)"
        blocks[f"group-{group}"] = "\n\n".join([link, *tables])
    for page in PAGES:
        _fill(docs / page, blocks)


def _fill(page: Path, blocks: Mapping[str, str]) -> None:
    """Put each block between its comments."""
    if not page.is_file():
        return
    text = page.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n{block}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _place(standing: Standing) -> str:
    own = f"{standing.rank}"
    return own if standing.low == standing.high else f"{own} ({standing.low} to {standing.high})"


def _options(line: Json) -> str:
    options = dict(line["options"])
    step = f"{options.pop('step'):g}"
    more = ", ".join(f"{value:g} local" for value in options.values())
    edge = "; at the edge" if line["at_edge"] else ""
    return f"{step}{', ' + more if more else ''}{edge}"


def _loss(side: Side, axis: str) -> str:
    """Return the geometric mean of the loss over seeds."""
    return f"{math.exp(side.measure[axis].mean()):.3g}"


def _cell(cell: Cell, sides: Sequence[Side], references: set[str]) -> str:
    """Return the table of one cell, best first, references last."""
    own = [side for side in sides if side.label not in references]
    standings = {axis: ranked(own, axis) for axis in AXES} if own else {}
    yardstick = next((side for side in own if side.label == YARDSTICK), None)
    rows = []
    by_loss = sorted(
        sides, key=lambda side: (side.label in references, side.measure["time"].mean())
    )
    for side in by_loss:
        line, is_reference = side.line, side.label in references
        last = line["judged"][side.seeds[0]]
        against = "" if yardstick is None or side is yardstick else _against(side, yardstick)
        cells = [side.label if not is_reference else f"*{side.label}*", _options(line)]
        for axis in AXES:
            place = "" if is_reference else _place(standings[axis][side.label])
            cells += [_loss(side, axis), place]
            cells += [against] if axis == "time" else []
        cells += [f"{np.nanmean(side.accuracy):.3f}", f"{last['kappa']:.2f}"]
        rows.append(cells)
    head = ["method", "step", "loss, equal time", "rank", "times FedAvg's", "loss, equal bits"]
    head += ["rank", "loss, equal gradients", "rank", "accuracy", "kappa"]
    return f"**`{cell.name}`**\n\n{_markdown(head, rows)}"


def _against(side: Side, yardstick: Side) -> str:
    found = compared(side, yardstick)
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}), {found.verdict}"


def _ranks(cells: Cells) -> str:
    """Return the mean rank of each method over all complete cells, on each axis."""
    known = [sides for sides in cells.values() if sides]
    found = {axis: mean_ranks(known, axis) for axis in AXES}
    if not found["time"]:
        return "No cell has all methods yet."
    rows = []
    for label, (middle, low, high, _) in sorted(found["time"].items(), key=lambda each: each[1]):
        row = [label, f"{middle:.1f} ({low:.1f} to {high:.1f})"]
        row += ["{:.1f} ({:.1f} to {:.1f})".format(*found[axis][label]) for axis in AXES[1:]]
        firsts = sum(
            ranked(sides, "time")[label].rank == 1 for sides in known if _has(sides, label)
        )
        rows.append([*row, str(firsts)])
    number = next(iter(found["time"].values()))[3]
    head = ["method", "mean rank, equal time", "equal bits", "equal gradients", "cells won (time)"]
    return f"{_markdown(head, rows)}\n\nMean ranks over the {number} cells in which all ran."


def _has(sides: Sequence[Side], label: str) -> bool:
    return any(side.label == label for side in sides)


def _factors(plan: Plan, cells: Cells) -> str:
    """Return one row for each cell: who won, and how those who never wait compare with FedAvg."""
    rows = []
    for cell in plan.cells:
        sides = cells[cell.name]
        yardstick = next((side for side in sides if side.label == YARDSTICK), None)
        never = best_of(sides, NEVER_WAITS)
        algorithm1 = next((side for side in sides if side.label == "Algorithm 1"), None)
        if yardstick is None or never is None or algorithm1 is None:
            continue
        first = min(sides, key=lambda side: side.measure["time"].mean())
        row = [f"`{cell.name}`", first.label, never.label, _against(never, yardstick)]
        rows.append([*row, _against(algorithm1, yardstick)])
    head = ["cell", "first", "best that never waits", "its loss / FedAvg's"]
    return _markdown([*head, "Algorithm 1's loss / FedAvg's"], rows)


def _not_run(plan: Plan, lines: Sequence[Json], cells: Cells) -> str:
    """Return what is missing, and why."""
    from benchmarks.comparison import concerned

    refused = {(line["cell"], line["label"]): line["error"] for line in lines if "error" in line}
    missing = []
    for cell in plan.cells:
        labels = {method["label"] for method in plan.methods if concerned(cell, method)}
        for label in sorted(labels - {side.label for side in cells[cell.name]}):
            why = refused.get((cell.name, label), "not run")
            missing.append([f"`{cell.name}`", label, why.replace("|", "/")[:160]])
    return _markdown(["cell", "method", "why"], missing) if missing else "Nothing is missing."


def _figure(cells: Sequence[Cell], all_sides: Cells, references: set[str]) -> Figure:
    """Return a panel for each cell: loss against time, the best and the references named."""
    columns = min(2, len(cells))
    height = -(-len(cells) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.1 * height), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).flat
    colours: dict[str, str] = {}  # a method has one colour in all panels
    for axes, cell in zip(panels, cells, strict=False):
        _panel(axes, all_sides[cell.name], references, colours)
        axes.set_title(cell.name, fontsize="small")
    return figure


def _panel(
    axes: Axes, sides: Sequence[Side], references: set[str], colours: dict[str, str]
) -> None:
    """Draw one cell; methods that are new to the figure are given the next colour."""
    own = sorted(
        (side for side in sides if side.label not in references),
        key=lambda side: side.measure["time"].mean(),
    )
    shown = [side for side in sides if side.label in references]
    named = own[: CURVES - len(shown)]
    for side in own[len(named) :]:
        axes.plot(*_curve(side), color=GREY, linewidth=0.8, zorder=1)
    ends = []
    for side in [*named, *shown]:
        is_reference = side.label in references
        colour = "black"
        if not is_reference:
            colour = colours.setdefault(side.label, PALETTE[len(colours) % len(PALETTE)])
        style = ("--" if side.label.startswith("FedAvg") else ":") if is_reference else "-"
        slots, loss = _curve(side)
        axes.plot(slots, loss, color=colour, linestyle=style, linewidth=1.5, zorder=2)
        ends.append((float(loss[-1]), side.label, colour))
    axes.set_yscale("log")
    first = max(_curve(side)[1][0] for side in sides)
    axes.set_ylim(min(end[0] for end in ends) / 1.3, 1.5 * first)
    _name(axes, ends)
    axes.set_xlabel("seconds (slots of 1 s)", fontsize="small")
    axes.set_ylabel("training loss", fontsize="small")
    axes.tick_params(labelsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.3, linewidth=0.5)


def _curve(side: Side) -> tuple[np.ndarray, np.ndarray]:
    """Return slots and the geometric mean of the loss over the seeds that have it."""
    runs = [side.line["judged"][seed] for seed in side.seeds]
    length = min(len(run["slots"]) for run in runs)
    rows = np.array([[value or np.nan for value in run["train_loss"][:length]] for run in runs])
    return np.array(runs[0]["slots"][:length]), np.exp(np.nanmean(np.log(rows), axis=0))


def _name(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write each name beside the end of its curve, moved apart where they would meet."""
    low, high = (math.log(limit) for limit in axes.get_ylim())
    gap, heights = 0.065, []
    for loss, label, colour in sorted(ends):
        height = (math.log(loss) - low) / (high - low)
        height = max(height, heights[-1] + gap if heights else 0.0)
        heights.append(height)
        axes.annotate(
            label,
            (1.01, height),
            xycoords="axes fraction",
            color=colour,
            fontsize="x-small",
            va="center",
            annotation_clip=False,
        )
