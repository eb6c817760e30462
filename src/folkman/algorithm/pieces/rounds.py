"""Methods in lock-step: what happens in a round, without the bookkeeping of rounds.

    in a round     a node takes as many gradients as the method asks for, then offers its message
    between two    when all have offered, each node hears its neighbours, and the next round begins

A method says what one gradient does to a node's memory and what the end of a round makes of it.
Counting gradients, and waiting for the others, is done here.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from folkman.algorithm.base import Algorithm, Declares, Inbox, Place, State
from folkman.algorithm.travel import Mixing, Rounds
from folkman.arrays import Array, Float, Int, jax, jnp

__all__ = ["Gradient", "Memory", "RoundState", "in_rounds"]

Memory: TypeAlias = State  # a NamedTuple of arrays: what the method remembers


class RoundState(NamedTuple):
    """What a node remembers."""

    memory: Memory
    taken: Int[Array, ""]  # gradients of this round
    updates: Int[Array, ""]  # gradients in all
    rounds: Int[Array, ""]  # rounds done
    mixed: Float[Array, " d"]  # params at the end of the last round; (0,) where the memory has it


class Gradient(NamedTuple):
    """One gradient, and where in the round it was taken."""

    value: Float[Array, " d"]  # grad F_i(v)
    loss: Float[Array, ""]  # F_i(v)
    inbox: Inbox
    key: Array  # JAX random key of the draws that go with it
    taken: Int[Array, ""]  # gradients of this round before it
    updates: Int[Array, ""]  # gradients before it in all
    rounds: Int[Array, ""]  # rounds done


def in_rounds(
    name: str,
    *,
    first: Callable[[Array, Place], Memory],  # (w(0), place) -> memory
    gradient: Callable[[Memory, Gradient], Memory],  # (memory, gradient) -> memory
    end: Callable[[Memory, Inbox], Memory],  # (memory, inbox) -> memory after a round
    message: Callable[[Memory], Array],  # memory -> what is sent (message,)
    params: Callable[[Memory], Array],  # memory -> the node's parameters (d,)
    mixing: Mixing | None = None,  # weights between peers; None: data shares
    # gradients of a round, or their number by the memory
    gradients: int | Callable[[Memory], Array] = 1,
    # where a gradient is taken; None: at the params
    point: Callable[[Memory, Inbox, Array], Array] | None = None,
    # memory -> the model after the last mixing; None: it is kept beside
    mixed: Callable[[Memory], Array] | None = None,
    personal: bool = False,  # whether a node deploys its own params
    declares: Declares = Declares(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build a method in lock-step.

    `first(w0, place)` is the memory at the start, `gradient(memory, gradient)` the memory after one
    gradient, and `end(memory, inbox)` the memory after a round, whose messages are in the inbox. A
    round has `gradients`, which may depend on the memory. A gradient is taken at
    `point(memory, inbox, gradients of this round so far)`, by default at the params.

    A node would deploy its model of the end of the last round, mixed with its neighbours' and
    without the gradients since: `mixed(memory)` where the memory has it, and kept beside the
    memory where it has not. A `personal` method deploys its params.
    """

    def number(memory: Memory) -> Array:
        return jnp.asarray(gradients(memory) if callable(gradients) else gradients, jnp.int32)

    def init(start: Array, place: Place) -> RoundState:
        zero = jnp.zeros((), jnp.int32)
        memory = first(start, place)
        return RoundState(memory, taken=zero, updates=zero, rounds=zero, mixed=kept(memory))

    def kept(memory: Memory) -> Array:
        own = params(memory)
        return own[:0] if personal or mixed is not None else own

    def receive(state: RoundState, inbox: Inbox) -> RoundState:
        over = jnp.any(inbox.heard)
        memory = jax.tree.map(
            lambda new, old: jnp.where(over, new, old), end(state.memory, inbox), state.memory
        )
        return RoundState(
            memory=memory,
            taken=jnp.where(over, 0, state.taken),
            updates=state.updates,
            rounds=state.rounds + over,
            mixed=jnp.where(over, kept(memory), state.mixed),
        )

    def deployed(state: RoundState, inbox: Inbox) -> Array:
        after = receive(state, inbox)
        return after.mixed if mixed is None else mixed(after.memory)

    def place_of_gradient(state: RoundState, inbox: Inbox) -> Array:
        if point is None:
            return params(state.memory)
        return point(state.memory, inbox, state.taken)

    def update(state: RoundState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> RoundState:
        found = Gradient(
            value=grad,
            loss=loss,
            inbox=inbox,
            key=key,
            taken=state.taken,
            updates=state.updates,
            rounds=state.rounds,
        )
        return RoundState(
            memory=gradient(state.memory, found),
            taken=state.taken + 1,
            updates=state.updates + 1,
            rounds=state.rounds,
            mixed=state.mixed,
        )

    return Algorithm(
        name=name,
        init=init,
        point=place_of_gradient,
        update=update,
        message=lambda state: message(state.memory),
        params=lambda state: params(state.memory),
        receive=receive,
        model=None if personal else deployed,
        travel=Rounds(
            ready=lambda state: state.taken >= number(state.memory),
            mixing=mixing,
        ),
        declares=declares,
    )
