"""Pages of several seeds and settings: what they conclude is so for all of them, not for one."""

import json
import re
from math import nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from folkman.record.folder import RunFolder
from folkman.record.run import AXES, METRICS, Run
from folkman.record.store import SweepFolder
from folkman.record.sweep import Sweep
from folkman.report import network_page
from folkman.report.curves_page import curves_section
from folkman.report.network_page import network_sections
from folkman.report.run_page import results_table
from folkman.report.sweep_page import _caption, draw_response, settings_of, sweep_page


def run(label, seed, losses, *, verdict="finished", **last):
    rows = [
        dict.fromkeys(METRICS, nan) | dict.fromkeys(AXES, float(slot)) | last | {"train_loss": loss}
        for slot, loss in enumerate(losses)
    ]
    return Run("x", label, seed, rows, "finished", verdict=verdict)


def sweep_of(root, ends, *, key="network.gamma", labels=("a",)):
    """Return a sweep of `ends`: setting -> the last loss under each seed, the same for all."""
    jobs, runs = [], []
    for label in labels:
        for value, losses in ends.items():
            for seed, loss in enumerate(losses):
                arm = f"{label}, {value}"
                state = "finished" if np.isfinite(loss) else "diverged"
                job = {"arm": arm, "label": label, "seed": seed, "settings": {key: value}}
                jobs.append(job | {"state": state, "folder": f"jobs/{arm}{seed}", "key": arm})
                runs.append(run(arm, seed, [9.0, loss + labels.index(label)]))
    facts = {"axes": [key], "metrics": ["train_loss"], "jobs": jobs}
    return Sweep(SweepFolder(root), facts, "", runs)


def test_a_setting_of_which_a_run_diverged_is_marked_and_not_the_best(tmp_path):
    sweep = sweep_of(tmp_path, {1: [0.5, 0.6, 0.7], 2: [0.1, nan, 0.1], 3: [0.8, 0.9, 1.0]})

    told = _caption(sweep, "network.gamma", "train_loss")
    figure = draw_response(sweep, "network.gamma", "train_loss")

    assert "It is best at 1: 0.6 (a, 1)." in told
    assert "a cross at the mean of the rest: a, 2 (1 of 3 runs)." in told
    assert figure is not None
    curve, *others = figure.axes[0].lines
    lines = {line.get_marker(): line for line in others}
    assert list(np.asarray(curve.get_xdata())) == [1, 3]
    assert list(np.asarray(lines["x"].get_xdata())) == [2]
    assert np.asarray(lines["x"].get_ydata())[0] == pytest.approx(0.1)


def test_settings_of_which_every_run_diverged_can_be_told(tmp_path):
    sweep = sweep_of(tmp_path, {1: [0.5, nan], 2: [nan, nan]})

    told = _caption(sweep, "network.gamma", "train_loss")

    assert "best" not in told
    assert "a, 1 (1 of 2 runs); a, 2 (2 of 2 runs)" in told
    assert draw_response(sweep, "network.gamma", "train_loss") is not None


@pytest.mark.parametrize("key", ["network.gamma", "nodes", "data"])
def test_arms_are_ranked_among_those_that_met_the_same_setting(tmp_path, key):
    ends = {2: [0.1, 0.2, 0.3], 8: [0.5, 0.6, 0.7]}
    page = sweep_page(sweep_of(tmp_path, ends, key=key, labels=("a", "b")))

    lead = page.split('class="answer"')[1].split("</div>")[0]
    assert "ranked only among those that met the same" in lead
    assert f"At {key}=2: a, 2 has the lowest training loss: 0.2" in lead
    assert f"At {key}=8: a, 8 has the lowest training loss: 0.6" in lead
    assert "Cost of the same result" not in page
    assert "Least time" not in page


def test_arms_of_one_setting_each_are_not_ranked(tmp_path):
    page = sweep_page(sweep_of(tmp_path, {2: [0.1, 0.2, 0.3], 8: [0.5, 0.6, 0.7]}))

    assert "Each arm met a setting of its own, and so none is ranked." in page
    assert "lowest training loss" not in page


@pytest.mark.parametrize("key", ["algorithm.0.step", "network.schedule", "network.threshold_db"])
def test_options_of_a_method_are_ranked(tmp_path, key):
    sweep = sweep_of(tmp_path, {2: [0.1, 0.2, 0.3], 8: [0.5, 0.6, 0.7]}, key=key)

    assert set(settings_of(sweep).values()) == {""}
    assert "a, 2 has the lowest training loss: 0.2" in sweep_page(sweep)


