"""Very many nodes that draw their samples from one data set, cell by cell.

A `Problem` holds every node's samples; of 100,000 nodes with 100 images of MNIST each those would
be 31 GB, of which 60,000 images are distinct. A `Field` keeps the data set once, on the device that
computes, and lays out the problems of a few cells there when asked.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.data import DataSet
from folkman.problem.problem import Problem, make_problem

__all__ = ["Field", "make_field"]


@dataclass(frozen=True, eq=False)
class Field:
    """Cells of equally many nodes, each with equally many samples of one data set."""

    data: DataSet
    # problem of the first cell, with the model, first parameters and test data of all
    first: Problem
    num_cells: int
    samples: int  # samples of each node
    seed: int

    @property
    def cell_bytes(self) -> int:
        """Return the memory of one cell's samples."""
        return (self.first.x.nbytes + self.first.y.nbytes) if self.num_cells else 0

    @cached_property
    def _pool(self) -> tuple[Array, Array]:
        """Return the samples of the data set, each once."""
        return (
            jnp.asarray(self.data.x_train, self.first.x.dtype),
            jnp.asarray(self.data.y_train, self.first.y.dtype),
        )

    def drawn(self, cells: range) -> NDArray[np.int32]:
        """Return which samples the nodes of some cells hold, (cell, node, sample)."""
        return np.stack([_draw(self, cell) for cell in cells]).astype(np.int32)

    def problem(
        self,
        cells: range,
        drawn: NDArray[np.int32] | None = None,  # samples that were drawn ahead; None: drawn now
    ) -> Problem:
        """Return the problems of some cells as one.

        All that belongs to a node has a leading cell axis. `drawn` are their samples, where these
        have been drawn before.
        """
        nodes = self.first.num_nodes
        drawn = self.drawn(cells) if drawn is None else drawn
        node = nodes * np.asarray(cells)[:, None] + np.arange(nodes)[None]
        x, y = _taken(self._pool, jnp.asarray(drawn))
        return replace(
            self.first,
            x=x,
            y=y,
            count=jnp.full((len(cells), nodes), self.samples, jnp.int32),
            share=jnp.full((len(cells), nodes), 1.0 / nodes, self.first.share.dtype),
            node=jnp.asarray(node, jnp.int32),
            optimum=None,
        )

    def cell(
        self,
        cell: int,  # number of the cell
    ) -> Problem:
        """Return the problem of one cell, for `simulate`."""
        one = self.problem(range(cell, cell + 1))
        own = {name: getattr(one, name)[0] for name in ("x", "y", "count", "share", "node")}
        return replace(one, **own)


@jax.jit
def _taken(pool: tuple[Array, Array], drawn: Array) -> tuple[Array, Array]:
    x, y = (part.at[drawn].get(mode="promise_in_bounds") for part in pool)
    return x, y


def make_field(
    data: DataSet,
    model: str,  # name of a dense model, one of `MODELS`
    *,
    cells: int,  # number of cells
    nodes: int,  # number of nodes in each cell
    samples: int,  # samples of each node
    batch: int | None = None,
    l2: float = 0.0,
    seed: int = 0,
) -> Field:
    """Give each node of each cell `samples` samples of `data`, no two alike within a node.

    There are `nodes` nodes in each of `cells` cells.

    >>> from folkman.problem.data import digits
    >>> field = make_field(digits(), "softmax", cells=1000, nodes=20, samples=50)
    >>> field.problem(range(2)).x.shape[:3]
    (2, 20, 50)
    """
    require(
        cells >= 1 and nodes >= 1,
        f"a field needs a cell and a node at least, got {cells} and {nodes}",
    )
    require(
        1 <= samples <= len(data.x_train),
        f"a node can hold 1 to {len(data.x_train)} samples of '{data.name}', got {samples}; "
        "each is drawn once a node",
    )
    parts = [_node_draw(len(data.x_train), samples, seed, node) for node in range(nodes)]
    first = make_problem(data, model, parts, batch=batch, l2=l2, seed=seed)
    require(
        not first.model.convolutional,
        "a field is for dense models, got a convolutional one; use softmax or mlp",
    )
    return Field(data, first, cells, samples, seed)


def _draw(field: Field, cell: int) -> np.ndarray:
    nodes = field.first.num_nodes
    size = len(field.data.x_train)
    return np.stack(
        [_node_draw(size, field.samples, field.seed, cell * nodes + i) for i in range(nodes)]
    )


def _node_draw(size: int, samples: int, seed: int, node: int) -> np.ndarray:
    return np.random.default_rng([seed, node]).choice(size, samples, replace=False)
