"""The ways to take the gradients of all nodes: the same numbers to rounding, at other speeds.

    together   all nodes as one batch of products, within the engine's compiled program
    joined     the same, with the derivatives of all tensors joined once at the end
    apart      node after node within that program, joined likewise
    called     node after node, called from Python, step by step
    whole      node after node, called from Python, a node as one program

Dense models go together unless a problem says otherwise, and convolutional ones on a CPU are
called: XLA runs convolutions there without its threads inside loops, and slowly under vmap. Which
way is fastest depends on the model, the batch and the machine; `folkman.problem.speed` times them.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import jax

from folkman.problem.models import Dense

if TYPE_CHECKING:
    from folkman.problem.learnable import Learnable

__all__ = ["APART", "FROM_PYTHON", "JOINED", "WAYS", "Open", "Way", "open_ways"]

Way: TypeAlias = Literal["together", "joined", "apart", "called", "whole"]

WAYS: tuple[Way, ...] = get_args(Way)

APART: tuple[Way, ...] = ("apart",)
"""Ways that take one node after the other within a program."""

JOINED: tuple[Way, ...] = ("joined", "apart")
"""Ways that differentiate by each tensor, and not by the flat vector."""

FROM_PYTHON: tuple[Way, ...] = ("called", "whole")
"""Ways whose gradients run outside every compiled program of the engine."""


class Open(NamedTuple):
    """The ways that a problem may go: the first is its default."""

    ways: tuple[Way, ...]
    why: str = ""  # why there is no other, where there is none


def open_ways(problem: "Learnable") -> Open:
    """Return the ways that a problem may go on this machine; none for one that has no choice."""
    from folkman.problem.modules import TreeNetwork  # here: problems ask for ways, too
    from folkman.problem.problem import Problem

    if not isinstance(problem, Problem):
        own = getattr(problem, "open_ways", None)  # a guest of PyTorch knows its own
        return Open((), "the problem takes its gradients itself") if own is None else own()
    if jax.default_backend() != "cpu":
        return Open((), "ways are timed on a CPU alone")
    network = problem.model.network
    if isinstance(network, Dense):
        return Open(("together", "joined", "apart"))
    from folkman.problem.kernels import kernel_for  # here: who does not choose never asks

    if kernel_for(problem, problem.initial) is not None:
        return Open((), "PyTorch's kernels take the gradients of this model")
    inside: tuple[Way, ...] = ("together", "joined", "apart")
    if not isinstance(network, TreeNetwork):  # one that may cut its vector itself
        inside = ("together",)
    first: tuple[Way, ...] = ("called", "whole") if problem.model.convolutional else ()
    return Open((*first, *inside, *(() if first else ("whole",))))
