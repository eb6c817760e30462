"""The index against all sets of receivers, and what receivers do with a sum."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.radio import fresh
from reference import fresh as told

NODES = 4
MESSAGES = list(fresh.MESSAGES)
EVEN = np.ones((NODES, NODES))
choose = jax.jit(fresh.choose, static_argnums=3)

tables = partial(st.lists, min_size=NODES * NODES, max_size=NODES * NODES)


def square(values):
    return np.array(values).reshape(NODES, NODES)


def own_is_newest(ages):
    """Return ages in which nobody holds of a node what it does not have itself."""
    return np.where(np.eye(NODES, dtype=bool), ages.min(axis=0)[:, None], ages)


@pytest.mark.parametrize("message", MESSAGES)
@settings(max_examples=60, deadline=None)
@given(
    ages=tables(st.integers(0, 60)),
    cost=tables(st.floats(0.0625, 40.0, width=32)),
    omega=tables(st.sampled_from([0.25, 1.0, 3.0])),
)
def test_no_set_of_receivers_has_a_larger_index(message, ages, cost, omega):
    ages, cost, omega = own_is_newest(square(ages)), square(cost), square(omega)
    costs, weights = (jnp.asarray(table, jnp.float32) for table in (cost, omega))
    found = choose(jnp.asarray(ages), costs, weights, message)
    tried = [told.best_of(k, ages, ages[k], cost, omega, message) for k in range(NODES)]
    best = max(value for value, _, _ in tried)
    assert float(found.value) == pytest.approx(best, rel=1e-5, abs=1e-9)
    if best > 0:  # what it says it sends has this index
        k, slots = int(found.sender), float(found.slots)
        receivers = np.flatnonzero(found.receivers)
        assert k not in receivers
        assert slots == pytest.approx(cost[receivers, k].max())
        total = sum(
            told.gain(ages[i], ages[k], i, k, int(found.origin), omega, message) for i in receivers
        )
        assert total / slots == pytest.approx(best, rel=1e-5)


def test_of_two_nodes_the_one_that_is_longest_unheard_per_slot_sends():
    # One receiver: x^2 / c, nothing else.
    ages = jnp.array([[0, 5], [7, 0]])
    for cost_of_0, sender, value in ((1.0, 0, 49.0), (1.9, 0, 49 / 1.9), (2.0, 1, 25.0)):
        cost = jnp.array([[1.0, 1.0], [cost_of_0, 1.0]])
        found = fresh.choose(ages, cost, jnp.ones((2, 2)))
        assert int(found.sender) == int(found.origin) == sender
        assert float(found.value) == pytest.approx(value)
        assert found.receivers.tolist() == [sender == 1, sender == 0]


@pytest.mark.parametrize("message", MESSAGES)
@settings(max_examples=40, deadline=None)
@given(ages=tables(st.integers(0, 60)), omega=tables(st.sampled_from([0.25, 1.0, 3.0])))
def test_who_believes_the_truth_sees_the_true_gains(message, ages, omega):
    ages, omega = jnp.asarray(own_is_newest(square(ages))), jnp.asarray(square(omega), jnp.float32)
    true = fresh.gains(ages, omega, message)
    believed = fresh.gains_believed(
        jnp.broadcast_to(ages[None], (NODES, NODES, NODES)), ages, omega, message
    )
    at = ~np.eye(NODES, dtype=bool)  # the gain of a sender from itself means nothing
    np.testing.assert_allclose(np.asarray(true)[at], np.asarray(believed)[at], rtol=1e-5)


def test_rounding_is_no_gain():
    # All hold the same, of a great age: the sums of squares differ by rounding only.
    nodes = 50
    rng = np.random.default_rng(0)
    ages = np.broadcast_to(rng.integers(2000, 4000, nodes), (nodes, nodes))
    omega = jnp.asarray(rng.uniform(0.5, 2.0, (nodes, nodes)), jnp.float32)
    gain = np.array(fresh.gains(jnp.asarray(ages), omega, "sum"))
    assert (gain == 0).all()
    one = ages.copy()
    one[0] -= (
        1  # one node is a slot ahead in all: now the others gain from it, and from nobody else
    )
    gain = np.array(fresh.gains(jnp.asarray(one), omega, "sum"))
    assert (gain[1:, 0] > 0).all()
    assert (np.delete(gain, 0, axis=1) == 0).all()


@settings(max_examples=60, deadline=None)
@given(held=tables(st.integers(0, 40)), k=st.integers(0, NODES - 1))
def test_a_sum_is_taken_where_it_lowers_the_sum_of_ages(held, k):
    held = square(held)
    takes = fresh.younger(jnp.asarray(held), jnp.asarray(held[k]), jnp.ones((NODES, NODES)))
    for i in range(NODES):
        apart = np.arange(NODES) != i
        assert bool(takes[i]) == (held[k, apart].sum() > held[i, apart].sum())


def test_who_cannot_be_reached_is_not_addressed():
    ages = jnp.asarray(np.where(np.eye(NODES, dtype=bool), 0, 9))
    cost = np.full((NODES, NODES), 2.0, np.float32)
    cost[3], cost[:, 3] = np.inf, np.inf
    found = choose(ages, jnp.asarray(cost), jnp.asarray(EVEN, jnp.float32), "copy")
    assert found.receivers.tolist() == [False, True, True, False]
    nobody = choose(ages, jnp.full((NODES, NODES), jnp.inf), jnp.ones((NODES, NODES)), "sum")
    assert float(nobody.value) == 0.0
