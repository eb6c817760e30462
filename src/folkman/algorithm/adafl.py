"""AdaFL: FedAvg whose number of local steps the server adapts to a budget of time.

    w+ = sum_i alpha_i w_i   after tau local steps                                                     [1, Algorithm 2]
    beta, rho = sum_i alpha_i beta_i, rho_i;   delta = sum_i alpha_i ||grad F_i(w) - sum_j alpha_j grad F_j(w)||
    h(tau) = (delta / beta) ((1 + eta beta)^tau - 1) - eta delta tau
    G(tau) = 1/(2 eta phi K) + sqrt(1/(2 eta phi K)^2 + rho h(tau)/(eta phi tau)) + rho h(tau)
    K = (R - b - c) tau / (c tau + b),   tau <- min(argmin_{1 .. 10 tau} G, tau_max)

c is the slots of a local step at the slowest node, b the slots of the round beyond c tau, R the `budget` in slots of
the server's own count. When it runs out, a last round of the tau that still fits and one of a single step, to know the
loss, end the run at the w of least loss. A round costs 2 S + 4 * 32 bits from each node and one broadcast of S + 32;
with a fixed `tau` it is one of FedAvg with tau local steps, and there is no budget.

Differs from [1]: as in the authors' code (IBM/adaptive-federated-learning), but for where a node estimates, see
`adafl_node`. tau is 1 in the first two rounds. Uploads that are not finite are dropped; if all are, w stays, tau is 1.

[1] S. Wang, T. Tuor, T. Salonidis, K. K. Leung, C. Makaya, T. He, K. Chan. Adaptive Federated Learning in Resource
    Constrained Edge Computing Systems. IEEE JSAC 37(6), 2019. doi:10.1109/JSAC.2019.2904348, arXiv:1804.05271
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.adafl_node import LEAST_BETA, adafl_node
from folkman.algorithm.base import Algorithm, Inbox
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.pieces.steps import step_size
from folkman.checks import require

__all__ = ["AdaFLServer", "adafl", "best_tau", "divergence"]


class AdaFLServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w
    best: Array  # (d,) w of the least loss so far
    best_loss: Array  # ()
    tau: Array  # ()
    phase: Array  # () 0 within the budget, 1 last round, 2 its evaluation, 3 over
    arrived: Array  # (node,) bool: uploads of this round
    answers: Array  # (node,) bool: who is to hear the new model
    rounds: Array  # ()
    slots: Array  # () slots so far
    since: Array  # () slots when the round began


def divergence(tau: Array, step: float, beta: Array, delta: Array) -> Array:
    """Return h(tau), a bound on how far tau local steps lead from those on all data."""
    grown = jnp.expm1(tau * jnp.log1p(step * beta)) / beta - step * tau
    return jnp.where(delta > 0, jnp.maximum(delta * grown, 0.0), 0.0)


def best_tau(tau: Array, tau_max: int, step: float, phi: float, run: tuple[Array, ...]) -> Array:
    """Return the next tau; `run` holds beta, rho, delta, c, b and the budget R."""
    beta, rho, delta, c, b, budget = run
    t = jnp.arange(1, 10 * tau_max + 1).astype(beta.dtype)
    h = divergence(t, step, beta, delta)
    half = (c + b / t) / (2.0 * step * phi * jnp.maximum(budget - b - c, 1.0))  # 1 / (2 eta phi K)
    gap = half + jnp.sqrt(half**2 + rho * h / (step * phi * t)) + rho * h
    return jnp.minimum(
        jnp.argmin(jnp.where((t > 10 * tau) | jnp.isnan(gap), jnp.inf, gap)) + 1, tau_max
    )


def adafl(
    step: float = 0.1,
    tau: int | Literal["adaptive"] = "adaptive",
    budget: int | None = None,
    phi: float = 5e-5,
    tau_max: int = 100,
    horizon: int | None = None,
) -> Algorithm:
    """Build AdaFL; `phi` is 5e-5 for the authors' CNN, 0.025 for their SVM; the budget R is by default the `horizon`.

    >>> adafl(step=0.016, tau="adaptive", budget=500).name
    'adafl'
    """
    step_size(step)  # refuses a bad one
    require(
        tau == "adaptive" or tau >= 1,
        f"tau must be 'adaptive' or at least 1, got {tau!r}; 1 is FedAvg's usual",
    )
    budget = (horizon or 1000) if budget is None else budget
    require(
        min(budget, tau_max) >= 1,
        f"budget and tau_max must be at least 1, got {budget} and {tau_max}; raise them",
    )
    require(phi > 0, f"phi must be above 0, got {phi}; try 5e-5")
    if tau != "adaptive":
        return fedavg(step, local_steps=tau)._replace(name="adafl")

    def server_init(params: Array, num_nodes: int) -> AdaFLServer:
        zero, nobody, worst = (
            jnp.zeros((), jnp.int32),
            jnp.zeros(num_nodes, bool),
            jnp.full((), jnp.inf, params.dtype),
        )
        return AdaFLServer(params, params, worst, zero + 1, zero, nobody, nobody, zero, zero, zero)

    def control(state: AdaFLServer, run: tuple[Array, ...]) -> tuple[Array, Array]:
        """Return the tau and the phase of the next round."""
        *_, c, b, _ = run
        tau = jnp.where(state.rounds > 0, best_tau(state.tau, tau_max, step, phi, run), 1).astype(
            jnp.int32
        )
        fits, within = state.slots + c * (tau + 1) + 2 * b < budget, state.phase == 0
        last = jnp.clip(((budget - state.slots - 2 * b - c) / c).astype(jnp.int32), 1, tau)
        phase = jnp.where(within & fits, 0, jnp.minimum(state.phase + 1, 3))
        return jnp.where(within, jnp.where(fits, tau, last), 1), phase

    def aggregate(state: AdaFLServer, inbox: Inbox, key: Array) -> AdaFLServer:
        del key
        nobody, dim = jnp.zeros_like(state.arrived), state.params.shape[0]
        state = state._replace(
            slots=state.slots + 1, arrived=state.arrived | inbox.heard, answers=nobody
        )
        known, uploads = inbox.weight * inbox.finite, inbox.store[inbox.row]
        usable, weights = (
            jnp.any(known > 0),
            known / jnp.maximum(jnp.sum(known), jnp.finfo(known.dtype).tiny),
        )
        model, grad, (loss, beta, rho, _) = jnp.split(inbox.mix(weights), (dim, 2 * dim))
        delta = jnp.dot(weights, jnp.linalg.norm(uploads[:, dim : 2 * dim] - grad[None], axis=1))
        c = jnp.maximum(jnp.max(uploads[:, -1]) / state.tau, 1.0)
        b = jnp.maximum(state.slots - state.since - c * state.tau, 0.0)
        tau, phase = control(
            state, (jnp.maximum(beta, LEAST_BETA), rho, delta, c, b, jnp.asarray(budget, c.dtype))
        )
        w, tau = jnp.where(usable, model, state.params), jnp.where(usable, tau, 1)
        better, now, answers = usable & (loss < state.best_loss), state.slots, ~nobody & (phase < 3)
        best, least = (
            jnp.where(better, state.params, state.best),
            jnp.where(better, loss, state.best_loss),
        )
        new = AdaFLServer(w, best, least, tau, phase, nobody, answers, state.rounds + 1, now, now)
        return jax.tree.map(lambda a, b: jnp.where(jnp.all(state.arrived), a, b), new, state)

    return adafl_node(step, server_init, aggregate)
