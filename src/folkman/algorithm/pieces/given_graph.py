"""A graph of one's own: from a file, a matrix or a NetworkX graph to one line of text, and back.

    edges: 0-1 1-2 2-0            three nodes on a ring, each edge in both directions
    edges: 0>1 1>2 2>0            the same, directed: node 0 sends to node 1
    edges: 0>1:0.25 1>0:0.5       with weights: node 1 adds 0.25 of what node 0 sends

The text is what a configuration, a run folder and a device hold, so that no file has to travel with
them. Sources:

    FILE.csv, FILE.txt    a line `from,to` or `from,to,weight` per directed edge; a first line of
                          words and lines with # are passed over. A symmetric graph lists both
                          directions
    FILE.npy, FILE.npz    a matrix (rx, tx): row i is whom node i hears. Zeros and ones are edges,
                          other numbers are weights
    in Python             such a matrix, or a NetworkX graph of the nodes 0, 1, 2, ..., with weights
                          if all its edges have the attribute `weight`

Without weights a method takes its own: Metropolis, or equal parts for SGP. With weights a node
keeps what they leave of 1: W_jj = 1 - sum_i W_ij. A matrix may have these on its diagonal.
Every node must reach every other along the edges.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.pieces.topology import strongly_connected
from folkman.checks import require

__all__ = ["FILES", "MARK", "GivenGraph", "as_text", "is_file", "read_text"]

MARK = "edges:"
"""How the text of a graph begins."""
EDGE = re.compile(r"(\d+)([->])(\d+)(?::(\S+))?")
FILES = (".csv", ".txt", ".npy", ".npz")
"""Endings of files that hold a graph."""
MOST_NODES = 100_000

Edges = Mapping[tuple[int, int], float | None]
"""(from, to) -> weight, None for an edge without one."""


class GivenGraph(NamedTuple):
    """A graph of one's own."""

    size: int
    edges: tuple[tuple[int, int, float], ...]  # (from, to, weight), directed; weight 1 if none
    directed: bool
    weighted: bool

    def matrix(self, num_nodes: int) -> NDArray[np.float64]:
        """Return what each node hears of each other, (rx, tx), its own left out."""
        require(
            self.size == num_nodes,
            f"the graph that was given has {self.size} nodes, the run has {num_nodes}; "
            "make them equal",
        )
        found = np.zeros((num_nodes, num_nodes))
        for tx, rx, weight in self.edges:
            found[rx, tx] = weight
        return found

    def weights(self, num_nodes: int) -> NDArray[np.float64]:
        """Return the given weights (rx, tx) with each node's own; columns sum to 1."""
        found = self.matrix(num_nodes)
        return found + np.diag(1.0 - found.sum(axis=0))


def is_file(value: object) -> bool:
    """Tell whether an option names a file that holds a graph."""
    return isinstance(value, str | Path) and str(value).endswith(FILES)


def as_text(source: Any) -> str:
    """Return a graph of one's own as text; a text that is no graph stays as it is.

    >>> as_text(np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
    'edges: 0>1 1>2 2>0'
    """
    if isinstance(source, str) and not is_file(source):
        return _text(_edges_of(source)) if source.startswith(MARK) else source
    if isinstance(source, str | Path):
        return _of_file(Path(source))
    if hasattr(source, "is_directed") and hasattr(source, "edges"):
        return _text(_of_networkx(source))
    try:
        matrix = np.asarray(source)
    except ValueError:
        matrix = np.asarray(None)
    return _text(_of_matrix(matrix, "the graph that was given"))


@lru_cache(maxsize=64)
def read_text(text: str) -> GivenGraph:
    """Return the graph of a text, or refuse it."""
    edges = _edges_of(text)
    size = 1 + max(max(pair) for pair in edges)
    weighted = None not in edges.values()
    ways = tuple((tx, rx, 1.0 if w is None else w) for (tx, rx), w in edges.items())
    directed = any(edges.get((rx, tx), -1.0) != w for (tx, rx), w in edges.items())
    given = GivenGraph(size, ways, directed, weighted)
    matrix = given.matrix(size)
    _check_connected(matrix > 0)
    if weighted:
        _check_weights(matrix)
    return given


def _edges_of(text: str) -> dict[tuple[int, int], float | None]:
    """Return the directed edges of a text."""
    found: list[tuple[int, int, float | None]] = []
    for word in text.removeprefix(MARK).split():
        match = EDGE.fullmatch(word)
        if match is None:
            raise ValueError(
                f"an edge is written 0>1, or 0-1 for both directions, with a weight 0>1:0.25; "
                f"got {word!r}"
            )
        weight = None if match[4] is None else _weight(match[4], word)
        found.append((int(match[1]), int(match[3]), weight))
        if match[2] == "-":
            found.append((int(match[3]), int(match[1]), weight))
    return _collected(found)


