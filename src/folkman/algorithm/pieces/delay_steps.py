"""Steps that shrink with the delay, for x+ = x - g grad F_i(x old by tau slots).

    none          g = eta
    staleness     g = eta / max(1, tau)                                                   [1]
    koloskova     g = eta if tau <= the number of nodes, else min(eta, 1 / (4 L tau))     [2]
    mishchenko    g = min(eta, 1 / (2 L tau))                                             [3]
    wu_1          g = max(eta - sum of the last tau steps, 0)                             [4]
    wu_2          g = eta / (tau + 1) if that and the last tau steps sum to at most eta,
                  else 0                                                                  [4]
    stable        g = min(eta, 0.9 e(rho, tau) / (c L)), where e / L is the largest stable step
                  for copies of the constant age tau: 2 sin(pi / (2 (2 tau + 1))) / L without own
                  progress (`stable_steps`; rho is the share of the own progress, c the scaling)

Ages that vary bear a little less than constant ones, 3/2 in the place of pi/2 for steps times long
ages; hence the 0.9. Without delay all of them are eta, `stable` at most 1.8 / (c L). `wu_1` and
`wu_2` keep, at every update, the steps of the window within eta. L is given, or estimated as the
largest ||grad(v) - grad(v')|| / ||v - v'|| between two gradients of a node so far, as AdaFL does;
until the second gradient the estimate is 0 and the step is eta.

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

from folkman.algorithm.pieces.stable_steps import stable_limit
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
WINDOW = 256
"""Own steps remembered; an older copy counts as this old."""


class DelayMemory(NamedTuple):
    """What a policy remembers; empty arrays where it needs nothing."""

    recent: Array  # (WINDOW,) or (0,): own last steps, newest first
    point: Array  # (d,) or (0,): of the last gradient
    grad: Array  # (d,) or (0,)
    smoothness: Array  # () estimate of L


def check_policy(policy: DelayPolicy, smoothness: float | None) -> None:
    """Refuse a policy that does not exist."""
    require(
        policy in POLICIES,
        f"delay_policy must be one of {', '.join(POLICIES)}, got {policy!r}",
    )
    require(
        smoothness is None or 0 < smoothness < float("inf"),
        f"smoothness is L of the losses, positive and finite, got {smoothness}; leave it out",
    )


def estimates(policy: DelayPolicy, smoothness: float | None) -> bool:
    """Tell whether a policy estimates L, and so asks where gradients were taken."""
    return policy in ("koloskova", "mishchenko", "stable") and smoothness is None


def first_memory(
    policy: DelayPolicy, smoothness: float | None, params: Array, *, notes: bool | None = None
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
    )


def step_under_delay(
    memory: DelayMemory,
    policy: DelayPolicy,
    *,
    eta: Array,
    delay: Array,
    num_nodes: Array,
    point: Array,
    grad: Array,
    scale: ArrayLike = 1.0,
    rho: ArrayLike = 0.0,
) -> tuple[Array, DelayMemory]:
    """Return the step g for a gradient whose oldest copy has the age `delay`, and the memory.

    `point` is where the gradient was taken; where L is not estimated it is ignored. `scale` is c
    and `rho` the share of the own progress: `stable` looks at them.
    """
    memory = _seen(memory, point, grad)
    if policy == "none":
        return eta, memory
    tau = delay.astype(eta.dtype)
    if policy == "staleness":
        return eta / jnp.maximum(tau, 1.0), memory
    if policy == "stable":
        most = WITHIN * stable_limit(jnp.asarray(rho, eta.dtype), tau)
        curvature = jnp.asarray(scale, eta.dtype) * memory.smoothness.astype(eta.dtype)
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
