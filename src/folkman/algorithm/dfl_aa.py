"""DFL-AA: models go out in chunks, links lose some, and what came counts by its chance to come.

    u_jk = [chunk of entry k came] / p_ij exp(-a_ij / tau)                    for every entry k
    x_i[k] <- (x_i[k] + sum_j u_jk x_j[k]) / (1 + sum_j u_jk)
    x_i <- x_i - eta grad F_i(x_i)
    p_ij <- (1 - beta) p_ij + beta (part of the chunks of j that are there)

A node never waits, and nothing is sent again: of the newest model of each neighbour it uses the
chunks that are there. Links that lose much would be heard too little by it; dividing by p_ij, the
part of a model that usually is there, gives each neighbour the same weight on average (inverse
probability weighting). a_ij counts the receiver's own gradients since the first chunk of that model
came: an old model counts less, and no common clock is needed. p_ij begins at 1 and never goes below
`least_share`, so that one chunk has a bounded weight.

A model is cut into C chunks of a permutation that all nodes share. They go out one by one in a
random order, to all neighbours; when the last has gone out the node's newest model is taken. A
message has ceil(d / C) entries and the numbers of chunk and model. A node keeps what came of each
neighbour, I d numbers.

Differs from [1], of which the abstract was read: inverse probability weighting and the running mean
of p_ij are as recalled, not verified. The weight 1 of the node's own model, the sum over which it
is divided and the decay exp(-a / tau) are those of the authors' code (github.com/DFedN/DFL-AA,
dfl_core.py), which was read; there a model counts as a whole, by the part of it that came and not
by its inverse, and ages are seconds. With one chunk, which comes whole or not, its models are those
here, to 1e-10 in the tests. Here p_ij also counts chunks that are still on their way as missing. On
devices a frame has all d entries, 0 outside the chunk; the price is that of the chunk. Full-batch
gradients unless the problem has mini-batches.

[1] C. A. S. Hewa Kaluannakkage, R. Buyya. Asynchronous Decentralized Federated Learning over Lossy
    Wireless Links via Reception- and Age-Aware Aggregation. 2026. arXiv:2606.10774
"""

from math import ceil
from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Declares, Inbox, Place, Price
from folkman.algorithm.divshare import HEADER, fragment_of
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["ChunkState", "dfl_aa"]

BIBTEX = r"""@misc{dfl_aa,
  author = {Hewa Kaluannakkage, Chanuka A. S. and Buyya, Rajkumar},
  title = {Asynchronous Decentralized Federated Learning over Lossy Wireless Links via Reception-
    and Age-Aware Aggregation},
  year = {2026},
  eprint = {2606.10774},
  archiveprefix = {arXiv},
}"""


class ChunkState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    outgoing: Array  # (d,) the model that is on its way out
    model: Array  # () its number
    order: Array  # (C,) its chunks in the order in which they are sent
    sent: Array  # () chunks of it that went out
    came: Array  # (node, d) what came of the newest model of each neighbour
    there: Array  # (node, C) bool: which chunks of it
    newest: Array  # (node,) its number; 0: none came
    age: Array  # (node,) own gradients since it began to come
    share: Array  # (node,) p_ij
    updates: Array  # () gradients done


