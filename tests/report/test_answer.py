"""The answer at the top of a report: the textbook's paired test, and costs counted by hand."""

import itertools
import re
from html import unescape
from math import nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from folkman.record.run import COLUMNS, Run
from folkman.record.terms import TERMS
from folkman.record.tuned import sides_of
from folkman.record.verdict import remarks, swings
from folkman.report.answer import answer, costs_to, quantity
from folkman.report.networks import bounds, network_names, unlike_rules
from folkman.report.panels import Line, Scale, panel, spread_out, ticks
from folkman.report.run_page import costs_table, headline, results_table


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
    assert f"95 % interval {low:.3g} to {high:.3g}, 4 seeds paired, p = {test.pvalue:.2g}" in second


def test_a_narrow_interval_is_told_with_the_digits_that_it_has():
    """The difference lies between the ends, as they are printed."""
    runs = [run("a", s, [1.0, 0.1 + v]) for s, v in enumerate((0.0, 0.0002, 0.0004))]
    runs += [run("b", s, [1.0, 0.427 + v]) for s, v in enumerate((0.0001, 0.0002, 0.0003))]

    second = answer(runs, {})[1]

    low, high = (float(end) for end in re.findall(r"interval ([\d.]+) to ([\d.]+),", second)[0])
    assert low < 0.327 < high
    assert high - low < 0.001


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
    assert "a reference, not an opponent: free (network 'ideal'" in said[-1]
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
    assert in_bits.cheapest() == "slow"  # no seed has a part in it
    assert in_bits.told() == (
        "slow needs the fewest bits to training loss 5: slow 50 bit; fast 300 bit."
    )
    assert costs_to(slow, "train_loss", "energy_j") is None


def test_a_method_is_cheapest_where_the_paired_costs_leave_out_chance():
    losses = ([9.0, 5.0, 5.0], [9.0, 8.0, 5.0])
    runs = [run("fast", s, losses[0], bits=10.0 + s) for s in range(3)]
    runs += [run("slow", s, losses[1], bits=10.0 + s) for s in range(3)]

    found = costs_to(runs, "train_loss", "bits")

    assert found is not None
    assert found.cheapest() == "fast"
    assert found.told() == (
        "fast needs the fewest bits to training loss 5: fast 11 bit; slow 22 bit."
    )


def test_a_difference_that_all_seeds_share_is_told_and_proves_nothing():
    """One test sample of 160 in each of three seeds, in the single precision of a run."""
    hits = {"ours": (150, 152, 155), "theirs": (149, 151, 154)}
    runs = [run(n, s, [1.0, 0.5], accuracies=[0.1, float(np.float32(k / 160))])
            for n, own in hits.items() for s, k in enumerate(own)]  # fmt: skip

    said = " ".join(answer(runs, {}))

    assert "theirs, the next, is 0.00625 lower, the same in all 3 seeds, which says" in said
    assert "95 % interval" not in said
    assert "p < 0.001" not in said


def test_cards_say_what_level_costs_are_to_and_tie_by_the_word_of_the_glossary():
    losses = {"fast": [9.0, 5.0, 4.0], "slow": [9.0, 8.0, 5.0]}
    page = headline([run(n, s, own) for n, own in losses.items() for s in range(2)], {})

    assert "Least time to training loss 5, which every run reaches" in page
    assert "fast (tied)" in page
    assert "unsure" not in page
    assert "fewer than three seeds" in TERMS["tied"]


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


def noted(runs):
    """Return what stands calmly after the table of results."""
    for each in runs:
        each.rows = [dict.fromkeys(COLUMNS, nan) | row for row in each.rows]
    return unescape(results_table(runs, "algorithm").partition('<ul class="noted"')[2])


def test_a_run_that_only_guesses_is_told_before_the_answer():
    """Its loss still falls, so it finished: what it is worth is no side note."""
    low = run("low", 0, [2.4, 2.35])
    low.remark = "it ended at training loss 2.35"
    page = unescape(headline([low], {}))
    assert page.index("'low' compares badly with guessing (1 of 1 seeds)") < page.index("verdict")


def test_a_loss_that_ends_far_above_its_lowest_is_told_once_as_the_terminal_tells_it():
    steady, unsteady = run("steady", 0, [2.0, 1.0, 0.9]), run("swings", 0, [2.0, 0.5, 1.9])
    others = [run("swings", seed, [2.0, 1.0, 0.9]) for seed in (1, 2)]

    (line,) = swings([steady, unsteady, *others])

    assert line.startswith("'swings' swings (1 of 3 seeds): with seed 0 the training loss had been")
    found = [steady, unsteady, *others]
    assert line in noted(found)
    assert "wrong" not in headline(found, {})
    assert not swings([run("a", 0, [2.0, 0.5, 0.9])])  # within the factor of `record.verdict`


