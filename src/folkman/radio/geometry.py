"""Where base stations, nodes and interferers are, and how nodes move.

    N ~ Poisson(lambda |A|), then N points i.i.d. uniform in A    (homogeneous Poisson process)

A random number of points has no static shape, so a Poisson draw is a padded array and a mask
(`Points`): everything up to "many cells" below is clean under `jit` and `vmap`. The many-cell part
looks for neighbours with a k-d tree on the host, once a layout; its memory is linear in the number
of cells.

Differs from [1]: the cell is a disc holding a given number of nodes, a Poisson process conditioned
on its count, because the paper fixes both the radius and I (docs/decisions.md, D4); and
"out-of-cell nodes" are one node a band in every other cell, density 1 / (pi R^2), because the paper
gives no density (D1).

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

import math
from typing import NamedTuple

import numpy as np

from folkman.arrays import Array, ArrayLike, Bool, DTypeLike, Float, Int, PRNGKeyArray, jax, jnp
from folkman.checks import require_positive

__all__ = [
    "Points",
    "Waypoint",
    "cell",
    "cell_density_per_m2",
    "distances",
    "hexagonal_stations",
    "interferers",
    "neighbour_cells",
    "padding",
    "waypoint_start",
    "waypoint_step",
]


class Points(NamedTuple):
    """A padded draw of points: rows with `present` False are padding and stand for nothing."""

    positions_m: Float[Array, "*batch point 2"]
    present: Bool[Array, "*batch point"]  # which rows are points


class Waypoint(NamedTuple):
    """Random waypoint motion: where each node is and where it is going."""

    positions_m: Float[Array, "node 2"]
    targets_m: Float[Array, "node 2"]  # where each node goes, in metres


def cell_density_per_m2(radius_m: float) -> float:
    """Return 1 / (pi R^2), the density of one point on average in a disc of `radius_m` (D1)."""
    require_positive("radius_m", radius_m, "give the cell radius in metres, such as 500.0")
    return 1.0 / (math.pi * radius_m**2)


def padding(
    mean_count: float,  # mean of the Poisson law
) -> int:
    """Return a length that a Poisson count of `mean_count` exceeds with probability below 1e-9.

    Bernstein's inequality for the Poisson law, P(N >= m + x) <= exp(-x^2 / (2 (m + x/3))), solved
    for x.
    """
    log_odds = math.log(1e9)
    return math.ceil(
        mean_count + log_odds / 3 + math.sqrt((log_odds / 3) ** 2 + 2 * log_odds * mean_count)
    )


def _uniform_annulus(
    num_points: int, inner_m: ArrayLike, outer_m: ArrayLike, key: Array, dtype: DTypeLike
) -> Array:
    # Both at once: every draw is a loop of its own, which takes a tenth of a second to compile.
    fraction, turn = jax.vmap(lambda each: jax.random.uniform(each, (num_points,), dtype))(
        jax.random.split(key)
    )
    angle = turn * jnp.asarray(2 * math.pi, dtype)
    # Uniform in area: r^2, not r, is uniform between the two squares.
    inner_m2 = jnp.square(jnp.asarray(inner_m, dtype))
    radius_m = jnp.sqrt(inner_m2 + fraction * (jnp.square(jnp.asarray(outer_m, dtype)) - inner_m2))
    return radius_m[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def _present(mean_count: ArrayLike, max_points: int, key: Array) -> Array:
    """Return a mask with a Poisson number of leading True.

    Arrivals of unit rate up to time `mean_count`. `jax.random.poisson` compiles twice as long,
    which is what counts for one draw a run, and refuses keys that are not threefry.
    """
    return jnp.cumsum(jax.random.exponential(key, (max_points,), jnp.float32)) <= mean_count


def cell(
    num_nodes: int, radius_m: ArrayLike, key: PRNGKeyArray, *, dtype: DTypeLike = jnp.float32
) -> Float[Array, "node 2"]:
    """Return `num_nodes` positions i.i.d. uniform in the disc around the origin (D4)."""
    require_positive("radius_m", radius_m, "give the cell radius in metres, such as 500.0")
    return _uniform_annulus(num_nodes, 0.0, radius_m, key, dtype)


def interferers(
    num_bands: int,  # bands, one for each node
    density_per_m2: float,  # interferers of a band on a square metre
    key: PRNGKeyArray,
    *,
    inner_radius_m: float = 500.0,  # radius without interferers, in metres
    outer_radius_m: float = 8000.0,  # radius up to which they are simulated, in metres
    dtype: DTypeLike = jnp.float32,
) -> Points:
    """Return Phi of eq. (24), (band, point, 2), and its mask (D1).

    One Poisson process per band, outside the cell.

    The outer radius of 8 km keeps, at exponent 4, all but (500 / 8000)^2 = 0.4 % of the mean
    interference that the centre of the cell would see from the whole plane.
    """
    if not 0 <= inner_radius_m < outer_radius_m:
        raise ValueError(
            f"expected 0 <= inner_radius_m < outer_radius_m, got {inner_radius_m} and "
            f"{outer_radius_m}; "
            "the inner radius is the cell's, the outer one bounds the simulated interference"
        )
    mean_count = density_per_m2 * math.pi * (outer_radius_m**2 - inner_radius_m**2)
    max_points = padding(mean_count)

    def one_band(band_key: Array) -> Points:
        count_key, place_key = jax.random.split(band_key)
        positions_m = _uniform_annulus(max_points, inner_radius_m, outer_radius_m, place_key, dtype)
        return Points(positions_m, _present(mean_count, max_points, count_key))

    return jax.vmap(one_band)(jax.random.split(key, num_bands))


def distances(
    rx_m: Float[Array, "... rx 2"], tx_m: Float[Array, "... tx 2"]
) -> Float[Array, "... rx tx"]:
    """Return Euclidean distances d_ji."""
    # Differences, not dot products: at 8 km float32 squares would lose every distance under a
    # metre.
    offset_m = rx_m[..., :, None, :] - tx_m[..., None, :, :]
    return jnp.sqrt(jnp.sum(jnp.square(offset_m), axis=-1))


def waypoint_start(num_nodes: int, radius_m: ArrayLike, key: PRNGKeyArray) -> Waypoint:
    """Return nodes uniform in the disc, each with a first target uniform in the disc."""
    here_m, there_m = jax.vmap(lambda each: cell(num_nodes, radius_m, each))(jax.random.split(key))
    return Waypoint(here_m, there_m)


def waypoint_step(
    state: Waypoint,
    speed_m_per_s: ArrayLike,
    step_s: ArrayLike,  # seconds that nodes walk
    key: PRNGKeyArray,
    *,
    radius_m: ArrayLike = 500.0,
) -> Waypoint:
    """Move every node towards its target for `step_s`.

    Who arrives turns to a new target in the disc.

    The way left over after an arrival is walked towards the new target, at most up to it, so a step
    should be shorter than the time across the cell.
    """
    dtype = state.positions_m.dtype
    fresh_m = cell(state.positions_m.shape[0], radius_m, key, dtype=dtype)
    reach_m = jnp.asarray(speed_m_per_s, dtype) * jnp.asarray(step_s, dtype)
    halfway_m, left_m = _walk(state.positions_m, state.targets_m, reach_m)
    arrived = left_m > 0
    targets_m = jnp.where(arrived[:, None], fresh_m, state.targets_m)
    onward_m, _ = _walk(halfway_m, targets_m, left_m)
    return Waypoint(jnp.where(arrived[:, None], onward_m, halfway_m), targets_m)


def _walk(from_m: Array, to_m: Array, reach_m: Array) -> tuple[Array, Array]:
    """Return the point `reach_m` along the way, at most its end, and the reach left over."""
    way_m = to_m - from_m
    length_m = jnp.sqrt(jnp.sum(jnp.square(way_m), axis=-1))
    fraction = jnp.minimum(reach_m / jnp.maximum(length_m, jnp.finfo(length_m.dtype).tiny), 1.0)
    ended = fraction >= 1.0
    there_m = jnp.where(
        ended[:, None], to_m, from_m + fraction[:, None] * way_m
    )  # the end exactly, no rounding
    return there_m, jnp.where(ended, jnp.maximum(reach_m - length_m, 0.0), 0.0)


# Many cells: host code, run once before the simulation.


def hexagonal_stations(num_cells: int, radius_m: float) -> Float[Array, "cell 2"]:
    """Return the `num_cells` points of a hexagonal lattice nearest the origin.

    Nearest first.

    A hexagon has the area pi R^2 of the disc it stands for: spacing R sqrt(2 pi / sqrt(3)) = 1.905
    R.
    """
    require_positive("radius_m", radius_m, "give the cell radius in metres, such as 500.0")
    spacing_m = radius_m * math.sqrt(2 * math.pi / math.sqrt(3))
    # A disc of n cells has radius sqrt(n sqrt(3) / 2 pi) spacings; the skew lattice needs
    # 2 / sqrt(3) more.
    half = math.ceil(math.sqrt(num_cells) * 0.7) + 2
    steps = np.arange(-half, half + 1)
    column, row = (axis.ravel() for axis in np.meshgrid(steps, steps))
    points = spacing_m * np.stack([column + row / 2, row * math.sqrt(3) / 2], axis=-1)
    # Rounding first makes the order of equidistant points the same on every machine.
    order = np.argsort(np.round(np.sum(points**2, axis=-1) / spacing_m**2, 6), kind="stable")
    return jnp.asarray(points[order[:num_cells]], jnp.float32)


def neighbour_cells(
    stations_m: Float[Array, "cell 2"],  # positions of the stations, in metres
    num_neighbours: int,  # nearest stations of each
) -> Int[Array, "cell nbr"]:
    """Return the nearest other cells of each cell, nearest first.

    At most all the others.
    """
    from scipy.spatial import KDTree  # here and not above: only networks of many cells need it

    sites_m = np.asarray(stations_m, np.float64)
    count = min(num_neighbours, len(sites_m) - 1)
    if count == 0:
        return jnp.zeros((len(sites_m), 0), jnp.int32)
    # One more than asked for: the nearest station to a station is itself, wherever ties put it.
    found = np.asarray(KDTree(sites_m).query(sites_m, k=count + 1)[1])
    is_self = found == np.arange(len(sites_m))[:, None]
    is_self[:, -1] |= ~is_self.any(
        axis=1
    )  # coinciding stations may push the cell itself off the list
    return jnp.asarray(found[~is_self].reshape(len(sites_m), count), jnp.int32)
