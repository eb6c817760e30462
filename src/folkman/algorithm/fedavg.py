"""FedAvg: local steps from the server's model, then a weighted average of all.

    w_i <- w^k,   then E times   w_i <- w_i - eta grad F_i(w_i)
    w^{k+1} = sum_i alpha_i w_i                                                      [1, Algorithm 1]

With E = 1 this is gradient descent on the union of the data. A round takes E slots of computing and the time of one
upload and one download, during which the nodes wait.

Differs from [1]: full participation, and full-batch gradients unless the problem has mini-batches; alpha_i are the
data shares over all nodes. An upload that is not finite is dropped and the other shares are renormalised.
Xie et al. (2024) plot it as "FedAv" and cite something else (FedFomo); the method meant is this one.

[1] B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas. Communication-Efficient Learning of Deep
    Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place, Server
from folkman.algorithm.pieces.rules import Rule, check_rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size

__all__ = ["FedAvgServer", "FedAvgState", "fedavg"]


class FedAvgState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    optimizer: Any  # state of the local optimiser, fresh each round
    steps: Array  # () local steps done in this round
    updates: Array  # () updates done in all


class FedAvgServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w^k
    arrived: Array  # (node,) bool: uploads of this round
    fresh: Array  # () bool: is there a new model to send?
    rounds: Array  # () k


def fedavg(
    step: float = 0.1,
    local_steps: int = 1,
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd",
    decay: Decay = "constant",
    decay_steps: int = 1000,
    rule: Rule = "mean",
    trim: int = 1,
) -> Algorithm:
    """Build FedAvg with E = `local_steps`; `optimizer` 'sgd' is the paper's, the others restart every round.

    >>> fedavg(step=0.1, local_steps=5).server is not None
    True
    """
    if local_steps < 1:
        raise ValueError(
            f"local_steps must be at least 1, got {local_steps}; 1 is gradient descent"
        )
    check_rule(rule, trim)
    eta = step_size(step, decay, decay_steps)
    import optax  # a node that only reads the options does not need it

    local = {
        "sgd": optax.identity(),
        "momentum": optax.trace(0.9),
        "adam": optax.scale_by_adam(),
    }.get(optimizer)
    if local is None:
        raise ValueError(f"optimizer must be 'sgd', 'momentum' or 'adam', got {optimizer!r}")

    def init(params: Array, place: Place) -> FedAvgState:
        del place
        zero = jnp.zeros((), jnp.int32)
        return FedAvgState(params, local.init(params), zero, zero)

    def receive(state: FedAvgState, inbox: Inbox) -> FedAvgState:
        model = inbox.payload(0)  # the server is a node's only neighbour
        new = FedAvgState(model, local.init(model), jnp.zeros((), jnp.int32), state.updates)
        return jax.tree.map(lambda a, b: jnp.where(inbox.heard[0], a, b), new, state)

    def update(
        state: FedAvgState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> FedAvgState:
        del inbox, loss, key
        direction, memory = local.update(grad, state.optimizer, state.params)
        params = state.params - jnp.asarray(
            eta(state.updates.astype(grad.dtype)), grad.dtype
        ) * jnp.asarray(direction)
        return FedAvgState(params, memory, state.steps + 1, state.updates + 1)

    def server_init(params: Array, num_nodes: int) -> FedAvgServer:
        return FedAvgServer(
            params, jnp.zeros(num_nodes, bool), jnp.asarray(False), jnp.zeros((), jnp.int32)
        )

    def aggregate(state: FedAvgServer, inbox: Inbox, key: Array) -> FedAvgServer:
        del key
        arrived = state.arrived | inbox.heard
        weights = inbox.weight * inbox.finite
        weights = weights / jnp.sum(weights)  # all shares 0: NaN, which stops the run
        mean = combine(inbox, weights, rule=rule, trim=trim)
        done = jnp.all(arrived)
        params = jnp.where(done, mean, state.params)
        return FedAvgServer(params, arrived & ~done, done, state.rounds + done)

    return Algorithm(
        name="fedavg",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
        receive=receive,
        computes=lambda state: state.steps < local_steps,
        offers=lambda state: state.steps >= local_steps,
        server=Server(
            init=server_init,
            receive=aggregate,
            offers=lambda state: jnp.broadcast_to(state.fresh, state.arrived.shape),
            message=lambda state: state.params,
            params=lambda state: state.params,
            rounds=lambda state: state.rounds,
        ),
        assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
    )
