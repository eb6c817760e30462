"""Cross gradients: of each neighbour, the gradient of its loss at one's own model, in two rounds.

    own gradient at x_i | x_i goes out | grad F_i(x_l) for each neighbour l | they go out | move

An iteration takes 1 + deg_i slots of computing; a node with fewer neighbours waits. A message is
always x_i and room for the cross gradients of the largest degree, so that its shape is fixed; its
`form` says which part is new and has to be paid: form 0 the model, form 1 + k the cross gradients
for k neighbours.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.pieces.rounds import Gradient, RoundState, in_rounds
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["CrossGradients", "Move", "link_price", "with_cross_gradients"]

MOST_NEIGHBOURS = 1024  # prices are listed before the number of nodes is known


class CrossGradients(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    momentum: Array  # (d,) u_i
    own: Array  # (d,) g_ii
    cross: Array  # (nbr, d) grad F_i(x_l), to be sent to neighbour l
    nbr: Array  # (nbr,) numbers of the neighbours; those after the first `degree` mean nothing
    seat: Array  # (nbr,) where this node is among the neighbours of neighbour l
    degree: Array  # ()
    crossing: Array  # () bool: this iteration's models are exchanged, its cross gradients not yet
    iterations: Array  # () done


Move = Callable[[CrossGradients, Inbox, Array], tuple[Array, Array]]
"""(memory, inbox, rows) -> the new x_i and u_i."""


def with_cross_gradients(
    name: str,
    graph: Graph,
    move: Move,
    declares: Declares = Declares(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build a method whose iteration ends with `move(memory, inbox, rows)`.

    Row k is g_il of neighbour l = nbr[k], or 0. The first d entries of the payloads in the inbox
    are the neighbours' x_l.
    """
    graph.check_fixed(name)
    require(
        graph.waits,
        f"{name} needs neighbours that stay, got topology 'schedule'; "
        "take complete, ring or another",
    )

    def first(params: Array, place: Place) -> CrossGradients:
        table = _table(graph.adjacency(place.num_nodes))
        nbr, seat, degree = (jnp.asarray(column, jnp.int32)[place.node] for column in table)
        zero = jnp.zeros_like(params)
        return CrossGradients(
            params=params,
            momentum=zero,
            own=zero,
            cross=jnp.zeros((len(nbr), len(params)), params.dtype),
            nbr=nbr,
            seat=seat,
            degree=degree,
            crossing=jnp.asarray(False),
            iterations=jnp.zeros((), jnp.int32),
        )

    def point(memory: CrossGradients, inbox: Inbox, taken: Array) -> Array:
        theirs = inbox.payload(memory.nbr[taken])[: len(memory.params)]
        return jnp.where(memory.crossing, theirs, memory.params)

    def keep(memory: CrossGradients, grad: Gradient) -> CrossGradients:
        cross = memory.cross.at[grad.taken].set(grad.value)
        return memory._replace(
            own=jnp.where(memory.crossing, memory.own, grad.value),
            cross=jnp.where(memory.crossing, cross, memory.cross),
        )

    def end(memory: CrossGradients, inbox: Inbox) -> CrossGradients:
        # (row, x and cross gradients, d)
        sent = inbox.store.reshape(len(inbox.store), -1, len(memory.params))
        real = jnp.arange(len(memory.nbr)) < memory.degree
        rows = jnp.where(real[:, None], sent[inbox.row[memory.nbr], 1 + memory.seat], 0.0)
        params, momentum = move(memory, inbox, rows)
        moved = memory._replace(params=params, momentum=momentum, iterations=memory.iterations + 1)
        new = jax.tree.map(lambda a, b: jnp.where(memory.crossing, a, b), moved, memory)
        return new._replace(crossing=~memory.crossing)

    def form(state: RoundState) -> Array:
        return jnp.where(state.memory.crossing, 1 + state.memory.degree, 0)

    return in_rounds(
        name,
        first=first,
        point=point,
        gradient=keep,
        gradients=lambda memory: jnp.where(memory.crossing, memory.degree, 1),
        end=end,
        message=lambda memory: jnp.concatenate([memory.params, jnp.ravel(memory.cross)]),
        params=lambda memory: memory.params,
        mixed=lambda memory: memory.params,
        mixing=graph.mixing(),
        declares=declares._replace(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=link_price(lambda dim, bits: dim * bits)._replace(form=form),
        ),
    )


def link_price(link: Callable[[int, int], int]) -> Price:
    """Return the price of a model, and of `link(d, bits)` for each of 0, 1, 2, ... neighbours.

    One receiver needs the model, or its own cross gradient.
    """

    def bundle(dim: int, bits: int) -> tuple[int, ...]:
        each = link(dim, bits)
        return (dim * bits, *(number * each for number in range(MOST_NEIGHBOURS + 1)))

    def copy(dim: int, bits: int) -> tuple[int, ...]:
        return (dim * bits, *[link(dim, bits)] * (MOST_NEIGHBOURS + 1))

    return Price(bundle, copy_bits=copy)


def _table(
    adjacency: NDArray[np.bool_],
) -> tuple[NDArray[np.int_], NDArray[np.int_], NDArray[np.int_]]:
    """Return of each node its neighbours, its place among those of each of them, its degree."""
    degree = adjacency.sum(axis=1)
    require(
        degree.max() <= MOST_NEIGHBOURS,
        f"a node can have {MOST_NEIGHBOURS} neighbours, got {degree.max()}; "
        "take a sparser topology",
    )
    # neighbours first, in order
    nbr = np.argsort(~adjacency, axis=1, kind="stable")[:, : max(1, degree.max())]
    # (l, i): neighbours of l with a smaller number than i
    before = np.cumsum(adjacency, axis=1) - adjacency
    return nbr, before[nbr, np.arange(len(nbr))[:, None]], degree
