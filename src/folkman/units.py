"""Decibels and their linear twins: dB and dBm at the edges, inside all is linear.

x_db = 10 log10(x)          p_dbm = 10 log10(p / 1 mW)
"""

from folkman.arrays import Array, ArrayLike, jnp

__all__ = ["db_to_linear", "dbm_to_watt", "linear_to_db", "watt_to_dbm"]


def db_to_linear(ratio_db: ArrayLike) -> Array:
    """Return the power ratio of `ratio_db` decibels; -inf dB is 0."""
    return 10.0 ** (jnp.asarray(ratio_db) / 10.0)


def linear_to_db(ratio: ArrayLike) -> Array:
    """Return a power ratio in decibels; 0 gives -inf."""
    return 10.0 * jnp.log10(jnp.asarray(ratio))


def dbm_to_watt(power_dbm: ArrayLike) -> Array:
    """Return watts of a power in dBm: 30 dBm is 1 W."""
    return db_to_linear(jnp.asarray(power_dbm) - 30.0)


def watt_to_dbm(power_w: ArrayLike) -> Array:
    """Return a power in watts as dBm: 1 W is 30 dBm."""
    return linear_to_db(power_w) + 30.0
