"""The floating-point operations of a gradient, counted in the model's own program.

A multiplication and an addition are two operations. Products of matrices and convolutions are
counted in the forward pass of one sample; a gradient takes three times as many, since the backward
pass forms one product for the inputs and one for the weights of each layer. Everything else
(activations, pooling, normalisation) is left out.
"""

from functools import cache
from math import prod
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from folkman.problem.learnable import Learnable
from folkman.problem.models import Model
from folkman.problem.problem import Problem

__all__ = ["forward_operations", "gradient_operations"]

FORWARD_AND_BACKWARD = 3
"""Passes that a gradient takes, in units of a forward pass."""


def gradient_operations(problem: Learnable) -> NDArray[np.float64]:
    """Return the operations of one gradient of each node, in the shape of `problem.count`."""
    count = np.asarray(problem.count, np.float64)
    samples = count if problem.batch is None else np.full_like(count, problem.batch)
    return FORWARD_AND_BACKWARD * forward_operations(problem) * samples


def forward_operations(problem: Learnable) -> float:
    """Return the operations of the forward pass of one sample.

    A problem whose model is not JAX's own counts two for each parameter, as dense layers have.
    """
    if not isinstance(problem, Problem):
        return 2.0 * problem.dim
    sample = problem.x.shape[problem.count.ndim + 1 :]
    kind = "float32" if np.issubdtype(problem.x.dtype, np.floating) else "int32"
    return max(_of_model(problem.model, sample, problem.dim, kind), 2.0 * problem.dim)


@cache
def _of_model(model: Model, sample: tuple[int, ...], dim: int, kind: str = "float32") -> float:
    typed = (((dim,), "float32"), ((1, *sample), kind))
    shapes = (jax.ShapeDtypeStruct(shape, np.dtype(name)) for shape, name in typed)
    return _of_program(jax.make_jaxpr(model.network.scores)(*shapes).jaxpr)


def _of_program(program: Any) -> float:
    """Return the operations of a jaxpr and of those within it; a loop's body counts each time."""
    total = 0.0
    for step in program.eqns:
        if step.primitive.name == "dot_general":
            (contracted, _), _ = step.params["dimension_numbers"]
            inner = prod(step.invars[0].aval.shape[axis] for axis in contracted)
            total += 2.0 * prod(step.outvars[0].aval.shape) * inner
        elif step.primitive.name == "conv_general_dilated":
            kernel, numbers = step.invars[1].aval.shape, step.params["dimension_numbers"]
            outputs = kernel[numbers.rhs_spec[0]]
            total += 2.0 * prod(step.outvars[0].aval.shape) * prod(kernel) / outputs
        times = step.params.get("length", 1) if step.primitive.name == "scan" else 1
        total += times * sum(map(_of_program, _within(step.params)))
    return total


def _within(params: dict[str, Any]) -> list[Any]:
    """Return the programs among the parameters of a step."""
    found = []
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                found.append(inner)
    return found
