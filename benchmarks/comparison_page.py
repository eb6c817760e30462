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
from matplotlib.figure import Figure

from benchmarks.comparison import Cell, Plan
from benchmarks.comparison_expected import expected
from benchmarks.comparison_expected_added import expected_of_added
from benchmarks.comparison_figures import against_fedavg, group_figure, section, sections_of
from benchmarks.comparison_judge import (
    AXES,
    NEVER_WAITS,
    YARDSTICK,
    Side,
    Standing,
    best_of,
    compared,
    has_all,
    mean_ranks,
    ranked,
    sides_of,
)
from benchmarks.comparison_momentum import NOT_RUN, momentum_by_cell, momentum_table
from benchmarks.comparison_pairs import pairs_table
from benchmarks.light_png import lighten

__all__ = ["draw"]

PAGES = ("comparison.md", "which-method.md")
Json = dict[str, Any]
Cells = Mapping[str, list[Side]]


def draw(plan: Plan, lines: Sequence[Json], docs: Path) -> None:
    """Write the figures, and the parts of the pages that are made from results."""
    references = {method["label"] for method in plan.methods if method.get("reference")}
    unranked = plan.unranked()
    fixed = (plan.bits_in_messages, plan.gradients)
    all_sides = {cell.name: sides_of(lines, cell.name, *fixed) for cell in plan.cells}
    partly = {name for name, sides in all_sides.items() if not has_all(sides, plan.ranked())}
    judged = {
        name: [side for side in sides if side.label not in unranked and name not in partly]
        for name, sides in all_sides.items()
    }
    drawn = {
        name: [side for side in sides if side.label not in unranked - references]
        for name, sides in all_sides.items()
    }
    first = {cell.name: judged[cell.name] for cell in plan.cells if not cell.added}
    blocks = {"ranks": _ranks(first), "factors": _factors(plan, judged)}
    blocks["ranks-all"] = _ranks(judged) if len(_known(judged)) > len(_known(first)) else NOT_RUN
    blocks["sections"] = _sections(plan, judged)
    blocks["expected"] = expected(all_sides)
    blocks["expected-added"] = expected_of_added(plan.cells, all_sides, unranked)
    blocks["momentum"] = momentum_table(all_sides)
    blocks["momentum-cells"] = momentum_by_cell(all_sides)
    blocks["pairs"] = pairs_table(plan.cells, all_sides, references)
    blocks["not-run"] = _not_run(plan, lines, all_sides)
    figures = docs / "figures" / "comparison"
    figures.mkdir(parents=True, exist_ok=True)
    _save(against_fedavg(plan.cells, judged), figures / "against-fedavg.png")
    for group in dict.fromkeys(cell.group for cell in plan.cells):
        cells = [cell for cell in plan.cells if cell.group == group and all_sides[cell.name]]
        if not cells:
            blocks[f"group-{group}"] = NOT_RUN
            continue
        _save(group_figure(cells, drawn, references, partly), figures / f"{group}.png")
        tables = [
            _partly(cell, all_sides[cell.name], references)
            if cell.name in partly
            else _cell(cell, all_sides[cell.name], references, unranked)
            for cell in cells
        ]
        link = f"![{cells[0].title}: training loss against time](figures/comparison/{group}.png)"
        blocks[f"group-{group}"] = "\n\n".join([link, *tables])
    for page in PAGES:
        _fill(docs / page, blocks)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=150)
    lighten(path)


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


def _cell(cell: Cell, sides: Sequence[Side], references: set[str], unranked: set[str]) -> str:
    """Return the table of one cell, best first, then added sides, references last."""
    own = [side for side in sides if side.label not in unranked]
    standings = {axis: ranked(own, axis) for axis in AXES} if own else {}
    yardstick = next((side for side in own if side.label == YARDSTICK), None)
    rows = []

    def order(side: Side) -> tuple[bool, bool, float]:
        kind = (side.label in references, side.label in unranked)
        return (*kind, float(side.measure["time"].mean()))

    by_loss = sorted(sides, key=order)
    for side in by_loss:
        line, is_reference = side.line, side.label in references
        last = line["judged"][side.seeds[0]]
        against = "" if yardstick is None or side is yardstick else _against(side, yardstick)
        cells = [side.label if not is_reference else f"*{side.label}*", _options(line)]
        for axis in AXES:
            place = "" if side.label in unranked else _place(standings[axis][side.label])
            cells += [_loss(side, axis), place]
            cells += [against] if axis == "time" else []
        cells += [f"{np.nanmean(side.accuracy):.3f}", f"{last['kappa']:.2f}", _messages(cell, side)]
        rows.append(cells)
    head = ["method", "step", "loss, equal time", "rank", "times FedAvg's", "loss, equal bits"]
    head += ["rank", "loss, equal gradients", "rank", "accuracy", "kappa", "messages"]
    first = by_loss[0].label if own else "nobody"
    summary = f"<summary><code>{cell.name}</code>: all methods, {first} first</summary>"
    return f'<details markdown="1">\n{summary}\n\n{_markdown(head, rows)}\n\n</details>'


