"""Algorithm 1 beside FedAvg under three laws of delay, every side at its own best step.

    python benchmarks/laws.py          the table of docs/comparison.md: softmax on digits

Of each side the step (and FedAvg's local steps) with the lowest mean training loss after 300 slots
is taken, from a grid of powers of two.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

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
SEEDS = (100, 101, 102)
STEPS = {
    "softmax": tuple(2.0**power for power in range(-5, 7)),
    "mlp": tuple(2.0**power for power in range(-3, 4)),
}
LOCAL_STEPS = (1, 5, 20)

Build = Callable[[Array], Algorithm]


class Best(NamedTuple):
    """The best of a grid."""

    loss: float  # mean over the seeds
    step: float
    local_steps: int


def runner(network: Network, build: Build) -> Callable[[Problem, Array, int], Array]:
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


def best(model: str, network: Network, side: str, local_steps: Sequence[int] = (1,)) -> Best:
    """Search the grid of one side on one network."""
    steps, found = STEPS[model], []
    for number in local_steps:
        program = runner(network, async_sharing if side == "async_sharing" else _fedavg(number))
        each = [
            np.asarray(program(_problem(model, seed), jnp.asarray(steps), seed)) for seed in SEEDS
        ]
        means = np.where(np.isfinite(each), each, np.inf).mean(axis=0)
        at = int(np.argmin(means))
        found.append(Best(float(means[at]), steps[at], number))
    return min(found)


def _fedavg(local_steps: int) -> Build:
    return lambda step: fedavg(step, local_steps)


def _problem(model: str, seed: int) -> Problem:
    return make_problem(load("digits"), model, NODES, seed=seed)


def table() -> None:
    """Print the table of three laws and two durations."""
    laws = {
        "`snapshot`": snapshot,
        "`pipelined`": pipelined,
        "`pipelined`, `download_slots = 0`": lambda gamma: pipelined(gamma, download_slots=0),
    }
    print("| law | gamma | Algorithm 1 | FedAvg, 1 local step | FedAvg, 5 local steps |")
    print("|---|---|---|---|---|")
    for name, law in laws.items():
        for gamma in (5, 15):
            network = law(gamma)
            sides = [best("softmax", network, "async_sharing")]
            sides += [best("softmax", network, "fedavg", [number]) for number in (1, 5)]
            cells = [f"{side.loss:.3f} (step {side.step:g})" for side in sides]
            print(f"| {name} | {gamma} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    table()
