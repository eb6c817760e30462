"""HTML that stands alone: no network, no script, figures as vector drawings within the page.

Drawings take the colour of the text around them, so that one page serves light and dark, screen and
paper.
"""

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from folkman.record.json_file import Json
from folkman.record.terms import TERM_OF, TERMS
from folkman.report import palette

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Keep", "Markup", "Section", "commands", "details", "drawing", "escape", "facts"]
__all__ += ["figure_block", "grid", "heading", "page", "panel_block", "preformatted", "table"]

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


Keep: TypeAlias = Callable[[str, "Figure", str], None]
"""Given the name, the figure and the SVG text of what is drawn for a page."""


class Markup(str):
    """HTML, in a table whose other cells are plain text."""

    __slots__ = ()


class Section(NamedTuple):
    """A part of a page, with its name in the list at the top."""

    name: str
    title: str
    body: str
    folded: bool = False


def page(title: str, subtitle: str, lead: str, sections: Iterable[Section]) -> str:
    """Return a whole page."""
    kept = [section for section in sections if section.body]
    kept.append(Section("words", "What the words mean", glossary()))
    links = "".join(f'<a href="#{part.name}">{escape(part.title)}</a> ' for part in kept)
    body = "\n".join(map(_section, kept))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="generator" content="folkman">
<title>{escape(title)}</title>
<style>
{style()}</style>
</head>
<body>
<header><h1>{escape(title)}</h1>
<p class="sub">{escape(subtitle)}</p></header>
<main>
{lead}
<nav aria-label="Contents">{links}</nav>
{body}
</main>
</body>
</html>
"""


def style() -> str:
    """Return the style sheet, with the colours of figures for both themes."""
    rules = resources.files("folkman.report").joinpath("assets/report.css")
    light = palette.declared(palette.LIGHT, palette.RAMP_LIGHT)
    dark = palette.declared(palette.DARK, palette.RAMP_DARK)
    dark += " --on-low: #000000; --on-high: #000000;"
    themes = (
        f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) "
        f"{{ :root {{ {dark} }} }}\n"
    )
    return themes + rules.read_text(encoding="utf-8")


def _section(part: Section) -> str:
    title = f"<h2>{escape(part.title)}</h2>"
    if not part.folded:
        return f'<section id="{part.name}">{title}\n{part.body}\n</section>'
    return (
        f'<section id="{part.name}" class="folded"><details><summary>{title}</summary>\n'
        f"{part.body}\n</details></section>"
    )


def glossary() -> str:
    """Return the terms of the page with their meanings."""
    rows = "".join(
        f'<div id="{_anchor(term)}"><dt>{escape(term)}</dt><dd>{escape(meaning)}</dd></div>'
        for term, meaning in TERMS.items()
    )
    return f'<dl class="words">{rows}</dl>'


def _anchor(term: str) -> str:
    return f"word-{term.replace(' ', '-').lower()}"


def heading(text: str) -> str:
    """Return the heading of a column; one that needs a word is a link to it, and a tooltip."""
    term = TERM_OF.get(text)
    if term is None:
        return escape(text)
    meaning = escape(TERMS[term], quote=True)
    return f'<a class="term" href="#{_anchor(term)}" title="{meaning}">{escape(text)}</a>'


def facts(pairs: Iterable[tuple[str, str, str]]) -> str:
    """Return headline numbers: (what, value, a note below it)."""
    cells = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for what, value, note in pairs
    )
    return f'<dl class="facts">{cells}</dl>'


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    best: int | None = None,
    *,
    words: bool = False,
    explained: bool = False,
) -> str:
    """Return a table that scrolls sideways where it does not fit.

    Row `best` is marked, `words` are set left; `explained` headings lead to the page's glossary.
    """
    title = heading if explained else escape
    head = "".join(f'<th scope="col">{title(name)}</th>' for name in headings)
    lines = [
        ('<tr class="best">' if index == best else "<tr>")
        + "".join(f"<td>{cell if isinstance(cell, Markup) else escape(cell)}</td>" for cell in row)
        + "</tr>"
        for index, row in enumerate(rows)
    ]
    body = "".join(lines)
    kind = ' class="words"' if words else ""
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="table">'
        f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def grid(blocks: Sequence[str]) -> str:
    """Return figures side by side, as many as fit."""
    return f'<div class="figures">{"".join(blocks)}</div>' if blocks else ""


def commands(lines: Mapping[str, str]) -> str:
    """Return what a reader may type, under what it does; empty commands are left out."""
    return "".join(f"<h3>{what}</h3>{preformatted(text)}" for what, text in lines.items() if text)


def preformatted(text: str) -> str:
    """Return text as it is."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'  # a wide one is scrolled by keys


def details(title: str, body: str, *, opened: bool = False) -> str:
    """Return a part that can be folded."""
    opening = "<details open>" if opened else "<details>"
    return f"{opening}<summary>{escape(title)}</summary>{body}</details>"


def figure_block(name: str, figure: "Figure", caption: str, keep: Keep | None = None) -> str:
    """Return a figure with its caption."""
    return panel_block(drawing(name, figure, caption, keep), caption)


def panel_block(drawn: str, caption: str) -> str:
    """Return a drawing of `report.panels` with its caption."""
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def drawing(name: str, figure: "Figure", description: str, keep: Keep | None = None) -> str:
    """Return a figure as SVG for the inside of a page, without margins.

    `name` tells it from the others there.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        options: Json = {"bbox_inches": "tight", "pad_inches": 0.03, "metadata": {"Date": None}}
        figure.savefig(text, format="svg", transparent=True, **options)
    if keep is not None:
        keep(name, figure, text.getvalue())
    found = re.search(r"<svg.*</svg>", text.getvalue(), re.DOTALL)
    assert found is not None  # noqa: S101 - matplotlib wrote it
    return embedded(found.group(), name, description)


def embedded(svg: str, name: str, description: str) -> str:
    """Return an SVG drawing made fit to stand in a page beside others."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:href="|href="|url\()#', rf"\1#{name}-", svg)
    svg = palette.themed(svg)
    svg = re.sub(r"#000000|#262626|#404040|#595959", "currentColor", svg)
    svg = svg.replace("<text ", '<text fill="currentColor" ').replace(
        "'DejaVu Sans'", "'DejaVu Sans', sans-serif"
    )
    opening, rest = svg.split(">", 1)
    opening = re.sub(r'\s(width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{escape(description, quote=True)}">{rest}'
