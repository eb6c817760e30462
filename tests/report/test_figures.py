"""Figures: what is drawn is what was recorded, and files are whole and repeatable."""

import numpy as np
import pytest
from matplotlib.text import Annotation

from folkman.record.run import Run
from folkman.report.figures import draw_curves, draw_labels, finish, new_figure, save
from folkman.report.html import drawing
from folkman.report.screen import result_lines
from folkman.report.statistics import interval
from folkman.report.style import STYLES, dressed


def runs(values, label="a"):
    return [
        Run("async_sharing", label, seed, [
            {"slots": s, "seconds": 2.0 * s, "gradients": s, "rounds": s, "bits": s,
             "train_loss": v,
             "test_accuracy": float("nan"), "optimum_distance": float("nan"), "mean_age": 0.0,
             "kappa": 1.0}
            for s, v in enumerate(row)], "finished")
        for seed, row in enumerate(values)
    ]  # fmt: skip


def test_the_line_is_the_mean_against_the_chosen_axis():
    figure = draw_curves(runs([[3.0, 2.0], [1.0, 0.0]]), "seconds", "train_loss")

    line = figure.axes[0].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), [0.0, 2.0])
    np.testing.assert_array_equal(line.get_ydata(), [2.0, 1.0])
    assert figure.axes[0].get_xlabel() == "simulated time (s)"
    assert "2 seeds" in figure.axes[0].get_title()


def test_a_wide_span_is_drawn_on_a_logarithmic_axis():
    assert draw_curves(runs([[100.0, 1.0]])).axes[0].get_yscale() == "log"
    assert draw_curves(runs([[3.0, 1.0]])).axes[0].get_yscale() == "linear"


def test_on_a_logarithmic_axis_an_interval_stays_above_zero_and_even_around_its_mean():
    values = [[100.0, 0.1], [100.0, 0.1], [100.0, 4.0]]  # the plain interval ends below zero

    figure = draw_curves(runs(values))

    ends = np.asarray(figure.axes[0].collections[0].get_paths()[0].vertices)[:, 1]
    low, high, mean = ends.min(), ends[ends < 99].max(), 4.2 / 3
    half = 4.302652729911275 * np.std([0.1, 0.1, 4.0], ddof=1) / np.sqrt(3)  # Student's t for 2
    assert mean - half < 0 < low
    np.testing.assert_allclose([low, high], mean * np.exp([-half / mean, half / mean]))


def test_on_a_linear_axis_an_interval_ends_at_zero_unless_some_mean_is_below():
    mean, half = np.array([2.0, 1.0, np.nan]), np.array([0.5, 4.0, np.nan])

    np.testing.assert_array_equal(
        interval(mean, half, log=False), [[1.5, 0, np.nan], [2.5, 5, np.nan]]
    )
    np.testing.assert_array_equal(interval(-mean, half, log=False)[0], [-2.5, -5, np.nan])


@pytest.mark.parametrize("style", STYLES)
def test_of_dozens_of_curves_the_best_six_are_named_and_the_axes_have_room(style):
    """A warning, as matplotlib gives when the names leave no room, is an error in the tests."""
    many = [run for i in range(60) for run in runs([[3.0, 2.0 - i / 100]], f"gamma={i}")]

    figure = dressed(STYLES[style], lambda: draw_curves(many))
    drawing("many", figure, "sixty curves")

    axes = figure.axes[0]
    assert {text.get_text() for text in axes.texts} == {f"gamma={i}" for i in range(54, 60)}
    assert axes.get_position().height > 0.5
    assert axes.get_position().width > 0.4
    grey = [line for line in axes.lines if line.get_linewidth() < 1.6 * STYLES[style].weight]
    grey = [line for line in grey if len(np.atleast_1d(line.get_xdata())) > 1]
    assert len(grey) == 54


def test_names_stand_at_the_ends_of_their_curves_and_clear_of_each_other():
    some = [*runs([[3.0, 1.0]], "a"), *runs([[3.0, 1.001]], "b"), *runs([[3.0, 2.0]], "c")]

    texts = {
        text.get_text(): text
        for text in draw_curves(some).axes[0].texts
        if isinstance(text, Annotation)
    }

    heights = {name: text.xyann[1] for name, text in texts.items()}
    assert heights["a"] < heights["b"] < heights["c"]
    assert heights["b"] - heights["a"] >= 0.08
    assert texts["c"].xy[1] == 2.0


@pytest.mark.parametrize(
    ("label", "set_"),
    [
        ("mean disagreement ||v_i - w||", r"mean disagreement $\Vert{}v_i-w\Vert$"),
        ("distance from the optimum ||w - w*||", r"distance from the optimum $\Vert{}w-w^*\Vert$"),
        ("bits on air", "bits on air"),
    ],
)
def test_norms_are_set_as_mathematics(label, set_):
    figure, axes = new_figure(4.6, 3.2)
    finish(axes, "slots", label)
    figure.draw_without_rendering()  # mathtext reads it
    assert axes.get_ylabel() == set_


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="no column 'loss'"):
        draw_curves(runs([[1.0, 2.0]]), y="loss")
    with pytest.raises(ValueError, match="their problem does not define it"):
        draw_curves(runs([[1.0, 2.0]]), y="test_accuracy")


def test_the_same_runs_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save(draw_curves(runs([[3.0, 2.0], [1.0, 0.5]])), tmp_path / name)

    for kind in ("png", "svg"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 4


def test_a_figure_goes_to_the_kind_of_file_named(tmp_path):
    assert save(draw_curves(runs([[1.0, 2.0]])), tmp_path / "x.pdf") == [tmp_path / "x.pdf"]
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_labels_are_stacked_to_the_nodes_totals():
    counts = np.array([[3, 0, 2], [1, 1, 1]])

    axes = draw_labels(counts).axes[0]

    ends = [
        patch.get_path().transformed(patch.get_patch_transform()).get_extents().x1
        for patch in axes.patches
    ]
    assert ends[-2:] == [5.0, 3.0]


def test_the_table_leaves_out_what_no_run_defines_and_marks_divergence():
    some = runs([[1.0, 2.0], [1.0, 4.0]])
    some[1].status = "diverged"

    heading, _, line = result_lines(some, 80)

    assert "accuracy" not in heading
    assert line.startswith("a (1 diverged)")
    assert "3 ± 13" in line  # t(0.975, 1) * 1
