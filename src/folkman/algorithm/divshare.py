"""DivShare: a model goes out in fragments, each to a few nodes drawn at random, on own beats.

    x_i <- x_i - eta grad F_i(x_i), E times                                     [1, Algorithm 1]
    cut x_i into F fragments; each one goes to J others drawn at random, in random order
    x_i[k] <- (x_i[k] + sum of the x_j[k] that came) / (1 + their number)      for every entry k

A node never waits. Fragments that were not sent when the next model is there are given up, so a
slow link carries a part of every model in the place of every part of an old one; and what one node
knows reaches more others than a whole model would. Of one fragment of one sender the newest counts.
F = 1 sends whole models.

A fragment is every F-th entry of a permutation that all nodes share. A message has
ceil(d / F) entries, the numbers of the fragment and of the step, and those of its J receivers, for
which it goes out once. A node keeps what came of each other until its next step, I d numbers.

Differs from [1]: fragments go out one by one on the nodes' common air, one broadcast for the J
receivers of a fragment, where [1] sends J copies; `bits_unicast` counts all that hear. The
permutation goes over the whole model and not over each tensor. Order (send the model before
averaging), shuffled queue, and averaging by entry are those of the authors' code
(github.com/sacs-epfl/divshare): of the same arrivals it makes the same models, to 1e-10 in the
tests. On devices a frame has all d entries, 0 outside the fragment; the price is that of the
fragment. Full-batch gradients unless the problem has mini-batches.

[1] S. Biswas, A.-M. Kermarrec, A. Marouani, R. Pires, R. Sharma, M. de Vos. Boosting Asynchronous
    Decentralized Learning with Model Fragmentation. The Web Conference 2025. arXiv:2410.12918
"""

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import NUMBERS, Algorithm, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["FragmentState", "divshare", "fragment_of"]

BIBTEX = r"""@inproceedings{divshare,
  author = {Biswas, Sayan and Kermarrec, Anne-Marie and Marouani, Alexis and Pires, Rafael and
    Sharma, Rishi and de Vos, Martijn},
  title = {Boosting Asynchronous Decentralized Learning with Model Fragmentation},
  booktitle = {The Web Conference (WWW)},
  year = {2025},
  eprint = {2410.12918},
  archiveprefix = {arXiv},
}"""

HEADER = 2
"""Numbers of a message behind the model, before its receivers: fragment, step."""


class FragmentState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    outgoing: Array  # (d,) the model that is on its way out
    order: Array  # (F,) the fragments in the order in which they are sent
    receivers: Array  # (F, J) who each of them is for
    sent: Array  # () fragments of it that went out
    came: Array  # (node, d) what came of each other since the last step
    fresh: Array  # (node, F) bool: which fragments of it
    seen: Array  # (node,) step of the newest message of each
    node: Array  # () number of the node, i
    updates: Array  # () gradients done


def fragment_of(
    dim: int,
    fragments: int,  # parts into which a model is cut, F
    seed: int,
) -> NDArray[np.int32]:
    """Return which fragment each entry of a model belongs to, (d,)."""
    found = np.empty(dim, np.int32)
    found[np.random.default_rng(seed).permutation(dim)] = np.arange(dim) % fragments
    return found


