"""The figures of the paper's experiments: what a curve looks like, where it ends, how far it is
drawn; intervals."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from folkman.papers.figures import AXES, _each
from folkman.papers.paper import find
from folkman.papers.results import read_reproduction
from folkman.record.run import Run
from folkman.report.figures import draw_curves
from folkman.report.paper import Panel, _looks, draw_panels, ends_markdown
from folkman.report.points import _half

XIE = find("xie2024")
LINES = XIE.head["lines"]


def run(label, seed=0, *, losses=(2.0, 1.0, 0.5), method="async_sharing", end=20.0):
    x = np.linspace(0.0, end, len(losses))
    rows = [
        {"gradients": at, "seconds": 2 * at, "train_loss": loss, "test_accuracy": 1 - loss / 4}
        for at, loss in zip(x, losses, strict=True)
    ]
    return Run(method, label, seed, rows)


def test_a_method_has_its_line_and_cases_that_belong_together_their_colour():
    names = [
        "Alg. 1, 5 nodes",
        "Alg. 1, 10 nodes",
        "FedAvg",
        "FedAvg, step 5 eta",
        "FedAvg, step 10 eta",
        "AdaFL, 5 nodes",
    ]
    looks = _looks(
        [
            Panel("a", [run(name) for name in names]),
            Panel("b", [run(name) for name in names[::-1]]),
        ],
        LINES,
    )

    colour = {name: looks[name]["color"] for name in names}
    assert colour["Alg. 1, 5 nodes"] == colour["FedAvg, step 5 eta"] == colour["AdaFL, 5 nodes"]
    assert colour["Alg. 1, 10 nodes"] == colour["FedAvg, step 10 eta"] != colour["Alg. 1, 5 nodes"]
    assert colour["FedAvg"] not in {colour[name] for name in names if name != "FedAvg"}
    assert (
        len(
            {
                str(looks[name]["linestyle"])
                for name in ("Alg. 1, 5 nodes", "FedAvg", "AdaFL, 5 nodes")
            }
        )
        == 3
    )


def test_curves_without_a_method_in_their_name_are_told_apart():
    many = [run(f"{number} nodes") for number in range(20)]
    looks = _looks([Panel("a", many)], LINES)

    assert len({(look["color"], str(look["linestyle"])) for look in looks.values()}) == len(many)


@pytest.mark.parametrize("name", [*XIE.figures[:4], *XIE.beyond])
def test_no_two_curves_of_a_figure_look_alike_and_each_looks_the_same_on_all_axes(name):
    kept = read_reproduction(
        Path(__file__).parents[2] / "docs" / "data" / "reproduction" / "laptop"
    )
    seen: dict[tuple[str, str], str] = {}
    for _, variant, _, panels in _each(kept, name, AXES):
        looks = _looks(panels, LINES)
        for panel in panels:
            shown = [str(looks[label]) for label in dict.fromkeys(run.label for run in panel.runs)]
            assert len(set(shown)) == len(shown)
        assert all(
            seen.setdefault((variant, label), str(look)) == str(look)
            for label, look in looks.items()
        )
    assert seen


def test_losses_are_averaged_by_their_logarithms_and_ends_are_told():
    """Of 0.1 and 0.4 the middle is 0.2; the interval of two draws is Student's."""
    panel = Panel(
        "p",
        [
            run("a", 0, losses=(2.0, 0.1)),
            run("a", 1, losses=(2.0, 0.4)),
            run("b", losses=(2.0, 0.3)),
        ],
    )

    rows = ends_markdown("title", [panel]).splitlines()
    half = t.ppf(0.975, 1) / 2  # of the distance of two values

    assert (
        rows[4] == f"| p | a | 2 | 20 | 0.2 (x or / {4**half:.2f}) | 0.938 +- {0.075 * half:.3f} |"
    )
    assert rows[5] == "| p | b | 1 | 20 | 0.3 | 0.925 |"


def test_a_run_that_diverged_is_drawn_and_told_without_a_warning():
    panel = Panel("p", [run("a", seed, losses=(2.0, np.inf if seed else 0.5)) for seed in range(3)])

    assert "| a | 3 | 20 | inf" in ends_markdown("t", [panel])
    draw_panels([panel], "gradients", "t", "async_sharing", LINES).canvas.draw()


def test_a_curve_is_drawn_as_far_as_ones_own_method_reaches():
    panel = Panel("p", [run("ours"), run("theirs", method="fedavg", end=400.0)])

    figure = draw_panels([panel], "seconds", "t", "async_sharing", LINES)

    assert figure.axes[1].get_xlim()[1] == pytest.approx(1.03 * 40.0)
    assert figure.axes[0].get_yscale() == "linear"  # from 2 to 0.5 is little


