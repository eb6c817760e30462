"""The radio channel: path loss, Rayleigh fading, noise, SINR.

    SINR_ji = P h_ji d_ji^-a / (sum_{x in Phi_j} P h_jx d_jx^-a + sigma^2)          [1, eq. (24)]

from transmitter i to receiver j, arrays [rx, tx] (docs/decisions.md, C1). Nodes of a cell have
bands of their own and do not disturb each other; band i is used again by the interferers of band i,
so the sum over Phi depends on the transmitter's band as well as on the receiver: [rx, band,
interferer], band = tx.

Differs from [1]: h is a power gain, Exp(1), although [1] writes E|h|^2 = 1 (D3); distances are
clamped at 1 m, where d^-a would blow up (D6); the noise is taken over the whole band B and not over
B_i, which keeps the SINR, and with it Proposition 1, free of the allocation (D2); half-duplex is
ignored (D5).

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from typing import TypeAlias

from folkman.arrays import Array, ArrayLike, DTypeLike, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require_positive
from folkman.radio.geometry import Points, distances
from folkman.units import dbm_to_watt

__all__ = [
    "fading_words",
    "interferer_gain",
    "is_indexed",
    "link_gain",
    "noise_power_w",
    "path_gain",
    "rayleigh_at",
    "rayleigh_gain",
    "sinr",
    "sinr_draw",
]

MIN_DISTANCE_M = 1.0  # D6

Words: TypeAlias = tuple[Array, Array]  # the two halves of a key

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # of threefry2x32


def path_gain(
    distance_m: ArrayLike,  # distance of sender and receiver, in metres
    exponent: ArrayLike = 4.0,
) -> Float[Array, "..."]:
    """Return d^-a, distances below 1 m counting as 1 m."""
    clamped_m = jnp.maximum(jnp.asarray(distance_m), MIN_DISTANCE_M)
    return clamped_m ** -jnp.asarray(exponent, clamped_m.dtype)


def rayleigh_gain(
    shape: tuple[int, ...],  # shape of the table of gains
    key: PRNGKeyArray,
    *,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "..."]:
    """Return independent power gains h ~ Exp(1) of Rayleigh fading (D3)."""
    return jax.random.exponential(key, shape, dtype)


def is_indexed(key: PRNGKeyArray, dtype: DTypeLike) -> bool:
    """Tell whether `rayleigh_at` gives the draws of `rayleigh_gain`: JAX's own defaults."""
    return (
        jnp.dtype(dtype) == jnp.float32
        and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        and str(jax.random.key_impl(key)) == "threefry2x32"
        and bool(jax.config.jax_threefry_partitionable)  # type: ignore[attr-defined]
    )


def rayleigh_at(
    key: Words,
    index: Int[Array, "*any"],  # flat index in the table of all gains
) -> Float[Array, "*any"]:
    """Return single gains out of `rayleigh_gain(shape, key)`, by their flat index, the same bits.

    Threefry [2] counts: the n-th number is the cipher of n, whatever else is drawn. Written out, it
    is one pass over the numbers that are asked for, two to five times as fast as drawing an array.

    [2] Salmon, Moraes, Dror, Shaw. Parallel random numbers: as easy as 1, 2, 3. SC 2011.
    """
    left, right = _cipher(key, index.astype(jnp.uint32))
    mantissa = ((left ^ right) >> jnp.uint32(9)) | jnp.uint32(0x3F800000)
    uniform = lax.bitcast_convert_type(mantissa, jnp.float32) - 1.0
    return -jnp.log1p(-uniform)


def fading_words(key: PRNGKeyArray) -> tuple[Words, Words]:
    """Return the keys of links and of interferers, `jax.random.split(key)`, for `rayleigh_at`."""
    words = jax.random.key_data(key)
    first, second = (_cipher((words[0], words[1]), jnp.uint32(part)) for part in (0, 1))
    return first, second


