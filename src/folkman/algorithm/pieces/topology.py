"""Who mixes with whom: graphs between peers, and the weights on them.

    W_ij = 1 / (1 + max(deg_i, deg_j))   on edges,   W_ii = 1 - sum_j W_ij      Metropolis [1]
    p_ij = 1 / (out_j + 1)               on edges and for i = j                 push [2]

Metropolis weights are symmetric and doubly stochastic; they need a graph in which whoever hears a
node is heard by it. The columns of push weights sum to 1, on any directed graph; SGP mixes by them.
`GRAPHS` has all names. `degree` and `graph_seed` are of the graphs that are drawn.

A graph of one's own is a file, `topology = "mine.csv"`, or a text, `topology = "edges: 0>1 1>0"`
(`folkman.algorithm.pieces.graph_sources`); in Python also a NetworkX graph, a NumPy matrix, a list
of these, one a round, or a function of the round.

[1] L. Xiao, S. Boyd. Fast linear iterations for distributed averaging. Systems & Control Letters
    53, 2004. doi:10.1016/j.sysconle.2004.02.022
[2] M. Assran, N. Loizou, N. Ballas, M. Rabbat. Stochastic Gradient Push for Distributed Deep
    Learning. ICML 2019. arXiv:1811.10792
[3] B. Ying, K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin. Exponential Graph is Provably Efficient for
    Decentralized Deep Training. NeurIPS 2021. arXiv:2110.13363
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.travel import Mixing
from folkman.arrays import Array, jnp
from folkman.checks import nearest, need, require

if TYPE_CHECKING:
    from folkman.algorithm.base import Inbox
    from folkman.algorithm.pieces.given_graph import GivenGraph

__all__ = ["GRAPHS", "Graph", "Kind", "even_parts", "metropolis", "push_weights"]
__all__ += ["strongly_connected"]

DRAWS = 1000
"""Graphs that are drawn at most until one is connected."""
MATCHINGS = 1024
"""Rounds of random pairs that are drawn; then the first comes again."""


class Kind(NamedTuple):
    """What a graph is."""

    text: str  # what `folkman graphs` says of it
    directed: bool = False  # may a node be heard by one that it does not hear?
    varies: bool = False  # has each round its own edges?


GRAPHS: dict[str, Kind] = {
    "complete": Kind("everyone with everyone: W = 1/I"),
    "ring": Kind("each node with the one before and the one after"),
    "star": Kind("all nodes with node 0"),
    "regular": Kind("a random graph in which every node has `degree` neighbours"),
    "erdos_renyi": Kind(
        "each pair is joined with the chance degree / (I - 1), drawn until connected"
    ),
    "directed_ring": Kind("each node sends to the one after it", directed=True),
    "exponential": Kind(
        "node i sends to i + 1, i + 2, i + 4, ... modulo I, all in each round [3]", directed=True
    ),
    "random_out": Kind(
        "each node sends to `degree` random others, drawn until strongly connected", directed=True
    ),
    "one_peer_exponential": Kind(
        "in round t node i sends to i + 2^(t mod log2 I) alone; all agree after log2 I rounds if "
        "I is a power of 2 [3]",
        directed=True,
        varies=True,
    ),
    "matching": Kind(
        "in each round random pairs; with an odd number of nodes one of them rests", varies=True
    ),
    "schedule": Kind(
        "pairs that hear each other: in the radio's schedule, both ways in this epoch"
    ),
}
"""Name of a graph -> what it is."""


def metropolis(adjacency: Array) -> Array:
    """Return the Metropolis weights (node, node) of a symmetric graph without self-loops [1]."""
    degree = jnp.sum(adjacency, axis=1, dtype=jnp.int32)
    edge = jnp.where(adjacency, 1.0 / (1.0 + jnp.maximum(degree[:, None], degree[None])), 0.0)
    return edge + jnp.diag(1.0 - jnp.sum(edge, axis=1))


def push_weights(adjacency: Array) -> Array:
    """Return p (rx, tx), columns summing to 1, of a directed graph (rx, tx) [2]."""
    linked = adjacency | jnp.eye(len(adjacency), dtype=bool)
    return linked / jnp.sum(linked, axis=0, keepdims=True)


def even_parts(inbox: "Inbox") -> tuple[Array, Array]:
    """Return weights (nbr,) and an own weight that are equal for all whom a node hears."""
    hears = inbox.weight > 0
    own = 1.0 / (1.0 + jnp.sum(hears, dtype=jnp.int32)).astype(inbox.weight.dtype)
    return jnp.where(hears, own, 0.0), own


def strongly_connected(adjacency: NDArray[np.bool_]) -> bool:
    """Tell whether every node reaches every other along the edges of a graph (rx, tx)."""
    return bool(_reached(adjacency).all() and _reached(adjacency.T).all())


def _reached(adjacency: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whom node 0 reaches, (node,)."""
    seen = np.arange(len(adjacency)) == 0
    while True:
        more = seen | adjacency[:, seen].any(axis=1)
        if (more == seen).all():
            return seen
        seen = more


