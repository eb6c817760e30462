"""How a run went: finished, diverged or not learning, and why; no false alarms."""

import html
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.fedavg import fedavg
from folkman.dash.serve import make_source
from folkman.engine.judge import best_descent
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.problem.data import DataSet, load, quadratic
from folkman.problem.models import linear
from folkman.problem.problem import make_problem
from folkman.radio.delay import constant, ideal
from folkman.radio.network import RadioNetwork
from folkman.record.folder import RunFolder
from folkman.record.run import DIVERGED, FINISHED, Run
from folkman.record.table import arms_of
from folkman.record.verdict import (
    NOT_LEARNING,
    Constant,
    Descent,
    complaints,
    remark,
    remarks,
    swing,
    verdict,
)
from folkman.report.tables import final_rows
from folkman.report.write import write_report

NODES = 3


@pytest.fixture(scope="module")
def bowls():
    data = quadratic(nodes=NODES, dim=3, seed=1)
    return make_problem(data, "quadratic", [np.array([i]) for i in range(NODES)])


def rows(*losses, **more):
    """Return rows of these training losses, ten slots apart."""
    common = {"bits": 100.0, "gradients": 1.0, "rounds": 1.0, "pairs_unheard": 0.0} | more
    return [common | {"slots": 10 * n, "train_loss": loss} for n, loss in enumerate(losses)]


LOWER = Descent(step=0.1, loss=0.5)
NOTHING = Descent(step=0.1, loss=1.0)


@pytest.mark.parametrize(
    ("given", "descent", "word", "said"),
    [
        (rows(1.0, 0.5), None, FINISHED, ""),
        (rows(1.0, 0.5, 0.7), LOWER, FINISHED, ""),
        (rows(1.0, float("nan")), None, DIVERGED, "no longer finite at slot 10"),
        (rows(1.0, 1.5), None, NOT_LEARNING, "rose from 1 to 1.5; try a smaller step"),
        (rows(1.0, 1.5), LOWER, NOT_LEARNING, "a single step of 0.1 lowers it to 0.5"),
        (rows(1.0, 1.5, 1.5), NOTHING, FINISHED, ""),
        (rows(1.0, 1.5, 15.0, 150.0), NOTHING, NOT_LEARNING, "rose from 1 to 150"),
        (rows(1.0, 1.0), LOWER, NOT_LEARNING, "stayed at 1 (1 after 10 slots); try another step"),
        (rows(1.0, 1.0), NOTHING, FINISHED, ""),
        (rows(1.0, 1.0), None, FINISHED, ""),
        (rows(0.0, 1e-4), None, FINISHED, ""),
        (rows(-1.0, -1.5), LOWER, FINISHED, ""),
        (rows(1.0, 1.0, gradients=0.0), LOWER, NOT_LEARNING, "nobody finished a gradient"),
        (rows(1.0, 1.0, rounds=0.0), LOWER, NOT_LEARNING, "no round was completed"),
        (rows(1.0, 1.0, pairs_unheard=2.0), LOWER, NOT_LEARNING, "2 pairs never heard"),
        (rows(1.0, 0.5, bits=0.0, pairs_unheard=6.0), None, NOT_LEARNING, "nothing was sent"),
        (rows(1.0, 0.5, bits=0.0), None, FINISHED, ""),
        (rows(1.0), LOWER, FINISHED, ""),
        ([], None, FINISHED, ""),
    ],
)
def test_the_verdict_follows_from_the_rows(given, descent, word, said):
    found = verdict(given, descent)
    assert found.word == word
    assert said in found.explained
    assert bool(found.explained) == (word != FINISHED)
    assert bool(found.remedy) == (word != FINISHED)


def test_a_start_at_the_optimum_is_nothing_to_complain_about(bowls):
    at_optimum = replace(bowls, initial=bowls.optimum)
    for method in (async_sharing(0.05), fedavg(0.05)):
        run = simulate(at_optimum, constant(2), method, slots=20)
        assert (run.verdict, run.reason, run.message) == (FINISHED, "", "")


def test_a_step_beyond_the_stable_one_is_not_learning_before_it_is_infinite(bowls):
    run = simulate(bowls, ideal(), fedavg(50.0), slots=4, recording=Recording(every=1))
    assert run.status == FINISHED
    assert run.verdict == NOT_LEARNING
    assert "rose from" in run.reason
    assert run.reason in run.message
    assert "(1 not learning)" in final_rows([run])[1][0][0]


def test_a_step_that_moves_nothing_is_not_learning_and_says_which_would(bowls):
    run = simulate(bowls, ideal(), fedavg(1e-9), slots=5)
    assert run.verdict == NOT_LEARNING
    step = best_descent(bowls).step
    assert f"a single step of {step:g} lowers it" in run.reason
    better = simulate(bowls, ideal(), fedavg(step), slots=5)
    assert better.verdict == FINISHED
    assert better.last("train_loss") < run.last("train_loss")


