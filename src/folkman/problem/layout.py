"""A flat vector and the named tensors inside it.

Every seam of the package (algorithms, mixing, wire, checkpoints) sees a model as one vector of
length d; only `problem` opens it. A `Layout` is the map between the two.
"""

from dataclasses import dataclass
from math import prod

from folkman.arrays import Array, Float, jnp

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the segments of a flat vector, in order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """Return d, the number of parameters."""
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def segments(self) -> dict[str, slice]:
        """Return the slice of the flat vector that each name occupies."""
        slices, start = {}, 0
        for name, shape in self.shapes:
            slices[name] = slice(start, start + prod(shape))
            start += prod(shape)
        return slices

    def unflatten(self, vector: Float[Array, " d"]) -> dict[str, Array]:
        """Cut a flat vector into its named tensors."""
        segments = self.segments
        return {name: vector[segments[name]].reshape(shape) for name, shape in self.shapes}

    def flatten(self, tensors: dict[str, Array]) -> Float[Array, " d"]:
        """Join named tensors into the flat vector."""
        return jnp.concatenate([jnp.reshape(tensors[name], -1) for name, _ in self.shapes])
