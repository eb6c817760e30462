"""Step sizes: a constant or a schedule over a node's own count of updates."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from folkman.algorithm.method import Number
from folkman.checks import require, within

__all__ = ["Decay", "StepSize", "step_size"]

StepSize: TypeAlias = Callable[[Array, DTypeLike], Array]  # (updates done so far, dtype) -> step
LARGEST = 3.4e38  # of a float32


class Decay(NamedTuple):
    """How a step shrinks; an option of a method, as `decay` and `decay_steps`.

    constant       step
    cosine         to zero over `decay_steps` updates
    exponential    a factor of e every `decay_steps` updates
    inverse_sqrt   step / sqrt(1 + count / decay_steps)
    """

    decay: Literal["constant", "cosine", "exponential", "inverse_sqrt"] = "constant"
    decay_steps: int = 1000


def step_size(step: Number, how: Decay = Decay()) -> StepSize:  # noqa: B008 - immutable
    """Build a schedule from a base step; a count and a step have the dtype of the gradient."""
    schedule = _schedule(step, how)

    def eta(updates: Array, dtype: DTypeLike) -> Array:
        return jnp.asarray(schedule(updates.astype(dtype)), dtype)

    return eta


def _schedule(step: Number, how: Decay) -> Callable[[Array], ArrayLike]:
    decay, decay_steps = how
    require(
        within(step, 0, LARGEST),
        f"step must be a finite number of at least 0, got {step}; try 0.1",
    )
    require(
        decay_steps >= 1,
        f"decay_steps must be at least 1, got {decay_steps}; it counts updates of a node",
    )
    if decay == "constant":
        return lambda _: step
    if decay == "inverse_sqrt":
        return lambda count: step / jnp.sqrt(1.0 + count / decay_steps)
    import optax  # here and not above: only a schedule needs it

    if decay == "cosine":
        return optax.cosine_decay_schedule(step, decay_steps)
    if decay == "exponential":
        return optax.exponential_decay(step, decay_steps, 0.36787944117144233)  # 1/e
    raise ValueError(f"decay must be constant, cosine, exponential or inverse_sqrt, got {decay!r}")
