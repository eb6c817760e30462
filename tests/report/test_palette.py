"""Colours of pages: contrast to both grounds, in grey, and the same ones on the live page."""

import re
from importlib import resources

import numpy as np
import pytest

from folkman.report.palette import (
    DARK,
    LIGHT,
    ON_HIGH,
    ON_LOW,
    PALE,
    RAMP_DARK,
    RAMP_LIGHT,
    themed,
)

GROUNDS = {"light": ("#ffffff", "#f4f5f7", "#f6f7f9"), "dark": ("#14171c", "#1c2128", "#181c22")}


def luminance(colour):
    """WCAG 2's relative luminance."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("colours", "theme"),
    [(LIGHT, "light"), (DARK, "dark"), (RAMP_LIGHT, "light"), (RAMP_DARK, "dark")],
)
def test_every_colour_stands_out_from_its_ground(colours, theme):
    """WCAG asks for 3 of what is needed to understand a figure."""
    least = min(contrast(colour, ground) for colour in colours for ground in GROUNDS[theme])
    assert least >= 2.95


@pytest.mark.parametrize(("ramp", "sign"), [(RAMP_LIGHT, -1), (RAMP_DARK, 1)])
def test_the_ramp_reads_in_grey(ramp, sign):
    """Each step is at least a just noticeable difference of lightness (CIE L*), one way."""
    lightness = np.array([116 * np.cbrt(luminance(colour)) - 16 for colour in ramp])
    assert (sign * np.diff(lightness) > 2).all()


def test_ink_on_the_ramp_can_be_read():
    for index, (light, dark) in enumerate(zip(RAMP_LIGHT, RAMP_DARK, strict=True)):
        part = index / (len(RAMP_LIGHT) - 1)
        assert contrast(light, ON_HIGH if part > PALE else ON_LOW) >= 4.5
        assert contrast(dark, "#000000") >= 4.5


def test_colours_of_a_drawing_become_variables_that_fall_back():
    svg = f'<path style="stroke: {LIGHT[1]}; fill: {RAMP_LIGHT[3].upper()}"/>'

    assert f"stroke: var(--c1, {LIGHT[1]})" in themed(svg)
    assert f"fill: var(--r3, {RAMP_LIGHT[3]})" in themed(svg)


def test_the_live_page_has_the_same_colours():
    text = resources.files("folkman.dash").joinpath("static/colours.js").read_text("utf-8")

    found = [c.lower() for c in re.findall(r"#[0-9a-fA-F]{6}", text)]
    for colours in (LIGHT, DARK, RAMP_LIGHT, RAMP_DARK):
        start = found.index(colours[0])
        assert tuple(found[start : start + len(colours)]) == tuple(colours)
