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

from folkman.algorithm.pieces.segments import Shapes, segments
from folkman.arrays import Array, jax, jnp, lax
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


@jax.jit
def lowest(score: Array, number: int | Array) -> Array:
    """Return a mask of the `number` entries of lowest score; of equal ones the first, NaN last.

    The largest score that is taken is found bit by bit, each by counting: as a sort would have it,
    in a tenth of the time. It is a program of its own, since a loop that is called by hand would be
    compiled at every call.
    """
    order = _order(score)
    bits = jnp.iinfo(order.dtype).bits
    one = jnp.ones((), order.dtype)

    def settle(step: Array, largest: Array) -> Array:
        bit = one << (bits - 1 - step).astype(order.dtype)
        enough = jnp.sum(order <= (largest | (bit - one)), dtype=jnp.int32) >= number
        return jnp.where(enough, largest, largest | bit)

    largest = lax.fori_loop(0, bits, settle, jnp.zeros((), order.dtype))
    below, equal = order < largest, order == largest
    room = number - jnp.sum(below, dtype=jnp.int32)
    return (below | (equal & (jnp.cumsum(equal, dtype=jnp.int32) <= room))) & (number > 0)


def _order(score: Array) -> Array:
    """Return whole numbers, unsigned, in the order of floats; 0 and -0 are equal, NaN is last."""
    score = jnp.where(score == 0, 0.0, jnp.where(jnp.isnan(score), jnp.nan, score))
    whole = jnp.uint32 if score.dtype == jnp.float32 else jnp.uint64
    bits = lax.bitcast_convert_type(score, whole)
    top = jnp.asarray(1, whole) << (jnp.iinfo(whole).bits - 1)
    return jnp.where(bits & top != 0, ~bits, bits | top)


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
