"""What one node does in a slot, compiled.

Devices run it, and so does the slow twin of the simulator. Taken operation by operation, a method
with a branch or a loop would be traced anew in every slot. An algorithm is fixed in a program; two
that were built alike share it.
"""

from functools import partial
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Inbox, Place, State
from folkman.algorithm.travel import Server
from folkman.arrays import Array, Bool, Float, Int, PRNGKeyArray, jax

__all__ = ["Heard", "begin", "hear", "learn", "serve"]


class Heard(NamedTuple):
    """A node after it has heard."""

    state: State
    restarts: Bool[Array, ""]  # a gradient that is on its way is given up
    computes: Bool[Array, ""]  # a gradient is wanted
    point: Float[Array, " d"]  # where


@partial(jax.jit, static_argnums=(1, 2))
def begin(
    initial: Float[Array, " d"],
    algorithm: Algorithm,
    num_nodes: int,
    index: Int[Array, ""],
    key: PRNGKeyArray,
) -> State:
    """Return the first state of a node."""
    return algorithm.init(initial, Place(index, num_nodes, key))


@partial(jax.jit, static_argnums=1)
def hear(state: State, algorithm: Algorithm, inbox: Inbox) -> Heard:
    """Return a node that has heard what it holds, and what it wants now."""
    state = algorithm.receive(state, inbox)
    travel = algorithm.travel
    return Heard(
        state,
        travel.restarts(state, inbox),
        travel.computes(state),
        algorithm.point(state, inbox),
    )


@partial(jax.jit, static_argnums=1)
def learn(
    state: State,
    algorithm: Algorithm,
    inbox: Inbox,
    loss: Float[Array, ""],
    grad: Float[Array, " d"],
    key: PRNGKeyArray,
) -> State:
    """Return a node that has learnt from a gradient."""
    return algorithm.update(state, inbox, loss, grad, key)


@partial(jax.jit, static_argnums=1)
def serve(state: State, server: Server, inbox: Inbox, key: PRNGKeyArray) -> State:
    """Return a server that has heard what came."""
    return server.receive(state, inbox, key)
