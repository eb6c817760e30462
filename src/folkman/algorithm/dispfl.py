"""DisPFL: each node keeps a sparse model of its own, averaged where its neighbours' masks meet its own, in lock-step.

    w_k  <- m_k * ( sum_j w_j / sum_j m'_j ) over its in-neighbours and itself, 0 where all m'_j are 0      [1, Alg. 1]
    m'_k <- m_k,   then E times   w_k <- m'_k * (w_k - eta grad F_k(w_k))
    m_k  <- drop n of the smallest |w_k|, regrow n elsewhere, in each tensor (sparsity.py)

There is no global model; regrown weights are 0 until neighbours supply values. With density 1, topology full and E = 1
the mean model is FedAvg's with equal weights. A round takes E slots of computing, one more for regrowth 'gradient', and
one broadcast of each node: nnz parameters and a mask of d bits.

Differs from [1]: this follows the authors' code (github.com/rong-dai/DisPFL), which is synchronous; the paper's text
was not read. Its defaults: a tenth of 100 nodes at random, E = 5 epochs, round_decay 0.998, clip 10, weight_decay 5e-4;
here full batches unless the problem has mini-batches. An inactive node there masks its model only after its first step,
and on a full topology is not heard either. Masks are not counted there. Nodes of unlike densities are left out. With
topology random `bits_unicast` counts all nodes that hear, not those that listen.

[1] R. Dai, L. Shen, F. He, X. Tian, D. Tao. DisPFL: Towards Communication-Efficient Personalized Federated Learning via
    Decentralized Sparse Training. ICML 2022. arXiv:2206.00187
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Algorithm, Assumption, Inbox, Place
from folkman.algorithm.pieces.neighbours import RoundNeighbours, RoundTopology
from folkman.algorithm.pieces.segments import Shapes
from folkman.algorithm.pieces.sparsity import Layers, Sparsity
from folkman.algorithm.pieces.steps import step_size
from folkman.checks import require

__all__ = ["SparseState", "dispfl"]


class SparseState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_k, 0 outside m'_k
    mask: Array  # (d,) bool m_k, of the coming round
    shared: Array  # (d,) bool m'_k, under which w_k is trained
    chosen: Array  # (node,) bool: in-neighbours of the coming aggregation
    steps: Array  # () gradients taken in this round
    rounds: Array  # () r


def dispfl(
    step: float = 0.1,
    density: float = 0.5,
    layers: Layers = "erk",
    anneal: float = 0.5,
    rounds: int = 500,
    regrowth: Literal["random", "gradient"] = "random",
    topology: RoundTopology = "full",
    in_degree: int = 1,
    active: float = 1.0,
    local_steps: int = 1,
    round_decay: float = 1.0,
    clip: float = 0.0,
    weight_decay: float = 0.0,
    shapes: Shapes | None = None,
) -> Algorithm:
    """Build DisPFL: E = `local_steps`, f = `anneal`, R = `rounds`, eta = `step round_decay^r`; `clip` 0 is none.

    >>> dispfl(density=0.5).prices(100, 16)
    (900,)
    """
    sparsity = Sparsity(density, layers, anneal, rounds, shapes)
    neighbours = RoundNeighbours(topology, in_degree, active)
    sparsity.check()
    step_size(step)
    require(0 < round_decay <= 1, f"round_decay must be in (0, 1], got {round_decay}; 1 is none")
    require(
        regrowth in ("random", "gradient"),
        f"regrowth must be 'random' or 'gradient', got {regrowth!r}",
    )
    bad = f"local_steps must be at least 1, clip and weight_decay at least 0, got {local_steps}, {clip}, {weight_decay}"
    require(local_steps >= 1 and min(clip, weight_decay) >= 0, bad)
    gradients = local_steps + (regrowth == "gradient")

    def init(params: Array, place: Place) -> SparseState:
        mask, zero = (
            sparsity.first(jax.random.uniform(place.key, params.shape, jnp.float32)),
            jnp.zeros((), jnp.int32),
        )
        return SparseState(params * mask, mask, mask, neighbours.none(place.num_nodes), zero, zero)

    def message(state: SparseState) -> Array:
        return jnp.concatenate([state.params, state.shared.astype(state.params.dtype)])

    def receive(state: SparseState, inbox: Inbox) -> SparseState:
        values, masks = jnp.split(
            message(state) + inbox.mix(state.chosen.astype(state.params.dtype)), 2
        )
        mean = jnp.where(state.mask, values / jnp.maximum(masks, 1.0), 0.0)
        new = SparseState(
            mean,
            state.mask,
            state.mask,
            state.chosen,
            jnp.zeros_like(state.steps),
            state.rounds + 1,
        )
        return jax.tree.map(lambda a, b: jnp.where(jnp.any(inbox.heard), a, b), new, state)

    def descend(state: SparseState, grad: Array) -> Array:
        if clip > 0:
            grad = grad * jnp.minimum(1.0, clip / (jnp.linalg.norm(grad) + 1e-6))
        eta = step * round_decay ** state.rounds.astype(grad.dtype)
        moved = jnp.where(
            state.shared, state.params - eta * (grad + weight_decay * state.params), 0.0
        )
        return jnp.where(state.steps < local_steps, moved, state.params)

    def update(
        state: SparseState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> SparseState:
        del loss
        who, where = jax.random.split(key)
        params, over = descend(state, grad), state.steps + 1 == gradients
        score = (
            jnp.abs(grad)
            if regrowth == "gradient"
            else jax.random.uniform(where, grad.shape, jnp.float32)
        )
        evolved = sparsity.evolve(state.shared, params, score, state.rounds.astype(grad.dtype))
        mask, chosen = (
            jnp.where(over, evolved, state.mask),
            jnp.where(over, neighbours.draw(inbox, who), state.chosen),
        )
        return state._replace(params=params, mask=mask, chosen=chosen, steps=state.steps + 1)

    return Algorithm(
        name="dispfl",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=message,
        params=lambda state: state.params,
        receive=receive,
        computes=lambda state: state.steps < gradients,
        offers=lambda state: state.steps >= gradients,
        mixing=neighbours.mixing(),
        prices=lambda dim, bits: (dim + bits * sum(number for _, number in sparsity.parts(dim)),),
        assumes=frozenset({Assumption.LOCKSTEP, Assumption.PRESENT}),
    )
