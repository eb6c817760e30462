"""ProxSkip without a server: many local steps, and a gossip step now and then, in lock-step.

    x^_i = x_i - eta (grad F_i(x_i) - h_i)                                      [1, Algorithm 1]
    with the chance p   x_i+ = sum_j A_ij x^_j,   h_i+ = h_i + (p / eta) (x_i+ - x^_i)
    otherwise           x_i+ = x^_i,              h_i+ = h_i

with h_i(0) = 0 and A = (1 + W) / 2. All nodes toss the same coin, of `coin_seed`. h_i learns how
the node's own gradient differs from that of all, so that local steps do not drift apart and a
constant step ends at the optimum. With p = 1 it is exact diffusion. A round takes 1 / p slots of
computing in the mean, and the time of one broadcast of each node, S bits each.

Differs from [1], of which the abstract alone was read: the recursion is as recalled, not verified,
and checked on the complete graph against code of others (ProxSkip around a server, which is this
with W = 1/I, A = W). eta h_i is kept in the place of h_i: the same while eta is constant. A gossip
step follows after a number of gradients that is drawn by the law of the tosses, so that a node
knows before a round how many it takes. Full-batch gradients unless the problem has mini-batches.

[1] L. Guo, S. A. Alghunaim, K. Yuan, L. Condat, J. Cao. Revisiting Decentralized ProxSkip:
    Achieving Linear Speedup. 2023. arXiv:2310.07983
"""

from typing import Literal

from folkman.algorithm.base import RECALLED, Algorithm, Declares
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.bias_correction import CorrectedMemory, bias_corrected
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["proxskip", "tosses"]

BIBTEX = r"""@misc{proxskip,
  author = {Guo, Luyao and Alghunaim, Sulaiman A. and Yuan, Kun and Condat, Laurent and Cao, Jinde},
  title = {Revisiting Decentralized {ProxSkip}: Achieving Linear Speedup},
  year = {2023},
  eprint = {2310.07983},
  archiveprefix = {arXiv},
}"""


def tosses(
    seed: int,
    chance: float,  # chance of a gossip step, p
    number: Array,  # number of the round, from 0
) -> Array:
    """Return how many tosses it takes in a round until one succeeds: at least 1."""
    drawn = jax.random.uniform(
        jax.random.fold_in(jax.random.key(seed), number), (), jnp.float32, minval=1e-7
    )
    failures = jnp.floor(jnp.log(drawn) / jnp.log(jnp.float32(1.0 - chance)))
    return 1 + failures.astype(jnp.int32)


@method
def proxskip(
    step: Number = 0.1,
    chance: float = 0.5,  # chance of a gossip step after a gradient, p
    coin_seed: int = 0,  # seed of the tosses, which all nodes share
    weights: Literal["lazy", "whole"] = "lazy",  # W itself, or the lazy (1 + W) / 2
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build decentralised ProxSkip with p = `chance`.

    >>> proxskip(chance=1.0) == proxskip(chance=0.5)
    False
    """
    require(
        0 < chance <= 1,
        f"chance is that of a gossip step after a gradient, above 0 and at most 1, got {chance}",
    )
    require(weights in ("lazy", "whole"), f"weights must be 'lazy' or 'whole', got {weights!r}")

    def gradients(memory: CorrectedMemory) -> Array:
        return tosses(coin_seed, chance, memory.rounds)

    built = bias_corrected(
        "proxskip",
        step_size(step, decay),
        graph,
        lazy=weights == "lazy",
        share=chance,
        gradients=gradients if chance < 1 else 1,
        declares=Declares(verified=RECALLED),
    )
    return descent.of(built)
