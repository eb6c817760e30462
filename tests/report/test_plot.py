"""`folkman plot` over settings: points are means with Student's intervals, panels and groups hold
the arms they name, names do not overlap, and nothing is averaged in silence."""

import itertools

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.text import Annotation, Text
from scipy import stats

import folkman as fm
from folkman.record.run import METRICS, Run
from folkman.record.settings import settings_of_folders
from folkman.record.table import arms_of
from folkman.report.chosen import Asked
from folkman.report.figures import finish, fit_labels, new_figure, typeset
from folkman.report.plot import draw_plot, plot_folders
from folkman.report.style import STYLES, dressed
from tests.made_sweep import make_sweep
from tests.shell import folkman

SLOPE = {"Slow": 0.02, "Quick": 0.01}


def loss(label, settings, seed):
    """Return a loss that grows with gamma, more slowly with more nodes; a bound has neither."""
    if not settings:
        return 0.05 + 0.001 * seed
    return SLOPE[label] * settings["network.gamma"] / settings["nodes"] + 0.001 * seed**2 + 0.1


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    arms = [
        (label, {"network.gamma": gamma, "nodes": nodes})
        for label in SLOPE
        for gamma in (2, 5, 10)
        for nodes in (4, 8)
    ]
    return make_sweep(tmp_path_factory.mktemp("made") / "sweep", [*arms, ("Free", {})], loss)


def lines(axes):
    """Return the lines of a panel's groups, without the caps of bars and the dots at ends."""
    found = [line for line in axes.lines if len(np.atleast_1d(line.get_xdata())) > 1]
    return [line for line in found if line.get_marker() != "_"]


def xs(line):
    return np.asarray(line.get_xdata(), float).tolist()


def ys(line):
    return np.asarray(line.get_ydata(), float).tolist()


def bars(axes):
    """Return both ends of each interval that is drawn."""
    drawn = [each for each in axes.collections if isinstance(each, LineCollection)]
    return [np.asarray(segment) for each in drawn for segment in each.get_segments()]


def test_points_are_means_with_students_interval_at_their_setting(sweep):
    asked = Asked("network.gamma", "loss", "algorithm", "nodes")
    figure = plot_folders([sweep], asked)

    assert [axes.get_title() for axes in figure.axes] == ["nodes = 4", "nodes = 8"]
    for axes, nodes in zip(figure.axes, (4, 8), strict=True):
        slow = lines(axes)[0]
        assert xs(slow) == [2, 5, 10]
        ends = np.array([
            [loss("Slow", {"network.gamma": gamma, "nodes": nodes}, seed) for seed in range(3)]
            for gamma in (2, 5, 10)
        ])  # fmt: skip
        np.testing.assert_allclose(ys(slow), ends.mean(axis=1))
        for bar, values in zip(bars(axes)[:3], ends, strict=True):
            spread = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
            np.testing.assert_allclose(bar[:, 1], spread)


def test_what_the_setting_does_not_concern_is_a_level_line_in_every_panel(sweep):
    figure = plot_folders([sweep], Asked("gamma", "loss", "algorithm", "nodes"))

    for axes in figure.axes:
        free = lines(axes)[-1]
        assert xs(free) == [2, 10]
        np.testing.assert_allclose(ys(free), [0.051, 0.051])


def test_looks_of_a_group_are_the_same_in_all_panels_and_it_is_named_once_a_row(sweep):
    figure = plot_folders([sweep], Asked("gamma", "loss", "algorithm", "nodes"))

    left, right = ([(line.get_color(), line.get_marker()) for line in lines(axes)]
                   for axes in figure.axes)  # fmt: skip
    assert left == right
    assert len(set(left)) == 3
    texts = [[t.get_text() for t in axes.texts] for axes in figure.axes]
    assert texts[0] == []
    assert sorted(texts[1]) == ["Free", "Quick", "Slow"]


@pytest.mark.parametrize(("style", "facet"), [*((s, "nodes") for s in STYLES), ("ieee", None)])
def test_names_do_not_overlap_in_any_style(sweep, style, facet):
    """Boxes of the drawn text, pixel by pixel: among names, and against the panels."""
    where = {} if facet else {"nodes": 4}
    figure = plot_folders([sweep], Asked("gamma", "loss", None, facet, where=where), style)
    figure.draw_without_rendering()

    texts = [text for axes in figure.axes for text in axes.texts if isinstance(text, Annotation)]
    boxes = [Text.get_window_extent(text) for text in texts]  # without the line that leads to it
    assert len(boxes) >= 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    wide = figure.get_window_extent()
    assert all(box.x1 <= wide.x1 + 1 and box.x0 >= 0 for box in boxes)


@pytest.mark.parametrize("style", STYLES)
def test_no_upright_label_is_longer_than_its_figure_is_high(style):
    longest = sorted(METRICS.values(), key=len)[-2:]
    for told in [f"{longest[1]} at the end", longest[0], METRICS["test_accuracy"]]:

        def draw(words=told):
            figure, axes = new_figure(4.6, 3.2)
            finish(axes, "slots of T seconds", words, "a title")
            fit_labels(figure)
            return figure

        figure = dressed(STYLES[style], draw)
        figure.draw_without_rendering()
        label = figure.axes[0].yaxis.label
        box = label.get_window_extent()
        assert box.y0 >= 0, told
        assert box.y1 <= figure.bbox.height, told
        assert label.get_text().count("\n") < 3
        assert " ".join(label.get_text().split()) == typeset(told)


