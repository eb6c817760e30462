"""The arrays of a task, the same for all sides: `python -m benchmarks.arrays FOLDER`.

Samples are those of the configuration that a task is made of. Else they are drawn: ten prototypes
with noise, of MNIST's shape and range. Up to the size of the pool no two nodes share a sample. The
first model and the mini-batches are those that folkman draws under the task's seed, so that every
side that can be handed its batches takes the very same steps.
"""

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.tasks import CLASSES, IMAGE, Task

__all__ = ["batches", "parts", "pool", "write"]

LARGEST_POOL = 100_000


def pool(size: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Draw samples (size, 784) in 0 .. 1 around ten prototypes, and their labels."""
    rng = np.random.default_rng(seed)
    features = int(np.prod(IMAGE))
    prototypes = rng.random((CLASSES, features), dtype=np.float32)
    y = rng.integers(0, CLASSES, size=size).astype(np.int32)
    x = rng.random((size, features), dtype=np.float32)
    x += prototypes[y]
    x *= 0.5
    return x, y


def parts(task: Task, size: int) -> NDArray[np.int32]:
    """Return the rows of the pool that each node holds, (node, sample)."""
    rows = np.arange(task.nodes * task.samples, dtype=np.int64) % size
    return rows.reshape(task.nodes, task.samples).astype(np.int32)


def batches(task: Task, counts: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """Return which of its samples each node takes, (round, node, batch).

    As folkman draws them; `counts` are the samples of nodes that hold unequal many.
    """
    import jax
    import jax.numpy as jnp

    from folkman.keys import Stream, make_key, node_keys

    key, nodes = make_key(task.seed, Stream.BATCH), jnp.arange(task.nodes, dtype=jnp.int32)
    held = jnp.full(task.nodes, task.samples) if counts is None else jnp.asarray(counts)

    @jax.jit
    def of_round(k: jax.Array) -> jax.Array:
        keys = node_keys(key, nodes, jnp.full(task.nodes, k, jnp.int32))
        return jax.vmap(
            lambda one, most: jax.random.randint(one, (task.batch_size,), 0, most, jnp.int32)
        )(keys, held)

    return np.stack([np.asarray(of_round(jnp.asarray(k, jnp.int32))) for k in range(task.rounds)])


def _drawn(task: Task) -> dict[str, NDArray]:
    from folkman.keys import Stream, make_key
    from folkman.problem.models import MODELS

    size = min(task.nodes * task.samples, LARGEST_POOL)
    x, y = pool(size)
    options = {"hidden": tuple(task.hidden)} if task.hidden else {}
    model = MODELS[task.model](task.sample, task.classes, **options)
    first = model.init(make_key(task.seed, Stream.MODEL))
    return {"pool_x": x, "pool_y": y, "parts": parts(task, size), "initial": np.asarray(first)}


def _configured(task: Task) -> dict[str, NDArray]:
    """Return the arrays of a configuration's problem; rows beyond a node's own are padding."""
    from benchmarks.configured import problem_of

    problem = problem_of(task)
    counts = np.asarray(problem.count, np.int32)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])[:, None]
    column = np.arange(counts.max())[None]
    own = [slice(count) for count in counts]
    x, y = (
        np.concatenate([np.asarray(part[i, rows]) for i, rows in enumerate(own)])
        for part in (problem.x, problem.y)
    )
    found = {
        "pool_x": x.reshape(len(x), -1),
        "pool_y": y,
        "parts": first + np.where(column < counts[:, None], column, 0),
        "initial": np.asarray(problem.initial),
    }
    return found | ({"counts": counts, "shares": np.asarray(problem.share)} if task.uneven else {})


def write(task: Task, folder: Path) -> None:
    """Write the arrays of a task into its folder."""
    found = _configured(task) if task.config else _drawn(task)
    if task.batch is not None and not task.beyond:
        found["draws"] = batches(task, found.get("counts"))
    for name, array in found.items():
        np.save(folder / f"{name}.npy", array)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    write(Task(**json.loads((place / "task.json").read_text(encoding="utf-8"))), place)
