"""Sparse models: how many parameters of each tensor are kept, and masks that lose and gain as many.

    density_l = min(1, eps (sum of dims_l) / (product of dims_l)),
                eps such that density d are kept in all                                     ERK [1]
    n = ceil((f/2) (1 + cos(pi r / R)) |m|) entries of each tensor are dropped and regrown
                in round r                                                                      [1]

Dropped are those of smallest magnitude; regrown are, of all that are then left out, those of
highest score. So |m| of each tensor never changes. From round R on nothing moves.

[1] U. Evci, T. Gale, J. Menick, P. S. Castro, E. Elsen. Rigging the Lottery: Making All Tickets
    Winners. ICML 2020. arXiv:1911.11134
"""

from math import floor, prod
from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import Array

from folkman.algorithm.pieces.segments import Shapes, segments
from folkman.checks import require

__all__ = ["Layers", "Sparsity", "kept", "lowest"]

Layers: TypeAlias = Literal["erk", "uniform"]


class Sparsity(NamedTuple):
    """How sparse a model is, and how its masks change."""

    density: float
    layers: Layers
    anneal: float  # f
    rounds: int  # R
    shapes: Shapes | None

    def check(self) -> None:
        """Refuse what cannot be."""
        require(
            0 < self.density <= 1,
            f"density must be in (0, 1], got {self.density}; 1 is a dense model",
        )
        require(
            self.layers in ("erk", "uniform"),
            f"layers must be 'erk' or 'uniform', got {self.layers!r}",
        )
        require(
            0 <= self.anneal <= 1, f"anneal must be in [0, 1], got {self.anneal}; 0 keeps the masks"
        )
        require(
            self.rounds >= 1,
            f"rounds must be at least 1, got {self.rounds}; it is when the masks stop changing",
        )

    def parts(self, dim: int) -> list[tuple[slice, int]]:
        """Return of each tensor its slice of the flat vector, and how many entries are kept."""
        numbers = kept(self.shapes or ((dim,),), self.density, self.layers)
        return list(zip(segments(self.shapes, dim), numbers, strict=True))

    def ratio(self, round_: Array) -> Array:
        """Return the share of a mask that moves in a round."""
        return 0.5 * self.anneal * (1.0 + jnp.cos(jnp.pi * jnp.minimum(round_ / self.rounds, 1.0)))

    def first(self, score: Array) -> Array:
        """Return the mask (d,) of the entries with the lowest score (d,) in each tensor."""
        return jnp.concatenate(
            [lowest(score[cut], number) for cut, number in self.parts(len(score))]
        )

    def evolve(self, mask: Array, params: Array, score: Array, round_: Array) -> Array:
        """Return the mask after dropping by |params| and regrowing by score; round_ is a float."""
        found = []
        for cut, number in self.parts(len(mask)):
            moved = jnp.ceil(self.ratio(round_) * number)
            left = mask[cut] & ~lowest(jnp.where(mask[cut], jnp.abs(params[cut]), jnp.inf), moved)
            found.append(left | lowest(jnp.where(left, jnp.inf, -score[cut]), moved))
        return jnp.concatenate(found)


def lowest(score: Array, number: int | Array) -> Array:
    """Return a mask of the `number` entries of lowest score; of equal ones the first."""
    return jnp.zeros(len(score), bool).at[jnp.argsort(score)].set(jnp.arange(len(score)) < number)


def kept(shapes: Shapes, density: float, layers: Layers) -> tuple[int, ...]:
    """Return how many entries of each tensor are kept.

    >>> kept(((10, 10), (10,)), 0.5, "erk")  # the bias is kept whole, the kernel makes room for it
    (45, 10)
    """
    size = [prod(shape) for shape in shapes]
    if layers == "uniform":
        return tuple(floor(density * number + 1e-9) for number in size)
    raw = [max(1, sum(shape)) / max(1, number) for shape, number in zip(shapes, size, strict=True)]
    dense: set[int] = set()
    while sparse := [at for at in range(len(size)) if at not in dense]:
        room = density * sum(size) - sum(size[at] for at in dense)
        eps = room / sum(raw[at] * size[at] for at in sparse)
        top = max(raw[at] for at in sparse)
        if eps * top <= 1:
            return tuple(
                size[at] if at in dense else floor(eps * raw[at] * size[at] + 1e-9)
                for at in range(len(size))
            )
        dense |= {at for at in sparse if raw[at] == top}
    return tuple(size)