@method
def dfl_aa(
    step: Number = 0.1,
    chunks: int = 4,  # parts into which a model is cut, C
    tau: Number = 10.0,  # age in own gradients after which a model counts 1/e
    beta: Number = 0.1,  # weight of the newest value in the running mean of p_ij
    least_share: Number = 0.1,  # least p_ij that is divided by
    chunk_seed: int = 0,  # seed of the permutation that all nodes share
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build DFL-AA with C = `chunks`.

    >>> dfl_aa(chunks=4).declares.price.bits(100, 32)
    (864,)
    """
    eta = step_size(step, decay)
    graph.check_fixed("dfl_aa")
    require(chunks >= 1, f"chunks must be at least 1, got {chunks}; 1 is a whole model")
    require(within(tau, above=0), f"tau counts gradients and must be above 0, got {tau}")
    require(within(beta, 0, 1), f"beta is the weight of what is new, in [0, 1], got {beta}")
    require(
        within(least_share, above=0, most=1),
        f"least_share must be above 0 and at most 1, got {least_share}",
    )

    def init(params: Array, place: Place) -> ChunkState:
        nodes, zero = place.num_nodes, jnp.zeros((), jnp.int32)
        return ChunkState(
            params=params,
            outgoing=params,
            model=zero,
            order=jnp.arange(chunks, dtype=jnp.int32),
            sent=zero + chunks,
            came=jnp.zeros((nodes, len(params)), params.dtype),
            there=jnp.zeros((nodes, chunks), bool),
            newest=jnp.zeros(nodes, jnp.int32),
            age=jnp.zeros(nodes, jnp.int32),
            share=jnp.ones(nodes, params.dtype),
            updates=zero,
        )

    def message(state: ChunkState) -> Array:
        which = state.order[jnp.minimum(state.sent, chunks - 1)]
        inside = jnp.asarray(fragment_of(len(state.params), chunks, chunk_seed)) == which
        numbers = jnp.stack([which, state.model]).astype(state.params.dtype)
        return jnp.concatenate([jnp.where(inside, state.outgoing, 0.0), numbers])

    def receive(state: ChunkState, inbox: Inbox) -> ChunkState:
        """Keep the chunks that came; with the first of a newer model the older one is given up."""
        dim = len(state.params)
        held = inbox.store[inbox.row]
        which, model = held[:, dim : dim + HEADER].T.astype(jnp.int32)
        able = inbox.heard & inbox.finite & (inbox.weight > 0)
        comes, newer = able & (model >= state.newest), able & (model > state.newest)
        part = jnp.asarray(fragment_of(dim, chunks, chunk_seed))
        inside = comes[:, None] & (part[None] == which[:, None])
        named = comes[:, None] & (jnp.arange(chunks)[None] == which[:, None])
        return state._replace(
            came=jnp.where(inside, held[:, :dim], state.came),
            there=(state.there & ~newer[:, None]) | named,
            newest=jnp.where(comes, model, state.newest),
            age=jnp.where(newer, 0, state.age),
        )

    def mixed(state: ChunkState) -> Array:
        part = jnp.asarray(fragment_of(len(state.params), chunks, chunk_seed))
        old = jnp.exp(-state.age.astype(state.share.dtype) / tau)
        each = old / jnp.maximum(state.share, least_share)
        weight = jnp.where(state.there[:, part], each[:, None], 0.0)  # u_jk, (node, d)
        total = state.params + jnp.sum(weight * state.came, axis=0)
        return total / (1.0 + jnp.sum(weight, axis=0))

    def update(state: ChunkState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> ChunkState:
        del loss, inbox
        known = state.newest > 0
        part = jnp.mean(state.there.astype(state.share.dtype), axis=1)
        params = mixed(state) - eta(state.updates, grad.dtype) * grad
        over = state.sent >= chunks
        order = jax.random.permutation(key, chunks).astype(jnp.int32)
        return state._replace(
            params=params,
            outgoing=jnp.where(over, params, state.outgoing),
            model=state.model + over,
            order=jnp.where(over, order, state.order),
            sent=jnp.where(over, 0, state.sent),
            age=state.age + known,
            share=jnp.where(known, state.share + beta * (part - state.share), state.share),
            updates=state.updates + 1,
        )

    def bits(dim: int, each: int) -> tuple[int]:
        return (each * ceil(dim / chunks) + 32 * HEADER,)

    built = Algorithm(
        name="dfl_aa",
        init=init,
        point=lambda state, _: mixed(state),
        update=update,
        message=message,
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: mixed(receive(state, inbox)),
        travel=Broadcast(
            mixing=graph.mixing(),
            has_news=lambda state: state.sent < chunks,
            notes=lambda state: state._replace(sent=state.sent + 1),
        ),
        declares=Declares(price=Price(bits), draws=True, evenly=True, verified=RECALLED),
    )
    return descent.of(built)
