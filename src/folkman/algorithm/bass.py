"""BASS: gossip over broadcasts that do not collide, some sets of them in each round.

    V = S_1 + ... + S_q          nodes, as sets whose members can broadcast at once: no two of a set
                                 are neighbours, nor have a neighbour in common
    s_l = 1 with probability p_l, drawn for each round;   sum_l p_l = B q
    an edge (i, j) is used in round k if the sets of both i and j broadcast
    W_k = I - a L_k,   x_i <- sum_j W_k,ij (x_j - eta grad F_j(x_j))

One broadcast reaches all neighbours at once, where a matching (MATCHA) uses one link of a node. A
round takes a slot for each set that broadcasts, B q in the mean in place of q.

    p = argmax lambda_2(E[L]),   E[L] = sum_{l < m} p_l p_m L_lm                ours, see below
    a = argmin || E[W^2] - J ||                                (`pieces/sampled_edges.py`)

with L_lm the Laplacian of the edges between S_l and S_m.

A node that has an edge in a round sends S bits once; one without rests.

Assumes that every node answers in the end.

Differs from [1]: as recalled, not verified; only the abstract was at hand. It has sets without
collisions, a budget of slots, and probabilities and weights that make nodes agree fast. That an
edge needs both ends on the air, and that p climbs lambda_2 of the mean Laplacian, is our reading:
|| E[W^2] - J || is not convex in p. The first p is in proportion to the neighbours of a set. The
draws of 256 rounds are used again and again. The time of a round is the network's: on a radio the
engine holds a round until every edge is served.

[1] D. P. Herrera, Z. Chen, E. G. Larsson. Faster Convergence with Less Communication:
    Broadcast-Based Subgraph Sampling for Decentralized Learning over Wireless Networks. 2024.
    arXiv:2401.13779
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.sampled_edges import (
    ROUNDS,
    check_graph,
    over_sampled_edges,
    weight_of,
    within,
)
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.checks import require

__all__ = ["bass", "broadcast_sets", "probabilities"]

BIBTEX = r"""@misc{bass,
  author = {Herrera, Daniel P{\'e}rez and Chen, Zheng and Larsson, Erik G.},
  title = {Faster Convergence with Less Communication: Broadcast-Based Subgraph Sampling for
    Decentralized Learning over Wireless Networks},
  year = {2024},
  eprint = {2401.13779},
  archiveprefix = {arXiv},
}"""

CLIMBS = 400
"""Supergradient steps towards p."""


def broadcast_sets(adjacency: NDArray[np.bool_]) -> NDArray[np.int_]:
    """Return the number of each node's set, (node,): the first in which nobody collides with it.

    >>> broadcast_sets(np.roll(np.eye(6, dtype=bool), 1, 0) | np.roll(np.eye(6, dtype=bool), -1, 0))
    array([0, 1, 2, 0, 1, 2])
    """
    links = adjacency.astype(int)
    apart = (links + links @ links) > 0  # neighbours, and those with one in common
    sets = np.full(len(links), -1)
    for node in range(len(links)):
        taken = set(sets[apart[node] & (np.arange(len(links)) != node)])
        sets[node] = next(each for each in range(len(links)) if each not in taken)
    return sets


def probabilities(
    adjacency: NDArray[np.bool_],
    sets: NDArray[np.int_],  # number of the set of each node, (node,)
    budget: float,
) -> NDArray[np.float64]:
    """Return p, (set,): the best that supergradient steps meet."""
    number = int(sets.max()) + 1
    member = np.equal.outer(np.arange(number), sets).astype(float)  # (set, node)
    p = best = within(member @ adjacency.sum(axis=1).astype(float), budget * number)
    reached = -np.inf
    for climb in range(CLIMBS if budget < 1 else 0):
        used = adjacency * np.outer(p[sets], p[sets])
        values, vectors = np.linalg.eigh(np.diag(used.sum(axis=1)) - used)
        if values[1] > reached:
            best, reached = p, values[1]
        v = vectors[:, 1]
        pull = adjacency * np.subtract.outer(v, v) ** 2
        slope = member @ (pull @ p[sets])  # d v'E[L]v / d p_l
        ahead = slope / max(np.linalg.norm(slope), 1e-12)
        p = within(p + 0.5 / np.sqrt(1 + climb) * ahead, budget * number)
    return best


@lru_cache(maxsize=8)
def _weights(graph: Graph, nodes: int, budget: float) -> NDArray[np.float64]:
    """Return W of each drawn round, (round, rx, tx)."""
    adjacency = np.asarray(graph.adjacency(nodes)) & ~np.eye(nodes, dtype=bool)
    if not adjacency.any():
        return np.eye(nodes)[None]
    sets = broadcast_sets(adjacency)
    p = probabilities(adjacency, sets, budget)
    on = np.random.default_rng(graph.graph_seed).random((ROUNDS, len(p))) < p
    used = adjacency * on[:, sets, None] * on[:, None, sets]
    drawn = np.eye(nodes) * used.sum(axis=2)[:, :, None] - used
    return np.eye(nodes) - weight_of(drawn.mean(axis=0), (drawn @ drawn).mean(axis=0)) * drawn


@method
def bass(
    step: Number = 0.1,
    budget: float = 0.7,
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build BASS with B = `budget`; `graph_seed` is that of its draws too.

    >>> bass(budget=0.5).name
    'bass'
    """
    eta = step_size(step, decay)
    require(
        0 < budget <= 1,
        f"budget is a part of the sets of nodes, above 0 and at most 1, got {budget}",
    )
    check_graph("bass", graph)
    built = over_sampled_edges(
        "bass",
        eta,
        lambda nodes: _weights(graph, nodes, budget),
        verified="as recalled, not verified",
    )
    return descent.of(built)