def _partly(cell: Cell, sides: Sequence[Side], references: set[str]) -> str:
    """Return the table of a cell that lacks some of the eighteen: no place, no first."""
    yardstick = next((side for side in sides if side.label == YARDSTICK), None)
    rows = []
    for side in sorted(sides, key=lambda side: side.label in references):
        is_reference = side.label in references
        against = "" if yardstick is None or side is yardstick else _against(side, yardstick)
        cells = [f"*{side.label}*" if is_reference else side.label, _options(side.line)]
        cells += [_loss(side, "time"), against, f"{np.nanmean(side.accuracy):.3f}"]
        rows.append(cells)
    head = ["method", "step", "loss, equal time", "times FedAvg's", "accuracy"]
    number = sum(side.label not in references for side in sides)
    summary = f"<summary><code>{cell.name}</code>: partly run, {number} methods, no ranks</summary>"
    return f'<details markdown="1">\n{summary}\n\n{_markdown(head, rows)}\n\n</details>'


def _messages(cell: Cell, side: Side) -> str:
    """Return the bits of a run as messages of one model per node, mean over seeds."""
    runs = side.line["judged"].values()
    sent = np.mean([run["bits"][-1] for run in runs]) / side.line["message_bits"]
    return f"{sent / cell.config['nodes']:.3g}"


def _against(side: Side, yardstick: Side) -> str:
    found = compared(side, yardstick)
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}), {found.verdict}"


def _ranks(cells: Cells) -> str:
    """Return the mean rank of each method over all complete cells, on each axis."""
    known = _known(cells)
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


def _known(cells: Cells) -> list[list[Side]]:
    return [sides for sides in cells.values() if sides]


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


def _sections(plan: Plan, cells: Cells) -> str:
    """Return the mean rank at equal time of each method by kind of cell, best first over all."""
    known = [cell for cell in plan.cells if cells[cell.name]]
    headings = sections_of(known)
    overall = mean_ranks([cells[cell.name] for cell in known], "time")
    by_heading = {
        heading: mean_ranks(
            [cells[cell.name] for cell in known if section(cell) == heading], "time"
        )
        for heading in headings
    }
    if not all(found.keys() == overall.keys() for found in by_heading.values()):
        return "No table: a kind of cell has no cell with all methods."
    rows = [
        [label, *(f"{by_heading[heading][label][0]:.1f}" for heading in headings)]
        for label in sorted(overall, key=lambda label: overall[label])
    ]
    number = [str(next(iter(by_heading[heading].values()))[3]) for heading in headings]
    return _markdown(["mean rank", *headings], [*rows, ["*cells*", *number]])


def _not_run(plan: Plan, lines: Sequence[Json], cells: Cells) -> str:
    """Return what is missing, and why."""
    from benchmarks.comparison import concerned

    refused = {(line["cell"], line["label"]): line["error"] for line in lines if "error" in line}
    missing = [
        [f"`{cell.name}`", "all", "not run yet"] for cell in plan.cells if not cells[cell.name]
    ]
    known = [cell for cell in plan.cells if cells[cell.name]]
    not_asked: dict[str, list[str]] = {}  # cells -> the methods that lack exactly these
    for method in plan.methods:
        label = method["label"]
        lacking = [
            cell.name
            for cell in known
            if concerned(cell, method) and not _has(cells[cell.name], label)
        ]
        for name in (each for each in lacking if (each, label) in refused):
            missing.append([f"`{name}`", label, refused[name, label].replace("|", "/")[:160]])
        unasked = [f"`{each}`" for each in lacking if (each, label) not in refused]
        if len(unasked) == sum(concerned(cell, method) for cell in known):
            unasked = ["all"]
        if unasked:
            not_asked.setdefault(", ".join(unasked), []).append(label)
    for names, labels in not_asked.items():
        missing.append([names, "; ".join(labels), "not run yet"])
    return _markdown(["cell", "method", "why"], missing) if missing else "Nothing is missing."
