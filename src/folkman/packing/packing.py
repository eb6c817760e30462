"""A packing as a value, and what it does to a vector.

    code   = encode(packing, x, key)      what travels: numbers, places, a scale, a seed
    values = decode(packing, code, d)     what the receiver sees
    pack(packing, x, key)                 both, as simulators use it
    bits_of(packing, d)                   the bits of the code

With x of d entries, s = 2^(b-1) - 1 levels and u uniform in [0, 1),

    float16   C(x)_i = the nearest number of that width; or, with c_i the distance of its numbers
              around x_i, up or down at random: c_i (floor(x_i / c_i) + [u_i < x_i / c_i - floor])
    int8      C(x)_i = c round(x_i / c), c = max|x| / 127
    qsgd      C(x)_i = c sign(x_i) (floor(r_i) + [u_i < r_i - floor(r_i)]), r_i = |x_i| / c,
              c = max|x| / s, or ||x|| / s as [1, eq. (3)] has it
    sign      C(x)_i = sign(x_i) ||x||_1 / d
    fixed     C(x)_i = c round(x_i / c), c = L / 2^(b-1), at most 2^(b-1) - 1 steps from 0: one
              grid for all messages, so that sums of them lie on it (`folkman.packing.sums`)
    top_k     C(x)_i = x_i for the k largest |x_i|, 0 for the others
    rand_k    C(x)_i = (d / k) x_i for k entries drawn at random, 0 for the others

With error feedback a packing must be a contraction, E||C(x) - x||^2 <= (1 - delta) ||x||^2: rand_k
then sends x_i without the factor, and qsgd its levels divided by 1 + omega, where omega bounds its
variance over ||x||^2.

A message's first d entries are a model or a difference; these, and further whole blocks of d
entries, are packed each by itself. What remains (a push-sum weight, a version) travels exactly.
Arithmetic is float32, as the wire's. A block that is not finite is NaN for its receiver.

[1] Alistarh et al. QSGD. NeurIPS 2017. arXiv:1610.02132
[2] Gupta, Agrawal, Gopalakrishnan, Narayanan. Deep Learning with Limited Numerical Precision.
    ICML 2015. arXiv:1502.02551
"""

from math import ceil, inf, sqrt
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, Float, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require

__all__ = [
    "CASTS",
    "GOLDEN",
    "NONE",
    "Code",
    "Packing",
    "bfloat16",
    "bits_of",
    "blocks_of",
    "by_bits",
    "decode",
    "encode",
    "fixed",
    "float16",
    "float32",
    "implied",
    "int8",
    "kept_of",
    "levels_of",
    "message_bits",
    "mixed",
    "none",
    "pack",
    "pack_message",
    "place_bits",
    "places",
    "qsgd",
    "rand_k",
    "sign",
    "step_of",
    "top_k",
    "variance_of",
    "width_of",
]

Norm = Literal["max", "two"]
Rounding = Literal["nearest", "stochastic"]

INT8_LEVELS = 127
SCALE_BITS = SEED_BITS = VALUE_BITS = 32
GOLDEN, THIRTEEN, SIXTEEN = np.uint32(0x9E3779B9), np.uint32(13), np.uint32(16)
"""Of the numbers that a seed stands for: 2^32 over the golden ratio, and shifts."""
MOST_LEVEL_BITS = 16
"""Of a level of qsgd: beyond that float16 is as short and needs no scale."""

CASTS: dict[str, tuple[int, float]] = {
    "float32": (32, float(np.finfo(np.float32).max)),
    "float16": (16, 65504.0),
    "bfloat16": (16, float.fromhex("0x1.fep127")),
}
"""Packings that round every entry to a width: its bits, and its largest number."""


class Packing(NamedTuple):
    """A packing: its name and its numbers. Build one by the function of its name."""

    name: str = "none"
    # bits of an entry: with none its price (None: as computed), else of a level
    bits: int | None = None
    fraction: float = 1.0  # share of the entries that top_k and rand_k send
    norm: Norm = "max"  # norm that scales the levels of qsgd: max, or two
    feedback: bool = False  # whether what was left out is remembered and sent later
    servers: bool = True  # whether servers pack what they send
    rounding: Rounding = "nearest"  # how float16 and bfloat16 round: to the nearest, or at random
    largest: float = 0.0  # L, of fixed: what exceeds it is cut off

    @property
    def draws(self) -> bool:
        """Tell whether a key decides what travels."""
        return self.name in ("qsgd", "rand_k") or self.rounding == "stochastic"

    @property
    def exact(self) -> bool:
        """Tell whether values travel as they are."""
        return self.name == "none"

    @property
    def remembers(self) -> bool:
        """Tell whether a sender has a memory."""
        return self.feedback and not self.exact


NONE = Packing()
"""The numbers as they are, at the width they are computed in."""


