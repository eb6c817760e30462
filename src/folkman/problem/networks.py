"""The parametric part of a model: from a flat vector and samples to scores.

Each is a frozen value with `layout`, `init(key) -> w` and `scores(w, x) -> (n, output)`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from folkman.arrays import Array, jax, jnp
from folkman.problem.layout import Layout

__all__ = ["PRECISIONS", "Dense", "Offset", "Precision", "ScoreNetwork"]

Precision: TypeAlias = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


class ScoreNetwork(Protocol):
    """What a model needs of its network."""

    @property
    def layout(self) -> Layout:
        """Return the map of the flat vector."""
        ...

    def init(self, key: Array) -> Array:
        """Return the first flat vector, float32."""
        ...

    def prepare(self, x: Array) -> Array:
        """Return n samples in the form that `scores` is fastest at; it takes both."""
        ...

    def scores(self, w: Array, x: Array) -> Array:
        """Return the scores (n, output) of n samples."""
        ...


@dataclass(frozen=True)
class Offset:
    """Scores w - x: with the ENERGY head, a quadratic centred at each sample. Starts at zero."""

    features: int

    @property
    def layout(self) -> Layout:
        """Return one segment, `w`."""
        return Layout((("w", (self.features,)),))

    def init(self, key: Array) -> Array:
        """Return zeros."""
        del key
        return jnp.zeros(self.features, jnp.float32)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the offset from each centre."""
        return w[None] - x


@dataclass(frozen=True)
class Dense:
    """Dense layers with ReLU between.

    One layer starts at zero (its loss is convex); more start with He-normal kernels and zero
    biases. Kernels are (outputs, inputs): the gradient is then one fast product on the CPU, three
    times as fast as its transpose.
    """

    widths: tuple[int, ...]  # features, hidden ..., outputs
    bias: bool = True

    @property
    def layout(self) -> Layout:
        """Return `kernel<l>` and `bias<l>` for each layer l from 0."""
        shapes = []
        for layer, (fan_in, fan_out) in enumerate(
            zip(self.widths[:-1], self.widths[1:], strict=True)
        ):
            shapes.append((f"kernel{layer}", (fan_out, fan_in)))
            if self.bias:
                shapes.append((f"bias{layer}", (fan_out,)))
        return Layout(tuple(shapes))

    def init(self, key: Array) -> Array:
        """Return zeros for one layer, He-normal kernels for more."""
        if len(self.widths) == 2:
            return jnp.zeros(self.layout.size, jnp.float32)
        keys = jax.random.split(key, len(self.layout.shapes))
        tensors = {}
        for (name, shape), tensor_key in zip(self.layout.shapes, keys, strict=True):
            scale = (2.0 / shape[-1]) ** 0.5 if name.startswith("kernel") else 0.0
            tensors[name] = (
                scale * jax.random.normal(tensor_key, shape[::-1], jnp.float32).T
            )  # drawn input by input
        return self.layout.flatten(tensors)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return the last layer's outputs for the flattened samples."""
        tensors = self.layout.unflatten(w)
        h = x.reshape(x.shape[0], -1)
        for layer in range(len(self.widths) - 1):
            h = (jax.nn.relu(h) if layer else h) @ tensors[f"kernel{layer}"].T
            h = h + tensors[f"bias{layer}"][None] if self.bias else h
        return h
