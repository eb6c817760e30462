"""DSGT: nodes track the mean gradient of all, and step along what they track, in lock-step.

    x_i+ = sum_j W_ij (x_j - eta y_j)                                             [1, eq. (4)-(5)]
    y_i+ = sum_j W_ij y_j + grad F_i(x_i+) - grad F_i(x_i),   y_i(0) = grad F_i(x_i(0))

Rows and columns of W sum to 1, so sum_i y_i = sum_i grad F_i(x_i) in every round: y_i tracks the
mean gradient. Where the models agree and the gradients of all sum to 0, nothing moves. So a
constant step ends at the optimum however unlike the nodes' data are, where D-PSGD stops at a
distance that grows with the step.

On a directed graph such a W need not exist. There the models are averaged with equal parts of all
that a node hears (rows sum to 1), and y_i is pushed in equal parts (columns sum to 1), which keeps
both properties [2]. A round takes one slot of computing and the time of one broadcast of each node,
2 S bits: a model and a tracked gradient.

Differs from [1]: full-batch gradients unless the problem has mini-batches; a round ends when every
edge has been served, so that losses cost time and not exactness. The recursion of [1] is as
recalled, not verified; its combine-then-adapt form, x_i+ = sum_j W_ij x_j - eta y_i, which
github.com/Bluefog-Lib/bluefog has, is left out.

[1] S. Pu, A. Nedic. Distributed Stochastic Gradient Tracking Methods. Mathematical Programming 187,
    2021. arXiv:1805.11454
[2] R. Xin, U. A. Khan. A Linear Algorithm for Optimization over Directed Graphs with Geometric
    Convergence. IEEE Control Systems Letters 2(3), 2018. arXiv:1803.02503
"""

from dataclasses import replace
from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph, even_parts
from folkman.arrays import Array, jnp

__all__ = ["TrackingMemory", "dsgt"]

BIBTEX = r"""@article{dsgt,
  author = {Pu, Shi and Nedic, Angelia},
  title = {Distributed Stochastic Gradient Tracking Methods},
  journal = {Mathematical Programming},
  volume = {187},
  year = {2021},
  eprint = {1805.11454},
  archiveprefix = {arXiv},
}"""


class TrackingMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i; after the gradient x_i - eta y_i
    tracked: Array  # (d,) sum_j W_ij y_j; after the gradient y_i
    grad: Array  # (d,) the gradient of the round before


@method
def dsgt(
    step: Number = 0.1,
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build gradient tracking; a directed graph is mixed by rows and by columns.

    >>> mixing = dsgt(topology="exponential").travel.mixing
    >>> mixing.weights(jnp.ones((4, 4), bool))[:, 0].sum().item()
    1.0
    """
    eta = step_size(step, decay)
    graph.check()
    both = not graph.directed  # rows and columns sum to 1

    def first(params: Array, place: Place) -> TrackingMemory:
        del place
        return TrackingMemory(params, jnp.zeros_like(params), jnp.zeros_like(params))

    def track(memory: TrackingMemory, grad: Gradient) -> TrackingMemory:
        tracked = memory.tracked + grad.value - memory.grad  # [1, eq. (5)]
        moved = memory.params - eta(grad.updates, grad.value.dtype) * tracked
        return TrackingMemory(moved, tracked, grad.value)

    def mix(memory: TrackingMemory, inbox: Inbox) -> TrackingMemory:
        dim = len(memory.params)
        models, tracked = (
            replace(inbox, store=part) for part in jnp.split(inbox.store, [dim], axis=1)
        )
        weights, own = (inbox.weight, inbox.own_weight) if both else even_parts(inbox)
        return TrackingMemory(
            params=own * memory.params + models.mix(weights),  # [1, eq. (4)]
            tracked=inbox.own_weight * memory.tracked + tracked.mix(),
            grad=memory.grad,
        )

    built = in_rounds(
        "dsgt",
        first=first,
        gradient=track,
        end=mix,
        message=lambda memory: jnp.concatenate([memory.params, memory.tracked]),
        params=lambda memory: memory.params,
        mixing=graph.mixing() if both else graph.pushing(),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}),
            exact=True,
            evenly=True,
            verified=RECALLED,
        ),
    )
    return descent.of(built)
