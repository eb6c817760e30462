"""Numbers and axes of a report at their limits: runs that diverge, seeds that agree, amounts."""

import re
from math import nan
from pathlib import Path

import numpy as np
import pytest

from folkman.record.run import AXES, METRICS, Run
from folkman.report import figures, panels, paper, statistics
from folkman.report.answer import quantity
from folkman.report.curves_page import curves_section
from folkman.report.panels import LEFT, Line, Scale, panel, ticks
from folkman.report.run_page import _amount
from folkman.report.screen import explained, result_lines
from folkman.report.statistics import half_width, interval
from folkman.report.tables import spread


def run(label, seed, losses):
    rows = [
        dict.fromkeys((*AXES, *METRICS), nan)
        | dict.fromkeys(AXES, float(slot))
        | {"train_loss": loss}
        for slot, loss in enumerate(losses)
    ]
    return Run("x", label, seed, rows, "finished", verdict="finished")


@pytest.mark.parametrize(
    "losses",
    [[1.0, 1e100, 1e306, nan], [1e17, 1e17], [1e-320, 5e307], [-5e307, 5e307], [3e100, 2e102]],
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_loss_of_any_size_is_drawn(losses, seeds):
    runs = [run("a", seed, losses) for seed in range(seeds)] + [run("b", 0, [1.0, 0.5])]
    drawn = curves_section(runs).body

    assert drawn.count("<svg") >= 3
    assert not re.search(r'd="[^"]*inf', drawn)
    assert not re.search(r'd="[^"]*nan', drawn)


@pytest.mark.parametrize("value", [1e17, -1e17, 1e300, 0.0])
def test_a_constant_of_any_size_has_an_axis(value):
    svg = panel("p", [Line("a", np.arange(3.0), np.full(3, value), None, 0)], "x", "y", "")

    assert svg.count('class="end"') >= 2  # numbers beside the axis of values


def test_ticks_of_a_short_logarithmic_axis_are_found_at_any_size():
    assert ticks(Scale(2e100, 8.1e101, True, 0, 1), 5) == pytest.approx(
        [2e100, 5e100, 1e101, 2e101, 5e101]
    )


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [("seconds", 1234.4, "1234 s"), ("seconds", 0.9999, "1 s"), ("seconds", 0.5, "500 ms"),
     ("seconds", 2e-5, "20 µs"), ("seconds", 99999.0, "99999 s"), ("seconds", 2e5, "2e+05 s"),
     ("bits", 999.9e3, "1 Mbit"), ("bits", 999.4e3, "999 kbit"), ("bits", 0.0, "0 bit"),
     ("seconds", 0.0, "0 s"), ("energy_j", 0.0, "0 J"), ("bits", 0.5, "0.5 bit"),
     ("bits", 2e15, "2000 Tbit"), ("gradients", 12345.0, "12345"), ("gradients", 0.0, "0")],
)  # fmt: skip
def test_an_amount_is_rounded_before_its_unit_is_chosen(axis, value, text):
    assert quantity(axis, value) == text


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(0.261, 0.32, "261 ms ± 123 %"), (0.261, 0.0313, "261 ms ± 12 %"),
     (0.261, 0.0011, "261 ms ± 0.4 %"), (0.261, nan, "261 ms"), (0.261, 0.0, "261 ms")],
)  # fmt: skip
def test_the_interval_of_an_amount_is_a_plain_share(mean, half, text):
    assert _amount("seconds", mean, half) == text


def test_seeds_that_agree_up_to_rounding_have_no_half_width():
    same = np.array([0.1, 0.1, 0.1])
    assert same.std(ddof=1) > 0  # the mean of three times 0.1 is not 0.1

    assert half_width(same) == 0
    assert spread(float(same.mean()), float(half_width(same))) == "0.1"
    assert half_width([0.1, 0.1, 0.1 + 1e-9]) > 0
    assert np.isnan(half_width([0.1]))


def test_a_mean_has_no_digits_that_a_number_does_not_hold():
    assert spread(0.1, 4.2e-17) == "1.000000000000e-01 ± 4.2e-17"


def test_both_kinds_of_figures_draw_one_interval():
    """On a logarithmic axis the band lies evenly around the curve: mean times, over exp(h / m)."""
    mean, half = np.array([1000.0, 10.0, 1.0]), np.array([5.0, 9.0, 0.2])
    low, high = interval(mean, half, log=True)
    np.testing.assert_allclose([low, high], mean * np.exp([-half / mean, half / mean]))
    np.testing.assert_allclose(interval(mean, half, log=False), [mean - half, mean + half])

    svg = panel("p", [Line("a", np.arange(3.0), mean, half, 0)], "x", "y", "")
    band = svg.split('class="band c0"')[1].split(' d="M')[1].split('Z"')[0]
    heights = [float(point.split()[1]) for point in band.split("L")]
    curve = svg.split('class="line c0" d="M')[1].split('"')[0]
    middle = [float(point.split()[1]) for point in curve.split("L")]
    assert band.startswith(f"{LEFT}.0 ")
    above, below = heights[1], heights[4]  # of the point in the middle; the path goes around
    assert below - middle[1] == pytest.approx(middle[1] - above, abs=0.11)
    decade = (middle[2] - middle[0]) / 3
    assert middle[1] - above == pytest.approx(decade * 0.9 / np.log(10), abs=0.11)


def test_one_ratio_decides_on_logarithmic_axes():
    for module in (figures, panels, paper):
        assert module.RATIO_FOR_LOG is statistics.RATIO_FOR_LOG
        assert "RATIO_FOR_LOG =" not in Path(str(module.__file__)).read_text()


def test_runs_without_rows_are_explained_without_empty_sentences():
    (line,) = explained([Run("x", "a", 0)], 80)

    assert line == "one seed. No run has a value yet."


@pytest.mark.parametrize("width", [20, 24, 30])
def test_a_narrow_terminal_is_kept_to(width):
    runs = [run("a label of many words", seed, [1.0, 0.4 + seed / 100]) for seed in range(3)]
    lines = result_lines(runs, width)

    assert max(map(len, lines)) <= width
    assert "0.410 ± 0.025" in "\n".join(lines)
    assert max(map(len, explained(runs, width))) <= width
