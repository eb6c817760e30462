"""Fading is exponential, path loss clamped, SINR eq. (24), and coverage what stochastic geometry says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from folkman.radio import channel, geometry
from folkman.radio.geometry import Points
from folkman.units import watt_to_dbm


def test_fading_power_is_exponential_with_mean_one():
    gains = np.asarray(channel.rayleigh_gain((40, 500), jax.random.key(0)), np.float64)
    assert stats.kstest(gains.ravel(), "expon").pvalue > 1e-3
    # D3: E h = 1 and E h^2 = 2; not E h^2 = 1.
    assert gains.mean() == pytest.approx(1.0, abs=4 / np.sqrt(gains.size))
    assert (gains**2).mean() == pytest.approx(2.0, abs=4 * np.sqrt(20 / gains.size))


def test_path_gain_follows_the_exponent_and_is_clamped_at_one_metre():
    distance_m = jnp.array([0.0, 0.3, 1.0, 10.0, 500.0])
    np.testing.assert_allclose(
        channel.path_gain(distance_m, 4.0), [1.0, 1.0, 1.0, 1e-4, 500.0**-4], rtol=1e-5
    )
    np.testing.assert_allclose(channel.path_gain(100, 3), 1e-6, rtol=1e-5)


def test_noise_over_ten_megahertz_is_minus_104_dbm():
    assert float(watt_to_dbm(channel.noise_power_w(-174.0, 10e6))) == pytest.approx(
        -104.0, abs=1e-4
    )


def test_sinr_is_the_equation_written_as_loops():
    def block(key):
        keys = jax.random.split(key, 4)
        nodes_m = geometry.cell(4, 500.0, keys[0])
        phi = geometry.interferers(4, 1.27e-6, keys[1], outer_radius_m=2000.0)
        link, interferer = (
            channel.link_gain(nodes_m, nodes_m, 3.5),
            channel.interferer_gain(nodes_m, phi, 3.5),
        )
        h_link = channel.rayleigh_gain(link.shape, keys[2])
        h_interferer = channel.rayleigh_gain(interferer.shape, keys[3])
        sinr = channel.sinr(link, interferer, h_link, h_interferer, power_w=0.5, noise_w=1e-12)
        return nodes_m, phi, h_link, h_interferer, sinr

    nodes_m, phi, h_link, h_interferer, got = jax.tree.map(
        np.asarray, jax.jit(block)(jax.random.key(1))
    )

    position = np.asarray(nodes_m, np.float64)
    for j in range(4):
        for i in range(4):
            total_w = 1e-12
            for x in range(phi.present.shape[1]):  # band of transmitter i, heard at receiver j
                if phi.present[i, x]:
                    d = max(np.linalg.norm(position[j] - phi.positions_m[i, x]), 1.0)
                    total_w += 0.5 * float(h_interferer[j, i, x]) * d**-3.5
            d = max(np.linalg.norm(position[j] - position[i]), 1.0)
            assert float(got[j, i]) == pytest.approx(
                0.5 * float(h_link[j, i]) * d**-3.5 / total_w, rel=1e-4
            )


def test_interference_belongs_to_the_transmitters_band():
    nodes_m = jnp.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    # Only band 2 is reused, next to node 0: whoever hears node 2 suffers, node 0 most.
    positions_m = jnp.full((3, 1, 2), 510.0).at[2, 0].set(jnp.array([-10.0, 0.0]))
    phi = Points(positions_m, jnp.array([[False], [False], [True]]))
    interferer = channel.interferer_gain(nodes_m, phi)
    link = channel.link_gain(nodes_m, nodes_m)
    quiet = channel.sinr(link, interferer, jnp.ones((3, 3)), jnp.ones((3, 3, 1)), noise_w=1e-14)

    np.testing.assert_allclose(quiet[0, 1], 1e-8 / 1e-14, rtol=1e-5)
    np.testing.assert_allclose(quiet[0, 2], 1e-8 / (1e-4 + 1e-14), rtol=1e-5)
    np.testing.assert_allclose(quiet[1, 2], 20000.0**-2 / (110.0**-4 + 1e-14), rtol=1e-5)


def test_coinciding_nodes_and_a_single_node_stay_finite():
    keys = jax.random.split(jax.random.key(2), 2)
    for nodes_m in (jnp.zeros((3, 2)), jnp.zeros((1, 2))):
        phi = Points(jnp.zeros((nodes_m.shape[0], 2, 2)), jnp.ones((nodes_m.shape[0], 2), bool))
        link, interferer = (
            channel.link_gain(nodes_m, nodes_m),
            channel.interferer_gain(nodes_m, phi),
        )
        assert (link == 1.0).all()
        assert jnp.isfinite(channel.sinr_draw(link, interferer, keys[0], noise_w=1e-14)).all()


def test_base_station_is_a_receiver_like_any_other():
    nodes_m = geometry.cell(5, 500.0, jax.random.key(3))
    phi = geometry.interferers(5, 1.27e-6, jax.random.key(4))
    station_m = jnp.zeros((1, 2))
    link, interferer = (
        channel.link_gain(station_m, nodes_m),
        channel.interferer_gain(station_m, phi),
    )
    assert channel.sinr_draw(link, interferer, jax.random.key(5), noise_w=4e-14).shape == (1, 5)


def test_coverage_in_a_poisson_field_is_the_closed_form():
    """P(SIR > theta) = exp(-lambda pi r^2 sqrt(theta) pi/2) for exponent 4, Rayleigh fading, no noise.

    The wanted gain h is Exp(1), so P(h > theta r^4 I) = E exp(-s I), s = theta r^4, I = sum_x h_x |x|^-4.
    Interferers fade independently, E exp(-s h_x |x|^-4) = 1 / (1 + s |x|^-4) = f(x), and the Poisson process
    has the probability generating functional E prod f(x) = exp(-lambda int (1 - f)). With u = |x|^2 / sqrt(s)

        int (1 - f) dx = int_0^inf 2 pi x / (1 + x^4 / s) dx = pi r^2 sqrt(theta) int_0^inf du / (1 + u^2),

    and the last integral is pi/2. A window of radius W stops it at arctan(W^2 / (r^2 sqrt(theta))), which is
    short of pi/2 by less than r^2 sqrt(theta) / W^2: the bias of p is below lambda pi r^4 theta / W^2 (0.0014
    here at the most). The 1 m clamp matters with probability lambda pi = 3e-5.
    """
    density, link_m, window_m, num_draws = 1e-5, 100.0, 3000.0, 8000
    origin_m = jnp.zeros((1, 2))
    link = channel.link_gain(origin_m, jnp.array([[link_m, 0.0]]))

    def ratio(key):
        place_key, fade_key = jax.random.split(key)
        phi = geometry.interferers(
            1, density, place_key, inner_radius_m=0.0, outer_radius_m=window_m
        )
        interferer = channel.interferer_gain(origin_m, phi)
        return channel.sinr_draw(link, interferer, fade_key, noise_w=0.0)[0, 0]

    draws = jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(6), num_draws))

    for threshold in (0.25, 1.0, 4.0):
        covered = np.mean(np.asarray(draws) > threshold)
        expected = np.exp(-density * np.pi * link_m**2 * np.sqrt(threshold) * np.pi / 2)
        bias = density * np.pi * link_m**4 * threshold / window_m**2 + density * np.pi
        assert abs(covered - expected) < 4 * np.sqrt(expected * (1 - expected) / num_draws) + bias


def test_network_of_cells_is_one_cell_under_vmap():
    nodes_m = geometry.cell(50 * 5, 500.0, jax.random.key(7)).reshape(50, 5, 2)
    drawn = jax.vmap(lambda key: geometry.interferers(5, 1e-6, key))
    phi = drawn(jax.random.split(jax.random.key(9), 50))

    def one_cell(cell_nodes_m, cell_phi, key):
        link = channel.link_gain(cell_nodes_m, cell_nodes_m)
        return channel.sinr_draw(
            link, channel.interferer_gain(cell_nodes_m, cell_phi), key, noise_w=4e-14
        )

    keys = jax.random.split(jax.random.key(8), 50)
    together = jax.jit(jax.vmap(one_cell))(nodes_m, phi, keys)
    alone = jax.jit(one_cell)(nodes_m[3], jax.tree.map(lambda leaf: leaf[3], phi), keys[3])
    assert together.shape == (50, 5, 5)
    np.testing.assert_allclose(together[3], alone, rtol=1e-4)


def test_precision_is_kept():
    def block(dtype):
        nodes_m = geometry.cell(3, 500.0, jax.random.key(0), dtype=dtype)
        phi = geometry.interferers(3, 1e-6, jax.random.key(1), dtype=dtype)
        link, interferer = (
            channel.link_gain(nodes_m, nodes_m),
            channel.interferer_gain(nodes_m, phi),
        )
        return channel.sinr_draw(link, interferer, jax.random.key(2), noise_w=1e-14)

    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            assert jax.eval_shape(lambda dtype=dtype: block(dtype)).dtype == dtype


def test_no_bandwidth_is_refused_with_a_remedy():
    with pytest.raises(
        ValueError, match=r"expected bandwidth_hz positive.*got bandwidth_hz = 0.0; give the noise"
    ):
        channel.noise_power_w(-174.0, 0.0)
