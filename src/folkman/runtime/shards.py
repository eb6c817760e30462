"""A node's own samples, as its problem or a guest's.

Written by whoever splits the data, read by the node.
"""

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.config.build import model_problem
from folkman.config.comparison import Comparison
from folkman.files import write_whole
from folkman.problem.data import DataSet
from folkman.problem.learnable import Learnable
from folkman.problem.sampling import Sampling
from folkman.runtime.disk import for_owner

if TYPE_CHECKING:
    from folkman.problem.problem import Problem

__all__ = ["classes_of", "load_guest", "load_shard", "save_shard"]


def save_shard(path: Path, problem: "Problem", node: int | None, num_classes: int) -> None:
    """Write the samples of one node, for its owner's eyes alone.

    Of None, a server, write the shape of a sample and no more.
    """
    if node is None:
        x, y = (np.zeros((1, *each.shape[2:]), each.dtype) for each in (problem.x, problem.y))
    else:
        count = int(problem.count[node])
        x, y = np.asarray(problem.x[node, :count]), np.asarray(problem.y[node, :count])

    def write(part: Path) -> None:
        with open(part, "wb", opener=for_owner) as file:
            np.savez_compressed(file, x=x, y=y, classes=np.array(num_classes))

    write_whole(path, write)


def classes_of(problem: "Problem") -> int:
    """Return the number of classes of a problem with labels, 0 of one with numbers."""
    labels = [np.asarray(y) for y in (problem.y, problem.y_test)]
    known = np.issubdtype(labels[0].dtype, np.integer)
    return 1 + max(int(y.max(initial=0)) for y in labels) if known else 0


def load_shard(path: Path, comparison: Comparison, seed: int) -> "Problem":
    """Build the problem of one node from its own samples.

    The common first model comes from the seed.
    """
    x, y, classes = _read_shard(path)
    data = DataSet(path.stem, x, y, x[:0], y[:0], classes)
    return model_problem(comparison, data, [np.arange(len(x))], seed)


def load_guest(
    path: Path, shard: Path, batch: int | None, seed: int, *, sampling: Sampling = "replacement"
) -> Learnable:
    """Build the problem of a PyTorch guest: `guest()` of its file returns the module and the loss.

    The seed is set before, so that all nodes begin with the same model; the model of the
    configuration is not used.
    """
    from folkman.torch import import_torch, problem

    require(path.is_file(), f"expected a guest's Python file, there is no {path}; name it as guest")
    torch = import_torch()
    x, y, _ = _read_shard(shard)
    space = runpy.run_path(str(path))
    require(
        callable(space.get("guest")),
        f"expected a function guest() in {path} that returns a module and its loss",
    )
    torch.manual_seed(seed)
    module, loss = space["guest"]()
    labels = torch.from_numpy(y)
    labels = labels.long() if np.issubdtype(y.dtype, np.integer) else labels
    own = [(torch.from_numpy(x), labels)]
    return problem(module, loss, own, batch=batch, name=path.stem, sampling=sampling)


def _read_shard(path: Path) -> tuple[NDArray, NDArray, int]:
    require(
        path.is_file(), f"expected the node's samples, there is no {path}; name its .npz as shard"
    )
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["x"], file["y"], int(file["classes"])
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"expected x, y and classes in {path}: {error}") from None