def _cipher(key: Words, count: Array) -> Words:
    """Return threefry2x32 of (0, count), twenty rounds."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    left = jnp.broadcast_to(keys[0], count.shape)
    right = count + keys[1]
    for group in range(5):
        for turn in ROTATIONS[group % 2]:
            left = left + right
            right = left ^ ((right << jnp.uint32(turn)) | (right >> jnp.uint32(32 - turn)))
        left = left + keys[(group + 1) % 3]
        right = right + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def noise_power_w(density_dbm_per_hz: ArrayLike, bandwidth_hz: ArrayLike) -> Float[Array, "..."]:
    """Return sigma^2 = N0 B: -174 dBm/Hz over 10 MHz is -104 dBm, 4e-14 W."""
    require_positive(
        "bandwidth_hz", bandwidth_hz, "give the noise bandwidth in hertz, such as 10e6"
    )
    return dbm_to_watt(density_dbm_per_hz) * bandwidth_hz


def link_gain(
    rx_m: Float[Array, "*batch rx 2"], tx_m: Float[Array, "*batch tx 2"], exponent: ArrayLike = 4.0
) -> Float[Array, "*batch rx tx"]:
    """Return path gains d_ji^-a.

    Where both are the same nodes, the diagonal is the clamp's 1.
    """
    return path_gain(distances(rx_m, tx_m), exponent)


def interferer_gain(
    rx_m: Float[Array, "rx 2"],
    interferers: Points,  # interferers in each band, padded
    exponent: ArrayLike = 4.0,
) -> Float[Array, "rx band interferer"]:
    """Return path gains d_jx^-a, 0 for padding."""
    num_bands, num_points = interferers.present.shape
    gain = link_gain(rx_m, interferers.positions_m.reshape(-1, 2), exponent)
    present = jnp.broadcast_to(interferers.present, (rx_m.shape[0], num_bands, num_points))
    return jnp.where(present, gain.reshape(present.shape), 0.0)


def sinr(
    link: Float[Array, "... rx tx"],
    interferer: Float[Array, "... rx tx interferer"],
    link_fading: Float[Array, "... rx tx"],  # power gain of the fading, mean 1
    interferer_fading: Float[Array, "... rx tx interferer"],  # power gain of the fading, mean 1
    *,
    power_w: ArrayLike = 1.0,
    noise_w: ArrayLike,
) -> Float[Array, "... rx tx"]:
    """Return eq. (24) from path gains and fading; the band of an interferer is the transmitter's.

    With neither noise nor interference the SINR is infinite. The diagonal of a square array is a
    node's own signal and means nothing; `schedule.links` leaves it out.
    """
    signal_w = link_fading * link * power_w
    interference_w = (
        jnp.sum(interferer_fading * interferer, axis=-1) * power_w
    )  # (..., rx, band), band = tx
    return signal_w / (interference_w + noise_w)  # [1, eq. (24)]


def sinr_draw(
    link: Float[Array, "rx tx"],
    interferer: Float[Array, "rx tx interferer"],
    key: PRNGKeyArray,
    *,
    power_w: ArrayLike = 1.0,
    noise_w: ArrayLike,
) -> Float[Array, "rx tx"]:
    """Return one fading block's SINR: every ordered pair redrawn on its own (C5).

    >>> import jax, jax.numpy as jnp
    >>> from folkman.radio import channel, geometry
    >>> place, others, fade = jax.random.split(jax.random.key(0), 3)
    >>> nodes_m = geometry.cell(5, 500.0, place)
    >>> phi = geometry.interferers(5, geometry.cell_density_per_m2(500.0), others)
    >>> link = channel.link_gain(nodes_m, nodes_m)
    >>> interferer = channel.interferer_gain(nodes_m, phi)
    >>> channel.sinr_draw(link, interferer, fade, noise_w=channel.noise_power_w(-174.0, 10e6)).shape
    (5, 5)
    """
    link_key, interferer_key = jax.random.split(key)
    return sinr(
        link,
        interferer,
        rayleigh_gain(link.shape, link_key, dtype=link.dtype),
        rayleigh_gain(interferer.shape, interferer_key, dtype=interferer.dtype),
        power_w=power_w,
        noise_w=noise_w,
    )
