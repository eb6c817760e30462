"""What is minimised: F = sum_i alpha_i F_i, with every sample or every node counting alike.

    samples   alpha_i = |D_i| / sum_j |D_j|                              [1, eq. (14)] (default)
    nodes     alpha_i = 1 / I

Some methods weigh all nodes alike by construction: gossip with doubly stochastic weights, or a
server that takes uploads as they come. Such a method descends the plain mean of what its nodes
hold. Its nodes are handed I alpha_i F_i in place of F_i, the mean of which is F. The factor
I alpha_i is a node's emphasis; it is 1 where all nodes count alike.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, Float
from folkman.checks import require
from folkman.problem.learnable import Learnable

__all__ = [
    "OBJECTIVES",
    "Emphasised",
    "Objective",
    "emphasis_of",
    "emphasised",
    "model_weights",
    "shares",
    "uneven_emphasis",
]

Objective: TypeAlias = Literal["samples", "nodes"]
OBJECTIVES: tuple[Objective, ...] = ("samples", "nodes")


@runtime_checkable
class Emphasised(Protocol):
    """A problem that knows the emphasis of its nodes; for others it follows from their shares."""

    @property
    def emphasis(self) -> Float[Array, " node"] | None:
        """Return I alpha_i (node,), None where all nodes count alike."""
        ...


def shares(counts: Sequence[int] | NDArray[np.integer], objective: Objective) -> NDArray:
    """Return alpha_i (node,) in float64 from the samples of each node.

    >>> shares([1, 3], "samples").tolist(), shares([1, 3], "nodes").tolist()
    ([0.25, 0.75], [0.5, 0.5])
    """
    require(
        objective in OBJECTIVES,
        f"objective must be 'samples' or 'nodes', got {objective!r}",
    )
    number = np.asarray(counts, np.float64)
    if objective == "nodes":
        number = np.ones_like(number)
    return number / number.sum()


def uneven_emphasis(share: NDArray) -> NDArray | None:
    """Return I alpha_i (node,), None where all nodes count alike; `share` is of all nodes.

    >>> uneven_emphasis(shares([1, 3], "samples")).tolist()
    [0.5, 1.5]
    """
    return None if (share == share[0]).all() else share / (1.0 / len(share))


def emphasis_of(problem: Learnable) -> Float[Array, " node"] | None:
    """Return I alpha_i (node,) of a problem, None where it is known to be 1 for all nodes."""
    if isinstance(problem, Emphasised):
        return problem.emphasis
    even = np.asarray(1.0 / problem.num_nodes, problem.share.dtype)  # 1 / I as a share is rounded
    return problem.share / even


def emphasised(gradients: tuple[Array, Array], emphasis: Array | None) -> tuple[Array, Array]:
    """Return the losses (..., ) and gradients (..., d) of I alpha_i F_i from those of F_i."""
    if emphasis is None:
        return gradients
    losses, grads = gradients
    factor = emphasis.astype(grads.dtype)
    return factor * losses, factor[..., None] * grads


def model_weights(problem: Learnable, *, evenly: bool) -> Float[Array, " node"]:
    """Return the weights of the nodes in the network's model: alpha_i, or 1 / I for all alike."""
    emphasis = emphasis_of(problem) if evenly else None
    return problem.share if emphasis is None else problem.share / emphasis