def by_bits() -> None:
    """Leave the packing to the network: as many bits as its `bits_per_parameter` says."""
    return


def none(bits: int | None = None) -> Packing:
    """Build the packing that changes nothing; `bits` is a price only: of one entry on the air."""
    require(bits is None or bits >= 1, f"bits must be at least 1, got {bits}")
    return Packing("none", bits)


def float32(feedback: bool = False, servers: bool = True) -> Packing:
    """Build the packing that rounds to 32 bits."""
    return Packing("float32", feedback=feedback, servers=servers)


def float16(
    feedback: bool = False, servers: bool = True, rounding: Rounding = "nearest"
) -> Packing:
    """Build the packing that rounds to 16 bits; what they cannot hold becomes +-65504."""
    _check_rounding(rounding)
    return Packing("float16", feedback=feedback, servers=servers, rounding=rounding)


def bfloat16(
    feedback: bool = False, servers: bool = True, rounding: Rounding = "nearest"
) -> Packing:
    """Build the packing that keeps the upper 16 bits of a float32, rounded."""
    _check_rounding(rounding)
    return Packing("bfloat16", feedback=feedback, servers=servers, rounding=rounding)


def _check_rounding(rounding: Rounding) -> None:
    require(
        rounding in ("nearest", "stochastic"),
        f"rounding is 'nearest' or 'stochastic', got {rounding!r}",
    )


def int8(feedback: bool = False, servers: bool = True) -> Packing:
    """Build the packing into 8 bits an entry and a scale."""
    return Packing("int8", feedback=feedback, servers=servers)


def fixed(
    bits: int = 16,  # of an entry
    largest: float = 8.0,  # size of the largest entry; above it is cut
    feedback: bool = False,
    servers: bool = True,
) -> Packing:
    """Build the packing onto one grid for all: `bits` an entry of at most `largest` in size."""
    require(
        2 <= bits <= MOST_LEVEL_BITS,
        f"fixed takes 2 to {MOST_LEVEL_BITS} bits, got {bits}; above use float32",
    )
    require(0 < largest < inf, f"largest must be positive and finite, got {largest}")
    return Packing("fixed", bits, feedback=feedback, servers=servers, largest=float(largest))


def qsgd(
    bits: int = 4,  # of an entry, its sign included
    norm: Norm = "max",  # what the levels are shares of: the largest entry, or the norm
    feedback: bool = False,
    servers: bool = True,
) -> Packing:
    """Build QSGD: `bits` an entry, its sign included, rounded at random, and a scale."""
    require(
        2 <= bits <= MOST_LEVEL_BITS,
        f"qsgd takes 2 to {MOST_LEVEL_BITS} bits, got {bits}; for 1 use sign, above use float32",
    )
    require(norm in ("max", "two"), f"norm is 'max' or 'two', got '{norm}'")
    return Packing("qsgd", bits, norm=norm, feedback=feedback, servers=servers)


def sign(feedback: bool = False, servers: bool = True) -> Packing:
    """Build the packing into one bit an entry and a scale."""
    return Packing("sign", feedback=feedback, servers=servers)


def top_k(
    fraction: float = 0.01,  # share of the entries that is sent, the largest ones
    feedback: bool = False,
    servers: bool = True,
) -> Packing:
    """Build the packing that sends the largest entries, `fraction` of them and at least one."""
    _check_fraction(fraction)
    return Packing("top_k", fraction=fraction, feedback=feedback, servers=servers)


def rand_k(
    fraction: float = 0.01,  # share of the entries that is sent, drawn at random
    feedback: bool = False,
    servers: bool = True,
) -> Packing:
    """Build the packing that sends entries drawn at random, `fraction` of them, at least one."""
    _check_fraction(fraction)
    return Packing("rand_k", fraction=fraction, feedback=feedback, servers=servers)


def _check_fraction(fraction: float) -> None:
    require(0 < fraction <= 1, f"fraction is a share of the entries in (0, 1], got {fraction}")


def implied(bits_per_parameter: int | None) -> Packing:
    """Return the packing whose entries have so many bits; None: the numbers as computed.

    16 bits round at random: to the nearest number a model whose steps are less than half of a
    number's distance to the next one stands still (docs/compression.md).
    """
    bits = bits_per_parameter
    if bits is None:
        return NONE
    sixteen = float16(rounding="stochastic")
    named = {1: sign(), 8: int8(), 16: sixteen, 32: float32(), 64: none(64)}
    if bits in named:
        return named[bits]
    require(
        2 <= bits < MOST_LEVEL_BITS,
        f"no packing has {bits} bits an entry; use 1 to 16, 32 or 64, or say that the bits are a "
        "price only: [compression] name = 'none', in Python Compressed(network, none())",
    )
    return qsgd(bits)


