"""A PyTorch module as a problem: the guest brings model, loss and data.

folkman brings everyone else.

    problem = folkman.torch.problem(module, loss, [(x_0, y_0), (x_1, y_1), ...], test=(x, y))
    folkman.simulate(problem, folkman.pipelined(5), folkman.async_sharing(0.1), slots=100)

The flat vector is `parameters_to_vector(module.parameters())`, in the module's own order; the
losses come from `loss(module(x), y)`, one value a sample. Gradients are PyTorch's, in float32 on
the CPU; mixing, timing and messages are as for any problem. Nothing here is traced: nodes are
computed one after the other from Python, and `folkman.theory` cannot measure curvature.

Modules whose output in training depends on other samples or on buffers (batch normalisation,
dropout) are refused: their loss is no function of the flat vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from folkman.checks import require
from folkman.problem.learnable import Evaluation
from folkman.problem.models import Layout
from folkman.problem.objective import Objective, shares, uneven_emphasis
from folkman.problem.sampling import Sampling, Turns, draw

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    Samples: TypeAlias = tuple[Tensor, Tensor]  # x and y, of one length
    Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (scores, y) -> one value per sample
    Hits: TypeAlias = Callable[
        [Tensor, Tensor], float
    ]  # (scores, y) -> the share of samples that are right

__all__ = ["TorchProblem", "import_torch", "problem"]


def import_torch() -> ModuleType:
    """Return PyTorch, or say how to get it."""
    try:
        import torch
    except ImportError:
        raise RuntimeError(
            "folkman.torch needs PyTorch, which is not installed; pip install 'folkman[torch]'"
        ) from None
    return torch


class Guest:
    """The module, its loss and the data, compared by identity."""

    def __init__(
        self,
        module: "Module",
        loss: "Loss",
        parts: "Sequence[Samples]",
        test: "Samples | None",
        hits: "Hits | None",
    ) -> None:
        self.module, self.loss, self.parts, self.test, self.hits = (
            module,
            loss,
            tuple(parts),
            test,
            hits,
        )
        self.names = [name for name, _ in module.named_parameters()]
        self.shapes = [tuple(value.shape) for value in module.parameters()]

    @property
    def layout(self) -> Layout:
        """Return the map of the flat vector: the module's own names and order."""
        return Layout(tuple(zip(self.names, self.shapes, strict=True)))

    def put(self, w: Array) -> None:
        """Write a flat vector into the module."""
        torch = import_torch()
        vector = torch.from_numpy(np.array(w, np.float32))
        torch.nn.utils.vector_to_parameters(vector, self.module.parameters())

    def flat(self) -> np.ndarray:
        """Return the module's parameters as a flat vector."""
        torch = import_torch()
        return torch.nn.utils.parameters_to_vector(self.module.parameters()).detach().numpy().copy()

    def losses(self, x: "Tensor", y: "Tensor") -> "Tensor":
        """Return one loss a sample."""
        found = self.loss(self.module(x), y)
        require(
            tuple(found.shape) == (len(x),),
            f"the loss must give one value a sample, got shape {tuple(found.shape)} for {len(x)}; "
            "use reduction='none'",
        )
        return found


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["count", "share", "node", "initial", "emphasis"],
    meta_fields=["model", "batch", "name", "rows", "objective", "sampling"],
)
@dataclass(frozen=True, eq=False)
class TorchProblem:
    """A problem as the protocols of `folkman.problem.learnable` ask for it.

    `model` is the guest.
    """

    count: Array  # (node,)
    share: Array  # (node,) alpha_i
    node: Array  # (node,)
    initial: Array  # (d,) common w(0)
    model: Guest
    batch: int | None
    name: str
    rows: tuple[int, ...]  # which of the guest's parts the nodes hold
    objective: Objective = "samples"
    sampling: Sampling = "replacement"
    emphasis: Array | None = None  # (node,) I alpha_i; None: all nodes count alike
    called_from_python = True
    differentiable = False

    @property
    def num_nodes(self) -> int:
        """Return I."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Return d."""
        return self.initial.shape[0]

    @property
    def layout(self) -> Layout:
        """Return the names and shapes of the module's parameters."""
        return self.model.layout

    def of_node(self, index: int) -> "TorchProblem":
        """Return the problem as node `index` sees it."""
        part = slice(index, index + 1)
        return replace(
            self,
            rows=self.rows[part],
            count=self.count[part],
            share=self.share[part],
            node=self.node[part],
            emphasis=None if self.emphasis is None else self.emphasis[part],
        )

    def full_batch(self) -> "TorchProblem":
        """Return the same problem with gradients over all samples."""
        return replace(self, batch=None)

    def gradients(self, v: Array, keys: Array | Turns) -> tuple[Array, Array]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d).

        `keys` (node,) draw the mini-batches, if any.
        """
        torch = import_torch()
        losses, grads = [], []
        for place, row in enumerate(self.rows):
            x, y = self.model.parts[row]
            weight = None
            if self.batch is not None:  # the draws of a problem of our own
                key = jax.tree.map(lambda part, place=place: part[place], keys)
                drawn = draw(self.batch, key, self.count[place], len(x), jnp.dtype(jnp.float32))
                picked = torch.from_numpy(np.array(drawn.rows, np.int64))
                x, y = x[picked], y[picked]
                if isinstance(key, Turns):  # places that are empty weigh nothing
                    weight = torch.from_numpy(np.array(drawn.weight))
            self.model.put(v[place])
            self.model.module.zero_grad()
            losses_of = self.model.losses(x, y)
            loss = losses_of.mean() if weight is None else (losses_of * weight).sum()
            loss.backward()
            flat = [
                p.grad if p.grad is not None else torch.zeros_like(p)
                for p in self.model.module.parameters()
            ]
            losses.append(loss.item())
            grads.append(torch.cat([each.reshape(-1) for each in flat]).numpy())
        return jnp.asarray(losses, jnp.float32), jnp.asarray(np.stack(grads))

    def evaluate(self, w: Array) -> Evaluation:
        """Return the measures of the model w (d,)."""
        torch = import_torch()
        nan = jnp.asarray(jnp.nan, jnp.float32)
        self.model.put(w)
        with torch.no_grad():
            means = [float(self.model.losses(*self.model.parts[row]).mean()) for row in self.rows]
            train = float(np.dot(np.asarray(self.share, np.float64), means))
            if self.model.test is None:
                return Evaluation(jnp.asarray(train, jnp.float32), nan, nan, nan)
            x, y = self.model.test
            loss = float(self.model.losses(x, y).mean())
            right = (
                float(self.model.hits(self.model.module(x), y)) if self.model.hits else float("nan")
            )
        found = [jnp.asarray(value, jnp.float32) for value in (train, loss, right)]
        return Evaluation(found[0], found[1], found[2], nan)


def accuracy(scores: "Tensor", y: "Tensor") -> float:
    """Return the share of samples whose largest score is at the label."""
    return float((scores.argmax(dim=1) == y).float().mean())


def problem(  # noqa: PLR0913 - all but three by name
    module: "Module",
    loss: "Loss",
    parts: "Sequence[Samples]",
    *,
    test: "Samples | None" = None,
    batch: int | None = None,
    hits: "Hits | None" = accuracy,
    name: str = "torch",
    objective: Objective = "samples",
    sampling: Sampling = "replacement",
) -> TorchProblem:
    """Put the samples `parts[i]` on node i.

    The common first model is the module's own parameters now.

    `loss(scores, y)` returns one value per sample; `hits(scores, y)` the share that is right, None
    if there is none. `objective` and `sampling` are those of `folkman.make_problem`.
    """
    torch = import_torch()
    require(
        bool(parts) and all(len(x) == len(y) > 0 for x, y in parts),
        "every node needs samples, x and y of one length",
    )
    shaky = [
        type(m).__name__
        for m in module.modules()
        if "BatchNorm" in type(m).__name__ or "Dropout" in type(m).__name__
    ]
    require(
        not shaky,
        f"{', '.join(shaky)} makes the loss depend on more than the parameters; "
        "use GroupNorm, or none",
    )
    frozen = [key for key, value in module.named_parameters() if value.dtype != torch.float32]
    require(
        not frozen, f"parameters must be float32, {', '.join(frozen)} are not; call module.float()"
    )
    guest = Guest(module, loss, parts, test, hits)
    counts = np.array([len(x) for x, _ in parts])
    share = shares(counts, objective)
    emphasis = uneven_emphasis(share)
    return TorchProblem(
        count=jnp.asarray(counts, jnp.int32),
        share=jnp.asarray(share, jnp.float32),
        node=jnp.arange(len(parts), dtype=jnp.int32),
        initial=jnp.asarray(guest.flat()),
        model=guest,
        batch=batch,
        name=name,
        rows=tuple(range(len(parts))),
        objective=objective,
        sampling=sampling,
        emphasis=None if emphasis is None else jnp.asarray(emphasis, jnp.float32),
    )