@pytest.mark.parametrize(
    ("seeds", "bands", "title"),
    [(2, 0, "mean of 2 seeds"), (3, 1, "mean of 3 seeds, 95 % interval")],
)
def test_an_interval_is_drawn_from_three_seeds_on(seeds, bands, title):
    runs = [run("a", seed, losses=(2.0, 1.0 + seed)) for seed in range(seeds)]

    curves = draw_curves(runs, "seconds", "train_loss").axes[0]
    panel = draw_panels([Panel("p", runs)], "seconds", "t", "async_sharing", LINES).axes[0]

    assert [len(axes.collections) for axes in (curves, panel)] == [bands, bands]
    assert curves.get_title() == title
    assert (_half([1.0 + seed for seed in range(seeds)]) > 0) == bool(bands)  # the bars of a sweep


def test_panels_of_the_same_few_curves_have_one_legend():
    """Names stand once, below all panels; the number of draws is in the title."""
    names = ["Alg. 1, -15 dB", "Alg. 1, 0 dB", "Alg. 1, 15 dB", "FedAvg"]
    panels = [
        Panel(name, [run(each, seed) for each in names for seed in range(3)]) for name in "ab"
    ]

    figure = draw_panels(panels, "gradients", "t", "async_sharing", LINES)
    figure.canvas.draw()

    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    assert not any(axes.get_legend() for axes in figure.axes)
    assert figure.get_suptitle() == "t; mean of 3 draws, 95 % interval"
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert 0 <= box.y0 < box.y1 < figure.axes[2].get_window_extent().y0


def test_curves_of_two_panels_that_look_alike_have_one_name_for_both():
    panels = [Panel(s, [run("Alg. 1"), run(f"FedAvg, step {s} eta")]) for s in ("0.2", "5")]

    figure = draw_panels(panels, "gradients", "t", "async_sharing", LINES)

    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["Alg. 1", "FedAvg, step 0.2 eta | step 5 eta"]


@pytest.mark.parametrize("waiting", ["FedAvg that waits, Gamma", "FedAvg,"])
def test_the_names_below_panels_do_not_meet(waiting):
    """Three panels of other curves with as many names as Figure 6 has: in the larger size if they
    fit, in the smaller if not."""
    gammas = [(5, 10, 15), (6, 11, 16), (7, 12, 17)]
    panels = []
    for some in gammas:
        names = [f"Alg. 1, Gamma {some[0]}", "FedAvg", *(f"{waiting} {gamma}" for gamma in some)]
        panels.append(Panel("p", [run(name) for name in [*names, f"AdaFL, Gamma {some[2]}"]]))

    figure = draw_panels(panels, "gradients", "t", "async_sharing", LINES)
    figure.canvas.draw()

    legends = [axes.get_legend() for axes in figure.axes]
    boxes = [legend.get_window_extent() for legend in legends if legend]
    assert len(boxes) == 3
    assert boxes[0].x0 >= 0
    assert boxes[-1].x1 <= figure.bbox.x1
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    assert (
        figure.axes[3].get_position().width > 0.25
    )  # a panel is not squeezed to make room for names


def test_many_curves_stand_in_rows_by_case_few_in_each():
    """Three cases of two methods and a third without: seven curves, three rows of three for each
    of two metrics; curves of one method look alike, and not as another's."""
    cases = ("5 nodes", "10 nodes", "15 nodes")
    names = [f"{method}, {case}" for method in ("Alg. 1", "AdaFL") for case in cases]
    runs = [
        run(name, seed, method="async_sharing" if name.startswith("Alg. 1") else "fedavg")
        for name in [*names, "FedAvg"]
        for seed in range(3)
    ]
    panels = [Panel("a", runs), Panel("b", runs)]

    figure = draw_panels(panels, "gradients", "t", "async_sharing", LINES)

    assert len(figure.axes) == 2 * 3 * 2
    for axes in figure.axes:
        looks = {line.get_color() for line in axes.lines}
        assert (len(axes.lines), len(looks), len(axes.collections)) == (3, 3, 3)
    assert figure.axes[2].get_ylabel() == "training loss\n10 nodes"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Alg. 1",
        "AdaFL",
        "FedAvg",
    ]


def test_panels_of_other_cases_stay_whole():
    many = [run(f"{number} nodes") for number in range(9)]

    figure = draw_panels([Panel("a", many), Panel("b", many[:2])], "gradients", "t",
                         "async_sharing", LINES)  # fmt: skip

    assert len(figure.axes) == 4
