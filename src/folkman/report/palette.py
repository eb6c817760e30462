"""Colours of a page: of curves and of values, each for a light and for a dark ground.

Curves: every colour has a contrast of at least 3 to the ground, and any two stay apart for every
colour vision. Values: a ramp whose lightness changes steadily, so that it reads in grey. Its first
colour still has a contrast of about 3 to the ground and its last the greatest: what is high stands
out, on light ground as dark, on dark ground as bright. Both ramps are parts of matplotlib's
inferno.

A figure that matplotlib draws has the colours of a light ground. Within a page they become
variables, which the page sets by its theme.
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
__all__ += ["declared", "ramp", "themed"]

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


def ramp() -> "ListedColormap":
    """Return the ramp for matplotlib, from low to high."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(list(RAMP_LIGHT), "ramp")


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
