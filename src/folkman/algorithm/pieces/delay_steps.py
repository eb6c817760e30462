"""Steps that shrink with the delay, for x+ = x - g grad F_i(x old by tau slots).

    none          g = eta
    staleness     g = eta / max(1, tau)                                                   [1]
    koloskova     g = eta if tau <= the number of nodes, else min(eta, 1 / (4 L tau))     [2]
    mishchenko    g = min(eta, 1 / (2 L tau))                                             [3]
    wu_1          g = max(eta - sum of the last tau steps, 0)                             [4]
    wu_2          g = eta / (tau + 1) if that and the last tau steps sum to at most eta,
                  else 0                                                                  [4]
    stable        g = min(eta, 0.9 e(rho, abar) / (c L)), where e / L is the largest stable step
                  for copies of the constant age abar: 2 sin(pi / (2 (2 abar + 1))) / L without own
                  progress (`stable_steps`; rho is the share of the own progress, c the scaling);
                  abar is the mean age of the copies, tau in all others that of the oldest

Ages that vary bear a little less than constant ones, 3/2 in the place of pi/2 for steps times long
ages; hence the 0.9. Without delay all of them are eta, `stable` at most 1.8 / (c L). `wu_1` and
`wu_2` keep, at every update, the steps of the window within eta. L is given, or estimated; until
the second gradient the estimate is 0 and the step is eta. The estimate is the largest
||grad(v) - grad(v')|| / ||v - v'|| between two gradients of a node so far, as AdaFL does. That of
`stable` is the curvature along the node's own last moves,

    L = sum <grad(v) - grad(v'), v - v'> / sum ||v - v'||^2,

with older terms forgotten over about abar slots. It is large where the node swings, along the
swing, and small where it descends evenly. So `stable` cuts a step that makes the loop of delays
swing, and no other. The noise of a mini-batch has no part in the sum above in the mean.

Differs from [1-4]: recalled, not verified; the constants 1/2 of [3] and a = 1 of [4], whose base
step h / L is our eta, are our choice; [2] uses a server's concurrency, for which we take the number
of nodes.

[1] W. Zhang, S. Gupta, X. Lian, J. Liu. Staleness-aware Async-SGD. IJCAI 2016. arXiv:1511.05950
[2] A. Koloskova, S. Stich, M. Jaggi. Sharper Convergence Guarantees for Asynchronous SGD for
    Distributed and Federated Learning. NeurIPS 2022. arXiv:2206.08307
[3] K. Mishchenko, F. Bach, M. Even, B. Woodworth. Asynchronous SGD Beats Minibatch SGD Under
    Arbitrary Delays. NeurIPS 2022. arXiv:2206.07638
[4] X. Wu, S. Magnusson, H. R. Feyzmahdavian, M. Johansson. Delay-adaptive Step-sizes for
    Asynchronous Learning. ICML 2022. arXiv:2202.08550
"""

from typing import Literal, NamedTuple, TypeAlias, get_args

from folkman.arrays import Array, ArrayLike, jnp
from folkman.checks import require

__all__ = [
    "DelayMemory",
    "DelayPolicy",
    "check_policy",
    "estimates",
    "first_memory",
    "step_under_delay",
]

DelayPolicy: TypeAlias = Literal[
    "none", "staleness", "koloskova", "mishchenko", "wu_1", "wu_2", "stable"
]
POLICIES: tuple[DelayPolicy, ...] = get_args(DelayPolicy)
WITHIN = 0.9
"""Of the stable step: what `stable` lets a step take."""
BACK = 1.0
"""How many mean ages of the copies `stable` looks back for the curvature."""
WINDOW = 256
"""Own steps remembered; an older copy counts as this old."""


class DelayMemory(NamedTuple):
    """What a policy remembers; empty arrays where it needs nothing."""

    recent: Array  # (WINDOW,) or (0,): own last steps, newest first
    point: Array  # (d,) or (0,): where the last gradient was taken
    grad: Array  # (d,) or (0,): the last gradient
    smoothness: Array  # () estimate of L
    swing: Array  # (2,) or (0,): <dg, dv> and <dv, dv> of `stable`, slowly forgotten


def check_policy(
    policy: DelayPolicy,  # how the step shrinks with the age of copies
    smoothness: float | None,
) -> None:
    """Refuse a policy that does not exist."""
    require(
        policy in POLICIES,
        f"delay_policy must be one of {', '.join(POLICIES)}, got {policy!r}",
    )
    require(
        smoothness is None or 0 < smoothness < float("inf"),
        f"smoothness is L of the losses, positive and finite, got {smoothness}; leave it out",
    )


def estimates(
    policy: DelayPolicy,  # how the step shrinks with the age of copies
    smoothness: float | None,
) -> bool:
    """Tell whether a policy estimates L, and so asks where gradients were taken."""
    return policy in ("koloskova", "mishchenko", "stable") and smoothness is None


