"""D-PSGD: average with the neighbours, and step along the own gradient, in lock-step.

    combine, then adapt   x_i+ = sum_j W_ij x_j - eta grad F_i(x_i)               [1, Algorithm 1] (default)
    adapt, then combine   x_i+ = sum_j W_ij (x_j - eta grad F_j(x_j))

The gradient of the first form is taken at the unmixed x_i. For any doubly stochastic W the mean moves by
-(eta / I) sum_i grad F_i(x_i). On a complete graph the second form is FedAvg with equal weights. A round takes one slot
of computing and the time of one broadcast of each node, S bits each.

Differs from [1]: full-batch gradients unless the problem has mini-batches; a round ends when every edge has been
served, whatever that takes on the network.

[1] X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu. Can Decentralized Algorithms Outperform Centralized
    Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent. NeurIPS 2017. arXiv:1705.09056
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place
from folkman.algorithm.pieces.rules import Rule, check_rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Topology, mixing

__all__ = ["GossipState", "dpsgd"]


class GossipState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    step: Array  # (d,) -eta grad F_i(x_i) of this round, not yet applied (combine first)
    ready: Array  # () bool: has its gradient, waits for the round
    updates: Array  # () gradients done


def dpsgd(
    step: float = 0.1,
    order: Literal["combine_first", "adapt_first"] = "combine_first",
    topology: Topology = "ring",
    degree: int = 4,
    graph_seed: int = 0,
    decay: Decay = "constant",
    decay_steps: int = 1000,
    rule: Rule = "mean",
    trim: int = 1,
) -> Algorithm:
    """Build D-PSGD; `degree` and `graph_seed` are of the topology 'regular'.

    >>> dpsgd(topology="complete").mixing.weights(jnp.ones((4, 4), bool))[0, 1].item()
    0.25
    """
    eta = step_size(step, decay, decay_steps)
    if order not in ("combine_first", "adapt_first"):
        raise ValueError(f"order must be 'combine_first' or 'adapt_first', got {order!r}")
    check_rule(rule, trim)

    def init(params: Array, place: Place) -> GossipState:
        del place
        return GossipState(
            params, jnp.zeros_like(params), jnp.asarray(False), jnp.zeros((), jnp.int32)
        )

    def receive(state: GossipState, inbox: Inbox) -> GossipState:
        over = jnp.any(inbox.heard)
        mixed = combine(inbox, inbox.weight, state.params, inbox.own_weight, rule=rule, trim=trim)
        return GossipState(
            params=jnp.where(over, mixed + state.step, state.params),  # [1, Alg. 1, lines 5-6]
            step=jnp.where(over, 0.0, state.step),
            ready=state.ready & ~over,
            updates=state.updates,
        )

    def update(
        state: GossipState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> GossipState:
        del inbox, loss, key
        move = -jnp.asarray(eta(state.updates.astype(grad.dtype)), grad.dtype) * grad
        if order == "adapt_first":
            return GossipState(
                state.params + move, jnp.zeros_like(move), jnp.asarray(True), state.updates + 1
            )
        return GossipState(state.params, move, jnp.asarray(True), state.updates + 1)

    return Algorithm(
        name="dpsgd",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params + state.step,
        receive=receive,
        computes=lambda state: ~state.ready,
        offers=lambda state: state.ready,
        mixing=mixing(topology, degree, graph_seed),
        assumes=frozenset({Assumption.LOCKSTEP, Assumption.PRESENT}),
    )
