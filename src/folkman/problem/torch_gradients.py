"""Gradients of a PyTorch module, of one node by autograd, or of many at once by `torch.func`.

`together` maps `torch.func.grad_and_value` over the nodes: a layer is then one batched product for
all of them. Not every module can be mapped so (one that asks for a number on the way, say, or that
draws), and PyTorch tells only when it is tried. `hindrance` tries it once, on a few samples at two
points, and compares the gradients with autograd's.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import Module
from torch.nn.utils import parameters_to_vector, vector_to_parameters

__all__ = ["Samples", "alone", "hindrance", "together"]

SAMPLES_AT_ONCE = 8192
"""Samples of all nodes that go through the module at once: bounds the memory of activations."""

GLANCED = 4
"""Samples that a module is tried on."""

AGREED = 1e-3
"""Part of a gradient's norm that two ways in float32 may differ by, before one counts as wrong."""


class Trained(Protocol):
    """What is known of a guest."""

    module: Module
    losses: Callable[[Tensor, Tensor], Tensor]  # of x and y, by the module as it is
    losses_of: Callable[[Tensor, Tensor], Tensor]  # of scores and y


class Samples(NamedTuple):
    """A mini-batch of one node, or of many along a first axis."""

    x: Tensor
    y: Tensor
    weight: Tensor | None  # None: all count alike, and their weights sum to 1


def alone(guest: Trained, point: Tensor, samples: Samples) -> tuple[float, Tensor]:
    """Return loss and gradient (d,) of one node at a point (d,); the module is moved there."""
    parameters = list(guest.module.parameters())
    vector_to_parameters(point, parameters)
    guest.module.zero_grad()
    loss = _whole(guest.losses(samples.x, samples.y), samples.weight)
    loss.backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return loss.item(), torch.cat([each.reshape(-1) for each in grads])


def together(guest: Trained, points: Tensor, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return losses (node,) and gradients (node, d) at points (node, d)."""
    named = dict(guest.module.named_parameters())
    sizes = [value.numel() for value in named.values()]
    cut = [
        part.unflatten(1, value.shape) if value.dim() else part[:, 0]
        for part, value in zip(points.split(sizes, dim=1), named.values(), strict=True)
    ]
    learnt = {name for name, value in named.items() if value.requires_grad}
    free = {name: part for name, part in zip(named, cut, strict=True) if name in learnt}
    fixed = {name: part for name, part in zip(named, cut, strict=True) if name not in learnt}

    def loss(
        own: dict[str, Tensor], held: dict[str, Tensor], x: Tensor, y: Tensor, *weight: Tensor
    ) -> Tensor:
        scores = functional_call(guest.module, {**own, **held}, (x,))
        return _whole(guest.losses_of(scores, y), weight[0] if weight else None)

    at_once = max(1, SAMPLES_AT_ONCE // max(1, samples.x.shape[1]))
    given = (free, fixed, *(part for part in samples if part is not None))
    grads, losses = vmap(grad_and_value(loss), chunk_size=at_once)(*given)
    nodes = len(points)
    flat = [
        grads[name].reshape(nodes, -1) if name in learnt else points.new_zeros(nodes, size)
        for name, size in zip(named, sizes, strict=True)
    ]
    return losses, torch.cat(flat, dim=1)


def _whole(losses: Tensor, weight: Tensor | None) -> Tensor:
    return losses.mean() if weight is None else (losses * weight).sum()


def hindrance(guest: Trained, parts: Sequence[tuple[Tensor, Tensor]]) -> str:
    """Return why a module's gradients cannot be taken together; nothing if they can."""
    x, y = (part[:GLANCED] for part in parts[0])
    start = parameters_to_vector(guest.module.parameters()).detach().clone()
    points = torch.stack([start, 1.1 * start + 0.01])
    guest.losses(x, y)  # a loss that is wrong by itself says so
    try:
        _, found = together(guest, points, Samples(torch.stack([x, x]), torch.stack([y, y]), None))
        expected = torch.stack([alone(guest, each, Samples(x, y, None))[1] for each in points])
    except Exception as error:  # whatever a guest's code raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    finally:
        vector_to_parameters(start, guest.module.parameters())
    apart = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
    if not apart <= AGREED:
        return f"its gradients differ from autograd's by {apart:.1g} of their norm"
    return ""
