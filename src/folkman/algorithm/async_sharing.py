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
    Copies,
    Kept,
    OwnMemory,
    OwnPart,
    OwnRule,
    Pace,
    pace_share,
)
from folkman.algorithm.pieces.rules import Rule
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
    num_nodes: Array  # () number of nodes, I
    memory: DelayMemory  # gradients and points that a delay policy looks at
    work: Work | None  # the gradient in work; None where no policy asks for it
    own: OwnMemory | None = None  # own past parameters; None where no part of them is used
    pace: Pace | None = None  # mean own movement; None unless the own part is centred
    network: NetworkPace | None = None  # direction of the network; None without its momentum

    @property
    def kept(self) -> Kept:
        """Return what is kept for the own part."""
        return Kept(self.own, self.pace)


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
    part = OwnPart(own, memory)
    _check(scaling, max_age, descent, delay_policy, part)
    rule.check()
    check_policy(delay_policy, smoothness)
    part.check(rule)
    _check_network(network_momentum, descent.momentum, delay_policy, part)
    predicts = part.is_rule("predicted") and smoothness is None
    notes_point = estimates(delay_policy, smoothness) or predicts

    def init(params: Array, place: Place) -> SharingState:
        return SharingState(
            params=params,
            updates=jnp.zeros((), jnp.int32),
            num_nodes=jnp.asarray(place.num_nodes, jnp.int32),
            memory=first_memory(delay_policy, smoothness, params, notes=notes_point),
            work=Work(params, begun=jnp.asarray(False)) if notes_point else None,
            network=first_network_pace(params) if network_momentum else None,
            **part.first(params)._asdict(),
        )

    copies_of = partial(_copies, max_age=max_age)

    def factor(state: SharingState, inbox: Inbox) -> ArrayLike:
        """Return c_i."""
        return {"local": inbox.own_weight, "theorem": 1.0, "figure": state.num_nodes}[scaling]

    def reach(state: SharingState, inbox: Inbox) -> Array:
        """Return eta c_i L."""
        dtype = state.params.dtype
        taken = eta(state.updates, dtype) * jnp.asarray(factor(state, inbox), dtype)
        return taken * state.memory.smoothness

    def aggregate(state: SharingState, inbox: Inbox) -> Array:
        """Return v_i, [1, eq. (9)]."""
        known = partial(reach, state, inbox)
        return part.aggregate(state.kept, state.params, copies_of(inbox), rule, known)

    def heard(state: SharingState, inbox: Inbox) -> SharingState:
        """Return the state in the coming slot: what the own part remembers."""
        kept = part.heard(state.kept, state.params, copies_of(inbox))
        return state._replace(**kept._asdict())

    def receive(state: SharingState, inbox: Inbox) -> SharingState:
        """Note where the next gradient is taken: what comes while it is in work is not in it."""
        state = heard(state, inbox)
        if state.work is None:
            return state
        point = jnp.where(state.work.begun, state.work.point, aggregate(state, inbox))
        return state._replace(work=Work(point, begun=jnp.asarray(True)))

    def under_delay(state: SharingState, inbox: Inbox, grad: Array) -> tuple[Array, DelayMemory]:
        """Return eta for copies of these ages, and what the policy remembers."""
        copies = copies_of(inbox)
        looks = delay_policy == "stable"
        return step_under_delay(
            state.memory,
            delay_policy,
            eta=eta(state.updates, grad.dtype),
            delay=copies.oldest,
            mean_delay=copies.age if looks else None,
            num_nodes=state.num_nodes,
            point=state.params if state.work is None else state.work.point,
            grad=grad,
            scale=factor(state, inbox),
            rho=part.rho(state.kept, copies, partial(reach, state, inbox)) if looks else 0.0,
            set_back=pace_share(state.kept, copies),
        )

    def update(
        state: SharingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> SharingState:
        del loss, key
        eta_t, memory = under_delay(state, inbox, grad)
        network = state.network
        if network is not None:
            age, point = copies_of(inbox).age, aggregate(state, inbox)
            network = seen(network, point, grad, age, state.updates)
        taken = eta_t * jnp.asarray(factor(state, inbox), grad.dtype)
        moved = stepped(state.params, taken, grad, network, network_momentum)  # [1, eq. (10)]
        params = moved if projection is None else projection(moved, eta_t)  # [1, eq. (13)]
        updates = state.updates + 1
        return state._replace(
            params=params,
            updates=updates,
            memory=memory,
            work=None if state.work is None else state.work._replace(begun=jnp.asarray(False)),
            network=network,
            **part.updated(state.kept, params, updates)._asdict(),
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


def _copies(inbox: Inbox, max_age: int | None) -> Copies:
    """Return the copies of a node as they count: not those that are too old."""
    if max_age is None:
        return Copies(inbox, None, inbox.own_weight)
    kept = jnp.where(inbox.age <= max_age, inbox.weight, 0.0)
    total = inbox.own_weight + jnp.sum(kept)
    return Copies(inbox, kept / total, inbox.own_weight / total)


def _check(
    scaling: str, max_age: int | None, descent: Descent, delay_policy: DelayPolicy, part: OwnPart
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
        descent.momentum == 0 or not part.is_rule("predicted"),
        "own = 'predicted' is for steps without momentum, whose stable steps are others; "
        "take own = 'measured' or a number",
    )


def _check_network(
    network_momentum: float, momentum: float, delay_policy: DelayPolicy, part: OwnPart
) -> None:
    """Refuse a momentum of the network that there is not, or that does not go with the rest."""
    check_network_momentum(network_momentum)
    alone = momentum == 0 and delay_policy == "none" and not part.is_rule("predicted")
    require(
        network_momentum == 0 or alone,
        "network_momentum goes without momentum, without a delay_policy and without own = "
        f"'predicted', got momentum = {momentum}, delay_policy = {delay_policy!r}, "
        f"own = {part.own!r}",
    )
