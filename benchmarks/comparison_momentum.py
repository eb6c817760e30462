"""Momentum like for like: each method with 0.9 and with none, by docs/comparison-plan.md."""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill

from benchmarks.comparison_judge import Compared, Side, compared, mean_ranks

__all__ = ["MEASURED", "NOT_RUN", "PAIRS", "found_in", "geometric_mean", "momentum_by_cell"]
__all__ += ["momentum_table", "ratios", "verdicts"]

PAIRS = {
    "FedAvg": ("FedAvg", "FedAvg, momentum 0.9"),
    "Algorithm 1": ("Algorithm 1", "Algorithm 1, momentum 0.9"),
    "DFedAvgM": ("DFedAvgM, no momentum", "DFedAvgM"),
    "SGP": ("SGP", "SGP, momentum 0.9"),
    "SGP, asynchronous": ("SGP, asynchronous", "SGP, asynchronous, momentum 0.9"),
    "SWIFT": ("SWIFT", "SWIFT, momentum 0.9"),
    "D-PSGD": ("D-PSGD", "D-PSGD, momentum 0.9"),
    "CGA": ("CGA, no momentum", "CGA"),
    "CompCGA": ("CompCGA, no momentum", "CompCGA"),
}
"""Of each method the side without momentum and the side with 0.9."""
FIRST = ("FedAvg", "Algorithm 1", "DFedAvgM")
MEASURED = "Algorithm 1, measured own part"
NOT_RUN = "Not run yet."

Cells = Mapping[str, list[Side]]


def found_in(sides: Sequence[Side], label: str) -> Side | None:
    """Return the side of that name."""
    return next((side for side in sides if side.label == label), None)


def ratios(cells: Cells, label: str, other: str) -> dict[str, Compared]:
    """Return how a side compares with another in every cell that has both."""
    found = {}
    for name, sides in cells.items():
        one, two = found_in(sides, label), found_in(sides, other)
        if one is not None and two is not None:
            found[name] = compared(one, two)
    return found


def geometric_mean(found: Mapping[str, Compared]) -> float:
    """Return the geometric mean of ratios over cells."""
    logarithms = [math.log(each.ratio) for each in found.values()]
    return math.exp(sum(logarithms) / len(logarithms))


def verdicts(found: Mapping[str, Compared]) -> tuple[int, int, int]:
    """Return in how many cells a side is ahead, level and behind."""
    told = [each.verdict for each in found.values()]
    return told.count("ahead"), told.count("level"), told.count("behind")


def _at_equal_momentum(
    cells: Cells, methods: Sequence[str]
) -> list[dict[str, tuple[float, float, float, int]]]:
    """Return the mean ranks of methods among themselves, all without momentum and all with 0.9."""
    wanted = {label for method in methods for label in PAIRS[method]}
    whole = [sides for sides in cells.values() if wanted <= {side.label for side in sides}]
    found = []
    for which in (0, 1):
        own = [
            [
                side._replace(label=method)
                for method in methods
                for side in sides
                if side.label == PAIRS[method][which]
            ]
            for sides in whole
        ]
        found.append(mean_ranks(own, "time"))
    return found


def momentum_table(cells: Cells) -> str:
    """Return a row for each method: what momentum does to it, and its rank at equal momentum."""
    few, all_of_them = (_at_equal_momentum(cells, methods) for methods in (FIRST, tuple(PAIRS)))
    rows = []
    for method, (none, heavy) in PAIRS.items():
        found = ratios(cells, heavy, none)
        if not found:
            continue
        ahead, level, behind = verdicts(found)
        row = [method, str(len(found)), f"{geometric_mean(found):.2f}"]
        row += [f"{ahead}, {level}, {behind}"]
        row += [_place(ranks, method) for ranks in (*few, *all_of_them)]
        rows.append(f"| {' | '.join(row)} |")
    if not rows:
        return NOT_RUN
    head = ["method", "cells", "loss with 0.9 / with none", "ahead, level, behind"]
    head += [f"rank of {len(FIRST)}, none", "0.9", f"rank of {len(PAIRS)}, none", "0.9"]
    numbers = [next(iter(each[0].values()))[3] if each[0] else 0 for each in (few, all_of_them)]
    told = (
        f"Mean ranks at equal time: of the first {len(FIRST)} over {numbers[0]} cells, of all "
        f"{len(PAIRS)} over {numbers[1]}. *Ahead*: with momentum it is ahead of itself without."
    )
    top = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*top, *rows, "", fill(told, 100)])


def _place(ranks: Mapping[str, tuple[float, float, float, int]], method: str) -> str:
    return "{:.1f} ({:.1f} to {:.1f})".format(*ranks[method]) if method in ranks else ""


COLUMNS = (
    ("DFedAvgM / FedAvg, none", "DFedAvgM, no momentum", "FedAvg"),
    ("DFedAvgM / FedAvg, 0.9", "DFedAvgM", "FedAvg, momentum 0.9"),
    ("Algorithm 1 / FedAvg, none", "Algorithm 1", "FedAvg"),
    ("Algorithm 1 / FedAvg, 0.9", "Algorithm 1, momentum 0.9", "FedAvg, momentum 0.9"),
    ("measured own part / Algorithm 1", MEASURED, "Algorithm 1"),
    ("measured own part / FedAvg", MEASURED, "FedAvg"),
)


def momentum_by_cell(cells: Cells) -> str:
    """Return a row for each cell: ratios at equal momentum, and those of the measured own part."""
    found = [ratios(cells, label, other) for _, label, other in COLUMNS]
    rows = []
    for name in cells:
        told = [_ratio(each.get(name)) for each in found]
        if any(told[position] for position in (0, 1, 3, 4)):  # something that was added
            rows.append(f"| `{name}` | {' | '.join(told)} |")
    head = ["cell", *(title for title, _, _ in COLUMNS)]
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]
    return "\n".join(table) if rows else NOT_RUN


def _ratio(found: Compared | None) -> str:
    if found is None:
        return ""
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}), {found.verdict}"
