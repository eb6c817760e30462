"""Training latency has its knee, payloads their index bits, durations eq. (26) and (27)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman.radio import bandwidth, latency


def test_training_latency_is_flat_then_linear_and_continuous():
    samples = jnp.array([1, 127, 128, 129, 1128])
    np.testing.assert_allclose(
        latency.training_latency_s(samples), [1.0, 1.0, 1.0, 1.001, 2.0], rtol=1e-6
    )
    np.testing.assert_allclose(
        latency.training_latency_s(300.0, base_s=2.0, threshold=100, per_sample_s=0.01), 4.0
    )
    assert latency.training_latency_s(200).dtype == jnp.float32


@pytest.mark.parametrize(
    ("num_parameters", "expected_bits"), [(430_698, 6_891_168), (555_178, 8_882_848)]
)
def test_payload_of_the_papers_networks(num_parameters, expected_bits):
    assert latency.payload_bits(num_parameters) == expected_bits


@pytest.mark.parametrize(
    ("num_parameters", "index_bits"), [(1, 0), (2, 1), (1024, 10), (1025, 11), (430_698, 19)]
)
def test_sparse_payload_pays_for_its_indices(num_parameters, index_bits):
    assert latency.payload_bits(num_parameters, 16, 0.25) == 0.25 * num_parameters * (
        16 + index_bits
    )
    fractions = jnp.array([0.25, 1.0])
    np.testing.assert_allclose(
        jax.jit(lambda q: latency.payload_bits(num_parameters, 16, q))(fractions),
        [0.25 * num_parameters * (16 + index_bits), 16 * num_parameters],
        rtol=1e-6,
    )


def test_large_models_do_not_overflow():
    assert latency.payload_bits(10**11, 32) == 3.2e12
    np.testing.assert_allclose(
        latency.payload_bits(10**11, 32, jnp.array([0.5])), [0.5e11 * (32 + 37)], rtol=1e-6
    )


def test_transmission_is_equation_27():
    se = jnp.array([[1.0, 2.0], [4.0, 0.5]])  # [rx, tx]
    band_hz = jnp.array([1e6, 4e6])
    np.testing.assert_allclose(
        latency.transmission_slots(8e6, band_hz, se, 2.0), [[4.0, 0.5], [1.0, 2.0]], rtol=1e-6
    )
    per_node = latency.transmission_slots(
        jnp.array([8e6, 4e6]), band_hz, jnp.array([1.0, 0.5]), 2.0
    )
    np.testing.assert_allclose(per_node, [4.0, 1.0], rtol=1e-6)


def test_without_bandwidth_nothing_ever_arrives():
    slots = latency.transmission_slots(
        1e6, jnp.array([0.0, 0.0, 1e6]), jnp.array([jnp.inf, 1.0, 0.0]), 1.0
    )
    assert jnp.isposinf(slots).all()
    assert (latency.whole_slots(slots) == latency.NEVER_SLOTS).all()
    assert int(latency.whole_slots(slots)[0]) + latency.NEVER_SLOTS - 1 < 2**31


def test_whole_slots_round_up_and_last_at_least_one():
    slots = latency.whole_slots(jnp.array([0.0, 0.01, 1.0, 1.01, 7.0]))
    assert slots.tolist() == [1, 1, 1, 2, 7]
    assert slots.dtype == jnp.int32


def test_aggregated_duration_is_the_longest_link_in_use():
    slots = jnp.array([[9.0, 2.0], [3.0, 9.0]])
    assert latency.aggregated_slots(slots, jnp.array([[False, True], [True, False]])) == 3.0
    assert latency.aggregated_slots(slots, jnp.zeros((2, 2), bool)) == 0.0
    assert latency.aggregated_slots(jnp.array([4, 5]), jnp.array([True, False])) == 4


def test_per_link_and_common_rate_give_one_aggregated_duration():
    """C8: Gamma_T is the worst receiver's, whether each link ends by itself or the broadcast does."""
    rng = np.random.default_rng(0)
    se = jnp.asarray(rng.uniform(0.1, 5.0, (5, 5)), jnp.float32)
    linked = jnp.asarray(rng.random((5, 5)) < 0.5) & ~jnp.eye(5, dtype=bool)
    worst = jnp.min(jnp.where(linked, se, jnp.inf), axis=0)
    sending = jnp.any(linked, axis=0)
    band_hz = bandwidth.optimal(worst, sending, 10e6)

    by_link = latency.aggregated_slots(latency.transmission_slots(7e6, band_hz, se, 1.0), linked)
    by_node = latency.aggregated_slots(
        latency.transmission_slots(7e6, band_hz, worst, 1.0), sending
    )

    np.testing.assert_allclose(by_link, by_node, rtol=1e-6)


def test_durations_run_under_jit_and_vmap_and_keep_precision():
    def longest(se, linked):
        return latency.aggregated_slots(
            latency.transmission_slots(7e6, jnp.full(3, 1e6, se.dtype), se, 1.0), linked
        )

    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            result = jax.jit(jax.vmap(longest))(
                jnp.ones((4, 3, 3), dtype), jnp.ones((4, 3, 3), bool)
            )
            np.testing.assert_allclose(result, 7.0)
            assert result.dtype == dtype


def test_impossible_inputs_are_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match=r"expected slot_s positive.*, got slot_s = 0.0; give the duration T"
    ):
        latency.transmission_slots(1.0, jnp.ones(1), jnp.ones(1), 0.0)
    with pytest.raises(ValueError, match=r"expected kept_fraction in \[0, 1\], got 1.5; it is q"):
        latency.payload_bits(10, 16, 1.5)
    with pytest.raises(
        ValueError, match=r"expected num_parameters positive.*, got num_parameters = 0; give"
    ):
        latency.payload_bits(0)


def test_a_duration_is_inversely_proportional_to_any_bandwidth_down_to_fractions_of_a_hertz():
    band_hz = np.array([1e-3, 0.5, 1.0, 2.0, 1e9])

    slots = latency.transmission_slots(
        6.0, jnp.asarray(band_hz, jnp.float32), jnp.full(5, 3.0), 2.0
    )

    np.testing.assert_allclose(slots, 6.0 / (2.0 * band_hz * 3.0), rtol=1e-6)


def test_a_share_of_nothing_costs_nothing_and_a_whole_one_no_indices():
    assert latency.payload_bits(100, 16, 0.0) == 0.0
    assert latency.payload_bits(100, 16, 1.0) == 1600.0
    assert latency.payload_bits(1, 1) == 1.0
    with pytest.raises(ValueError, match="expected kept_fraction"):
        latency.payload_bits(100, 16, -1e-9)
