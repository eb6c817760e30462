"""Which steps are stable for measured curvatures and ages, and which is advised.

Nodes alike with F_i(w) = L/2 w^2 follow, with e = eta_b L,

    w_j(t+1) = w_j(t) - e / (sum alpha c) c_j sum_k alpha_k w_k(tau_jk(t))

`limit` is the largest e for which this dies out under the ages of a timeline: found by running it
for many e at once and bisecting. For a constant age D it is the root of z^(D+1) = z^D (1 - e/I) - e
(1 - 1/I) on the unit circle, for no delay it is 2. It is exact for nodes alike, and a rule of thumb
for others: nodes that differ in curvature are not covered.

`proved` is the step up to which Theorem C of docs/theory.md bounds the gradients whatever the
losses: eta L <= 1 and 3 (eta L A_2)^2 <= 1/4.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.learnable import Analysable, Learnable
from folkman.problem.problem import Problem
from folkman.theory.convergence import effective_age
from folkman.theory.smoothness import ceiling, curvatures, whole_curvature
from folkman.theory.trajectory import ages_of, follow, step_weights

__all__ = ["Advice", "advise", "constant_stamps", "limit", "stability_warning"]

MARGIN = 0.5
"""The advised step as a part of the stability limit."""

MANY, MANY_SLOTS = 24, 300
"""Above so many nodes the limit is that of their mean, from at most so many slots."""

MOST_WORK = 2e10
"""Samples times parameters times products beyond which `stability_warning` measures nothing."""


class Advice(NamedTuple):
    """What is known of steps for a problem and its ages; steps are eta, before scaling."""

    curvature: float  # largest |eigenvalue| met: of F at w(0) and along the probe
    curvature_nodes: float  # the same of the single F_i: L_1 from below
    limit: float  # largest stable eta_b L, for these ages
    stable_below: float  # eta below which a run is stable, for the curvature that was met
    # largest eta that Theorem C covers; None where no upper bound of L is known
    proved: float | None
    advised: float  # eta to take: half of `stable_below`
    max_age: int  # largest age of a copy
    effective_age: float  # A_2, never above the largest


def constant_stamps(nodes: int, age: int, slots: int) -> NDArray[np.int32]:
    """Return the stamps (slot, rx, tx) of copies that are always `age` slots old."""
    require(age >= 0, f"an age is at least 0, got {age}")
    held = np.maximum(np.arange(slots)[:, None, None] - age, 0).astype(np.int32)
    return np.broadcast_to(held, (slots, nodes, nodes)).copy()


def limit(
    held: NDArray[np.integer], shares: Sequence[float] | NDArray, scaling: str = "theorem"
) -> float:
    """Return the largest stable e = eta_b L of nodes alike under a timeline's ages.

    The timeline is repeated as often as it takes for growth to show.

    >>> round(limit(constant_stamps(5, 4, 100), [0.2] * 5), 2)
    0.49
    """
    ages = ages_of(held)
    ages = ages[len(ages) // 3 :]  # the first slots are younger than the rest
    alpha = np.asarray(shares, float)
    scales, weights, pull = step_weights(alpha, 1.0, scaling)
    low, high = 0.0, 2.5
    many = len(alpha) > MANY
    mix = np.stack(
        [
            np.bincount(age.ravel(), np.outer(weights, alpha).ravel(), ages.max() + 1)
            for age in ages[:MANY_SLOTS]
        ]
    )
    for _ in range(3):
        tried = np.linspace(low, high, 26)
        grows = (
            _growth_of_mean(mix, tried) if many else _growth(ages, alpha, scales / pull, tried)
        ) > 1e-7
        first = int(np.argmax(grows)) if grows.any() else len(tried) - 1
        low, high = tried[max(first - 1, 0)], tried[first]
    return float(low + high) / 2


def _growth(ages: NDArray, alpha: NDArray, own: NDArray, e: NDArray) -> NDArray[np.float64]:
    """Return the mean growth per slot of log ||state|| for each e.

    Over the second half of at least 1200 slots.
    """
    slots, nodes = ages.shape[:2]
    window = int(ages.max()) + 1
    rng = np.random.default_rng(0)
    recent = np.broadcast_to(rng.standard_normal((1, nodes, 1)), (window, nodes, len(e))).copy()
    total = max(2 * slots, 1200, 60 * window)
    grown = np.zeros(len(e))
    tx = np.arange(nodes)[None]
    for t in range(total):
        held = recent[(t - ages[t % slots]) % window, tx]  # (rx, tx, e)
        v = np.einsum("j,ijn->in", alpha, held)
        recent[(t + 1) % window] = recent[t % window] - (e[None] * own[:, None]) * v
        if t % 50 == 49:  # pull back to size 1, so that nothing overflows
            now = recent[(t + 1) % window]
            recent += (
                np.einsum("j,jn->n", alpha, now)[None, None] - now[None]
            )  # only the sum of what is now acts later
            size = np.maximum(np.abs(recent).max(axis=(0, 1)), 1e-150)
            recent /= size
            grown += np.log(size) * (t > total // 2)
    return grown / (total / 2)


def _growth_of_mean(mix: NDArray, e: NDArray) -> NDArray[np.float64]:
    """Return the same for w(t+1) = w(t) - e sum_a mix[t, a] w(t-a).

    All nodes are taken to have moved as their mean.

    Exact for a constant age; for others within a tenth, and affordable when nodes are many.
    """
    slots, window = mix.shape
    recent, grown = np.ones((window, len(e))), np.zeros(len(e))  # newest first
    total = max(2 * slots, 1200, 60 * window)
    for t in range(total):
        recent = np.concatenate([(recent[0] - e * (mix[t % slots] @ recent))[None], recent[:-1]])
        if t % 50 == 49:
            size = np.maximum(np.abs(recent).max(axis=0), 1e-150)
            recent = recent / size
            grown += np.log(size) * (t > total // 2)
    return grown / (total / 2)


def advise(
    problem: Learnable,
    held: NDArray[np.integer],
    scaling: str = "theorem",
    probe: int = 40,  # slots of the probe
) -> Advice:
    """Propose a step from the curvature and from the ages of a timeline.

    The curvature is that at w(0) and along a short probe.
    """
    shares = np.asarray(problem.share, float)
    edge = limit(held, shares, scaling)
    scale = float(shares @ step_weights(shares, 1.0, scaling)[0])
    whole = whole_curvature(problem, problem.initial)
    each = float(curvatures(problem, problem.initial).max())
    if probe:
        first = MARGIN * edge / (max(whole, 1e-12) * scale)
        path = follow(problem, held[:probe], first, scaling, keep=1)
        if np.isfinite(path.last).all():
            whole = max(whole, whole_curvature(problem, path.last))
            each = max(each, float(curvatures(problem, path.last).max()))
    ages = ages_of(held)
    late = effective_age(ages, step_weights(shares, 1.0, scaling)[1])
    stable = edge / (max(whole, 1e-12) * scale)
    l1 = (
        float(ceiling(problem).max()) * scale
    )  # an upper bound of L, or infinite: an estimate would prove nothing
    proved = (
        min(1.0, 1.0 / (np.sqrt(12.0) * late) if late > 0 else 1.0) / l1
        if np.isfinite(l1)
        else None
    )
    return Advice(whole, each, edge, stable, proved, MARGIN * stable, int(ages.max()), late)


def is_measured(
    problem: Learnable,
    rounds: int = 20,  # power iterations
) -> bool:
    """Tell whether the curvature of a problem can be measured in a short time."""
    if (
        not isinstance(problem, Analysable)
        or not problem.differentiable
        or problem.called_from_python
    ):
        return False
    convolutional = (
        isinstance(problem, Problem) and problem.model.convolutional
    )  # more work than its parameters say
    work = float(problem.num_nodes * int(problem.count.max())) * problem.dim * rounds
    return problem.batch is None and not convolutional and work <= MOST_WORK


def stability_warning(
    problem: Learnable,
    ages: int | NDArray[np.integer],
    step: float,
    scaling: str = "theorem",
    rounds: int = 20,  # power iterations for the curvature
) -> str | None:
    """Return a warning if Algorithm 1's step is beyond the stability limit at its start.

    None otherwise.

    `ages` are the stamps of a timeline (slot, rx, tx), or one age assumed of all copies. No warning
    is returned for a problem whose curvature would take long to measure or cannot be measured, and
    for one with mini-batches. The curvature is measured from below at w(0): a warning is justified
    there, silence proves nothing.
    """
    if not step > 0 or not is_measured(problem, rounds):
        return None
    shares = np.asarray(problem.share, float)
    held = (
        constant_stamps(problem.num_nodes, ages, max(60, 4 * ages))
        if isinstance(ages, int)
        else ages
    )
    curved = whole_curvature(problem, problem.initial, rounds)
    _, _, step_b = step_weights(shares, step, scaling)
    if not curved > 0 or step_b * curved <= 2.0 / (1.0 + 2.0 * int(ages_of(held).max())) / 2:
        return None  # far inside: no need to look for the limit
    edge = limit(held, shares, scaling)
    if step_b * curved <= edge:
        return None
    largest = edge * step / (step_b * curved)
    return (
        f"the step {step:g} is beyond the stability limit: "
        f"eta L = {step_b * curved:.3g} at the first model, where "
        f"copies up to {int(ages_of(held).max())} slots old allow {edge:.3g}; "
        "the loss may grow or swing, at least at first; "
        f"a step below {largest:.2g} would not (folkman theory step CONFIG)"
    )
