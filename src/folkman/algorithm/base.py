"""What an algorithm is: a tuple of pure functions over a NamedTuple state.

A node lives in slots. In a slot it may hear, takes **one** gradient, and updates; so every method pays for its
gradients on the same axis, and one that needs several a round takes several slots. An engine calls, for each
node and slot,

    state = receive(state, inbox)                        what arrived
    v     = point(state, inbox)                          where the gradient is wanted
    state = update(state, inbox, loss, grad, key)        with F_i(v), grad F_i(v)

and puts `message(state)` on the air when the network lets the node send. No function sees a clock, another node's
state or a socket: the same functions run under `jax.vmap` in the simulator and one node at a time on a device. A
model is a flat vector of length d throughout; the first d entries of a message are a model.

Messages travel in one of three ways. Between peers on their own beat: of each neighbour only the freshest is seen,
so losing, repeating or delaying one must be harmless. Between peers in lock-step (`Assumption.LOCKSTEP`): when all
nodes offer, the messages of this moment reach all neighbours, and `inbox.heard` is True at once for all of them and
for the node itself. Around a server (`server`): a node's only neighbour is the server.

The rules: pure; state first in, state first out, key last.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array

__all__ = ["Algorithm", "Assumption", "Inbox", "Mixing", "Place", "Prices", "Server", "State"]

State: TypeAlias = Any  # a NamedTuple of arrays


class Assumption(Enum):
    """What a method needs of its network and nodes; an engine refuses those that cannot give it."""

    RELIABLE = "every message arrives"
    LOCKSTEP = "all nodes hear the same round of each other"
    PRESENT = "every node answers in the end"
    STEADY = "no node starts anew"


class Place(NamedTuple):
    """Who a node is, told once at its start."""

    node: Array  # () its number
    num_nodes: int
    key: Array  # of its own draws at the start


class Inbox(NamedTuple):
    """What one node holds of the others: of each neighbour at most the freshest message.

    `store` may be shared by many inboxes (an engine keeps every payload once); `row[j]` says where neighbour j's
    is. A weight of 0 hides a neighbour, and the node itself has weight 0 here.
    """

    store: Array  # (row, message) payloads
    row: Array  # (nbr,) row of the held payload of each neighbour
    weight: Array  # (nbr,) alpha_j, or the mixing weight w_ij
    own_weight: Array  # () alpha_i, or w_ii
    heard: Array  # (nbr,) bool: did a new one arrive since the last slot?
    age: Array  # (nbr,) slots since the payload was formed
    finite: Array  # (nbr,) bool: False where the payload was not finite, and is zeros here
    coming: Array | None = (
        None  # (nbr,) bool: on its way, where the carrier can tell (uploads to a server)
    )
    mixed: Array | None = None  # (message,) `mix(weight)`, where an engine has it at hand

    def mix(self, weights: Array) -> Array:
        """Return sum_j weights_j x_j over the held payloads x_j, as one row-vector-times-matrix product."""
        if self.mixed is not None and weights is self.weight:
            return self.mixed
        row_weights = jnp.zeros(self.store.shape[0], self.store.dtype).at[self.row].add(weights)
        return jnp.dot(row_weights, self.store, precision="highest")  # GPUs would round to ten bits

    def payload(self, nbr: int | Array) -> Array:
        """Return the payload held of one neighbour."""
        return self.store[self.row[nbr]]


def _keep(state: State, inbox: Inbox) -> State:
    del inbox
    return state


def _always(state: State) -> Array:
    del state
    return jnp.asarray(True)


def _never(state: State, inbox: Inbox) -> Array:
    del state, inbox
    return jnp.asarray(False)


def _first_form(state: State) -> Array:
    del state
    return jnp.zeros((), jnp.int32)


Prices: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""(d, bits a parameter) -> the bits of each form that a message can have."""


class Mixing(NamedTuple):
    """The weights between peers: W (node, node), own weight on the diagonal, 0 where there is no edge.

    With `waits` a round in lock-step lasts until every edge has been served; without, until each node has been on
    the air once, and `weights(heard)` may follow who was heard then, (rx, tx) bool.
    """

    weights: Callable[[Array], Array]
    waits: bool = True


class Server(NamedTuple):
    """The server's side of a centralised method: a node that computes no gradient.

    `offers(state)` (node,) tells to whom the server wants to send `message(state)` now.
    """

    init: Callable[[Array, int], State]  # (w0, num_nodes) -> state
    receive: Callable[[State, Inbox, Array], State]  # (state, inbox, key), once a slot
    offers: Callable[[State], Array]
    message: Callable[[State], Array]
    params: Callable[[State], Array]
    rounds: Callable[[State], Array]  # aggregations so far
    prices: Prices | None = None  # None: every entry of the message at the price of a parameter
    form: Callable[[State], Array] = _first_form  # which of the prices the message has now


class Algorithm(NamedTuple):
    """What one node knows at first, does in a slot, sends, and would deploy."""

    name: str
    init: Callable[[Array, Place], State]
    point: Callable[[State, Inbox], Array]
    update: Callable[[State, Inbox, Array, Array, Array], State]  # (state, inbox, loss, grad, key)
    message: Callable[[State], Array]
    params: Callable[[State], Array]  # its alpha-weighted sum over nodes is the network's model
    receive: Callable[[State, Inbox], State] = _keep
    computes: Callable[[State], Array] = _always  # does the node want a gradient in this slot?
    restarts: Callable[[State, Inbox], Array] = (
        _never  # does it give up the gradient it is working on?
    )
    offers: Callable[[State], Array] = _always  # has it something to send?
    model: Callable[[State, Inbox], Array] | None = None  # what it would deploy; None: its params
    mixing: Mixing | None = (
        None  # the weights of the inboxes between peers; None: the data shares alpha
    )
    sums: bool = False  # asks `inbox.mix(inbox.weight)` in every slot: an engine may keep it until a copy arrives
    prices: Prices | None = None  # None: every entry of the message at the price of a parameter
    copy_prices: Prices | None = (
        None  # of what one receiver needs of a message, if it is sent to each; None: all of it
    )
    form: Callable[[State], Array] = _first_form  # which of the prices the message has now
    differences: bool = False  # are the first d entries of a message a difference of models?
    server: Server | None = None
    needs: Callable[[int], int] | None = (
        None  # of this many nodes, how many must stay for it to go on
    )
    assumes: frozenset[Assumption] = frozenset()
