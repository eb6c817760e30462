"""The statistics behind verdicts, against SciPy, by hand, and on cases whose answer is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from folkman.papers import evidence

NAN = float("nan")


def p_of(found):
    return found.pvalue


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=3, max_size=10))
def test_sign_flips_are_scipys_exact_permutations(differences):
    d = np.round(np.array(differences), 3)
    if not d.any():
        assert evidence.sign_flip_p(d) == 1.0
        return

    def mean(x, axis):
        return np.abs(x.mean(axis=axis))

    # more than there are of ten draws: all of them
    known = stats.permutation_test(
        (d,), mean, permutation_type="samples", n_resamples=2**11, alternative="greater"
    )
    assert evidence.sign_flip_p(d) == pytest.approx(known.pvalue, abs=1e-12)


def test_sign_flips_of_many_draws_are_exact_and_then_sampled():
    """All of one sign: two flips of 2^n are as far; from 41 draws on they are drawn."""
    assert evidence.sign_flip_p([1.0] * 30) == 2**-29
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(41)
    t = p_of(stats.ttest_1samp(noise, 0.0))
    assert evidence.sign_flip_p(noise) == pytest.approx(t, abs=0.02)


def test_below_eight_draws_the_test_is_students_and_with_five_no_flip_could_decide():
    d = np.array([0.3, 0.25, 0.4, 0.2, 0.35])

    assert evidence.paired(d).p == pytest.approx(p_of(stats.ttest_1samp(d, 0.0)))
    assert evidence.sign_flip_p(d) == 2 / 2**5 > evidence.LEVEL
    eight = np.append(d, [0.3, 0.2, 0.4])
    assert evidence.paired(eight).p == 2 / 2**8


def test_equal_is_shown_by_two_one_sided_tests():
    """At the margin where the larger p of both one-sided tests is 5 %, the verdict turns."""
    d = np.array([0.01, -0.004, 0.006, 0.012, -0.002, 0.003])
    spread = evidence.paired(d)

    def larger_p(margin):
        up = p_of(stats.ttest_1samp(d, margin, alternative="less"))
        return max(up, p_of(stats.ttest_1samp(d, -margin, alternative="greater")))

    for margin in (0.005, 0.008, 0.0095, 0.01, 0.02):
        assert spread.within(margin) == (larger_p(margin) <= 0.05)


def test_who_never_came_is_later_and_both_never_is_a_tie():
    times = [(10.0, 20.0), (10.0, NAN), (NAN, 5.0), (NAN, NAN), (7.0, 7.0)]

    found = evidence.sooner(times)

    assert (found.ours, found.other, found.ties) == (2, 1, 2)
    assert found.p == pytest.approx(stats.binomtest(2, 3).pvalue)
    assert evidence.sooner([(1.0, NAN)] * 8).p == pytest.approx(2**-7)


@pytest.mark.parametrize(
    ("losses", "is_thrown"),
    [
        ([2.0, 1.0, 0.5, 0.4, 0.3, 0.2], False),
        ([2.0, 1.0, 0.5, 0.4, 0.61, 0.2], True),  # 1.525 times its least
        ([2.0, 1.0, 0.5, 0.4, 0.59, 0.2], False),
        ([2.0, 1.0, 0.5, np.inf, np.inf, np.inf], True),
        ([1.0] + [2.0] * 1 + [0.9] * 20, False),  # in the first tenth
        ([0.1, 0.2, 0.2, 0.2], True),
    ],
)
def test_a_run_is_thrown_back_above_one_and_a_half_times_its_least_loss(losses, is_thrown):
    assert evidence.thrown_back(losses) is is_thrown


def test_fishers_test_is_scipys():
    known = p_of(stats.fisher_exact([[7, 18], [0, 20]]))
    assert evidence.fisher((7, 25), (0, 20)) == pytest.approx(known)
    assert known == pytest.approx(0.012, abs=5e-4)


def test_the_correction_is_by_hand():
    """Of 0.01, 0.02, 0.03, 0.5 the corrected are 0.04, 0.04, 0.04, 0.5; NaN is no test."""
    found = evidence.corrected({"a": 0.01, "b": 0.03, "c": 0.02, "d": 0.5, "e": NAN})

    assert found == pytest.approx({"a": 0.04, "b": 0.04, "c": 0.04, "d": 0.5})
    assert evidence.corrected({"a": NAN}) == {}


def test_the_draws_that_are_told_have_the_power_that_is_told(monkeypatch):
    """Of 2,000 made-up audits with so many draws eight in ten decide, for either answer."""
    monkeypatch.setattr(evidence, "sign_flip_p", lambda *_: NAN)  # dear, and not asked for here
    rng = np.random.default_rng(3)
    seen = evidence.Spread(5, 0.5, 0, 1, 0.5 / 0.8)
    count = evidence.draws_needed(seen, 0.02)
    assert count is not None
    told = p_of(stats.ttest_1samp(0.5 + 0.8 * rng.standard_normal((2000, count)), 0, axis=1))
    assert np.mean(told <= 0.05) == pytest.approx(0.8, abs=0.04)
    alike = evidence.Spread(5, 1e-6, 0, 1, 1e-6 / 0.05)
    count = evidence.draws_needed(alike, 0.02)
    drawn = [evidence.paired(0.05 * rng.standard_normal(count)).within(0.02) for _ in range(300)]
    assert np.mean(drawn) == pytest.approx(0.8, abs=0.08)
    assert evidence.draws_needed(evidence.Spread(2, 1, 0, 2, 1), 0.02) is None
