"""A metric as a grid: the values of one setting across, and of another, or of all others, down.

    crossed(arms, facts, "algorithm", "network.gamma", "train_loss")

Each cell is one arm. Arms are ranked among those that met the same: where one side of the grid is
the algorithm or an option of it, along that side; where none is, arms met unlike settings, and none
is marked.
"""

import textwrap
from collections.abc import Collection, Iterator, Mapping

from folkman.checks import nearest, require
from folkman.record.run import Run
from folkman.record.settings import ALGORITHM, Settings
from folkman.record.table import Arm
from folkman.report.chosen import WITHOUT, grid_of
from folkman.report.comparison import ArmTable, compare_arms
from folkman.report.sheet import Number, Sheet
from folkman.report.sheets import (
    form_of,
    mark_of,
    marks_note,
    plain_value,
    seeds_note,
    text_of,
    title_of,
    words_of,
)

__all__ = ["crossed", "pivoted"]

Arms = Mapping[str, Mapping[int, Run]]


def pivoted(
    arms: Arms,
    known: Mapping[str, Arm],
    axis: str,
    metric: str,
    form: str = "text",
    at: tuple[str, float] | None = None,
    bounds: Collection[str] = (),
    width: int | None = None,
) -> str:
    """Return a metric with the values of an axis across, and a line for each of everything else.

    Arms are ranked within each value of the axis; see `compare_arms` for the rest. Text that is
    wider than `width` goes on in tables below, each with as many values as fit.
    """
    axes = list(dict.fromkeys(key for arm in known.values() for key in arm.settings))
    require(
        bool(axes) and all(name in known for name in arms),
        "--pivot AXIS is for sweeps: a run folder has no axes; give two settings, ROW,COL, or "
        "leave it out",
    )
    require(axis in axes, f"there is no axis '{axis}' in these arms; {nearest(axis, axes)}")
    columns, rows = {}, {}
    for name in arms:
        label, settings = known[name]
        value = plain_value(settings[axis]) if axis in settings else WITHOUT
        columns.setdefault(value, []).append(name)
        rest = {key: item for key, item in settings.items() if key != axis}
        rows.setdefault((label, str(rest)), (Arm(label, rest), {}))[1][value] = name
    columns = dict(sorted(columns.items(), key=lambda column: column[0] == WITHOUT))
    tables = {
        value: compare_arms({name: arms[name] for name in names}, [metric], at=at, bounds=bounds)
        for value, names in columns.items()
    }
    kept = {str(index): row for index, (row, _) in enumerate(rows.values())}
    words, lines = words_of(list(kept), kept)
    for line, (_, own) in zip(lines, rows.values(), strict=True):
        line += [
            _number(tables[value], own[value], metric) if value in own else "" for value in columns
        ]
    head = [*words, *(value if value == WITHOUT else f"{axis}={value}" for value in columns)]
    sheet = Sheet(head, lines, len(words), title_of(metric))
    return _written(sheet, list(tables.values()), "of each column", form, width)


def crossed(
    arms: Arms,
    facts: Mapping[str, Settings],
    sides: tuple[str, str],
    metric: str,
    form: str = "text",
    at: tuple[str, float] | None = None,
    bounds: Collection[str] = (),
    width: int | None = None,
) -> str:
    """Return a metric by two settings of the arms in `facts`, one down and one across."""
    grid = grid_of(facts, *sides)
    along = _ranked_along(grid.row, grid.column)
    groups: dict[str, list[str]] = {}
    for (down, across), arm in grid.cells.items():
        groups.setdefault({"column": across, "row": down}.get(along, arm), []).append(arm)
    tables = {
        arm: table
        for names in groups.values()
        for table in [compare_arms({n: arms[n] for n in names}, [metric], at=at, bounds=bounds)]
        for arm in names
    }
    lines: list[list[str | Number]] = []
    for down in grid.rows:
        found = [grid.cells.get((down, across)) for across in grid.columns]
        lines.append([down, *("" if arm is None else _number(tables[arm], arm, metric)
                              for arm in found)])  # fmt: skip
    short = "" if grid.column == ALGORITHM else f"{grid.column.rpartition('.')[2]}="
    head = [grid.row, *(each if each == WITHOUT else f"{short}{each}" for each in grid.columns)]
    sheet = Sheet(head, lines, 1, title_of(metric))
    which = f"of each {along}" if along else "nowhere: arms of one method met unlike settings"
    return _written(sheet, list(tables.values()), which, form, width)


def _ranked_along(row: str, column: str) -> str:
    """Return within what arms are ranked: each column, each row, or nothing."""
    options = (ALGORITHM, f"{ALGORITHM}.")
    if row == options[0] or row.startswith(options[1]):
        return "column"
    return "row" if column == options[0] or column.startswith(options[1]) else ""


def _number(found: ArmTable, arm: str, metric: str) -> Number:
    cell = found.cells[arm, metric]
    return Number(cell.mean, cell.half, mark_of(found, arm, metric))


def _written(sheet: Sheet, tables: list[ArmTable], which: str, form: str, width: int | None) -> str:
    """Return a grid in a format, with what its marks mean."""
    way = form_of(form)
    marks = marks_note(tables, way)
    marked = marks if marks.startswith(("one seed", "no arm")) else f"{marks} {which}"
    apart: dict[str, list[str]] = {}
    for arm, why in {arm: why for t in tables for arm, why in t.unranked.items()}.items():
        apart.setdefault(why, []).append(arm)
    left = [f"not ranked ({why}): {'; '.join(own)}" for why, own in apart.items()]
    note = "; ".join(filter(None, [marked, seeds_note(tables), *left]))
    if form != "text":
        return way.write(sheet, note, sheet.title)
    told = f"{sheet.title}; {note}"
    if width is None:
        return text_of(sheet, told)
    folded = textwrap.fill(told, width, subsequent_indent="  ")
    return "\n\n".join([*(text_of(part).rstrip() for part in _parted(sheet, width)), folded])


def _parted(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """Yield a sheet in parts that fit; each has all columns of words, and a number at least."""
    words, first = sheet.words, sheet.words
    while first < len(sheet.head):
        for end in range(len(sheet.head), first, -1):
            kept = [*range(words), *range(first, end)]
            head = [sheet.head[place] for place in kept]
            part = Sheet(head, [[line[place] for place in kept] for line in sheet.lines], words)
            if end == first + 1 or max(map(len, text_of(part).split("\n"))) <= width:
                yield part
                first = end
                break
