"""A PyTorch module as a problem: the guest brings model, loss and data.

folkman brings everyone else.

    problem = folkman.torch.problem(module, loss, [(x_0, y_0), (x_1, y_1), ...], test=(x, y))
    folkman.simulate(problem, folkman.pipelined(5), folkman.async_sharing(0.1), slots=100)

The flat vector is `parameters_to_vector(module.parameters())`, in the module's own order; the
losses come from `loss(module(x), y)`, one value a sample. Gradients are PyTorch's, in float32 on
the CPU; mixing, timing and messages are as for any problem. All nodes' gradients are taken at once
through `torch.func` where the module lets it; a module that does not, or that convolves, is taken
node by node (`problem.pace` says which, and why). Nothing here is traced by JAX, so that
`folkman.theory` cannot measure curvature.

Modules whose output in training depends on other samples or on buffers (batch normalisation,
dropout) are refused: their loss is no function of the flat vector.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
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
from folkman.problem.sampling import Sampling, Turns
from folkman.problem.ways import Open, Way

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from folkman.problem.guessing import Guess
    from folkman.problem.torch_gradients import Samples as Batch

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
        return self.losses_of(self.module(x), y)

    def losses_of(self, scores: "Tensor", y: "Tensor") -> "Tensor":
        """Return one loss a sample, of its scores."""
        found = self.loss(scores, y)
        require(
            tuple(found.shape) == (len(y),),
            f"the loss must give one value a sample, got shape {tuple(found.shape)} for {len(y)}; "
            "use reduction='none'",
        )
        return found

    @cached_property
    def hindrance(self) -> str:
        """Return why `torch.func` cannot take all nodes' gradients at once; nothing if it can."""
        from folkman.problem.torch_gradients import hindrance

        found = hindrance(self, self.parts)
        if found:
            warnings.warn(
                f"the gradients of {type(self.module).__name__} are taken node by node, since "
                f"torch.func.vmap cannot take them together: {found}",
                stacklevel=2,
            )
        return found

    @cached_property
    def convolves(self) -> bool:
        """Tell whether the module convolves: PyTorch is slower at a kernel a node."""
        return any("Conv" in type(each).__name__ for each in self.module.modules())


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["count", "share", "node", "initial", "emphasis"],
    meta_fields=["model", "batch", "name", "rows", "objective", "sampling", "way"],
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
    way: Way | None = field(default=None, compare=False)  # None: together, where that is the rule
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

    def open_ways(self) -> Open:
        """Return the ways that the gradients may go, the default first."""
        if self.model.hindrance:
            return Open(("called",), self.model.hindrance)
        return Open(("called", "together") if self.model.convolves else ("together", "called"))

    @property
    def pace(self) -> str:
        """Return in words how the nodes' gradients are taken."""
        if self._way() == "together":
            return "all nodes at once, by torch.func.vmap"
        why = self.model.hindrance or ("it convolves" if self.model.convolves else "it was faster")
        return f"node by node: {why}"

    def _way(self) -> Way:
        return self.way or self.open_ways().ways[0]

    def gradients(self, v: Array, keys: Array | Turns) -> tuple[Array, Array]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d).

        `keys` (node,) draw the mini-batches, if any.
        """
        torch = import_torch()
        from folkman.problem.torch_gradients import Samples, alone, together

        points = torch.from_numpy(np.array(v, np.float32))
        batches = self._batches(keys)
        losses, grads = torch.empty(self.num_nodes), torch.empty(self.num_nodes, self.dim)
        if self._way() != "together":
            for node, samples in enumerate(batches):
                losses[node], grads[node] = alone(self.model, points[node], samples)
        else:
            for nodes in _alike(batches):
                x, y, weight = zip(*(batches[node] for node in nodes), strict=True)
                weights = None if weight[0] is None else torch.stack(weight)
                samples = Samples(torch.stack(x), torch.stack(y), weights)
                losses[nodes], grads[nodes] = together(self.model, points[nodes], samples)
        return jnp.asarray(losses.numpy()), jnp.asarray(grads.numpy())

    def _batches(self, keys: Array | Turns) -> "list[Batch]":
        """Return each node's samples for one gradient: the draws of a problem of our own."""
        torch = import_torch()
        from folkman.problem.onednn import draw_all
        from folkman.problem.torch_gradients import Samples

        parts = [self.model.parts[row] for row in self.rows]
        if self.batch is None:
            return [Samples(x, y, None) for x, y in parts]
        drawn = draw_all(self.batch, keys, self.count, max(len(x) for x, _ in parts))
        rows = torch.from_numpy(np.array(drawn.rows, np.int64))
        weight: list[Tensor | None] = [None] * len(parts)
        if isinstance(keys, Turns):  # places that are empty weigh nothing
            weight = list(torch.from_numpy(np.array(drawn.weight)))
        return [
            Samples(x[own], y[own], each)
            for (x, y), own, each in zip(parts, rows, weight, strict=True)
        ]

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

    def guess(self) -> "Guess | None":
        """Return what a constant answer is worth; None where targets are of another kind."""
        try:
            return _constant(self.model, np.asarray(self.share, np.float64))
        except (RuntimeError, ValueError, IndexError):  # a loss that wants something else
            return None


def _constant(guest: Guest, share: np.ndarray) -> "Guess | None":
    """Return what a constant answer is worth to the guest's own loss; None for other targets.

    With labels the scores are the logarithms of their shares, else the mean of the numbers. For a
    loss that this answer does not suit a better constant may exist, and none that is worse counts.
    """
    torch = import_torch()
    from folkman.problem.guessing import Guess

    y = torch.cat([targets for _, targets in guest.parts])
    weight = torch.from_numpy(
        np.concatenate(
            [
                np.full(len(own), each / len(own))
                for (_, own), each in zip(guest.parts, share, strict=True)
            ]
        )
    )
    tested = None if guest.test is None else guest.test[1]
    with torch.no_grad():
        scores = guest.module(guest.parts[0][0][:1])
        if not y.is_floating_point() and y.ndim == 1 and scores.ndim == 2:
            shares = torch.bincount(y, weight, minlength=scores.shape[1])
            found = torch.log(shares.clamp(min=1e-12)).to(scores.dtype)
        elif y.is_floating_point() and y.shape[1:] == scores.shape[1:]:
            found = (weight.to(y.dtype).view(-1, *[1] * (y.ndim - 1)) * y).sum(dim=0)
        else:
            return None
        losses = guest.losses_of(found.expand(len(y), *scores.shape[1:]), y)
        accuracy = float("nan")
        if tested is not None and guest.hits is not None and not y.is_floating_point():
            usual = torch.bincount(tested, minlength=scores.shape[1]).to(scores.dtype)
            accuracy = float(guest.hits(usual.expand(len(tested), -1), tested))
        loss = float((weight * losses).sum())
    return Guess(loss, accuracy, 0 if tested is None else len(tested)) if loss > 0 else None


def _alike(batches: "Sequence[Batch]") -> list[list[int]]:
    """Return the nodes in groups of as many samples each, as one product takes them."""
    groups: dict[int, list[int]] = {}
    for node, samples in enumerate(batches):
        groups.setdefault(len(samples.x), []).append(node)
    return list(groups.values())


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
