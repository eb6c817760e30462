"""The combination of gradients nearest to zero: a small quadratic program with bounds.

    min_v  1/2 || g0 + G^T v ||^2   subject to   v >= margin,        g~ = g0 + G^T v

With margin 0 this is the dual of "the vector closest to g0 whose inner product with no row of G is
negative" [2]: then <g~, g_l> >= 0 for all rows, and = 0 where v_l > 0. With u = v - margin it is
non-negative least squares, solved by the active-set method of [1, Chapter 23] on the Gram matrix of
the rows scaled to length 1 (the dimension of v is the number of rows, not of parameters). The
method is finite, and its zeros are exact: where nothing conflicts, g~ = g0 to the last bit. A
projected gradient (optax.nnls) has neither: with nearly parallel rows it is 3e-6 off after 1e5
steps.

Rows of zeros play no part. A ridge of 1e-12 (1.2e-5 in float32) on the unit diagonal lets rows be
parallel; g~ is then off by about the ridge times the weights, which grow large where the rows leave
g~ hardly any room. After ten steps per row it gives up with the best so far; 2000 random programs
of 14 rows in 4 dimensions took at most 18 steps.

[1] C. L. Lawson, R. J. Hanson. Solving Least Squares Problems. SIAM, 1995.
    doi:10.1137/1.9781611971217
[2] D. Lopez-Paz, M. Ranzato. Gradient Episodic Memory for Continual Learning. NeurIPS 2017.
    arXiv:1706.08840
"""

from typing import NamedTuple

from jax.scipy.linalg import cho_factor, cho_solve

from folkman.arrays import Array, jax, jnp, lax

__all__ = ["combination_weights", "shortest_combination"]

STEPS_PER_ROW = 10


class _Search(NamedTuple):
    """Where the active-set method stands."""

    weight: Array  # (row,) u >= 0
    free: Array  # (row,) bool: u may be above 0
    barred: Array  # (row,) bool: rounding has just thrown it out
    repairs: Array  # () bool: the last step ran into a bound
    done: Array  # () bool
    steps: Array  # ()


def shortest_combination(
    own: Array, rows: Array, margin: float = 0.0, segments: tuple[slice, ...] = (slice(None),)
) -> Array:
    """Return g~ (d,) of g0 = `own` (d,) and G = `rows` (row, d), for each segment separately.

    >>> shortest_combination(jnp.asarray([1.0, 1.0]), jnp.asarray([[-2.0, 0.0]])).round(3).tolist()
    [0.0, 1.0]
    """
    gram = jnp.stack([jnp.dot(rows[:, s], rows[:, s].T, precision="highest") for s in segments])
    products = jnp.stack([jnp.dot(rows[:, s], own[s], precision="highest") for s in segments])
    size = jnp.stack([jnp.linalg.norm(own[s]) for s in segments])
    weight = jax.vmap(combination_weights, (0, 0, 0, None))(gram, products, size, margin)
    parts = [
        own[s] + jnp.dot(weight[at], rows[:, s], precision="highest")
        for at, s in enumerate(segments)
    ]
    return jnp.concatenate(parts)


@jax.jit
def combination_weights(gram: Array, products: Array, size: Array, margin: float) -> Array:
    """Return v (row,) from G G^T (row, row), G g0 (row,) and ||g0||."""
    precision = jnp.finfo(gram.dtype).eps
    norm = jnp.sqrt(jnp.diagonal(gram))
    counts = norm > 0
    unit = jnp.where(counts, 1.0 / jnp.where(counts, norm, 1.0), 0.0)
    ridge = jnp.where(counts, max(1e-12, 1e2 * precision), 1.0)
    matrix = gram * unit[:, None] * unit[None] + jnp.diag(ridge.astype(gram.dtype))
    slope = unit * (products + margin * jnp.sum(gram, axis=1))  # of the objective at u = 0
    slack = 1e2 * precision * (size + margin * jnp.sum(norm))
    return margin + unit * _nonnegative(matrix, slope, slack)


def _nonnegative(matrix: Array, slope: Array, slack: Array) -> Array:
    """Return the u >= 0 that minimises 1/2 u^T matrix u + slope^T u [1, Algorithm NNLS]."""
    rows = len(slope)
    slack_per_weight = 1e2 * jnp.finfo(slope.dtype).eps

    def solve(free: Array) -> Array:
        kept = jnp.where(free[:, None] & free[None], matrix, 0.0)
        inside = kept + jnp.diag((~free).astype(matrix.dtype))
        return cho_solve(cho_factor(inside), jnp.where(free, -slope, 0.0))

    def step(at: _Search) -> _Search:
        descent = -(jnp.dot(matrix, at.weight, precision="highest") + slope)
        entering = jnp.argmax(jnp.where(at.free | at.barred, -jnp.inf, descent))
        gain = jnp.where(at.free | at.barred, -jnp.inf, descent)[entering]
        done = ~at.repairs & ~(gain > slack + slack_per_weight * jnp.sum(at.weight))
        enters = (jnp.arange(rows) == entering) & ~at.repairs & ~done
        free = at.free | enters
        goal = solve(free)
        failed = jnp.any(enters & (goal <= 0))  # in exact arithmetic what enters grows
        ends = free & (goal <= 0)
        until = jnp.where(
            ends, at.weight / jnp.where(at.weight > goal, at.weight - goal, 1.0), jnp.inf
        )
        reach = jnp.min(until)
        free = free & ~(ends & (until <= reach))
        weight = jnp.where(
            jnp.any(ends), at.weight + jnp.minimum(reach, 1.0) * (goal - at.weight), goal
        )
        moved = at._replace(weight=jnp.where(free, weight, 0.0), free=free, repairs=jnp.any(ends))
        moved = moved._replace(barred=jnp.zeros_like(free))
        stays = at._replace(barred=at.barred | enters)
        new = jax.tree.map(lambda a, b: jnp.where(failed | done, a, b), stays, moved)
        return new._replace(done=done, steps=at.steps + 1)

    def goes_on(at: _Search) -> Array:
        return ~at.done & (at.steps < STEPS_PER_ROW * rows)

    start = _Search(
        weight=jnp.zeros_like(slope),
        free=jnp.zeros(rows, bool),
        barred=jnp.zeros(rows, bool),
        repairs=jnp.asarray(False),
        done=jnp.asarray(False),
        steps=jnp.zeros((), jnp.int32),
    )
    return lax.while_loop(goes_on, step, start).weight
