"""Algorithm 1 run again along a timeline, with what the theory asks about reduced slot by slot.

    v_i(t)   = sum_j alpha_j w_j(tau_ij(t))                                             [1, eq. (9)]
    w_i(t+1) = w_i(t) - eta c_i grad F_i(v_i(t))                                       [1, eq. (10)]

The aggregate w = sum_i alpha_i w_i then moves by -eta sum_i alpha_i c_i grad F_i(v_i). With

    beta_i = alpha_i c_i / sum_j alpha_j c_j,     eta_b = eta sum_j alpha_j c_j

this is w(t+1) = w(t) - eta_b sum_i beta_i grad F_i(v_i(t)) for every scaling: all of the theory
holds for F_b = sum_i beta_i F_i and the step eta_b. F_b is F where the shares are equal or the
scaling is not "local".

Only w_j of the last max-age slots are kept, so that a long run of a large model fits in memory.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.problem.learnable import Analysable, Learnable, analysable

__all__ = ["METHOD", "Trajectory", "ages_of", "follow", "full_gradients", "step_weights"]

METHOD = "async_sharing"
"""The builder of Algorithm 1: the theory is about its runs."""

Floats = NDArray[np.float64]
Moving: TypeAlias = tuple[Array, Array, Array, tuple[Array, Array]]
"""The slot, the last w_j(s), all w_i, and w with its slope one slot before."""
Fixed: TypeAlias = tuple[Array, Array, Array]
"""Each node's step, beta, and what its gradient is weighted by."""


class Trajectory(NamedTuple):
    """What a run was, slot by slot: g_i = grad F_i(v_i), F = F_b, all norms Euclidean."""

    step: float  # step of the network's model, eta_b
    weights: Floats  # (node,) beta_i
    shares: Floats  # (node,) alpha_i
    scales: Floats  # (node,) c_i
    ages: NDArray[np.int64]  # (slot, rx, tx) t - tau_ij(t), 0 for a node's own
    loss: Floats  # (slot + 1,) F(w(t))
    slope_sq: Floats  # (slot,) ||grad F(w)||^2
    move_sq: Floats  # (slot,) ||sum_i beta_i g_i||^2
    local: Floats  # (slot, node) ||g_i||
    local_loss: Floats  # (slot, node) F_i(v_i)
    apart: Floats  # (slot, node) ||v_i - w||
    spread_sq: Floats  # (slot,) sum_i beta_i ||grad F_i(w) - grad F(w)||^2
    secant: Floats  # (slot, node) ||grad F_i(v_i) - grad F_i(w)|| / ||v_i - w||, 0 where v_i = w
    unlike: Floats  # (slot,) max_ij ||s_i - s_j|| / min(||s_i||, ||s_j||), s_i = -alpha_i c_i g_i
    norm: Floats  # (slot, node) ||w_i||
    secant_whole: (
        Floats  # (slot,) ||grad F(w(t)) - grad F(w(t-1))|| / ||w(t) - w(t-1)||, 0 at first
    )
    last: NDArray  # (d,) w at the end
    points: NDArray  # (kept, d) w at a few slots along the way, for curvatures


def step_weights(shares: NDArray, step: float, scaling: str) -> tuple[Floats, Floats, float]:
    """Return c_i (node,), beta_i (node,) and eta_b for a scaling of Algorithm 1."""
    alpha = np.asarray(shares, float)
    known = {
        "local": alpha,
        "theorem": np.ones(len(alpha)),
        "figure": np.full(len(alpha), float(len(alpha))),
    }
    require(scaling in known, f"scaling must be 'local', 'theorem' or 'figure', got {scaling!r}")
    scales = known[scaling]
    pull = alpha * scales
    return scales, pull / pull.sum(), float(step * pull.sum())


