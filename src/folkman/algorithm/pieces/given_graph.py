"""A graph of one's own as one line of text: what it says, and the weights of its rounds.

    edges: 0-1 1-2 2-0            three nodes on a ring, each edge in both directions
    edges: 0>1 1>2 2>0            the same, directed: node 0 sends to node 1
    edges: 0>1:0.25 1>0:0.5       with weights: node 1 adds 0.25 of what node 0 sends
    edges: 0-1 2-3 | 1-2 3-0      two rounds that take turns, each with edges of its own

The text is what a configuration, a run folder and a device hold, so that no file has to travel with
them; `folkman.algorithm.pieces.graph_sources` makes it of files, matrices, graphs and functions.

Without weights a method takes its own: Metropolis, or equal parts for SGP. With weights a node
keeps what they leave of 1: W_jj = 1 - sum_i W_ij. Every node must reach every other along the
edges; where rounds differ, along those of all rounds together. After the last round the first comes
again.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.pieces.topology import strongly_connected
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = [
    "MARK",
    "MOST_ROUNDS",
    "NEXT",
    "Edges",
    "GivenGraph",
    "collected",
    "edges_by_round",
    "is_symmetric",
    "of_round",
    "read_text",
    "read_weight",
    "weights_by_round",
]

MARK = "edges:"
"""How the text of a graph begins."""
EDGE = re.compile(r"(\d+)([->])(\d+)(?::(\S+))?")
NEXT = "|"
"""What stands between the edges of two rounds."""
MOST_NODES = 100_000
MOST_ROUNDS = 1024
"""Rounds that a function is asked for, and that a graph may have."""

Edges = Mapping[tuple[int, int], float | None]
"""(from, to) -> weight, None for an edge without one."""


class GivenGraph(NamedTuple):
    """A graph of one's own."""

    size: int  # number of nodes
    rounds: tuple[tuple[tuple[int, int, float], ...], ...]
    """Of each round the edges (from, to, weight), directed; weight 1 if none."""
    directed: bool  # whether some edge has one direction
    weighted: bool  # whether edges came with weights

    @property
    def varies(self) -> bool:
        """Tell whether each round has its own edges."""
        return len(self.rounds) > 1

    def adjacency(self, num_nodes: int) -> NDArray[np.bool_]:
        """Return who hears whom in any round, (rx, tx)."""
        self._check_size(num_nodes)
        found = np.zeros((num_nodes, num_nodes), bool)
        for edges in self.rounds:
            for tx, rx, _ in edges:
                found[rx, tx] = True
        return found

    def matrices(self, num_nodes: int) -> NDArray[np.float64]:
        """Return what each node hears of each other in each round, (round, rx, tx)."""
        self._check_size(num_nodes)
        found = np.zeros((len(self.rounds), num_nodes, num_nodes))
        for number, edges in enumerate(self.rounds):
            for tx, rx, weight in edges:
                found[number, rx, tx] = weight
        return found

    def _check_size(self, num_nodes: int) -> None:
        require(
            self.size == num_nodes,
            f"the graph that was given has {self.size} nodes, the run has {num_nodes}; "
            "make them equal",
        )

    def weights(self, num_nodes: int) -> NDArray[np.float64]:
        """Return the given weights (round, rx, tx) with each node's own; columns sum to 1."""
        found = self.matrices(num_nodes)
        return found + np.eye(num_nodes) * (1.0 - found.sum(axis=1, keepdims=True))


@lru_cache(maxsize=64)
def read_text(
    text: str,  # the edges as `edges: 0-1 1>2=0.5`, rounds apart
) -> GivenGraph:
    """Return the graph of a text, or refuse it."""
    rounds = edges_by_round(text)
    size = 1 + max(max(pair) for edges in rounds for pair in edges)
    weights = [weight for edges in rounds for weight in edges.values()]
    require(
        None not in weights or not any(weights),
        "some rounds have weights and some have none; give all of them weights, or none",
    )
    ways = [[(tx, rx, w or 1.0) for (tx, rx), w in edges.items()] for edges in rounds]
    directed = not all(map(is_symmetric, rounds))
    given = GivenGraph(size, tuple(map(tuple, ways)), directed, None not in weights)
    _check_connected(given.adjacency(size))
    if given.weighted:
        for edges in given.rounds:
            _check_weights(edges)
    return given


def is_symmetric(
    edges: Edges,  # (from, to) -> weight
) -> bool:
    """Tell whether every edge goes both ways, with one weight."""
    return all(edges.get((rx, tx), -1.0) == w for (tx, rx), w in edges.items())


