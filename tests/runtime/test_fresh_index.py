"""The index of one node alone is that of the simulator, and nobody waits for who is silent."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.radio import fresh
from folkman.runtime.fresh_index import WINDOW_S, Band, best_offer

NODES = 4


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), message=st.sampled_from(["forward", "sum"]))
def test_each_node_finds_what_the_simulator_finds_for_it(seed, message):
    rng = np.random.default_rng(seed)
    ages = rng.integers(0, 30, (NODES, NODES))
    ages[np.arange(NODES), np.arange(NODES)] = 0
    cost = rng.uniform(0.1, 3.0, (NODES, NODES)).astype(np.float32)
    cost[rng.integers(NODES), rng.integers(NODES)] = np.inf  # one does not hear another
    omega = rng.uniform(0.5, 2.0, (NODES, NODES)).astype(np.float32)
    gain = fresh.gains(jnp.asarray(ages), jnp.asarray(omega), message)
    expected = fresh.offers(gain, jnp.asarray(cost))

    for me in range(NODES):
        found = best_offer(me, ages, cost[:, me].astype(float), omega.astype(float), message)
        if found is None:
            assert float(expected.value[me]) <= 1e-4
            continue
        assert found.value == pytest.approx(float(expected.value[me]), rel=1e-4)
        assert found.seconds == pytest.approx(float(expected.slots[me]), rel=1e-6)
        hears = [i for i in range(NODES) if i != me and cost[i, me] <= found.seconds * (1 + 1e-6)]
        assert list(found.receivers) == hears
        if message == "forward":
            assert found.origin == int(expected.origin[me])


def test_nobody_is_offered_anything_where_nobody_is_there_or_gains():
    ages, alone = np.zeros((3, 3), int), np.full(3, np.inf)

    assert best_offer(0, ages, np.ones(3), np.ones((3, 3)), "sum") is None
    assert best_offer(0, ages + 5, alone, np.ones((3, 3)), "sum") is None


def test_the_larger_index_waits_shorter_and_equal_ones_do_not_meet():
    bands = [Band(me, 3, longest_s=10.0) for me in range(3)]
    for band in bands:
        band.heard((0 if band is not bands[0] else 1), 8.0, 0.5, now_s=100.0)
        assert band.busy_s(100.0) == 0.5

    waits = [bands[0].wait_s(value, 100.5) for value in (8.0, 4.0, 1.0, 0.0)]
    assert waits == sorted(waits)
    assert waits[0] == 0.0
    assert waits[-1] <= WINDOW_S
    ties = [band.wait_s(8.0, 100.5) for band in bands]
    assert len(set(ties)) == 3
    assert ties == sorted(ties)
    assert bands[0].wait_s(1.0, 110.0) < 0.1 * WINDOW_S  # the memory of a large index fades


def test_a_claim_ends_by_itself_by_a_word_and_with_its_node():
    band = Band(0, 3, longest_s=10.0)
    band.heard(1, 5.0, 1e9, now_s=0.0)  # a silent or lying node
    assert band.busy_s(9.0) == pytest.approx(1.0)
    assert band.busy_s(10.1) == 0.0
    band.heard(1, 5.0, 2.0, now_s=20.0)
    band.heard(2, 5.0, 3.0, now_s=20.0)
    band.heard(1, 0.0, 0.0, now_s=20.5)
    assert band.busy_s(20.5) == pytest.approx(2.5)  # the other claim stands
    band.forget(2)
    assert band.busy_s(20.5) == 0.0


def quiet_share(band, liars, seconds=400.0, every_s=0.1, forgets=False):
    """Return the share of time for which claimants keep a node quiet that claim all the time."""
    quiet_s = 0.0
    for k in range(round(seconds / every_s)):
        for liar in liars:
            if forgets:  # it drops its link and comes again
                band.forget(liar)
            band.heard(liar, 1e15, 1e15, now_s=k * every_s)
        quiet_s += min(band.busy_s(k * every_s), every_s)
    return quiet_s / seconds


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(("nodes", "liars"), [(2, [1]), (3, [1]), (5, [1]), (5, [1, 2, 3])])
def test_who_claims_all_the_time_keeps_a_node_quiet_for_its_share_of_it(nodes, liars, forgets):
    at_first = 10.0 / 400.0
    share = quiet_share(Band(0, nodes, 10.0), liars, forgets=forgets)

    most = len(liars) * (min(0.5, 1 / (nodes - 1)) + at_first)
    assert 0.2 * most < share < most + 0.01


def test_an_honest_neighbour_that_says_when_it_is_done_is_always_heeded():
    band = Band(0, 5, longest_s=10.0)
    for k in range(1000):  # it claims two seconds of each, and needs a fifth
        band.heard(1, 5.0, 2.0, now_s=float(k))
        assert band.busy_s(k + 0.1) == pytest.approx(1.9)
        band.heard(1, 0.0, 0.0, now_s=k + 0.2)
        assert band.busy_s(k + 0.2) == 0.0