def test_pairs_that_never_heard_each_other_are_told_as_the_terminal_tells_them():
    dead, alive = (run("radio", seed, [2.0, 1.0]) for seed in (0, 1))
    for row, pairs in zip(dead.rows + alive.rows, (30, 4, 30, 0), strict=True):
        row["pairs_unheard"] = float(pairs)

    (line,) = remarks([dead, alive])

    assert line.startswith(
        "'radio' has unheard pairs (1 of 2 seeds): with seed 0 the nodes of 4 of"
    )
    assert "lower threshold_db" in line
    assert line in noted([dead, alive])
    assert "wrong" not in headline([dead, alive], {})
    assert not remarks([alive])


def test_the_winner_is_that_of_the_seeds_that_methods_share():
    """By the seed that all have a would win; by four seeds b is ahead by 0.425."""
    values = {"a": [0.1, 0.9, 0.9, 0.9], "b": [0.2, 0.3, 0.3, 0.3], "c": [0.5]}
    runs = [run(n, s, [1.0, v]) for n, own in values.items() for s, v in enumerate(own)]

    said = answer(runs, {})

    assert said[0].startswith("Tied in training loss: b 0.275 ± ")
    assert "; a 0.7" in said[0]
    assert "no clear lead: a cannot be told from b (95 % interval -0.132 to 0.982, 4" in said[1]
    assert said[2] == "With too few seeds, and so not ranked: c (one seed)."
    assert not any("With one seed" in line for line in said)


def test_costs_are_those_of_the_seeds_that_methods_share():
    """The fourth seed of a would set the target 2.5; c has one seed."""
    runs = [run("a", s, [3.0, 1.0, 1.0]) for s in range(3)] + [run("a", 3, [3.0, 2.9, 2.5])]
    runs += [run("b", s, [3.0, 2.0, 1.0]) for s in range(3)] + [run("c", 0, [3.0, 0.1, 0.1])]

    found = costs_to(runs, "train_loss", "seconds")

    assert found is not None
    assert found.target == 1.0
    assert [(cost.label, cost.mean) for cost in found.paid] == [("a", 1.0), ("b", 2.0)]


def test_seeds_that_only_some_have_do_not_count():
    runs = [run("a", s, [1.0, v]) for s, v in enumerate((0.3, 0.31, 0.32, 0.0, 0.0))]
    runs += [run("b", s, [1.0, v]) for s, v in enumerate((0.2, 0.21, 0.22))]

    said = answer(runs, {})

    assert said[0] == "b has the lowest training loss: 0.210 ± 0.025."
    assert "a, the next, is 0.1 higher" in said[1]
    assert said[-1] == "Compared over what all of them have: 3 seeds."


def test_without_a_common_seed_nobody_is_ranked():
    said = answer([run("a", 0, [1.0, 0.1]), run("b", 1, [1.0, 0.2])], {})

    assert said == ["No seed is common to a, b, and so they are not ranked."]


def test_diverged_runs_are_said_to_have_diverged():
    both = [run(n, s, [1.0, nan], verdict="diverged") for n in "ab" for s in range(3)]
    assert answer(both, {}) == ["No run has a finite loss."]
    assert "No run has begun" not in headline(both, {})

    assert answer(both[:3], {})[0] == (
        "a diverged: in 3 of 3 runs its training loss is not finite at the end."
    )
    assert answer(both[:1], {})[0] == "a diverged: its training loss is not finite at the end."
    assert "No run has begun" in headline([], {})


def test_only_an_ideal_network_is_a_bound():
    runs = [run(n, s, [1.0, v + s / 100]) for n, v in (("a", 0.2), ("b", 0.3), ("free", 0.1),
            ("slow", 0.6)) for s in range(3)]  # fmt: skip
    networks = {"a": "radio", "b": "radio", "free": "ideal", "slow": "pipelined, gamma=9"}

    bound, other = answer(runs, networks)[-2:]

    assert bound.startswith("On another network, and so a reference, not an opponent: free (")
    assert other.startswith("On another network, and so not ranked: slow (network 'pipelined, gam")


def test_networks_differ_in_their_options_but_not_in_what_a_method_chooses():
    def named(*tables):
        sides = [{"label": str(i), "network": table} for i, table in enumerate(tables)]
        common = {"name": "pipelined", "gamma": 5}
        return list(network_names(sides_of({"network": common, "algorithm": sides})).values())

    radio = {"name": "radio", "schedule": "threshold", "message": "copy", "threshold_db": 0.0}
    other = {"name": "radio", "schedule": "index", "message": "sum", "threshold_db": -5.0}

    assert named(None, {"name": "pipelined", "gamma": 5.0}) == ["pipelined", "pipelined"]
    assert named(None, {"name": "pipelined", "gamma": 15}) == [
        "pipelined, gamma=5", "pipelined, gamma=15"]  # fmt: skip
    assert named(radio, other, None) == ["radio", "radio", "pipelined"]
    assert named(radio, {**other, "bandwidth_hz": 1e6})[1] == "radio, bandwidth_hz=1000000.0"


