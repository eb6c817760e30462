"""What a gradient becomes before a method steps along it: clipped, decayed, with momentum.

    g <- grad F_i(v) min(1, c / ||grad F_i(v)||)        `clip_norm` c, 0: none              [1]
    g <- g + lambda v                                   `weight_decay` lambda
    u_i <- beta u_i + g, and the method takes u_i       `momentum` beta                     [2]

in this order, as optimisers of one machine do it. All three are for methods that only step along
their gradients; they change a gradient before the method sees it, so that they are written once.
The velocity u_i stays at the node: it is neither sent nor averaged, and rounds do not reset it. v
is the point where the gradient was taken, also where it takes several slots. A method that tracks
gradients tracks what they become.

[1] R. Pascanu, T. Mikolov, Y. Bengio. On the difficulty of training recurrent neural networks. ICML
    2013. arXiv:1211.5063
[2] B. T. Polyak. Some methods of speeding up the convergence of iteration methods. USSR
    Computational Mathematics and Mathematical Physics 4(5), 1964.
    doi:10.1016/0041-5553(64)90137-5
"""

from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Inbox, Place, State
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["Descent", "MovingState", "Shrinking"]


class Taken(NamedTuple):
    """The gradient in work."""

    point: Array  # (d,) v where it is taken
    begun: Array  # () bool: if not, the next slot that computes begins one


class MovingState(NamedTuple):
    """What a node remembers: the method's own, its velocity, and where its gradient is taken."""

    own: State  # state of the method
    velocity: Array | None  # (d,) u_i; None without momentum
    taken: Taken | None = None  # the gradient in work; None without weight decay


class Descent(NamedTuple):
    """How a gradient is changed; an option of a method, as `momentum` and two more."""

    momentum: float = 0.0  # beta of the velocity that a node keeps; 0: none
    weight_decay: float = 0.0  # lambda, the pull of a gradient step towards 0
    clip_norm: float = 0.0  # largest norm of a gradient; 0: no limit

    def of(self, algorithm: Algorithm) -> Algorithm:
        """Return the method with its gradients changed; with all three 0, the method itself."""
        self.check()
        if not any(self):
            return algorithm
        return _changed(self, algorithm)

    def check(self) -> None:
        """Refuse what is no momentum, no decay or no norm."""
        require(
            0 <= self.momentum < 1,
            f"momentum must be at least 0 and below 1, got {self.momentum}; 0.9 is usual, 0 is "
            "none",
        )
        require(
            0 <= self.weight_decay < float("inf"),
            f"weight_decay must be a finite number of at least 0, got {self.weight_decay}; 5e-4 is "
            "usual, 0 is none",
        )
        require(
            0 <= self.clip_norm < float("inf"),
            f"clip_norm must be a finite number of at least 0, got {self.clip_norm}; it is the "
            "largest norm of a gradient, and 0 does not clip",
        )


class Shrinking(NamedTuple):
    """The same for methods that have a momentum of their own, as `weight_decay` and `clip_norm`."""

    weight_decay: float = 0.0  # lambda, the pull of a gradient step towards 0
    clip_norm: float = 0.0  # largest norm of a gradient; 0: no limit

    def of(self, algorithm: Algorithm) -> Algorithm:
        """Return the method with its gradients changed; with both 0, the method itself."""
        return Descent(0.0, *self).of(algorithm)


def _changed(how: Descent, algorithm: Algorithm) -> Algorithm:
    from folkman.algorithm.pieces.around import around  # here: few nodes need it

    travel = algorithm.travel
    decays = how.weight_decay > 0

    def init(params: Array, place: Place) -> MovingState:
        return MovingState(
            algorithm.init(params, place),
            jnp.zeros_like(params) if how.momentum else None,
            Taken(params, begun=jnp.asarray(False)) if decays else None,
        )

    def receive(state: MovingState, inbox: Inbox) -> MovingState:
        own = algorithm.receive(state.own, inbox)
        if state.taken is None:
            return state._replace(own=own)
        begun = state.taken.begun & ~travel.restarts(own, inbox)
        point = jnp.where(begun, state.taken.point, algorithm.point(own, inbox))
        return state._replace(own=own, taken=Taken(point, begun | travel.computes(own)))

    def update(
        state: MovingState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> MovingState:
        if how.clip_norm:
            norm = jnp.sqrt(jnp.sum(grad**2))
            grad = grad * (how.clip_norm / jnp.maximum(norm, how.clip_norm))
        taken = state.taken
        if taken is not None:
            grad = grad + how.weight_decay * taken.point
            taken = taken._replace(begun=jnp.asarray(False))
        velocity = state.velocity
        if velocity is not None:
            grad = velocity = how.momentum * velocity + grad
        return MovingState(algorithm.update(state.own, inbox, loss, grad, key), velocity, taken)

    return around(algorithm, init=init, update=update, receive=receive)
