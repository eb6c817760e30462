"""The node's half that methods around a server share: work from the server's model, then upload.

    w_i <- w^a,   then E times   w_i <- w_i - eta r_i (grad F_i(w_i) + rho (w_i - w^a))
    upload (w_i, a)

A server's message is its model and the version a of this model. Where nodes get different
instructions it also has a factor r_i for each node: on its step, and 0 for a node that shall not
upload. A method that declares `differences` uploads w^a - w_i in place of w_i. With `travels(a)`
(d,) only those entries are exchanged that it marks; in the others a node goes on with its own, and
its upload repeats what it uploaded last. Of a server's state three fields are read: `params`,
`rounds` (which is a) and `answers` (node,), who is to receive the message.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Declares, Inbox, Place, Price, State
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling, sampled
from folkman.algorithm.pieces.steps import StepSize
from folkman.algorithm.travel import Server, Star
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["WorkerState", "around_server", "check_number", "half", "received", "versions"]


class WorkerState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    anchor: Array  # (d,) w^a, or with `travels` its last upload; (0,) where nothing needs it
    version: Array  # () version of the model that it began from, a
    factor: Array  # () factor of its steps, r_i
    node: Array  # () its number
    steps: Array  # () local steps done since it received the model
    updates: Array  # () updates done in all


def received(state: State, inbox: Inbox) -> Array:
    """Return the model that a node received last, not its work on it: what it would deploy."""
    return inbox.payload(0)[: state.params.shape[0]]  # the server is a node's only neighbour


def versions(inbox: Inbox, dim: int) -> Array:
    """Return the version of the model that each upload began from, (node,)."""
    return inbox.store[inbox.row, dim].astype(jnp.int32)


def half(num_nodes: int) -> int:
    """Return the default number of uploads that a server waits for."""
    return ceil(num_nodes / 2)


def check_number(
    name: str,
    number: int | None,  # uploads that a server waits for; None: half the nodes
    num_nodes: int = 2**30,
) -> None:
    """Refuse a number of uploads below 1 or above the number of nodes."""
    require(
        number is None or number >= 1,
        f"{name} must be at least 1, got {number}; leave it out for half the nodes",
    )
    require(
        number is None or number <= num_nodes,
        f"{name} must be at most the number of nodes, {num_nodes}, got {number}; lower it",
    )


def around_server(
    name: str,
    server_init: Callable[[Array, int], State],  # (w(0), number of nodes) -> the server's state
    # (state, inbox, key) -> state, in every slot
    server_receive: Callable[[State, Inbox, Array], State],
    eta: StepSize,
    *,
    local_steps: int = 1,
    proximal: float = 0.0,
    # state -> a factor of each node's step; None: 1
    factors: Callable[[State], Array] | None = None,
    # version -> which entries travel in that round; None: all
    travels: Callable[[Array], Array] | None = None,
    restarts: bool = False,  # whether a new model ends the work on the one before
    declares: Declares = Declares(),  # noqa: B008 - immutable
    # price of the server's message; None: every entry as a parameter
    server_price: Price | None = None,
    # versions behind of each upload; None: by the server's count
    late: Callable[[State, Inbox], Array] | None = None,
    sampling: Sampling = EVERYONE,  # the part of the nodes that works at a time
) -> Algorithm:
    """Build an algorithm from its server's side.

    With `restarts` a new model ends the work on the one before. With `sampling` the server lets
    part of the nodes work at a time; it must not wait for more (`declares.needs`).
    """
    require(
        local_steps >= 1,
        f"local_steps must be at least 1, got {local_steps}; 1 is one gradient a round",
    )
    differences = declares.differences
    keeps_anchor = differences or proximal > 0 or travels is not None

    def init(params: Array, place: Place) -> WorkerState:
        zero = jnp.zeros((), jnp.int32)
        return WorkerState(
            params=params,
            anchor=params if keeps_anchor else params[:0],
            version=jnp.zeros((), params.dtype),
            factor=jnp.ones((), params.dtype),
            node=jnp.asarray(place.node, jnp.int32),
            steps=zero,
            updates=zero,
        )

    def receive(state: WorkerState, inbox: Inbox) -> WorkerState:
        payload = inbox.payload(0)  # the server is a node's only neighbour
        dim = state.params.shape[0]
        version = payload[dim]
        params = payload[:dim]
        anchor = params if keeps_anchor else state.anchor
        if travels is not None:
            params = jnp.where(travels(version), params, state.params)
            anchor = upload(state)
        new = WorkerState(
            params=params,
            anchor=anchor,
            version=version,
            factor=payload[dim + 1 + state.node] if factors else state.factor,
            node=state.node,
            steps=jnp.zeros((), jnp.int32),
            updates=state.updates,
        )
        return jax.tree.map(lambda a, b: jnp.where(inbox.heard[0], a, b), new, state)

    def update(
        state: WorkerState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> WorkerState:
        del inbox, loss, key
        if proximal > 0:
            grad = grad + proximal * (state.params - state.anchor)
        eta_t = eta(state.updates, grad.dtype) * state.factor
        return state._replace(
            params=state.params - eta_t * grad,
            steps=state.steps + 1,
            updates=state.updates + 1,
        )

    def upload(state: WorkerState) -> Array:
        if travels is not None:
            return jnp.where(travels(state.version), state.params, state.anchor)
        return state.anchor - state.params if differences else state.params

    def answer(state: State) -> Array:
        dtype = state.params.dtype
        parts = [state.params, state.rounds[None].astype(dtype)]
        if factors:
            parts.append(factors(state).astype(dtype))
        return jnp.concatenate(parts)

    def deployed(state: WorkerState, inbox: Inbox) -> Array:
        model = received(state, inbox)
        if travels is None:
            return model
        version = inbox.payload(0)[state.params.shape[0]]
        return jnp.where(travels(version), model, state.params)

    def gives_up(state: WorkerState, inbox: Inbox) -> Array:
        del state
        return inbox.heard[0] & restarts

    server = Server(
        init=server_init,
        receive=server_receive,
        offers=lambda state: state.answers,
        message=answer,
        params=lambda state: state.params,
        rounds=lambda state: state.rounds,
        late=late,
        price=server_price,
    )
    return Algorithm(
        name=name,
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: jnp.append(upload(state), state.version),
        params=lambda state: state.params,
        receive=receive,
        model=deployed,
        travel=Star(
            server=sampled(server, sampling, declares.needs),
            ready=lambda state: state.steps >= local_steps,
            uploads=lambda state: state.factor > 0,
            gives_up=gives_up,
        ),
        declares=declares._replace(
            exact=declares.exact and sampling.whole,
            draws=declares.draws or not sampling.whole,
        ),
    )
