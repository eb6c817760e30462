"""Scheduling sets, the table of docs/decisions.md, D1, measured again, and the search for the threshold."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.radio import bandwidth, channel, geometry, latency, schedule
from folkman.units import db_to_linear, linear_to_db

NUM_NODES, NUM_DROPS = 5, 1500
PAYLOAD_BITS, TOTAL_HZ, SLOT_S = 6_891_168.0, 10e6, 1.0
THRESHOLDS_DB = (-15.0, 0.0, 15.0)
expected_duration = partial(
    schedule.expected_duration, payload_bits=PAYLOAD_BITS, total_hz=TOTAL_HZ, slot_s=SLOT_S
)


def drop(key):
    """Return the SINR of one fresh cell, [rx, tx]: the setting of docs/decisions.md, D1."""
    place_key, interferer_key, fading_key = jax.random.split(key, 3)
    nodes_m = geometry.cell(NUM_NODES, 500.0, place_key)
    phi = geometry.interferers(NUM_NODES, geometry.cell_density_per_m2(500.0), interferer_key)
    link, interferer = channel.link_gain(nodes_m, nodes_m), channel.interferer_gain(nodes_m, phi)
    return channel.sinr_draw(
        link, interferer, fading_key, power_w=1.0, noise_w=channel.noise_power_w(-174.0, TOTAL_HZ)
    )


@pytest.fixture(scope="module")
def sinr_drops():
    keys = jax.random.split(jax.random.key(2024), NUM_DROPS)
    return jax.jit(lambda batch: jax.lax.map(drop, batch, batch_size=250))(keys)


def durations(sinr, threshold, allocate):
    """Return Gamma_T of every drop, (drop,); 0 where nobody is scheduled."""

    def one(one_sinr):
        linked = schedule.links(one_sinr, threshold)
        sending, rate = schedule.scheduled(linked), schedule.se_min(one_sinr, linked)
        band_hz = allocate(rate, sending, TOTAL_HZ)
        return latency.aggregated_slots(
            latency.transmission_slots(PAYLOAD_BITS, band_hz, rate, SLOT_S), sending
        )

    return np.asarray(jax.jit(jax.vmap(one))(sinr), np.float64)


def test_links_are_strict_and_never_to_oneself():
    sinr = jnp.array([[9.0, 1.0, 2.0], [1.5, 9.0, 0.5], [jnp.nan, 1.0, 9.0]])
    linked = schedule.links(sinr, 1.0)
    assert linked.tolist() == [[False, False, True], [True, False, False], [False, False, False]]
    # Column i is transmitter i: node 1 is heard by nobody (C1).
    assert schedule.scheduled(linked).tolist() == [True, False, True]
    np.testing.assert_allclose(
        schedule.se_min(sinr, linked), [np.log2(2.5), np.inf, np.log2(3.0)], rtol=1e-6
    )


def test_se_min_is_the_worst_receiver_in_reach():
    sinr = jnp.array([[0.0, 3.0, 7.0], [1.0, 0.0, 0.1], [3.0, 15.0, 0.0]])
    np.testing.assert_allclose(
        schedule.se_min(sinr, schedule.links(sinr, 0.5)), [1.0, 2.0, 3.0], rtol=1e-6
    )


def test_spectral_efficiency_survives_nine_orders_below_one():
    sinr = 10.0 ** np.arange(-9.0, 10.0)
    np.testing.assert_allclose(
        schedule.spectral_efficiency(jnp.asarray(sinr, jnp.float32)),
        np.log1p(sinr) / np.log(2),
        rtol=1e-5,
    )


def test_extreme_thresholds_schedule_all_or_none():
    sinr = jax.random.exponential(jax.random.key(0), (NUM_NODES, NUM_NODES))
    everyone = schedule.links(sinr, db_to_linear(-jnp.inf))
    assert everyone.sum() == NUM_NODES * (NUM_NODES - 1)
    nobody = schedule.links(sinr, db_to_linear(jnp.inf))
    assert not nobody.any()
    assert jnp.isposinf(schedule.se_min(sinr, nobody)).all()


def test_single_node_has_nobody_to_talk_to():
    linked = schedule.links(jnp.ones((1, 1)), 0.0)
    assert not schedule.scheduled(linked).any()
    assert expected_duration(jnp.ones((3, 1, 1)), 0.0) == 0.0


def test_rectangular_sinr_is_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match=r"expected a square SINR array.*got \(1, 5\); for a base station"
    ):
        schedule.links(jnp.ones((1, 5)), 1.0)


def test_sinr_percentiles_of_the_reference_table(sinr_drops):
    """Reference -20 / 0.2 / 25 dB: Monte-Carlo error from a bootstrap over drops, plus the rounding."""
    off_diagonal = ~np.eye(NUM_NODES, dtype=bool)
    level_db = np.asarray(linear_to_db(sinr_drops))[:, off_diagonal]
    measured = np.percentile(level_db, [5, 50, 95])

    rng = np.random.default_rng(0)
    resampled = [
        np.percentile(level_db[rng.integers(NUM_DROPS, size=NUM_DROPS)], [5, 50, 95])
        for _ in range(100)
    ]
    error_db = np.std(resampled, axis=0)
    # The reference has drops of its own: sqrt(2) the error; and rounding, 0.5 and 0.05 dB.
    allowed = 4 * np.sqrt(2) * error_db + [0.5, 0.05, 0.5]
    assert (np.abs(measured - [-20.0, 0.2, 25.0]) < allowed).all(), (measured, error_db)


@pytest.mark.parametrize(
    ("threshold_db", "link_share", "node_share"),
    [(-15.0, 0.90, 1.00), (0.0, 0.51, 0.92), (15.0, 0.14, 0.42)],
)
def test_link_and_node_shares_of_the_reference_table(
    sinr_drops, threshold_db, link_share, node_share
):
    linked = schedule.links(sinr_drops, db_to_linear(threshold_db))
    per_drop_link = np.asarray(linked.sum(axis=(1, 2))) / (NUM_NODES * (NUM_NODES - 1))
    per_drop_node = np.asarray(schedule.scheduled(linked).mean(axis=1))
    for values, expected in ((per_drop_link, link_share), (per_drop_node, node_share)):
        error = values.std() / np.sqrt(NUM_DROPS)
        assert (
            abs(values.mean() - expected) < 4 * np.sqrt(2) * error + 0.005
        )  # printed to two digits


@pytest.mark.parametrize(
    ("threshold_db", "optimal_slots", "uniform_slots", "rounding"),
    [(-15.0, 20.0, 44.0, 0.5), (0.0, 1.7, 2.6, 0.05), (15.0, 0.23, 0.27, 0.005)],
)
def test_durations_of_the_reference_table(
    sinr_drops, threshold_db, optimal_slots, uniform_slots, rounding
):
    """Means over drops in which anyone is scheduled, by their own standard error and the reference's."""
    threshold = db_to_linear(threshold_db)
    for allocate, expected in (
        (bandwidth.optimal, optimal_slots),
        (bandwidth.uniform, uniform_slots),
    ):
        slots = durations(sinr_drops, threshold, allocate)
        slots = slots[slots > 0]
        error = slots.std() / np.sqrt(slots.size)
        assert abs(slots.mean() - expected) < 4 * np.sqrt(2) * error + rounding, (
            slots.mean(),
            error,
        )


