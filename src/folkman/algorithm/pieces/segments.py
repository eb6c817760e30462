"""Where the tensors of a model lie in its flat vector, for methods that treat each tensor apart."""

from math import prod
from typing import TypeAlias

__all__ = ["Shapes", "segments"]

Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def segments(shapes: Shapes | None, dim: int) -> tuple[slice, ...]:
    """Return the slice of each tensor, in order; without shapes the vector is one tensor.

    >>> segments(((2, 3), (3,)), 9)
    (slice(0, 6, None), slice(6, 9, None))
    """
    sizes = [prod(shape) for shape in shapes] if shapes is not None else [dim]
    if sum(sizes) != dim:
        raise ValueError(
            f"shapes must hold the {dim} parameters of the model, got {shapes} with {sum(sizes)}"
        )
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    return tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))
