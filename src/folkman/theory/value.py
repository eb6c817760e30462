"""Value functions: the least loss of one node for a given budget of its regulariser.

    p(k) = inf { f(w) : r(w) <= k }                                               [1, eq. (6)]
    f(w) = F_i((1 - alpha_i) w_sh + alpha_i w),   r(w) = ||w||_1

Sharing is frozen: w_sh is a constant. How p is found depends on the dimension, and the answer says
which:

    1, 2   exhaustive search on a grid whose cells fit the level sets of r exactly, with a
           certificate: in a cell of side h (in two dimensions of the coordinates w_1 + w_2 and
           w_1 - w_2, in which r is the larger absolute value)

               f >= least corner - min( M h^2 / 8, G h / 2 )

           where M bounds the top eigenvalue of the Hessian from above and G the gradient. The first
           holds because f - M/2 ||w||^2 is concave, the second because no point is further than h/2
           from a corner.
    >= 3   projected gradient descent from many starts: an upper bound of p without a certificate

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require

__all__ = ["Loss", "Value", "frozen", "value_function"]

Floats = NDArray[np.float64]

MOST_POINTS = 2**24
"""Points of an exhaustive search: 128 MB for each array of them."""


class Loss(NamedTuple):
    """One node's loss as a function of its own parameters.

    Also what is known of it on ||w||_1 <= radius.
    """

    name: str
    dim: int
    radius: float  # the largest budget k of interest
    value: Callable[
        ..., Floats
    ]  # (..., dim) -> (...); of NumPy in one or two dimensions, of JAX above
    curvature: float = inf  # M: no eigenvalue of the Hessian is larger
    slope: float = inf  # G: no gradient is longer


class Value(NamedTuple):
    """p on the budgets 0, step, 2 step, ...: between `low` and `high`."""

    step: float
    high: Floats  # (budget,) attained by a point that was tried
    error: float  # high - error <= p; not a number where nothing is certified
    how: str
    divergence_printed: float = (
        nan  # Theorem 1's own Delta_i, from the envelope in w; in one dimension only
    )

    @property
    def certified(self) -> bool:
        """Tell whether `error` is a proof."""
        return bool(np.isfinite(self.error))


def frozen(loss: Loss, share: float, shared: float = 0.0) -> Loss:
    """Return the loss as eq. (3) has it, over the same ||w||_1 <= radius.

    At (1 - alpha) w_sh + alpha w.

    The wider the network, the smaller alpha and the less of F_i a node can reach; the bounds M and
    G must hold there.
    """
    require(0 < share <= 1, f"a share lies in (0, 1], got {share}")

    def value(w: Floats) -> Floats:
        return loss.value((1.0 - share) * shared + share * w)

    return loss._replace(value=value, curvature=loss.curvature * share**2, slope=loss.slope * share)


def value_function(
    loss: Loss, budgets: int, refine: int = 8, starts: int = 32, seed: int = 0
) -> Value:
    """Return p on `budgets` + 1 budgets 0 .. radius.

    In one and two dimensions each budget step is cut into `refine` cells; above, descent begins at
    `starts` points.
    """
    require(
        budgets >= 1 and refine >= 1,
        f"budgets and refine must be at least 1, got {budgets} and {refine}",
    )
    if loss.dim <= 2:
        return _exhaustive(loss, budgets, refine)
    return _descents(loss, budgets, starts, seed)


def _exhaustive(loss: Loss, budgets: int, refine: int) -> Value:
    """Try every grid point; those with r = l h form ring l."""
    rings = budgets * refine
    points = (2 * rings + 1) ** loss.dim
    require(
        points <= MOST_POINTS,
        f"{points} grid points are too many (at most {MOST_POINTS}); ask for fewer budgets",
    )
    h = loss.radius / rings
    index = np.arange(-rings, rings + 1)
    if loss.dim == 1:
        ring, w = np.abs(index), h * index[:, None]
    else:
        u, v = np.meshgrid(h * index, h * index, indexing="ij")
        ring = np.maximum(np.abs(index)[:, None], np.abs(index)[None]).ravel()
        w = np.stack([(u + v).ravel() / 2, (u - v).ravel() / 2], axis=-1)
    losses = np.asarray(loss.value(w), float)
    least = np.full(rings + 1, inf)
    np.minimum.at(least, ring, losses)
    every = np.minimum.accumulate(least)
    error = min(loss.curvature * h**2 / 8, loss.slope * h / 2)
    how = f"exhaustive, {points} points, certified to {error:.2g}"
    printed = _printed_divergence(losses, every) if loss.dim == 1 else nan
    return Value(loss.radius / budgets, every[::refine], error, how, printed)


def _printed_divergence(losses: Floats, least: Floats) -> float:
    """Return sup_w p(r(w)) - conv f(w), Theorem 1's Delta_i.

    With the relaxations [1, eq. (5), (6)].
    """
    reached = np.concatenate([least[:0:-1], least])  # p(|w|) along w
    return float(np.max(reached - envelope(losses)))


def envelope(values: Floats) -> Floats:
    """Return the convex envelope of samples at equal steps.

    The lower hull, by one pass from left to right.
    """
    kept = hull(values)
    return np.interp(np.arange(len(values)), kept, values[kept])


def hull(values: Floats) -> NDArray[np.intp]:
    """Return the indices of the corners of the lower convex hull."""
    kept: list[int] = []
    for i, y in enumerate(values):
        while len(kept) >= 2:
            a, b = kept[-2], kept[-1]
            if (values[b] - values[a]) * (i - b) < (y - values[b]) * (
                b - a
            ):  # a corner: slopes grow
                break
            kept.pop()
        kept.append(i)
    return np.array(kept)


def _descents(loss: Loss, budgets: int, starts: int, seed: int) -> Value:
    """Descend from many starts for each budget at once.

    Larger budgets may keep what smaller ones found.
    """
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)
    ks = loss.radius * np.arange(budgets + 1) / budgets
    spread = rng.standard_normal((starts, loss.dim))
    spread /= np.abs(spread).sum(axis=1, keepdims=True)
    first = ks[:, None, None] * (spread * rng.uniform(size=(starts, 1)) ** 0.5)[None]
    search = jax.vmap(jax.vmap(partial(_descend, loss), in_axes=(0, None)))
    found = np.asarray(
        jax.jit(search)(jnp.asarray(first, float), jnp.asarray(ks, float)), float
    ).min(axis=1)
    how = f"projected descent from {starts} starts, not certified"
    return Value(loss.radius / budgets, np.minimum.accumulate(found), nan, how)


def _descend(loss: Loss, w: "NDArray", k: "NDArray", rounds: int = 300) -> "NDArray":
    """Return the least loss met on a descent within ||w||_1 <= k.

    A step that does not lower the loss is halved.
    """
    import jax
    import jax.numpy as jnp
    from jax import Array, lax

    def one(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        w, here, step = state
        tried = _onto_l1_ball(w - step * jax.grad(loss.value)(w), k)
        there = loss.value(tried)
        better = there < here
        w, here = jnp.where(better, tried, w), jnp.where(better, there, here)
        return (w, here, jnp.where(better, 1.3 * step, 0.5 * step)), None

    start = jnp.asarray(w)
    (_, best, _), _ = lax.scan(
        one, (start, jnp.asarray(loss.value(start)), jnp.ones((), start.dtype)), None, rounds
    )
    return best  # pyright: ignore[reportReturnType]


def _onto_l1_ball(w: "NDArray", radius: "NDArray") -> "NDArray":
    """Return the nearest point of ||w||_1 <= radius, by sorting."""
    import jax.numpy as jnp

    size = jnp.abs(w)
    down = jnp.sort(size)[::-1]
    excess = (jnp.cumsum(down) - radius) / jnp.arange(1, len(w) + 1)
    cut = jnp.maximum(jnp.max(jnp.where(down >= excess, excess, -jnp.inf)), 0.0)
    return jnp.sign(w) * jnp.maximum(size - cut, 0.0)  # pyright: ignore[reportReturnType]