class Code(NamedTuple):
    """What travels of one block; parts that a packing does not use have no entries."""

    numbers: Array  # (d,) or (k,): values or levels
    places: Array  # (k,) of the values, in order
    scale: Array  # () float32
    seed: Array  # () uint32


def blocks_of(entries: int, dim: int) -> int:
    """Return how many whole blocks of d entries a message has."""
    return entries // dim


def kept_of(packing: Packing, dim: int) -> int:
    """Return k, the number of entries that are sent."""
    return min(dim, max(1, ceil(packing.fraction * dim - 1e-9)))


def place_bits(dim: int) -> int:
    """Return ceil(log2 d), the bits of a place."""
    return (dim - 1).bit_length()


def width_of(dtype: np.dtype) -> int:
    """Return the bits of a number as it is computed."""
    return 8 * np.dtype(dtype).itemsize


def bits_of(packing: Packing, dim: int, width: int = 32) -> int:
    """Return the bits of a block of d entries, which are computed in `width` bits."""
    if packing.exact:
        return dim * (packing.bits or width)
    if packing.name in CASTS:
        return dim * CASTS[packing.name][0]
    kept = kept_of(packing, dim)
    return {
        "int8": 8 * dim + SCALE_BITS,
        "qsgd": (packing.bits or 0) * dim + SCALE_BITS,
        "fixed": (packing.bits or 0) * dim + SCALE_BITS,
        "sign": dim + SCALE_BITS,
        "top_k": kept * (VALUE_BITS + place_bits(dim)),
        "rand_k": kept * VALUE_BITS + SEED_BITS,
    }[packing.name]


def message_bits(packing: Packing, entries: int, dim: int, width: int = 32) -> int:
    """Return the bits of a message: its blocks, and what remains as it is computed."""
    if packing.exact:
        return entries * (packing.bits or width)
    blocks = blocks_of(entries, dim)
    return blocks * bits_of(packing, dim) + (entries - blocks * dim) * width


def encode(packing: Packing, vector: Float[Array, " d"], key: PRNGKeyArray) -> Code:
    """Return what travels of a block, by any packing but `none`."""
    most = CASTS["float32"][1]
    x = jnp.clip(vector.astype(jnp.float32), -most, most)
    finite = jnp.all(jnp.isfinite(vector))
    nothing, no = jnp.zeros(0, jnp.uint32), jnp.zeros((), jnp.uint32)
    one = jnp.ones((), jnp.float32)
    if packing.name in CASTS:
        most = CASTS[packing.name][1]
        held = jnp.clip(x, -most, most)
        if packing.rounding == "stochastic":
            held = _at_random(packing, held, key)
        held = jnp.where(finite, held, jnp.nan)
        return Code(held.astype(packing.name), nothing, one, no)
    if packing.name in ("top_k", "rand_k"):
        return _encode_some(packing, x, finite, key)
    ways = {"int8": _int8, "qsgd": _qsgd, "sign": _sign, "fixed": _fixed}
    scale, levels = ways[packing.name](packing, x, key)
    scale = jnp.where(finite, scale, jnp.nan).astype(jnp.float32)
    return Code(levels, nothing, scale, no)


def _at_random(packing: Packing, x: Array, key: Array) -> Array:
    """Return one of the two numbers of a width around each x, so that the mean is x [2].

    A float32 has 16 bits more than a bfloat16: a carry out of them goes up. A float16 has 10 bits
    behind the first, and numbers below 2^-14 are multiples of 2^-24.
    """
    words = lax.bitcast_convert_type(x, jnp.uint32)
    if packing.name == "bfloat16":
        drawn = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
        return lax.bitcast_convert_type((words + drawn) & np.uint32(0xFFFF0000), jnp.float32)
    exponent = ((words >> np.uint32(23)) & np.uint32(255)).astype(jnp.int32) - 127
    places = jnp.maximum(exponent, -14) - 10
    spacing = lax.bitcast_convert_type((places + 127) << 23, jnp.float32)
    steps = x / spacing
    low = jnp.floor(steps)
    up = jax.random.uniform(key, x.shape, jnp.float32) < steps - low
    return (low + up) * spacing


def _over(x: Array, scale: Array) -> Array:
    """Return x / scale, and 0 where all of x is 0."""
    return x / jnp.where(scale > 0, scale, 1.0)


def _int8(packing: Packing, x: Array, key: Array) -> tuple[Array, Array]:
    del packing, key
    scale = jnp.max(jnp.abs(x)) * np.float32(1 / INT8_LEVELS)  # compiled or not the same bits
    levels = jnp.clip(jnp.round(_over(x, scale)), -INT8_LEVELS, INT8_LEVELS)
    return scale, levels.astype(jnp.int8)


