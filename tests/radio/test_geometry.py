"""Point processes have their counts, their uniformity and their shapes; layouts stay linear in the cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from folkman.radio import geometry

RADIUS_M = 500.0


def radii_m(positions_m):
    return np.linalg.norm(np.asarray(positions_m, np.float64), axis=-1)


def disc_of_points(mean, key, bands=1):
    """A Poisson process in the disc around the origin: a ring that begins at the centre."""
    density = mean / (np.pi * RADIUS_M**2)
    return geometry.interferers(bands, density, key, inner_radius_m=0.0, outer_radius_m=RADIUS_M)


def test_poisson_counts_have_mean_and_variance_of_the_density():
    num_draws, mean = 4000, 20.0
    phi = jax.jit(disc_of_points, static_argnums=(0, 2))(mean, jax.random.key(1), num_draws)
    counts = np.asarray(phi.present.sum(axis=-1))

    # Poisson law: var of the sample mean m/n, of the sample variance (m + 2 m^2)/n, as mu_4 = m + 3 m^2.
    assert abs(counts.mean() - mean) < 4 * np.sqrt(mean / num_draws)
    assert abs(counts.var() - mean) < 4 * np.sqrt((mean + 2 * mean**2) / num_draws)


def test_counts_in_disjoint_halves_are_uncorrelated():
    points = jax.jit(disc_of_points, static_argnums=(0, 2))(40.0, jax.random.key(2), 3000)
    left = np.asarray(points.present & (points.positions_m[..., 0] < 0)).sum(axis=-1)
    right = np.asarray(points.present).sum(axis=-1) - left

    # A fixed count would give correlation -1; independence gives a standard error of 1/sqrt(n).
    assert abs(np.corrcoef(left, right)[0, 1]) < 4 / np.sqrt(3000)


def test_padding_is_hardly_ever_exceeded():
    means = np.array([0.0, 0.1, 1.0, 20.0, 255.0, 1e4, 1e6])
    assert all(stats.poisson.sf(geometry.padding(mean), mean) < 1e-9 for mean in means)
    assert geometry.padding(1e4) < 1.1e4


@pytest.mark.parametrize("mean", [0.0, 0.1, 1.0, 20.0, 255.0, 1e4, 1e6])
def test_padding_is_the_least_length_that_bernsteins_bound_allows(mean):
    """P(N >= m + x) <= exp(-x^2 / (2 (m + x/3))): at most 1e-9 here, and above it one point earlier."""

    def log_bound(length):
        x = length - mean
        return -(x**2) / (2 * (mean + x / 3))

    found = geometry.padding(mean)

    assert log_bound(found) <= -np.log(1e9) < log_bound(found - 1)


def test_cell_is_uniform_in_the_disc():
    positions_m = geometry.cell(4000, RADIUS_M, jax.random.key(4))
    # Uniform in area: (r/R)^2 is uniform, and so is the angle.
    assert stats.kstest((radii_m(positions_m) / RADIUS_M) ** 2, "uniform").pvalue > 1e-3
    angle = np.arctan2(*np.asarray(positions_m).T)
    assert stats.kstest(angle, "uniform", (-np.pi, 2 * np.pi)).pvalue > 1e-3
    assert positions_m.dtype == jnp.float32


def test_drawing_radius_and_angle_at_once_gives_the_bits_of_one_draw_each():
    key = jax.random.key(4)
    radius_key, angle_key = jax.random.split(key)
    radius_m = jnp.sqrt(jax.random.uniform(radius_key, (50,)) * jnp.square(jnp.float32(RADIUS_M)))
    angle = jax.random.uniform(angle_key, (50,), maxval=2 * np.pi)
    wanted = radius_m[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)

    np.testing.assert_array_equal(geometry.cell(50, RADIUS_M, key), wanted)

    here_key, there_key = jax.random.split(key)
    both = geometry.waypoint_start(50, RADIUS_M, key)
    np.testing.assert_array_equal(both.positions_m, geometry.cell(50, RADIUS_M, here_key))
    np.testing.assert_array_equal(both.targets_m, geometry.cell(50, RADIUS_M, there_key))


def test_interferers_stay_out_of_the_cell_and_bands_differ():
    phi = geometry.interferers(5, geometry.cell_density_per_m2(RADIUS_M), jax.random.key(5))
    reach_m = radii_m(phi.positions_m)

    assert reach_m.min() >= 500.0 - 1e-2
    assert reach_m.max() <= 8000.0 + 1e-2
    # Mean count lambda pi (8000^2 - 500^2) = 255 a band.
    counts = np.asarray(phi.present.sum(axis=-1))
    assert abs(counts.mean() - 255.0) < 4 * np.sqrt(255.0 / 5)
    assert not np.array_equal(phi.positions_m[0], phi.positions_m[1])


def test_interferers_of_a_narrow_ring_are_as_many_as_its_area_asks_for():
    """lambda pi (1000^2 - 900^2) = 200."""
    density = 200.0 / (np.pi * (1000.0**2 - 900.0**2))

    phi = geometry.interferers(
        20, density, jax.random.key(6), inner_radius_m=900.0, outer_radius_m=1000.0
    )

    assert abs(phi.present.sum(axis=-1).mean() - 200.0) < 4 * np.sqrt(200.0 / 20)


def test_no_density_gives_no_interferers():
    phi = geometry.interferers(3, 0.0, jax.random.key(0))
    assert not phi.present.any()


def test_distances_keep_order_rx_tx_and_short_ranges_far_from_the_origin():
    rx_m = jnp.array([[0.0, 0.0], [8000.0, 8000.0]])
    tx_m = jnp.array([[3.0, 4.0], [8000.0, 8000.5], [0.0, 0.0]])

    measured_m = geometry.distances(rx_m, tx_m)

    assert measured_m.shape == (2, 3)
    np.testing.assert_allclose(measured_m[0, 0], 5.0)
    np.testing.assert_allclose(measured_m[1, 1], 0.5, rtol=1e-6)
    assert measured_m[0, 2] == 0.0


def test_hexagonal_cells_have_six_neighbours_and_the_area_of_the_disc():
    stations_m = geometry.hexagonal_stations(2000, RADIUS_M)
    nearest_m = radii_m(stations_m[geometry.neighbour_cells(stations_m, 7)[0]] - stations_m[:1])

    spacing_m = RADIUS_M * np.sqrt(2 * np.pi / np.sqrt(3))
    np.testing.assert_allclose(nearest_m[:6], spacing_m, rtol=1e-5)
    np.testing.assert_allclose(nearest_m[6], np.sqrt(3) * spacing_m, rtol=1e-5)
    # 2000 cells of area pi R^2 fill a disc of radius R sqrt(2000) up to the rim.
    assert radii_m(stations_m).max() == pytest.approx(RADIUS_M * np.sqrt(2000), rel=0.02)


def test_neighbours_are_the_nearest_others():
    stations_m = geometry.cell(60, 8 * RADIUS_M, jax.random.key(6))
    separation_m = np.array(geometry.distances(stations_m, stations_m))
    np.fill_diagonal(separation_m, np.inf)
    expected = np.argsort(separation_m, axis=1)[:, :5]

    np.testing.assert_array_equal(geometry.neighbour_cells(stations_m, 5), expected)


@pytest.mark.parametrize(("num_cells", "asked", "given"), [(1, 6, 0), (2, 6, 1), (4, 3, 3)])
def test_small_networks_have_as_many_neighbours_as_there_are(num_cells, asked, given):
    stations_m = geometry.hexagonal_stations(num_cells, RADIUS_M)
    assert geometry.neighbour_cells(stations_m, asked).shape == (num_cells, given)


def test_coinciding_stations_are_neighbours_but_never_of_themselves():
    stations_m = jnp.zeros((4, 2))
    neighbours = np.asarray(geometry.neighbour_cells(stations_m, 2))
    assert neighbours.shape == (4, 2)
    assert not (neighbours == np.arange(4)[:, None]).any()


def test_waypoint_nodes_move_at_their_speed_and_stay_inside():
    def advance(state, key):
        after = geometry.waypoint_step(state, 10.0, 1.0, key)
        return after, after

    start = geometry.waypoint_start(64, RADIUS_M, jax.random.key(12))
    _, path = jax.lax.scan(advance, start, jax.random.split(jax.random.key(13), 200))

    moved_m = radii_m(path.positions_m[1:] - path.positions_m[:-1])
    same_leg = np.all(np.asarray(path.targets_m[1:] == path.targets_m[:-1]), axis=-1)
    assert 0.9 < same_leg.mean() < 1.0
    np.testing.assert_allclose(moved_m[same_leg], 10.0, rtol=1e-3)
    assert moved_m.max() <= 10.0 * (1 + 1e-3)  # a turn on the way can only shorten the displacement
    assert radii_m(path.positions_m).max() <= RADIUS_M * (1 + 1e-5)


def test_waypoint_turns_to_a_new_target_on_arrival_and_walks_on():
    state = geometry.Waypoint(
        jnp.array([[0.0, 0.0], [0.0, 0.0]]), jnp.array([[3.0, 0.0], [400.0, 0.0]])
    )
    after = geometry.waypoint_step(state, 5.0, 1.0, jax.random.key(14))

    assert not np.array_equal(after.targets_m[0], state.targets_m[0])
    np.testing.assert_allclose(radii_m(after.positions_m[0] - state.targets_m[0]), 2.0, rtol=1e-5)
    np.testing.assert_array_equal(after.targets_m[1], state.targets_m[1])
    np.testing.assert_allclose(after.positions_m[1], [5.0, 0.0])


def test_waypoint_at_rest_stays():
    state = geometry.waypoint_start(5, RADIUS_M, jax.random.key(15))
    after = geometry.waypoint_step(state, 0.0, 1.0, jax.random.key(16))
    np.testing.assert_array_equal(after.positions_m, state.positions_m)


def test_draws_run_under_jit_and_vmap_and_repeat_by_key():
    keys = jax.random.split(jax.random.key(17), 3)
    draw = jax.jit(jax.vmap(lambda key: geometry.interferers(2, 1e-6, key)))
    first, second = draw(keys), draw(keys)
    np.testing.assert_array_equal(first.positions_m, second.positions_m)
    single = geometry.interferers(2, 1e-6, keys[1])
    np.testing.assert_allclose(first.positions_m[1], single.positions_m, rtol=1e-5, atol=1e-2)
    np.testing.assert_array_equal(first.present[1], single.present)


def test_precision_is_single_unless_asked_for():
    key = jax.random.key(0)
    with jax.enable_x64(True):
        for asked, dtype in (({}, jnp.float32), ({"dtype": jnp.float64}, jnp.float64)):
            for draw in (
                lambda kw=asked: geometry.cell(3, 500.0, key, **kw),
                lambda kw=asked: geometry.interferers(2, 1e-6, key, **kw).positions_m,
            ):
                assert jax.eval_shape(draw).dtype == dtype


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_radius_is_refused_with_a_remedy(bad):
    with pytest.raises(
        ValueError, match=r"expected radius_m positive and finite, got radius_m = .*; give"
    ):
        geometry.cell(3, bad, jax.random.key(0))


def test_ring_turned_inside_out_is_refused():
    with pytest.raises(
        ValueError, match=r"expected 0 <= inner.*got 900.0 and 500.0; the inner radius"
    ):
        geometry.interferers(1, 1e-6, jax.random.key(0), inner_radius_m=900.0, outer_radius_m=500.0)


def test_a_ring_may_begin_at_the_centre_and_must_have_a_width():
    key = jax.random.key(0)
    disc = geometry.interferers(2, 1e-4, key, inner_radius_m=0.0, outer_radius_m=500.0)
    assert radii_m(disc.positions_m).min() < 100.0
    for inner_m in (-1.0, 500.0):
        with pytest.raises(ValueError, match="expected 0 <= inner_radius_m < outer_radius_m"):
            geometry.interferers(2, 1e-4, key, inner_radius_m=inner_m, outer_radius_m=500.0)
