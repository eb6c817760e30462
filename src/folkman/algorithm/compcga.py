"""CompCGA: CGA with gradients of one bit an entry, and a memory of what was left out.

    p = g + e,   delta = (||p||_1 / n) sign(p) for each tensor of n entries,   e+ = p - delta              [1, Alg. 2]

`compress` says which gradients become their delta:
    exchanged   every cross gradient, before it is sent; e is kept for each link (the paper, default)
    own         the node's own g_ii, which no one is sent (the authors' code)

The rest is CGA. With `memory` the sum of all delta of a link and its e are the sum of all its g. On a broadcast medium
an iteration of I nodes costs I S + sum_i deg_i (d + 32 tensors) bits; with 'own' it costs what CGA does.

Differs from [1]: the paper's form is recalled and not verified, nor that the own gradient stays whole in it. The
authors' code (github.com/yasesf93/CrossGradientAggregation) is compress="own", memory=False, form="released". sign(0)
is 0 here as there, though the price of one bit an entry leaves room for two signs only. All else as cga.py says.

[1] Y. Esfandiari, S. Y. Tan, Z. Jiang, A. Balu, E. Herron, C. Hegde, S. Sarkar. Cross-Gradient Aggregation for
    Decentralized Learning from Non-IID Data. ICML 2021. arXiv:2103.02051
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Inbox, Place
from folkman.algorithm.cga import cga
from folkman.algorithm.pieces.cross_gradients import CrossGradientState, copy_prices, link_prices
from folkman.algorithm.pieces.rules import Rule
from folkman.algorithm.pieces.segments import Shapes, segments
from folkman.algorithm.pieces.steps import Decay
from folkman.algorithm.pieces.topology import Topology

__all__ = ["CompressedState", "compcga", "signs"]


class CompressedState(NamedTuple):
    """What a node remembers."""

    plain: CrossGradientState
    error: Array  # (link, d) e of each neighbour, or (1, d) of the own gradient


def signs(vector: Array, cuts: tuple[slice, ...]) -> Array:
    """Return (||p||_1 / n) sign(p) for each segment of a vector.

    >>> signs(jnp.asarray([3.0, -1.0, 5.0]), (slice(0, 2), slice(2, 3))).tolist()
    [2.0, -2.0, 5.0]
    """
    return jnp.concatenate([jnp.mean(jnp.abs(vector[cut])) * jnp.sign(vector[cut]) for cut in cuts])


def compcga(
    step: float = 0.1,
    compress: Literal["exchanged", "own"] = "exchanged",
    memory: bool = True,
    form: Literal["paper", "released"] = "paper",
    margin: float | None = None,
    momentum: float = 0.9,
    topology: Topology = "ring",
    degree: int = 4,
    graph_seed: int = 0,
    rule: Rule = "mean",
    trim: int = 1,
    decay: Decay = "constant",
    decay_steps: int = 1000,
    shapes: Shapes | None = None,
) -> Algorithm:
    """Build CompCGA: `compress` and `memory` of its own, the other options are those of `cga`.

    >>> compcga(step=0.01).prices(10, 16)[:3]
    (160, 0, 42)
    """
    if compress not in ("exchanged", "own"):
        raise ValueError(f"compress must be 'exchanged' or 'own', got {compress!r}")
    exchanged = compress == "exchanged"
    plain = cga(
        step,
        form=form,
        margin=margin,
        momentum=momentum,
        topology=topology,
        degree=degree,
        graph_seed=graph_seed,
        rule=rule,
        trim=trim,
        decay=decay,
        decay_steps=decay_steps,
        shapes=shapes,
    )

    def init(params: Array, place: Place) -> CompressedState:
        state = plain.init(params, place)
        return CompressedState(
            state, jnp.zeros((len(state.nbr) if exchanged else 1, len(params)), params.dtype)
        )

    def update(
        state: CompressedState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> CompressedState:
        link = state.plain.taken - 1 if exchanged else 0
        whole = grad + state.error[link]  # p
        short = signs(whole, segments(shapes, len(grad)))  # delta
        counts = state.plain.crossing == exchanged
        kept = state.error.at[link].set(whole - short) if memory else state.error
        after = plain.update(state.plain, inbox, loss, jnp.where(counts, short, grad), key)
        return CompressedState(after, jnp.where(counts, kept, state.error))

    def link_bits(dim: int, bits: int) -> int:
        return dim + 32 * len(segments(shapes, dim)) if exchanged else dim * bits

    return plain._replace(
        name="compcga",
        init=init,
        update=update,
        point=lambda state, inbox: plain.point(state.plain, inbox),
        message=lambda state: plain.message(state.plain),
        params=lambda state: state.plain.params,
        receive=lambda state, inbox: state._replace(plain=plain.receive(state.plain, inbox)),
        computes=lambda state: plain.computes(state.plain),
        offers=lambda state: plain.offers(state.plain),
        prices=link_prices(link_bits),
        copy_prices=copy_prices(link_bits),
        form=lambda state: plain.form(state.plain),
    )
