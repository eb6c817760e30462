r"""For the site: formulas in LaTeX become MathML, which browsers draw themselves, without a script.

`$a \le b$` stands in a line and `$$` on lines of their own around a formula set apart, as GitHub
reads them too. `pymdownx.arithmatex` finds them; this hook translates what it found.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FOUND = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
"""What arithmatex leaves."""

BARS = re.compile(r"<mo>(&#x0(?:2016|007C);)</mo>")
BAR = r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'
"""Bars of norms, which browsers would stretch, each to another height, and space apart."""

WORD = r"<m([io])>(?!mod<)[a-z]{2,}</m\2>"
"""A function with a name, such as log."""
APPLIED = re.compile(
    rf"((?<!<msub>)(?<!<munder>)(?<!<msup>){WORD}"
    r"|<(msub|munder)><m([io])>(?!mod<)[a-z]{2,}</m\4>(?:(?!</?\3>).)*</\3>)"
    r"(?=<(?!/))(?!<mo[^>]*>&#x0(?:0028|007B);)"
)
"""A function, with its index, and an argument without brackets behind it."""
THIN = '<mspace width="0.167em"/>'
NAMED = re.compile(r"<mo>(?!mod<)([a-z]{2,})</mo>")
"""What browsers would space as they space a sign."""


def as_mathml(latex: str, *, apart: bool = False) -> str:
    """Return a formula as MathML; a command that is not known is an error."""
    found = convert(latex.strip(), display="block" if apart else "inline")
    unknown = re.search(r"\\[A-Za-z]+", found)
    if unknown:
        raise ValueError(f"expected LaTeX that becomes MathML, got {unknown[0]} in ${latex}$")
    spaced = APPLIED.sub(rf"\1{THIN}", found)
    named = NAMED.sub(r'<mo lspace="0" rspace="0">\1</mo>', spaced)
    return BARS.sub(BAR, named).replace("<mi>:</mi>", "<mo>:</mo>")


def _translated(found: re.Match[str]) -> str:
    apart = found["tag"] == "div"
    drawn = as_mathml(html.unescape(found["latex"]), apart=apart)
    return f'<div class="formula" tabindex="0">{drawn}</div>' if apart else drawn


def on_page_content(html: str, **_: Any) -> str:
    """Translate the formulas of one page."""
    return FOUND.sub(_translated, html)
