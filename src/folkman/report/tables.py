"""Tables for a terminal and for Markdown, and a comparison's last one: one line per label."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from folkman.record.run import DIVERGED, Run
from folkman.record.terms import COLUMNS
from folkman.record.verdict import NOT_LEARNING
from folkman.report.statistics import half_width

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

__all__ = [
    "ScreenTable",
    "final_rows",
    "markdown_table",
    "named",
    "objective_text",
    "screen_table",
    "spread",
]

LEAST_TEXT = 12
"""Characters that a column of words has at least before it is moved below."""
LEAST_PLACE, MOST_PLAIN = 8, 1e5
"""Decimal places, and size of a number, beyond which it is written with an exponent."""
MOST_DIGITS = 12
"""Decimals of a mean with an exponent, at most."""


def screen_table(
    kinds: str, headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = ""
) -> "ScreenTable":
    """Return a table for a terminal.

    Each column is l (left), r (right) or p (text that may be folded).
    """
    cells = [[heading, *each] for heading, *each in zip(headings, *rows, strict=True)]
    return ScreenTable(kinds, cells, title)


class ScreenTable(NamedTuple):
    """A table that fits any terminal: no cell is cut.

    Columns that do not fit beside the others follow below, beside what names the rows again.
    """

    kinds: str
    columns: list[list[str]]  # heading and cells of each
    title: str

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "Iterator[RenderableType]":
        """Yield a block of columns or more; rich calls it with the width that there is."""
        for number, block in enumerate(self.blocks(options.max_width)):
            yield self._drawn(block, "" if number else self.title)

    def blocks(self, width: int) -> list[list[int]]:
        """Return the columns of each block that fits such a width, those that name the rows first.

        These are the first column, and the second if it is the first in words.
        """
        names = [0, 1] if self.kinds[:1] == "r" and self.kinds[1:2] in ("l", "p") else [0]
        blocks = [[*names]]
        for column in range(len(names), len(self.kinds)):
            if self._width([*blocks[-1], column]) > width and len(blocks[-1]) > len(names):
                blocks.append([*names])
            blocks[-1].append(column)
        return blocks

    def _width(self, block: Sequence[int]) -> int:
        """Return the characters that these columns need, with what rich puts between them."""
        from rich.cells import cell_len

        needed = [
            min(
                max(map(cell_len, self.columns[each])),
                LEAST_TEXT if self.kinds[each] == "p" else 999,
            )
            for each in block
        ]
        return 1 + sum(each + 3 for each in needed)

    def _drawn(self, block: Sequence[int], title: str) -> "Table":
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(title=escape(title) or None, box=box.SIMPLE_HEAD, title_justify="left")
        for each in block:
            side = "right" if self.kinds[each] == "r" else "left"
            folds = self.kinds[each] == "p"
            table.add_column(
                self.columns[each][0], justify=side, no_wrap=not folds, overflow="fold"
            )
        for row in zip(*(self.columns[each][1:] for each in block), strict=True):
            table.add_row(*map(escape, row))
        return table


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False
) -> str:
    """Return a table of Markdown; with `numbers` all columns but the first are set right."""
    more = len(headings) - 1
    rule = "| --- |" + " ---: |" * more if numbers else "|---|" + "---|" * more
    lines = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, *body = ("| " + " | ".join(row) + " |" for row in [headings, *lines])
    return "\n".join([head.replace("|  |", "| |"), rule, *body])


def spread(mean: float, half: float) -> str:
    """Return mean and half-width; no half-width where all seeds agree or there is one.

    The half-width has two digits, and the mean ends where they end: 0.0426 ± 0.0025.
    """
    if not np.isfinite(mean):
        return "-"
    if not (np.isfinite(half) and half > 0):
        return f"{mean:.4g}" if abs(mean) < 1e5 else f"{mean:.3g}"
    last = math.floor(math.log10(float(f"{half:.1e}"))) - 1  # the place of the last digit
    if last >= -LEAST_PLACE and max(abs(mean), half) < MOST_PLAIN:
        return f"{round(mean, -last):.{max(0, -last)}f} ± {round(half, -last):.{max(0, -last)}f}"
    top = math.floor(math.log10(abs(mean))) if mean else last + 1
    return f"{mean:.{min(max(0, top - last), MOST_DIGITS)}e} ± {half:.1e}"


def objective_text(objectives: Sequence[str]) -> str:
    """Return what was minimised, or that it was not the same for all; nothing if nobody knows."""
    if len(objectives) > 1:
        return f"objectives {' and '.join(objectives)}: losses of unlike objectives do not compare"
    return f"objective {objectives[0]}" if objectives else ""


def named(label: str, group: Sequence[Run]) -> str:
    """Return a label with the number of its runs that went wrong."""
    words = Counter(DIVERGED if run.status == DIVERGED else run.verdict for run in group)
    bad = [f"{words[word]} {word}" for word in (DIVERGED, NOT_LEARNING) if words[word]]
    return label + (f" ({', '.join(bad)})" if bad else "")


def final_rows(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row of text per label: mean and 95 % interval over its seeds."""
    begun = [run for run in runs if run.rows]
    columns = [name for name in COLUMNS if any(np.isfinite(run.last(name)) for run in begun)]
    rows = []
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        cells = [named(label, group)]
        for name in columns:
            values = np.array([run.last(name) for run in group if run.rows])
            cells.append(spread(values.mean(), float(half_width(values))) if len(values) else "-")
        rows.append(cells)
    return ["algorithm", *(COLUMNS[name].heading for name in columns)], rows