def test_optimum_is_never_slower_than_uniform_on_any_drop(sinr_drops):
    for threshold_db in THRESHOLDS_DB:
        threshold = db_to_linear(threshold_db)
        best, even = (
            durations(sinr_drops, threshold, f) for f in (bandwidth.optimal, bandwidth.uniform)
        )
        assert (best <= even * (1 + 1e-5)).all()


def test_expected_duration_is_what_a_simulation_of_epochs_measures():
    """Wald: E[L] / p for every pair, against epochs drawn one after the other until the pair first meets."""
    rng = np.random.default_rng(1)
    pool = np.asarray(rng.exponential(1.0, (400, 3, 3)), np.float32)
    threshold = 0.8
    claimed = float(expected_duration(jnp.asarray(pool), threshold, whole=False))

    linked = (pool > threshold) & ~np.eye(3, dtype=bool)
    slots = np.array([epoch_slots(pool[k], linked[k]) for k in range(400)])
    waits = []
    for _ in range(4000):
        rx, tx = rng.permutation(3)[:2]
        total, met = 0.0, False
        while not met:
            epoch = rng.integers(400)
            total += slots[epoch]
            met = linked[epoch, rx, tx]
        waits.append(total)
    assert abs(np.mean(waits) - claimed) < 4 * np.std(waits) / np.sqrt(len(waits))


