"""The answer at the top of a report: the textbook's paired test, and costs counted by hand."""

import itertools
from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from folkman.record.run import Run
from folkman.report.answer import answer, cautions, costs_to, quantity
from folkman.report.panels import Line, Scale, panel, spread_out, ticks
from folkman.report.run_page import headline


def run(label, seed, losses, *, accuracies=None, bits=100.0, verdict="finished", reason=""):
    """Return a run of one slot a second that spends `bits` in each."""
    rows = [
        {
            "slots": float(slot), "seconds": float(slot), "gradients": float(slot),
            "bits": bits * slot, "energy_j": nan, "train_loss": loss, "max_age": 7.0,
            "test_accuracy": nan if accuracies is None else accuracies[slot], "rounds": 0.0,
        }
        for slot, loss in enumerate(losses)
    ]  # fmt: skip
    return Run("x", label, seed, rows, "finished", verdict=verdict, reason=reason)


def test_the_winner_leads_by_the_interval_and_p_of_a_paired_t_test():
    a, b = [0.10, 0.30, 0.20, 0.40], [0.21, 0.38, 0.33, 0.47]
    runs = [run("ours", s, [1.0, v]) for s, v in enumerate(a)]
    runs += [run("theirs", s, [1.0, v]) for s, v in enumerate(b)]

    first, second = answer(runs, {})

    assert first.startswith("ours has the lowest training loss: 0.25 ± ")
    test = stats.ttest_rel(b, a)
    low, high = test.confidence_interval(0.95)
    assert f"is {np.mean(b) - np.mean(a):.3g} higher" in second
    assert f"95 % interval {low:.2g} to {high:.2g}, 4 seeds paired, p = {test.pvalue:.2g}" in second


def test_a_lead_within_chance_is_no_lead():
    runs = [run("a", s, [1.0, v]) for s, v in enumerate((0.1, 0.5, 0.3))]
    runs += [run("b", s, [1.0, v]) for s, v in enumerate((0.2, 0.3, 0.5))]

    assert "no clear lead: b cannot be told from a" in answer(runs, {})[1]


def test_one_seed_is_told_to_prove_nothing():
    runs = [run("a", 0, [1.0, 0.1]), run("b", 0, [1.0, 0.2])]

    said = " ".join(answer(runs, {}))

    assert "With one seed chance and effect cannot be told apart" in said
    assert "interval" not in said


def test_a_method_on_another_network_is_a_bound_and_does_not_win():
    runs = [run(n, s, [1.0, v + s / 100]) for n, v in (("a", 0.2), ("b", 0.3), ("free", 0.01))
            for s in range(3)]  # fmt: skip
    networks = {"a": "radio", "b": "radio", "free": "ideal"}

    said = answer(runs, networks)

    assert said[0].startswith("a has the lowest training loss on the network 'radio'")
    assert "a bound, not an opponent: free (network 'ideal'" in said[-1]
    found = costs_to(runs, "train_loss", "seconds", networks)
    assert found is not None
    assert [cost.label for cost in found.paid] == ["a", "b"]
    assert [cost.label for cost in found.apart] == ["free"]


def test_costs_are_those_of_the_first_row_at_what_every_run_reaches():
    """Losses 10 - t and 10 - 2 t over 5 slots: all reach 5, after five slots and after three."""
    slow = [run("slow", s, [10.0 - t for t in range(6)], bits=10.0) for s in range(3)]
    fast = [run("fast", s, [10.0 - 2 * t for t in range(6)], bits=100.0) for s in range(3)]

    in_time, in_bits = (costs_to([*slow, *fast], "train_loss", x) for x in ("seconds", "bits"))

    assert in_time is not None
    assert in_bits is not None
    assert in_time.target == 5.0
    assert [(c.label, c.mean) for c in in_time.paid] == [("fast", 3.0), ("slow", 5.0)]
    assert [(c.label, c.mean) for c in in_bits.paid] == [("slow", 50.0), ("fast", 300.0)]
    assert in_bits.told() == (
        "slow needs the fewest bits to training loss 5: slow 50 bit; fast 300 bit."
    )
    assert costs_to(slow, "train_loss", "energy_j") is None


