"""Asynchronous parameter sharing: Algorithm 1's learning rule.

    v_i(t)   = sum_j alpha_j w_j(tau_ij(t)),   tau_ii(t) = t                        [1, eq. (9)]
    w_i(t+1) = [ w_i(t) - eta c_i grad F_i(v_i(t)) ]+                         [1, eq. (10), (13)]

with c_i by `scaling`:

    local     alpha_i   the printed update: nabla_i F_i(v_i) = alpha_i grad F_i(v_i)  [1, eq. (17)]
    theorem   1         the proof of Theorem 2; equals FedAvg without delay (default)
    figure    I         the only one of the three that makes more nodes faster: a step of eta I

Without delay sum_i alpha_i w_i descends F under the last two, and sum_i alpha_i^2 F_i under
`local`, which is another objective where nodes hold unlike numbers of samples.

Node models are never mixed. Without the projection each w_i is the common start minus the node's
own gradients, and v_i is the start minus every gradient received so far. A node's usable model is
v_i, not w_i.

Options beyond [1]: a robust `rule` instead of the sum in (9); `max_age`, beyond which a copy is
left out of the sum and the other weights are scaled up (C7); `own`, how much of the node's own
progress enters v_i (`pieces/own_part.py`, for which the last `memory` own parameters are kept);
`network_momentum`, with which nodes go on in the direction of the network
(`pieces/network_momentum.py`); a `delay_policy` that lets eta shrink with the age of the oldest
copy in v_i, or with their mean age (`stable`).
The policy looks at the ages of the copies held when a gradient ends: those of its start where
gradients take one slot. Where it estimates the smoothness L it compares gradients at the very
points where they were taken.

Differs from [1]: all nodes start from one common w(0), known to all (independent draws shrink v(0)
by 1/sqrt(I)); a node never waits to receive ("after receiving all parameters", Section IV-A, would
block); the stopping rule F_i(v_i) <= eps of line 23, which would silence nodes one by one, is left
to the engine's horizon.

[1] H. Xie, M. Xia, P. Wu, S. Wang, K. Huang. Decentralized Federated Learning with Asynchronous
    Parameter Sharing for Large-scale IoT Networks. IEEE Internet of Things Journal, 2024.
    arXiv:2401.07122
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.delay_steps import (
    DelayMemory,
    DelayPolicy,
    check_policy,
    estimates,
    first_memory,
    step_under_delay,
)
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.network_momentum import (
    NetworkPace,
    check_network_momentum,
    first_network_pace,
    seen,
    stepped,
)
from folkman.algorithm.pieces.own_part import (
    OwnMemory,
    OwnRule,
    Pace,
    adaptive_share,
    check_own,
    even_progress,
    first_own,
    first_pace,
    is_rule,
    mean_age,
    own_at,
    pace_share,
    predicted_rho,
    set_back,
    with_heard,
    with_slot,
    with_update,
)
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.arrays import Array, ArrayLike, jnp
from folkman.checks import require

__all__ = ["SharingState", "async_sharing"]

BIBTEX = r"""@article{async_sharing,
  author = {Xie, Haihui and Xia, Minghua and Wu, Peiran and Wang, Shuai and Huang, Kaibin},
  title = {Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    {IoT} Networks},
  journal = {IEEE Internet of Things Journal},
  year = {2024},
  eprint = {2401.07122},
  archiveprefix = {arXiv},
}"""


class Work(NamedTuple):
    """The gradient in work."""

    point: Array  # (d,) v_i where it is taken
    begun: Array  # () bool: if not, the next slot begins one


class SharingState(NamedTuple):
    """What a node of Algorithm 1 remembers."""

    params: Array  # (d,) w_i
    updates: Array  # () updates done
    num_nodes: Array  # () I
    memory: DelayMemory  # of gradients and points, for a delay policy
    work: Work | None  # None where no policy asks for it
    own: OwnMemory | None = None  # None where no own past is looked at
    pace: Pace | None = None  # None unless the own part is centred
    network: NetworkPace | None = None  # None without momentum of the network


@method
def async_sharing(
    step: Number = 0.1,
    scaling: Literal["local", "theorem", "figure"] = "theorem",
    decay: Decay = Decay(),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    delay_policy: DelayPolicy = "none",  # how the step shrinks with the age of the copies
    smoothness: float | None = None,
    max_age: int | None = None,  # copies that are older, in slots, are left out; None: none is
    # [.]+, a function of w and the step; None: none
    projection: Callable[[Array, Array], Array] | None = None,
    descent: Descent = Descent(),  # noqa: B008 - immutable
    own: OwnRule = "newest",  # which own progress enters v_i, or its share rho as a number
    memory: int = 64,  # own parameters that are kept, for parts of the own past
    network_momentum: float = 0.0,  # beta of the momentum of the network; 0: none
) -> Algorithm:
    """Build Algorithm 1's learning rule; `projection(w, step)` is [.]+, none by default.

    >>> async_sharing(step=0.016).name
    'async_sharing'
    """
    eta = step_size(step, decay)
    _check(scaling, max_age, descent, delay_policy, own)
    rule.check()
    check_policy(delay_policy, smoothness)
    check_own(own, memory, rule.rule)
    _check_network(network_momentum, descent.momentum, delay_policy, own)
    predicts, adapts = (is_rule(own, name) for name in ("predicted", "adaptive"))
    notes_point = estimates(delay_policy, smoothness) or (predicts and smoothness is None)

    def init(params: Array, place: Place) -> SharingState:
        return SharingState(
            params=params,
            updates=jnp.zeros((), jnp.int32),
            num_nodes=jnp.asarray(place.num_nodes, jnp.int32),
            memory=first_memory(delay_policy, smoothness, params, notes=notes_point),
            work=Work(params, begun=jnp.asarray(False)) if notes_point else None,
            own=first_own(own, memory, params),
            pace=first_pace(params) if adapts or is_rule(own, "centred") else None,
            network=first_network_pace(params) if network_momentum else None,
        )

    weights = partial(_weights, max_age=max_age)

    def factor(state: SharingState, inbox: Inbox) -> ArrayLike:
        """Return c_i."""
        return {"local": inbox.own_weight, "theorem": 1.0, "figure": state.num_nodes}[scaling]

    def share(state: SharingState, inbox: Inbox) -> Array:
        """Return rho_i, the share of the own progress in v_i."""
        copies, own_weight = weights(inbox)
        if state.own is None:
            return own_weight
        if adapts:
            return adaptive_share(state.own.rho, own_weight)
        if not predicts:
            return state.own.rho
        dtype = state.params.dtype
        eta_t = eta(state.updates, dtype) * jnp.asarray(factor(state, inbox), dtype)
        return predicted_rho(eta_t, state.memory.smoothness, mean_age(inbox, copies))

    def aggregate(state: SharingState, inbox: Inbox) -> Array:
        copies, own_weight = weights(inbox)
        if state.own is None:  # [1, eq. (9)], its own part set back where it is centred
            own_part = state.params
            if state.pace is not None:
                own_part = set_back(state.pace, own_part, mean_age(inbox, copies))
            return combine(rule, inbox, copies, own=own_part, own_weight=own_weight)
        back = mean_age(inbox, copies)
        then = own_at(state.own.past, back)
        coherent = combine(rule, inbox, copies, own=then, own_weight=own_weight)
        point = coherent + share(state, inbox) * (state.params - then)
        if state.pace is None:
            return point
        return point - pace_share(state.own, own_weight) * even_progress(state.pace, back)

    def heard(state: SharingState, inbox: Inbox) -> SharingState:
        """Return the state in the coming slot: what the own part remembers."""
        if state.own is not None:
            state = state._replace(own=with_heard(state.own, inbox, adaptive=adapts))
        if state.pace is not None:
            age = mean_age(inbox, weights(inbox)[0])
            state = state._replace(pace=with_slot(state.pace, state.params, age))
        return state

    def receive(state: SharingState, inbox: Inbox) -> SharingState:
        """Note where the next gradient is taken: what comes while it is in work is not in it."""
        state = heard(state, inbox)
        if state.work is None:
            return state
        point = jnp.where(state.work.begun, state.work.point, aggregate(state, inbox))
        return state._replace(work=Work(point, begun=jnp.asarray(True)))

    def looked(state: SharingState, inbox: Inbox, grad: Array) -> NetworkPace:
        """Return what is known of the network's pace after a gradient."""
        age = mean_age(inbox, weights(inbox)[0])
        memory = state.network
        assert memory is not None  # noqa: S101 - asked where there is one
        return seen(memory, aggregate(state, inbox), grad, age, state.updates)

    def update(
        state: SharingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> SharingState:
        del loss, key
        scale = factor(state, inbox)
        eta_t, delays = step_under_delay(
            state.memory,
            delay_policy,
            eta=eta(state.updates, grad.dtype),
            delay=_oldest_copy(inbox, weights(inbox)[0]),
            mean_delay=mean_age(inbox, weights(inbox)[0]) if delay_policy == "stable" else None,
            num_nodes=state.num_nodes,
            point=state.params if state.work is None else state.work.point,
            grad=grad,
            scale=scale,
            rho=share(state, inbox) if delay_policy == "stable" else 0.0,
            set_back=None if state.pace is None else pace_share(state.own, weights(inbox)[1]),
        )
        network = None if state.network is None else looked(state, inbox, grad)
        taken = eta_t * jnp.asarray(scale, grad.dtype)
        moved = stepped(state.params, taken, grad, network, network_momentum)  # [1, eq. (10)]
        params = moved if projection is None else projection(moved, eta_t)  # [1, eq. (13)]
        return state._replace(
            params=params,
            updates=state.updates + 1,
            memory=delays,
            work=None if state.work is None else state.work._replace(begun=jnp.asarray(False)),
            own=None if state.own is None else with_update(state.own, params, state.updates + 1),
            network=network,
        )

    def deployed(state: SharingState, inbox: Inbox) -> Array:
        """Return v_i of the coming slot."""
        return aggregate(heard(state, inbox), inbox)

    built = Algorithm(
        name="async_sharing",
        init=init,
        point=aggregate,
        update=update,
        message=lambda state: state.params,  # [1, Alg. 1, line 19]
        params=lambda state: state.params,
        receive=receive,
        model=deployed,
        declares=Declares(exact=rule.rule == "mean", sums=rule.rule == "mean" and max_age is None),
    )
    return descent.of(built)


def _weights(inbox: Inbox, max_age: int | None) -> tuple[Array | None, Array]:
    """Return the weights of the copies, None for those of the inbox, and the own weight."""
    if max_age is None:
        return None, inbox.own_weight
    kept = jnp.where(inbox.age <= max_age, inbox.weight, 0.0)
    total = inbox.own_weight + jnp.sum(kept)
    return kept / total, inbox.own_weight / total


def _oldest_copy(inbox: Inbox, copies: Array | None) -> Array:
    """Return the age of the oldest copy that counts."""
    counts = (inbox.weight if copies is None else copies) > 0
    return jnp.max(jnp.where(counts, inbox.age, 0), initial=0)


def _check(
    scaling: str, max_age: int | None, descent: Descent, delay_policy: DelayPolicy, own: OwnRule
) -> None:
    """Refuse options that are not there, or do not go together."""
    require(
        scaling in ("local", "theorem", "figure"),
        f"scaling must be 'local', 'theorem' or 'figure', got {scaling!r}",
    )
    require(
        max_age is None or max_age >= 0,
        f"max_age counts slots, at least 0, got {max_age}; leave it out for none",
    )
    require(
        not any(descent) or delay_policy == "none",
        "momentum goes without a delay_policy, which measures gradients, and so do weight_decay "
        f"and clip_norm; got {delay_policy!r}",
    )
    require(
        descent.momentum == 0 or not is_rule(own, "predicted"),
        "own = 'predicted' is for steps without momentum, whose stable steps are others; "
        "take own = 'measured' or a number",
    )


def _check_network(
    network_momentum: float, momentum: float, delay_policy: DelayPolicy, own: OwnRule
) -> None:
    """Refuse a momentum of the network that there is not, or that does not go with the rest."""
    check_network_momentum(network_momentum)
    alone = momentum == 0 and delay_policy == "none" and not is_rule(own, "predicted")
    require(
        network_momentum == 0 or alone,
        "network_momentum goes without momentum, without a delay_policy and without own = "
        f"'predicted', got momentum = {momentum}, delay_policy = {delay_policy!r}, own = {own!r}",
    )