@pytest.mark.parametrize("allocation", ["optimal", "uniform"])
@pytest.mark.parametrize("threshold", [0.3, 2.0])
def test_expected_age_is_what_a_simulation_of_epochs_measures(threshold, allocation):
    """Epochs of whole slots drawn one after the other from the same blocks; every pair's age in every slot."""
    rng = np.random.default_rng(2)
    pool = np.asarray(rng.exponential(1.0, (60, 3, 3)), np.float32)
    options = {"payload_bits": PAYLOAD_BITS, "total_hz": TOTAL_HZ, "slot_s": SLOT_S}
    allocate = bandwidth.optimal if allocation == "optimal" else bandwidth.uniform
    claimed = float(
        schedule.expected_age(jnp.asarray(pool), threshold, allocate=allocate, **options)
    )

    linked = (pool > threshold) & ~np.eye(3, dtype=bool)
    own = [own_slots(pool[k], linked[k], allocation) for k in range(60)]
    means = []  # of independent stretches of time, over pairs
    for _ in range(40):
        drawn = rng.integers(60, size=1000)
        begins = np.cumsum([0, *(max(own[k].values(), default=1) for k in drawn)])
        ages = np.zeros(begins[-1])
        for rx, tx in np.argwhere(~np.eye(3, dtype=bool)):
            stamps = np.zeros(begins[-1], int)
            for begin, k in zip(begins, drawn, strict=False):
                if linked[k][rx, tx]:
                    stamps[begin + own[k][tx] :] = begin
            ages += (np.arange(begins[-1]) - stamps) / 6
        means.append(ages[begins[50] :].mean())  # by then all pairs have met
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - claimed) < 4 * error
    assert error < 0.02 * claimed  # or the comparison decides nothing


def pair_draws(meets, draws):
    """Return blocks of two nodes that hear each other at 1 bit/s/Hz in the first `meets`, and then not at all."""
    sinr = np.zeros((draws, 2, 2), np.float32)
    sinr[:meets] = 1.0
    return jnp.asarray(sinr)


@pytest.mark.parametrize("draws", [1, 2, 5])
def test_when_every_epoch_is_one_slot_a_copy_is_as_old_as_a_geometric_wait(draws):
    """D is geometric with p, the copy arrives after its slot: E[age] = 1/p, and so is the duration."""
    short: dict[str, Any] = {"payload_bits": 1.0, "total_hz": TOTAL_HZ, "slot_s": SLOT_S}
    for meets in range(draws + 1):
        sinr, expected = pair_draws(meets, draws), draws / max(meets, 0.5)  # never: 1/p = 2n

        age = schedule.expected_age(sinr, 0.5, **short)
        duration = schedule.expected_duration(sinr, 0.5, **short)

        assert float(age) == pytest.approx(expected, rel=1e-5)
        assert float(duration) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("meets", "draws"), [(1, 4), (3, 4), (4, 4)])
def test_the_age_of_long_epochs_is_the_renewal_sum_term_by_term(meets, draws):
    """Seven slots where the pair meets, one where nobody sends: D = 7 + N, P(N = k) = p q^k."""
    band_hz = TOTAL_HZ / 2  # each of the two
    age = schedule.expected_age(
        pair_draws(meets, draws), 0.5, payload_bits=7 * band_hz, total_hz=TOTAL_HZ, slot_s=1.0
    )

    p, k = meets / draws, np.arange(400)
    chance, apart = p * (1 - p) ** k, 7.0 + k
    over_a_period = (chance * apart * (apart - 1) / 2).sum()  # 0 + 1 + .. + D-1
    assert float(age) == pytest.approx(7.0 + over_a_period / (chance * apart).sum(), rel=1e-5)


def epoch_slots(sinr, linked):
    """Return the closed form of 2.7, S / (T B) sum 1 / R_i, in plain NumPy; an idle epoch is one slot."""
    rates = [
        np.log2(1 + sinr[linked[:, i], i].min()) for i in range(len(sinr)) if linked[:, i].any()
    ]
    return PAYLOAD_BITS / (SLOT_S * TOTAL_HZ) * sum(1 / rate for rate in rates) if rates else 1.0