class Graph(NamedTuple):
    """Who mixes with whom; an option of a method, as `topology`, `degree` and `graph_seed`.

    `topology` is a name of `GRAPHS`, or a graph of one's own.

    >>> Graph("directed_ring").adjacency(3).astype(int).tolist()
    [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    >>> Graph("edges: 0-1 1-2").adjacency(3).astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """

    topology: str = "ring"
    degree: int = 4  # neighbours of a node, where the graph is drawn
    graph_seed: int = 0  # seed of a graph that is drawn

    @staticmethod
    def settled(
        options: dict[str, object],  # `topology`, `degree` and `graph_seed` as they were given
    ) -> dict[str, object]:
        """Return the options with a graph of one's own as text, so that they are values."""
        found = options["topology"]
        if isinstance(found, str) and found in GRAPHS:
            return options
        from folkman.algorithm.pieces.graph_sources import as_text  # here: few are one's own

        return {**options, "topology": as_text(found)}

    @property
    def waits(self) -> bool:
        """Tell whether a round lasts until every edge has been served."""
        return self.topology != "schedule"

    @property
    def varies(self) -> bool:
        """Tell whether each round has its own edges."""
        given = self._given()
        return GRAPHS[self.topology].varies if given is None else given.varies

    @property
    def directed(self) -> bool:
        """Tell whether a node may be heard by one that it does not hear."""
        given = self._given()
        return GRAPHS[self.topology].directed if given is None else given.directed

    @property
    def weighted(self) -> bool:
        """Tell whether the weights were given with the edges."""
        given = self._given()
        return given is not None and given.weighted

    @property
    def pushes_evenly(self) -> bool:
        """Tell whether a node always sends equal parts to the same others."""
        return self.waits and not self.varies and not self.weighted

    def adjacency(self, num_nodes: int) -> NDArray[np.bool_]:
        """Return who hears whom, (rx, tx); where the graph varies, in any round."""
        given = self._given()
        if given is not None:
            return given.adjacency(num_nodes)
        if self.varies:
            found = np.zeros((num_nodes, num_nodes), bool)
            found[np.arange(num_nodes), self._peers(num_nodes)] = True
        else:
            require(
                self.topology in FIXED,
                f"the topology {self.topology!r} has no edges before a run; take a fixed one",
            )
            found = FIXED[self.topology](num_nodes, self.degree, self.graph_seed)
        return found & ~np.eye(num_nodes, dtype=bool)

    def check(self) -> None:
        """Refuse a graph that does not exist."""
        self._given()
        require(self.degree >= 1, f"degree must be at least 1, got {self.degree}")
        if self.topology == "regular":
            self.adjacency(2 * self.degree)

    def check_fixed(self, name: str) -> None:
        """Refuse a graph that is not the same in all rounds, or not symmetric."""
        self.check()
        require(
            not self.varies,
            f"{name} needs neighbours that stay, got the topology {self._title()}, whose rounds "
            "have their own edges; take complete, ring or another",
        )
        self._check_symmetric()

    def mixing(self) -> Mixing:
        """Return symmetric, doubly stochastic weights, as an algorithm hands them to its engine.

        They are Metropolis weights, or those given with the edges.
        """
        self.check()
        self._check_symmetric()
        if not self.waits:
            return Mixing(_mutual, waits=False)
        return self._mixing(metropolis)

    def pushing(self) -> Mixing:
        """Return weights whose columns sum to 1: equal parts, or those given with the edges."""
        self.check()
        return self._mixing(push_weights) if self.waits else Mixing(push_weights, waits=False)

    def _mixing(self, weigh: Callable[[Array], Array]) -> Mixing:
        given = self._given()
        if given is not None and given.varies:
            return _taking_turns(self.topology, weigh)
        if given is not None and given.weighted:
            return Mixing(lambda heard: jnp.asarray(given.weights(len(heard))[0]))
        if not self.varies:
            return Mixing(lambda heard: weigh(jnp.asarray(self.adjacency(len(heard)))))
        return Mixing(
            lambda heard: jnp.asarray(_mean_weights(self._peers(len(heard)))),
            in_round=lambda nodes, number: _halves(self._peers(nodes), number),
        )

    def _check_symmetric(self) -> None:
        require(
            not self.directed,
            f"the topology {self._title()} is directed, and this method needs one in which "
            "whoever hears a node is heard by it; take another, or the method sgp",
        )

    def _given(self) -> "GivenGraph | None":
        """Return the graph of one's own, None for a name."""
        if self.topology in GRAPHS:
            return None
        from folkman.algorithm.pieces.given_graph import MARK, read_text

        require(
            self.topology.startswith(MARK),
            f"topology must be a name, a file of edges (.csv, .txt) or a matrix (.npy, .npz), "
            f"got {self.topology!r}; {nearest(self.topology, GRAPHS)}",
        )
        return read_text(self.topology)

    def _title(self) -> str:
        return repr(self.topology) if self.topology in GRAPHS else "that was given"

    def _peers(self, num_nodes: int) -> NDArray[np.int32]:
        """Return whom each node hears in each round of a graph that varies, (round, rx)."""
        return _peers(self.topology, num_nodes, self.graph_seed)


