"""Step sizes: a constant or a schedule over a node's own count of updates.

In Python a step may be a function of that count, `fedavg(step=lambda count: 0.5 / (1 + count))`. It
is traced when a program is compiled, so it is written with operations that JAX knows.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from folkman.algorithm.method import Number
from folkman.arrays import Array, ArrayLike, DTypeLike, jnp
from folkman.checks import require, within

__all__ = ["Decay", "OwnStep", "StepSize", "step_size"]

StepSize: TypeAlias = Callable[[Array, DTypeLike], Array]  # (updates done so far, dtype) -> step
OwnStep: TypeAlias = Callable[[Array], ArrayLike]  # updates done so far -> step
LARGEST = 3.4e38  # of a float32
PER_DECAY = 0.36787944117144233  # 1/e


class Decay(NamedTuple):
    """How a step changes; an option of a method, as `decay`, `decay_steps` and two more.

    constant       step
    cosine         to zero over `decay_steps` updates
    exponential    a factor of e every `decay_steps` updates
    inverse_sqrt   step / sqrt(1 + count / decay_steps)

    In the first `warmup_steps` updates the step grows in equal parts, from 1 / warmup_steps of what
    it would be. `schedule` are pairs (updates, factor) in order: from so many updates on the step
    is so many times what it would be.
    """

    # how the step falls with the updates of a node
    decay: Literal["constant", "cosine", "exponential", "inverse_sqrt"] = "constant"
    decay_steps: int = 1000  # updates over which it falls
    warmup_steps: int = 0  # updates in which it grows to its size; 0: none
    # pairs (updates, factor): from so many updates on the step is multiplied
    schedule: tuple[tuple[int, float], ...] | None = None


def step_size(
    step: Number | OwnStep,
    how: Decay | None = None,  # how the step falls; None: not at all
) -> StepSize:
    """Build a schedule from a base step or an own function; `how` None: the step must be a number.

    A count and a step have the dtype of the gradient.
    """
    require(
        how is not None or not callable(step),
        "step must be a number: this method has no schedule, and a function was given",
    )
    how = how or Decay()
    schedule = _own_schedule(step, how) if callable(step) else _schedule(step, how)
    pairs = _pairs(how)

    def eta(updates: Array, dtype: DTypeLike) -> Array:
        count = updates.astype(dtype)
        found = jnp.asarray(schedule(count), dtype)
        if how.warmup_steps:
            found = found * jnp.minimum((count + 1) / how.warmup_steps, 1.0)
        if pairs:
            begins, factors = (jnp.asarray(part, dtype) for part in zip(*pairs, strict=True))
            found = found * factors[jnp.sum(count >= begins, dtype=jnp.int32) - 1]
        return found

    return eta


def _pairs(how: Decay) -> list[tuple[int, float]]:
    """Return the schedule from update 0 on, or nothing."""
    require(
        how.warmup_steps >= 0,
        f"warmup_steps must be at least 0, got {how.warmup_steps}; 0 is none",
    )
    if not how.schedule:
        return []
    pairs = [(int(begins), float(factor)) for begins, factor in how.schedule]
    begins = [at for at, _ in pairs]
    require(
        begins == sorted(set(begins)) and begins[0] >= 0 and min(f for _, f in pairs) >= 0,
        "schedule must be pairs (updates, factor), updates rising from at least 0, factors at "
        f"least 0, got {how.schedule}; try ((0, 1.0), (100, 0.1))",
    )
    return pairs if begins[0] == 0 else [(0, 1.0), *pairs]


def _own_schedule(step: OwnStep, how: Decay) -> Callable[[Array], ArrayLike]:
    """Return a step that is a function, once its first value is one that can be taken."""
    require(
        how.decay == "constant",
        f"a step that is a function falls by itself, and decay = {how.decay!r} was given too; "
        "leave decay out",
    )
    first = step(jnp.zeros(()))
    require(
        jnp.shape(first) == () and within(first, 0, LARGEST),
        f"step(0) must be a finite number of at least 0, got {first}; try lambda count: 0.1",
    )
    return step


def _schedule(step: Number, how: Decay) -> Callable[[Array], ArrayLike]:
    decay, decay_steps = how.decay, how.decay_steps
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
    if decay == "cosine":
        return lambda count: (
            step * (0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(count, decay_steps) / decay_steps)))
        )
    if decay == "exponential":
        return lambda count: jnp.where(
            count <= 0, step, step * jnp.power(PER_DECAY, count / decay_steps)
        )
    raise ValueError(f"decay must be constant, cosine, exponential or inverse_sqrt, got {decay!r}")
