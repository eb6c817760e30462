"""Which kernel takes a problem's gradients.

The traced JAX one, or a faster one for the same model and machine.

XLA's CPU convolutions reach a third of what oneDNN's do, so on a CPU the paper's CNN goes through
PyTorch where it is installed (`pip install 'folkman[torch]'`). The environment variable
FOLKMAN_TORCH=0 switches that off.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

from folkman.problem.models import CROSS_ENTROPY

if TYPE_CHECKING:
    from folkman.problem.problem import Problem
    from folkman.problem.sampling import Turns

__all__ = ["Kernel", "kernel_for"]


class Kernel(Protocol):
    """What stands in for the JAX functions of the same shapes; called outside of any trace."""

    def gradients(self, v: Array, keys: "Array | Turns") -> tuple[Array, Array]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d).

        Penalties and mini-batches are as the problem says.
        """
        ...

    def measure(self, w: Array, x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
        """Return the weighted sums of losses and of hits over samples, without penalty."""
        ...


def kernel_for(problem: "Problem", point: Array) -> Kernel | None:
    """Return a kernel that beats JAX at this problem's gradients, or None.

    It agrees with JAX to rounding.
    """
    network, head = problem.model.network, problem.model.head
    if not problem.model.convolutional:
        return None
    from folkman.problem.cnn import CNN  # here and not above: other models do not need it

    if not isinstance(network, CNN) or network.in_blocks or head is not CROSS_ENTROPY:
        return None
    arrays = (point, problem.x, problem.y, problem.count)
    if any(isinstance(array, Tracer) for array in arrays):
        return None
    on_one_cpu = all([device.platform for device in array.devices()] == ["cpu"] for array in arrays)
    if not on_one_cpu or {point.dtype, problem.x.dtype} != {jnp.dtype("float32")}:
        return None
    if os.environ.get("FOLKMAN_TORCH", "1") == "0" or not _torch_is_there():
        return None
    from folkman.problem.onednn import OneDnn  # here: PyTorch takes a second to import

    return OneDnn(problem)


@cache
def _torch_is_there() -> bool:
    return find_spec("torch") is not None
