"""A comparison of arms as text, Markdown or LaTeX: a line per arm, or an axis across.

Numbers end where their interval ends. In LaTeX they are in math mode, where a hyphen is a minus
sign; what an arm of a sweep is stands in columns of its own, one per axis.
"""

import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from folkman.checks import nearest, require
from folkman.record.run import Run
from folkman.record.table import Arm
from folkman.record.terms import HEADINGS
from folkman.record.tuned import told
from folkman.report.comparison import ArmTable, compare_arms
from folkman.report.tables import markdown_table, objective_text, spread

__all__ = ["FORMATS", "pivoted", "render"]


WITHOUT = "without it"
"""The column of arms that an axis does not concern."""


class Sheet(NamedTuple):
    """Headings and lines: first columns of words, then numbers."""

    head: list[str]
    lines: list[list[str]]
    words: int


class Form(NamedTuple):
    """A way to write a sheet: how ranks are marked and named, and what begins a note."""

    marks: Mapping[str, str]
    best: str
    tied: str
    write: Callable[[Sheet, str], str]
    note: str


def _as_text(sheet: Sheet, note: str) -> str:
    words, head = sheet.words, sheet.head
    rows = [[*head[:words], *(f"{title}  " for title in head[words:])], *sheet.lines]
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


def _as_markdown(sheet: Sheet, note: str) -> str:
    body = markdown_table(sheet.head, sheet.lines, numbers=True)
    return f"{body}\n\n{note}."


def _as_latex(sheet: Sheet, note: str) -> str:
    """Return a `tabular` for booktabs."""
    words = sheet.words
    rows = [[_escaped(cell) for cell in sheet.head]]
    rows += [[*map(_escaped, row[:words]), *map(_in_math, row[words:])] for row in sheet.lines]
    body = [" & ".join(row) + r" \\" for row in rows]
    start = f"\\begin{{tabular}}{{{'l' * words}{'r' * (len(sheet.head) - words)}}}"
    top = [f"% {note}", start, r"\toprule", body[0], r"\midrule"]
    return "\n".join([*top, *body[1:], r"\bottomrule", r"\end{tabular}"])


def _in_math(cell: str) -> str:
    """Return a number as LaTeX sets it; a value that is not there is a dash."""
    if not cell.strip("-+"):
        return "--" if cell else ""
    power = re.sub(r"e([+-])0*(\d+)", lambda e: rf" \cdot 10^{{{e[1].strip('+')}{e[2]}}}", cell)
    return f"${power.replace('±', chr(92) + 'pm')}$"


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)


FORMATS = {
    "text": Form({"winner": "{} *", "tied": "{} ~", "": "{}  "}, "* best", ", ~ tied with it",
                 _as_text, ""),
    "markdown": Form({"winner": "**{}**", "tied": "*{}*", "": "{}"}, "Bold: best",
                     "; italics: tied with it", _as_markdown, "\n"),
    "latex": Form({"winner": "\\mathbf{{{}}}", "tied": "\\underline{{{}}}", "": "{}"}, "bold: best",
                  "; underlined: tied with it", _as_latex, "% "),
}  # fmt: skip
"""Name -> how a comparison is written."""


def render(
    found: ArmTable,
    form: str = "text",
    notes: Sequence[str] = (),
    arms: Mapping[str, Arm] | None = None,
    width: int | None = None,
) -> str:
    """Return a comparison with a line per arm, and a line below for each note.

    With `arms` (what each arm is) LaTeX has a column for the algorithm and one for each axis. Text
    that is wider than `width` has a table per metric, and notes that are folded.
    """
    way = _form(form)
    note = f"{way.best}{_ties([found], way)}; {_note(found)}"
    sheet = _sheet(found, form, arms or {})
    if form != "text" or width is None:
        return "\n".join([way.write(sheet, note), *(f"{way.note}{line}" for line in notes)])
    text = way.write(sheet, "").rstrip()
    if max(map(len, text.split("\n"))) > width:
        alone = (_sheet(found._replace(metrics=[metric]), form, {}) for metric in found.metrics)
        text = "\n\n".join(way.write(each, "").rstrip() for each in alone)
    folded = (textwrap.fill(line, width, subsequent_indent="  ") for line in (note, *notes))
    return "\n".join([text, "", *folded])


def _sheet(found: ArmTable, form: str, arms: Mapping[str, Arm]) -> Sheet:
    """Return a line per arm: for each metric its mean and its difference from the reference."""
    way = _form(form)
    apart = arms if form == "latex" else {}
    words, lines = _words(found.arms, apart)
    head = words
    for metric in found.metrics:
        title = HEADINGS.get(metric, metric.replace("_", " "))
        head = [*head, title, f"{title}: difference"]
        for line, arm in zip(lines, found.arms, strict=True):
            line += [_shown(found, arm, metric, way), _difference(found, arm, metric)]
    return Sheet(head, lines, len(words))


