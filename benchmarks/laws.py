"""Algorithm 1 beside FedAvg under three laws of delay, every side at its own best step.

    python benchmarks/laws.py          softmax on digits, five nodes, 300 slots

Of each side the step with the lowest mean training loss after 300 slots on the seeds 100 to 102 is
taken, from powers of two; the grid goes on while its end is the best. The side is then judged on
the seeds 0 to 4: mean and 95 % interval by Student's t.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray
from scipy.special import stdtrit

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.base import Algorithm
from folkman.algorithm.fedavg import fedavg
from folkman.engine.simulate import one_slot
from folkman.engine.slot import Carry, first
from folkman.engine.travel import medium_of
from folkman.faults import NO_FAULTS
from folkman.problem.data import load
from folkman.problem.problem import Problem, make_problem
from folkman.radio.delay import pipelined, snapshot
from folkman.radio.delivery import Network

NODES, SLOTS = 5, 300
TUNED, JUDGED = (100, 101, 102), (0, 1, 2, 3, 4)
POWERS = range(-5, 7)
MORE, FURTHEST = 4, 14
"""Powers by which a grid goes on, and beyond which it does not."""
LOCAL_STEPS = (1, 5, 20)

Build = Callable[[Array], Algorithm]
Program = Callable[[Problem, Array, int], Array]


class Judged(NamedTuple):
    """A side at the best of its grid."""

    loss: float  # mean over the seeds that judge
    half: float  # of its 95 % interval
    step: float


def runner(network: Network, build: Build) -> Program:
    """Return a program: the training loss after the last slot for each step, all side by side."""
    compute = (1,) * NODES

    def one(problem: Problem, step: Array, seed: Array) -> Array:
        algorithm = build(step)

        def slot(_: int, carry: Carry) -> Carry:
            return one_slot(problem, network, algorithm, compute, NO_FAULTS, carry)[0]

        last = lax.fori_loop(0, SLOTS, slot, first(problem, network, algorithm, compute, seed))
        params = jax.vmap(algorithm.params)(last.states)
        model = medium_of(algorithm, network).model(last.medium, problem, params)
        models = jnp.broadcast_to(model[None], params.shape)
        losses, _ = problem.gradients(models, jnp.broadcast_to(jax.random.key(0), NODES))
        return jnp.dot(problem.share, losses)

    return jax.jit(jax.vmap(one, (None, 0, None)))


def ends(program: Program, powers: Sequence[int], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return the training losses at the end, (seed, power); infinite where they are not finite."""
    steps = jnp.asarray([2.0**power for power in powers])
    found = [np.asarray(program(_problem(seed), steps, seed), np.float64) for seed in seeds]
    return np.where(np.isfinite(found), found, np.inf)


def judged(network: Network, build: Build) -> Judged:
    """Search the step of one side on one network, and judge it on other seeds."""
    program = runner(network, build)
    powers = list(POWERS)
    means = list(ends(program, powers, TUNED).mean(axis=0))
    while (at := int(np.argmin(means))) in (0, len(powers) - 1) and abs(powers[at]) < FURTHEST:
        more = (
            range(powers[0] - MORE, powers[0]) if at == 0 else range(powers[-1] + 1, FURTHEST + 1)
        )
        found = list(ends(program, more[:MORE], TUNED).mean(axis=0))
        powers = [*more[:MORE], *powers] if at == 0 else [*powers, *more[:MORE]]
        means = [*found, *means] if at == 0 else [*means, *found]
    losses = ends(program, [powers[at]], JUDGED)[:, 0]
    half = stdtrit(len(losses) - 1, 0.975) * losses.std(ddof=1) / len(losses) ** 0.5
    return Judged(float(losses.mean()), float(half), 2.0 ** powers[at])


def _fedavg(local_steps: int) -> Build:
    return lambda step: fedavg(step, local_steps)


def _problem(seed: int) -> Problem:
    return make_problem(load("digits"), "softmax", NODES, seed=seed)


def table() -> None:
    """Print the table of three laws and two durations."""
    laws = {
        "`snapshot`": snapshot,
        "`pipelined`": pipelined,
        "`pipelined`, `download_slots = 0`": lambda gamma: pipelined(gamma, download_slots=0),
    }
    counts = " | ".join(f"FedAvg, {number} local" for number in LOCAL_STEPS)
    print(f"| law | gamma | Algorithm 1 | {counts} |\n|---|---|---|{'---|' * len(LOCAL_STEPS)}")
    for name, law in laws.items():
        for gamma in (5, 15):
            builds = [async_sharing, *map(_fedavg, LOCAL_STEPS)]
            sides = [judged(law(gamma), build) for build in builds]
            cells = [f"{side.loss:.3f} ± {side.half:.3f} ({side.step:g})" for side in sides]
            print(f"| {name} | {gamma} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    table()