def _qsgd(packing: Packing, x: Array, key: Array) -> tuple[Array, Array]:
    most = levels_of(packing)
    size = jnp.max(jnp.abs(x)) if packing.norm == "max" else jnp.sqrt(jnp.sum(x * x))
    scale = size * np.float32(1 / most)
    steps = _over(jnp.abs(x), scale)
    low = jnp.floor(steps)
    up = jax.random.uniform(key, x.shape, jnp.float32) < steps - low
    levels = jnp.where(x < 0, -1, 1) * jnp.clip(low + up, 0, most).astype(jnp.int32)
    shrink = 1.0 / (1.0 + variance_of(packing, x.shape[0])) if packing.feedback else 1.0
    return scale * np.float32(shrink), levels


def _fixed(packing: Packing, x: Array, key: Array) -> tuple[Array, Array]:
    del key
    most, scale = levels_of(packing), np.float32(step_of(packing))
    return jnp.asarray(scale), jnp.clip(jnp.round(x / scale), -most, most).astype(jnp.int32)


def step_of(packing: Packing) -> float:
    """Return c, the step of the grid of fixed."""
    return packing.largest / 2 ** ((packing.bits or 2) - 1)


def levels_of(packing: Packing) -> int:
    """Return s, the levels of qsgd and fixed on each side of 0."""
    return 2 ** ((packing.bits or 2) - 1) - 1


def variance_of(packing: Packing, dim: int) -> float:
    """Return omega with E||C(x) - x||^2 <= omega ||x||^2 of qsgd [1, Lemma 3.1].

    A level lies at most half a unit off by its deviation, and units are max|x| / s under the norm
    `max`.
    """
    most = levels_of(packing)
    quarter = 4.0 if packing.norm == "max" else 1.0
    return min(dim / (quarter * most**2), sqrt(dim) / most)


def _sign(packing: Packing, x: Array, key: Array) -> tuple[Array, Array]:
    del packing, key
    return jnp.sum(jnp.abs(x)) * np.float32(1 / x.shape[0]), jnp.where(x >= 0, 1, -1).astype(
        jnp.int8
    )


def _encode_some(packing: Packing, x: Array, finite: Array, key: Array) -> Code:
    dim = x.shape[0]
    kept = kept_of(packing, dim)
    seed = jnp.zeros((), jnp.uint32)
    if packing.name == "top_k":
        chosen = jnp.sort(lax.top_k(jnp.abs(x), kept)[1]).astype(jnp.uint32)
    else:
        seed = jax.random.bits(key, (), jnp.uint32)
        chosen = places(seed, dim, kept)
    values = jnp.where(finite, x[chosen], jnp.nan)
    if packing.name == "rand_k" and not packing.feedback:
        values = values * np.float32(dim / kept)
    return Code(values, chosen, jnp.ones((), jnp.float32), seed)


def places(seed: Array, dim: int, kept: int) -> Array:
    """Return the places that a seed stands for: those of the k smallest of d mixed numbers."""
    numbers = mixed(jnp.arange(dim, dtype=jnp.uint32) * GOLDEN + seed)
    return jnp.sort(jnp.argsort(numbers, stable=True)[:kept]).astype(jnp.uint32)


Words = TypeVar("Words", Array, NDArray[np.uint32])


def mixed(words: Words) -> Words:
    """Mix 32-bit words, twice by the last step of MurmurHash3; the same in JAX and in NumPy."""
    for _ in range(2):
        words = (words ^ (words >> SIXTEEN)) * np.uint32(0x85EBCA6B)
        words = (words ^ (words >> THIRTEEN)) * np.uint32(0xC2B2AE35)
        words = words ^ (words >> SIXTEEN)
    return words


def decode(packing: Packing, code: Code, dim: int) -> Float[Array, " d"]:
    """Return what the receiver sees, float32."""
    if packing.name in ("top_k", "rand_k"):
        return jnp.zeros(dim, jnp.float32).at[code.places].set(code.numbers)
    return code.numbers.astype(jnp.float32) * code.scale


def pack(packing: Packing, vector: Float[Array, " d"], key: PRNGKeyArray) -> Float[Array, " d"]:
    """Return a block as its receiver sees it."""
    if packing.exact:
        return vector
    seen = decode(packing, encode(packing, vector, key), vector.shape[0])
    return seen.astype(vector.dtype)


def pack_message(
    packing: Packing, message: Float[Array, " message"], dim: int, key: PRNGKeyArray
) -> Float[Array, " message"]:
    """Return a message as its receiver sees it: blocks packed, what remains as it is."""
    blocks = blocks_of(message.shape[0], dim)
    if packing.exact or blocks == 0:
        return message
    packed = message[: blocks * dim].reshape(blocks, dim)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(blocks))
    seen = jax.vmap(lambda block, own: pack(packing, block, own))(packed, keys)
    return jnp.concatenate([seen.reshape(-1), message[blocks * dim :]])
