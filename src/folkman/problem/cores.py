"""Nodes over the cores of a CPU.

XLA runs the products of many small models one after the other, on one core. `use_cores` makes a
device of every core, and `over_cores` then gives each an equal part of the nodes. A node's gradient
is the same; sums over nodes (a server's average) may round otherwise than on one core. It pays for
many nodes around a server and for many cells; not with the radio, whose work is not parted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from folkman.machine import usable_cores

__all__ = ["over_cores", "unparted", "use_cores"]

Result = TypeVar("Result")

WORTH = 20_000_000
"""Multiplications below which handing out and gathering takes longer than it saves."""


def use_cores(
    cores: int | None = None,  # cores to use; None: all that this process may
) -> None:
    """Make a device of each core that this process may use.

    Call it before JAX computes anything.
    """
    jax.config.update("jax_num_cpu_devices", usable_cores() if cores is None else cores)


_parted = ContextVar("_parted", default=True)


@contextmanager
def unparted() -> Iterator[None]:
    """Trace programs whose nodes stay together: those that are parted some other way."""
    token = _parted.set(False)
    try:
        yield
    finally:
        _parted.reset(token)


def over_cores(function: Callable[..., Result], work: int) -> Callable[..., Result]:
    """Return `function` of arrays (node, ...), computed in equal parts.

    On as many devices as divide the nodes.
    """

    def parted(*arrays: Array) -> Result:
        nodes = len(arrays[0])
        devices = jax.devices()
        parts = max(k for k in range(1, len(devices) + 1) if nodes % k == 0)
        if not _parted.get() or work < WORTH or parts == 1 or devices[0].platform != "cpu":
            return function(*arrays)
        mesh = Mesh(np.array(devices[:parts]), ("node",))
        by_node = PartitionSpec(
            "node"
        )  # what follows is parted likewise, where XLA finds that it can be
        return jax.shard_map(function, mesh=mesh, in_specs=by_node, out_specs=by_node)(*arrays)

    return parted
