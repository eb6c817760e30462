"""From a file, a matrix, a NetworkX graph or a function of the round to the text of a graph.

    FILE.csv, FILE.txt    a line `from,to` or `from,to,weight` per directed edge; a first line of
                          words and lines with # are passed over. A symmetric graph lists both
                          directions. A line | begins the next round
    FILE.npy, FILE.npz    a matrix (rx, tx): row i is whom node i hears. Zeros and ones are edges,
                          other numbers are weights. Three axes (round, rx, tx) are rounds
    in Python             such a matrix, or a NetworkX graph of the nodes 0, 1, 2, ..., with weights
                          if all its edges have the attribute `weight`; a list of these, one a
                          round; or a function of the round, counted from 0, that returns one

A matrix of weights may have on its diagonal what the others of a column leave of 1. A function is
asked for 1,024 rounds, of which the shortest part that repeats itself is kept.
`folkman.algorithm.pieces.given_graph` says what the text means.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.pieces.given_graph import (
    MARK,
    MOST_ROUNDS,
    NEXT,
    Edges,
    collected,
    edges_by_round,
    is_symmetric,
    read_text,
    read_weight,
)
from folkman.checks import require

__all__ = ["FILES", "as_text", "is_file"]

FILES = (".csv", ".txt", ".npy", ".npz")
"""Endings of files that hold a graph."""


def is_file(value: object) -> bool:
    """Tell whether an option names a file that holds a graph."""
    return isinstance(value, str | Path) and str(value).endswith(FILES)


def as_text(source: Any) -> str:
    """Return a graph of one's own as text; a text that is no graph stays as it is.

    >>> as_text(np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))
    'edges: 0>1 1>2 2>0'
    """
    if isinstance(source, str) and not is_file(source):
        return _text(edges_by_round(source)) if source.startswith(MARK) else source
    if isinstance(source, str | Path):
        return _of_file(Path(source))
    return _whole(_in_python(source))


def _in_python(source: Any) -> list[tuple[int, Edges]]:
    """Return the number of nodes and the edges of each round."""
    if _is_networkx(source):
        return [_of_networkx(source)]
    if callable(source):
        return _repeated(_asked(source))
    if isinstance(source, list | tuple) and source and all(map(_is_networkx, source)):
        return [_of_networkx(graph) for graph in source]
    try:
        found = np.asarray(source)
    except ValueError:
        found = np.asarray(None)
    return _of_array(found, "the graph that was given")


def _is_networkx(source: Any) -> bool:
    return hasattr(source, "is_directed") and hasattr(source, "edges")


def _asked(rounds: Callable[[int], Any]) -> list[tuple[int, Edges]]:
    """Return what a function says of each round."""
    found: list[tuple[int, Edges]] = []
    for number in range(MOST_ROUNDS):
        one = [] if callable(answer := rounds(number)) else _in_python(answer)
        require(
            len(one) == 1,
            f"a function of the round must return one matrix or one NetworkX graph, for round "
            f"{number} it returned {type(answer).__name__}",
        )
        found += one
    return found


def _repeated(rounds: list[tuple[int, Edges]]) -> list[tuple[int, Edges]]:
    """Return the first rounds, if all others repeat them; else all."""
    for length in range(1, len(rounds) // 2 + 1):
        if rounds[length:] == rounds[:-length]:
            return rounds[:length]
    return rounds


def _text(rounds: Sequence[Edges]) -> str:
    """Write edges as text, in order, and refuse a graph that no method can use."""

    def word(edges: Edges, tx: int, rx: int, sign: str) -> str:
        weight = edges[tx, rx]
        return f"{tx}{sign}{rx}" if weight is None else f"{tx}{sign}{rx}:{weight!r}"

    def words(edges: Edges) -> str:
        if is_symmetric(edges):
            found = [word(edges, tx, rx, "-") for tx, rx in sorted(edges) if tx < rx]
        else:
            found = [word(edges, tx, rx, ">") for tx, rx in sorted(edges)]
        return " ".join(found)

    text = f"{MARK} " + f" {NEXT} ".join(map(words, rounds))
    read_text(text)
    return text


def _whole(rounds: Sequence[tuple[int, Edges]]) -> str:
    """Write rounds of known sizes as text; refuse unlike sizes and nodes without an edge."""
    sizes = [size for size, _ in rounds]
    require(
        len(set(sizes)) == 1,
        f"the rounds of a graph must have the same nodes, got {min(sizes)} and {max(sizes)} of "
        "them; make the graphs equally large",
    )
    joined = {node for _, edges in rounds for pair in edges for node in pair}
    alone = sorted(set(range(sizes[0])) - joined)
    require(not alone, f"the nodes {alone[:8]} have no edges; every node must reach every other")
    return _text([edges for _, edges in rounds])


def _of_file(path: Path) -> str:
    """Read a file of edges or a matrix."""
    try:
        if path.suffix in (".npy", ".npz"):
            return _whole(_of_array(_loaded(path), str(path)))
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


def _of_lines(text: str, where: str) -> list[Edges]:
    """Return the edges of lines `from,to[,weight]`, round by round."""
    rounds: list[list[tuple[int, int, float | None]]] = [[]]
    for number, line in enumerate(text.splitlines(), 1):
        words = re.split(r"[,;\s]+", line.partition("#")[0].strip().strip(",;"))
        if words == [""] or (rounds == [[]] and words[0][:1].isalpha()):
            continue
        if words == [NEXT]:
            rounds.append([])
            continue
        if len(words) not in (2, 3) or not (words[0].isdigit() and words[1].isdigit()):
            raise ValueError(
                f"expected from,to or from,to,weight with nodes numbered from 0, "
                f"{where} has {line.strip()!r} in line {number}"
            )
        weight = read_weight(words[2], f"line {number}") if len(words) == 3 else None
        rounds[-1].append((int(words[0]), int(words[1]), weight))
    return [collected(found) for found in rounds]


def _of_networkx(graph: Any) -> tuple[int, Edges]:
    """Return the number of nodes and the edges of a NetworkX graph."""
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
    return size, collected((tx, rx, None if w is None else float(w)) for tx, rx, w in ways)


def _of_array(array: NDArray[Any], where: str) -> list[tuple[int, Edges]]:
    """Return the number of nodes and the edges of a matrix (rx, tx), or of one a round."""
    matrices = list(array) if array.ndim == 3 and len(array) else [array]
    return [_of_matrix(matrix, where) for matrix in matrices]


def _of_matrix(matrix: NDArray[Any], where: str) -> tuple[int, Edges]:
    """Return the number of nodes and the edges of a matrix (rx, tx)."""
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
    return len(found), collected(
        (int(tx), int(rx), None if plain else float(found[rx, tx]))
        for rx, tx in np.argwhere(found > 0)
    )
