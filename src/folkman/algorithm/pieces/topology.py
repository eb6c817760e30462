"""Who mixes with whom: graphs between peers, and symmetric doubly stochastic weights on them.

    W_ij = 1 / (1 + max(deg_i, deg_j))   on edges,   W_ii = 1 - sum_j W_ij      Metropolis [1]

    complete   everyone with everyone: W = 1/I
    ring       each with the one before and the one after
    star       all with node 0
    regular    a random graph in which every node has `degree` neighbours, fixed by `graph_seed`
    schedule   pairs that hear each other: in the radio's schedule, both ways in this epoch

[1] L. Xiao, S. Boyd. Fast linear iterations for distributed averaging. Systems & Control Letters
    53, 2004. doi:10.1016/j.sysconle.2004.02.022
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.algorithm.travel import Mixing
from folkman.checks import need

__all__ = ["Graph", "metropolis"]


def metropolis(adjacency: Array) -> Array:
    """Return the Metropolis weights (node, node) of a symmetric graph without self-loops [1]."""
    degree = jnp.sum(adjacency, axis=1, dtype=jnp.int32)
    edge = jnp.where(adjacency, 1.0 / (1.0 + jnp.maximum(degree[:, None], degree[None])), 0.0)
    return edge + jnp.diag(1.0 - jnp.sum(edge, axis=1))


class Graph(NamedTuple):
    """Who mixes with whom; an option of a method, as `topology`, `degree` and `graph_seed`.

    `degree` and `graph_seed` are of the topology 'regular'.
    """

    topology: Literal["complete", "ring", "star", "regular", "schedule"] = "ring"
    degree: int = 4
    graph_seed: int = 0

    @property
    def waits(self) -> bool:
        """Tell whether a round lasts until every edge has been served."""
        return self.topology != "schedule"

    def adjacency(self, num_nodes: int) -> NDArray[np.bool_]:
        """Return the adjacency matrix (node, node) of a fixed graph."""
        nodes = np.arange(num_nodes)
        if self.topology == "complete":
            found = np.ones((num_nodes, num_nodes), bool)
        elif self.topology == "ring":
            found = np.isin((nodes[:, None] - nodes[None]) % num_nodes, (1, num_nodes - 1))
        elif self.topology == "star":
            found = (nodes[:, None] == 0) | (nodes[None] == 0)
        elif self.topology == "regular":
            found = _regular(num_nodes, self.degree, self.graph_seed)
        else:
            raise ValueError(
                f"topology must be complete, ring, star, regular or schedule, got {self.topology!r}"
            )
        return found & ~np.eye(num_nodes, dtype=bool)

    def check(self) -> None:
        """Refuse a graph that does not exist."""
        if self.topology == "regular":
            self.adjacency(2 * self.degree)
        elif self.waits:
            self.adjacency(2)

    def mixing(self) -> Mixing:
        """Return the Metropolis weights, as an algorithm hands them to its engine."""
        self.check()
        if self.waits:
            return Mixing(lambda heard: metropolis(jnp.asarray(self.adjacency(len(heard)))))
        return Mixing(_mutual, waits=False)


def _mutual(heard: Array) -> Array:
    """Return the weights of those who heard each other."""
    return metropolis(heard & heard.T & ~jnp.eye(len(heard), dtype=bool))


def _regular(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    nx = need("networkx", "networkx")  # no other graph needs it
    if degree >= num_nodes or (degree * num_nodes) % 2:
        raise ValueError(
            f"a graph of {num_nodes} nodes with {degree} neighbours each does not exist; "
            "take a degree below the number of nodes, even if that number is odd"
        )
    return nx.to_numpy_array(nx.random_regular_graph(degree, num_nodes, seed=seed)) > 0