@pytest.mark.parametrize(("count", "words"), [(1, "one seed"), (2, "two seeds")])
def test_with_few_seeds_costs_have_an_order_and_no_verdict(count, words):
    runs = [run(n, s, [3.0, 2.0, v]) for n, v in (("slow", 1.0), ("fast", 0.5))
            for s in range(count)]  # fmt: skip
    runs += [run("first", s, [3.0, 1.0, 0.5]) for s in range(count)]

    found = costs_to(runs, "train_loss", "seconds")

    assert found is not None
    assert found.cheapest() == "first (tied)"
    assert found.told() == (
        f"In time to training loss 1, with {words}: first 1 s; slow 2 s; fast 2 s."
    )
    assert f"With {words} chance" in answer(runs, {})[-1]


def test_everyone_who_cannot_be_told_from_the_winner_is_named():
    """c varies so much that its interval holds 0, though b has the better mean."""
    values = {"a": (0.10, 0.11, 0.12), "b": (0.20, 0.21, 0.23), "c": (0.1, 0.8, 0.1)}
    runs = [run(n, s, [1.0, v]) for n, own in values.items() for s, v in enumerate(own)]

    said = answer(runs, {})[1]

    assert said.startswith("The training loss of b, the next, is 0.103 higher (95 % interval")
    assert said.endswith(" c cannot be told from a.")


def test_equal_values_are_said_to_be_equal():
    values = {"a": 0.5, "b": 0.5, "c": 0.75}
    runs = [run(n, s, [1.0, v]) for n, v in values.items() for s in range(3)]

    assert answer(runs, {})[0] == "a, b are equal in training loss: 0.5, the lowest."
    assert "c, the next, is 0.25 higher" in answer(runs, {})[1]
    assert answer(runs[:6], {}) == ["a, b are equal in training loss: 0.5."]


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
    right = 400 - 10 - (7.2 * 5 + 8)
    assert f'd="M52.0 {start:.1f}L{right:.1f} {end:.1f}"' in svg


def test_grey_curves_have_no_name():
    some = [Line(f"n{i}", np.arange(3.0), np.arange(3.0) + i, None, 0 if i == 3 else None)
            for i in range(9)]  # fmt: skip

    svg = panel("p", some, "x", "y", "")

    assert svg.count('class="other"') == 8
    assert svg.count("<title>") == 1


def test_a_reference_is_neither_bold_nor_in_a_box():
    """Free links end lowest, and alone learn in all seeds: still nobody has won by them."""
    free = [run("Free links", seed, [2.0, 0.1]) for seed in range(3)]
    air = [
        run("On the air", seed, [2.0, 2.5], verdict="not learning", reason="the loss rises")
        for seed in range(3)
    ]
    networks = {"Free links": "ideal", "On the air": "radio"}
    for each in [*free, *air]:
        for row in each.rows:
            row |= dict.fromkeys(("optimum_distance", "mean_age", "kappa"), nan)

    table = results_table([*free, *air], "algorithm", apart=bounds(networks))

    best = next(row for row in table.split("<tr") if 'class="best"' in row)
    assert "On the air" in best
    assert "to training loss" not in headline([*free, *air], networks)
    assert "to training loss" in headline([*free, *air], {})


def test_costs_are_told_to_the_end_of_the_worst_and_to_that_of_the_second_best():
    """Who ends at 0.1 says nothing by what it paid to reach 0.9, where the worst one stops."""
    losses = {"quick": [2.0, 0.9, 0.2], "far": [2.0, 1.0, 0.1], "worst": [2.0, 1.5, 0.8]}
    runs = [run(n, s, [v + s / 100 for v in own]) for n, own in losses.items() for s in range(3)]

    table = costs_table(runs, {})

    first, second = table.split("<h3>Cost of the same result</h3>")[1].split("</table>")[:2]
    assert "To training loss 0.82, the lowest that every run reaches." in first
    assert "worst sets it" in first
    assert (
        "To training loss 0.22, the lowest that far and quick both reach. quick sets it" in second
    )
    assert "<td>worst</td>" in first
    assert "<td>worst</td>" not in second
    two = costs_table([each for each in runs if each.label != "worst"], {})
    assert two.count("To training loss") == 1


def test_sides_that_share_the_band_by_different_rules_are_named_before_the_run():
    def side(label, **network):
        return {"label": label, "network": {"name": "radio", **network}}

    def told(*tables):
        return unlike_rules(sides_of({"algorithm": [*tables], "network": {"name": "radio"}}))

    index, rule = side("fresh", schedule="index"), side("rule", schedule="threshold")
    line = told(index, rule, {"label": "plain"})

    assert "schedule 'index': fresh; schedule 'threshold': rule, plain" in line
    assert told(index, index) == told(rule, {"label": "plain"}) == ""
    assert told(index, {"label": "free", "network": {"name": "ideal"}}) == ""