def test_a_round_longer_than_the_run_is_not_learning(bowls):
    run = simulate(bowls, constant(50), fedavg(0.05), slots=20)
    assert "no round was completed in 20 slots" in run.reason
    slow = simulate(bowls, ideal(), fedavg(0.05), slots=5, clock=Clock(compute_slots=9))
    assert slow.verdict == NOT_LEARNING


def test_a_threshold_that_nobody_meets_is_not_learning(bowls):
    run = simulate(
        bowls,
        RadioNetwork(threshold_db=200.0),
        async_sharing(0.05),
        slots=20,
        clock=Clock(slot_s=RadioNetwork().slot_s),
    )
    assert run.last("bits") == 0
    assert run.verdict == NOT_LEARNING
    assert "nothing was sent" in run.reason
    assert "threshold" in run.reason


def test_the_best_first_step_is_found_against_plain_numpy(bowls):
    """F(w) = 1/2 mean_i sum_k a_ik (w_k - c_ik)^2, one step down its gradient."""
    centre, curvature = (np.asarray(a[:, 0], np.float64) for a in (bowls.x, bowls.y))
    start = np.asarray(bowls.initial, np.float64)
    slope = np.mean(curvature * (start - centre), axis=0)
    tried = [10.0**power for power in range(-6, 5)]
    losses = [
        0.5 * np.mean(np.sum(curvature * (start - step * slope - centre) ** 2, axis=1))
        for step in tried
    ]
    found = best_descent(bowls)
    assert found.step == tried[int(np.argmin(losses))]
    assert found.loss == pytest.approx(min(losses), rel=1e-5)


def test_a_verdict_is_kept_in_the_folder_and_its_summary(bowls, tmp_path):
    run = simulate(bowls, ideal(), fedavg(1e-9), slots=5)
    place = run.save(tmp_path / "kept")
    (found,) = RunFolder.open(place).read().runs
    assert (found.verdict, found.reason) == (NOT_LEARNING, run.reason)
    assert found.summary()["status"] == FINISHED
    assert found.summary()["verdict"] == NOT_LEARNING
    assert found.summary()["reason"] == run.reason
    assert jnp.isfinite(found.last("train_loss"))
    (shown,) = make_source(place, cluster=False).state()["runs"]
    assert (shown["verdict"], shown["reason"]) == (NOT_LEARNING, run.reason)
    (arm,) = arms_of([place]).values()
    assert arm[0].verdict == NOT_LEARNING
    assert run.reason in html.unescape(write_report(place).read_text())


def test_a_run_ends_at_the_first_recorded_slot_that_meets_its_target(bowls):
    whole = simulate(bowls, ideal(), fedavg(0.1), slots=40, recording=Recording(every=4))
    target = whole.rows[5]["train_loss"]
    recording = Recording(every=4, stop_at=(("train_loss", target),))
    run = simulate(bowls, ideal(), fedavg(0.1), slots=40, recording=recording)
    assert [row["slots"] for row in run.rows] == [0, 4, 8, 12, 16, 20]
    assert (run.status, run.verdict, run.target_slot) == (FINISHED, FINISHED, 20)
    assert run.summary()["target_slot"] == 20
    assert whole.target_slot is None
    both = recording._replace(stop_at=(("train_loss", target), ("kappa", 1.5)))
    assert not both.meets(run.rows[-1])  # kappa is a share: more is better, and 1.5 is too much


def test_seeds_that_fail_alike_are_told_in_one_line():
    def run(label, seed, message, word=NOT_LEARNING):
        return Run("x", label, seed, [], FINISHED, message, verdict=word)

    lines = complaints(
        [
            run("a", 0, "'a' (seed 0) rose"),
            run("b", 0, "'b' (seed 0) rose"),
            run("a", 2, "'a' (seed 2) rose"),
            run("a", 3, "'a' (seed 3) rose"),
            run("b", 3, "'b' (seed 3) is infinite", DIVERGED),
            run("c", 0, ""),
        ]
    )
    assert lines == [
        "'a' (seed 0) rose (seeds 2, 3 alike)",
        "'b' (seed 0) rose",
        "'b' (seed 3) is infinite",
    ]


