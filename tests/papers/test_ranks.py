"""Draws of the second plan: ranks in the place of sums, and no test with draws of both plans."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_audit import XIE, fedavg, sharing, verdict

from folkman.papers import deciders, evidence
from folkman.papers.results import Reproduction
from folkman.papers.verdicts import Reading, decided_by_ranks
from folkman.papers.xie2024.own import derive

NEW, NEWEST = 3000, 4000
distinct = st.lists(st.integers(-999, 999), min_size=8, max_size=14, unique_by=abs)


@settings(max_examples=30, deadline=None)
@given(distinct.filter(lambda numbers: 0 not in numbers))
def test_p_is_wilcoxons_and_the_interval_is_what_it_does_not_refute(numbers):
    d = np.array(numbers) + 0.25
    found = evidence.ranked(d)

    def p(shift):
        found: Any = stats.wilcoxon(d - shift, method="exact")  # its type says too little
        return float(found.pvalue)

    assert found.p == pytest.approx(p(0.0))
    tiny = 1e-6
    assert p(found.low - tiny) <= 0.05 < p(found.low + tiny)
    assert p(found.high + tiny) <= 0.05 < p(found.high - tiny)
    assert p(found.inner_low - tiny) <= 0.1 < p(found.inner_low + tiny)
    assert found.low <= found.inner_low <= found.mean <= found.inner_high <= found.high


def test_a_known_example():
    """Depression scores of Hollander and Wolfe; R's wilcox.test has 0.03906 and 0.010 to 0.786."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]

    found = evidence.ranked(np.subtract(before, after))

    told = (found.p, found.mean, found.low, found.high)
    assert told == pytest.approx((0.0390625, 0.46, 0.010, 0.786))


def test_one_draw_far_from_all_others_hides_nothing_and_decides_nothing():
    """Fifteen runs that are a little ahead, and one that was thrown back."""
    d = np.append(-0.03 - 0.001 * np.arange(15), 3.0)

    assert evidence.paired(d).p > 0.5
    found = evidence.ranked(d)
    assert found.p < 0.05
    assert found.high < 0
    assert evidence.ranked(np.append(0.001 * np.arange(-7, 8), 3.0)).within(0.02)


def test_differences_that_are_none_show_nothing():
    assert evidence.ranked(np.zeros(10))[:6] == (10, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert np.isnan(evidence.ranked(np.ones(7)).p)
    assert np.isnan(evidence.ranked([np.inf] * 9).mean)


def test_equal_by_a_tenth_is_held_against_the_tenth():
    """A difference of 18 % has to be shown above 10 %: 47 draws, not 11."""
    seen = evidence.paired([-0.0074, 0.2965, 0.4432, 0.0079, 0.1627])

    assert evidence.draws_needed(seen, 0.1) == 11
    assert evidence.draws_needed(seen, 0.1, equal=True) == 47
    on_the_margin = seen._replace(mean=0.1, effect=1.0)
    assert evidence.draws_needed(on_the_margin, 0.1, equal=True) is None


@pytest.mark.parametrize(("new", "ranked"), [(7, False), (8, True)])
def test_no_test_has_draws_of_both_plans(new, ranked):
    """Old draws say one thing, new ones the other: eight new ones decide alone."""
    told = {"ranks": (NEW,), "test": "lower"}
    ours = [sharing(0.5, seed) for seed in range(5)]
    other = [fedavg(0.6 + 0.001 * seed, seed) for seed in range(5)]
    for seed in range(NEW, NEW + new):
        ours.append(sharing(0.5, seed))
        other.append(fedavg(0.4 + 1e-5 * (seed - NEW), seed))

    found = deciders.compare_pairs("x", {"": (ours, other)}, told)

    assert (found.n, found.ranked) == ((8, True) if ranked else (5, False))
    assert found.verdict == ("contradicted" if ranked else "holds")
    assert found.says.endswith("fresh draws, p = 0.0078, corrected 0.0078") == ranked
    counted = deciders.oftener("", ours, other, (NEW,))
    assert (counted.spread.n, counted.ranked) == (found.n, ranked)


@pytest.mark.parametrize(("newest", "deciding"), [(7, "NEW"), (8, "NEWEST")])
def test_the_newest_plan_with_enough_draws_decides_alone(newest, deciding):
    """Each plan says another thing; draws of two are never together in a test."""
    ours, other = [], []
    for start, number, loss in ((0, 5, 0.5), (NEW, 9, 0.4), (NEWEST, newest, 0.6)):
        for seed in range(start, start + number):
            ours.append(sharing(0.5, seed))
            other.append(fedavg(loss + 1e-5 * (seed - start), seed))
    told = {"ranks": (NEW, NEWEST), "test": "lower"}

    found = deciders.compare_pairs("x", {"": (ours, other)}, told)
    counted = deciders.oftener("", ours, other, told["ranks"])

    number, word = {"NEW": (9, "contradicted"), "NEWEST": (8, "holds")}[deciding]
    assert (found.n, found.ranked, found.verdict) == (number, True, word)
    assert (counted.spread.n, counted.ranked) == (number, True)


@pytest.mark.parametrize(
    ("by_last", "verdict_of_both"), [("open", "holds"), ("contradicted", "open")]
)
def test_a_last_value_that_decides_nothing_opens_nothing(by_last, verdict_of_both):
    spread = evidence.Spread(9, -0.5, -0.6, -0.4, -1.0, 0.004, -0.6, -0.4)
    leaf = deciders.Leaf("", -1, spread, spread, 0.02, "", ("holds", by_last), ranked=True)

    found = deciders.decide("x", [leaf], deciders.correct([leaf]))
    old = deciders.decide("x", [leaf._replace(ranked=False)], deciders.correct([leaf]))

    assert (found.verdict, old.verdict) == (verdict_of_both, "open")


def test_claims_of_a_folder_with_both_say_which_draws_they_have():
    runs = []
    for seed in [*range(4), *range(NEW, NEW + 10)]:
        noise = 1 + 0.002 * (seed % 10)
        gain = 0.3 if seed >= NEW else 0.5
        runs += [sharing(gain * noise, seed, "figure"), fedavg(0.3 * noise, seed, 2.0)]
        runs += [fedavg(0.5 * noise, seed), sharing(0.5 * noise, seed, "theorem")]
    results = Reproduction(XIE, "smoke", derive(runs), [])

    cause, first = verdict(results, "5.2"), verdict(results, "5.1")

    assert cause.kind == "contradicted"  # by the new draws; the old have no gain to explain
    assert cause.confirmatory
    assert "n = 10, fresh draws" in cause.reason
    assert not first.confirmatory or all(r["ranked"] for r in first.readings if r["n"])


def test_a_claim_is_confirmatory_if_all_its_middle_readings_are():
    new, old = Reading("a", "open", "", ranked=True), Reading("b", "holds", "")
    none = Reading("c", "not run", "")

    assert decided_by_ranks([new, old], [{"middle": True}, {}])
    assert decided_by_ranks([new, none], [{"middle": True}, {"middle": True}])
    assert not decided_by_ranks([new, old], [{"middle": True}, {"middle": True}])
    assert not decided_by_ranks([none], [{}])
