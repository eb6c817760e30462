"""Random numbers as `jax.random` draws them: the Threefry-2x32 generator [1], bit for bit.

A key is a pair of 32-bit numbers, here one entry of the type `KEY`. `normal` goes through the
inverse error function, whose last bit may differ from XLA's.

[1] J. Salmon, M. Moraes, R. Dror, D. Shaw. Parallel Random Numbers: As Easy as 1, 2, 3. SC 2011.
"""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folkman.light.array import NotHereError, canonical, plain, settings

__all__ = ["KEY", "bits", "categorical", "fold_in", "key", "key_data", "normal", "randint"]
__all__ += ["permutation", "split", "uniform"]

KEY = np.dtype([("first", np.uint32), ("second", np.uint32)])
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
WORD = 0xFFFFFFFF

# the inverse error function for w = -log(1 - x^2) below 5 and above, highest power first:
# M. Giles, Approximating the erfinv function, GPU Computing Gems, 2011
NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087)
NEAR += (-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773)
FAR += (-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    raise NotHereError(f"jax.random.{name}")


def key(seed: Any) -> Any:
    """Return the key of a seed."""
    number = int(np.asarray(plain(seed))) & 0xFFFFFFFFFFFFFFFF
    return _key(np.uint32(number >> 32), np.uint32(number & 0xFFFFFFFF))


def key_data(keys: Any) -> Any:
    """Return the pair of numbers of each key, on a last axis."""
    held = plain(keys)
    return canonical(np.stack([held["first"], held["second"]], axis=-1))


def fold_in(stream: Any, data: Any) -> Any:
    """Return the key of a number under a key; of many numbers at once, one each."""
    held = plain(stream)
    if held.ndim == 0 and np.ndim(data) == 0:  # one key of one number: NumPy would be slower
        begun = int(held["first"]), int(held["second"])
        return _key(*_threefry_of_one(begun, int(data) & WORD))
    number = np.asarray(plain(data)).astype(np.uint32)
    return _key(*_threefry(plain(stream), np.zeros_like(number), number))


def split(stream: Any, num: int = 2) -> Any:
    """Return so many keys from one."""
    return _key(*_threefry(plain(stream), *_counts((num,))))


def bits(stream: Any, shape: tuple[int, ...] = (), dtype: Any = np.uint32) -> Any:
    """Return random bits, at most 32 an entry."""
    if np.dtype(dtype).itemsize > 4:
        raise NotHereError("jax.random.bits of 64 bits")
    first, second = _threefry(plain(stream), *_counts(shape))
    return canonical((first ^ second).astype(dtype))


def uniform(
    stream: Any,
    shape: tuple[int, ...] = (),
    dtype: Any = np.float32,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Any:
    """Return numbers in [minval, maxval): the bits are the 23 of a mantissa."""
    if np.dtype(dtype) != np.float32 and (settings.wide or np.dtype(dtype) != np.float64):
        raise NotHereError(f"jax.random.uniform in {np.dtype(dtype)}")
    mantissa = plain(bits(stream, shape)) >> np.uint32(9)
    ones = (mantissa | np.float32(1.0).view(np.uint32)).view(np.float32) - np.float32(1.0)
    low, high = (np.asarray(plain(each), np.float32) for each in (minval, maxval))
    return canonical(np.maximum(low, ones * (high - low) + low))


def normal(stream: Any, shape: tuple[int, ...] = (), dtype: Any = np.float32) -> Any:
    """Return numbers of the standard normal law."""
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    drawn = plain(uniform(stream, shape, dtype, low, 1.0))
    return canonical(np.float32(np.sqrt(2)) * _erf_inv(drawn))


def randint(
    stream: Any, shape: tuple[int, ...], minval: Any, maxval: Any, dtype: Any = np.int32
) -> Any:
    """Return whole numbers in [minval, maxval), all as likely to 2^-32."""
    if np.dtype(dtype) != np.int32:
        raise NotHereError(f"jax.random.randint in {np.dtype(dtype)}")
    low, high = (np.asarray(plain(each)).astype(np.int32) for each in (minval, maxval))
    above, below = split(stream)
    span = np.where(high <= low, 1, high.astype(np.int64) - low).astype(np.uint32)
    factor = np.uint32(2**16) % span
    with np.errstate(over="ignore"):
        factor = (factor * factor) % span  # 2^32 mod span
        high_part, low_part = (plain(bits(each, shape)) % span for each in (above, below))
        offset = (high_part * factor + low_part) % span
        return canonical((low + offset.astype(np.int32)).astype(np.int32))


def categorical(stream: Any, logits: Any) -> Any:
    """Return one number of 0, 1, ... drawn by the logarithms of their weights (n,)."""
    weights = np.asarray(plain(logits), np.float32)
    drawn = plain(uniform(stream, weights.shape, np.float32, np.finfo(np.float32).tiny, 1.0))
    return canonical(np.argmax(weights - np.log(-np.log(drawn))))


def permutation(stream: Any, x: Any) -> Any:
    """Return 0, 1, ..., x - 1, or the rows of x, in random order: sorted by drawn bits."""
    rows = np.arange(x, dtype=np.int32) if np.ndim(x) == 0 else np.asarray(plain(x))
    if rows.ndim != 1:
        raise NotHereError("jax.random.permutation of rows")
    for _ in range(int(np.ceil(3 * np.log(max(1, rows.size)) / np.log(2**32 - 1)))):
        stream, own = split(stream)
        rows = rows[np.argsort(plain(bits(own, rows.shape)), stable=True)]
    return canonical(rows)


def _key(first: Any, second: Any) -> Any:
    made = np.empty(np.shape(first), KEY)
    made["first"], made["second"] = first, second
    return canonical(made)


def _counts(shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Return the number of each entry, its upper 32 bits and its lower."""
    number = np.arange(prod(shape), dtype=np.uint32).reshape(shape)
    return np.zeros_like(number), number


def _threefry(stream: NDArray, first: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return the 20 rounds of Threefry-2x32 over pairs of numbers [1, Section 4.2]."""
    begun = (stream["first"], stream["second"])
    keys = (*begun, begun[0] ^ begun[1] ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):  # numbers modulo 2^32
        left, right = first + keys[0], second + keys[1]
        for block in range(5):
            for turn in ROTATIONS[block % 2]:
                left = left + right
                right = (right << np.uint32(turn)) | (right >> np.uint32(32 - turn))
                right = left ^ right
            left = left + keys[(block + 1) % 3]
            right = right + keys[(block + 2) % 3] + np.uint32(block + 1)
    return left, right


@lru_cache(maxsize=4096)  # nodes and lives of one seed share their first keys
def _threefry_of_one(begun: tuple[int, int], second: int) -> tuple[int, int]:
    """Return the same for the pair (0, second), in Python's whole numbers."""
    keys = (*begun, begun[0] ^ begun[1] ^ PARITY)
    left, right = keys[0], (second + keys[1]) & WORD
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            left = (left + right) & WORD
            right = left ^ ((right << turn | right >> (32 - turn)) & WORD)
        left = (left + keys[(block + 1) % 3]) & WORD
        right = (right + keys[(block + 2) % 3] + block + 1) & WORD
    return left, right


def _erf_inv(x: NDArray) -> NDArray:
    """Return the inverse of the error function in (-1, 1), float32."""
    w = -np.log1p(-x * x)
    near = w < 5
    reduced = np.where(near, w - np.float32(2.5), np.sqrt(w) - np.float32(3.0))
    found = np.where(near, np.float32(NEAR[0]), np.float32(FAR[0]))
    for close, distant in zip(NEAR[1:], FAR[1:], strict=True):
        found = np.where(near, np.float32(close), np.float32(distant)) + found * reduced
    return found * x
