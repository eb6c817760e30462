"""The verdict on a run that has ended.

The problem is looked at for what a constant answer is worth, and, where the loss has not fallen or
is no better than that, for whether a plain step lowers it.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from folkman.engine.node_measures import evaluate
from folkman.engine.programs import compiled
from folkman.keys import Stream, make_key
from folkman.problem.guessing import Guessable
from folkman.problem.learnable import Analysable, Learnable
from folkman.problem.sampling import batch_keys
from folkman.record.run import DIVERGED, FINISHED, Run
from folkman.record.verdict import (
    NOT_LEARNING,
    Constant,
    Descent,
    is_level,
    no_better,
    remark,
    verdict,
)

__all__ = ["best_descent", "judge"]

STEPS = tuple(10.0**power for power in range(-6, 5))
"""Steps that are tried from the first model."""


def judge(run: Run, problem: Learnable | None = None) -> None:
    """Note the verdict, the reason, what to try, and a remark on a run that has ended.

    Only where the loss has not fallen, or is no better than a constant answer's, a few gradient
    steps on `problem` tell whether it could.
    """
    descent = constant = None
    ran = run.status != DIVERGED and len(run.rows) > 1
    if problem is not None and ran:
        constant = _constant(problem)
        unmoved = constant is not None and no_better(run.rows, constant)
        descent = best_descent(problem) if unmoved or is_level(run.rows) else None
    found = verdict(run.rows, descent, constant)
    run.verdict, run.reason = found.word, found.explained
    if found.word == NOT_LEARNING:
        run.message = f"'{run.label}' (seed {run.seed}) is {found}"
    if found.word == FINISHED and constant is not None:
        run.remark = remark(run.rows, constant)


def _constant(problem: Learnable) -> Constant | None:
    """Return what the best constant answer is worth, where the problem knows it."""
    guess = problem.guess() if isinstance(problem, Guessable) else None
    return None if guess is None else Constant(*guess)


def best_descent(problem: Learnable) -> Descent:
    """Return the lowest loss that one gradient step from the common first model reaches.

    The gradient is that of F = sum_i alpha_i F_i, over all samples where the problem can.
    """
    whole = problem.full_batch() if isinstance(problem, Analysable) else problem
    slope = _slope(whole) if problem.called_from_python else _slope_traced(whole)
    losses = [float(evaluate(problem, problem.initial - step * slope).train_loss) for step in STEPS]
    best = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    return Descent(STEPS[best], losses[best])


def _slope(problem: Learnable) -> Array:
    """Return grad F at the common first model, (d,)."""
    nodes = problem.num_nodes
    key = make_key(0, Stream.BATCH)
    keys = batch_keys(problem, key, problem.node, jnp.zeros(nodes, jnp.int32))
    points = jnp.broadcast_to(problem.initial, (nodes, problem.dim))
    _, grads = problem.gradients(points, keys)
    return jnp.dot(problem.share, grads, precision="highest")


_slope_traced = compiled()(_slope)
