"""D-PSGD: average with the neighbours, and step along the own gradient, in lock-step.

    combine, then adapt   x_i+ = sum_j W_ij x_j - eta grad F_i(x_i)     [1, Algorithm 1] (default)
    adapt, then combine   x_i+ = sum_j W_ij (x_j - eta grad F_j(x_j))

The gradient of the first form is taken at the unmixed x_i. For any doubly stochastic W the mean
moves by -(eta / I) sum_i grad F_i(x_i). On a complete graph the second form is FedAvg with equal
weights. A round takes one slot of computing and the time of one broadcast of each node, S bits
each.

Differs from [1]: full-batch gradients unless the problem has mini-batches; a round ends when every
edge has been served, however long that takes on the network.

[1] X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu. Can Decentralized Algorithms
    Outperform Centralized Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient
    Descent. NeurIPS 2017. arXiv:1705.09056
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["GossipMemory", "dpsgd"]

BIBTEX = r"""@inproceedings{dpsgd,
  author = {Lian, Xiangru and Zhang, Ce and Zhang, Huan and Hsieh, Cho-Jui and Zhang, Wei and Liu,
    Ji},
  title = {Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for
    Decentralized Parallel Stochastic Gradient Descent},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2017},
  eprint = {1705.09056},
  archiveprefix = {arXiv},
}"""


class GossipMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    move: Array  # (d,) -eta grad F_i(x_i) of this round, not yet applied (combine first)
    applied: Array  # (d,) the move of the round before: x_i without it is what was mixed


@method
def dpsgd(
    step: Number = 0.1,
    # whether a node averages before its step or after it
    order: Literal["combine_first", "adapt_first"] = "combine_first",
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build D-PSGD; `degree` and `graph_seed` are of the topologies that are drawn.

    >>> dpsgd(topology="complete").travel.mixing.weights(jnp.ones((4, 4), bool))[0, 1].item()
    0.25
    """
    eta = step_size(step, decay)
    require(
        order in ("combine_first", "adapt_first"),
        f"order must be 'combine_first' or 'adapt_first', got {order!r}",
    )
    rule.check()

    def first(params: Array, place: Place) -> GossipMemory:
        del place
        return GossipMemory(params, move=jnp.zeros_like(params), applied=jnp.zeros_like(params))

    def descend(memory: GossipMemory, grad: Gradient) -> GossipMemory:
        move = -eta(grad.updates, grad.value.dtype) * grad.value
        if order == "adapt_first":
            return memory._replace(params=memory.params + move)
        return memory._replace(move=move)

    def average(memory: GossipMemory, inbox: Inbox) -> GossipMemory:
        mixed = combine(rule, inbox, own=memory.params, own_weight=inbox.own_weight)
        return GossipMemory(
            params=mixed + memory.move,  # [1, Alg. 1, lines 5-6]
            move=jnp.zeros_like(memory.move),
            applied=memory.move,
        )

    built = in_rounds(
        "dpsgd",
        first=first,
        point=lambda memory, *_: memory.params,  # before mixing
        gradient=descend,
        end=average,
        message=lambda memory: memory.params,
        params=lambda memory: memory.params + memory.move,
        mixed=None if order == "adapt_first" else lambda memory: memory.params - memory.applied,
        mixing=graph.mixing(),
        declares=Declares(assumes=frozenset({Assumption.PRESENT}), evenly=True),
    )
    return descent.of(built)
