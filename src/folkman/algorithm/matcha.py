"""MATCHA: gossip over some matchings of a graph in each round, the important ones more often.

    G = M_1 + ... + M_m                        the edges, as matchings: no node twice in one
    p = argmax lambda_2(sum_j p_j L_j),   sum_j p_j <= B m,   0 <= p_j <= 1       [1, eq. (5)]
    a = argmin || E[W^2] - J ||
      = argmin || I - 2 a L + a^2 (L^2 + 2 V) - J ||                              [1, Section 4]
        L = sum_j p_j L_j,   V = sum_j p_j (1 - p_j) L_j
    W_k = I - a sum_j b_j L_j,   b_j = 1 with probability p_j, drawn for each round
    x_i <- sum_j W_k,ij (x_j - eta grad F_j(x_j))

L_j is the Laplacian of M_j, J has 1 / I everywhere, and lambda_2 the second least eigenvalue. A
matching takes one exchange, as its pairs do not share a node; so a round takes B m exchanges in the
mean in place of m, while links that hold the graph together are kept. With B = 1 all edges are used
in every round.

A node that has an edge in a round sends S bits; one without rests.

Assumes that every node answers in the end.

Differs from [1]: the graph is split greedily, edge by edge, where the authors' code looks for
perfect matchings first. p is found by supergradient steps and a by a search, where the authors call
a solver. The draws of 256 rounds are used again and again. On a radio the engine holds a round
until every edge is served, whatever shares the band: the time of a round is the network's, not the
number of matchings. Of the same matchings, draws and weight the authors' code
(github.com/JYWa/MATCHA) makes the same models, to 1e-10 in the tests; a is that of its program to
1e-6. No momentum and no weight decay, which it has.

[1] J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar. MATCHA: Speeding Up Decentralized SGD via
    Matching Decomposition Sampling. Indian Control Conference, 2019. arXiv:1905.09435
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import NUMBERS, Algorithm
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

__all__ = ["best_weight", "matcha", "matchings", "probabilities"]

BIBTEX = r"""@inproceedings{matcha,
  author = {Wang, Jianyu and Sahu, Anit Kumar and Yang, Zhouyi and Joshi, Gauri and Kar, Soummya},
  title = {{MATCHA}: Speeding Up Decentralized {SGD} via Matching Decomposition Sampling},
  booktitle = {Indian Control Conference (ICC)},
  year = {2019},
  eprint = {1905.09435},
  archiveprefix = {arXiv},
}"""

CLIMBS = 400
"""Supergradient steps towards p."""


def matchings(adjacency: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the Laplacians of matchings that hold every edge once, (matching, node, node).

    Each edge goes into the first matching that has neither of its nodes.

    >>> len(matchings(~np.eye(4, dtype=bool)))
    3
    """
    nodes = len(adjacency)
    found: list[NDArray[np.float64]] = []
    pairs = sorted(
        ((i, j) for i in range(nodes) for j in range(i + 1, nodes) if adjacency[i, j]),
        key=lambda pair: (pair[1] - pair[0], pair),
    )
    for i, j in pairs:
        free = next((each for each in found if each[i, i] == each[j, j] == 0), None)
        if free is None:
            free = np.zeros((nodes, nodes))
            found.append(free)
        free[i, i] = free[j, j] = 1.0
        free[i, j] = free[j, i] = -1.0
    return np.array(found).reshape(-1, nodes, nodes)


def probabilities(
    parts: NDArray[np.float64],  # Laplacians of the matchings
    budget: float,
) -> NDArray[np.float64]:
    """Return p, (matching,): the best that supergradient steps from equal parts meet."""
    number = len(parts)
    p = best = np.full(number, budget)
    reached = -np.inf
    for climb in range(CLIMBS if budget < 1 else 0):
        values, vectors = np.linalg.eigh(np.einsum("m,mij->ij", p, parts))
        if values[1] > reached:
            best, reached = p, values[1]
        slope = np.einsum("i,mij,j->m", vectors[:, 1], parts, vectors[:, 1])
        ahead = slope / max(np.linalg.norm(slope), 1e-12)
        p = within(p + 0.5 / np.sqrt(1 + climb) * ahead, budget * number)
    return best


def best_weight(
    parts: NDArray[np.float64],  # Laplacians of the matchings
    p: NDArray[np.float64],  # chance of each matching in a round
) -> float:
    """Return a; of a matching L_j^2 = 2 L_j, so that E[L^2] = L^2 + 2 V."""
    mean = np.einsum("m,mij->ij", p, parts)
    spread = np.einsum("m,mij->ij", p * (1 - p), parts)
    return weight_of(mean, mean @ mean + 2 * spread)


@lru_cache(maxsize=8)
def _weights(graph: Graph, nodes: int, budget: float) -> NDArray[np.float64]:
    """Return W of each drawn round, (round, rx, tx)."""
    parts = matchings(np.asarray(graph.adjacency(nodes)))
    if not len(parts):
        return np.eye(nodes)[None]
    p = probabilities(parts, budget)
    drawn = np.random.default_rng(graph.graph_seed).random((ROUNDS, len(parts))) < p
    used = np.einsum("km,mij->kij", drawn.astype(float), parts)
    return np.eye(nodes) - best_weight(parts, p) * used


@method
def matcha(
    step: Number = 0.1,
    budget: float = 0.5,
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build MATCHA with B = `budget`; `graph_seed` is that of its draws too.

    >>> matcha(budget=0.5, topology="complete").name
    'matcha'
    """
    eta = step_size(step, decay)
    require(
        0 < budget <= 1,
        f"budget is a part of the matchings, above 0 and at most 1, got {budget}",
    )
    check_graph("matcha", graph)
    built = over_sampled_edges(
        "matcha", eta, lambda nodes: _weights(graph, nodes, budget), verified=NUMBERS
    )
    return descent.of(built)