@method
def divshare(
    step: Number = 0.1,
    fragments: int = 4,  # parts into which a model is cut, F
    fanout: int = 2,  # nodes that each fragment goes to, J
    local_steps: int = 1,
    fragment_seed: int = 0,  # seed of the permutation that all nodes share
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build DivShare with F = `fragments`, J = `fanout` and E = `local_steps`.

    >>> divshare(fragments=4, fanout=2).declares.price.bits(100, 32)
    (928,)
    """
    eta = step_size(step, decay)
    require(fragments >= 1, f"fragments must be at least 1, got {fragments}; 1 is a whole model")
    require(
        fanout >= 1,
        f"fanout is how many others a fragment goes to, at least 1, got {fanout}; try log2 I",
    )
    require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")

    def number(num_nodes: int) -> int:
        return max(min(fanout, num_nodes - 1), 1)

    def init(params: Array, place: Place) -> FragmentState:
        nodes, zero = place.num_nodes, jnp.zeros((), jnp.int32)
        return FragmentState(
            params=params,
            outgoing=params,
            order=jnp.arange(fragments, dtype=jnp.int32),
            receivers=jnp.full((fragments, number(nodes)), -1, jnp.int32),
            sent=zero + fragments,
            came=jnp.zeros((nodes, len(params)), params.dtype),
            fresh=jnp.zeros((nodes, fragments), bool),
            seen=jnp.zeros(nodes, jnp.int32),
            node=place.node + zero,
            updates=zero,
        )

    def message(state: FragmentState) -> Array:
        turn = jnp.minimum(state.sent, fragments - 1)
        which = state.order[turn]
        inside = jnp.asarray(fragment_of(len(state.params), fragments, fragment_seed)) == which
        header = jnp.stack([which, state.updates])
        numbers = jnp.concatenate([header, state.receivers[which]]).astype(state.params.dtype)
        return jnp.concatenate([jnp.where(inside, state.outgoing, 0.0), numbers])

    def receive(state: FragmentState, inbox: Inbox) -> FragmentState:
        dim = len(state.params)
        held = inbox.store[inbox.row]
        which, made = held[:, dim : dim + HEADER].T.astype(jnp.int32)
        mine = jnp.any(held[:, dim + HEADER :].astype(jnp.int32) == state.node, axis=1)
        comes = inbox.heard & inbox.finite & mine & (inbox.weight > 0) & (made >= state.seen)
        part = fragment_of(dim, fragments, fragment_seed)
        inside = comes[:, None] & (jnp.asarray(part)[None] == which[:, None])
        named = comes[:, None] & (jnp.arange(fragments)[None] == which[:, None])
        return state._replace(
            came=jnp.where(inside, held[:, :dim], state.came),
            fresh=state.fresh | named,
            seen=jnp.where(comes, made, state.seen),
        )

    def average(state: FragmentState, own: Array) -> Array:
        part = jnp.asarray(fragment_of(len(own), fragments, fragment_seed))
        counts = state.fresh[:, part]  # (node, d)
        total = own + jnp.sum(jnp.where(counts, state.came, 0.0), axis=0)
        return total / (1.0 + jnp.sum(counts, axis=0)).astype(own.dtype)

    def shared(state: FragmentState, moved: Array, inbox: Inbox, key: Array) -> FragmentState:
        """Return the state with a new model on its way, after what came is averaged in."""
        shuffle, choose = jax.random.split(key)
        tickets = jax.random.uniform(choose, (fragments, len(inbox.weight)), jnp.float32)
        tickets = jnp.where(inbox.weight[None] > 0, tickets, jnp.inf)
        chosen = jnp.argsort(tickets, axis=1)[:, : state.receivers.shape[1]].astype(jnp.int32)
        return state._replace(
            params=average(state, moved),
            outgoing=moved,
            order=jax.random.permutation(shuffle, fragments).astype(jnp.int32),
            receivers=chosen,
            sent=jnp.zeros((), jnp.int32),
            fresh=jnp.zeros_like(state.fresh),
        )

    def update(
        state: FragmentState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> FragmentState:
        del loss
        moved = state.params - eta(state.updates, grad.dtype) * grad
        after = state._replace(updates=state.updates + 1)
        over = after.updates % local_steps == 0
        return jax.tree.map(
            lambda new, old: jnp.where(over, new, old),
            shared(after, moved, inbox, key),
            after._replace(params=moved),
        )

    def bits(dim: int, each: int) -> tuple[int]:
        return (each * ceil(dim / fragments) + 32 * (HEADER + fanout),)

    built = Algorithm(
        name="divshare",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=message,
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: average(receive(state, inbox), state.params),
        travel=Broadcast(
            mixing=Graph("complete").mixing(),
            has_news=lambda state: state.sent < fragments,
            notes=lambda state: state._replace(sent=state.sent + 1),
        ),
        declares=Declares(price=Price(bits), draws=True, evenly=True, verified=NUMBERS),
    )
    return descent.of(built)
