"""Two sides against each other over all cells that have both: the table of docs/comparison.md."""

from collections.abc import Mapping, Sequence
from textwrap import fill

from benchmarks.comparison import Cell
from benchmarks.comparison_expected_added import of_fresh_seeds, on_fresh_seeds
from benchmarks.comparison_figures import section
from benchmarks.comparison_judge import Compared, Side, has_all
from benchmarks.comparison_momentum import (
    MEASURED,
    NOT_RUN,
    PAIRS,
    geometric_mean,
    ratios,
    verdicts,
)

__all__ = ["pairs_table"]

Cells = Mapping[str, list[Side]]
AT_EQUAL_MOMENTUM = (
    ("DFedAvgM with 0.9 / FedAvg with none", "DFedAvgM", "FedAvg"),
    ("DFedAvgM / FedAvg, both with none", "DFedAvgM, no momentum", "FedAvg"),
    ("DFedAvgM / FedAvg, both with 0.9", "DFedAvgM", "FedAvg, momentum 0.9"),
    ("Algorithm 1 / FedAvg, both with none", "Algorithm 1", "FedAvg"),
    ("Algorithm 1 / FedAvg, both with 0.9", "Algorithm 1, momentum 0.9", "FedAvg, momentum 0.9"),
)
FURTHER = (
    ("FedAvg with 0.9 at the server / FedAvg with none", "FedAvg, server momentum 0.9", "FedAvg"),
    *(
        (f"{name} / FedAvg, both with {how}", PAIRS[name][which], PAIRS["FedAvg"][which])
        for name in ("SGP, asynchronous", "SWIFT", "SGP", "D-PSGD")
        for which, how in enumerate(("none", "0.9"))
    ),
)
"""Further sides with momentum; each over all cells that have the two."""
SILENT = "even data, unequal compute times"
"""Cells in which DFedAvgM was tuned to send nothing; its rows are told without them too."""
OPPONENTS = ("Algorithm 1", "FedAvg", "DFedAvgM")
"""With whom the measured own part is compared, each as in the first comparison."""


def pairs_table(plan: Sequence[Cell], cells: Cells, references: set[str]) -> str:
    """Return a row for each pair: ratio of losses over cells, and verdicts."""
    labels = [label for name in ("FedAvg", "Algorithm 1", "DFedAvgM") for label in PAIRS[name]]
    own = {name: sides for name, sides in cells.items() if has_all(sides, labels)}
    rows = [_row(title, ratios(own, one, two)) for title, one, two in AT_EQUAL_MOMENTUM]
    silent = {cell.name for cell in plan if section(cell) == SILENT}
    rest = {name: sides for name, sides in own.items() if name not in silent}
    for title, one, two in AT_EQUAL_MOMENTUM[:3]:
        rows.append(_row(f"{title}, without {SILENT}", ratios(rest, one, two)))
    wired = {c.name for c in plan if c.config["network"]["name"] == "pipelined"}
    there = {name: sides for name, sides in cells.items() if name in wired}
    for title, one, two in FURTHER:
        rows.append(_row(f"{title}, without the radio", ratios(there, one, two)))
    for network, where in (("pipelined", "without the radio"), ("radio", "on the radio")):
        there = [cell for cell in plan if cell.config["network"]["name"] == network]
        for other in OPPONENTS:
            found = on_fresh_seeds(there, cells, other)
            rows.append(_row(f"measured own part / {other}, {where}", found))
    rows = [row for row in rows if row]
    if not rows:
        return NOT_RUN
    head = "| pair | cells | ratio of losses | ahead, level, behind |\n|---|---|---|---|"
    lowest, number = _lowest(plan, cells, references)
    names = ", ".join(f"`{name}`" for name in lowest)
    told = (
        "Ratios are geometric means over cells. Rows of the measured own part count the seeds 5 to "
        "9 on digits and all seeds on MNIST. On these seeds it has the lowest loss of all sides in "
        f"{len(lowest)} of {number} cells{': ' if names else ''}{names}."
    )
    return "\n".join([head, *rows, "", fill(told, 100, break_on_hyphens=False)])


def _row(title: str, found: Mapping[str, Compared]) -> str:
    if not found:
        return ""
    ahead, level, behind = verdicts(found)
    ratio = geometric_mean(found)
    return f"| {title} | {len(found)} | {ratio:.2f} | {ahead}, {level}, {behind} |"


def _lowest(plan: Sequence[Cell], cells: Cells, references: set[str]) -> tuple[list[str], int]:
    """Return the cells in which the measured own part is lowest, and in how many it ran."""
    wins, number = [], 0
    for cell in plan:
        sides = [side for side in cells.get(cell.name, []) if side.label not in references]
        if has_all(sides, [MEASURED]):
            number += 1
            fresh = [of_fresh_seeds(side, cell) for side in sides]
            best = min(fresh, key=lambda side: float(side.measure["time"].mean()))
            wins += [cell.name] if best.label == MEASURED else []
    return wins, number