def _mutual(heard: Array) -> Array:
    """Return the weights of those who heard each other."""
    return metropolis(heard & heard.T & ~jnp.eye(len(heard), dtype=bool))


def _taking_turns(topology: str, weigh: Callable[[Array], Array]) -> Mixing:
    """Return the weights of a graph of one's own whose rounds have their own edges."""
    from folkman.algorithm.pieces.given_graph import of_round, weights_by_round

    return Mixing(
        lambda heard: jnp.asarray(weights_by_round(topology, len(heard), weigh).mean(axis=0)),
        in_round=lambda nodes, number: of_round(weights_by_round(topology, nodes, weigh), number),
    )


def _halves(peers: NDArray[np.int32], number: Array) -> Array:
    """Return W (rx, tx) of a round in which node i hears peers[round, i] alone, or nobody: itself.

    `number` is the round, or an array that broadcasts with (rx, tx). W = (1 + P) / 2 for a
    permutation P, so both rows and columns sum to 1.
    """
    nodes = jnp.arange(peers.shape[1])
    peer = jnp.asarray(peers)[number % len(peers), nodes[:, None]]
    return 0.5 * (peer == nodes[None]) + 0.5 * (nodes[:, None] == nodes[None])


def _mean_weights(peers: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the mean of W over the rounds: positive where two ever meet."""
    nodes = np.arange(peers.shape[1])
    met = np.zeros((len(nodes), len(nodes)))
    for row in peers:
        met[nodes, row] += 1.0
    return 0.5 * (met / len(peers) + np.eye(len(nodes)))


@lru_cache(maxsize=8)
def _peers(topology: str, num_nodes: int, seed: int) -> NDArray[np.int32]:
    """Return whom each node hears in each round, (round, rx), itself for nobody."""
    nodes = np.arange(num_nodes)
    if topology == "one_peer_exponential":
        found = [(nodes - hop) % num_nodes for hop in _hops(num_nodes)] or [nodes]
    else:
        found = list(_matchings(num_nodes, np.random.default_rng(seed)))
    return np.asarray(found, np.int32)


def _matchings(num_nodes: int, rng: np.random.Generator) -> Iterator[NDArray[np.int_]]:
    for _ in range(MATCHINGS):
        order = rng.permutation(num_nodes)
        pairs = order[: num_nodes // 2 * 2].reshape(-1, 2)
        peer = np.arange(num_nodes)
        peer[pairs] = pairs[:, ::-1]
        yield peer


def _hops(num_nodes: int) -> list[int]:
    """Return 1, 2, 4, ... below the number of nodes."""
    return [1 << k for k in range((num_nodes - 1).bit_length())]


def _complete(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    del degree, seed
    return np.ones((num_nodes, num_nodes), bool)


def _ring(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    del degree, seed
    return np.isin(_ahead(num_nodes), (1, num_nodes - 1))


def _star(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    del degree, seed
    nodes = np.arange(num_nodes)
    return (nodes[:, None] == 0) | (nodes[None] == 0)


def _directed_ring(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    del degree, seed
    return _ahead(num_nodes) == 1


def _exponential(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    del degree, seed
    return np.isin(_ahead(num_nodes), _hops(num_nodes))


def _regular(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    nx = need("networkx", "networkx")  # no other graph needs it
    if degree >= num_nodes or (degree * num_nodes) % 2:
        raise ValueError(
            f"a graph of {num_nodes} nodes with {degree} neighbours each does not exist; "
            "take a degree below the number of nodes, even if that number is odd"
        )
    return nx.to_numpy_array(nx.random_regular_graph(degree, num_nodes, seed=seed)) > 0


def _erdos_renyi(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    def draw(rng: np.random.Generator) -> NDArray[np.bool_]:
        chance = degree / max(num_nodes - 1, 1)
        half = np.triu(rng.random((num_nodes, num_nodes)) < chance, 1)
        return half | half.T

    return _connected("erdos_renyi", num_nodes, degree, seed, draw)


def _random_out(num_nodes: int, degree: int, seed: int) -> NDArray[np.bool_]:
    def draw(rng: np.random.Generator) -> NDArray[np.bool_]:
        lots = rng.random((num_nodes, num_nodes))
        np.fill_diagonal(lots, np.inf)
        return np.argsort(np.argsort(lots, axis=0), axis=0) < degree  # of each column the lowest

    return _connected("random_out", num_nodes, degree, seed, draw)


FIXED: dict[str, Callable[[int, int, int], NDArray[np.bool_]]] = {
    "complete": _complete,
    "ring": _ring,
    "star": _star,
    "regular": _regular,
    "erdos_renyi": _erdos_renyi,
    "directed_ring": _directed_ring,
    "exponential": _exponential,
    "random_out": _random_out,
}
"""(number of nodes, degree, seed) -> who hears whom, (rx, tx); the diagonal means nothing."""


def _ahead(num_nodes: int) -> NDArray[np.int_]:
    """Return how many numbers the receiver is ahead of the sender on a circle, (rx, tx)."""
    nodes = np.arange(num_nodes)
    return (nodes[:, None] - nodes[None]) % num_nodes


def _connected(
    name: str,
    num_nodes: int,
    degree: int,
    seed: int,
    draw: Callable[[np.random.Generator], NDArray[np.bool_]],
) -> NDArray[np.bool_]:
    """Draw until every node reaches every other."""
    require(
        degree < num_nodes or num_nodes == 1,
        f"{name} of {num_nodes} nodes needs a degree below their number, got {degree}; "
        "take a smaller one",
    )
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        found = draw(rng)
        if strongly_connected(found):
            return found
    raise ValueError(
        f"{name}: none of {DRAWS} graphs of {num_nodes} nodes with degree {degree} was connected; "
        "take a larger degree"
    )