def _collected(
    edges: Iterable[tuple[int, int, float | None]],
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
    require(bool(found), "the graph that was given has no edges; give at least one")
    some = [weight is None for weight in found.values()]
    require(
        all(some) or not any(some),
        f"{sum(some)} of {len(some)} edges have no weight; give all of them one, or none",
    )
    return found


def _text(edges: Edges) -> str:
    """Write edges as text, in order, and refuse a graph that no method can use."""

    def word(tx: int, rx: int, sign: str) -> str:
        weight = edges[tx, rx]
        return f"{tx}{sign}{rx}" if weight is None else f"{tx}{sign}{rx}:{weight!r}"

    symmetric = all(edges.get((rx, tx), -1.0) == w for (tx, rx), w in edges.items())
    if symmetric:
        words = [word(tx, rx, "-") for tx, rx in sorted(edges) if tx < rx]
    else:
        words = [word(tx, rx, ">") for tx, rx in sorted(edges)]
    text = " ".join([MARK, *words])
    read_text(text)
    return text


def _of_file(path: Path) -> str:
    """Read a file of edges or a matrix."""
    try:
        if path.suffix in (".npy", ".npz"):
            return _text(_of_matrix(_loaded(path), str(path)))
        return _text(_of_lines(path.read_text(encoding="utf-8"), str(path)))
    except OSError as error:
        raise ValueError(
            f"the graph {path} cannot be read: {error.strerror}; check the path"
        ) from None
    except ValueError as error:
        inside = "" if str(path) in str(error) else f"{path}: "
        raise ValueError(f"{inside}{error}") from None


def _loaded(path: Path) -> NDArray[Any]:
    """Return the only array of a file of NumPy."""
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return found
    with found:
        names = list(found.files)
        require(
            len(names) == 1,
            f"expected one matrix, {path} has {len(names)}: {', '.join(names)}; save one",
        )
        return found[names[0]]


def _of_lines(text: str, where: str) -> Edges:
    """Return the edges of lines `from,to[,weight]`."""
    found: list[tuple[int, int, float | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.split(r"[,;\s]+", line.partition("#")[0].strip().strip(",;"))
        if words == [""] or (not found and words[0][:1].isalpha()):
            continue
        if len(words) not in (2, 3) or not (words[0].isdigit() and words[1].isdigit()):
            raise ValueError(
                f"expected from,to or from,to,weight with nodes numbered from 0, "
                f"{where} has {line.strip()!r} in line {number}"
            )
        weight = _weight(words[2], f"line {number}") if len(words) == 3 else None
        found.append((int(words[0]), int(words[1]), weight))
    return _collected(found)


def _weight(word: str, where: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"a weight must be a number, got {word!r} in {where}") from None


def _of_networkx(graph: Any) -> Edges:
    """Return the edges of a NetworkX graph."""
    require(
        not graph.is_multigraph(),
        "a graph with several edges between two nodes cannot be used; make it a Graph or DiGraph",
    )
    size = graph.number_of_nodes()
    require(
        set(graph.nodes) == set(range(size)),
        f"the nodes of the graph must be 0 to {size - 1}; use "
        "networkx.convert_node_labels_to_integers",
    )
    ways = [(int(tx), int(rx), weight) for tx, rx, weight in graph.edges(data="weight")]
    if not graph.is_directed():
        ways += [(rx, tx, weight) for tx, rx, weight in ways if rx != tx]
    found = _collected((tx, rx, None if w is None else float(w)) for tx, rx, w in ways)
    _check_whole(size, found)
    return found


def _of_matrix(matrix: NDArray[Any], where: str) -> Edges:
    """Return the edges of a matrix (rx, tx)."""
    require(
        matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.dtype.kind in "biuf",
        f"expected a square matrix of numbers, {where} is of {matrix.dtype} with shape "
        f"{list(matrix.shape)}",
    )
    found = matrix.astype(np.float64)
    wrong = found[~(np.isfinite(found) & (found >= 0))]
    require(
        wrong.size == 0,
        f"expected finite weights of at least 0, {where} has {wrong[0] if wrong.size else ''}",
    )
    own = np.diagonal(found).copy()
    np.fill_diagonal(found, 0.0)
    plain = bool(np.isin(found, (0.0, 1.0)).all())
    rest = 1.0 - found.sum(axis=0)
    require(
        not own.any() or (not plain and np.allclose(own, rest, atol=1e-6)),
        "a diagonal must be 0, or what the other weights of its column leave of 1: "
        f"expected {np.round(rest, 4).tolist()[:8]}, got {np.round(own, 4).tolist()[:8]}",
    )
    edges = _collected(
        (int(tx), int(rx), None if plain else float(found[rx, tx]))
        for rx, tx in np.argwhere(found > 0)
    )
    _check_whole(len(matrix), edges)
    return edges


def _check_whole(size: int, edges: Edges) -> None:
    """Refuse nodes without an edge."""
    alone = sorted(set(range(size)) - {node for pair in edges for node in pair})
    require(not alone, f"the nodes {alone[:8]} have no edges; every node must reach every other")


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


def _check_weights(matrix: NDArray[np.float64]) -> None:
    """Refuse weights that leave a node nothing of its own."""
    sums = matrix.sum(axis=0)
    worst = int(np.argmax(sums))
    require(
        bool(sums[worst] < 1.0),
        f"what others take of node {worst} sums to {sums[worst]:.4g}, expected below 1, as the "
        "rest is its own; scale the weights, or leave them out",
    )
