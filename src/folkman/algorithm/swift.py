"""SWIFT: wait-free gossip. A node averages with the newest models it holds of its neighbours, and never waits.

    x_i <- w_ii x_i + sum_j w_ij x_j(newest held)      every s-th own step                       [1, Algorithm 1]
    x_i <- x_i - eta grad F_i(x_i before averaging)    every own step

When all take steps together and hear each other at once, s = 1 is D-PSGD (combine, then adapt). `missing` says what
becomes of a neighbour that was not heard since the last averaging:

    stored   its last model counts again (default)
    self     its weight goes to x_i
    scale    the weights of the others, and w_ii, are scaled up to sum to 1

and `weights` which symmetric, doubly stochastic ones are used: Metropolis, or those of the released code, where nodes
of large degree offer first, (1 - accepted) / (neighbours left + 1), and others take it; the same on regular graphs. A
node broadcasts its model after every own step, S bits.

Differs from [1]: full-batch gradients unless the problem has mini-batches; no momentum and no weight decay (the
released scripts use both); of two offers between equal degrees both take the smaller, and where a node would be left
with a negative w_ii all weights are Metropolis, so W is always symmetric; 'scale' divides by the sum of the weights,
which is the released (deg + 1) / (received + 1) on regular graphs.

[1] M. Bornstein, T. Rabbani, E. Wang, A. S. Bedi, F. Huang. SWIFT: Rapid Decentralized Federated Learning via
    Wait-Free Model Communication. ICLR 2023. arXiv:2210.14026
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Inbox, Mixing, Place
from folkman.algorithm.pieces.rules import Rule, check_rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Topology, graph, metropolis, mixing

__all__ = ["SwiftState", "offered_weights", "swift"]


class SwiftState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    fresh: Array  # (node,) bool: heard since the last averaging
    updates: Array  # () own steps done


def offered_weights(adjacency: NDArray[np.bool_]) -> Array:
    """Return the released code's weights (node, node) of a symmetric graph, or Metropolis where they fail."""
    degree = adjacency.sum(axis=1)
    found = np.zeros(adjacency.shape)
    for level in np.unique(degree)[::-1]:
        group = np.flatnonzero(degree == level)
        left = adjacency[group] & (degree <= level)
        offer = np.full(len(degree), np.inf)  # of lower degrees: they take what they are offered
        offer[group] = (1.0 - found[group].sum(axis=1)) / (left.sum(axis=1) + 1)
        found[group] = np.where(left, np.minimum(offer[group, None], offer[None]), found[group])
        found[:, group] = found[group].T
    own = 1.0 - found.sum(axis=1)
    return (
        metropolis(jnp.asarray(adjacency)) if (own < 0).any() else jnp.asarray(found + np.diag(own))
    )


def swift(
    step: float = 0.1,
    every: int = 1,
    missing: Literal["stored", "self", "scale"] = "stored",
    weights: Literal["metropolis", "released"] = "metropolis",
    topology: Topology = "ring",
    degree: int = 4,
    graph_seed: int = 0,
    rule: Rule = "mean",
    trim: int = 1,
    decay: Decay = "constant",
    decay_steps: int = 1000,
) -> Algorithm:
    """Build SWIFT with s = `every`.

    >>> swift(weights="released", topology="complete").mixing.weights(jnp.ones((4, 4), bool))[0, 1].item()
    0.25
    """
    eta, weighing = step_size(step, decay, decay_steps), mixing(topology, degree, graph_seed)
    check_rule(rule, trim)
    if every < 1 or missing not in ("stored", "self", "scale"):
        raise ValueError(
            f"expected every >= 1 and missing 'stored', 'self' or 'scale', got {every} and {missing!r}"
        )
    if weights not in ("metropolis", "released") or (
        weights == "released" and topology == "schedule"
    ):
        raise ValueError(
            f"weights must be metropolis, or released on a fixed graph; got {weights!r} on {topology!r}"
        )
    if weights == "released":
        weighing = Mixing(
            lambda heard: offered_weights(graph(topology, len(heard), degree, graph_seed))
        )

    def init(params: Array, place: Place) -> SwiftState:
        return SwiftState(params, jnp.zeros(place.num_nodes, bool), jnp.zeros((), jnp.int32))

    def average(state: SwiftState, inbox: Inbox) -> Array:
        others, own = inbox.weight, inbox.own_weight
        if missing != "stored":
            others = jnp.where(state.fresh, others, 0.0)
            own = 1.0 - jnp.sum(others) if missing == "self" else own
        total = own + jnp.sum(others) if missing == "scale" else 1.0
        return combine(inbox, others / total, state.params, own / total, rule=rule, trim=trim)

    def update(state: SwiftState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> SwiftState:
        del loss, key
        now = (state.updates + 1) % every == 0
        mixed = jnp.where(now, average(state, inbox), state.params)
        params = mixed - jnp.asarray(eta(state.updates.astype(grad.dtype)), grad.dtype) * grad
        return SwiftState(params, state.fresh & ~now, state.updates + 1)

    return Algorithm(
        name="swift",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=lambda state, inbox: state._replace(fresh=state.fresh | inbox.heard),
        mixing=weighing,
    )
