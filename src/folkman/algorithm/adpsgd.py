"""AD-PSGD: a node steps on its own beat, and pairs of neighbours meet in their mean.

    x_i, x_j <- (x_i + x_j) / 2,   j drawn uniformly                              [1, Algorithm 1]
    x_i <- x_i - eta grad F_i(x^_i)

where x^_i is the model that the gradient was begun at. The graph is bipartite, so that nodes cannot
wait in a circle: even ones are active, odd ones passive. Both halves of a meeting are applied,
however slow or lossy the network:

    active i    freezes f_i = x_i and broadcasts (f_i, j, number of the proposal) until j's answer
                has that number; then x_i <- x_i + (f_j - f_i) / 2, and it proposes again
    passive j   when free, takes a waiting proposal (in turn): freezes f_j = x_j,
                x_j <- x_j + (f_i - f_j) / 2, and broadcasts (f_j, i, that number) until i's next
                proposal arrives

Gradients go on meanwhile, one in each slot; sum_i x_i changes by gradients alone once both halves
are done. A meeting costs 2 (S + 64) bits where nothing is lost.

Differs from [1]: the mean is not atomic, and a meeting lasts as long as the network needs, so there
are several gradients to a meeting; full-batch gradients unless the problem has mini-batches; no
momentum (the released code: 0.9). A node that crashes and starts anew counts from 1 again and is
not answered: it and who answered it last stay alone.

[1] X. Lian, W. Zhang, C. Zhang, J. Liu. Asynchronous Decentralized Parallel Stochastic Gradient
    Descent. ICML 2018. arXiv:1710.06952
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph, metropolis
from folkman.algorithm.travel import Broadcast, Mixing
from folkman.checks import require

__all__ = ["MeetingState", "adpsgd"]

BIBTEX = r"""@inproceedings{adpsgd,
  author = {Lian, Xiangru and Zhang, Wei and Zhang, Ce and Liu, Ji},
  title = {Asynchronous Decentralized Parallel Stochastic Gradient Descent},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2018},
  eprint = {1710.06952},
  archiveprefix = {arXiv},
}"""


class MeetingState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    frozen: Array  # (d,) f_i
    node: Array  # () i: even nodes are active
    partner: Array  # () whom it proposes to, or answers; -1 for nobody yet
    number: Array  # () of the proposal made, or answered
    waiting: Array  # () bool: for the answer, or for the sign that the answer was heard
    served: Array  # (node,) the last number answered of each
    updates: Array  # () gradients done


def _where(choice: Array, new: MeetingState, old: MeetingState) -> MeetingState:
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), new, old)


@method
def adpsgd(
    step: Number = 0.1,
    topology: Literal["bipartite", "ring"] = "bipartite",
    decay: Decay = Decay(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build AD-PSGD: 'bipartite' joins every even node with every odd one.

    'ring' needs an even number of nodes.

    >>> adpsgd().travel.mixing.weights(jnp.ones((4, 4), bool))[0, 2].item()
    0.0
    """
    eta = step_size(step, decay)
    require(
        topology in ("bipartite", "ring"),
        f"topology must be 'bipartite' or 'ring', got {topology!r}; others have odd cycles",
    )

    def weights(heard: Array) -> Array:
        nodes = len(heard)
        if topology == "ring":
            require(
                nodes % 2 == 0,
                f"a ring of {nodes} nodes is not bipartite; take an even number, or 'bipartite'",
            )
            return metropolis(jnp.asarray(Graph("ring").adjacency(nodes)))
        even = jnp.arange(nodes) % 2 == 0
        return metropolis(even[:, None] != even[None])

    def init(params: Array, place: Place) -> MeetingState:
        zero = jnp.zeros((), jnp.int32)
        return MeetingState(
            params=params,
            frozen=params,
            node=place.node + zero,
            partner=zero - 1,
            number=zero,
            waiting=jnp.asarray(False),
            served=jnp.zeros(place.num_nodes, jnp.int32),
            updates=zero,
        )

    def conclude(state: MeetingState, inbox: Inbox) -> MeetingState:
        """Return the state after the active half of a meeting, if the answer is there."""
        answer = inbox.payload(state.partner)
        answered = state.waiting & (answer[-2] == state.node) & (answer[-1] == state.number)
        half = jnp.where(answered, 0.5, 0.0) * (answer[:-2] - state.frozen)
        return state._replace(params=state.params + half, waiting=state.waiting & ~answered)

    def answer(state: MeetingState, inbox: Inbox) -> MeetingState:
        """Return the state after the passive half of a meeting, if somebody asks."""
        partner, number = inbox.store[inbox.row, -2:].T.astype(jnp.int32)
        free = ~state.waiting | (number[state.partner] > state.number)
        asks = (partner == state.node) & (number > state.served) & (inbox.weight > 0)
        # the first who comes after the last one served
        turn = jnp.mod(jnp.arange(len(asks)) - state.partner - 1, len(asks))
        i = jnp.argmin(jnp.where(asks, turn, len(asks))).astype(jnp.int32)
        new = MeetingState(
            params=state.params + 0.5 * (inbox.payload(i)[:-2] - state.params),
            frozen=state.params,
            node=state.node,
            partner=i,
            number=number[i],
            waiting=jnp.asarray(True),
            served=state.served.at[i].set(number[i]),
            updates=state.updates,
        )
        return _where(free & jnp.any(asks), new, state._replace(waiting=~free))

    def receive(state: MeetingState, inbox: Inbox) -> MeetingState:
        return _where(state.node % 2 == 0, conclude(state, inbox), answer(state, inbox))

    def update(
        state: MeetingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> MeetingState:
        del loss
        params = state.params - eta(state.updates, grad.dtype) * grad
        moved = state._replace(params=params, updates=state.updates + 1)
        near = jnp.where(inbox.weight > 0, 0.0, -jnp.inf)
        proposes = moved._replace(
            frozen=params,
            partner=jax.random.categorical(key, near).astype(jnp.int32),
            number=state.number + 1,
            waiting=jnp.asarray(True),
        )
        return _where((state.node % 2 == 0) & ~state.waiting, proposes, moved)

    def message(state: MeetingState) -> Array:
        meeting = jnp.stack([state.partner, state.number])
        return jnp.append(state.frozen, meeting.astype(state.frozen.dtype))

    return Algorithm(
        name="adpsgd",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=message,
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: receive(state, inbox).params,
        travel=Broadcast(mixing=Mixing(weights), has_news=lambda state: state.waiting),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            price=Price(lambda dim, bits: (bits * dim + 64,)),
            draws=True,
            evenly=True,
        ),
    )