def test_a_loss_that_fell_and_rose_again_is_told_with_what_to_try():
    def rows(*losses):
        return [{"slots": 10.0 * i, "train_loss": loss} for i, loss in enumerate(losses)]

    assert "had been 0.5 and ended at 2" in swing(rows(3.0, 0.5, 2.0))
    assert "smaller step" in swing(rows(3.0, 0.5, 2.0))
    swinging = [3.0] + [0.5, 0.1] * 6
    assert "still rose from 0.1 to 0.5 in its last third" in swing(rows(*swinging))
    assert not swing(rows(*(1000 * 0.5**n for n in range(13))))  # it falls, however fast
    assert not swing(rows(*swinging[:7], *[0.1] * 8))  # it has settled
    assert not swing(rows(3.0, 0.5, 0.9))  # within a factor of two
    assert not swing(rows(3.0, 0.0, 0.0009))  # noise about zero
    assert not swing(rows(1.0, 0.5, 2.0))  # it rose above its start: the verdict tells
    assert not swing([])


TEN = Constant(loss=2.3, accuracy=0.1, tested=400)
MEAN = Constant(loss=0.5, accuracy=float("nan"), tested=400)


@pytest.mark.parametrize(
    ("given", "constant", "descent", "word", "said"),
    [
        (rows(2.5, 2.3, 2.3, 2.3, test_accuracy=0.1), TEN, None, NOT_LEARNING, "gives 2.3,"),
        (rows(2.5, 2.3, 2.3, 2.3, test_accuracy=0.1), TEN, LOWER, NOT_LEARNING, "lowers it to 0.5"),
        (rows(2.5, 2.31, 2.29, 2.3, test_accuracy=0.12), TEN, None, NOT_LEARNING, "accuracy 0.12"),
        (rows(2.5, 2.3, 2.3, 2.3, test_accuracy=0.2), TEN, None, FINISHED, ""),  # it is better
        (rows(2.5, 2.3, 2.25, 2.25, test_accuracy=0.1), TEN, None, FINISHED, ""),  # a lower loss
        (rows(2.5, 2.45, 2.4, 2.35, test_accuracy=0.1), TEN, None, FINISHED, ""),  # it still falls
        (rows(2.5, 2.4, test_accuracy=0.1), TEN, None, FINISHED, ""),  # few rows, and it falls
        (rows(3.0, 1.5, 2.4, 2.4, test_accuracy=0.1), TEN, None, NOT_LEARNING, "had been 1.5"),
        (rows(0.9, 0.5, 0.5, 0.5), MEAN, None, NOT_LEARNING, "predicting the mean gives 0.5"),
        (rows(90.0, 80.0, 80.0, 80.0), MEAN, None, NOT_LEARNING, "model.intercept = true"),
        (rows(0.9, 0.4, 0.4, 0.4), MEAN, None, FINISHED, ""),
        (rows(0.9, 0.5, 0.5, 0.5, pairs_unheard=2.0), MEAN, None, NOT_LEARNING, "2 pairs never"),
        (rows(2.5, 2.3, 2.3, 2.3, test_accuracy=0.1), None, None, FINISHED, ""),  # not known
    ],
)
def test_a_run_that_ends_where_a_constant_answer_is_as_good_does_not_learn(
    given, constant, descent, word, said
):
    found = verdict(given, descent, constant)
    assert found.word == word
    assert said in found.explained
    assert "no better than guessing" in found.reason or word == FINISHED


def test_a_loss_that_still_falls_is_no_verdict_but_a_remark():
    falling = rows(2.5, 2.45, 2.4, 2.35, test_accuracy=0.1)
    assert "still falls: run longer" in remark(falling, TEN)
    assert "accuracy is not higher" in remark(rows(2.5, 1.5, 1.4, 1.3, test_accuracy=0.1), TEN)
    assert not remark(rows(2.5, 1.5, 1.4, 1.3, test_accuracy=0.3), TEN)
    assert not remark(rows(2.5, 2.5, test_accuracy=0.1), TEN)  # level: the verdict's own business
    assert not remark(rows(0.9, 0.3), MEAN)
    alike = TEN._replace(accuracy=1.0)  # all test data are of one class: nothing is above it
    assert not remark(rows(2.5, 1.5, 1.4, 1.3, test_accuracy=1.0), alike)


def guessed(problem):
    """Return what a constant answer is worth, where there is one."""
    found = problem.guess()
    assert found is not None
    return found


def learnt(problem, step, slots=60):
    return simulate(problem, constant(5), async_sharing(step), slots=slots)


def test_a_network_on_the_digits_is_held_against_ten_balanced_classes():
    """A loss of ln 10, whatever the first model had; tiny steps, useful steps and few slots."""
    problem = make_problem(load("digits"), "mlp", 5)
    tiny, early, good = (learnt(problem, step) for step in (1e-4, 1e-3, 0.1))
    assert tiny.verdict == NOT_LEARNING
    assert tiny.rows[-1]["train_loss"] < tiny.rows[0]["train_loss"] * (1 - 1e-3)  # it did fall
    assert f"shares of the classes gives {np.log(10):.2f}" in tiny.reason
    assert "without delay a single step" in tiny.reason
    assert (early.verdict, "still falls" in early.remark) == (FINISHED, True)
    assert (good.verdict, good.remark) == (FINISHED, "")
    few = learnt(problem, 0.1, slots=3)
    assert (few.verdict, few.reason) == (FINISHED, "")


