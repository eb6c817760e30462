"""How a node's own steps turn a gradient into a direction: as it is, or by optax."""

from typing import TYPE_CHECKING, Any, NamedTuple

from folkman.arrays import Array
from folkman.checks import require

if TYPE_CHECKING:
    from optax import GradientTransformation

__all__ = ["local_optimizer"]

NAMES = ("sgd", "momentum", "adam")


class NoMemory(NamedTuple):
    """What plain steps remember."""


class Plain(NamedTuple):
    """The gradient as it is, in the form of a transformation of optax."""

    def init(self, params: Array) -> NoMemory:
        """Return the memory before the first gradient."""
        del params
        return NoMemory()

    def update(self, grad: Array, state: Any, params: Array | None = None) -> tuple[Array, Any]:
        """Return the direction and the memory."""
        del params
        return grad, state


def local_optimizer(name: str) -> "GradientTransformation":
    """Return an optimiser of local steps by its name."""
    require(name in NAMES, f"optimizer must be 'sgd', 'momentum' or 'adam', got {name!r}")
    if name == "sgd":
        return Plain()  # type: ignore[return-value] - it has the same two functions
    import optax  # here and not above: plain steps do not need it

    return optax.trace(0.9) if name == "momentum" else optax.scale_by_adam()
