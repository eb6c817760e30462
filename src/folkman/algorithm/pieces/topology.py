"""Who mixes with whom: graphs between peers, and symmetric doubly stochastic weights on them.

    W_ij = 1 / (1 + max(deg_i, deg_j))   on edges,   W_ii = 1 - sum_j W_ij              Metropolis [1]

    complete   everyone with everyone: W = 1/I
    ring       each with the one before and the one after
    star       all with node 0
    regular    a random graph in which every node has `degree` neighbours, the same for a given `graph_seed`
    schedule   whoever hears each other: in the radio's schedule, pairs linked in both directions in this epoch

[1] L. Xiao, S. Boyd. Fast linear iterations for distributed averaging. Systems & Control Letters 53, 2004.
    doi:10.1016/j.sysconle.2004.02.022
"""

from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.base import Mixing
from folkman.checks import need

__all__ = ["Topology", "graph", "metropolis", "mixing"]

Topology: TypeAlias = Literal["complete", "ring", "star", "regular", "schedule"]


def metropolis(adjacency: Array) -> Array:
    """Return the Metropolis weights (node, node) of a symmetric graph without self-loops [1]."""
    degree = jnp.sum(adjacency, axis=1, dtype=jnp.int32)
    edge = jnp.where(adjacency, 1.0 / (1.0 + jnp.maximum(degree[:, None], degree[None])), 0.0)
    return edge + jnp.diag(1.0 - jnp.sum(edge, axis=1))


def graph(
    topology: Topology, num_nodes: int, degree: int = 4, graph_seed: int = 0
) -> NDArray[np.bool_]:
    """Return the adjacency matrix (node, node) of a fixed graph."""
    nodes = np.arange(num_nodes)
    if topology == "complete":
        found = np.ones((num_nodes, num_nodes), bool)
    elif topology == "ring":
        found = np.isin((nodes[:, None] - nodes[None]) % num_nodes, (1, num_nodes - 1))
    elif topology == "star":
        found = (nodes[:, None] == 0) | (nodes[None] == 0)
    elif topology == "regular":
        nx = need("networkx", "networkx")  # no other graph needs it

        if degree >= num_nodes or (degree * num_nodes) % 2:
            raise ValueError(
                f"a graph of {num_nodes} nodes with {degree} neighbours each does not exist; "
                "take a degree below the number of nodes, even if that number is odd"
            )
        found = nx.to_numpy_array(nx.random_regular_graph(degree, num_nodes, seed=graph_seed)) > 0
    else:
        raise ValueError(
            f"topology must be complete, ring, star, regular or schedule, got {topology!r}"
        )
    return found & ~np.eye(num_nodes, dtype=bool)


def mixing(topology: Topology, degree: int = 4, graph_seed: int = 0) -> Mixing:
    """Return the Metropolis weights of a topology, as an algorithm hands them to its engine."""
    if topology == "schedule":
        return Mixing(
            lambda heard: metropolis(heard & heard.T & ~jnp.eye(len(heard), dtype=bool)),
            waits=False,
        )
    graph(
        topology, 2 if topology != "regular" else 2 * degree, degree, graph_seed
    )  # refuse unknown names at once
    return Mixing(
        lambda heard: metropolis(jnp.asarray(graph(topology, len(heard), degree, graph_seed)))
    )