def skewed(signal, share=0.1):
    """Return two classes of which one is rare; `signal` sets them apart in one feature."""
    rng = np.random.default_rng(3)
    y = (rng.random(800) < share).astype(np.int32)
    x = rng.normal(size=(800, 4)).astype(np.float32)
    x[:, 0] += signal * y
    return make_problem(DataSet("skewed", x[:500], y[:500], x[500:], y[500:], 2), "softmax", 5)


def test_nine_of_ten_in_one_class_are_no_accuracy_of_nine_tenths():
    """The entropy of the shares is the level, not ln 2, and 0.9 not the half."""
    problem = skewed(4.0)
    told = guessed(problem)
    labels, tested = np.asarray(problem.y).ravel(), np.asarray(problem.y_test)
    part = labels.mean()
    assert told.loss == pytest.approx(
        -part * np.log(part) - (1 - part) * np.log(1 - part), rel=1e-6
    )
    assert told.accuracy == pytest.approx(1 - tested.mean())
    learns = learnt(problem, 0.3, slots=300)
    assert (learns.verdict, learns.remark) == (FINISHED, "")
    early = learnt(skewed(1.0), 0.003, slots=60)
    assert early.last("test_accuracy") > 0.85
    assert (early.verdict, "still falls" in early.remark) == (FINISHED, True)
    noise = learnt(skewed(0.0), 0.3, slots=300)
    assert "most frequent class" in noise.remark + noise.reason


def line(slope, mean):
    """Return a regression with noise of standard deviation 1, without and with a constant."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(500, 4)).astype(np.float32)
    y = (slope * x[:, 0] + mean + rng.normal(size=500)).astype(np.float32)
    data = DataSet("line", x[:400], y[:400], x[400:], y[400:], 0)
    models = (linear((4,), 0), linear((4,), 0, intercept=True))
    return data, [make_problem(data, model, 5) for model in models]


def test_a_regression_is_held_against_the_mean():
    data, (without, with_constant) = line(1.0, 10.0)
    assert guessed(without).loss == pytest.approx(0.5 * data.y_train.var(), rel=1e-5)
    assert np.isnan(guessed(without).accuracy)
    lost, found = learnt(without, 0.1, slots=200), learnt(with_constant, 0.1, slots=200)
    assert lost.last("train_loss") < lost.rows[0]["train_loss"] * (1 - 1e-3)
    assert lost.verdict == NOT_LEARNING
    assert "model.intercept = true" in lost.reason
    assert (found.verdict, found.reason, found.remark) == (FINISHED, "", "")
    _, (noise, _) = line(0.0, 0.0)
    assert learnt(noise, 0.1, slots=200).verdict == NOT_LEARNING


def test_the_best_constant_of_the_other_heads_is_found_against_a_search():
    """One label in six is odd; a grid of constant scores finds no lower loss."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 240).astype(np.int32)
    x = rng.normal(size=(240, 2)).astype(np.float32)
    data = DataSet("three", x, y, x, y, 3)
    for name in ("logistic", "svm"):
        problem = make_problem(data, name, 3)
        scores = np.linspace(-4, 4, 4001)[:, None]
        sign = 2.0 * (y % 2) - 1
        margin = scores * sign
        each = (
            np.log1p(np.exp(-margin))
            if name == "logistic"
            else 0.5 * np.maximum(0, 1 - margin) ** 2
        )
        assert guessed(problem).loss == pytest.approx(each.mean(1).min(), rel=1e-5)
        assert guessed(problem).accuracy == pytest.approx((y % 2 == 0).mean())


def test_a_quadratic_and_one_class_have_nothing_to_guess(bowls):
    assert bowls.guess() is None
    x, y = np.ones((10, 2), np.float32), np.zeros(10, np.float32)
    flat = make_problem(DataSet("flat", x, y, x, y, 0), "linear", 2)
    assert flat.guess() is None


def test_a_remark_is_kept_and_shown_by_report_page_and_terminal(tmp_path):
    run = learnt(make_problem(load("digits"), "mlp", 5), 1e-3)
    place = run.save(tmp_path / "kept")
    (found,) = RunFolder.open(place).read().runs
    assert found.remark == run.remark == found.summary()["remark"] != ""
    (said,) = remarks([found])
    assert said.startswith(
        f"'{run.label}' compares badly with guessing (1 of 1 seeds): with seed 0"
    )
    assert said in html.unescape(write_report(place).read_text())
    assert said in make_source(place, cluster=False).state()["swings"]
