"""DisPFL: each node keeps a sparse model of its own, averaged where masks meet, in lock-step.

    w_k  <- m_k * ( sum_j w_j / sum_j m'_j )   over its in-neighbours and itself,
            0 where all m'_j are 0                                                  [1, Alg. 1]
    m'_k <- m_k,   then E times   w_k <- m'_k * (w_k - eta grad F_k(w_k))
    m_k  <- drop n of the smallest |w_k|, regrow n elsewhere, in each tensor (pieces/sparsity.py)

There is no global model; regrown weights are 0 until neighbours supply values. With density 1,
topology full and E = 1 the mean model is FedAvg's with equal weights. A round takes E slots of
computing, one more for regrowth 'gradient', and one broadcast of each node: nnz parameters and a
mask of d bits.

Differs from [1]: this follows the authors' code (github.com/rong-dai/DisPFL), which is synchronous;
the paper's text was not read. Its defaults: a tenth of 100 nodes at random, E = 5 epochs,
round_decay 0.998, clip 10, weight_decay 5e-4; here full batches unless the problem has
mini-batches. An inactive node there masks its model only after its first step, and on a full
topology is not heard either. Masks are not counted there. Nodes of unlike densities are left out.
With topology random `bits_unicast` counts all nodes that hear, not those that listen.

[1] R. Dai, L. Shen, F. He, X. Tian, D. Tao. DisPFL: Towards Communication-Efficient Personalized
    Federated Learning via Decentralized Sparse Training. ICML 2022. arXiv:2206.00187
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.neighbours import RoundNeighbours, RoundTopology
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.segments import Shapes
from folkman.algorithm.pieces.seldom import seldom
from folkman.algorithm.pieces.sparsity import Layers, Sparsity
from folkman.algorithm.pieces.steps import step_size
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["SparseMemory", "dispfl"]

BIBTEX = r"""@inproceedings{dispfl,
  author = {Dai, Rong and Shen, Li and He, Fengxiang and Tian, Xinmei and Tao, Dacheng},
  title = {{DisPFL}: Towards Communication-Efficient Personalized Federated Learning via
    Decentralized Sparse Training},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2022},
  eprint = {2206.00187},
  archiveprefix = {arXiv},
}"""


class SparseMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_k, 0 outside m'_k
    mask: Array  # (d,) bool m_k, of the coming round
    shared: Array  # (d,) bool m'_k, under which w_k is trained
    chosen: Array  # (node,) bool: in-neighbours of the coming aggregation


@method
def dispfl(
    step: Number = 0.1,
    density: float = 0.5,  # share of the entries that a node keeps
    layers: Layers = "erk",  # how the density is shared among tensors: erk or uniform
    anneal: float = 0.5,  # share of entries that are dropped and regrown at first, f
    rounds: int = 500,  # rounds until nothing is regrown any more, R
    # where entries grow again: at random, or where gradients are large
    regrowth: Literal["random", "gradient"] = "random",
    topology: RoundTopology = "full",  # who sends to whom in a round
    in_degree: int = 1,  # nodes that each one hears, where they are drawn
    active: float = 1.0,  # share of the nodes that learn in a round
    local_steps: int = 1,
    round_decay: float = 1.0,  # factor of the step from round to round
    clip: float = 0.0,  # largest norm of a gradient; 0: no limit
    weight_decay: Number = 0.0,  # lambda, the pull of a gradient step towards 0
    shapes: Shapes | None = None,
) -> Algorithm:
    """Build DisPFL: E = `local_steps`, f = `anneal`, R = `rounds`, eta = `step round_decay^r`.

    `clip` 0 does not clip.

    >>> dispfl(density=0.5).declares.price.bits(100, 16)
    (900,)
    """
    sparsity = Sparsity(density, layers, anneal, rounds, shapes)
    neighbours = RoundNeighbours(topology, in_degree, active)
    sparsity.check()
    step_size(step)  # refuses a bad one
    require(0 < round_decay <= 1, f"round_decay must be in (0, 1], got {round_decay}; 1 is none")
    require(
        regrowth in ("random", "gradient"),
        f"regrowth must be 'random' or 'gradient', got {regrowth!r}",
    )
    require(
        local_steps >= 1 and clip >= 0 and within(weight_decay, 0),
        "local_steps must be at least 1, clip and weight_decay at least 0, "
        f"got {local_steps}, {clip}, {weight_decay}",
    )
    gradients = local_steps + (regrowth == "gradient")

    def first(params: Array, place: Place) -> SparseMemory:
        mask = sparsity.first(jax.random.uniform(place.key, params.shape, jnp.float32))
        return SparseMemory(
            params=params * mask,
            mask=mask,
            shared=mask,
            chosen=neighbours.none(place.num_nodes),
        )

    def message(memory: SparseMemory) -> Array:
        return jnp.concatenate([memory.params, memory.shared.astype(memory.params.dtype)])

    def average(memory: SparseMemory, inbox: Inbox) -> SparseMemory:
        total = message(memory) + inbox.mix(memory.chosen.astype(memory.params.dtype))
        values, masks = jnp.split(total, 2)
        mean = jnp.where(memory.mask, values / jnp.maximum(masks, 1.0), 0.0)
        return memory._replace(params=mean, shared=memory.mask)

    def descend(memory: SparseMemory, found: Gradient) -> Array:
        """Return w_k after this gradient."""
        grad = found.value
        if clip > 0:
            grad = grad * jnp.minimum(1.0, clip / (jnp.linalg.norm(grad) + 1e-6))
        eta = step * round_decay ** found.rounds.astype(grad.dtype)
        moved = memory.params - eta * (grad + weight_decay * memory.params)
        trains = found.taken < local_steps  # a gradient beyond these is for the regrowth
        return jnp.where(trains, jnp.where(memory.shared, moved, 0.0), memory.params)

    def evolve(shared: Array, params: Array, grad: Array, rounds: Array, key: Array) -> Array:
        """Return m_k of the next round."""
        by_gradient = regrowth == "gradient"
        score = jnp.abs(grad) if by_gradient else jax.random.uniform(key, grad.shape, jnp.float32)
        return sparsity.evolve(shared, params, score, rounds.astype(grad.dtype))

    def learn(memory: SparseMemory, found: Gradient) -> SparseMemory:
        who, where = jax.random.split(found.key)
        params = descend(memory, found)
        last = found.taken + 1 == gradients
        given = (memory.shared, params, found.value, found.rounds, where)
        return memory._replace(
            params=params,
            mask=seldom(last, evolve, memory.mask, *given),
            chosen=jnp.where(last, neighbours.draw(found.inbox, who), memory.chosen),
        )

    def bits_of(dim: int, bits: int) -> tuple[int]:
        return (dim + bits * sum(number for _, number in sparsity.parts(dim)),)

    everyone = topology == "full" and active == 1
    return in_rounds(
        "dispfl",
        first=first,
        gradient=learn,
        gradients=gradients,
        end=average,
        message=message,
        params=lambda memory: memory.params,
        personal=True,
        mixing=neighbours.mixing(),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}),
            price=Price(bits_of),
            exact=density == 1 and everyone and local_steps == 1,
            draws=True,
            evenly=True,
        ),
    )
