"""Plain gradient descent on one machine, w <- w - eta grad F(w): no engine, no network, no server.

What a centralised method must agree with. It is kept apart from the engine on purpose.
"""

from math import nan

import jax
import jax.numpy as jnp
from jax import Array

from folkman.config.build import slot_seconds
from folkman.config.comparison import Comparison
from folkman.engine.simulate import note
from folkman.experiment.parts import Watch
from folkman.keys import Stream, make_key
from folkman.problem.problem import Problem
from folkman.problem.sampling import Turns, batch_keys
from folkman.record.run import AXES, METRICS, Run

__all__ = ["METHOD", "descend"]

METHOD = "centralised"
"""What such a run is called, as others are by their algorithm."""


def descend(problem: Problem, comparison: Comparison, watch: Watch | None = None) -> Run:
    """Run the slots of a comparison as steps of gradient descent, with its algorithm's step."""
    seed, table = comparison.seeds[0], comparison.algorithm[0]
    run = Run(METHOD, table["label"], seed)
    batch_key, slot_s = make_key(seed, Stream.BATCH), slot_seconds(comparison, problem)
    plain = (_move_in_python, Problem.evaluate)
    move, evaluate = plain if problem.called_from_python else (_move, _evaluate)
    w = problem.initial
    for done in range(comparison.slots + 1):
        if done % comparison.record_every == 0 or done == comparison.slots:
            measured = {
                name: float(value) for name, value in evaluate(problem, w)._asdict().items()
            }
            own = {"slots": done, "seconds": done * slot_s, "gradients": float(done), **measured}
            note(run, dict.fromkeys((*AXES, *METRICS), nan) | own)
            if watch is not None:
                watch(run, done, comparison.slots)
        keys = batch_keys(problem, batch_key, problem.node, jnp.asarray([done], jnp.int32))
        w = move(problem, w, jnp.asarray(table["step"], w.dtype), keys)
    return run


_evaluate = jax.jit(Problem.evaluate)


def _move_in_python(problem: Problem, w: Array, step: Array, keys: Array | Turns) -> Array:
    _, gradients = problem.gradients(w[None], keys)
    return w - step * gradients[0]


_move = jax.jit(_move_in_python)
