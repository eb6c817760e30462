r"""A table as journals take it: booktabs, and a column of siunitx for each column of numbers.

    \usepackage{booktabs, siunitx}        % in the preamble, once

Numbers align at their decimal point, end where their interval ends, and have true minus signs. A
column of very large or small numbers is in units of a power of ten, which its heading says.
"""

import math
import re
from collections.abc import Sequence

from folkman.report.sheet import NEAR, SURE, Number, Sheet

__all__ = ["escaped", "latex_table"]

SETUP = (
    r"\sisetup{separate-uncertainty=true, detect-weight=true, retain-explicit-plus=true, "
    r"group-digits=none}"
)
"""Written within the table, so that it changes nothing elsewhere. In math mode, as by default: the
plus-minus sign of text fonts is a bitmap in many installations, which journals refuse."""
BEFORE = {SURE: r"\bfseries ", NEAR: "", "": ""}
AFTER = {SURE: "", NEAR: r"{$^{\dagger}$}", "": ""}
"""What marks a number."""
LARGE, SMALL = 1e5, 1e-3
"""Beyond these a column is in units of a power of ten."""
DIGITS = 4
"""Digits of a number without an interval."""


def latex_table(sheet: Sheet, note: str, label: str) -> str:
    """Return a `table` with caption and label; the note is its caption."""
    words = sheet.words
    columns = list(zip(*(line[words:] for line in sheet.lines), strict=True))
    powers = [_power(column) for column in columns]
    if sheet.title:  # one metric throughout: one unit
        powers = [_power([cell for column in columns for cell in column])] * len(columns)
    formats = [_format(column, power) for column, power in zip(columns, powers, strict=True)]
    heads = [_heading(title, power) for title, power in
             zip(sheet.head[words:], powers, strict=True)]  # fmt: skip
    body = [
        [*(_word(cell) for cell in line[:words]),
         *(_number(cell, power) for cell, power in zip(line[words:], powers, strict=True))]
        for line in sheet.lines
    ]  # fmt: skip
    rows = [" & ".join(row) + r" \\" for row in body]
    head = " & ".join([*(escaped(title) for title in sheet.head[:words]), *heads]) + r" \\"
    spec = "l" * words + "".join(f"S[table-format={each}]" for each in formats)
    told = [sheet.title, note] if sheet.title else [note]
    caption = escaped(" ".join(f"{part[:1].upper()}{part[1:]}." for part in told))
    return "\n".join([
        r"% \usepackage{booktabs, siunitx}",
        r"\begin{table}", r"\centering", SETUP, rf"\caption{{{caption}}}",
        rf"\label{{tab:{_slug(label)}}}", rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head,
        r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ])  # fmt: skip


def escaped(text: str) -> str:
    """Return text with the signs that LaTeX would take as commands written out."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"±": r"$\pm$", "%": r"\%", "…": r"\ldots{}", "†": r"$\dagger$"}
    text = text.replace("--", "-\0-")  # two hyphens would become a dash
    special["\0"] = "{}"
    return "".join(special.get(sign, f"\\{sign}" if sign in "&$#_{}" else sign) for sign in text)


def _slug(text: str) -> str:
    return re.sub(r"[^\w]+", "-", text).strip("-").lower() or "comparison"


def _word(cell: str | Number) -> str:
    """Return a cell of words; a negative number among them has a true minus sign."""
    text = str(cell)
    return f"${text}$" if re.fullmatch(r"-[\d.]+(e[+-]?\d+)?", text) else escaped(text)


def _heading(title: str, power: int) -> str:
    r"""Return a heading for a column of numbers, in braces: it is none itself."""
    unit = rf" ($10^{{{power}}}$)" if power else ""
    return f"{{{escaped(title)}{unit}}}"


def _power(column: Sequence[str | Number]) -> int:
    """Return the power of ten, a multiple of three, that a column is in units of."""
    sizes = [abs(cell.mean) for cell in column if isinstance(cell, Number) and cell.mean]
    known = [size for size in sizes if math.isfinite(size)]
    if not known or SMALL <= max(known) < LARGE:
        return 0
    return 3 * math.floor(math.log10(max(known)) / 3)


def _digits(cell: Number, power: int) -> tuple[str, str]:
    """Return mean and half-width as plain digits; the second is empty where there is none."""
    mean, half = cell.mean / 10.0**power, cell.half / 10.0**power
    if not (math.isfinite(half) and half > 0):
        size = math.floor(math.log10(abs(mean))) if mean else 0
        fixed = f"{mean:.{max(0, DIGITS - 1 - size)}f}"
        return (fixed.rstrip("0").rstrip(".") if "." in fixed else fixed), ""
    last = math.floor(math.log10(float(f"{half:.1e}"))) - 1
    places = max(0, -last)
    return f"{round(mean, -last):.{places}f}", f"{round(half, -last):.{places}f}"


def _number(cell: str | Number, power: int) -> str:
    """Return a cell of an S column; what is no number is in braces."""
    if isinstance(cell, str):
        return f"{{{escaped(cell)}}}" if cell else ""
    if not math.isfinite(cell.mean):
        return "{--}"
    mean, half = _digits(cell, power)
    sign = "+" if cell.signed and not mean.startswith("-") else ""
    whole = f"{sign}{mean}{f' +- {half}' if half else ''}"
    return f"{BEFORE[cell.mark]}{whole}{AFTER[cell.mark]}"


def _format(column: Sequence[str | Number], power: int) -> str:
    """Return `table-format`: the most digits before and after the point, and of intervals."""
    cells = [cell for cell in column if isinstance(cell, Number) and math.isfinite(cell.mean)]
    shown = [_digits(cell, power) for cell in cells]
    whole = max((len(mean.lstrip("-").partition(".")[0]) for mean, _ in shown), default=1)
    parts = max((len(mean.partition(".")[2]) for mean, _ in shown), default=0)
    halves = [half for _, half in shown if half]
    # an interval is aligned with the mean: its digits, as if it ended at the same place
    spans = [len(half.partition(".")[0]) + parts for half in halves]
    signs = {mean[0] for mean, _ in shown} & {"-"} or {cell.signed for cell in cells} & {True}
    sign = ("+" if any(cell.signed for cell in cells) else "-") if signs else ""
    after = f".{parts}" if parts else ""
    return f"{sign}{whole}{after}{f'({max(spans)})' if spans else ''}"
