"""AdaFL's node: as many local steps as the server asks for, and estimates of its loss on the way.

    w_i <- w,   then tau times   w_i <- w_i - eta grad F_i(w_i)                   [1, Algorithm 3]
    beta_i = ||grad F_i(p_i) - grad F_i(w)|| / ||p_i - w||
    rho_i  = |F_i(p_i) - F_i(w)| / ||p_i - w||

It uploads w_i, grad F_i(w), F_i(w), beta_i, rho_i and the slots that its gradients took. p_i is the
model that the node ended the round before with. Its gradient there is one more than the tau that
the round needs, and is paid for with a slot: the authors' code takes it in time that it does not
count. By the estimate 'last_gradient' p_i is where the node took the last of its tau gradients.

[1] Wang et al. Adaptive Federated Learning in Resource Constrained Edge Computing Systems.
    IEEE JSAC 37(6), 2019.
"""

from collections.abc import Callable
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price, State
from folkman.algorithm.method import Number
from folkman.algorithm.pieces.server_side import received
from folkman.algorithm.travel import Server, Star
from folkman.arrays import Array, jnp

__all__ = ["LEAST_BETA", "AdaFLState", "adafl_node"]

LEAST_BETA = 1e-5


class AdaFLState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    start_grad: Array  # (d,) grad F_i(w)
    last: Array  # (d,) p_i
    last_grad: Array  # (d,) grad F_i(p_i)
    last_loss: Array  # () F_i(p_i)
    report: Array  # (3,) F_i(w), beta_i, rho_i
    tau: Array  # () local steps asked for
    steps: Array  # () gradients taken in this round
    slots: Array  # () slots that they took


def adafl_node(
    step: Number,
    server_init: Callable[[Array, int], State],
    aggregate: Callable[[State, Inbox, Array], State],
    *,
    more: int,
) -> Algorithm:
    """Build the algorithm from its server's side; of a round's gradients `more` only estimate.

    When the server is done (phase 3), its model is the best one known.
    """

    def init(params: Array, place: Place) -> AdaFLState:
        del place
        zeros = jnp.zeros_like(params)
        zero = jnp.zeros((), jnp.int32)
        return AdaFLState(
            params=params,
            start_grad=zeros,
            last=params,
            last_grad=zeros,
            last_loss=jnp.zeros((), params.dtype),
            report=jnp.zeros(3, params.dtype),
            tau=zero + 1,
            steps=zero,
            slots=zero,
        )

    def receive(state: AdaFLState, inbox: Inbox) -> AdaFLState:
        payload = inbox.payload(0)  # the server is a node's only neighbour
        heard = inbox.heard[0]
        dim = state.params.shape[0]
        steps = jnp.where(heard, 0, state.steps)
        tau = jnp.where(heard, payload[dim].astype(jnp.int32), state.tau)
        return state._replace(
            params=jnp.where(heard, payload[:dim], state.params),
            tau=tau,
            steps=steps,
            slots=jnp.where(heard, 0, state.slots) + (steps < tau + more),
        )

    def update(state: AdaFLState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> AdaFLState:
        del inbox, key
        first = state.steps == 0
        apart = jnp.linalg.norm(state.last - state.params)
        # where p_i = w nothing can be estimated: both are then 0
        apart = jnp.where(apart > 1e-10, apart, jnp.inf)
        beta = jnp.maximum(jnp.linalg.norm(state.last_grad - grad) / apart, LEAST_BETA)
        rho = jnp.abs(state.last_loss - loss) / apart
        report = jnp.stack([loss, beta, rho])
        moved = state.params - step * grad
        return AdaFLState(
            params=jnp.where(state.steps < state.tau, moved, state.params) if more else moved,
            start_grad=jnp.where(first, grad, state.start_grad),
            last=state.params,
            last_grad=grad,
            last_loss=loss,
            report=jnp.where(first, report, state.report),
            tau=state.tau,
            steps=state.steps + 1,
            slots=state.slots,
        )

    def message(state: AdaFLState) -> Array:
        slots = state.slots[None].astype(state.params.dtype)
        return jnp.concatenate([state.params, state.start_grad, state.report, slots])

    server = Server(
        init=server_init,
        receive=aggregate,
        offers=lambda state: state.answers,
        message=lambda state: jnp.append(state.params, state.tau.astype(state.params.dtype)),
        params=lambda state: jnp.where(state.phase == 3, state.best, state.params),
        rounds=lambda state: state.rounds,
        price=Price(lambda dim, bits: (dim * bits + 32,)),
    )
    return Algorithm(
        name="adafl",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=message,
        params=lambda state: state.params,
        receive=receive,
        model=received,
        travel=Star(server, ready=lambda state: state.steps >= state.tau + more),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=Price(lambda dim, bits: (2 * dim * bits + 4 * 32,)),
        ),
    )