def ages_of(held: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return t - tau_ij(t) (slot, rx, tx) from the stamps of a timeline.

    A node's own copy is fresh.
    """
    slots, nodes, _ = held.shape
    ages = np.arange(slots)[:, None, None] - np.asarray(held, np.int64)
    ages[:, np.arange(nodes), np.arange(nodes)] = 0
    return ages


def full_gradients(
    problem: Analysable,
    points: Array,  # one for each node, (node, d)
) -> tuple[Array, Array]:
    """Return F_i (node,) and grad F_i (node, d) at one point a node, over all samples."""
    keys = jnp.broadcast_to(
        make_key(0, Stream.BATCH), (problem.num_nodes,)
    )  # drawn from by batches only
    return problem.full_batch().gradients(points, keys)


def follow(
    problem: Learnable,
    held: NDArray[np.integer],
    step: float,
    scaling: str,
    keep: int = 5,  # models along the way that are returned
) -> Trajectory:
    """Run Algorithm 1 along the stamps `held` (slot, rx, tx); return what the theory asks about.

    `keep` models along the way are returned for measuring curvature.
    """
    problem = analysable(problem, "following a trajectory")
    slots, nodes = held.shape[:2]
    fits = held.shape == (slots, problem.num_nodes, problem.num_nodes) and slots > 0
    require(
        fits, f"expected stamps (slot, {problem.num_nodes}, {problem.num_nodes}), got {held.shape}"
    )
    ages = ages_of(held)
    require(
        bool((ages >= 0).all()),
        "a copy is younger than its slot; the timeline is damaged, record it again",
    )
    scales, weights, step_b = step_weights(np.asarray(problem.share), step, scaling)
    dtype, window = problem.initial.dtype, int(ages.max()) + 1
    stamps = jnp.asarray(np.arange(slots)[:, None, None] - ages, jnp.int32)
    fixed = (
        jnp.asarray(step * scales, dtype),
        jnp.asarray(weights, dtype),
        jnp.asarray(weights * step_b, dtype),
    )
    first = jnp.broadcast_to(problem.initial, (nodes, problem.dim))
    recent = jnp.broadcast_to(first, (window, nodes, problem.dim))
    state = (
        jnp.zeros((), jnp.int32),
        recent,
        first,
        (problem.initial, jnp.zeros_like(problem.initial)),
    )
    length = -(
        -slots // max(keep, 1)
    )  # of all stretches but the last: they share one compiled program
    rows, points = [], []
    for start in range(0, slots, length):
        points.append(np.asarray(jnp.dot(problem.share, state[2], precision="highest")))
        state, part = _stretch(problem, fixed, state, stamps[start : start + length])
        rows.append(jax.tree.map(np.asarray, part))
    table = {
        name: np.concatenate([np.asarray(part[name], float) for part in rows]) for name in rows[0]
    }
    last = jnp.dot(problem.share, state[2], precision="highest")
    ending = full_gradients(problem, jnp.broadcast_to(last, (nodes, problem.dim)))[0]
    loss = np.append(table.pop("loss"), float(np.asarray(ending, float) @ weights))
    return Trajectory(
        step=step_b,
        weights=weights,
        shares=np.asarray(problem.share, float),
        scales=scales,
        ages=ages,
        loss=loss,
        last=np.asarray(last),
        points=np.stack(points),
        **table,
    )


def _stretch(
    problem: Analysable, fixed: Fixed, state: Moving, stamps: Array
) -> tuple[Moving, dict[str, Array]]:
    """Run some slots: as one program, or one by one where gradients are faster so."""
    if not problem.called_from_python:
        return _scan(problem, fixed, state, stamps)
    rows = []
    for held in stamps:
        state, row = _slot(problem, fixed, state, held)
        rows.append(row)
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


@jax.jit
def _scan(
    problem: Analysable, fixed: Fixed, state: Moving, stamps: Array
) -> tuple[Moving, dict[str, Array]]:
    return lax.scan(partial(_slot, problem, fixed), state, stamps)


def _slot(
    problem: Analysable, fixed: Fixed, state: Moving, held: Array
) -> tuple[Moving, dict[str, Array]]:
    """Take one slot; `recent[s mod window]` are all w_j(s)."""
    slot, recent, params, (w_before, slope_before) = state
    own_steps, weights, pulls = fixed
    window, nodes, dim = recent.shape
    recent = recent.at[slot % window].set(params)
    nodes_at = jnp.arange(nodes)
    picked = jnp.zeros((nodes, window * nodes), params.dtype)
    picked = picked.at[nodes_at[:, None], (held % window) * nodes + nodes_at[None]].add(
        problem.share[None]
    )
    v = jnp.dot(picked, recent.reshape(-1, dim), precision="highest")  # [1, eq. (9)]
    w = jnp.dot(problem.share, params, precision="highest")
    local_loss, g = full_gradients(problem, v)
    loss_at_w, at_w = full_gradients(problem, jnp.broadcast_to(w, (nodes, dim)))
    slope = jnp.dot(weights, at_w, precision="highest")  # [1, eq. (15)]
    apart = _norm(v - w[None])
    row = {
        "loss": jnp.sum(weights * loss_at_w),
        "slope_sq": jnp.sum(slope**2),
        "move_sq": jnp.sum(jnp.dot(weights, g, precision="highest") ** 2),
        "local": _norm(g),
        "local_loss": local_loss,
        "apart": apart,
        "spread_sq": jnp.sum(weights * jnp.sum((at_w - slope[None]) ** 2, axis=1)),
        "secant": _ratio(_norm(g - at_w), apart, _norm(w)),
        "unlike": _unlike(pulls[:, None] * g),
        "norm": _norm(params),
        "secant_whole": _ratio(_norm(slope - slope_before), _norm(w - w_before), _norm(w))
        * (slot > 0),
    }
    moved = params - own_steps[:, None] * g  # [1, eq. (10)]
    return (slot + 1, recent, moved, (w, slope)), row


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


def _ratio(rise: Array, run: Array, scale: Array) -> Array:
    """Return rise / run, 0 where the run is lost in rounding."""
    far = run > 1e3 * jnp.finfo(run.dtype).eps * (1.0 + scale)
    return jnp.where(far, rise / jnp.where(far, run, 1.0), 0.0)


def _unlike(s: Array) -> Array:
    """Return max_ij ||s_i - s_j|| / min(||s_i||, ||s_j||).

    The least delta of Assumption 2(e) for this slot.
    """
    square = jnp.sum(s * s, axis=1)
    apart_sq = square[:, None] + square[None] - 2.0 * jnp.dot(s, s.T, precision="highest")
    least = jnp.minimum(square[:, None], square[None])
    ratio = jnp.where(apart_sq > 0, jnp.maximum(apart_sq, 0.0) / least, 0.0)
    others = ~jnp.eye(len(s), dtype=bool)
    return jnp.sqrt(jnp.max(jnp.where(others, ratio, 0.0), initial=0.0))
