"""The contest for the band: the choice on all rates, found with few of them drawn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.keys import Stream, make_key
from folkman.radio import channel, contest, fresh
from folkman.radio.network import NUM_GLANCED, RadioNetwork

NODES = 6
ALL = jnp.ones(NODES, bool)


def test_single_draws_are_those_of_the_whole_block():
    key = jax.random.key(7)
    link_key, interferer_key = jax.random.split(key)
    words = channel.fading_words(key)
    for mine, theirs in zip(words, (link_key, interferer_key), strict=True):
        np.testing.assert_array_equal(np.stack(mine), np.asarray(jax.random.key_data(theirs)))
    assert channel.is_indexed(key, jnp.float32)
    drawn = np.asarray(channel.rayleigh_gain((5, 7, 3), interferer_key)).ravel()
    some = np.random.default_rng(0).permutation(drawn.size)[:40]
    single = channel.rayleigh_at(words[1], jnp.asarray(some))
    np.testing.assert_array_equal(np.asarray(single), drawn[some])


def test_other_kinds_of_keys_and_numbers_are_drawn_whole():
    assert not channel.is_indexed(jax.random.key(0, impl="rbg"), jnp.float32)
    assert not channel.is_indexed(jax.random.key(0), jnp.float64)
    assert not channel.is_indexed(jax.random.PRNGKey(0), jnp.float32)


def test_a_glance_is_a_bound_and_a_closer_look_is_the_cost():
    network, key = RadioNetwork(slot_s=0.2), make_key(3, Stream.DELAY)
    air = network.open_air(NODES, key)
    bits = jnp.linspace(1e6, 7e6, NODES)
    cost = np.asarray(network.cost_slots(air, bits, key))
    apart = ~np.eye(NODES, dtype=bool)
    glance = np.asarray(network.glance_slots(air, bits, key))
    assert air.interferer.shape[-1] > NUM_GLANCED
    assert (glance[apart] < cost[apart]).all()
    np.testing.assert_allclose(network.glance_slots(air, bits, key, full=True), cost, rtol=2e-6)
    for sender in (0, NODES - 1):
        column = network.sent_slots(air, bits, key, jnp.asarray(sender))
        np.testing.assert_allclose(column, cost[:, sender], rtol=2e-6)


def played(message: fresh.Message, thrift: float, key: jax.Array) -> tuple[jax.Array, ...]:
    """Return the choices of a few messages within a block, by the contest and by looking at all."""
    ages_key, cost_key, low_key, weight_key = jax.random.split(key, 4)
    ages = jax.random.randint(ages_key, (NODES, NODES), 1, 12)
    ages = jnp.where(jnp.eye(NODES, dtype=bool), 0, ages)
    cost = jnp.exp(jax.random.normal(cost_key, (NODES, NODES)))
    cost = jnp.where(jnp.eye(NODES, dtype=bool), jnp.inf, cost)
    weights = jax.random.uniform(weight_key, (NODES,), minval=0.5, maxval=2.0)
    known = message == "forward"
    below = jnp.ones(()) if known else jax.random.uniform(low_key, cost.shape, minval=0.4)
    rates = (cost * below, jnp.full(NODES, known))
    standing = contest.enter(ages, weights, message, *rates, thrift)

    def one(carry: tuple, _: None) -> tuple:
        ages, standing = carry
        asked = (ages, weights, message)
        look = (lambda sender: cost[:, sender], thrift)
        standing = contest.renew(standing, *asked, thrift)
        choice, standing = contest.choose(standing, *asked, *look)
        whole = fresh.choose(ages, cost, weights[:, None] * weights[None], message, thrift)
        row = ages[choice.sender]
        taken = choice.receivers[:, None] & ~jnp.eye(NODES, dtype=bool)
        if message == "sum":
            omega = weights[:, None] * weights[None]
            taken = taken & fresh.younger(-ages, -row, omega)[:, None]
        else:
            taken = taken & (jnp.arange(NODES) == choice.origin)[None]
        new = row[None] if message == "sum" else jnp.minimum(ages, row[None])
        ages = jnp.where(taken, new, ages)
        return (ages, standing), (choice, whole, jnp.sum(standing.drawn))

    return jax.lax.scan(one, (ages, standing), None, length=4)[1]


@pytest.mark.parametrize(
    ("message", "thrift"), [("copy", 1.0), ("forward", 1.5), ("sum", 1.0), ("sum", 1.5)]
)
def test_the_choice_is_that_of_all_rates(message: fresh.Message, thrift: float):
    keys = jax.random.split(jax.random.key(1), 300)
    found, whole, drawn = jax.jit(jax.vmap(partial(played, message, thrift)))(keys)
    np.testing.assert_array_equal(found.sender, whole.sender)
    np.testing.assert_array_equal(found.origin, whole.origin)
    np.testing.assert_array_equal(found.receivers, whole.receivers)
    np.testing.assert_allclose(found.value, whole.value, rtol=1e-5)
    assert (np.asarray(found.value) > 0).any()
    if message != "forward":  # a reason to be lazy
        assert np.asarray(drawn)[:, 0].mean() < 0.8 * NODES


def test_bounds_of_a_forward_are_above_the_index_of_every_origin():
    """Also where a node is away; one range alone gives a looser bound."""
    rng = np.random.default_rng(11)
    looser = []
    for case, thrift in enumerate((1.0, 1.0, 1.5, 0.7)):
        ages = jnp.asarray(rng.integers(1, 12, (NODES, NODES)) * ~np.eye(NODES, dtype=bool))
        cost = np.exp(1.5 * rng.standard_normal((NODES, NODES)))
        np.fill_diagonal(cost, np.inf)
        if case % 2:
            cost[2] = cost[:, 2] = np.inf
        cost = jnp.asarray(cost, jnp.float32)
        weights = jnp.asarray(rng.uniform(0.5, 2.0, NODES), jnp.float32)
        bound = np.asarray(contest.enter(ages, weights, "forward", cost, ALL, thrift).value)
        for origin in range(NODES):
            gain = fresh.gains_of_origin(ages, weights, jnp.asarray(origin))
            value = np.asarray(fresh.best_prefix(gain, cost, thrift)[0])
            assert (bound[origin] >= value * contest.ROUNDED).all()
            alone = np.sum(np.asarray(gain / cost**thrift), axis=0)
            assert (bound[origin] <= alone * (1 + 1e-5)).all()
            looser += list(alone[value > 0] / bound[origin][value > 0])
    assert np.mean(looser) > 1.1


def test_sums_of_weighted_nodes_gain_what_the_matrix_says():
    rng = np.random.default_rng(2)
    weights = jnp.asarray(rng.uniform(0.2, 3.0, NODES), jnp.float32)
    for most in (9, 4000):
        ages = jnp.asarray(rng.integers(0, most, (NODES, NODES)))
        pairs = fresh.gains(ages, weights[:, None] * weights[None], "sum")
        scale = float(jnp.max(pairs)) + 1.0
        found = fresh.gains(ages, weights, "sum")
        np.testing.assert_allclose(np.asarray(found) / scale, np.asarray(pairs) / scale, atol=1e-5)
        assert (np.asarray(found) > 0).any()
        assert not np.diagonal(np.asarray(found)).any()


def test_a_sum_that_repeats_what_is_held_gains_nothing_however_old_the_rest():
    """Node 0 holds of 1 and 2 what node 1 holds; node 1 has an age-old copy of node 0 besides."""
    ages = jnp.array([[0, 3, 5], [4001, 3, 5], [0, 0, 0]])
    weights = jnp.array([0.7, 1.3, 0.37])
    assert float(fresh.gains(ages, weights, "sum")[0, 1]) == 0.0


def test_thrift_divides_by_a_power_of_the_time_of_the_message():
    """All sets of receivers of all senders, one by one."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        cost, ages = rng.uniform(0.2, 6.0, (4, 4)), rng.integers(1, 9, (4, 4))
        np.fill_diagonal(ages, 0)
        best = (0.0, 0, frozenset())
        for k in range(4):
            others = [i for i in range(4) if i != k]
            for number in range(1, 8):
                some = [i for bit, i in enumerate(others) if number >> bit & 1]
                value = (ages[some, k] ** 2).sum() / cost[some, k].max() ** 1.5
                best = max(best, (value, k, frozenset(some)), key=lambda found: found[0])
        found = fresh.choose(
            jnp.asarray(ages), jnp.asarray(cost, jnp.float32), jnp.ones((4, 4)), "copy", 1.5
        )
        assert float(found.value) == pytest.approx(best[0], rel=1e-5)
        assert int(found.sender) == best[1]
        assert frozenset(np.flatnonzero(found.receivers)) == best[2]


def test_thrift_is_for_the_index_and_in_bounds():
    with pytest.raises(ValueError, match="thrift are for schedule = 'index'"):
        RadioNetwork(thrift=1.5)
    with pytest.raises(ValueError, match="thrift must be above 0"):
        RadioNetwork(schedule="index", thrift=0.0)
