"""Theorem D and its corollary: ages that the index schedule guarantees, and the loss they allow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.theory import ages as ag
from tests.reference.band import index_choice, known, play


def drop(seed, static):
    rng = np.random.default_rng(seed)
    nodes, slots = int(rng.integers(2, 5)), 60
    level = np.exp(rng.standard_normal((nodes, nodes)) * rng.uniform(0, 1.5)) * rng.uniform(0.2, 3)
    fading = 1.0 if static else rng.uniform(0.4, 1.6, (slots, nodes, nodes))
    return np.broadcast_to(level * fading, (slots, nodes, nodes)).copy()


def watched(cost, kind):
    """Return rms age and H at every decision of the index rule, and its airtime; and the ages."""
    rule, seen = index_choice(kind), []

    def choose(held, now, slot, rng):
        nodes = len(held)
        off = ~np.eye(nodes, dtype=bool)
        rms = np.sqrt(((slot - held)[off].astype(float) ** 2).mean())
        chosen = rule(held, now, slot, rng)
        spent = max(now[i, chosen[0]] for i in chosen[2]) if chosen else 0.0
        seen.append((rms, ag.round_slots(now[None])[0], spent))
        return chosen

    ages = play(cost, kind, choose)
    return np.array(seen), ages


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(["copy", "forward", "whole"]))
@settings(max_examples=25, deadline=None)
def test_ages_stay_below_what_is_guaranteed(seed, static, kind):
    cost = drop(seed, static)

    seen, ages = watched(cost, kind)
    rms, each_round, spent = seen.T

    limit = ag.guaranteed_age_slots(cost)
    assert (rms <= limit + 1e-9).all()
    assert (spent <= each_round + 1e-9).all()  # c <= H
    assert (spent * rms / (2 * each_round)).sum() <= 1 + len(cost) + spent[-1]  # any channel
    off = ~np.eye(len(cost[0]), dtype=bool)
    at_slots = np.sqrt((ages[:, off].astype(float) ** 2).mean(axis=1))
    assert (at_slots <= limit + spent.max()).all()


@given(st.integers(0, 10**6), st.sampled_from(["copy", "forward", "whole"]))
@settings(max_examples=60, deadline=None)
def test_the_index_is_at_least_the_mean_square_over_a_round(seed, kind):
    """The lemma: V >= sum of x^2 / H for any ages whatever, reached or not."""
    rng = np.random.default_rng(seed)
    nodes, slot = int(rng.integers(2, 6)), 50
    cost, held = rng.exponential(2.0, (nodes, nodes)) + 0.01, rng.integers(0, 50, (nodes, nodes))
    np.fill_diagonal(held, slot)

    k, origin, taken = index_choice(kind)(held, cost, slot, rng)

    stamps = known(held, kind, k, origin, slot)
    age, new = (slot - held).astype(float), np.where(stamps >= 0, slot - stamps, np.inf)
    gain = 0.0
    for i in taken:
        each = np.where(np.isfinite(new), age[i] ** 2 - np.where(np.isfinite(new), new, 0) ** 2, 0)
        each[i] = 0
        gain += each.sum() if kind == "whole" else np.maximum(each, 0).sum()
    longest = max(cost[i, k] for i in taken)
    assert gain / longest >= (age**2).sum() / ag.round_slots(cost[None])[0] * (1 - 1e-12)


def test_a_static_symmetric_drop_is_within_a_factor_of_four_of_round_robin():
    cost = np.full((300, 4, 4), 2.0)

    seen, _ = watched(cost, "copy")

    period = ag.round_slots(cost)[0]
    assert period == 8.0
    assert period / 2 < seen[20:, 0].mean() < ag.guaranteed_age_slots(cost) == 2 * period + 1


def test_the_best_step_has_the_least_bound():
    gap, slots, age, smooth, slope, nodes = 2.0, 5000, 12.0, 1.0, 0.7, 5

    best = ag.best_step(gap, slots, age, smooth, slope, nodes)
    bounds = [ag.loss_bound(gap, f * best, slots, age, smooth, slope, nodes) for f in (0.9, 1, 1.1)]

    late = smooth * slope * 0.8 * age
    assert bounds[1] == min(bounds) == pytest.approx(3 * (gap * late / slots) ** (2 / 3))
    assert ag.best_step(gap, slots, 0.0, smooth, slope, nodes) == 1.0
    with pytest.raises(ValueError, match="eta L <= 1"):
        ag.loss_bound(gap, 2.0, slots, age, smooth, slope, nodes)
