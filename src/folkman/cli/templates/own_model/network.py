"""A model of one's own, in plain JAX: a network, and the loss that judges its scores.

A network goes from a flat vector of parameters and samples to scores. `layout` names the tensors
inside the vector; `layers` says what the network is made of, so that `folkman export` can write it.
"""

from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
from jax import Array

import folkman as fm
from folkman.problem.layers import Affine, Flatten, Layer, Relu
from folkman.problem.models import CROSS_ENTROPY, Layout


@dataclass(frozen=True)  # a value: two networks with equal fields share one compiled program
class Bottleneck:
    """Dense, ReLU, dense."""

    features: int
    width: int
    classes: int

    @property
    def layout(self) -> Layout:
        """Return the names and shapes of the tensors, in order."""
        first = (("down", (self.features, self.width)), ("down_bias", (self.width,)))
        return Layout((*first, ("up", (self.width, self.classes)), ("up_bias", (self.classes,))))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Return what `scores` does, layer by layer."""
        return (Flatten(), Affine("down", "down_bias"), Relu(), Affine("up", "up_bias"))

    def init(self, key: Array) -> Array:
        """Return the first parameters as a flat float32 vector."""
        keys = jax.random.split(key, 2)
        tensors = {name: jnp.zeros(shape) for name, shape in self.layout.shapes}
        for name, own in zip(("down", "up"), keys, strict=True):
            shape = tensors[name].shape
            tensors[name] = jax.random.normal(own, shape) * (2.0 / shape[0]) ** 0.5
        return self.layout.flatten(tensors)

    def prepare(self, x: Array) -> Array:
        """Return the samples as they are."""
        return x

    def scores(self, w: Array, x: Array) -> Array:
        """Return one score for each sample and class, (n, classes)."""
        t = self.layout.unflatten(w)
        hidden = jax.nn.relu(x.reshape(len(x), -1) @ t["down"] + t["down_bias"][None])
        return hidden @ t["up"] + t["up_bias"][None]


def bottleneck(sample: tuple[int, ...], classes: int, *, width: int = 16) -> fm.Model:
    """Build the model; `sample` and `classes` are given by folkman, `width` is a key."""
    return fm.Model(Bottleneck(prod(sample), width, classes), CROSS_ENTROPY)