@pytest.mark.parametrize("style", ["ieee", "slides"])
def test_names_of_lines_that_end_together_stand_apart(tmp_path, style):
    """Six lines within a hundredth of each other, and one far away: at their ends names would lie
    on one another."""
    arms = [("A", {"nodes": n, "step": s}) for n in (2, 4) for s in range(6)]
    root = make_sweep(tmp_path / "close", arms, lambda _, given, seed: (
        1 + 0.002 * given["step"] + (3 if given["step"] == 5 else 0) + 0.0001 * seed))  # fmt: skip
    figure = plot_folders([root], Asked("nodes", "loss", "step"), style)
    figure.draw_without_rendering()

    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]
    assert len(boxes) == 6
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_of_many_groups_six_are_named_and_the_note_says_so(tmp_path):
    arms = [("A", {"nodes": n, "step": s}) for n in (2, 4) for s in range(9)]
    root = make_sweep(tmp_path / "many", arms, lambda _, given, seed: 1 + given["step"] + seed / 9)

    figure = plot_folders([root], Asked("nodes", "loss", "step"))

    axes = figure.axes[0]
    assert {t.get_text() for t in axes.texts} == {f"step={s}" for s in range(6)}
    assert "named: the best 6 of 9, grey: the others" in axes.get_title()
    assert "mean of 3 seeds, 95 % interval" in axes.get_title()


def test_one_seed_has_no_interval_and_says_so(tmp_path):
    arms = [("A", {"nodes": n}) for n in (2, 4)]
    root = make_sweep(tmp_path / "one", arms, lambda *_: 0.5, seeds=[7])

    figure = plot_folders([root], Asked("nodes", "loss"))

    assert figure.axes[0].get_title() == "one seed: no interval"
    assert all(bar[0, 1] == bar[1, 1] for bar in bars(figure.axes[0]))