def pivoted(
    arms: Mapping[str, Mapping[int, Run]],
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
        "--pivot is for sweeps: a run folder has no axes; leave it out",
    )
    require(axis in axes, f"there is no axis '{axis}' in these arms; {nearest(axis, axes)}")
    way, columns, rows = _form(form), {}, {}
    for name in arms:
        label, settings = known[name]
        value = _plain(settings[axis]) if axis in settings else WITHOUT
        columns.setdefault(value, []).append(name)
        rest = {key: item for key, item in settings.items() if key != axis}
        rows.setdefault((label, str(rest)), (Arm(label, rest), {}))[1][value] = name
    columns = dict(sorted(columns.items(), key=lambda column: column[0] == WITHOUT))
    tables = {
        value: compare_arms({name: arms[name] for name in names}, [metric], at=at, bounds=bounds)
        for value, names in columns.items()
    }
    kept = {str(index): row for index, (row, _) in enumerate(rows.values())}
    words, lines = _words(list(kept), kept)
    for line, (_, own) in zip(lines, rows.values(), strict=True):
        line += [
            _shown(tables[value], own[value], metric, way) if value in own else ""
            for value in columns
        ]
    title = HEADINGS.get(metric, metric.replace("_", " "))
    head = [*words, *(value if value == WITHOUT else f"{axis}={value}" for value in columns)]
    counts = sorted({c.num_seeds for table in tables.values() for c in table.cells.values()})
    seeds = "one seed" if counts == [1] else f"mean and 95 % interval over {_range(counts)} seeds"
    note = f"{title}; {way.best} of each column{_ties([*tables.values()], way)}; {seeds}"
    sheet = Sheet(head, lines, len(words))
    if form != "text" or width is None:
        return way.write(sheet, note)
    folded = textwrap.fill(note, width, subsequent_indent="  ")
    return "\n\n".join([*(_as_text(part, "").rstrip() for part in _parted(sheet, width)), folded])


def _parted(sheet: Sheet, width: int) -> Iterator[Sheet]:
    """Yield a sheet in parts that fit; each has all columns of words, and a number at least."""
    words, first = sheet.words, sheet.words
    while first < len(sheet.head):
        for end in range(len(sheet.head), first, -1):
            kept = [*range(words), *range(first, end)]
            rows = [[row[place] for place in kept] for row in (sheet.head, *sheet.lines)]
            part = Sheet(rows[0], rows[1:], words)
            if end == first + 1 or max(map(len, _as_text(part, "").split("\n"))) <= width:
                yield part
                first = end
                break


def _form(form: str) -> Form:
    require(form in FORMATS, f"there is no format '{form}'; {nearest(form, FORMATS)}")
    return FORMATS[form]


def _words(names: Sequence[str], known: Mapping[str, Arm]) -> tuple[list[str], list[list[str]]]:
    """Return the headings and cells that say what each arm is: its name, or label and settings."""
    if not all(name in known for name in names):
        return ["arm"], [[name] for name in names]
    axes = list(dict.fromkeys(key for name in names for key in known[name].settings))
    lines = [
        [known[name].label, *(_plain(known[name].settings.get(axis, "")) for axis in axes)]
        for name in names
    ]
    return ["algorithm", *axes], lines


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shown(found: ArmTable, arm: str, metric: str, way: Form) -> str:
    cell = found.cells[arm, metric]
    rank = cell.rank if len(found.arms) > 1 else ""  # alone, nobody is best
    return way.marks[rank].format(spread(cell.mean, cell.half))


def _difference(found: ArmTable, arm: str, metric: str) -> str:
    if arm == found.references[metric]:
        return ""
    cell = found.cells[arm, metric]
    delta = spread(cell.difference, cell.difference_half)
    return delta if delta.startswith("-") else f"+{delta}"


def _ties(tables: Sequence[ArmTable], way: Form) -> str:
    """Return how ties are marked, or that one seed cannot find any."""
    alone = all(cell.num_seeds < 2 for table in tables for cell in table.cells.values())
    return ", by one seed: run more to see what is chance" if alone else way.tied


def _note(found: ArmTable) -> str:
    counts = sorted({cell.num_seeds for cell in found.cells.values()})
    from_ = "; ".join(dict.fromkeys(f"'{arm}'" for arm in found.references.values()))
    what = objective_text(found.objectives)
    mean = "" if counts == [1] else f"mean and 95 % interval over {_range(counts)} seeds"
    paired = f"differences paired by seed, from {from_}"
    apart = ", ".join(f"{arm} ({why})" for arm, why in found.unranked.items())
    left = f"not ranked: {apart}" if apart else ""
    return "; ".join(filter(None, (what, mean, paired, left, told(found.tuned))))


def _range(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