def test_more_accuracy_is_better():
    runs = [run("a", 0, [1.0] * 3, accuracies=[0.1, 0.5, 0.9])]
    runs += [run("b", 0, [1.0] * 3, accuracies=[0.1, 0.7, 0.7])]

    found = costs_to(runs, "test_accuracy", "seconds")

    assert found is not None
    assert found.target == 0.7
    assert [(c.label, c.mean) for c in found.paid] == [("b", 1.0), ("a", 2.0)]


def test_what_does_not_learn_is_told_first_and_sets_no_target():
    good = [run("good", s, [1.0, 0.5]) for s in range(3)]
    bad = [run("bad", s, [1.0, 9.0], verdict="not learning", reason="it rose; try less")
           for s in range(3)]  # fmt: skip

    page = headline([*good, *bad], {})

    assert page.index("bad: 3 of 3 runs not learning; it rose; try less") < page.index("verdict")
    found = costs_to([*good, *bad], "train_loss", "seconds")
    assert found is not None
    assert found.target == 0.5
    assert [cost.label for cost in found.paid] == ["good"]


def test_a_loss_that_ends_far_above_its_lowest_is_told_with_a_remedy():
    steady, unsteady = run("steady", 0, [2.0, 1.0, 0.9]), run("swings", 0, [2.0, 0.5, 1.9])

    (line,) = cautions([steady, unsteady])

    assert line.startswith("swings is unsteady: its training loss ends at 1.9, it had been at 0.5")
    assert "7 slots old. Try a smaller step" in line


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [("bits", 4.2e7, "42 Mbit"), ("seconds", 0.004, "4 ms"), ("energy_j", 0.889, "889 mJ"),
     ("gradients", 200.0, "200"), ("seconds", 3600.0, "3600 s"), ("bits", nan, "-")],
)  # fmt: skip
def test_amounts_have_units(axis, value, text):
    assert quantity(axis, value) == text


@given(
    st.lists(st.floats(0, 200), min_size=1, max_size=6).map(sorted),
)
def test_names_keep_their_order_and_distance(places):
    found = spread_out(places, 14, 0, 200)

    assert len(found) == len(places)
    assert all(b - a >= 14 - 1e-6 for a, b in itertools.pairwise(found))
    if all(b - a >= 14 for a, b in itertools.pairwise(places)):
        assert found == pytest.approx(places)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_even_and_within_the_axis(low, span):
    found = ticks(Scale(low, low + span, False, 0, 1), 5)

    assert 1 <= len(found) <= 7
    assert min(found) >= low - 1e-6 * span
    assert max(found) <= low + span * (1 + 1e-6)


def test_a_panel_draws_the_mean_where_the_axes_say():
    """From (0, 1) to (10, 3) on axes of 0..10 and 0.88..3.12, both ends at their places."""
    line = Line("a <b>", np.array([0.0, 10.0]), np.array([1.0, 3.0]), None, 0)

    svg = panel("p", [line], "x", "y", "what it shows")

    assert "a &lt;b&gt;" in svg
    height, (low, high) = 200.0, (0.88, 3.12)
    start, end = (10 + height * (high - v) / (high - low) for v in (1.0, 3.0))
    right = 400 - 10 - (6.3 * 5 + 8)
    assert f'd="M52.0 {start:.1f}L{right:.1f} {end:.1f}"' in svg


def test_grey_curves_have_no_name():
    some = [Line(f"n{i}", np.arange(3.0), np.arange(3.0) + i, None, 0 if i == 3 else None)
            for i in range(9)]  # fmt: skip

    svg = panel("p", some, "x", "y", "")

    assert svg.count('class="other"') == 8
    assert svg.count("<title>") == 1
