"""FedAvg without a server: local steps, then the average of all goes round between the devices.

    w_i <- w^k,   then E times   w_i <- w_i - eta grad F_i(w_i)
    w^{k+1} = sum_i alpha_i w_i       an all-reduce: no node sees another's w_i

The network's model is w^k, the average that the nodes hold; work since does not count before it was
averaged.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, State
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import StepSize
from folkman.algorithm.travel import AllReduce
from folkman.arrays import Array, Float, jnp

if TYPE_CHECKING:
    from optax import GradientTransformation

__all__ = ["DeviceMemory", "between_devices"]


class DeviceMemory(NamedTuple):
    """What a node remembers."""

    params: Float[Array, " d"]  # w_i
    anchor: Float[Array, " d"]  # w^k; (0,) without `mu`
    optimizer: State  # state of the local optimiser, fresh in each round


def between_devices(
    name: str,
    eta: StepSize,
    local: "GradientTransformation",
    *,
    local_steps: int,
    mu: float,
) -> Algorithm:
    """Build local steps by `local`, and an average of all that is carried between the devices."""

    def at(model: Array) -> DeviceMemory:
        return DeviceMemory(model, model if mu else model[:0], local.init(model))

    def descend(memory: DeviceMemory, grad: Gradient) -> DeviceMemory:
        value = grad.value
        if mu:
            value = value + mu * (memory.params - memory.anchor)
        direction, optimizer = local.update(value, memory.optimizer, memory.params)
        params = memory.params - eta(grad.updates, value.dtype) * jnp.asarray(direction)
        return memory._replace(params=params, optimizer=optimizer)

    def average(memory: DeviceMemory, inbox: Inbox) -> DeviceMemory:
        if len(inbox.weight) == 1:  # alone: there is nobody to add
            return at(memory.params)
        return at(inbox.mix())  # all messages by share, the own one among them

    def first(params: Array, place: Place) -> DeviceMemory:
        del place
        return at(params)

    built = in_rounds(
        name,
        first=first,
        gradient=descend,
        end=average,
        message=lambda memory: memory.params,
        params=lambda memory: memory.params,
        gradients=local_steps,
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT, Assumption.STEADY}), exact=local_steps == 1
        ),
    )
    ready = built.travel.ready  # type: ignore[attr-defined] - in rounds
    return replace(built, params=lambda state: state.mixed, travel=AllReduce(ready))
