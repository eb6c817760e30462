"""The delay laws against their definitions, slot by slot."""

import jax
import jax.numpy as jnp
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
from folkman.radio.delay import LONGEST_SLOTS

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


def told(name, n, gamma, phase):
    """Return tau_ij(n) of each sender as the table of the laws has it, looking back slot by slot."""
    if name == "constant":
        return np.full(len(phase), max(n - gamma, 0))
    begun = [
        [s for s in range(n + 1) if s >= first and (s - first) % gamma == 0] for first in phase
    ]
    if name == "pipelined":  # what was begun a whole gamma ago has arrived
        begun = [[s for s in beats if s + gamma <= n] for beats in begun]
    return np.array([max(beats, default=0) for beats in begun])


@pytest.mark.parametrize("build", [constant, snapshot, pipelined], ids=lambda b: b.__name__)
@pytest.mark.parametrize("gamma", [1, 2, 15, 16, 31, 32, 33, 63, 64, 65])
def test_a_law_is_its_row_of_the_table_from_the_first_slot_on(build, gamma):
    """Short ones, and those at and beyond the slots that every law keeps: powers of two."""
    slots = 4 * gamma + 3

    timeline = record_timeline(build(gamma), 4, slots)

    phase = np.argmax(timeline.sends, axis=0) + 1  # a phase of 0 sends in slot gamma first
    others = ~np.eye(4, dtype=bool)
    for n, held in enumerate(timeline.held):
        expected = np.broadcast_to(told(build.__name__, n, gamma, phase % gamma), (4, 4))
        np.testing.assert_array_equal(held[others], expected[others])


@pytest.mark.parametrize("gamma", [32, 64])
def test_ages_of_the_iid_law_reach_back_to_gamma_less_one_and_no_further(gamma):
    found = ages(record_timeline(iid(gamma), NODES, 200))

    assert found.max() == gamma - 1
    assert found.min() == 0


LAWS = [ideal, lambda **o: constant(2, **o), snapshot, iid, pipelined]


@pytest.mark.parametrize("build", LAWS)
def test_a_parameter_costs_one_bit_at_least(build):
    assert build(bits_per_parameter=1).bits_per_parameter == 1
    with pytest.raises(ValueError, match="bits_per_parameter must be at least 1, got 0"):
        build(bits_per_parameter=0)


@pytest.mark.parametrize(("build", "least"), [(constant, 0), (snapshot, 1), (iid, 1)])
def test_the_shortest_and_the_longest_law_are_taken_and_those_beyond_refused(build, least):
    for slots in (least, LONGEST_SLOTS):
        assert build(slots).gamma == slots
    for slots in (least - 1, LONGEST_SLOTS + 1):
        with pytest.raises(ValueError, match=f"at least {least} and at most 1000000, got {slots}"):
            build(slots)


TRIPS = {
    "ideal": (ideal(), 0, 0),
    "constant": (constant(3), 3, 3),
    "snapshot": (snapshot(2), 2, 0),
    "pipelined": (pipelined(4), 4, 4),
    "free answer": (pipelined(4, download_slots=0), 4, 0),
    "slow answer": (pipelined(2, download_slots=5), 2, 5),
}
"""A law, the slots of an upload, and those of its answer."""


@pytest.mark.parametrize(("network", "up", "down"), TRIPS.values(), ids=TRIPS)
def test_around_a_server_both_ways_take_their_slots_and_nothing_is_lost(network, up, down):
    """Node 0 uploads in slot 0 and node 1 in slot 1; each is answered as its upload arrives."""
    star = network.star()
    state = star.init(3, jax.random.key(0))

    def turn(t):
        return np.arange(3) == t if 0 <= t < 2 else np.zeros(3, bool)

    for t in range(up + down + 2):
        state, upload = star.uplink(state, turn(t), 16, jax.random.key(1))
        state, answer = star.downlink(state, turn(t - up), 16, jax.random.key(2))

        assert upload.started.tolist() == turn(t).tolist()
        assert upload.arrived.tolist() == turn(t - up).tolist()
        assert answer.started.tolist() == turn(t - up).tolist()
        assert answer.arrived.tolist() == turn(t - up - down).tolist()
        assert not np.asarray(upload.lost | answer.lost).any()
    assert not np.asarray(state.waiting).any()


def test_an_answer_on_its_way_is_carried_to_its_end_and_ends_the_upload():
    """Offered in every slot, answers of 3 slots follow each other, a slot between two of them."""
    star = pipelined(3).star()
    state = star.init(1, jax.random.key(0))
    state, upload = star.uplink(state, jnp.array([True]), 16, jax.random.key(1))
    assert bool(upload.started[0])
    started, arrived, uploads = [], [], []
    for t in range(9):
        state, answer = star.downlink(state, jnp.array([True]), 16, jax.random.key(2))
        started += [t] * bool(answer.started[0])
        arrived += [t] * bool(answer.arrived[0])
        state, upload = star.uplink(state, jnp.array([True]), 16, jax.random.key(1))
        uploads += [t] * bool(upload.started[0] | upload.arrived[0])

    assert (started, arrived) == ([0, 4, 8], [3, 7])
    assert uploads == [3, 7]  # only where no answer is being waited for; the next answer ends it


@pytest.mark.parametrize("local_steps", [1, 4])
@pytest.mark.parametrize(("network", "up", "down"), TRIPS.values(), ids=TRIPS)
def test_the_rounds_and_bits_of_fedavg_are_those_of_the_law(digits, network, up, down, local_steps):
    """A round takes its local steps, the upload and the answer."""
    slots = 47
    run = simulate(digits, network, fedavg(0.1, local_steps), slots=slots)

    whole = local_steps + up + down
    begun = (slots + up + down) // whole  # uploads begin when the local steps are done
    rounds = (slots + down) // whole  # and are aggregated when they arrive
    price = 64 * digits.dim
    assert run.last("rounds") == rounds
    assert run.last("bits") == price * (5 * begun + rounds)
    assert run.last("gradients") == local_steps * (slots // whole) + min(slots % whole, local_steps)


@pytest.mark.parametrize("slots", [-1, 0.5, LONGEST_SLOTS + 1])
def test_an_answer_that_is_no_number_of_slots_is_refused(slots):
    with pytest.raises(ValueError, match="download_slots must be a whole number of slots"):
        pipelined(5, download_slots=slots)
