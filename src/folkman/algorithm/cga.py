"""CGA: average with the neighbours, and step along a gradient that harms none, in lock-step.

    g_ii = grad F_i(x_i),   g_il = grad F_l(x_i) for each neighbour l (made by l)   [1, Alg. 1]
    g~_i = g_0 + G^T v,   v = argmin_{v >= margin} 1/2 || g_0 + G^T v ||^2          (nnls.py)

    paper      rows of G: g_il, g_0 = g_ii, margin 0
               u_i+ = mu u_i - eta g~_i,   x_i+ = sum_l W_il x_l + u_i+
    released   rows of G: W_il g_il, g_0 = W_ii g_ii, margin 0.5, for each tensor separately
               u_i+ = mu u_i + g~_i,   x_i+ = sum_l W_il x_l - eta (g~_i + mu u_i+)

In the paper's form <g~_i, g_il> >= 0 for all l, and g~_i = g_ii if g_ii does that itself: then
mu = 0 makes it D-PSGD, combine first. An iteration takes 1 + deg_i slots of computing and two
exchanges (cross_gradients.py): x_i, S bits, then the cross gradients for the neighbours, deg_i S
bits. On a broadcast medium I nodes pay I S + sum_i deg_i S, more than gossip and not less; one by
one they pay 2 sum_i deg_i S.

It ends where some positive combination of the nodes' gradients is 0 (Pareto-stationary points), and
that need not be the optimum of F: of two quadratics of one curvature, every point between their
minima is such an end. The bias is the method's own. Weights of nodes do not take it away: g~_i asks
for the signs of <g~_i, g_il> alone, so that a factor on F_l, by which `objective = "samples"`
counts samples, changes nothing but the length of node l's own gradient. It is larger there: with
1, 1, 1, 1, 1, 25 samples on six quadratics F - F* stays at 0.5, where nodes that count alike leave
0.03. The released form bounds the weights from below, so that lengths count for something.

Differs from [1]: the paper's form, its momentum too, is recalled and not verified. "released" is
the form of the authors' code (github.com/yasesf93/CrossGradientAggregation), which gathers the
neighbours' data instead of their gradients: the same numbers, other traffic. Its solver may fail
and then reuses the last v of a tensor; ours is finite. W are Metropolis weights, on the complete
graph and the ring those of the code; its graph with two hubs is left out. Its step of 0.01 falls by
0.981 in each epoch; here `decay` counts iterations. Full-batch gradients unless the problem has
mini-batches. `rule` and `trim`, how the neighbours' models are put together, are ours.

[1] Y. Esfandiari, S. Y. Tan, Z. Jiang, A. Balu, E. Herron, C. Hegde, S. Sarkar. Cross-Gradient
    Aggregation for Decentralized Learning from Non-IID Data. ICML 2021. arXiv:2103.02051
"""

from dataclasses import replace
from sys import float_info
from typing import Literal

from folkman.algorithm.base import RECALLED, Algorithm, Declares, Inbox
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.cross_gradients import CrossGradients, with_cross_gradients
from folkman.algorithm.pieces.nnls import shortest_combination
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.segments import Shapes, segments
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array
from folkman.checks import require, within

__all__ = ["cga"]

BIBTEX = r"""@inproceedings{cga,
  author = {Esfandiari, Yasaman and Tan, Sin Yong and Jiang, Zhanhong and Balu, Aditya and Herron,
    Ethan and Hegde, Chinmay and Sarkar, Soumik},
  title = {Cross-Gradient Aggregation for Decentralized Learning from Non-{IID} Data},
  booktitle = {International Conference on Machine Learning (ICML)},
  year = {2021},
  eprint = {2103.02051},
  archiveprefix = {arXiv},
}"""


@method
def cga(
    step: Number = 0.1,
    # the paper's recursion, or that of the released code
    form: Literal["paper", "released"] = "paper",
    margin: Number | None = None,
    momentum: Number = 0.9,  # mu; the method's own momentum
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shapes: Shapes | None = None,
) -> Algorithm:
    """Build CGA; `margin` None is 0 (paper) or 0.5 (released).

    `shapes` are the tensors of the released form.

    >>> bits = cga(step=0.01, topology="complete").declares.price.bits
    >>> bits(10, 16)[:4]  # a model; cross gradients for 0, 1, 2 neighbours
    (160, 0, 160, 320)
    """
    eta = step_size(step, decay)
    rule.check()
    require(
        form in ("paper", "released"),
        f"form must be 'paper' or 'released', got {form!r}",
    )
    require(
        within(momentum, 0, below=1),
        f"momentum must be in [0, 1), got {momentum}; the authors take 0.9, and 0 is none",
    )
    bound = {"paper": 0.0, "released": 0.5}[form] if margin is None else margin
    require(
        within(bound, 0, float_info.max),
        f"margin must be a finite number of at least 0, got {margin}; the authors' code takes 0.5",
    )

    def mixed_models(memory: CrossGradients, inbox: Inbox) -> Array:
        models = replace(inbox, store=inbox.store[:, : len(memory.params)])
        return combine(rule, models, own=memory.params, own_weight=inbox.own_weight)

    def paper(memory: CrossGradients, inbox: Inbox, rows: Array) -> tuple[Array, Array]:
        eta_t = eta(memory.iterations, rows.dtype)
        shortest = shortest_combination(memory.own, rows, bound)  # g~_i
        speed = momentum * memory.momentum - eta_t * shortest
        return mixed_models(memory, inbox) + speed, speed

    def released(memory: CrossGradients, inbox: Inbox, rows: Array) -> tuple[Array, Array]:
        eta_t = eta(memory.iterations, rows.dtype)
        weighted = inbox.weight[memory.nbr][:, None] * rows
        cuts = segments(shapes, len(memory.params))
        shortest = shortest_combination(inbox.own_weight * memory.own, weighted, bound, cuts)
        speed = momentum * memory.momentum + shortest
        return mixed_models(memory, inbox) - eta_t * (shortest + momentum * speed), speed

    # it stops where the nodes' gradients oppose each other, which need not be the optimum
    biased = Declares(biased=True, evenly=True, verified=RECALLED if form == "paper" else "")
    return with_cross_gradients("cga", graph, paper if form == "paper" else released, biased)
