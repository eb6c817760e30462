"""Who is heard by whom, and which SINR threshold makes that worth the wait.

    Y_i = { j != i : SINR_ji > gamma }                        receivers of node i     [1, eq. (25a)]
    I_bar = { i : Y_i not empty }                             scheduled nodes         [1, eq. (25b)]
    R_i = min_{j in Y_i} log2(1 + SINR_ji)                    `se_min`                [1, Prop. 1]

Arrays are [rx, tx] (docs/decisions.md, C1). R_i is called an average data rate in [1]; it is the
spectral efficiency at the worst receiver, hence its name (D7). Unscheduled nodes have R_i = +inf:
1 / R_i = 0.

[1] finds the threshold "numerically by a grid search" for the duration Gamma = Gamma_W + Gamma_T,
waiting plus transmission. `grid_search` and the faster `bracket_search` minimise any callable of a
threshold in dB, such as `expected_duration` or `expected_age` below on SINR draws held fixed
(common random numbers).

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, SupportsFloat

import numpy as np

from folkman.arrays import Array, ArrayLike, Bool, Float, jax, jnp
from folkman.radio import bandwidth, latency

__all__ = [
    "Search",
    "bracket_search",
    "expected_age",
    "expected_duration",
    "grid_search",
    "links",
    "scheduled",
    "se_min",
    "spectral_efficiency",
]

Objective = Callable[[float], SupportsFloat]


class Search(NamedTuple):
    """The best threshold tried, its value, and everything tried in the order it was."""

    threshold_db: float
    value: float  # least value of the objective
    thresholds_db: np.ndarray  # thresholds that were tried, in order
    values: np.ndarray  # one for each threshold tried


def links(sinr: Float[Array, "*draw rx tx"], threshold: ArrayLike) -> Bool[Array, "*draw rx tx"]:
    """Return Y of eq. (25a).

    Strictly above the linear `threshold`, never the node itself.
    """
    num_rx, num_tx = sinr.shape[-2:]
    if num_rx != num_tx:
        raise ValueError(
            f"expected a square SINR array [rx, tx] of the same nodes, got {sinr.shape}; "
            "for a base station compare its row with the threshold directly"
        )
    apart = jnp.broadcast_to(~jnp.eye(num_rx, dtype=bool), sinr.shape)
    return (sinr > threshold) & apart  # [1, eq. (25a)], strict (D10)


def scheduled(linked: Bool[Array, "*draw rx tx"]) -> Bool[Array, "*draw tx"]:
    """Return I_bar of eq. (25b): nodes that somebody hears."""
    return jnp.any(linked, axis=-2)  # [1, eq. (25b)]


def spectral_efficiency(sinr: ArrayLike) -> Float[Array, "..."]:
    """Return log2(1 + SINR), bit/s/Hz."""
    # log1p: at -80 dB float32 rounds 1 + SINR to 1, and a rate of 0 would never deliver.
    return jnp.log1p(jnp.asarray(sinr)) / math.log(2.0)


def se_min(
    sinr: Float[Array, "*draw rx tx"], linked: Bool[Array, "*draw rx tx"]
) -> Float[Array, "*draw tx"]:
    """Return R_i: spectral efficiency at the worst receiver in Y_i.

    It is +inf for the unscheduled.
    """
    return jnp.min(jnp.where(linked, spectral_efficiency(sinr), jnp.inf), axis=-2)


def expected_duration(
    sinr_draws: Float[Array, "draw rx tx"],
    threshold: ArrayLike,
    *,
    payload_bits: ArrayLike,
    total_hz: ArrayLike,
    slot_s: ArrayLike,
    whole: bool = True,  # whether an epoch lasts whole slots
    allocate: Callable[[Array, Array, ArrayLike], Array] = bandwidth.optimal,
) -> Float[Array, ""]:
    """Return E[Gamma_W + Gamma_T] in slots over SINR draws, mean over ordered pairs.

    Epochs follow each other (C6). An epoch lasts L = Gamma_T, in whole slots if `whole`, and one
    slot when nobody is scheduled; node j gets node i's parameters at the end of the first epoch
    with SINR_ji > gamma. If epochs are i.i.d., their number N is geometric with p_ji and Wald's
    identity is exact:

        E[Gamma_W + Gamma_T] = E[L_1 + ... + L_N] = E[L] / p_ji.

    Both factors are estimated on the same draws. A pair that never met in n draws counts as met in
    half of one, 1/p = 2n: finite, so that thresholds still compare. Fixed geometry in the draws
    gives each pair its own p_ji; fresh geometry a draw describes nodes that move far between
    epochs.
    """
    num_draws, num_nodes, _ = sinr_draws.shape
    linked = links(sinr_draws, threshold)  # (draw, rx, tx)
    slots, _ = _epoch_slots(
        sinr_draws, linked, Epochs(payload_bits, total_hz, slot_s, whole, allocate)
    )
    met = jnp.maximum(jnp.sum(linked, axis=0).astype(sinr_draws.dtype), 0.5)
    return jnp.mean(slots) * _mean_over_pairs(num_draws / met, num_nodes)


def expected_age(
    sinr_draws: Float[Array, "draw rx tx"],
    threshold: ArrayLike,
    *,
    payload_bits: ArrayLike,
    total_hz: ArrayLike,
    slot_s: ArrayLike,
    allocate: Callable[[Array, Array, ArrayLike], Array] = bandwidth.optimal,
) -> Float[Array, ""]:
    """Return the mean age of a held copy in slots, over SINR draws and ordered pairs.

    Epochs as in `expected_duration`, i.i.d.; S is the length of one in which the pair is linked, F
    of one in which it is not. Copies are stamped D = S + F_1 + ... + F_N slots apart, N geometric,
    and arrive after the n slots of the sender's own broadcast, which are independent of the D
    before them, so that

        age = E[n] + (E[D^2] / E[D] - 1) / 2.
    """
    num_draws, num_nodes, _ = sinr_draws.shape
    linked = links(sinr_draws, threshold)
    slots, own = _epoch_slots(
        sinr_draws, linked, Epochs(payload_bits, total_hz, slot_s, whole=True, allocate=allocate)
    )
    length, met = slots[:, None, None], linked.astype(sinr_draws.dtype)
    times = jnp.sum(met, axis=0)
    missed = num_draws - times
    meeting = [
        jnp.sum(met * length**k, axis=0) / jnp.maximum(times, 1.0) for k in (1, 2)
    ]  # E[S], E[S^2]
    missing = [
        jnp.sum((1.0 - met) * length**k, axis=0) / jnp.maximum(missed, 1.0) for k in (1, 2)
    ]  # E[F], E[F^2]
    ratio = missed / jnp.maximum(times, 0.5)  # q/p = E[N]; E[N(N-1)] = 2 (q/p)^2
    first = ratio * missing[0] + meeting[0]
    second = (
        ratio * missing[1]
        + 2.0 * (ratio * missing[0]) ** 2
        + 2.0 * ratio * missing[0] * meeting[0]
        + meeting[1]
    )
    known = jnp.where(jnp.isfinite(own), own, 0.0)[:, None, :]
    sending = jnp.sum(met * known, axis=0) / jnp.maximum(times, 1.0)  # E[n]
    return _mean_over_pairs(sending + (second / jnp.maximum(first, 1.0) - 1.0) / 2.0, num_nodes)


class Epochs(NamedTuple):
    """What the length of an epoch depends on, besides the channel."""

    payload_bits: ArrayLike
    total_hz: ArrayLike
    slot_s: ArrayLike
    whole: bool
    allocate: Callable[[Array, Array, ArrayLike], Array]


def _epoch_slots(sinr_draws: Array, linked: Array, epochs: Epochs) -> tuple[Array, Array]:
    """Return the length of the epoch of each draw, (draw,), and that of each sender.

    One slot when nobody is scheduled.
    """

    def of_one(one_sinr: Array, one_linked: Array) -> tuple[Array, Array]:
        sending = scheduled(one_linked)
        rate = se_min(one_sinr, one_linked)
        band_hz = epochs.allocate(rate, sending, epochs.total_hz)
        slots = latency.transmission_slots(epochs.payload_bits, band_hz, rate, epochs.slot_s)
        if epochs.whole:
            slots = latency.whole_slots(slots).astype(sinr_draws.dtype)
        return jnp.where(jnp.any(sending), latency.aggregated_slots(slots, sending), 1.0), slots

    return jax.vmap(of_one)(sinr_draws, linked)


def _mean_over_pairs(values: Array, num_nodes: int) -> Array:
    others = ~jnp.eye(num_nodes, dtype=bool)
    return jnp.sum(jnp.where(others, values, 0.0)) / max(num_nodes * (num_nodes - 1), 1)


def grid_search(
    objective: Objective,  # threshold in dB -> what to minimise
    thresholds_db: Sequence[float] | np.ndarray,  # thresholds to try, in dB
) -> Search:
    """Return the minimiser of `objective` over `thresholds_db`, the first of equals.

    >>> grid_search(lambda threshold_db: (threshold_db - 3.0) ** 2, [-15.0, 0.0, 15.0]).threshold_db
    0.0
    """
    tried_db = np.asarray(thresholds_db, float)
    if tried_db.size == 0:
        raise ValueError(
            "expected at least one threshold, got none; give a grid such as range(-20, 21, 5)"
        )
    return _best(tried_db, np.array([float(objective(float(t))) for t in tried_db]))


def bracket_search(
    objective: Objective,  # threshold in dB -> what to minimise
    low_db: float,
    high_db: float,
    *,
    num_coarse: int = 9,  # points of the coarse grid
    tolerance_db: float = 0.25,  # width of the last bracket, in dB
) -> Search:
    """Return a minimiser of `objective` in [low_db, high_db] by a coarse grid, then golden section.

    The coarse grid brackets the best basin, golden section shrinks the bracket to `tolerance_db`;
    the best point ever tried is returned. Exact for an objective with one local minimum; a
    Monte-Carlo objective is a step function of the threshold, so expect its floor up to the ripple,
    and hold the draws fixed between calls: with fresh ones the comparisons would be noise. From 40
    dB to 0.25 dB: 19 calls, not a grid's 161.
    """
    if not (low_db < high_db and num_coarse >= 3):
        raise ValueError(
            f"expected low_db < high_db and num_coarse >= 3, got {low_db}, {high_db} and "
            f"{num_coarse}; give an interval in dB such as -20.0, 20.0"
        )
    coarse = grid_search(objective, np.linspace(low_db, high_db, num_coarse))
    centre = int(np.argmin(coarse.values))
    left = float(coarse.thresholds_db[max(centre - 1, 0)])
    right = float(coarse.thresholds_db[min(centre + 1, num_coarse - 1)])
    # Below a billionth of the interval rounding would stop the bracket from shrinking.
    fine = _golden_section(objective, left, right, max(tolerance_db, (high_db - low_db) * 1e-9))
    return _best(
        np.concatenate([coarse.thresholds_db, fine.thresholds_db]),
        np.concatenate([coarse.values, fine.values]),
    )


def _golden_section(objective: Objective, left: float, right: float, tolerance_db: float) -> Search:
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    inner = [right - ratio * (right - left), left + ratio * (right - left)]
    value = [float(objective(point)) for point in inner]
    tried = list(zip(inner, value, strict=True))
    while right - left > tolerance_db:
        if value[0] <= value[1]:
            right, fresh = inner[1], 0
            inner = [right - ratio * (right - left), inner[0]]
            value = [math.nan, value[0]]
        else:
            left, fresh = inner[0], 1
            inner = [inner[1], left + ratio * (right - left)]
            value = [value[1], math.nan]
        value[fresh] = float(objective(inner[fresh]))
        tried.append((inner[fresh], value[fresh]))
    return _best(np.array([point for point, _ in tried]), np.array([result for _, result in tried]))


def _best(tried_db: np.ndarray, values: np.ndarray) -> Search:
    if np.isnan(values).any():
        at = tried_db[np.isnan(values)][0]
        raise ValueError(
            f"expected objective values, got nan at {at} dB; return inf where it has no value"
        )
    best = int(np.argmin(values))
    return Search(float(tried_db[best]), float(values[best]), tried_db, values)
