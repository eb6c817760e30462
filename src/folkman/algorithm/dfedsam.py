"""DFedSAM: local steps that look for flat minima, then one average, in lock-step.

    y_0 = x_i,   then K times                                                   [1, Algorithm 1]
        g  = grad F_i(y_k)
        g~ = grad F_i(y_k + rho g / ||g||)
        y_{k+1} = y_k - eta g~
    x_i+ = sum_j W_ij y_K of node j

Each local step takes two gradients, and so two slots. The second one is taken where the loss rises
most within a ball of radius rho: its sharpness counts too. With rho = 0 it is D-PSGD (adapt, then
combine) with local steps. A round takes 2 K slots of computing and the time of one broadcast of
each node, S bits each.

Near a minimum g / ||g|| keeps its length, so that models go on to move by eta rho L: with a
constant rho it does not end at the optimum, even where nodes are alike.

Differs from [1]: the recursion is as recalled, not verified; code of others has the same two
gradients. K = 5 and rho = 0.05 are our defaults. The two gradients of a step have mini-batches of
their own where the problem has any, where the usual code takes one twice. Several averages in a row
(DFedSAM-MGS) are left out. Full-batch gradients unless the problem has mini-batches.

[1] Y. Shi, L. Shen, K. Wei, Y. Sun, B. Yuan, X. Wang, D. Tao. Improving the Model Consistency of
    Decentralized Federated Learning. ICML 2023. arXiv:2302.04083
"""

from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Shrinking
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jnp
from folkman.checks import require, within

__all__ = ["SharpnessMemory", "dfedsam"]

BIBTEX = r"""@inproceedings{dfedsam,
  author = {Shi, Yifan and Shen, Li and Wei, Kang and Sun, Yan and Yuan, Bo and Wang, Xueqian and
    Tao, Dacheng},
  title = {Improving the Model Consistency of Decentralized Federated Learning},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2023},
  eprint = {2302.04083},
  archiveprefix = {arXiv},
}"""


class SharpnessMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) y_k
    uphill: Array  # (d,) rho g / ||g|| between the two gradients of a step, 0 before the first


@method
def dfedsam(
    step: Number = 0.1,
    rho: Number = 0.05,  # radius of the ball in which the loss is at its highest
    local_steps: int = 5,
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shrinking: Shrinking = Shrinking(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build DFedSAM with K = `local_steps`; `decay` counts steps, of two gradients each.

    >>> dfedsam(rho=0.1).name
    'dfedsam'
    """
    eta = step_size(step, decay)
    rule.check()
    require(within(rho, 0, 1e6), f"rho must be at least 0, got {rho}; 0.05 is usual, 0 is none")
    require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")

    def first(params: Array, place: Place) -> SharpnessMemory:
        del place
        return SharpnessMemory(params, jnp.zeros_like(params))

    def learn(memory: SharpnessMemory, grad: Gradient) -> SharpnessMemory:
        norm = jnp.sqrt(jnp.sum(grad.value**2))
        uphill = rho * grad.value / jnp.where(norm > 0, norm, 1.0)
        moved = memory.params - eta(grad.updates // 2, grad.value.dtype) * grad.value
        second = grad.taken % 2 == 1
        return SharpnessMemory(
            params=jnp.where(second, moved, memory.params),
            uphill=jnp.where(second, 0.0, uphill),
        )

    def average(memory: SharpnessMemory, inbox: Inbox) -> SharpnessMemory:
        mixed = combine(rule, inbox, own=memory.params, own_weight=inbox.own_weight)
        return memory._replace(params=mixed)

    built = in_rounds(
        "dfedsam",
        first=first,
        point=lambda memory, *_: memory.params + memory.uphill,
        gradient=learn,
        gradients=2 * local_steps,
        end=average,
        message=lambda memory: memory.params,
        params=lambda memory: memory.params,
        mixing=graph.mixing(),
        declares=Declares(assumes=frozenset({Assumption.PRESENT}), evenly=True, verified=RECALLED),
    )
    return shrinking.of(built)
