"""Who gets how much of the band.

    P3:  max_B  min_{i scheduled} B_i R_i    s.t.  sum_i B_i <= B,  B_i >= 0           [1, eq. (28)]
    B_i* = (B / R_i) (sum_{i' scheduled} 1 / R_i')^-1,  0 for the unscheduled         [1, eq. (29)]

R_i = `schedule.se_min`, the spectral efficiency at the worst receiver of node i. All allocations
share one signature, (se_min[tx], scheduled[tx], total_hz, key) -> hertz[tx], and ignore `se_min` of
unscheduled nodes.

Lagrangian of P3 in epigraph form, t = the common rate, multipliers mu_i of B_i R_i >= t, lambda of
the sum, nu_i of the signs: stationarity is sum_i mu_i = 1 and mu_i R_i - lambda + nu_i = 0. At the
optimum nu = 0, so mu_i = lambda / R_i and lambda = 1 / sum_i 1 / R_i, the price of bandwidth in
bit/s per Hz; t* = lambda B. `certify` measures how far an allocation is from satisfying all of it.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from collections.abc import Callable
from typing import NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, PRNGKeyArray, jax, jnp
from folkman.checks import require_positive

__all__ = ["ALLOCATIONS", "Certificate", "certify", "optimal", "random_shares", "uniform"]

REMEDY = "give the band shared by all nodes in hertz, such as 10e6"


class Certificate(NamedTuple):
    """KKT residuals of P3, relative and 0 for an optimal allocation, none negative.

    Then the multipliers.
    """

    over_budget: Float[Array, ""]  # max(sum B_i - B, 0) / B
    negative: Float[Array, ""]  # max(-B_i, 0) / B, largest
    unscheduled: Float[Array, ""]  # |B_i| / B summed over nodes that may not send
    # B_i R_i / t*, largest less least: with nu = 0 stationarity wants 0
    rate_spread: Float[Array, ""]
    rate_slackness: Float[Array, ""]  # max_i mu_i (B_i R_i - min B R) / t*
    budget_slackness: Float[Array, ""]  # |B - sum B_i| / B, since lambda > 0
    # max of |sum mu_i - 1| and |mu_i R_i / lambda - 1|: rounding of the multipliers
    stationarity: Float[Array, ""]
    duality_gap: Float[Array, ""]  # max(1 - min B R / t*, 0)
    bandwidth_price: Float[Array, ""]  # lambda, bit/s per Hz; 0 if nobody is scheduled
    rate_price: Float[Array, " tx"]  # price of each rate, mu_i

    def worst(self) -> Float[Array, ""]:
        """Return the largest residual."""
        return jnp.max(jnp.stack(self[:8]))


def optimal(
    se_min: Float[Array, " tx"],
    scheduled: Bool[Array, " tx"],
    total_hz: ArrayLike,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " tx"]:
    """Return Proposition 1: all scheduled nodes send at the same rate and end together."""
    del key
    require_positive("total_hz", total_hz, REMEDY)
    return _inverse_shares(se_min, scheduled) * total_hz  # [1, eq. (29)]


def uniform(
    se_min: Float[Array, " tx"],
    scheduled: Bool[Array, " tx"],
    total_hz: ArrayLike,
    key: PRNGKeyArray | None = None,
) -> Float[Array, " tx"]:
    """Return B / |scheduled| each (D11)."""
    del key
    require_positive("total_hz", total_hz, REMEDY)
    return _normalise(scheduled.astype(se_min.dtype)) * total_hz


def random_shares(
    se_min: Float[Array, " tx"],
    scheduled: Bool[Array, " tx"],
    total_hz: ArrayLike,
    key: PRNGKeyArray,
) -> Float[Array, " tx"]:
    """Return Dirichlet(1) shares of the scheduled, B u_i / sum u with u ~ Exp(1) (D11).

    [1] gives no law.

    Two or more shares have density at 0, so that E[1 / share] and with it E[Gamma_T] is infinite:
    report medians, a sample mean only grows with the sample.
    """
    require_positive("total_hz", total_hz, REMEDY)
    drawn = jax.random.exponential(key, scheduled.shape, se_min.dtype)
    # An exponential draw is exactly 0 once in 2^23: a node alone must still get the whole band.
    drawn = jnp.maximum(drawn, jnp.finfo(se_min.dtype).tiny)
    return _normalise(jnp.where(scheduled, drawn, 0.0)) * total_hz


def certify(
    allocation_hz: Float[Array, " tx"],  # band of each node, B_i
    se_min: Float[Array, " tx"],
    scheduled: Bool[Array, " tx"],
    total_hz: ArrayLike,
) -> Certificate:
    """Return the KKT residuals of `allocation_hz` for P3, with the multipliers of the optimum.

    >>> import jax.numpy as jnp
    >>> se, on = jnp.array([1.0, 2.0, 4.0]), jnp.array([True, True, True])
    >>> bool(certify(optimal(se, on, 10e6), se, on, 10e6).worst() < 1e-6)
    True
    >>> round(float(certify(uniform(se, on, 10e6), se, on, 10e6).duality_gap), 3)
    0.417
    """
    require_positive("total_hz", total_hz, REMEDY)
    anyone = jnp.any(scheduled)
    rate_price = _inverse_shares(se_min, scheduled)  # mu_i = (1 / R_i) / sum 1 / R_i
    safe_se = jnp.where(scheduled, se_min, 1.0)
    # lambda = mu_i R_i for every i; the slowest node's is free of overflow.
    price = jnp.where(anyone, jnp.max(jnp.where(scheduled, rate_price * safe_se, 0.0)), 0.0)
    fraction = allocation_hz / total_hz
    # Rates in units of t* = lambda B. With nobody scheduled every sum and extreme below is over
    # nothing: 0.
    rate = fraction * safe_se / jnp.where(anyone, price, 1.0)
    slowest = jnp.where(anyone, jnp.min(jnp.where(scheduled, rate, jnp.inf)), 1.0)
    excess = jnp.where(scheduled, rate - slowest, 0.0)
    dual = jnp.where(
        scheduled, jnp.abs(rate_price * safe_se / jnp.where(anyone, price, 1.0) - 1.0), 0.0
    )
    used = jnp.sum(jnp.where(scheduled, fraction, 0.0))
    return Certificate(
        over_budget=jnp.maximum(jnp.sum(fraction) - 1.0, 0.0),
        negative=jnp.maximum(jnp.max(-fraction), 0.0),
        unscheduled=jnp.sum(jnp.where(scheduled, 0.0, jnp.abs(fraction))),
        rate_spread=jnp.max(excess),
        rate_slackness=jnp.max(rate_price * excess),
        budget_slackness=jnp.where(anyone, jnp.abs(1.0 - used), 0.0),
        stationarity=jnp.maximum(
            jnp.where(anyone, jnp.abs(jnp.sum(rate_price) - 1.0), 0.0), jnp.max(dual)
        ),
        duality_gap=jnp.maximum(1.0 - slowest, 0.0),
        bandwidth_price=price,
        rate_price=rate_price,
    )


def _inverse_shares(se_min: Array, scheduled: Array) -> Array:
    """Return (1 / R_i) / sum 1 / R_i over the scheduled, 0 elsewhere.

    As R_min / R_i, which lies in [0, 1]: 1 / R_i itself overflows for the smallest rates. The
    slowest node's weight is 1 by definition, so that a rate of 0 takes the whole band, as the limit
    does.
    """
    slowest = jnp.min(jnp.where(scheduled, se_min, jnp.inf), axis=-1, keepdims=True)
    positive = scheduled & (se_min > slowest)
    weight = jnp.where(
        positive, slowest / jnp.where(positive, se_min, 1.0), scheduled.astype(se_min.dtype)
    )
    return _normalise(weight)


def _normalise(weight: Array) -> Array:
    total = jnp.sum(weight, axis=-1, keepdims=True)
    return weight / jnp.where(total > 0, total, 1.0)  # an empty schedule gets nothing


Allocation = Callable[[Array, Array, ArrayLike, Array], Array]

ALLOCATIONS: dict[str, Allocation] = {
    "optimal": optimal,
    "random": random_shares,
    "uniform": uniform,
}