def own_slots(sinr, linked, allocation):
    """Return the whole slots of each sender's broadcast, by eq. (27) in plain NumPy."""
    rates = {
        i: np.log2(1 + sinr[linked[:, i], i].min()) for i in range(len(sinr)) if linked[:, i].any()
    }
    total = sum(1 / rate for rate in rates.values())
    share = {
        i: (1 / rate) / total if allocation == "optimal" else 1 / len(rates)
        for i, rate in rates.items()
    }
    durations = {
        i: PAYLOAD_BITS / (SLOT_S * TOTAL_HZ * share[i] * rate) for i, rate in rates.items()
    }
    return {i: max(1, int(np.ceil(duration - 1e-5))) for i, duration in durations.items()}


def test_expected_duration_stays_finite_for_pairs_that_never_meet(sinr_drops):
    value = expected_duration(sinr_drops[:100], 1e30)
    assert float(value) == pytest.approx(200.0)  # idle epochs of one slot, 1/p = 2n


def test_middle_threshold_balances_waiting_and_transmission(sinr_drops):
    """[1, Sec. V-A]: too low a threshold costs transmission, too high a one waiting."""
    low, middle, high = (
        float(expected_duration(sinr_drops, db_to_linear(t))) for t in (-20.0, 0.0, 25.0)
    )
    assert middle < low
    assert middle < high


def test_bracket_search_finds_what_the_fine_grid_finds(sinr_drops):
    sinr = sinr_drops[:400]
    duration = jax.jit(lambda t: expected_duration(sinr, db_to_linear(t)))
    grid = schedule.grid_search(duration, np.arange(-20.0, 20.01, 0.5))
    bracket = schedule.bracket_search(duration, -20.0, 20.0)

    assert (
        bracket.value <= grid.value * 1.02
    )  # a step function has ripples; the floor is what counts
    assert len(bracket.values) < len(grid.values) / 3
    assert bracket.value == bracket.values.min()
    assert len(bracket.values) == 19  # as its docstring says


def test_bracket_search_is_golden_section_on_a_smooth_objective():
    for optimum in (-20.0, -18.9, -7.3, 0.1, 18.9, 20.0):
        found = schedule.bracket_search(
            lambda t, at=optimum: abs(t - at), -20.0, 20.0, tolerance_db=1e-3
        )
        assert found.threshold_db == pytest.approx(optimum, abs=2e-3)
        assert found.value == abs(found.threshold_db - optimum)


def test_searches_refuse_what_they_cannot_search():
    with pytest.raises(ValueError, match="expected at least one threshold, got none; give a grid"):
        schedule.grid_search(lambda t: t, [])
    with pytest.raises(
        ValueError, match=r"expected objective values, got nan at 1.0 dB; return inf"
    ):
        schedule.grid_search(lambda t: float("nan") if t > 0 else t, [0.0, 1.0])
    with pytest.raises(
        ValueError, match=r"expected low_db < high_db.*, got 5.0, -5.0 and 9; give an interval"
    ):
        schedule.bracket_search(lambda t: t, 5.0, -5.0)
    assert (
        schedule.grid_search(
            lambda t: float("inf") if t < 0 else 1.0, [-1.0, 2.0, 3.0]
        ).threshold_db
        == 2.0
    )


def test_the_coarsest_bracket_has_three_points():
    found = schedule.bracket_search(abs, -8.0, 8.0, num_coarse=3)

    assert found.thresholds_db[:3].tolist() == [-8.0, 0.0, 8.0]
    for low_db, high_db, coarse in ((-8.0, 8.0, 2), (8.0, 8.0, 9)):
        with pytest.raises(ValueError, match="expected low_db < high_db and num_coarse >= 3"):
            schedule.bracket_search(abs, low_db, high_db, num_coarse=coarse)


def test_precision_is_kept_under_jit():
    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            sinr = jnp.ones((4, 3, 3), dtype)
            value = jax.jit(lambda s: expected_duration(s, 0.5))(sinr)
            assert value.dtype == dtype
            assert schedule.se_min(sinr, schedule.links(sinr, 0.5)).dtype == dtype
