"""How figures are dressed: for a screen, light or dark, for slides, or for the columns of a paper.

    figure = dressed(STYLES["ieee"], lambda: draw_curves(runs, "bits", "test_accuracy"))

A style sets fonts before a figure is drawn, and its size and the weight of its lines afterwards.
What a title says belongs into the caption of a paper's figure: `caption` returns it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STYLES", "Style", "caption", "dressed"]


class Style(NamedTuple):
    """Fonts and colours, width in inches (None: as drawn), height as a share of it, lines."""

    rc: Any  # matplotlib's settings
    width_in: float | None
    height: float
    weight: float
    titled: bool
    kinds: tuple[str, ...]  # what is written unless a file name says otherwise
    columns: int = 3  # panels side by side


_TIMES = {
    "font.family": "STIXGeneral",  # metric-compatible with Times, and part of matplotlib
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "legend.handlelength": 2.4,
    "figure.dpi": 600.0,
    "pdf.fonttype": 42,  # TrueType: submission systems refuse Type 3
    "svg.fonttype": "path",  # a paper's figure looks the same without the font
}

_GROUND, _INK = "#14181d", "#e8ebef"
_DARK = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), _GROUND),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color"), _INK),
    "ytick.color": _INK,
    "grid.color": "#6b7683",
}
_LARGE = {"font.size": 17.0, "axes.linewidth": 1.2, "legend.frameon": False, "figure.dpi": 150.0}

STYLES: dict[str, Style] = {
    "screen": Style({}, None, 0.7, 1.0, True, (".png", ".svg")),
    "dark": Style(_DARK, None, 0.7, 1.0, True, (".png", ".svg")),
    "slides": Style(_LARGE, 10.0, 0.54, 1.9, False, (".png", ".svg")),  # 16:9, with a headline
    "paper": Style({**_TIMES, "font.size": 10.0}, 5.5, 0.62, 0.85, False, (".pdf", ".svg"), 2),
    "ieee": Style(_TIMES, 3.5, 0.68, 0.7, False, (".pdf", ".svg"), 1),  # one column
    "ieee-wide": Style(_TIMES, 7.16, 0.42, 0.7, False, (".pdf", ".svg")),  # both columns
}


def dressed(style: Style, draw: Callable[[], "Figure"]) -> "Figure":
    """Draw a figure in a style."""
    from matplotlib import rc_context

    from folkman.report.figures import fit_labels

    with rc_context(dict(style.rc)):
        figure = draw()
        width_in, height_in = figure.get_size_inches()
        if style.width_in is not None and style.width_in != width_in:
            square = any(axes.get_aspect() == 1.0 for axes in figure.axes)
            share = height_in / width_in if square else style.height
            figure.set_size_inches(style.width_in, style.width_in * share)
        panels = bool(figure.get_label())  # their titles stay: the note is taken already
        for axes in figure.axes:
            legend = axes.get_legend()
            for line in [*axes.lines, *(legend.get_lines() if legend else ())]:
                line.set_linewidth(line.get_linewidth() * style.weight)
                line.set_markersize(line.get_markersize() * max(1.0, style.weight))
            if not (style.titled or panels):
                figure.set_label(axes.get_title() or figure.get_label())
                axes.set_title("")
        fit_labels(figure)
        figure.canvas.draw()  # text takes its font now, while the style holds
    return figure


def caption(figure: "Figure") -> str:
    """Return the title that was taken off a figure for its caption, if it had one."""
    return str(figure.get_label() or "")