def test_arms_of_one_setting_on_unlike_networks_are_not_ranked_together(tmp_path):
    """Methods of a sweep may have networks of their own, which no axis tells."""
    sweep = sweep_of(tmp_path, {2: [0.5, 0.6, 0.7]}, key="algorithm.0.step", labels=("a", "b", "c"))
    for job in sweep.jobs:
        name = "ideal" if job["label"] == "a" else "radio"
        folder = RunFolder(tmp_path / job["folder"])
        folder.root.mkdir(parents=True)
        folder.config.write_text(f"[[algorithm]]\nlabel = 'x'\nnetwork = {{name = '{name}'}}\n")

    lead = sweep_page(sweep).split('class="answer"')[1].split("</div>")[0]

    assert "b, 2 has the lowest training loss on the network" in lead
    assert "a reference, not an opponent: a, 2" in lead


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("count", [5, 9, 60])
def test_many_arms_with_long_names_are_drawn_without_complaint(tmp_path, count):
    name = "Algorithm 1, step=0.316, local_steps=16, topology=exponential, momentum=0.9, batch=64"
    labels = tuple(f"{name}, own={index}" for index in range(count))
    sweep = sweep_of(tmp_path, {1: [0.5], 2: [0.2]}, labels=labels)

    figure = draw_response(sweep, "network.gamma", "train_loss")

    assert figure is not None
    figure.canvas.draw()
    (axes,) = figure.axes
    shown = [text.get_text() for text in axes.texts]
    assert len(shown) == min(count, 6)
    assert len(set(shown)) == len(shown)  # what differs at the end is seen
    assert axes.get_window_extent().width > 0.3 * figure.bbox.width


def test_what_a_search_tunes_is_an_option(tmp_path):
    sweep = sweep_of(tmp_path, {1: [0.1], 2: [0.2]}, key="step")
    assert set(settings_of(sweep).values()) == {"step=1", "step=2"}

    sweep.folder.definition.write_text("[tune]\nover = ['step']\n")
    assert set(settings_of(sweep).values()) == {""}


def test_a_label_with_some_runs_that_do_not_learn_says_how_many():
    runs = [run("good", seed, [1.0, 0.5]) for seed in range(5)]
    runs += [run("mixed", seed, [1.0, 0.5]) for seed in range(4)]
    runs += [run("mixed", 4, [1.0, 2.0], verdict="not learning")]

    body = curves_section(runs).body

    assert "runs that do not learn, and so only under 'More curves': mixed (1 of 5 runs)." in body
    assert "good (" not in body.split("</p>")[0]


def test_the_oldest_and_the_farthest_are_those_of_the_mean_over_seeds():
    """The first seed says a, the mean over three seeds b."""
    ages = {"a": (9.0, 1.0, 2.0), "b": (5.0, 6.0, 7.0)}
    runs = [run(n, s, [1.0, 0.5], mean_age=v, consensus=10 * v) for n, own in ages.items()
            for s, v in enumerate(own)]  # fmt: skip

    text = json.dumps([section.body for section in network_sections(runs)])

    assert "b uses the oldest: 6 slots" in text
    assert "largest for b: 60." in text


def test_the_cells_shown_are_those_of_the_first_and_of_the_best_on_the_air():
    """Of paper's rule, FedAvg, fresh air and free links a reader wants the first and the third."""

    def scene(age, *, air=True):
        return SimpleNamespace(age_slots=np.full((1, 2, 2), age), on_air=np.full((1, 2, 2), air))

    scenes: Any = {"rule": scene(9), "rounds": scene(5), "fresh": scene(2)}
    scenes |= {"free": scene(0, air=False)}

    assert [*network_page._telling(scenes, ["free", "fresh", "rounds", "rule"])] == [
        "rule", "fresh"]  # fmt: skip
    alike = scenes | {"fresh": scene(9)}
    assert [*network_page._telling(alike, ["fresh", "free", "rounds", "rule"])] == [
        "rule", "rounds"]  # fmt: skip


def test_the_bold_row_is_best_over_the_seeds_that_all_have():
    """By its own seeds `b` is ahead, since it lacks the hard one; by common seeds `a` is."""
    runs = [run("a", seed, [9.0, loss]) for seed, loss in enumerate((0.1, 0.2, 0.3, 5.0))]
    runs += [run("b", seed, [9.0, loss]) for seed, loss in enumerate((0.2, 0.3, 0.4))]

    table = results_table(runs, "algorithm")

    bold = re.search(r'<tr class="best">.*?</tr>', table, re.S)
    assert bold is not None
    assert ">a<" in bold.group()
    assert "Each row is over its own seeds (a: 4, b: 3)" in table


def test_no_row_is_bold_where_another_is_not_told_apart_from_the_lowest():
    ends = {"a": (0.1, 0.3, 0.2), "b": (0.2, 0.2, 0.3), "c": (0.9, 0.8, 0.9)}
    runs = [run(name, s, [9.0, v]) for name, own in ends.items() for s, v in enumerate(own)]

    assert 'class="best"' not in results_table(runs, "algorithm")
    sure = results_table([each for each in runs if each.label != "b"], "algorithm")
    assert ">a<" in sure.split('class="best"')[1].split("</tr>")[0]
