"""How many slots a gradient takes: fixed for each node, or drawn anew for every gradient.

    geometric   P(k) = p (1 - p)^(k-1),   k = 1, 2, ...,   p = 1 / mean: no memory, a long tail
    uniform     k = 1 .. 2 mean - 1, all alike

A draw depends on the seed, the node and the number of its gradient alone.
"""

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from folkman.checks import require
from folkman.keys import Stream, make_key, node_keys

__all__ = ["LAWS", "Compute", "ComputeLaw", "ComputeTimes", "slots_of_gradients", "takes_longer"]

ComputeLaw: TypeAlias = Literal["geometric", "uniform"]
LAWS: tuple[ComputeLaw, ...] = ("geometric", "uniform")


class ComputeTimes(NamedTuple):
    """Compute times that are drawn; `mean` is for all nodes, or one for each."""

    # slots of a gradient in the mean, one number or one for each node
    mean: float | tuple[float, ...]
    law: ComputeLaw = "geometric"  # law of the draws: geometric, or uniform from 1 to 2 mean - 1

    def per_node(self, num_nodes: int) -> "ComputeTimes":
        """Return the same with a mean for each node, checked."""
        means = self.mean if isinstance(self.mean, tuple | list) else (self.mean,) * num_nodes
        require(self.law in LAWS, f"law must be one of {', '.join(LAWS)}, got {self.law!r}")
        require(
            len(means) == num_nodes and all(1 <= mean < 1e6 for mean in means),
            "the mean of compute_slots must be one number of at least 1, or one for each of the "
            f"{num_nodes} nodes; got {self.mean}",
        )
        require(
            self.law == "geometric" or all((2 * mean).is_integer() for mean in map(float, means)),
            f"uniform compute times need means in halves of a slot, got {self.mean}; round it",
        )
        return ComputeTimes(tuple(map(float, means)), self.law)


Compute: TypeAlias = tuple[int, ...] | ComputeTimes
"""The slots of a gradient of each node, or how they are drawn."""


def takes_longer(compute: Compute) -> bool:
    """Tell whether a gradient can take more than one slot."""
    times = compute.mean if isinstance(compute, ComputeTimes) else compute
    return max(times if isinstance(times, tuple) else (times,)) > 1


def slots_of_gradients(compute: Compute, seed: ArrayLike, nodes: Array, steps: Array) -> Array:
    """Return how many slots the next gradient of each node takes, (node,) int32.

    `nodes` (node,) are the identities of the nodes, `steps` (node,) the gradients each has taken.
    """
    if not isinstance(compute, ComputeTimes):
        return jnp.asarray(compute, jnp.int32)
    keys = node_keys(make_key(seed, Stream.COMPUTE), nodes, steps)
    mean = jnp.asarray(compute.mean, jnp.float32)
    draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))(keys)  # in [0, 1)
    if compute.law == "uniform":
        return 1 + jnp.floor(draw * (2 * mean - 1)).astype(jnp.int32)
    return 1 + jnp.floor(jnp.log1p(-draw) / jnp.log1p(-1 / mean)).astype(jnp.int32)
