"""The radio network slot by slot against a plain re-telling, its invariants, and its limits."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import (
    Recording,
    async_sharing,
    fedavg,
    ideal,
    load,
    make_problem,
    record_timeline,
    reference,
    simulate,
)
from folkman.keys import Stream, make_key
from folkman.radio import channel
from folkman.radio.air import NUM_FADING, place
from folkman.radio.cells import radio_cells
from folkman.radio.epochs import rest
from folkman.radio.network import RadioNetwork
from folkman.units import dbm_to_watt
from reference import plain

BITS = 650 * 16  # softmax regression on the digits
NARROW = RadioNetwork(bandwidth_hz=15e3)  # makes such a message take some slots


class Told(NamedTuple):
    """A network told again, slot by slot."""

    held: np.ndarray  # (slot, rx, tx)
    starts: np.ndarray  # (slot, tx) bool
    left: np.ndarray  # (slot, tx) slots until the broadcast arrives
    band_hz: np.ndarray  # (slot, tx) in use
    gamma_t: np.ndarray  # (slot,) mean so far
    gamma_w: np.ndarray  # (slot,) mean so far


def history(network, nodes, slots, seed=0, bits: Any = BITS):
    """Run a network alone; return its states, one after each slot, as a list of NumPy trees."""
    key = jax.random.key(seed)
    offers = jnp.ones(nodes, bool)
    step = jax.jit(
        lambda state, t: network.peers().step(state, offers, bits, jax.random.fold_in(key, t))
    )
    state, states = network.peers().init(nodes, key), []
    for t in range(slots):
        state, delivery = step(state, t)
        states.append((jax.tree.map(np.asarray, state), np.asarray(delivery.sends)))
    return states


def drawn_sinr(network, nodes, slots, seed):
    """Return the SINR that every slot draws, (slot, rx, tx), and the links above the threshold."""
    key = jax.random.key(seed)
    air = place(network, nodes, key)

    def draw(t):
        return network.sinr(air, jax.random.fold_in(jax.random.fold_in(key, t), int(Stream.FADING)))

    sinr = np.asarray(jax.jit(jax.vmap(draw))(jnp.arange(slots)), np.float64)
    return sinr, (sinr > 10 ** (network.threshold_db / 10)) & ~np.eye(nodes, dtype=bool)


def shares(allocation, rates):
    """Return the part of the band of each node of a dictionary of R_i."""
    total = sum(1 / rate for rate in rates.values())
    return {
        i: (1 / rate) / total if allocation == "optimal" else 1 / len(rates)
        for i, rate in rates.items()
    }


def whole(duration):
    """Return max(1, ceil(.)), with some room for float32."""
    return max(1, int(np.ceil(duration - 1e-4)))


def retell(network, nodes, slots, seed=0, bits: Any = BITS):
    """Tell either rule again in plain NumPy, from the definitions."""
    sinr, linked = drawn_sinr(network, nodes, slots, seed)
    size = np.broadcast_to(np.asarray(bits, np.float64), nodes)
    held, since = np.zeros((nodes, nodes), int), np.ones((nodes, nodes), int)
    on_air = {}  # tx -> (slot of its arrival, receivers, stamp, hertz, R)
    lengths, waits, rows, served = [], [], [], []
    for n in range(1, slots + 1):  # n: the coming slot
        for i in [i for i, sent in on_air.items() if sent[0] == n]:
            _, receivers, stamp, _, _ = on_air.pop(i)
            held[receivers, i] = stamp
            served.append((receivers, i))
        idle = [i for i in range(nodes) if i not in on_air]
        if network.period == "node" or not on_air:  # a period is over: Gamma_W counts from here
            for receivers, i in served:
                since[receivers, i] = n
            served.clear()
        due = idle if network.period == "node" or not on_air else []
        ok = linked[n - 1]
        rates = {i: np.log2(1 + sinr[n - 1][ok[:, i], i].min()) for i in due if ok[:, i].any()}
        share = shares(network.allocation, rates | {i: sent[4] for i, sent in on_air.items()})
        free = 1 - sum(sent[3] for sent in on_air.values()) / network.bandwidth_hz
        wanted = sum(share[i] for i in rates)
        part = min(free / wanted, 1.0) if rates else 0.0
        starts = np.zeros(nodes, bool)
        durations = []
        for i in rates if part >= 0.1 else ():
            band_hz = part * share[i] * network.bandwidth_hz
            durations.append(size[i] / (network.slot_s * band_hz * rates[i]))
            on_air[i] = (n + whole(durations[-1]), ok[:, i].copy(), n, band_hz, rates[i])
            waits += (n - since[ok[:, i], i]).tolist()
            starts[i] = True
        lengths += (
            durations if network.period == "node" else ([max(durations)] if durations else [])
        )
        left, band = np.zeros(nodes, int), np.zeros(nodes)
        for i, sent in on_air.items():
            left[i], band[i] = sent[0] - n, sent[3]
        rows.append((held.copy(), starts, left, band, mean(lengths), mean(waits)))
    return Told(*(np.array(column) for column in zip(*rows, strict=True)))


def mean(values):
    """Return the mean, nan of nothing."""
    return sum(values) / len(values) if values else float("nan")


def assert_told(network, states, told):
    """Compare a run with its re-telling in every slot: copies, starts, time left, hertz, durations."""
    nodes = told.left.shape[1]
    others = ~np.eye(nodes, dtype=bool)
    np.testing.assert_array_equal(
        np.array([s.held for s, _ in states])[:, others], told.held[:, others]
    )
    np.testing.assert_array_equal([sends for _, sends in states], told.starts)
    np.testing.assert_array_equal([s.left for s, _ in states], told.left)
    np.testing.assert_allclose([s.in_use_hz for s, _ in states], told.band_hz, rtol=1e-3, atol=1e-2)
    measured = [network.peers().measures(s) for s, _ in states]
    np.testing.assert_allclose([m["gamma_t"] for m in measured], told.gamma_t, rtol=1e-4)
    np.testing.assert_allclose([m["gamma_w"] for m in measured], told.gamma_w, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # 0 / 0 before the first broadcast
@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize("threshold_db", [-15.0, 0.0, 10.0])
def test_the_epoch_rule_is_its_plain_retelling(allocation, threshold_db):
    network = replace(NARROW, allocation=allocation, threshold_db=threshold_db)

    states = history(network, 4, 120)

    told = retell(network, 4, 120)
    assert_told(network, states, told)
    assert (
        told.gamma_w[-1] > 0 or threshold_db < 0
    )  # somebody has waited, or the sum decides nothing


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("allocation", "threshold_db"), [("optimal", -10.0), ("uniform", 0.0), ("optimal", 6.0)]
)
def test_the_rule_of_own_periods_is_its_plain_retelling(allocation, threshold_db):
    """Messages of unequal size: under Proposition 1 those of equal size would end together, as in epochs."""
    network = replace(NARROW, period="node", allocation=allocation, threshold_db=threshold_db)
    bits = BITS * np.array([1.0, 2.0, 0.5, 1.0, 3.0], np.float32)

    states = history(network, 5, 150, bits=bits)

    told = retell(network, 5, 150, bits=bits)
    assert_told(network, states, told)
    beside = told.starts.any(axis=1) & ((told.left > 0) & ~told.starts).any(axis=1)
    assert beside.sum() > 20  # starts beside others on the air, where the free band binds
    assert (told.band_hz.sum(axis=1) <= 15e3 * (1 + 1e-9)).all()


def test_a_node_waits_for_a_tenth_of_its_share_by_hand():
    """B = 10 Hz, T = 1 s; 0 -> 1 at R = 1, 1 -> 0 at R = 19: 9.5 Hz and 0.5 Hz, 10 slots and one.

    slot 2   0.5 Hz are free; at R = 0.5 node 1's share beside node 0 is 6.7 Hz: 0.075 of it, it waits
    slot 3   at R = 2 its share is 3.3 Hz: 0.15 of it, it starts with 0.5 Hz, for 9.5 / (0.5 * 2) slots
    """
    blocks = [[[0, 2**rate - 1], [1, 0]] for rate in (19, 0.5, 2, 2)]
    network = scripted(2, blocks, bandwidth_hz=10.0, period="node", threshold_db=-20.0)

    rows = scripted_run(network, 2, 4, bits=jnp.array([95.0, 9.5]))

    assert [d.sends.tolist() for _, d in rows] == [
        [True, True],
        [False, False],
        [False, True],
        [False, False],
    ]
    assert [s.left.tolist() for s, _ in rows] == [[10, 1], [9, 0], [8, 10], [7, 9]]
    np.testing.assert_allclose(rows[2][0].in_use_hz, [9.5, 0.5], rtol=1e-5)
    measured = network.peers().measures(rows[-1][0])
    assert measured["gamma_t"] == pytest.approx((10 + 1 + 9.5) / 3, rel=1e-5)
    assert measured["gamma_w"] == pytest.approx((0 + 0 + 1) / 3, rel=1e-5)  # from 2 to 3


def scripted(nodes, blocks, **options):
    """Return a network whose SINR of slot after slot is written down, linear, [rx, tx]."""
    written = iter(np.asarray(blocks, np.float32).reshape(-1, nodes, nodes))
    kind = type("Scripted", (RadioNetwork,), {"sinr": lambda *_: jnp.asarray(next(written))})
    return kind(**options)


def scripted_run(network, nodes, slots, bits):
    """Run it without compilation, so that every slot reads its own block."""
    state, rows = rest(place(RadioNetwork(), nodes, jax.random.key(0))), []
    for t in range(slots):
        state, delivery = network.peers().step(
            state, jnp.ones(nodes, bool), bits, jax.random.key(t)
        )
        rows.append((jax.tree.map(np.asarray, state), jax.tree.map(np.asarray, delivery)))
    return rows


def test_durations_waits_and_copies_of_two_nodes_by_hand():
    """B = 10 Hz, S = 40 bits, T = 1 s, gamma = 0 dB.

    slot 1   0 -> 1 at R = log2(4) = 2, with the whole band: Gamma_T = 40 / 20 = 2, arrives at 3
    slot 3   nobody: an epoch of one slot
    slot 4   0 -> 1 at R = 3 and 1 -> 0 at R = 2: 4 Hz and 6 Hz, Gamma_T = 40 / 12, arrive at 8
    Waits: 0 -> 1 none and then 1 (from 3 to 4), 1 -> 0 from the start, 3.
    """
    one, none, two = [[0, 0.5], [3, 0]], [[0, 0.9], [1.0, 0]], [[0, 3], [7, 0]]
    unread = [[0, 1e9], [1e9, 0]]  # drawn within a period, and of no effect
    network = scripted(2, [one, unread, none, two, unread, unread, unread, none], bandwidth_hz=10.0)

    rows = scripted_run(network, 2, 8, bits=40)

    assert [(int(s.held[1, 0]), int(s.held[0, 1])) for s, _ in rows] == 2 * [(0, 0)] + 5 * [
        (1, 0)
    ] + [(4, 4)]
    assert [d.sends.tolist() for _, d in rows][:4] == [
        [True, False],
        [False, False],
        [False, False],
        [True, True],
    ]
    np.testing.assert_allclose(rows[3][0].in_use_hz, [4.0, 6.0], rtol=1e-6)
    measured = network.peers().measures(rows[-1][0])
    assert measured["gamma_t"] == pytest.approx((2 + 40 / 12) / 2, rel=1e-6)
    assert measured["gamma_w"] == pytest.approx((0 + 1 + 3) / 3, rel=1e-6)


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
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["optimal", "uniform", "random"]),
    st.sampled_from([-15.0, 0.0, 8.0]),
)
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
    assert sum(s.sum() for _, s in node) > sum(
        s.sum() for _, s in epoch
    )  # nobody waits for the slowest


@pytest.mark.parametrize("seed", range(4))
def test_with_optimal_shares_and_nodes_at_rest_own_periods_are_epochs(seed):
    """All broadcasts of an epoch end together and take the whole band: who is heard by nobody finds none free."""
    network = replace(NARROW, threshold_db=0.0)
    both = [history(replace(network, period=period), 5, 200, seed) for period in ("epoch", "node")]

    for (epoch, _), (own, _) in zip(*both, strict=True):
        np.testing.assert_array_equal(epoch.held, own.held)
    assert max(int(state.left.max()) for state, _ in both[0]) > 1  # some broadcasts take slots


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
    n = int(problem.count[0])
    gradient = partial(
        plain.softmax_gradient, x=np.asarray(problem.x[0, :n]), y=np.asarray(problem.y[0, :n])
    )
    w, share = np.zeros(problem.dim), float(problem.share[0])
    for _ in range(25):
        w = w - 0.2 * gradient(share * w)[1]
    np.testing.assert_allclose(run.nodes[0], w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("network", "nodes"),
    [
        (NARROW, 2),
        (replace(NARROW, period="node", allocation="uniform", threshold_db=-5.0), 5),
    ],
    ids=["epochs", "each node's beat"],
)
def test_algorithm_1_whole_agrees_with_the_reference(x64, network, nodes):
    """Epochs of five nodes agree with it in tests/engine/test_parity.py."""
    problem = make_problem(load("digits", train_size=100), "softmax", nodes, dtype="float64")

    run = simulate(
        problem, network, async_sharing(0.2), slots=40, seed=3, recording=Recording(timeline=True)
    )
    slow = reference(problem, run.timeline, async_sharing(0.2), seed=3, packing=network.packing)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)
    alone = record_timeline(network, nodes, 40, seed=3, message_bits=BITS)
    np.testing.assert_array_equal(alone.held, run.timeline.held)


def test_fedavg_on_the_radio_waits_and_agrees_with_the_reference(x64):
    problem = make_problem(load("digits", train_size=100), "softmax", 4, dtype="float64")

    run = simulate(
        problem, NARROW, fedavg(0.2), slots=120, seed=1, recording=Recording(timeline=True)
    )
    free = simulate(problem, replace(NARROW, answers="free"), fedavg(0.2), slots=120, seed=1)
    slow = reference(problem, run.timeline, fedavg(0.2), seed=1, packing=NARROW.packing)

    np.testing.assert_allclose(run.model, slow.model, rtol=1e-9, atol=1e-12)
    assert 5 < run.last("rounds") < free.last("rounds")
    assert run.last("kappa") < 0.5
    rounds = int(run.last("rounds"))
    free = ideal(NARROW.bits_per_parameter)
    same = simulate(problem, free, fedavg(0.2), slots=rounds, seed=1)
    np.testing.assert_allclose(
        run.model, same.model, rtol=1e-10, atol=1e-13
    )  # late, but the same iterates


def test_all_algorithms_of_a_seed_meet_the_same_air():
    left, right = (
        replace(NARROW, threshold_db=t, allocation=a).peers().init(5, jax.random.key(4))
        for t, a in ((0.0, "optimal"), (5.0, "uniform"))
    )

    for a, b in zip(jax.tree.leaves(left.air), jax.tree.leaves(right.air), strict=True):
        np.testing.assert_array_equal(a, b)
    star = NARROW.star().init(5, jax.random.key(4))
    for a, b in zip(jax.tree.leaves(left.air), jax.tree.leaves(star.air), strict=True):
        np.testing.assert_array_equal(a, b)


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


def test_under_own_periods_nodes_move_in_every_slot_and_broadcasts_keep_their_rate():
    states = [
        s
        for s, _ in history(
            replace(NARROW, period="node", threshold_db=-10.0, speed_m_per_s=20.0), 4, 40
        )
    ]

    moved = np.diff([s.air.nodes.positions_m for s in states], axis=0)
    steps = np.linalg.norm(moved, axis=-1)
    assert steps.max() <= 20.0 + 1e-3
    assert (steps.max(axis=1) > 1.0).all()  # in every slot
    for before, after in itertools.pairwise(states):
        same = (after.left > 0) & (after.stamp == before.stamp)
        np.testing.assert_array_equal(after.se_min[same], before.se_min[same])
        np.testing.assert_array_equal(after.in_use_hz[same], before.in_use_hz[same])


def test_bits_are_payloads_times_broadcasts_and_times_receivers(x64):
    problem = make_problem(load("digits", train_size=100), "softmax", 4, dtype="float64")
    network = replace(NARROW, kept_fraction=0.25)

    run = simulate(problem, network, async_sharing(0.2), slots=60, seed=5)

    payload = 163 * (32 + 10)  # of 162.5 entries; 10 index bits: 2^9 < 650 <= 2^10
    state, key = network.peers().init(4, make_key(5, Stream.DELAY)), make_key(5, Stream.DELAY)
    step = jax.jit(
        lambda s, t: network.peers().step(s, jnp.ones(4, bool), payload, jax.random.fold_in(key, t))
    )
    broadcasts = receivers = 0
    for t in range(60):
        state, delivery = step(state, t)
        broadcasts += int(delivery.sends.sum())
        receivers += int(delivery.linked.sum())
    assert broadcasts < receivers
    assert run.last("bits") == payload * broadcasts
    assert run.last("bits_unicast") == payload * receivers


def test_far_interferers_at_their_mean_move_a_links_sinr_by_hundredths_and_at_most_tenths_of_a_decibel():
    """The same draws for the signals and the nearest 32; those beyond fade too, or not: link by link, 300 drops."""
    network = RadioNetwork()

    def both(key):
        air = place(network, 5, key)
        gain = channel.interferer_gain(air.nodes.positions_m, air.interferers, 4.0)
        fading = jax.random.fold_in(key, 7)
        link_key, near_key = jax.random.split(fading)
        near = channel.rayleigh_gain(air.interferer.shape, near_key)
        far = channel.rayleigh_gain(gain[..., NUM_FADING:].shape, jax.random.fold_in(key, 8))
        full = channel.sinr(
            air.link,
            gain,
            channel.rayleigh_gain(air.link.shape, link_key),
            jnp.concatenate([near, far], axis=-1),
            power_w=dbm_to_watt(network.power_dbm),
            noise_w=network.noise_w,
        )
        return network.sinr(air, fading), full, jnp.sum(air.background) / jnp.sum(gain)

    short, full, part = jax.jit(jax.vmap(both))(jax.random.split(jax.random.key(0), 300))
    pairs = ~np.eye(5, dtype=bool)
    apart_db = np.abs(10 * np.log10(np.asarray(short) / np.asarray(full)))[:, pairs]
    assert NUM_FADING == 32
    assert np.median(part) < 0.02  # of the interference
    assert np.median(apart_db) < 0.02
    assert np.percentile(apart_db, 99) < 0.2
    assert apart_db.max() < 0.5


def test_ten_thousand_nodes_in_cells_take_memory_linear_in_cells():
    key = jax.random.key(0)
    sizes = []
    for cells in (40, 80):
        layout = radio_cells(RadioNetwork(), cells=cells, nodes=20)
        state = jax.vmap(rest)(layout.air(range(cells)))
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
        offers = jnp.ones((cells, 20), bool)
        keys = jax.random.split(key, cells)
        step = jax.jit(jax.vmap(lambda s, o, k: RadioNetwork().peers().step(s, o, BITS, k)))
        state, delivery = step(state, offers, keys)
        assert delivery.sends.any(axis=1).mean() > 0.9

    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.05)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"bandwidth_hz": 0.0}, "bandwidth_hz must be positive and finite, got 0.0"),
        ({"allocation": "greedy"}, "there is no allocation 'greedy'; known"),
        ({"period": "week"}, "period is 'epoch' or 'node'"),
        ({"slot_s": -1.0}, "slot_s must be positive"),
        ({"kept_fraction": 1.5}, "at most 1"),
        ({"interferers_per_cell": -1.0}, "must be finite and not negative, got -1.0"),
        ({"interferer_radius_m": 100.0}, "must exceed the cell's"),
    ],
)
def test_a_cell_that_cannot_be_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        RadioNetwork(**options)


LIMITS = [
    (name, allowed, refused)
    for names, allowed, refused in (
        (
            ("slot_s", "path_loss_exponent", "bandwidth_hz"),
            (1e-9, 0.5, 1.0, 1e9),
            (0.0, -1e-9, np.inf, np.nan),
        ),
        (("bits_per_parameter",), (1, 64), (0, -1, np.inf, np.nan)),
        # a band has at most 100,000 interferers, (interferer_radius_m / cell_radius_m)^2 of them
        (("cell_radius_m",), (25.3, 7999.0), (25.2, 0.0, -1e-9, np.inf, np.nan)),
        (("interferer_radius_m",), (500.1, 1.58e5), (1.59e5, 0.0, 500.0, np.inf, np.nan)),
        (("interferers_per_cell",), (0.0, 0.5, 390.0), (391.0, -1e-9, np.inf, np.nan)),
        (("kept_fraction",), (1e-9, 1.0), (0.0, 1.0001, np.inf, np.nan)),
        (("speed_m_per_s",), (0.0, 0.5, 1e9), (-1e-9, np.inf, np.nan)),
        (
            ("power_dbm", "noise_dbm_per_hz", "least_sinr_db"),
            (-300.0, 0.0, 300.0),
            (-300.1, 300.1, -np.inf, np.inf, np.nan),
        ),
        (("threshold_db",), (-np.inf, 0.0, np.inf), (np.nan,)),
        (("answers",), ("broadcast", "free"), ("", "never")),
        (("allocation",), ("optimal", "uniform", "random"), ("", "even")),
        (("period",), ("epoch", "node"), ("", "slot")),
    )
    for name in names
]


@pytest.mark.parametrize(("name", "allowed", "refused"), LIMITS, ids=[row[0] for row in LIMITS])
def test_a_setting_is_taken_up_to_its_limits_and_refused_by_name_beyond(name, allowed, refused):
    for value in allowed:
        assert getattr(RadioNetwork(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValueError, match=name):
            RadioNetwork(**{name: value})


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
        simulate(problem, kind(bandwidth_hz=15e3), async_sharing(0.2), slots=60, seed=2)
        for kind in (cramped, roomy)
    )

    np.testing.assert_allclose(small.nodes, large.nodes, rtol=1e-12, atol=1e-14)
