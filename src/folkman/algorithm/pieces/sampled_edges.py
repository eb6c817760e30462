"""Gossip over edges that are drawn in each round: W_k = I - a L_k, on draws that all nodes know.

    a = argmin || E[W^2] - J || = argmin || I - 2 a E[L] + a^2 E[L^2] - J ||

L_k is the Laplacian of the edges of round k, and J has 1 / I everywhere. The norm says how fast
nodes agree: the mean squared disagreement falls by it in a round.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.pieces.given_graph import of_round
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import StepSize
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Mixing
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["ROUNDS", "SampledMemory", "check_graph", "over_sampled_edges", "weight_of", "within"]

ROUNDS = 256
"""Rounds whose draws are made; round 256 has those of round 0."""


class SampledMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i


def check_graph(name: str, graph: Graph) -> None:
    """Refuse a graph without edges of its own to draw from."""
    graph.check()
    require(
        not graph.varies and not graph.directed and graph.waits,
        f"{name} draws from the edges of one graph, and {graph.topology!r} is none that stays; "
        "take ring, complete or edges of your own",
    )


def within(
    p: NDArray[np.float64],  # chances, one of each part
    total: float,  # the most that they may sum to
) -> NDArray[np.float64]:
    """Return the point nearest to p with entries in [0, 1] that sum to `total`, or to less.

    >>> within(np.array([0.9, 0.9, 0.0]), 1.0).round(3).tolist()
    [0.5, 0.5, 0.0]
    """
    low, high = p.min() - 1.0, p.max()
    for _ in range(60):
        middle = 0.5 * (low + high)
        over = np.clip(p - middle, 0.0, 1.0).sum() > total
        low, high = (middle, high) if over else (low, middle)
    return np.clip(p - high, 0.0, 1.0)


def weight_of(
    mean: NDArray[np.float64],  # E[L], the mean Laplacian
    square: NDArray[np.float64],  # E[L^2]
) -> float:
    """Return a from E[L] and E[L^2]: the norm is convex in a, and found by golden section."""
    nodes = len(mean)
    rest = np.eye(nodes) - np.full((nodes, nodes), 1 / nodes)

    def norm(a: float) -> float:
        return float(np.linalg.eigvalsh(rest - 2 * a * mean + a * a * square)[-1])

    low, high, golden = 0.0, 1.0, (np.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if norm(left) < norm(right) else (left, high)
    return 0.5 * (low + high)


def over_sampled_edges(
    name: str,
    eta: StepSize,
    weights: Callable[[int], NDArray[np.float64]],  # number of nodes -> W of each drawn round
    verified: str,  # what the method was compared with
) -> Algorithm:
    """Build x_i <- sum_j W_k,ij (x_j - eta grad F_j(x_j)) in lock-step.

    `weights(nodes)` are W of each drawn round, (round, rx, tx), the same at all nodes.
    """

    def first(params: Array, place: Place) -> SampledMemory:
        del place
        return SampledMemory(params)

    def descend(memory: SampledMemory, grad: Gradient) -> SampledMemory:
        return SampledMemory(memory.params - eta(grad.updates, grad.value.dtype) * grad.value)

    def average(memory: SampledMemory, inbox: Inbox) -> SampledMemory:
        return SampledMemory(inbox.own_weight * memory.params + inbox.mix())

    return in_rounds(
        name,
        first=first,
        gradient=descend,
        end=average,
        message=lambda memory: memory.params,
        params=lambda memory: memory.params,
        mixing=Mixing(
            lambda heard: jnp.asarray(weights(len(heard)).mean(axis=0)),
            in_round=lambda nodes, number: of_round(weights(nodes), number),
        ),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}), draws=True, evenly=True, verified=verified
        ),
    )
