"""The radio network slot by slot against a plain re-telling, its invariants, and its limits."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Recording, async_sharing, fedavg, ideal, load, make_problem, record_timeline, reference, simulate
from folkman.keys import Stream
from folkman.radio import geometry
from folkman.radio.network import NUM_FADING, RadioNetwork, place, place_cells, rest

BITS = 650 * 16  # softmax regression on the digits
NARROW = RadioNetwork(bandwidth_hz=15e3)  # makes such a message take some slots


def history(network, nodes, slots, seed=0, bits=BITS):
    """Run a network alone; return its states, one after each slot, as a list of NumPy trees."""
    key = jax.random.key(seed)
    offers = jnp.ones(nodes, bool)
    step = jax.jit(lambda state, t: network.step(state, offers, bits, jax.random.fold_in(key, t)))
    state, states = network.init(nodes, key), []
    for t in range(slots):
        state, delivery = step(state, t)
        states.append((jax.tree.map(np.asarray, state), np.asarray(delivery.sends)))
    return states


def retell(network, nodes, slots, seed=0, bits=BITS):
    """The epoch rule in plain NumPy, told from the definitions: returns held (slot, rx, tx) and epoch starts."""
    key = jax.random.key(seed)
    air = place(network, nodes, key)
    held, taken, epochs = np.zeros((nodes, nodes), int), [], []
    arrivals = {}  # slot -> [(tx, receivers, stamp)]
    ends = 1
    for n in range(1, slots + 1):  # n: the coming slot
        for tx, receivers, stamp in arrivals.pop(n, []):
            held[receivers, tx] = stamp
        if n >= ends:
            slot_key = jax.random.fold_in(key, n - 1)
            sinr = np.asarray(network.sinr(air, jax.random.fold_in(slot_key, int(Stream.FADING))), np.float64)
            ok = (sinr > 10 ** (network.threshold_db / 10)) & ~np.eye(nodes, dtype=bool)
            rates = {i: np.log2(1 + sinr[ok[:, i], i].min()) for i in range(nodes) if ok[:, i].any()}
            ends = n + 1
            total = sum(1 / r for r in rates.values())
            for i, rate in rates.items():
                share = {"optimal": (1 / rate) / total, "uniform": 1 / len(rates)}[network.allocation]
                duration = max(1, int(np.ceil(bits / (network.slot_s * network.bandwidth_hz * share * rate) - 1e-4)))
                arrivals.setdefault(n + duration, []).append((i, ok[:, i].copy(), n))
                ends = max(ends, n + duration)
            epochs.append(n)
        taken.append(held.copy())
    return np.array(taken), epochs


@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize("threshold_db", [-15.0, 0.0, 10.0])
def test_the_epoch_rule_is_its_plain_retelling(allocation, threshold_db):
    network = replace(NARROW, allocation=allocation, threshold_db=threshold_db)

    states = history(network, 4, 120)

    held, _ = retell(network, 4, 120)
    others = ~np.eye(4, dtype=bool)
    np.testing.assert_array_equal(np.array([s.held for s, _ in states])[:, others], held[:, others])


def test_under_the_optimum_all_broadcasts_end_together_at_equal_rates():
    started = 0
    for state, sends in history(NARROW, 6, 80):
        if sends.any():
            started += 1
            rates = (state.in_use_hz * state.se_min)[sends]
            assert state.in_use_hz.sum() == pytest.approx(15e3, rel=1e-5)
            np.testing.assert_allclose(rates, rates[0], rtol=1e-5)
            assert len(set(state.left[sends])) == 1
    assert started > 5


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["optimal", "uniform", "random"]), st.sampled_from([-15.0, 0.0, 8.0]))
def test_the_bandwidth_in_use_never_exceeds_the_band(seed, allocation, threshold_db):
    network = replace(NARROW, period="node", allocation=allocation, threshold_db=threshold_db)

    used = [state.in_use_hz.sum() for state, _ in history(network, 5, 60, seed)]

    assert max(used) <= 15e3 * (1 + 1e-5)


def test_per_node_periods_are_asynchronous_and_epochs_are_not():
    epoch, node = (
        history(replace(NARROW, allocation="uniform", threshold_db=-10.0, period=period), 5, 200)
        for period in ("epoch", "node")
    )

    for state, sends in epoch:
        if sends.any():  # an epoch starts: nobody else is on the air
            assert (state.left[~sends] == 0).all()
    assert any(sends.any() and (state.left[~sends] > 0).any() for state, sends in node)
    assert sum(s.sum() for _, s in node) > sum(s.sum() for _, s in epoch)  # nobody waits for the slowest


def test_ages_of_a_served_pair_follow_the_durations():
    """First used at age n, last at age n + n' - 1, where n and n' are the durations of two broadcasts on end."""
    network = replace(NARROW, threshold_db=-60.0)  # everybody hears everybody
    states = history(network, 3, 100)
    starts = [(t, int(state.left[0])) for t, (state, sends) in enumerate(states) if sends[0]]
    ages = np.array([t + 1 - state.held[1, 0] for t, (state, _) in enumerate(states)])

    for (t, n), (_, following) in itertools.pairwise(starts[1:-1]):
        assert ages[t + n] == n
        assert ages[t + n + following - 1] == n + following - 1


def test_a_tiny_message_and_no_threshold_give_age_one():
    states = history(replace(NARROW, threshold_db=-300.0), 4, 30, bits=16)

    for t, (state, _) in enumerate(states[1:], 1):
        others = ~np.eye(4, dtype=bool)
        assert (t + 1 - state.held[others] == 1).all()


def test_a_threshold_that_no_link_meets_leaves_every_node_alone(x64):
    """w_i then moves on alpha_i w_i + const: plain descent of one node beside frozen others."""
    problem = make_problem(load("digits", train_size=100), "softmax", 3, dtype="float64")

    run = simulate(problem, replace(NARROW, threshold_db=300.0), async_sharing(0.2), slots=25)

    assert run.last("rounds") == 0
    assert run.last("bits") == 0
    assert run.last("max_age") == 24
    from functools import partial

    from reference import plain

    n = int(problem.count[0])
    gradient = partial(plain.softmax_gradient, x=np.asarray(problem.x[0, :n]), y=np.asarray(problem.y[0, :n]))
    w, share = np.zeros(problem.dim), float(problem.share[0])
    for _ in range(25):
        w = w - 0.2 * gradient(share * w)[1]
    np.testing.assert_allclose(run.nodes[0], w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("network", [NARROW, replace(NARROW, period="node", allocation="uniform", threshold_db=-5.0)])
@pytest.mark.parametrize("nodes", [2, 5])
def test_algorithm_1_whole_agrees_with_the_reference(x64, network, nodes):
    problem = make_problem(load("digits", train_size=100), "softmax", nodes, dtype="float64")

    run = simulate(problem, network, async_sharing(0.2), slots=40, seed=3, recording=Recording(timeline=True))
    slow = reference(problem, run.timeline, async_sharing(0.2), seed=3)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    alone = record_timeline(network, nodes, 40, seed=3, message_bits=BITS)
    np.testing.assert_array_equal(alone.held, run.timeline.held)


def test_fedavg_on_the_radio_waits_and_agrees_with_the_reference(x64):
    problem = make_problem(load("digits", train_size=100), "softmax", 4, dtype="float64")

    run = simulate(problem, NARROW, fedavg(0.2), slots=120, seed=1, recording=Recording(timeline=True))
    free = simulate(problem, replace(NARROW, answers="free"), fedavg(0.2), slots=120, seed=1)
    slow = reference(problem, run.timeline, fedavg(0.2), seed=1)

    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    assert 5 < run.last("rounds") < free.last("rounds")
    assert run.last("kappa") < 0.5
    rounds = int(run.last("rounds"))
    same = simulate(problem, ideal(), fedavg(0.2), slots=rounds)
    np.testing.assert_allclose(run.model, same.model, rtol=1e-10, atol=1e-13)  # late, but the same iterates


def test_all_algorithms_of_a_seed_meet_the_same_air():
    left, right = (
        replace(NARROW, threshold_db=t, allocation=a).init(5, jax.random.key(4))
        for t, a in ((0.0, "optimal"), (5.0, "uniform"))
    )

    for a, b in zip(jax.tree.leaves(left.air), jax.tree.leaves(right.air), strict=True):
        np.testing.assert_array_equal(a, b)
    star = NARROW.star_init(5, jax.random.key(4))
    distance = np.linalg.norm(np.asarray(left.air.nodes.positions_m), axis=1)
    np.testing.assert_allclose(star.station, np.maximum(distance, 1.0) ** -4.0, rtol=1e-4)


def test_nodes_that_move_stay_in_the_cell_and_see_other_gains():
    network = replace(NARROW, speed_m_per_s=20.0)
    states = [state for state, _ in history(network, 4, 60)]

    moved = np.array([state.air.nodes.positions_m for state in states])
    assert np.linalg.norm(moved, axis=-1).max() <= 500.0 + 1e-3
    steps = np.linalg.norm(np.diff(moved, axis=0), axis=-1)
    assert steps.max() > 10.0
    late = states[-1].air
    expected = np.linalg.norm(late.nodes.positions_m[0] - late.nodes.positions_m[1])
    assert late.link[0, 1] == pytest.approx(max(expected, 1.0) ** -4, rel=1e-4)


def test_taking_far_interferers_at_their_mean_moves_the_sinr_by_hundredths_of_a_decibel():
    """All interferers fading, against the nearest 32: medians and tails over 300 drops."""
    from folkman.radio import channel
    from folkman.units import dbm_to_watt

    network = RadioNetwork()

    def both(key):
        air = place(network, 5, key)
        whole = channel.interferer_gain(air.nodes.positions_m, air.interferers, 4.0)
        fading = jax.random.fold_in(key, 7)
        power = dbm_to_watt(network.power_dbm)
        return (
            network.sinr(air, fading),
            channel.sinr_draw(air.link, whole, fading, power_w=power, noise_w=network.noise_w),
            jnp.sum(air.background) / jnp.sum(whole),
        )

    near, full, part = jax.jit(jax.vmap(both))(jax.random.split(jax.random.key(0), 300))
    pairs = ~np.eye(5, dtype=bool)
    q_near, q_full = (np.percentile(10 * np.log10(np.asarray(s)[:, pairs]), [5, 50, 95]) for s in (near, full))
    assert NUM_FADING == 32
    assert np.median(part) < 0.05
    assert np.abs(q_near - q_full).max() < 1.0  # other fading draws: within Monte-Carlo error of 300 drops


def test_ten_thousand_nodes_in_cells_take_memory_linear_in_cells():
    key = jax.random.key(0)
    sizes = []
    for cells in (10, 40):
        stations = geometry.hexagonal_stations(cells, 500.0)
        layout = geometry.layout(stations, geometry.nodes_in_discs(stations, 20, 500.0, key), num_neighbours=9)
        state = jax.vmap(rest)(place_cells(RadioNetwork(), layout))
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
        offers = jnp.ones((cells, 20), bool)
        keys = jax.random.split(key, cells)
        step = jax.jit(jax.vmap(lambda s, o, k: RadioNetwork().step(s, o, BITS, k)))
        state, delivery = step(state, offers, keys)
        assert delivery.sends.any(axis=1).mean() > 0.9

    assert sizes[1] == pytest.approx(4 * sizes[0], rel=0.05)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"bandwidth_hz": 0.0}, "bandwidth_hz must be positive, got 0.0"),
        ({"allocation": "greedy"}, "there is no allocation 'greedy'; known"),
        ({"period": "week"}, "period is 'epoch' or 'node'"),
        ({"slot_s": -1.0}, "slot_s must be positive"),
        ({"kept_fraction": 1.5}, "at most 1"),
        ({"interferers_per_cell": -1.0}, "must not be negative"),
        ({"interferer_radius_m": 100.0}, "must exceed the cell's"),
    ],
)
def test_a_cell_that_cannot_be_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        RadioNetwork(**options)


def test_one_node_and_no_interferers_are_fine():
    for network in (NARROW, replace(NARROW, interferers_per_cell=0.0)):
        states = history(network, 1, 5)
        assert not any(sends.any() for _, sends in states)
    quiet = history(replace(NARROW, interferers_per_cell=0.0, threshold_db=0.0), 3, 20)
    assert quiet[0][1].all()  # without interference the threshold does nothing


def test_a_store_that_is_too_small_grows_and_gives_the_same_run(x64):
    cramped = type("Cramped", (RadioNetwork,), {"versions": lambda *_: 2})
    roomy = type("Roomy", (RadioNetwork,), {"versions": lambda *_: 6})
    problem = make_problem(load("digits", train_size=100), "softmax", 5, dtype="float64")

    small, large = (
        simulate(problem, kind(bandwidth_hz=15e3), async_sharing(0.2), slots=60, seed=2) for kind in (cramped, roomy)
    )

    np.testing.assert_allclose(small.nodes, large.nodes, rtol=1e-12, atol=1e-14)
