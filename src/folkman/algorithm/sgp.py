"""SGP: stochastic gradient push. Mass is pushed along a graph that need not be symmetric, and divided by its weight.

    x_i <- x_i - eta grad F_i(z_i);   x_i+ = sum_j p_ij x_j,   y_i+ = sum_j p_ij y_j,   z_i = x_i / y_i    [1, Alg. 1]

with y_i(0) = 1 and p_ji = 1 / (out_i + 1) for node i itself and each node j that hears it, so columns sum to 1. Where
rows do too, y_i = 1 and this is D-PSGD (adapt, then combine). A round in lock-step takes one slot of computing and one
broadcast of each node, S + 32 bits. In the mode 'asynchronous' a node pushes after every gradient, never waits, and
broadcasts what it has pushed to each neighbour in all, sigma_i; a receiver adds sum_j sigma_j less the same sum as last
taken [2]. Losing or repeating messages is harmless: sum_i x_i + what is in flight moves by gradients alone, and
sum_i y_i + what is in flight = I. A sum is taken if no part of it is older than what was taken before. There x_i counts
from y_i w(0) to keep sigma small; still it grows with time, and float32 loses digits.

Differs from [1]: full-batch gradients unless the problem has mini-batches; the asynchronous form pushes only as much as
leaves y_i >= `least_weight`, as many pushes before the first arrival would take y_i to 0 and the step eta / y_i to
infinity; z_i = x_i / max(y_i, 1e-3) in both.

[1] M. Assran, N. Loizou, N. Ballas, M. Rabbat. Stochastic Gradient Push. ICML 2019. arXiv:1811.10792
[2] C. N. Hadjicostis, N. H. Vaidya, A. D. Dominguez-Garcia. Robust Distributed Average Consensus via Exchange of
    Running Sums. IEEE Transactions on Automatic Control 61(6), 2016.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Mixing, Place
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Topology, graph, mixing

__all__ = ["PushState", "push_weights", "sgp"]


class PushState(NamedTuple):
    """What a node remembers; the last entry of a (d + 1,) vector is its weight."""

    mass: Array  # (d + 1,) x_i, y_i
    origin: Array  # (d,) w(0) if x_i is counted from there, else 0
    pushed: Array  # (d + 1,) sigma_i, pushed to each neighbour in all (asynchronous)
    taken: Array  # (d + 1,) sum_j sigma_j when it was last taken (asynchronous)
    seen: Array  # (node,) the weight in each of these sigma_j
    ready: Array  # () bool: has its gradient, waits for the round (lock-step)
    updates: Array  # () gradients done


def push_weights(adjacency: Array) -> Array:
    """Return p (rx, tx), columns summing to 1, of a directed graph (rx, tx)."""
    linked = adjacency | jnp.eye(len(adjacency), dtype=bool)
    return linked / jnp.sum(linked, axis=0, keepdims=True)


def sgp(
    step: float = 0.1,
    mode: Literal["lockstep", "asynchronous"] = "lockstep",
    least_weight: float = 0.1,
    topology: Topology = "ring",
    degree: int = 4,
    graph_seed: int = 0,
    decay: Decay = "constant",
    decay_steps: int = 1000,
) -> Algorithm:
    """Build stochastic gradient push; the topology 'schedule' is for lock-step, where senders learn who heard them.

    >>> sgp(topology="star").mixing.weights(jnp.ones((4, 4), bool))[:, 0].sum().item()
    1.0
    """
    eta, waits = step_size(step, decay, decay_steps), mixing(topology, degree, graph_seed).waits
    if mode not in ("lockstep", "asynchronous") or (
        mode == "asynchronous" and topology == "schedule"
    ):
        raise ValueError(
            f"mode must be 'lockstep', or 'asynchronous' on a fixed graph; got {mode!r} on {topology!r}"
        )
    if not 0 < least_weight < 1:
        raise ValueError(f"least_weight must be between 0 and 1, got {least_weight}; try 0.1")
    lockstep, fixed = (
        mode == "lockstep",
        lambda heard: jnp.asarray(graph(topology, len(heard), degree, graph_seed)),
    )

    def init(params: Array, place: Place) -> PushState:
        origin, seen = (
            jnp.zeros_like(params) if lockstep else params,
            jnp.zeros(place.num_nodes, params.dtype),
        )
        mass = jnp.append(params - origin, 1.0).astype(params.dtype)
        none = jnp.zeros_like(mass)
        return PushState(
            mass, origin, none, none, seen, jnp.asarray(False), jnp.zeros((), jnp.int32)
        )

    def receive(state: PushState, inbox: Inbox) -> PushState:
        if lockstep:
            over = jnp.any(inbox.heard)
            mixed = inbox.own_weight * state.mass + inbox.mix(inbox.weight)  # [1, Alg. 1, line 5-6]
            return state._replace(
                mass=jnp.where(over, mixed, state.mass), ready=state.ready & ~over
            )
        hears, held = inbox.weight > 0, inbox.store[inbox.row, -1]
        total = inbox.mix(hears.astype(held.dtype))
        forward = jnp.all((held >= state.seen) | ~hears)
        new = state._replace(mass=state.mass + total - state.taken, taken=total, seen=held)
        return jax.tree.map(lambda a, b: jnp.where(forward, a, b), new, state)

    def update(state: PushState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> PushState:
        del loss, key
        move = -jnp.asarray(eta(state.updates.astype(grad.dtype)), grad.dtype) * grad
        state = state._replace(
            mass=state.mass.at[:-1].add(move), ready=jnp.asarray(True), updates=state.updates + 1
        )
        if lockstep:
            return state
        out = jnp.round(1.0 / inbox.own_weight) - 1.0
        most = jnp.maximum(1.0 - least_weight / state.mass[-1], 0.0) / jnp.maximum(out, 1.0)
        pushed = state.pushed + jnp.minimum(inbox.own_weight, most) * state.mass
        return state._replace(
            mass=state.mass - out * (pushed - state.pushed), pushed=pushed
        )  # what was rounded stays

    def ratio(state: PushState) -> Array:
        return state.origin + state.mass[:-1] / jnp.maximum(state.mass[-1], 1e-3)

    return Algorithm(
        name="sgp",
        init=init,
        point=lambda state, _: ratio(state),
        update=update,
        message=lambda state: state.mass if lockstep else state.pushed,
        params=ratio,
        receive=receive,
        computes=lambda state: ~(state.ready & lockstep),
        offers=lambda state: state.ready,
        mixing=Mixing(lambda heard: push_weights(fixed(heard) if waits else heard), waits),
        prices=lambda dim, bits: (bits * dim + 32,),
        differences=True,
        assumes=frozenset(
            {Assumption.PRESENT, Assumption.LOCKSTEP if lockstep else Assumption.STEADY}
        ),
    )
