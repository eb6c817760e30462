"""A comparison of arms as text, Markdown, CSV or LaTeX: a line per arm.

    print(render(compare_arms(arms, ["train_loss"])))

Numbers end where their interval ends. The best arm is marked where it is surely the best: where
every other arm's difference from it, seed by seed, has an interval without 0. Otherwise all that
are not told apart from it are marked as such. A difference that is the same in every seed has no
interval; a note says so, and such an arm is not told apart. With one seed nothing is marked.
"""

import csv
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from folkman.checks import nearest, require
from folkman.record.table import Arm
from folkman.record.terms import HEADINGS
from folkman.record.tuned import told, untuned
from folkman.report.comparison import ArmTable, compare_arms
from folkman.report.latex import latex_table
from folkman.report.sheet import NEAR, SURE, Number, Sheet
from folkman.report.tables import markdown_table, objective_text

__all__ = ["FORMATS", "Form", "compare_arms", "form_of", "mark_of", "marks_note", "render"]
__all__ += ["plain_value", "seeds_note", "text_of", "title_of", "words_of"]


class Form(NamedTuple):
    """A way to write a sheet: how ranks are told, and what begins a note."""

    sure: str
    near: str
    write: Callable[[Sheet, str, str], str]  # sheet, note, label
    note: str


