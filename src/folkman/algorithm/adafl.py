"""AdaFL: FedAvg whose number of local steps the server adapts to a budget of time.

    w+ = sum_i alpha_i w_i   after tau local steps                                [1, Algorithm 2]
    beta, rho = sum_i alpha_i beta_i, rho_i
    delta = sum_i alpha_i ||grad F_i(w) - sum_j alpha_j grad F_j(w)||
    h(tau) = (delta / beta) ((1 + eta beta)^tau - 1) - eta delta tau
    G(tau) = 1/(2 eta phi K) + sqrt(1/(2 eta phi K)^2 + rho h(tau)/(eta phi tau)) + rho h(tau)
    K = (R - b - c) tau / (c tau + b),   tau <- min(argmin_{1 .. 10 tau} G, tau_max)

c is the slots of a gradient at the slowest node, b the slots of the round beyond c tau, R the
`budget` in slots of the server's own count. A node estimates beta_i and rho_i between w and the
model that it ended the round before with, for which it takes one gradient more a round. When the
budget runs out, a last round of the tau that still fits and one of a single step, which measures
the loss, end the run at the w of least loss. A round costs 2 S + 4 * 32 bits from each node and one
broadcast of S + 32. With a fixed `tau` it is FedAvg with tau local steps, and there is no budget.

Differs from [1]: as in the authors' code (IBM/adaptive-federated-learning), except that the
gradient for the estimate takes a slot, which b has in it. By the `estimate` 'last_gradient' a node
estimates from the last gradient of the round before, which it has already (`pieces/adafl_node.py`).
tau is 1 in the first two rounds. Uploads that are not finite are dropped; if all are, w stays and
tau is 1.

[1] S. Wang, T. Tuor, T. Salonidis, K. K. Leung, C. Makaya, T. He, K. Chan. Adaptive Federated
    Learning in Resource Constrained Edge Computing Systems. IEEE JSAC 37(6), 2019.
    doi:10.1109/JSAC.2019.2904348, arXiv:1804.05271
"""

from dataclasses import replace
from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Inbox
from folkman.algorithm.fedavg import fedavg
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.adafl_node import LEAST_BETA, adafl_node
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["AdaFLServer", "Measured", "adafl", "best_tau", "divergence"]

BIBTEX = r"""@article{adafl,
  author = {Wang, Shiqiang and Tuor, Tiffany and Salonidis, Theodoros and Leung, Kin K. and Makaya,
    Christian and He, Ting and Chan, Kevin},
  title = {Adaptive Federated Learning in Resource Constrained Edge Computing Systems},
  journal = {IEEE Journal on Selected Areas in Communications},
  volume = {37},
  number = {6},
  pages = {1205--1221},
  year = {2019},
  eprint = {1804.05271},
  archiveprefix = {arXiv},
}"""


class AdaFLServer(NamedTuple):
    """What the server remembers."""

    params: Array  # (d,) w
    best: Array  # (d,) w of the least loss so far
    best_loss: Array  # () that least loss
    tau: Array  # () local steps of a round, tau
    phase: Array  # () 0 within the budget, 1 last round, 2 its evaluation, 3 over
    arrived: Array  # (node,) bool: uploads of this round
    answers: Array  # (node,) bool: who is to receive the new model
    rounds: Array  # () rounds so far
    slots: Array  # () slots so far
    since: Array  # () slots when the round began


class Measured(NamedTuple):
    """What the server has measured of the losses and of the time that a round takes."""

    beta: Array  # () smoothness
    rho: Array  # () Lipschitz constant
    delta: Array  # () how far the nodes' gradients are apart
    c: Array  # () slots of a local step
    b: Array  # () slots of a round beyond its local steps
    budget: Array  # () slots of the whole run, R


def divergence(
    tau: Array,  # local steps
    step: Number,
    beta: Array,  # smoothness of the losses
    delta: Array,  # how far the nodes' gradients are apart
) -> Array:
    """Return h(tau), a bound on how far tau local steps lead from those on all data."""
    grown = jnp.expm1(tau * jnp.log1p(step * beta)) / beta - step * tau
    return jnp.where(delta > 0, jnp.maximum(delta * grown, 0.0), 0.0)


def best_tau(
    tau: Array,  # local steps of the round before
    tau_max: int,  # most local steps of a round
    step: Number,
    # phi of the bound G: a larger one lets divergence weigh more, so that rounds get shorter
    phi: Number,
    run: Measured,  # what the server has measured
) -> Array:
    """Return the next tau."""
    t = jnp.arange(1, 10 * tau_max + 1).astype(run.beta.dtype)
    h = divergence(t, step, run.beta, run.delta)
    left = jnp.maximum(run.budget - run.b - run.c, 1.0)
    half = (run.c + run.b / t) / (2.0 * step * phi * left)  # 1 / (2 eta phi K)
    gap = half + jnp.sqrt(half**2 + run.rho * h / (step * phi * t)) + run.rho * h  # G
    allowed = (t <= 10 * tau) & ~jnp.isnan(gap)
    return jnp.minimum(jnp.argmin(jnp.where(allowed, gap, jnp.inf)) + 1, tau_max)