def test_a_setting_of_which_a_run_diverged_has_a_cross_off_its_line(tmp_path):
    def ends(_, given, seed):
        return float("nan") if (given["nodes"], seed) == (4, 1) else 0.5 + 0.1 * seed

    root = make_sweep(tmp_path / "sweep", [("A", {"nodes": n}) for n in (2, 4, 8)], ends)
    figure = plot_folders([root], Asked("nodes", "loss"))

    curve = lines(figure.axes[0])[0]
    cross = next(line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert xs(curve) == [2, 8]
    assert (xs(cross), ys(cross)) == ([4], pytest.approx([0.6]))
    assert "cross: some runs diverged, mean of the rest" in figure.axes[0].get_title()


def test_an_interval_that_leaves_the_figure_is_told(tmp_path):
    def ends(_, given, seed):
        return 1.0 + (3.0 if (given["nodes"], seed) == (4, 1) else 0.0)

    wide = make_sweep(tmp_path / "wide", [("A", {"nodes": n}) for n in (2, 4)], ends)
    even = make_sweep(tmp_path / "even", [("A", {"nodes": n}) for n in (2, 4)],
                      lambda _, given, seed: given["nodes"] + seed / 100)  # fmt: skip

    told, untold = (plot_folders([root], Asked("nodes", "loss")) for root in (wide, even))

    assert "a bar without ends is longer than the figure" in told.axes[0].get_title()
    assert "longer" not in untold.axes[0].get_title()


def test_what_is_held_is_not_in_the_names(sweep):
    figure = plot_folders([sweep], Asked("bits", "loss", where={"nodes": 4, "gamma": 5}))

    assert {t.get_text() for t in figure.axes[0].texts} == {"Slow", "Quick", "Free"}


def test_names_of_a_setting_stand_side_by_side_and_are_not_joined(sweep):
    figure = plot_folders([sweep], Asked("algorithm", "accuracy", "gamma", where={"nodes": 4}))

    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["Slow", "Quick", "Free"]
    assert {line.get_linestyle() for line in lines(axes)} == {"None"}


def test_curves_of_a_sweep_can_be_grouped_and_kept_apart_too(sweep):
    where = {"nodes": [4], "gamma": 5.0}
    figure = plot_folders([sweep], Asked("bits", "loss", "algorithm", where=where))

    axes = figure.axes[0]
    assert {t.get_text() for t in axes.texts} == {"Slow", "Quick", "Free"}
    assert xs(lines(axes)[0]) == [0.0, 200.0, 400.0]


@pytest.mark.parametrize("log", ["x", "y", "xy", "none"])
def test_logarithmic_axes_are_as_asked_for(sweep, log):
    axes = plot_folders([sweep], Asked("gamma", "loss", None, "nodes", log)).axes[0]

    assert axes.get_xscale() == ("log" if "x" in log else "linear")
    assert axes.get_yscale() == ("log" if "y" in log else "linear")


def test_a_narrow_logarithmic_axis_has_plain_numbers(sweep):
    figure = plot_folders([sweep], Asked("gamma", "loss", None, "nodes", "y"))
    figure.draw_without_rendering()

    axes = figure.axes[0]
    shown = [t.get_text() for t in axes.get_yticklabels() if t.get_text()]
    assert len(shown) >= 3
    assert all(float(text) > 0 for text in shown)


def test_several_folders_can_be_drawn_along_what_differs_between_them(tmp_path):
    """A setting that no sweep varied, but folders do; the same label is told apart by folder."""
    few = make_sweep(tmp_path / "few", [("A", {"nodes": 2})], lambda *_: 0.5)
    many = make_sweep(tmp_path / "many", [("A", {"nodes": 9})], lambda *_: 0.25)

    line = lines(plot_folders([few, many], Asked("nodes", "loss")).axes[0])
    both = plot_folders([few, many], Asked("slots", "loss"))

    assert [(xs(each), ys(each)) for each in line] == [([2, 9], [0.5, 0.25])]
    assert {t.get_text() for t in both.axes[0].texts} == {"A, nodes=2 (few)", "A, nodes=9 (many)"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--x", "network.gama"], "did you mean network.gamma"),
        (["--x", "network.gama"], "what varies here: algorithm (Slow, Quick, Free), network.gamma"),
        (["--x", "seed"], "there is no axis or setting 'seed'"),
        (["--y", "lost"], "there is no metric 'lost'; did you mean 'loss'?"),
        (["--x", "gamma", "--hue", "algorthm"], "did you mean algorithm?"),
        (["--hue", "algorithm"], "a curve would mix arms that differ in network.gamma (2, 5, 10)"),
        (["--x", "gamma", "--hue", "algorithm"], "a point would mix arms that differ in nodes"),
        (["--x", "gamma", "--hue", "algorithm"], "--where nodes=4"),
        (["--x", "gamma", "--where", "gamma=5"], "nothing to draw along 'network.gamma'"),
        (["--where", "nodes=5"], "no arm has nodes = 5; there is 4, 8"),
        (["--where", "nodes"], "--where looks like nodes=5 or nodes=5,10, got 'nodes'"),
        (["--x", "algorithm", "--facet", "nodes", "--log", "x"], "this setting has names"),
        (["--log", "z"], "there is no logarithm 'z'"),
        (["--style", "papr"], "did you mean 'paper'?"),
        (["--kind", "map", "--hue", "nodes"], "--kind map is of one run and has no --hue"),
        (["--x", "gamma", "--y", "consensus", "--facet", "nodes"], "no arm has 'consensus'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_what_can(sweep, tmp_path, words, complaint):
    done = folkman("plot", sweep, *words, cwd=tmp_path)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_and_python_draw_the_same(sweep, tmp_path):
    done = folkman(
        "plot", sweep, "--x", "gamma", "--y", "loss", "--hue", "algorithm", "--where", "nodes=4",
        "--out", tmp_path / "a.svg", cwd=tmp_path,
    )  # fmt: skip
    options = {"hue": "algorithm", "where": {"nodes": 4}}
    fm.plot(sweep, "gamma", "loss", **options).save(tmp_path / "b.svg")
    fm.read_results(sweep).plot("gamma", "loss", **options).save(tmp_path / "c.svg")

    assert done.returncode == 0
    assert done.stdout.strip() == str(tmp_path / "a.svg")
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes() == (tmp_path / "c.svg").read_bytes()


def test_runs_in_memory_are_drawn_by_their_labels():
    runs = [
        Run("x", label, seed, [{"seconds": at, "train_loss": 2.0 - at} for at in (0.0, 1.0)])
        for label in "ab"
        for seed in (0, 1)
    ]

    axes = fm.plot(runs).figure.axes[0]

    assert {t.get_text() for t in axes.texts} == {"a", "b"}
    with pytest.raises(ValueError, match="what varies here: algorithm"):
        fm.plot(runs, "nodes")


def test_dark_figures_have_colours_that_stand_out_from_their_ground(sweep):
    figure = draw_plot(
        arms_of([sweep]),
        settings_of_folders([sweep]),
        Asked("gamma", "loss", None, "nodes"),
        "dark",
    )
    axes = figure.axes[0]
    ground = luminance(axes.get_facecolor())

    for line in lines(axes):
        assert (luminance(line.get_color()) + 0.05) / (ground + 0.05) >= 3
    for text in figure.axes[1].texts:
        assert (luminance(text.get_color()) + 0.05) / (ground + 0.05) >= 4.5


def luminance(colour):
    from matplotlib.colors import to_rgb

    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_compare_suggests_short_names_and_calls_free_links_a_reference(sweep, tmp_path):
    done = folkman("compare", sweep, "--metric", "los", cwd=tmp_path)
    helped = folkman("compare", "--help", cwd=tmp_path)

    assert done.returncode == 2
    assert "there is no metric 'los'; did you mean 'loss'?" in done.stderr
    assert "free links are a reference" in " ".join(helped.stdout.split())
