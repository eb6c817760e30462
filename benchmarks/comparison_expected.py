"""The expectations of docs/comparison-plan.md, each judged by its own rule."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from benchmarks.comparison_judge import MARGIN, NEVER_WAITS, YARDSTICK, Side, best_of, compared

__all__ = ["expected", "verdict_of"]

Cells = Mapping[str, list[Side]]
FLOOR = "one step per traversal"
MOST_AGAINST = 2
"""Pairs of cells of eight that may go the other way."""


def _name(gamma: int, data: str, batch: str, compute: str) -> str:
    return f"digits-{gamma}-{data}{batch}{compute}"


DATA, BATCH, COMPUTE, GAMMAS = ("even", "label"), ("", "-batch"), ("", "-unequal"), (5, 15)


def _side(cells: Cells, cell: str, label: str) -> Side | None:
    return next((side for side in cells.get(cell, []) if side.label == label), None)


def _never(cells: Cells, cell: str) -> Side | None:
    return best_of(cells.get(cell, []), NEVER_WAITS)


def _ratio(cells: Cells, cell: str, label: str | None) -> float | None:
    """Return a side's loss over FedAvg's in a cell; without a label the best that never waits."""
    side = _never(cells, cell) if label is None else _side(cells, cell, label)
    other = _side(cells, cell, YARDSTICK)
    return None if side is None or other is None else compared(side, other).ratio


def expected(cells: Cells) -> str:
    """Return the table of expectations, what was found, and the verdict of each."""
    lines = ["| # | found | verdict |", "|---|---|---|"]
    for number, (found, verdict) in enumerate(_all(cells), start=1):
        lines.append(f"| E{number} | {found} | {verdict} |")
    return "\n".join(lines)


def _all(cells: Cells) -> Iterator[tuple[str, str]]:
    yield _nobody_ahead(cells)
    wider = [(_name(5, *rest), _name(15, *rest)) for rest in product(DATA, BATCH, COMPUTE)]
    yield _pairs(cells, wider, "Algorithm 1", rises=True)
    yield _ahead_by_label(cells)
    rest = list(product(GAMMAS, DATA, BATCH))
    yield _pairs(cells, [(_name(*r, ""), _name(*r, "-unequal")) for r in rest], None, rises=False)
    rest = list(product(GAMMAS, DATA, COMPUTE))
    noisy = [(_name(g, d, "", c), _name(g, d, "-batch", c)) for g, d, c in rest]
    yield _pairs(cells, noisy, None, rises=False)
    yield _above_the_line(cells)


def _nobody_ahead(cells: Cells) -> tuple[str, str]:
    """E1: even data, full batch, equal compute times."""
    told, complete, refuted = [], True, False
    for gamma in GAMMAS:
        cell = _name(gamma, "even", "", "")
        yardstick = _side(cells, cell, YARDSTICK)
        sides = [_side(cells, cell, label) for label in NEVER_WAITS]
        known = [side for side in sides if side is not None]
        complete &= yardstick is not None and len(known) == len(sides)
        if yardstick is None:
            continue
        ahead = [side.label for side in known if compared(side, yardstick).verdict == "ahead"]
        refuted |= bool(ahead)
        told.append(f"Gamma {gamma}: {', '.join(ahead) or 'nobody'} ahead")
    return "; ".join(told), verdict_of(refuted, complete)


def _ahead_by_label(cells: Cells) -> tuple[str, str]:
    """E3: data by label, equal compute times, Gamma 5."""
    told, complete, refuted = [], True, False
    for batch in BATCH:
        cell = _name(5, "label", batch, "")
        side, yardstick = _never(cells, cell), _side(cells, cell, YARDSTICK)
        if side is None or yardstick is None:
            complete = False
            continue
        found = compared(side, yardstick)
        refuted |= found.verdict != "ahead"
        told.append(f"`{cell}`: {side.label} {found.verdict}, ratio {found.ratio:.2f}")
    return "; ".join(told), verdict_of(refuted, complete)


def _pairs(
    cells: Cells, pairs: Sequence[tuple[str, str]], label: str | None, *, rises: bool
) -> tuple[str, str]:
    """E2, E4, E5: how a ratio to FedAvg moves from the first cell of each pair to the second."""
    steps = []
    for before, after in pairs:
        first, second = _ratio(cells, before, label), _ratio(cells, after, label)
        if first is not None and second is not None:
            steps.append(math.log(second / first))
    up = sum(step > MARGIN for step in steps)
    down = sum(step < -MARGIN for step in steps)
    against = down if rises else up
    found = f"up in {up}, down in {down} of {len(steps)} pairs"
    complete = len(steps) == len(pairs)
    return found, verdict_of(against > MOST_AGAINST, complete)


def _above_the_line(cells: Cells) -> tuple[str, str]:
    """E6: full batch, equal compute times, against one step per traversal."""
    told, complete, refuted = [], True, False
    for gamma, data in product(GAMMAS, DATA):
        cell = _name(gamma, data, "", "")
        line = _side(cells, cell, FLOOR)
        sides = [_side(cells, cell, label) for label in NEVER_WAITS]
        known = [side for side in sides if side is not None]
        complete &= line is not None and len(known) == len(sides)
        if line is None:
            continue
        below = [side.label for side in known if compared(side, line).verdict == "ahead"]
        refuted |= bool(below)
        told.append(f"Gamma {gamma}, {data}: {', '.join(below) or 'nobody'} below")
    return "; ".join(told), verdict_of(refuted, complete)


def verdict_of(refuted: bool, complete: bool) -> str:
    """Return the verdict of one expectation."""
    if refuted:
        return "refuted"
    return "not refuted" if complete else "open: cells are missing"