def first_memory(
    policy: DelayPolicy,  # how the step shrinks with the age of copies
    smoothness: float | None,
    params: Array,
    *,
    notes: bool | None = None,  # whether L is estimated; None: as the policy needs it
) -> DelayMemory:
    """Return the memory before the first gradient; `notes`: estimate L, whatever the policy."""
    window = WINDOW if policy.startswith("wu") else 0
    notes = estimates(policy, smoothness) if notes is None else notes
    kept = jnp.full(params.shape if notes else (0,), jnp.nan, params.dtype)
    return DelayMemory(
        recent=jnp.zeros(window, params.dtype),
        point=kept,
        grad=kept,
        smoothness=jnp.asarray(smoothness or 0.0, params.dtype),
        swing=jnp.zeros(2 if policy == "stable" and smoothness is None else 0, params.dtype),
    )


def step_under_delay(
    memory: DelayMemory,
    policy: DelayPolicy,  # how the step shrinks with the age of copies
    *,
    eta: Array,  # the step before
    delay: Array,  # age of the oldest copy
    num_nodes: Array,
    point: Array,
    grad: Array,  # the gradient (d,)
    scale: ArrayLike = 1.0,  # c_i, the factor of a step
    rho: ArrayLike = 0.0,  # share of the own newest progress
    set_back: ArrayLike | None = None,  # share of the own mean pace that is taken back; None: none
    mean_delay: Array | None = None,  # mean age of the copies; None: `delay`
) -> tuple[Array, DelayMemory]:
    """Return the step g for a gradient whose oldest copy has the age `delay`, and the memory.

    `point` is where the gradient was taken; where L is not estimated it is ignored. `scale` is c,
    `rho` the share of the own progress, `set_back` that of its mean pace, if it is set back by
    some, and `mean_delay` the mean age of the copies, by default `delay`: `stable` looks at them.
    """
    mean_delay = delay if mean_delay is None else mean_delay
    memory = _seen(_swung(memory, point, grad, mean_delay), point, grad)
    if policy == "none":
        return eta, memory
    tau = delay.astype(eta.dtype)
    if policy == "staleness":
        return eta / jnp.maximum(tau, 1.0), memory
    if policy == "stable":
        # here, as other policies never ask
        from folkman.algorithm.pieces.stable_steps import set_back_limit, stable_limit

        share, late = jnp.asarray(rho, eta.dtype), mean_delay.astype(eta.dtype)
        if set_back is None:
            most = WITHIN * stable_limit(share, late)
        else:
            most = WITHIN * set_back_limit(share, jnp.asarray(set_back, eta.dtype), late)
        curvature = jnp.asarray(scale, eta.dtype) * _curvature(memory).astype(eta.dtype)
        return jnp.minimum(eta, most / jnp.maximum(curvature, 1e-30)), memory
    if policy in ("koloskova", "mishchenko"):
        constant = jnp.where(policy == "koloskova", 4.0, 2.0)
        bound = 1.0 / (constant * jnp.maximum(memory.smoothness * tau, 1e-30))
        slow = jnp.minimum(eta, bound.astype(eta.dtype))
        if policy == "koloskova":
            return jnp.where(delay <= num_nodes, eta, slow), memory
        return slow, memory
    spent = jnp.sum(jnp.where(jnp.arange(WINDOW) < delay, memory.recent, 0.0))
    if policy == "wu_1":
        step = jnp.maximum(eta - spent, 0.0)
    else:
        fair = eta / (tau + 1.0)
        fits = fair + spent <= eta * (1 + 1e-6)  # rounding must not close the window
        step = jnp.where(fits, fair, 0.0)
    return step, memory._replace(recent=jnp.concatenate([step[None], memory.recent[:-1]]))


def _curvature(memory: DelayMemory) -> Array:
    """Return L of `stable`: given, or the curvature along the node's own last moves."""
    if memory.swing.size == 0:
        return memory.smoothness
    product, square = memory.swing
    return jnp.maximum(product, 0.0) / jnp.where(square > 0, square, 1.0)


def _swung(memory: DelayMemory, point: Array, grad: Array, delay: Array) -> DelayMemory:
    """Return the memory with how much the gradient turned along the way since the last one."""
    if memory.swing.size == 0:
        return memory
    way, turned = point - memory.point, grad - memory.grad
    new = jnp.stack([jnp.dot(turned, way), jnp.dot(way, way)])
    kept = 1.0 - 1.0 / (1.0 + BACK * delay.astype(grad.dtype))
    swing = kept * memory.swing + jnp.where(jnp.all(jnp.isfinite(new)), new, 0.0)
    return memory._replace(swing=swing.astype(memory.swing.dtype))


def _seen(memory: DelayMemory, point: Array, grad: Array) -> DelayMemory:
    """Return the memory with a better estimate of L, if L is estimated."""
    if memory.point.size == 0:
        return memory
    way = jnp.linalg.norm(point - memory.point)
    found = jnp.linalg.norm(grad - memory.grad) / way
    usable = jnp.isfinite(found) & (way > 1e-10)
    larger = jnp.maximum(memory.smoothness, jnp.where(usable, found, 0.0))
    largest = jnp.where(usable, larger, memory.smoothness)
    return memory._replace(point=point, grad=grad, smoothness=largest)
