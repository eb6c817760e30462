"""The delay laws against their definitions, slot by slot."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from folkman import (
    Recording,
    constant,
    fedavg,
    ideal,
    iid,
    pipelined,
    record_timeline,
    simulate,
    snapshot,
)

NODES, SLOTS = 6, 60


def ages(timeline):
    """Return t - tau_ij(t) for i != j: (slot, pair)."""
    others = ~np.eye(timeline.held.shape[1], dtype=bool)
    return (np.arange(len(timeline.held))[:, None, None] - timeline.held)[:, others]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_snapshot_ages_stay_below_gamma_and_every_node_shares_on_its_beat(gamma, seed):
    timeline = record_timeline(snapshot(gamma), NODES, SLOTS, seed)

    assert ages(timeline)[gamma:].max() == gamma - 1
    assert ages(timeline).min() == 0
    for tx in range(NODES):
        beats = np.flatnonzero(timeline.sends[:, tx]) + 1
        assert (np.diff(beats) == gamma).all()
        assert beats[0] <= gamma
        for t in range(SLOTS):  # the copy held is the last one sent, at once
            sent = beats[beats <= t]
            assert (np.delete(timeline.held[t, :, tx], tx) == (sent[-1] if len(sent) else 0)).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_pipelined_ages_run_from_gamma_to_twice_gamma_less_one(gamma, seed):
    found = ages(record_timeline(pipelined(gamma), NODES, SLOTS, seed))[3 * gamma :]

    assert found.min() == gamma
    assert found.max() == 2 * gamma - 1


@pytest.mark.parametrize("delay", [0, 1, 7])
def test_constant_copies_are_exactly_as_old_as_said(delay):
    found = ages(record_timeline(constant(delay), NODES, SLOTS))

    np.testing.assert_array_equal(
        found, np.minimum(np.arange(SLOTS), delay)[:, None] + np.zeros_like(found)
    )


def test_ideal_copies_are_current():
    assert ages(record_timeline(ideal(), NODES, SLOTS)).max() == 0


def test_iid_ages_are_uniform_and_independent():
    found = ages(record_timeline(iid(5), NODES, 400))[5:]

    counts = np.bincount(found.ravel(), minlength=5)
    assert len(counts) == 5
    assert stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]) < 0.05  # from slot to slot
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.2  # between two pairs, 395 slots


def test_under_the_iid_law_a_round_waits_for_its_slowest_transfer(digits):
    """Each transfer takes U{1 .. 4} slots: over many, all four lengths, equally often."""
    run = simulate(digits, iid(4), fedavg(0.1), slots=600, recording=Recording(600, timeline=True))

    starts, ends = (
        np.argwhere(table.T) for table in (run.timeline.up_started, run.timeline.up_arrived)
    )
    lengths = [
        ends[ends[:, 0] == node, 1][: len(own)] - own[: len(ends[ends[:, 0] == node])]
        for node in range(5)
        for own in [starts[starts[:, 0] == node, 1]]
    ]
    counts = np.bincount(np.concatenate(lengths), minlength=5)
    assert counts[0] == 0
    assert len(counts) == 5
    assert stats.chisquare(counts[1:]).pvalue > 1e-3


def test_iid_ages_never_reach_before_the_start():
    timeline = record_timeline(iid(10), NODES, 12)

    assert timeline.held.min() == 0
    assert len(np.unique(ages(timeline)[1])) == 2  # ages 0 and 1 in slot 1


@pytest.mark.parametrize("build", [snapshot, iid, pipelined])
@pytest.mark.parametrize("gamma", [0, -1, 2.5])
def test_a_gamma_that_is_no_number_of_slots_is_refused(build, gamma):
    with pytest.raises(ValueError, match="gamma must be a whole number of slots of at least 1"):
        build(gamma)


def test_a_negative_delay_is_refused():
    with pytest.raises(ValueError, match="delay must be a whole number"):
        constant(-1)
