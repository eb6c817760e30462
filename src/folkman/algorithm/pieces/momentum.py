"""Momentum for a method that takes one gradient at a time.

    u_i <- beta u_i + grad,   and the method steps along u_i in place of its gradient          [1]

The velocity u_i stays at the node: it is neither sent nor averaged.

[1] B. T. Polyak. Some methods of speeding up the convergence of iteration methods. USSR
    Computational Mathematics and Mathematical Physics 4(5), 1964.
    doi:10.1016/0041-5553(64)90137-5
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from folkman.algorithm.base import Algorithm, Inbox, Place, State
from folkman.algorithm.travel import Broadcast, Rounds, Travel
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["MovingState", "with_momentum"]


class MovingState(NamedTuple):
    """What a node remembers: the method's own, and its velocity."""

    own: State
    velocity: Array  # (d,) u_i


def with_momentum(algorithm: Algorithm, momentum: float) -> Algorithm:
    """Return the method with momentum beta; 0 is the method itself."""
    require(
        0 <= momentum < 1,
        f"momentum must be at least 0 and below 1, got {momentum}; 0.9 is usual, 0 is none",
    )
    if momentum == 0:
        return algorithm

    def init(params: Array, place: Place) -> MovingState:
        return MovingState(algorithm.init(params, place), jnp.zeros_like(params))

    def update(
        state: MovingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> MovingState:
        velocity = momentum * state.velocity + grad
        return MovingState(algorithm.update(state.own, inbox, loss, velocity, key), velocity)

    def receive(state: MovingState, inbox: Inbox) -> MovingState:
        return state._replace(own=algorithm.receive(state.own, inbox))

    declares = algorithm.declares
    model, measures = algorithm.model, declares.measures
    return replace(
        algorithm,
        init=init,
        update=update,
        receive=receive,
        point=lambda state, inbox: algorithm.point(state.own, inbox),
        message=lambda state: algorithm.message(state.own),
        params=lambda state: algorithm.params(state.own),
        model=None if model is None else lambda state, inbox: model(state.own, inbox),
        travel=_of_own(algorithm.travel),
        declares=declares._replace(
            measures=None if measures is None else lambda states: measures(states.own)
        ),
    )


def _of_own(travel: Travel) -> Travel:
    """Return the way to travel, asked of the method's own state."""

    def of_own(ask: Callable[[State], Any]) -> Callable[[MovingState], Any]:
        return lambda state: ask(state.own)

    if isinstance(travel, Rounds):
        return replace(travel, ready=of_own(travel.ready))
    assert isinstance(travel, Broadcast)  # noqa: S101 - the methods that take momentum
    has_news = travel.has_news
    return replace(travel, has_news=None if has_news is None else of_own(has_news))
