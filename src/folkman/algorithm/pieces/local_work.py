"""The node's half of methods that average models: E local steps from the server's model.

w_i <- w^k,   then E times   w_i <- w_i - eta (grad F_i(w_i) + mu (w_i - w^k))
upload w_i
"""

from typing import TYPE_CHECKING, NamedTuple

from folkman.algorithm.base import State
from folkman.algorithm.pieces.server_rounds import Half
from folkman.algorithm.pieces.steps import StepSize
from folkman.arrays import Array, jnp
from folkman.checks import require

if TYPE_CHECKING:
    from optax import GradientTransformation

__all__ = ["LocalWork", "local_work"]


class LocalWork(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) w_i
    anchor: Array  # (d,) w^k; (0,) without `mu`
    optimizer: State  # state of the local optimiser, fresh in each round


def local_work(eta: StepSize, local: "GradientTransformation", mu: float = 0.0) -> Half:
    """Build local steps by an optimiser, held to the server's model by `mu`."""
    require(mu >= 0, f"mu must be at least 0, got {mu}; 0 is FedAvg")

    def at(model: Array) -> LocalWork:
        return LocalWork(model, model if mu else model[:0], local.init(model))

    def begin(memory: LocalWork, model: Array) -> LocalWork:
        del memory
        return at(model)

    def descend(memory: LocalWork, grad: Array, updates: Array) -> LocalWork:
        if mu:
            grad = grad + mu * (memory.params - memory.anchor)
        direction, optimizer = local.update(grad, memory.optimizer, memory.params)
        params = memory.params - eta(updates, grad.dtype) * jnp.asarray(direction)
        return memory._replace(params=params, optimizer=optimizer)

    return Half(first=at, begin=begin, descend=descend, upload=lambda memory: memory.params)
