"""The paper's CNN on a CPU, through PyTorch's oneDNN and MKL kernels.

Forward and backward are written out.

The function is `networks.CNN` with cross-entropy, and the gradient the one that JAX takes of it.
What makes it fast:

- images and activations lie channels-last from end to end, so that convolutions, pools and products
  over channels read them as they are; JAX's arrays are used in place, and the gradients are handed
  back in place;
- the first pool comes before bias and ReLU, which commute with a maximum, at a quarter of their
  work;
- the window sums of the response norm are products with a band matrix, its power is two square
  roots;
- no graph is recorded, and buffers are written again while they are in the cache;
- every core takes nodes, or parts of a node's batch, for itself: cores that share one kernel wait
  for each other.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from math import ceil
from threading import Barrier
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from torch import Tensor

from folkman.problem.models import Layout
from folkman.problem.sampling import Batch, Turns, draw

if TYPE_CHECKING:
    from folkman.problem.problem import Problem

__all__ = ["OneDnn", "draw_all"]

CHUNK = 100
"""Samples taken through the network at once: bounds a core's activations at about 50 MB."""

LEAST_PART = 8
"""Samples below which a batch is not divided among cores."""

Named: TypeAlias = dict[str, Tensor]


class OneDnn:
    """The gradients and measures of one problem; called from Python, never traced."""

    def __init__(self, problem: "Problem") -> None:
        self.problem = problem

    def gradients(self, v: Array, keys: Array | Turns) -> tuple[Array, Array]:
        """Return F_i(v_i) (node,) and grad F_i(v_i) (node, d).

        The mini-batches are those that JAX draws.
        """
        problem, layout = self.problem, self.problem.model.layout
        points, x, y = (_tensor(array) for array in (v, problem.x, problem.y))
        sizes = np.asarray(problem.count).tolist()
        divisors = sizes  # 1 / weight of a sample
        drawn = None
        if problem.batch is not None:
            rows, weight = draw_all(problem.batch, keys, problem.count, problem.x.shape[1])
            drawn = _tensor(rows).long()
            sizes = np.count_nonzero(np.asarray(weight), axis=1).tolist()
            divisors = sizes
            if isinstance(keys, Turns):  # n / m
                divisors = (1.0 / np.asarray(weight[:, 0], np.float64)).tolist()
        parts = _parts(sizes, torch.get_num_threads())
        losses, grads = (
            torch.empty(len(parts), *width, dtype=torch.float32) for width in ((), (layout.size,))
        )

        def take(index: int) -> None:
            node, rows = parts[index]
            samples = rows if drawn is None else drawn[node, rows]
            into = _named(layout, grads[index])
            losses[index] = _gradient(
                _named(layout, points[node]),
                x[node][samples],
                y[node][samples],
                divisors[node],
                into,
            )
            if problem.l2 and index < len(sizes):
                losses[index] += _add_penalty(problem.l2, _named(layout, points[node]), into)

        _on_all_cores(take, len(parts))
        for index in range(len(sizes), len(parts)):
            losses[parts[index].node] += losses[index]
            grads[parts[index].node] += grads[index]
        return jnp.from_dlpack(losses[: len(sizes)]), jnp.from_dlpack(grads[: len(sizes)])

    def measure(self, w: Array, x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
        """Return the weighted sums of losses and of hits over samples.

        Samples of weight 0 are left out.
        """
        tensors = _named(self.problem.model.layout, _tensor(w))
        images, labels, weights = (_tensor(array) for array in (x, y, weight))
        used = torch.nonzero(weights > 0)[:, 0]
        chunks = used.tensor_split(ceil(len(used) / CHUNK))
        sums = torch.empty(len(chunks), 2, dtype=torch.float32)

        def take(index: int) -> None:
            rows = chunks[index]
            features, _ = _features(tensors, images[rows])
            _, scores = _scores(tensors, features)
            log_odds = torch.log_softmax(scores, 1).gather(1, labels[rows].long()[:, None])[:, 0]
            hits = (scores.argmax(1) == labels[rows]).float()
            sums[index] = torch.stack((-log_odds, hits)) @ weights[rows]

        _on_all_cores(take, len(chunks))
        loss, hits = jnp.from_dlpack(sums.sum(0))
        return loss, hits


def _tensor(array: Array) -> Tensor:
    """Return JAX's own memory as a tensor; never written to."""
    return torch.from_dlpack(jax.block_until_ready(array))


def _named(layout: Layout, flat: Tensor) -> Named:
    return {
        name: flat[cut].view(shape)
        for (name, shape), cut in zip(layout.shapes, layout.segments.values(), strict=True)
    }


@partial(jax.jit, static_argnums=(0, 3))
def draw_all(batch: int, keys: Array | Turns, count: Array, most: int) -> Batch:
    """Return each node's mini-batch, (node, batch) each: the draws of the traced kernel.

    Places that are empty come last.
    """

    def of_one(key: Array | Turns, own: Array) -> Batch:
        return draw(batch, key, own, most, jnp.dtype(jnp.float32))

    return jax.vmap(of_one)(keys, count)


class BatchRows(NamedTuple):
    """Some rows of a node's batch."""

    node: int
    rows: slice


def _parts(sizes: Sequence[int], cores: int) -> list[BatchRows]:
    """Divide the batches so that all cores are busy.

    The nodes that do not fill a last turn are cut among the cores.

    Part i begins node i; what is cut off follows after the last node.
    """
    firsts, others = [], []
    for node, size in enumerate(sizes):
        shared = node >= len(sizes) // cores * cores
        pieces = max(1, min(cores, size // LEAST_PART)) if shared else 1
        cuts = [round(size * i / pieces) for i in range(pieces + 1)]
        first, *rest = [BatchRows(node, slice(a, b)) for a, b in pairwise(cuts)]
        firsts.append(first)
        others += rest
    return firsts + others


def _on_all_cores(work: Callable[[int], None], number: int) -> None:
    """Do work(0) .. work(number - 1), each on one core."""
    list(_workers(torch.get_num_threads(), os.getpid()).map(work, range(number)))


@cache
def _workers(number: int, process: int) -> ThreadPoolExecutor:
    """Return threads in which PyTorch uses one core each; a forked process gets its own.

    PyTorch counts threads per calling thread, but a thread that sets its count also sets that of
    threads whose count was never looked at: so all start here, each looks at its own, and the
    caller's is put back.
    """
    del process
    together = Barrier(number + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()
        together.wait()

    workers = ThreadPoolExecutor(number, "folkman-onednn", begin)
    for _ in range(number):
        workers.submit(int)
    together.wait()
    torch.set_num_threads(number)
    return workers


# The network. Activations are rows (pixel, channel) for what goes over channels, and images seen
# channels-last by convolutions and pools: the same memory.

_RADIUS, _SCALE = 4, 0.001 / 9  # of `normalisation.local_response_norm`, whose power is 0.75
_FILTERS = 32
_BAND = (
    _SCALE * ((torch.arange(_FILTERS)[:, None] - torch.arange(_FILTERS)).abs() <= _RADIUS).float()
)
_ONES = torch.ones(_FILTERS, dtype=torch.float32)
_SAME = (
    [1, 1],
    [2, 2],
    [1, 1],
    False,
    [0, 0],
    1,
)  # stride, padding, dilation, transposed, its padding, groups
_aten = torch.ops.aten


class Norm(NamedTuple):
    """A response norm y = x d^-0.75 of rows, and what its gradient needs."""

    x: Tensor
    y: Tensor
    d: Tensor
    factor: Tensor  # d^-0.75


class Saved(NamedTuple):
    """The activations of a chunk that its gradient needs."""

    images: Tensor
    wide: Tensor  # the first convolution: only its room is used again
    pool0: Tensor  # where each maximum lay
    norm0: Norm
    norm1: Norm
    pool1: Tensor


def _rows(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).reshape(-1, _FILTERS)


def _images(rows: Tensor, height: int, width: int) -> Tensor:
    return rows.view(-1, height, width, _FILTERS).permute(0, 3, 1, 2)


def _kernel(tensors: Named, layer: str) -> Tensor:
    return tensors[f"{layer}/kernel"].permute(3, 2, 0, 1)


def _normalise(x: Tensor) -> Norm:
    squares = x * x
    d = torch.addmm(_ONES, squares, _BAND)
    factor = torch.rsqrt(d)
    factor *= torch.sqrt(factor, out=squares)
    return Norm(x, torch.mul(x, factor, out=squares), d, factor)


def _normalise_back(grad: Tensor, norm: Norm) -> Tensor:
    """Return the gradient before the norm and the ReLU under it.

    Written over `grad` and `norm.d`.
    """
    weighted = torch.mul(grad, norm.y).div_(norm.d)
    sums = torch.mm(weighted, _BAND, out=norm.d)
    grad.mul_(norm.factor).addcmul_(norm.x, sums, value=-1.5)
    return _aten.threshold_backward.grad_input(grad, norm.x, 0.0, grad_input=grad)


def _features(tensors: Named, x: Tensor) -> tuple[Tensor, Saved]:
    """Return what the dense layers see of images (n, height, width, channels), (n, feature)."""
    images = x.permute(0, 3, 1, 2)
    height, width = x.shape[1] // 2, x.shape[2] // 2
    wide = _aten.convolution(images, _kernel(tensors, "conv0"), None, *_SAME)
    pooled, pool0 = _aten.max_pool2d_with_indices(wide, [2, 2], [2, 2])
    norm0 = _normalise(_rows(pooled).add_(tensors["conv0/bias"]).relu_())
    inner = _images(norm0.y, height, width)
    convolved = _aten.convolution(inner, _kernel(tensors, "conv1"), tensors["conv1/bias"], *_SAME)
    norm1 = _normalise(_rows(convolved).relu_())
    last, pool1 = _aten.max_pool2d_with_indices(_images(norm1.y, height, width), [2, 2], [2, 2])
    features = last.permute(0, 2, 3, 1).reshape(len(x), -1)
    return features, Saved(images, wide, pool0, norm0, norm1, pool1)


def _scores(tensors: Named, features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden layer and the class scores."""
    hidden = torch.addmm(tensors["dense0/bias"], features, tensors["dense0/kernel"]).relu_()
    return hidden, torch.addmm(tensors["dense1/bias"], hidden, tensors["dense1/kernel"])


def _gradient(tensors: Named, x: Tensor, y: Tensor, size: float, into: Named) -> float:
    """Return the sum of losses over `size`, and write its gradient into `into`."""
    loss = 0.0
    pieces = ceil(len(x) / CHUNK)
    for index, (images, labels) in enumerate(
        zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True)
    ):
        put = _set if index == 0 else _add
        right = labels.long()[:, None]
        features, saved = _features(tensors, images)
        hidden, scores = _scores(tensors, features)
        log_odds = torch.log_softmax(scores, 1)
        loss -= log_odds.gather(1, right).sum().item() / size
        grad = (
            log_odds.exp_()
            .scatter_add_(1, right, -torch.ones_like(right, dtype=torch.float32))
            .div_(size)
        )
        put(into["dense1/bias"], grad.sum(0))
        _put_product(into["dense1/kernel"], hidden, grad, index)
        grad = _aten.threshold_backward(grad @ tensors["dense1/kernel"].T, hidden, 0.0)
        put(into["dense0/bias"], grad.sum(0))
        _put_product(into["dense0/kernel"], features, grad, index)
        _features_back(tensors, grad @ tensors["dense0/kernel"].T, saved, into, put)
    return loss


def _features_back(
    tensors: Named, grad: Tensor, saved: Saved, into: Named, put: Callable[[Tensor, Tensor], None]
) -> None:
    """Give the gradients of the two convolutional layers to `put`.

    What was saved is written over.
    """
    images, wide, pool0, norm0, norm1, pool1 = saved
    height, width = images.shape[2] // 2, images.shape[3] // 2
    shape = ([2, 2], [2, 2], [0, 0], [1, 1], False)
    last = _images(grad, height // 2, width // 2)
    grad = _aten.max_pool2d_with_indices_backward(
        last, _images(norm1.y, height, width), *shape, pool1
    )
    grad = _images(_normalise_back(_rows(grad), norm1), height, width)
    inner, kernel, bias = _aten.convolution_backward(
        grad,
        _images(norm0.y, height, width),
        _kernel(tensors, "conv1"),
        [_FILTERS],
        *_SAME,
        [True, True, True],
    )
    put(into["conv1/kernel"], kernel.permute(2, 3, 1, 0))
    put(into["conv1/bias"], bias)
    grad = _normalise_back(_rows(inner), norm0)
    put(into["conv0/bias"], grad.sum(0))
    grad = _aten.max_pool2d_with_indices_backward.grad_input(
        _images(grad, height, width), wide, *shape, pool0, grad_input=wide
    )
    _, kernel, _ = _aten.convolution_backward(
        grad, images, _kernel(tensors, "conv0"), None, *_SAME, [False, True, False]
    )
    put(into["conv0/kernel"], kernel.permute(2, 3, 1, 0))


def _set(into: Tensor, term: Tensor) -> None:
    into.copy_(term)


def _add(into: Tensor, term: Tensor) -> None:
    into.add_(term)


def _put_product(into: Tensor, left: Tensor, right: Tensor, index: int) -> None:
    """Set `into` to left^T right for the first chunk, and add for others."""
    torch.addmm(into, left.T, right, beta=min(index, 1), out=into)


def _add_penalty(l2: float, tensors: Named, into: Named) -> float:
    """Return l2/2 times the squared norm of all but biases, and add its gradient to `into`."""
    total = 0.0
    for name, tensor in tensors.items():
        if "bias" not in name:
            total += 0.5 * l2 * float(torch.sum(tensor * tensor))
            into[name].add_(tensor, alpha=l2)
    return total
