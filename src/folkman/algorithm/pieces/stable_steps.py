"""Which steps descent with a delay bears, where a share of the own progress is added.

Nodes alike with F(w) = L/2 w^2, all copies D slots old and a share rho of the own progress follow,
with e = eta L,

    w(t+1) = w(t) - e [ rho w(t) + (1 - rho) w(t-D) ]

On the boundary of stability w turns by an angle theta a slot. Its two parts give

    e       = 1 - cos theta + sin theta tan(D theta / 2)
    e rho   = 1 - cos theta - sin theta / tan(D theta),          0 < theta < pi / D

For rho = 0 theta is pi / (2D + 1) and e = 2 sin(pi / (2 (2D + 1))). Both grow with theta, and rho
nears 1/2 as e grows without end: from rho = 1/2 on the delay no longer limits the step. Two limits
remain whatever D is. One is e <= 2, that of descent without delay. The other is e rho <= 1: the
differences u of the nodes' models follow u(t+1) = u(t) - e rho [u(t) - u(t-D)].

Where the own part is set back by sigma times D mean paces (`own_part`, k = 1 / (1 + LONG D)), the
boundary is, with s = sin^2(theta / 2) and N = k^2 + 4 (1 - k) s,

    0 = (1 - rho) cos((D + 1/2) theta) + cos(theta / 2) (rho - 4 sigma D k s / N)
    e = 2 / [ rho + (1 - rho) sin((D + 1/2) theta) / sin(theta / 2) + 2 sigma D k (k - 2 s) / N ]

for the one theta in (0, pi / (D + 1/2)], if rho is at most 1/2 (docs/fresh-air-theory.md,
Theorem G). A larger share is taken for 1/2.
"""

from collections.abc import Callable

from folkman.algorithm.pieces.own_part import LONG
from folkman.arrays import Array, Float, jax, jnp, lax

__all__ = ["least_rho", "set_back_limit", "stable_limit"]

HALVINGS = 30
"""Of the interval of angles, beyond the rounding of float32."""


def stable_limit(rho: Float[Array, ""], delay: Float[Array, ""]) -> Float[Array, ""]:
    """Return the largest stable e = eta L for a share rho in [0, 1] and a delay of D slots."""
    late = jnp.maximum(delay, 1.0)
    angle = _angle_of_share(rho, late)
    by_delay = jnp.where(rho < 0.5, jnp.minimum(_limit(angle, late), 2.0), 2.0)
    apart = 1.0 / jnp.maximum(rho, 0.5)
    return jnp.where(delay < 1, 2.0, jnp.minimum(by_delay, apart))


def set_back_limit(
    rho: Float[Array, ""], set_back: Float[Array, ""], delay: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the largest stable e = eta L where sigma = `set_back`, at most rho, is not 0.

    For rho above 1/2 it is a step on the safe side: the limit of 1/2, which may be 18 % too long,
    less what it needs (`tests/theory/test_set_back.py`).
    """
    late, share = jnp.maximum(delay, 1.0), jnp.minimum(rho, 0.5)
    k = 1.0 / (1.0 + LONG * late)
    pulled = jnp.minimum(set_back, share) * late * k

    def parts(angle: Array) -> tuple[Array, Array]:
        s = jnp.sin(0.5 * angle) ** 2
        return s, k**2 + 4.0 * (1.0 - k) * s

    def before(angle: Array) -> Array:
        s, n = parts(angle)
        turned = jnp.cos(0.5 * angle) * (share - 4.0 * pulled * s / n)
        return (1.0 - share) * jnp.cos((late + 0.5) * angle) + turned > 0

    angle = _angle(before, late + 0.5)
    s, n = parts(angle)
    delayed = (1.0 - share) * jnp.sin((late + 0.5) * angle) / jnp.sin(0.5 * angle)
    pull = share + delayed + 2.0 * pulled * (k - 2.0 * s) / n
    found = 2.0 / jnp.maximum(pull, jnp.maximum(2.0 * rho, 1.0))
    return jnp.where(delay < 1, 2.0, found * (1.0 - 0.32 * jnp.maximum(rho - 0.5, 0.0)))


def least_rho(limit: Float[Array, ""], delay: Float[Array, ""]) -> Float[Array, ""]:
    """Return the least rho for which e = eta L up to `limit` is stable, at most 1/2."""
    late = jnp.maximum(delay, 1.0)
    angle = _angle_of_limit(limit, late)
    found = jnp.clip(_share(angle, late), 0.0, 0.5)
    return jnp.where(delay < 1, 0.0, found).astype(limit.dtype)


def _limit(angle: Array, delay: Array) -> Array:
    return 1.0 - jnp.cos(angle) + jnp.sin(angle) * jnp.tan(0.5 * delay * angle)


def _share(angle: Array, delay: Array) -> Array:
    turned = 1.0 - jnp.cos(angle) - jnp.sin(angle) / jnp.tan(delay * angle)
    return turned / _limit(angle, delay)


# Each a program of its own: a search that is called by hand would be compiled at every call.
@jax.jit
def _angle_of_share(rho: Array, delay: Array) -> Array:
    return _angle(lambda theta: _share(theta, delay) < rho, delay)


@jax.jit
def _angle_of_limit(limit: Array, delay: Array) -> Array:
    return _angle(lambda theta: _limit(theta, delay) < limit, delay)


def _angle(below: Callable[[Array], Array], delay: Array) -> Array:
    """Return where `below`, which holds for small angles, ceases to hold."""

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        holds = below(middle)
        return jnp.where(holds, middle, low), jnp.where(holds, high, middle)

    low = jnp.zeros_like(delay)
    low, high = lax.fori_loop(0, HALVINGS, halve, (low, jnp.pi / delay))
    return 0.5 * (low + high)