def edges_by_round(
    text: str,  # the edges as `edges: 0-1 1>2=0.5`, rounds apart
) -> list[Edges]:
    """Return the directed edges of each round of a text."""
    parts = text.removeprefix(MARK).split(NEXT)
    require(
        len(parts) <= MOST_ROUNDS,
        f"a graph has {MOST_ROUNDS} rounds at most, got {len(parts)}; after the last one the first "
        "comes again",
    )
    return [_edges_of(part) for part in parts]


def _edges_of(text: str) -> dict[tuple[int, int], float | None]:
    """Return the directed edges of one round."""
    found: list[tuple[int, int, float | None]] = []
    for word in text.split():
        match = EDGE.fullmatch(word)
        if match is None:
            raise ValueError(
                f"an edge is written 0>1, or 0-1 for both directions, with a weight 0>1:0.25; "
                f"got {word!r}"
            )
        weight = None if match[4] is None else read_weight(match[4], word)
        found.append((int(match[1]), int(match[3]), weight))
        if match[2] == "-":
            found.append((int(match[3]), int(match[1]), weight))
    return collected(found)


def collected(
    edges: Iterable[tuple[int, int, float | None]],  # (from, to, weight), None: no weight
) -> dict[tuple[int, int], float | None]:
    """Return edges by their ends; refuse what is no simple graph."""
    found: dict[tuple[int, int], float | None] = {}
    for tx, rx, weight in edges:
        require(tx != rx, f"node {tx} has an edge to itself; leave it out, its weight is the rest")
        require((tx, rx) not in found, f"the edge from {tx} to {rx} is there twice; keep one")
        require(
            min(tx, rx) >= 0 and max(tx, rx) < MOST_NODES,
            f"nodes are numbered from 0 to below {MOST_NODES}, got an edge from {tx} to {rx}",
        )
        if weight is not None:
            require(
                bool(np.isfinite(weight)) and weight > 0,
                f"a weight must be a finite number above 0, got {weight} from {tx} to {rx}",
            )
        found[tx, rx] = weight
    require(bool(found), "the graph that was given has no edges; give each round at least one")
    some = [weight is None for weight in found.values()]
    require(
        all(some) or not any(some),
        f"{sum(some)} of {len(some)} edges have no weight; give all of them one, or none",
    )
    return found


def read_weight(
    word: str,  # what was written
    where: str,  # the place that an error names
) -> float:
    """Return the weight that a word says."""
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"a weight must be a number, got {word!r} in {where}") from None


def _check_connected(adjacency: NDArray[np.bool_]) -> None:
    both = adjacency | adjacency.T
    require(
        strongly_connected(both),
        "the graph that was given falls into parts; every node must reach every other",
    )
    require(
        strongly_connected(adjacency),
        "the graph that was given is not strongly connected: along its edges some node never "
        "reaches another; add edges until every node reaches every other",
    )


def _check_weights(edges: Iterable[tuple[int, int, float]]) -> None:
    """Refuse weights of a round that leave a node nothing of its own."""
    sums: dict[int, float] = {}
    for tx, _, weight in edges:
        sums[tx] = sums.get(tx, 0.0) + weight
    worst = max(sums, key=lambda tx: sums[tx])
    require(
        sums[worst] < 1.0,
        f"what others take of node {worst} sums to {sums[worst]:.4g}, expected below 1, as the "
        "rest is its own; scale the weights, or leave them out",
    )


def weights_by_round(
    topology: str,
    num_nodes: int,
    weigh: Callable[[Array], Array],  # goes from who hears whom to W, where no weights are given
) -> NDArray[np.floating]:
    """Return W of each round, (round, rx, tx), in JAX's own precision: as given, or by `weigh`."""
    return _by_round(topology, num_nodes, weigh, str(jnp.zeros(()).dtype))


@lru_cache(maxsize=8)
def _by_round(
    topology: str, num_nodes: int, weigh: Callable[[Array], Array], dtype: str
) -> NDArray[np.floating]:
    given = read_text(topology)
    if given.weighted:
        return given.weights(num_nodes).astype(dtype)
    with jax.ensure_compile_time_eval():  # once, and not a part of every program
        return np.asarray(jax.vmap(weigh)(jnp.asarray(given.matrices(num_nodes) > 0)))


def of_round(
    rounds: NDArray[np.floating],  # W of each round, (round, rx, tx)
    number: Array,  # number of the round, from 0
) -> Array:
    """Return W (rx, tx) of a round counted from 0, or of the round of each entry."""
    nodes = jnp.arange(rounds.shape[1])
    return jnp.asarray(rounds)[number % len(rounds), nodes[:, None], nodes[None]]
