"""Cross gradients: of each neighbour, the gradient of its loss at one's own model, by two exchanges in lock-step.

    own gradient at x_i | x_i goes out | grad F_i(x_l) for each neighbour l | they go out | the method's own step

An iteration takes 1 + deg_i slots of computing; who has fewer neighbours waits. A message is always x_i and room for
the cross gradients of the largest degree, so that its shape is fixed; `form` tells what of it is new and has to be
paid: form 0 the model, form 1 + k the cross gradients for k neighbours.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place, Prices
from folkman.algorithm.pieces.topology import Topology, graph, mixing

__all__ = ["CrossGradientState", "copy_prices", "link_prices", "with_cross_gradients"]

MOST_NEIGHBOURS = 1024  # prices are listed before the number of nodes is known


class CrossGradientState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    momentum: Array  # (d,) u_i
    own: Array  # (d,) g_ii
    cross: Array  # (nbr, d) grad F_i(x_l), to be sent to neighbour l
    nbr: Array  # (nbr,) numbers of the neighbours; those after the first `degree` mean nothing
    seat: Array  # (nbr,) where this node is among the neighbours of neighbour l
    degree: Array  # ()
    crossing: (
        Array  # () bool: the models of this iteration have been exchanged, the cross gradients not
    )
    taken: Array  # () gradients of this iteration
    updates: Array  # () iterations done


def with_cross_gradients(
    name: str,
    topology: Topology,
    degree: int,
    graph_seed: int,
    move: Callable[[CrossGradientState, Inbox, Array], CrossGradientState],
) -> Algorithm:
    """Build a method whose iteration ends with `move(state, inbox, rows)`; row k is g_il of neighbour l = nbr[k] or 0.

    The first d entries of the payloads in the inbox are the neighbours' x_l.
    """
    if topology == "schedule":
        raise ValueError(
            f"{name} needs neighbours that stay, got topology 'schedule'; take complete, ring or another"
        )

    def init(params: Array, place: Place) -> CrossGradientState:
        table = _table(graph(topology, place.num_nodes, degree, graph_seed))
        nbr, seat, number = (jnp.asarray(column, jnp.int32)[place.node] for column in table)
        zero, none = jnp.zeros_like(params), jnp.zeros((), jnp.int32)
        cross = jnp.zeros((len(nbr), len(params)), params.dtype)
        return CrossGradientState(
            params, zero, zero, cross, nbr, seat, number, jnp.asarray(False), none, none
        )

    def receive(state: CrossGradientState, inbox: Inbox) -> CrossGradientState:
        over = jnp.any(inbox.heard)
        ends = over & state.crossing
        sent = inbox.store.reshape(
            len(inbox.store), -1, len(state.params)
        )  # (row, x and cross gradients, d)
        real = jnp.arange(len(state.nbr)) < state.degree
        rows = jnp.where(real[:, None], sent[inbox.row[state.nbr], 1 + state.seat], 0.0)
        new = jax.tree.map(lambda a, b: jnp.where(ends, a, b), move(state, inbox, rows), state)
        return new._replace(
            crossing=state.crossing ^ over,
            taken=jnp.where(ends, 0, state.taken),
            updates=state.updates + ends,
        )

    def point(state: CrossGradientState, inbox: Inbox) -> Array:
        theirs = inbox.payload(state.nbr[state.taken - 1])[: len(state.params)]
        return jnp.where(state.crossing, theirs, state.params)

    def update(
        state: CrossGradientState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> CrossGradientState:
        del inbox, loss, key
        return state._replace(
            own=jnp.where(state.crossing, state.own, grad),
            cross=jnp.where(state.crossing, state.cross.at[state.taken - 1].set(grad), state.cross),
            taken=state.taken + 1,
        )

    def computes(state: CrossGradientState) -> Array:
        return state.taken < jnp.where(state.crossing, 1 + state.degree, 1)

    return Algorithm(
        name=name,
        init=init,
        point=point,
        update=update,
        message=lambda state: jnp.concatenate([state.params, jnp.ravel(state.cross)]),
        params=lambda state: state.params,
        receive=receive,
        computes=computes,
        offers=lambda state: ~computes(state),
        mixing=mixing(topology, degree, graph_seed),
        prices=link_prices(lambda dim, bits: dim * bits),
        copy_prices=copy_prices(lambda dim, bits: dim * bits),
        form=lambda state: jnp.where(state.crossing, 1 + state.degree, 0),
        assumes=frozenset({Assumption.LOCKSTEP, Assumption.PRESENT, Assumption.STEADY}),
    )


def link_prices(link: Callable[[int, int], int]) -> Prices:
    """Return the prices of a model, and of `link(d, bits)` for each of 0, 1, 2, ... neighbours."""
    return lambda dim, bits: (
        dim * bits,
        *(k * link(dim, bits) for k in range(MOST_NEIGHBOURS + 1)),
    )


def copy_prices(link: Callable[[int, int], int]) -> Prices:
    """Return the same of what one receiver needs: the model, or its own cross gradient."""
    return lambda dim, bits: (dim * bits, *(link(dim, bits) for _ in range(MOST_NEIGHBOURS + 1)))


def _table(
    adjacency: NDArray[np.bool_],
) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.int_]]:
    """Return of each node its neighbours, its place among the neighbours of each, and how many they are."""
    number = adjacency.sum(axis=1)
    if number.max() > MOST_NEIGHBOURS:
        raise ValueError(
            f"a node can have {MOST_NEIGHBOURS} neighbours, got {number.max()}; take a sparser topology"
        )
    nbr = np.argsort(~adjacency, axis=1, kind="stable")[
        :, : max(1, number.max())
    ]  # neighbours first, in order
    before = (
        np.cumsum(adjacency, axis=1) - adjacency
    )  # (l, i): neighbours of l with a smaller number than i
    return nbr, before[nbr, np.arange(len(nbr))[:, None]], number
