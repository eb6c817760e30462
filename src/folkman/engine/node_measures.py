"""What the nodes' own models are worth: mean, worst and spread over the nodes.

A node's model is what the node would deploy (`Algorithm.model`). The measures are those of the
network's model and, where the problem can tell, the accuracy on the node's own mixture of labels.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float
from numpy.typing import NDArray

from folkman.engine.programs import compiled
from folkman.problem.learnable import Evaluation, Learnable, LocallyTested

__all__ = ["evaluate", "node_columns"]

SAMPLES_AT_ONCE = 2**18
"""Samples that go through several nodes' models at once: bounds the memory of activations."""


@compiled()
def _evaluate_traced(problem: Learnable, w: Array) -> Evaluation:
    return problem.evaluate(w)


def evaluate(problem: Learnable, w: Float[Array, " d"]) -> Evaluation:
    """Return the measures of one model."""
    return problem.evaluate(w) if _from_python(problem) else _evaluate_traced(problem, w)


def _from_python(problem: Learnable) -> bool:
    """Tell whether a problem is evaluated from Python; one of ours may take gradients otherwise."""
    return getattr(problem, "evaluated_from_python", problem.called_from_python)


@compiled(fixed=(2,))
def _evaluate_all(problem: Learnable, models: Array, at_once: int) -> Evaluation:
    return lax.map(problem.evaluate, models, batch_size=at_once)


def _evaluations(problem: Learnable, models: Float[Array, "node d"]) -> Evaluation:
    """Return the measures of each node's model, (node,) each."""
    if _from_python(problem):
        each = [problem.evaluate(model) for model in models]
        return Evaluation(*(jnp.stack(values) for values in zip(*each, strict=True)))
    samples = max(1, int(np.sum(problem.count)))
    at_once = min(len(models), max(1, SAMPLES_AT_ONCE // samples))
    return _evaluate_all(problem, models, at_once)


def node_columns(problem: Learnable, models: Float[Array, "node d"]) -> dict[str, float]:
    """Return the columns of the nodes' models; NaN where the problem has no such measure."""
    found = _evaluations(problem, models)
    local = np.full(len(models), np.nan)
    if isinstance(problem, LocallyTested):
        local = np.asarray(problem.local_accuracies(models))
    return {
        **_over_nodes("node_train_loss", np.asarray(found.train_loss), worst=np.max),
        **_over_nodes("node_test_accuracy", np.asarray(found.test_accuracy), worst=np.min),
        **_over_nodes("node_local_accuracy", local, worst=np.min),
    }


def _over_nodes(name: str, values: NDArray, worst: Callable[[NDArray], float]) -> dict[str, float]:
    """Return mean, worst and standard deviation over the nodes."""
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges says so itself
        return {
            name: float(np.mean([float(value) for value in values])),
            f"{name}_worst": float(worst(values)),
            f"{name}_spread": float(np.std(values.astype(np.float64))),
        }