@method
def adafl(
    step: Number = 0.1,
    # local steps of a round; adaptive: the server finds them
    tau: int | Literal["adaptive"] = "adaptive",
    budget: int | None = None,  # slots of the whole run, R; None: `horizon`
    phi: Number = 5e-5,  # control parameter phi of G
    tau_max: int = 100,  # most local steps of a round
    horizon: int | None = None,  # slots of the run, given by `folkman run`
    # gradient that smoothness is estimated from: one more in a round, or the last of the one before
    estimate: Literal["end", "last_gradient"] = "end",
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build AdaFL; the budget R is by default the `horizon`.

    `phi` is 5e-5 for the authors' CNN and 0.025 for their SVM.

    >>> adafl(step=0.016, tau="adaptive", budget=500).name
    'adafl'
    """
    step_size(step)  # refuses a bad one
    require(
        tau == "adaptive" or tau >= 1,
        f"tau must be 'adaptive' or at least 1, got {tau!r}; 1 is FedAvg's usual",
    )
    slots_in_all = (horizon or 1000) if budget is None else budget
    require(
        min(slots_in_all, tau_max) >= 1,
        f"budget and tau_max must be at least 1, got {slots_in_all} and {tau_max}; raise them",
    )
    require(within(phi, above=0), f"phi must be above 0, got {phi}; try 5e-5")
    require(
        estimate in ("end", "last_gradient"),
        f"estimate must be 'end' or 'last_gradient', got {estimate!r}",
    )
    more = int(estimate == "end")
    if tau != "adaptive":
        return replace(fedavg(step, local_steps=tau), name="adafl")

    def server_init(params: Array, num_nodes: int) -> AdaFLServer:
        zero = jnp.zeros((), jnp.int32)
        nobody = jnp.zeros(num_nodes, bool)
        return AdaFLServer(
            params=params,
            best=params,
            best_loss=jnp.full((), jnp.inf, params.dtype),
            tau=zero + 1,
            phase=zero,
            arrived=nobody,
            answers=nobody,
            rounds=zero,
            slots=zero,
            since=zero,
        )

    def measure(state: AdaFLServer, inbox: Inbox, weights: Array) -> tuple[Array, Array, Measured]:
        """Return sum_i alpha_i w_i, the loss at w, and what the uploads say of the losses."""
        dim = state.params.shape[0]
        uploads = inbox.store[inbox.row]
        model, grad, (loss, beta, rho, _) = jnp.split(inbox.mix(weights), (dim, 2 * dim))
        apart = jnp.linalg.norm(uploads[:, dim : 2 * dim] - grad[None], axis=1)
        c = jnp.maximum(jnp.max(uploads[:, -1]) / (state.tau + more), 1.0)
        measured = Measured(
            beta=jnp.maximum(beta, LEAST_BETA),
            rho=rho,
            delta=jnp.dot(weights, apart),
            c=c,
            b=jnp.maximum(state.slots - state.since - c * state.tau, 0.0),
            budget=jnp.asarray(slots_in_all, c.dtype),
        )
        return model, loss, measured

    def control(state: AdaFLServer, run: Measured) -> tuple[Array, Array]:
        """Return the tau and the phase of the next round."""
        best = best_tau(state.tau, tau_max, step, phi, run)
        tau = jnp.where(state.rounds > 0, best, 1).astype(jnp.int32)
        fits = state.slots + run.c * (tau + 1) + 2 * run.b < slots_in_all
        still = ((slots_in_all - state.slots - 2 * run.b - run.c) / run.c).astype(jnp.int32)
        last = jnp.clip(still, 1, tau)
        in_budget = state.phase == 0
        phase = jnp.where(in_budget & fits, 0, jnp.minimum(state.phase + 1, 3))
        return jnp.where(in_budget, jnp.where(fits, tau, last), 1), phase

    def aggregate(state: AdaFLServer, inbox: Inbox, key: Array) -> AdaFLServer:
        del key
        nobody = jnp.zeros_like(state.arrived)
        state = state._replace(
            slots=state.slots + 1,
            arrived=state.arrived | inbox.heard,
            answers=nobody,
        )
        known = inbox.weight * inbox.finite
        usable = jnp.any(known > 0)
        weights = known / jnp.maximum(jnp.sum(known), jnp.finfo(known.dtype).tiny)
        model, loss, measured = measure(state, inbox, weights)
        tau, phase = control(state, measured)
        better = usable & (loss < state.best_loss)  # the loss is that of the w before this round
        new = AdaFLServer(
            params=jnp.where(usable, model, state.params),
            best=jnp.where(better, state.params, state.best),
            best_loss=jnp.where(better, loss, state.best_loss),
            tau=jnp.where(usable, tau, 1),
            phase=phase,
            arrived=nobody,
            answers=~nobody & (phase < 3),
            rounds=state.rounds + 1,
            slots=state.slots,
            since=state.slots,
        )
        return jax.tree.map(lambda a, b: jnp.where(jnp.all(state.arrived), a, b), new, state)

    built = adafl_node(step, server_init, aggregate, more=more)
    return descent.of(built)
