"""SWIFT: wait-free gossip; a node averages with the newest models it holds, and never waits.

    x_i <- w_ii x_i + sum_j w_ij x_j(newest held)      every s-th own step        [1, Algorithm 1]
    x_i <- x_i - eta grad F_i(x_i before averaging)    every own step

When all take steps together and hear each other at once, s = 1 is D-PSGD (combine, then adapt).
`missing` decides about a neighbour that was not heard since the last averaging:

    stored   its last model counts again (default)
    self     its weight goes to x_i
    scale    the weights of the others, and w_ii, are scaled up to sum to 1

and `weights` which symmetric, doubly stochastic ones are used: Metropolis, or those of the released
code, where nodes of large degree offer first, (1 - accepted) / (neighbours left + 1), and others
take it; the same on regular graphs. A node broadcasts its model after every own step, S bits.

Differs from [1]: full-batch gradients unless the problem has mini-batches; no momentum by default
and no weight decay (the released scripts use both); of two offers between equal degrees both take
the smaller, and where a node would be left with a negative w_ii all weights are Metropolis, so W is
always symmetric; 'scale' divides by the sum of the weights, which is the released (deg + 1) /
(received + 1) on regular graphs. On a ring the released code (github.com/marcobornstein/SWIFT)
makes the same models of the same arrivals, to 1e-10 in the tests, in all three forms.

[1] M. Bornstein, T. Rabbani, E. Wang, A. S. Bedi, F. Huang. SWIFT: Rapid Decentralized Federated
    Learning via Wait-Free Model Communication. ICLR 2023. arXiv:2210.14026
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import NUMBERS, Algorithm, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.travel import Broadcast, Mixing
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["SwiftState", "offered_weights", "swift"]

BIBTEX = r"""@inproceedings{swift,
  author = {Bornstein, Marco and Rabbani, Tahseen and Wang, Evan and Bedi, Amrit Singh and Huang,
    Furong},
  title = {{SWIFT}: Rapid Decentralized Federated Learning via Wait-Free Model Communication},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year = {2023},
  eprint = {2210.14026},
  archiveprefix = {arXiv},
}"""


class SwiftState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    fresh: Array  # (node,) bool: heard since the last averaging
    updates: Array  # () own steps done


def offered_weights(adjacency: NDArray[np.bool_]) -> Array:
    """Return the released code's weights (node, node), or Metropolis where they fail."""
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
    if (own < 0).any():
        return metropolis(jnp.asarray(adjacency))
    return jnp.asarray(found + np.diag(own))


@method
def swift(
    step: Number = 0.1,
    every: int = 1,  # own steps from one averaging to the next, s
    # what stands for a neighbour that was not heard
    missing: Literal["stored", "self", "scale"] = "stored",
    # Metropolis weights, or those of the released code
    weights: Literal["metropolis", "released"] = "metropolis",
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build SWIFT with s = `every`.

    >>> built = swift(weights="released", topology="complete")
    >>> built.travel.mixing.weights(jnp.ones((4, 4), bool))[0, 1].item()
    0.25
    """
    eta = step_size(step, decay)
    graph.check_fixed("swift")
    rule.check()
    require(
        every >= 1 and missing in ("stored", "self", "scale"),
        f"expected every >= 1 and missing 'stored', 'self' or 'scale', got {every} and {missing!r}",
    )
    require(
        weights == "metropolis" or (weights == "released" and graph.pushes_evenly),
        "weights must be metropolis, or released on a fixed graph without weights; "
        f"got {weights!r} on {graph.topology!r}",
    )

    def released(heard: Array) -> Array:
        return offered_weights(graph.adjacency(len(heard)))

    def init(params: Array, place: Place) -> SwiftState:
        return SwiftState(
            params=params,
            fresh=jnp.zeros(place.num_nodes, bool),
            updates=jnp.zeros((), jnp.int32),
        )

    def receive(state: SwiftState, inbox: Inbox) -> SwiftState:
        return state._replace(fresh=state.fresh | inbox.heard)

    def average(state: SwiftState, inbox: Inbox) -> Array:
        others = inbox.weight
        own = inbox.own_weight
        if missing != "stored":
            others = jnp.where(state.fresh, others, 0.0)
        if missing == "self":
            own = 1.0 - jnp.sum(others)
        total = own + jnp.sum(others) if missing == "scale" else 1.0
        return combine(rule, inbox, others / total, own=state.params, own_weight=own / total)

    def update(state: SwiftState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> SwiftState:
        del loss, key
        now = (state.updates + 1) % every == 0
        mixed = jnp.where(now, average(state, inbox), state.params)
        return SwiftState(
            params=mixed - eta(state.updates, grad.dtype) * grad,
            fresh=state.fresh & ~now,
            updates=state.updates + 1,
        )

    built = Algorithm(
        name="swift",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: average(receive(state, inbox), inbox),
        travel=Broadcast(mixing=Mixing(released) if weights == "released" else graph.mixing()),
        declares=Declares(evenly=True, verified=NUMBERS),
    )
    return descent.of(built)
