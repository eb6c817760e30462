"""Colours of a page: of curves and of values, each for a light and for a dark ground.

Curves: every colour has a contrast of at least 3 to the ground, and any two stay apart for every
colour vision. Values: a ramp whose lightness changes steadily, so that it reads in grey. Its first
colour still has a contrast of about 3 to the ground and its last the greatest: what is high stands
out, on light ground as dark, on dark ground as bright. Both ramps are parts of matplotlib's
inferno.

A figure that matplotlib draws has the colours of the ground that matplotlib is set to
(`report.style`), light if not told. Within a page those of a light ground become variables, which
the page sets by its theme.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap

__all__ = [
    "CLASSES",
    "DARK",
    "LIGHT",
    "MOST_CURVES",
    "ON_HIGH",
    "ON_LOW",
    "PALE",
    "RAMP_DARK",
    "RAMP_LIGHT",
]
__all__ += ["curve_colours", "declared", "grey", "ground", "ink_on", "on_dark", "ramp", "themed"]

LIGHT = ("#4986d4", "#be0501", "#0c5441", "#c16b89", "#6d854a", "#5627b3")
DARK = ("#5ec8f2", "#ff7d5c", "#2f9e86", "#f5b8dd", "#ffd75e", "#8f7bff")
MOST_CURVES = len(LIGHT)
"""Curves that are told apart in one figure."""

RAMP_LIGHT = ("#eb6628", "#de5238", "#cb4149", "#b63458", "#a02a63", "#88226a")
RAMP_LIGHT += ("#71196e", "#5a116e", "#420a68", "#290b55", "#120a32", "#030210")
RAMP_DARK = ("#d34743", "#df5337", "#e9612b", "#f1711f", "#f78212", "#fa9407")
RAMP_DARK += ("#fca60c", "#fbba1f", "#f8cd37", "#f4e156", "#f2f27d", "#fcffa4")
CLASSES = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e")
CLASSES += ("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")
"""Colours of classes, from dark to light: ten of matplotlib's viridis."""
PALE = 1 / 6
"""The part of the ramp that is pale on light ground: dark ink is read on it, light on the rest."""
ON_LOW, ON_HIGH = "#111111", "#fefefe"
"""Ink on pale and on strong colours, for a light ground; on a dark one all colours are bright."""


def declared(curves: Sequence[str], values: Sequence[str]) -> str:
    """Return the colours as variables of a style sheet."""
    named = [f"--c{index}: {colour};" for index, colour in enumerate(curves)]
    named += [f"--r{index}: {colour};" for index, colour in enumerate(values)]
    return " ".join(named)


def on_dark() -> bool:
    """Tell whether matplotlib is set to draw on dark ground."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    return sum(to_rgb(rcParams["axes.facecolor"])) < 1.5


def ground() -> str:
    """Return the colour that matplotlib draws on."""
    from matplotlib import rcParams

    return str(rcParams["axes.facecolor"])


def curve_colours() -> tuple[str, ...]:
    """Return the colours of curves on that ground: six to tell apart, then its ink and a grey."""
    return (*DARK, "#ffffff", "#9a9a9a") if on_dark() else (*LIGHT, "#000000", "#8a8a8a")


def grey(level: float) -> str:
    """Return a grey of matplotlib, from 0 (ink) to 1 (ground): on dark ground it is turned over."""
    return f"{1 - 0.9 * level if on_dark() else level:.3g}"


def ink_on(part: float) -> str:
    """Return the ink that is read on a part of the ramp, 0 the lowest and 1 the highest."""
    return ON_LOW if on_dark() or part <= PALE else ON_HIGH


def ramp() -> "ListedColormap":
    """Return the ramp for matplotlib, from low to high."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(list(RAMP_DARK if on_dark() else RAMP_LIGHT), "ramp")


def themed(svg: str) -> str:
    """Return a drawing whose colours are variables, or as they were where nobody sets them."""
    names = {colour: f"--c{index}" for index, colour in enumerate(LIGHT)}
    names |= {colour: f"--r{index}" for index, colour in enumerate(RAMP_LIGHT)}
    names |= {ON_LOW: "--on-low", ON_HIGH: "--on-high"}
    pattern = re.compile("|".join(names), re.IGNORECASE)

    def variable(found: re.Match[str]) -> str:
        colour = found.group().lower()
        return f"var({names[colour]}, {colour})"

    return pattern.sub(variable, svg)
