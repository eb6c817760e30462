"""The result table of a terminal: it fits any width, and says what its columns mean.

Columns come in the order of their worth. Those that do not fit beside the others follow in a block
of their own; those that a reader can do without (`EXTRA`) are then left out. No number is ever cut.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain
from math import isfinite

import numpy as np

from folkman.record.run import Run
from folkman.record.terms import COLUMNS
from folkman.report.statistics import half_width
from folkman.report.tables import named, spread

__all__ = ["air_line", "explained", "result_lines"]

EXTRA = ("gradients", "rounds")
"""Left out where they do not fit: the report has them."""
WITH_INTERVAL = ("train_loss", "test_accuracy", "optimum_distance")
GAP = "  "
LEAST_LABEL = 12
"""Characters that a label has at least beside a second column."""
LEAST_LETTERS = 4
"""And beside one number that leaves it no more."""


def result_lines(runs: Sequence[Run], width: int) -> list[str]:
    """Return the last values of each label's runs as lines of at most `width` characters.

    Mean over the seeds; the loss and the accuracy with half of their 95 % interval.
    """
    names, columns = _filled(runs)
    lines: list[str] = []
    for block in _blocks(columns, names, width):
        lines += [*_block(names, {name: columns[name] for name in block}, width), ""]
    return lines[:-1]


def explained(runs: Sequence[Run], width: int) -> list[str]:
    """Return what the numbers and headings of the lines of such a width mean."""
    seeds = len({run.seed for run in runs})
    over = "one seed" if seeds == 1 else f"mean of {seeds} seeds ± half of the 95 % interval"
    over += " (no ±: all seeds ended alike)" if _some_alike(runs) else ""
    names, columns = _filled(runs)
    shown = chain.from_iterable(_blocks(columns, names, width))
    words = [f"{COLUMNS[name].heading}: {COLUMNS[name].brief}" for name in shown]
    told = f" {'; '.join(words)}." if words else " No run has a value yet."
    return textwrap.wrap(f"{over}.{told}", max(width, 20))


def air_line(runs: Sequence[Run]) -> list[str]:
    """Return a line on the slots that messages took, where a network measured them; else none."""
    taken: dict[str, list[float]] = {}
    for run in runs:
        slots = run.last("gamma_t") if run.rows and "gamma_t" in run.rows[-1] else float("nan")
        taken.setdefault(run.label, []).extend([slots] if isfinite(slots) else [])
    means = {label: float(np.mean(each)) for label, each in taken.items() if each}
    if not means:
        return []
    told = [f"{mean:.2g} ({label})" for label, mean in means.items()]
    told[0] = told[0].replace(" ", " slots on the air ", 1)
    return [f"a message takes about {', '.join(told)}"]


def _some_alike(runs: Sequence[Run]) -> bool:
    """Tell whether all seeds of a label ended at one value, which then has no interval."""
    ends: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for name in WITH_INTERVAL if run.rows else ():
            ends.setdefault((run.label, name), []).append(run.last(name))
    return any(
        len(values) > 1 and min(values) == max(values) and all(map(isfinite, values))
        for values in ends.values()
    )


def _filled(runs: Sequence[Run]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the labels, and for each metric that some run defines its heading and cells."""
    labels = list(dict.fromkeys(run.label for run in runs))
    groups = [[run for run in runs if run.label == label] for label in labels]
    names = [named(label, group) for label, group in zip(labels, groups, strict=True)]
    return names, {name: _cells(name, groups) for name in _known(runs)}


def _known(runs: Sequence[Run]) -> list[str]:
    """Return the metrics that some run defines."""
    begun = [run for run in runs if run.rows]
    return [name for name in COLUMNS if any(np.isfinite(run.last(name)) for run in begun)]


def _cells(name: str, groups: Sequence[Sequence[Run]]) -> list[str]:
    """Return a metric's heading and its value for each group of runs."""
    found = [COLUMNS[name].heading]
    for group in groups:
        values = np.array([run.last(name) for run in group if run.rows])
        half = float(half_width(values)) if name in WITH_INTERVAL else float("nan")
        found.append(_short(float(values.mean()), half) if len(values) else "-")
    return found


def _short(mean: float, half: float) -> str:
    """Return a number in few characters: 4.6e7, 0.426 ± 0.025, 12.3."""
    if np.isfinite(half) and half > 0:
        return spread(mean, half)
    if not np.isfinite(mean):
        return "-"
    digits = f"{mean:.4g}" if 0.001 <= abs(mean) < 1e4 else f"{mean:.2g}"
    return digits.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _blocks(columns: dict[str, list[str]], names: Sequence[str], width: int) -> Iterator[list[str]]:
    """Yield the metrics of each block, as many as fit; extras only where they fit in the first."""
    label = _widest(names)
    widths = {name: len(GAP) + max(map(len, cells)) for name, cells in columns.items()}
    if label + sum(widths.values()) > width:
        widths = {name: size for name, size in widths.items() if name not in EXTRA}
    block: list[str] = []
    for name, size in widths.items():
        taken = min(label, LEAST_LABEL) + sum(widths[each] for each in block)
        if block and taken + size > width:
            yield block
            block = []
        block.append(name)
    yield block


def _widest(names: Sequence[str]) -> int:
    """Return the characters of the longest label, or of their heading."""
    return max(map(len, ("algorithm", *names)))


def _block(names: Sequence[str], columns: dict[str, list[str]], width: int) -> list[str]:
    """Return a heading, a rule, and a line or more for each label."""
    sizes = [max(map(len, cells)) for cells in columns.values()]
    rest = sum(len(GAP) + size for size in sizes)
    room = max(min(_widest(names), width - rest), LEAST_LETTERS)
    lines = []
    for row, name in enumerate(("algorithm", *names)):
        first, *more = textwrap.wrap(name, room) or [""]
        cells = (
            cells[row].rjust(size) for cells, size in zip(columns.values(), sizes, strict=True)
        )
        lines += [GAP.join([first.ljust(room), *cells]).rstrip(), *(f"  {each}" for each in more)]
        if row == 0:
            lines.append("─" * min(room + rest, width))
    return lines