def text_of(sheet: Sheet, note: str = "", label: str = "") -> str:
    """Return a sheet as aligned columns, for a terminal."""
    del label
    marks = {SURE: "{} *", NEAR: "{} ~", "": "{}  "}
    words, head = sheet.words, sheet.head
    lines = [[_cell(cell, marks) for cell in line] for line in sheet.lines]
    rows = [[*head[:words], *(f"{title}  " for title in head[words:])], *lines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    aligned = [
        "  ".join(
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, aligned))
    return "\n".join([aligned[0], rule, *aligned[1:], "", note])


def _cell(cell: str | Number, marks: Mapping[str, str]) -> str:
    return cell if isinstance(cell, str) else marks[cell.mark].format(cell)


def _as_markdown(sheet: Sheet, note: str, label: str) -> str:
    del label
    marks = {SURE: "**{}**", NEAR: "*{}*", "": "{}"}
    lines = [[_cell(cell, marks) for cell in line] for line in sheet.lines]
    return f"{markdown_table(sheet.head, lines, numbers=True)}\n\n{note}."


def _as_csv(sheet: Sheet, note: str, label: str) -> str:
    """Return numbers in full: for each column mean, half of the interval, and mark."""
    del note, label
    words, text = sheet.words, io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = [f"{title}{end}" for title in sheet.head[words:] for end in ("", " ± 95 %", " mark")]
    writer.writerow([*sheet.head[:words], *numbers])
    for line in sheet.lines:
        cells: list[str] = []
        for cell in line[words:]:
            known = isinstance(cell, Number)
            values = (cell.mean, cell.half) if known else (float("nan"), float("nan"))
            cells += [repr(float(value)) if isfinite(value) else "" for value in values]
            cells.append(cell.mark if known else "")
        writer.writerow([*line[:words], *cells])
    return text.getvalue().rstrip("\n")


FORMATS = {
    "text": Form("* surely best", "~ not told apart from the best", text_of, ""),
    "markdown": Form(
        "Bold: surely best", "italics: not told apart from the best", _as_markdown, "\n"
    ),
    "csv": Form("", "", _as_csv, ""),
    "latex": Form("Bold: surely best", "†: not told apart from the best", latex_table, "% "),
}
"""Name -> how a comparison is written."""


def form_of(form: str) -> Form:
    """Return a format by its name; refuse another with the nearest."""
    require(form in FORMATS, f"there is no format '{form}'; {nearest(form, FORMATS)}")
    return FORMATS[form]


def render(
    found: ArmTable,
    form: str = "text",
    notes: Sequence[str] = (),
    arms: Mapping[str, Arm] | None = None,
    width: int | None = None,
    label: str = "comparison",
) -> str:
    """Return a comparison with a line per arm, and a line below for each note.

    With `arms` (what each arm is) LaTeX and CSV have a column for the algorithm and one for each
    axis. Text that is wider than `width` has a table per metric, and notes that are folded.
    """
    way = form_of(form)
    note = f"{marks_note([found], way)}; {_note(found)}"
    sheet = _sheet(found, arms or {} if form in ("latex", "csv") else {})
    if form == "csv":
        return way.write(sheet, note, label)
    aside = [objective_text(found.objectives), told(found.tuned, options=found.searched)]
    if form == "latex":  # what does not belong into a caption stands in comments
        notes = [*filter(None, aside), *notes]
        note += "; steps not tuned for this setting" if untuned(found.tuned) else ""
        note = f"{_compared(found)}. {note[:1].upper()}{note[1:]}"
    else:
        note = "; ".join(filter(None, [note, *aside]))
    if form != "text" or width is None:
        return "\n".join([way.write(sheet, note, label), *(f"{way.note}{line}" for line in notes)])
    text = text_of(sheet).rstrip()
    if max(map(len, text.split("\n"))) > width:
        alone = (_sheet(found._replace(metrics=[metric]), {}) for metric in found.metrics)
        text = "\n\n".join(text_of(each).rstrip() for each in alone)
    folded = (textwrap.fill(line, width, subsequent_indent="  ") for line in (note, *notes))
    return "\n".join([text, "", *folded])


def _compared(found: ArmTable) -> str:
    """Return what a table compares: the metrics, the data and the nodes."""
    metrics = " and ".join(title_of(metric) for metric in found.metrics)
    return f"{metrics} ({found.setting})" if found.setting else metrics


def _sheet(found: ArmTable, arms: Mapping[str, Arm]) -> Sheet:
    """Return a line per arm: for each metric its mean and its difference from the reference."""
    words, lines = words_of(found.arms, arms)
    head = words
    for metric in found.metrics:
        head = [*head, title_of(metric), f"{title_of(metric)}: difference"]
        for line, arm in zip(lines, found.arms, strict=True):
            cell = found.cells[arm, metric]
            line += [Number(cell.mean, cell.half, mark_of(found, arm, metric))]
            own = arm == found.references[metric]
            line += ["" if own else Number(cell.difference, cell.difference_half, "", signed=True)]
    return Sheet(head, lines, len(words))


def title_of(metric: str) -> str:
    """Return the heading of a metric."""
    return HEADINGS.get(metric, metric.replace("_", " "))


def words_of(
    names: Sequence[str], known: Mapping[str, Arm]
) -> tuple[list[str], list[list[str | Number]]]:
    """Return the headings and cells that say what each arm is: its name, or label and settings."""
    if not all(name in known for name in names):
        return ["arm"], [[name] for name in names]
    axes = list(dict.fromkeys(key for name in names for key in known[name].settings))
    lines: list[list[str | Number]] = [
        [known[name].label, *(plain_value(known[name].settings.get(axis, "")) for axis in axes)]
        for name in names
    ]
    return ["algorithm", *axes], lines


def plain_value(value: object) -> str:
    """Return a setting's value as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def mark_of(found: ArmTable, arm: str, metric: str) -> str:
    """Return whether an arm is surely the best, not told apart from the best, or neither."""
    cell = found.cells[arm, metric]
    ranked = [each for each in found.arms if each not in found.unranked]
    if not cell.rank or len(ranked) < 2 or cell.num_seeds < 2:
        return ""  # alone, or with one seed, nobody is surely best
    ranks = [found.cells[each, metric].rank for each in ranked]
    return NEAR if "tied" in ranks else SURE


def marks_note(tables: Sequence[ArmTable], way: Form) -> str:
    """Return how the best are marked, or that one seed cannot find any."""
    if all(cell.num_seeds < 2 for table in tables for cell in table.cells.values()):
        return "one seed: no interval, and so no arm is marked as best"
    marks = {mark_of(t, arm, metric) for t in tables for arm, metric in t.cells}
    shown = [way.sure if SURE in marks else "", way.near if NEAR in marks else ""]
    return ", ".join(filter(None, shown)) or "no arm is marked as best"


def seeds_note(tables: Sequence[ArmTable]) -> str:
    """Return over how many seeds the means are."""
    counts = sorted({cell.num_seeds for table in tables for cell in table.cells.values()})
    if counts == [1]:
        return ""  # which the note on marks says
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and 95 % interval over {seeds} seeds"


def _note(found: ArmTable) -> str:
    from_ = "; ".join(dict.fromkeys(f"'{arm}'" for arm in found.references.values()))
    mean = seeds_note([found])
    each = "the best of each column: " if len(set(found.references.values())) > 1 else ""
    paired = f"differences paired by seed, from {each}{from_}"
    apart = ", ".join(f"{arm} ({why})" for arm, why in found.unranked.items())
    left = f"not ranked: {apart}" if apart else ""
    return "; ".join(filter(None, (mean, paired, _alike(found), left, _own_seeds(found))))


def _alike(found: ArmTable) -> str:
    """Return whose difference is the same in every seed, and so has no interval."""
    whose = [f"{arm} ({title_of(metric)})" for (arm, metric), cell in found.cells.items()
             if cell.alike]  # fmt: skip
    told = "all seeds alike, so that the difference has no interval and is not told apart from 0"
    return f"{told}: {', '.join(whose)}" if whose else ""


def _own_seeds(found: ArmTable) -> str:
    """Return whose means are over other seeds than those of the arms that are ranked."""
    ranked = {arm: found.cells[arm, metric].num_seeds for arm, metric in found.cells
              if arm not in found.unranked}  # fmt: skip
    shared = set(ranked.values())
    other = dict.fromkeys(
        arm for arm, metric in found.cells
        if arm in found.unranked and found.cells[arm, metric].num_seeds not in shared
    )  # fmt: skip
    return f"over its own seeds, not the common ones: {', '.join(other)}" if other else ""
