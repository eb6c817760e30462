"""The card of an audit: one page for people, as HTML that stands alone and as PDF."""

from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from folkman.report.forest import (
    LOOKS,
    RATIOS_KEY,
    Effect,
    Forest,
    draw_ratios,
    forest_svg,
    outline,
    ratios_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Card", "Row", "card_figure", "card_html"]

PAGE_IN = (8.27, 11.69)
LEFT = 0.05
TEXT_PT = 6.2
LETTERS_A_LINE = 158


class Row(NamedTuple):
    """A row of the matrix: what is compared, and of each column the verdicts on its levels."""

    label: str
    cells: Sequence[Sequence[str]]
    outlined: Sequence[bool]  # of each column: is it of other runs than the first?


class Card(NamedTuple):
    """All that the page says."""

    title: str
    lead: str  # the answer in a sentence or two
    key: Sequence[str]  # what a stranger must know to read the rest
    scores: Sequence[tuple[str, str]]  # which runs, and how their claims came out
    paragraphs: Sequence[tuple[str, Sequence[str]]]  # heading and sentences
    columns: Sequence[tuple[str, str]]  # group and name
    rows: Sequence[Row]
    effects: Sequence[Effect]
    forests: Sequence[Forest] = ()  # of each figure of the paper, in the HTML alone


def card_figure(card: Card) -> "Figure":
    """Draw the page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=PAGE_IN)
    FigureCanvasAgg(figure)
    figure.text(LEFT, 0.985, card.title, fontsize=10.5, weight="bold", va="top")
    figure.text(LEFT, 0.968, card.lead, fontsize=TEXT_PT + 1, va="top")
    top = _sentences(figure, 0.952, "How to read it", card.key)
    for name, score in card.scores:
        top = _paragraph(figure, top, f"{name}: {score}.")
    _matrix(figure.add_axes((0.34, top - 0.258, 0.62, 0.215)), card)
    top -= 0.28
    half = -(-len(card.effects) // 2)
    for left, effects in ((0.26, card.effects[:half]), (0.72, card.effects[half:])):
        draw_ratios(figure.add_axes((left, top - 0.153, 0.215, 0.153)), effects)
    figure.text(0.5, top - 0.167, RATIOS_KEY, fontsize=5.6, ha="center", va="top")
    top -= 0.188
    for heading, sentences in card.paragraphs:
        top = _sentences(figure, top, heading, sentences)
    return figure


def _sentences(figure: "Figure", top: float, heading: str, sentences: Sequence[str]) -> float:
    """Write sentences under a heading and return where the next begins."""
    figure.text(LEFT, top, heading, fontsize=TEXT_PT + 1, weight="bold", va="top")
    top -= 0.0125
    for sentence in sentences:
        top = _paragraph(figure, top, f"\N{BULLET} {sentence}")
    return top - 0.003


def _paragraph(figure: "Figure", top: float, text: str) -> float:
    """Write wrapped text and return where the next begins."""
    lines = wrap(text, LETTERS_A_LINE, subsequent_indent="  ")
    for line in lines:
        figure.text(LEFT, top, line, fontsize=TEXT_PT, va="top", parse_math=False)
        top -= 0.0093
    return top


def _matrix(axes: "Axes", card: Card) -> None:
    """Draw the verdicts as tiles, one for each level, with their letters."""
    from matplotlib.patches import Rectangle

    for y, row in enumerate(card.rows):
        for x, cell in enumerate(row.cells):
            for part, verdict in enumerate(cell):
                letter, colour, ink = LOOKS.get(verdict, LOOKS["open"])
                width = 0.96 / len(cell)
                place = (x + 0.02 + part * width, y + 0.06)
                fill = "white" if row.outlined[x] else colour
                ink = outline(verdict) if row.outlined[x] else ink
                line = 0.7 if row.outlined[x] else 0.0
                looks = {"facecolor": fill, "edgecolor": ink, "linewidth": line}
                axes.add_patch(Rectangle(place, width * 0.94, 0.88, **looks))
                middle = (place[0] + width * 0.47, y + 0.5)
                axes.text(*middle, letter, fontsize=5.2, color=ink, ha="center", va="center")
    groups: dict[str, list[int]] = {}
    for x, (group, _) in enumerate(card.columns):
        groups.setdefault(group, []).append(x)
    for group, places in groups.items():
        axes.text(float(np.mean(places)) + 0.5, -1.6, group, fontsize=6, weight="bold", ha="center")
        if places[0]:
            axes.axvline(places[0], color="black", linewidth=0.6)
    axes.set(xlim=(0, len(card.columns)), ylim=(len(card.rows), 0))
    names = [name for _, name in card.columns]
    axes.set_xticks(np.arange(len(names)) + 0.5, names, fontsize=5.4)
    axes.set_yticks(np.arange(len(card.rows)) + 0.5, [r.label for r in card.rows], fontsize=6)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    key = ", ".join(f"{LOOKS[name][0]} {name}" for name in _shown(card))
    axes.text(0, len(card.rows) + 0.75, f"{key}; blank: no such reading", fontsize=5.6)


def _shown(card: Card) -> list[str]:
    """Return the verdicts that occur in the matrix, in one order."""
    seen = {verdict for row in card.rows for cell in row.cells for verdict in cell}
    return [name for name in LOOKS if name in seen]


def card_html(card: Card) -> str:
    """Return the page as HTML: the same words, the two drawings as vectors."""
    parts = [f"<h1>{escape(card.title)}</h1>", f"<p><b>{escape(card.lead)}</b></p>"]
    key = "".join(f"<li>{escape(sentence)}</li>" for sentence in card.key)
    parts.append(f"<h2>How to read it</h2><ul>{key}</ul>")
    parts += [f"<p><b>{escape(name)}</b>: {escape(score)}.</p>" for name, score in card.scores]
    parts += [_tiles(card), ratios_svg(card.effects)]
    for heading, sentences in card.paragraphs:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h2>{escape(heading)}</h2><ul>{items}</ul>")
    parts += map(_section, card.forests)
    body = "\n".join(parts)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(card.title)}</title><style>{STYLE}</style></head><body>
{body}
</body></html>
"""


def _section(forest: Forest) -> str:
    """Return one figure of the paper: its claims word for word, their verdicts and effects."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><th>{escape(text)}</th><th>{escape(kind)}</th></tr>"
        for name, text, kind in forest.claims
    )
    head = f"<h2>{escape(forest.title)}</h2><table>{rows}</table>"
    return f"{head}{forest_svg(forest._replace(title=''))}" if forest.effects else head


STYLE = """
body { font: 14px/1.35 system-ui, sans-serif; max-width: 60em; margin: 1.5em auto; padding: 0 1em }
h1 { font-size: 1.35em } h2 { font-size: 1.05em; margin: 0.9em 0 0.2em }
ul { margin: 0; padding-left: 1.2em } table { border-collapse: collapse; font-size: 12px }
th { font-weight: normal; text-align: left; padding: 0 0.5em } thead th { text-align: center }
td { padding: 1px; white-space: nowrap } td span { display: inline-block; width: 1.35em }
td span { text-align: center; margin: 0 1px } svg { max-width: 100%; height: auto }
"""


def _tiles(card: Card) -> str:
    """Return the matrix as a table."""
    groups: dict[str, int] = {}
    for group, _ in card.columns:
        groups[group] = groups.get(group, 0) + 1
    head = "".join(f'<th colspan="{n}"><b>{escape(g)}</b></th>' for g, n in groups.items())
    names = "".join(f"<th>{escape(name)}</th>" for _, name in card.columns)
    rows = []
    for row in card.rows:
        told = zip(row.cells, row.outlined, strict=True)
        tiles = ["".join(_tile(each, outlined=out) for each in cell) for cell, out in told]
        cells = "".join(f"<td>{each}</td>" for each in tiles)
        rows.append(f"<tr><th>{escape(row.label)}</th>{cells}</tr>")
    key = " ".join(f"{_tile(name)} {name}" for name in _shown(card)) + "; blank: no such reading"
    table = f"<table><thead><tr><th></th>{head}</tr><tr><th></th>{names}</tr></thead>"
    return f"{table}<tbody>{''.join(rows)}</tbody></table><p>{key}</p>"


def _tile(verdict: str, *, outlined: bool = False) -> str:
    letter, colour, ink = LOOKS.get(verdict, LOOKS["open"])
    style = f"background:{colour};color:{ink}"
    if outlined:
        ink = outline(verdict)
        style = f"background:white;color:{ink};outline:1px solid {ink};outline-offset:-1px"
    return f'<span style="{style}" title="{escape(verdict)}">{letter}</span>'
