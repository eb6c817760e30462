"""Packed parameters as bytes, in NumPy: `read(write(code))` has the bits of `decode(code)`.

Little-endian: 12 bytes of head, the blocks one after another, then what remains of the message.

    0    4   d: entries of a block
    4    4   k of top_k and rand_k, bits of a level of qsgd and fixed, else 0
    8    4   bytes of each number that remains, 4 or 8
    12   ... the blocks
             float32, float16, bfloat16   d numbers
             int8                         scale float32, d levels int8
             qsgd, fixed                  scale float32, d times level + s in b bits
             sign                         scale float32, d times 1 bit, 1 for +
             top_k                        k values float32, k places of ceil(log2 d) bits, ascending
             rand_k                       seed uint32, k values float32, by ascending place
    ...      the numbers that remain

Numbers of some bits stand one after another in a stream of bits, lowest bit first, filled up with
zeros to whole bytes.
"""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, jax
from folkman.packing.packing import (
    CASTS,
    GOLDEN,
    MOST_LEVEL_BITS,
    Code,
    Packing,
    blocks_of,
    encode,
    kept_of,
    levels_of,
    mixed,
    place_bits,
)

__all__ = ["CODES", "HEAD_BYTES", "NAMES", "Layout", "layout_of", "read", "write"]
__all__ += ["read_numbers", "write_numbers"]

CODES = {
    "float32": 4,
    "float16": 5,
    "bfloat16": 6,
    "int8": 7,
    "qsgd": 8,
    "sign": 9,
    "top_k": 10,
    "rand_k": 11,
    "fixed": 12,
}
"""The number of each packing on the wire."""
NAMES = {code: name for name, code in CODES.items()}
"""The same the other way round."""
_HEAD = struct.Struct("<III")
HEAD_BYTES = _HEAD.size
FLOAT, WORD = np.dtype("<f4"), np.dtype("<u4")


class Layout(NamedTuple):
    """What the head of packed parameters says, checked."""

    name: str
    dim: int
    number: int  # k, or bits of a level
    blocks: int
    rest: int  # numbers that remain
    rest_bytes: int  # of each

    @property
    def block_bytes(self) -> int:
        """Return the bytes of a block."""
        dim, number = self.dim, self.number
        if self.name in CASTS:
            return dim * CASTS[self.name][0] // 8
        return {
            "int8": 4 + dim,
            "qsgd": 4 + _bytes(dim * number),
            "fixed": 4 + _bytes(dim * number),
            "sign": 4 + _bytes(dim),
            "top_k": 4 * number + _bytes(number * place_bits(dim)),
            "rand_k": 4 + 4 * number,
        }[self.name]

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all, head included."""
        return HEAD_BYTES + self.blocks * self.block_bytes + self.rest * self.rest_bytes


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def layout_of(code: int, data: bytes | memoryview, size: int) -> Layout:
    """Return what the head says of a message of `size` entries; ValueError if it cannot be."""
    if len(data) < HEAD_BYTES:
        raise ValueError(f"expected {HEAD_BYTES} bytes of head, got {len(data)}")
    dim, number, rest_bytes = _HEAD.unpack(data[:HEAD_BYTES])
    name = NAMES[code]
    most = {"top_k": dim, "rand_k": dim, "qsgd": MOST_LEVEL_BITS, "fixed": MOST_LEVEL_BITS}
    least = {"top_k": 1, "rand_k": 1, "qsgd": 2, "fixed": 2}
    most, least = most.get(name, 0), least.get(name, 0)
    if not (1 <= dim <= size and least <= number <= most and rest_bytes in (4, 8)):
        raise ValueError(
            f"expected blocks of at most {size} entries and a number in {least} .. {most}, got "
            f"{dim}, {number}, {rest_bytes}"
        )
    blocks = blocks_of(size, dim)
    return Layout(name, dim, number, blocks, size - blocks * dim, rest_bytes)


def write(packing: Packing, message: NDArray, dim: int, key: Array) -> bytes:
    """Return a message as bytes; its blocks are packed as `pack_message` packs them."""
    blocks = blocks_of(len(message), dim)
    number = packing.bits or 0 if packing.name in ("qsgd", "fixed") else 0
    if packing.name in ("top_k", "rand_k"):
        number = kept_of(packing, dim)
    rest = np.ascontiguousarray(message[blocks * dim :])
    parts = [_HEAD.pack(dim, number, message.dtype.itemsize)]
    for block in range(blocks):
        own = jax.random.fold_in(key, block)
        code = _encode(packing, message[block * dim : (block + 1) * dim], own)
        parts.append(_block_bytes(packing, jax.tree.map(np.asarray, code), dim))
    return b"".join([*parts, rest.astype(rest.dtype.newbyteorder("<")).tobytes()])


_encode = jax.jit(encode, static_argnums=0)


def _block_bytes(packing: Packing, code: Code, dim: int) -> bytes:
    numbers = np.asarray(code.numbers)
    if packing.name in CASTS:
        return numbers.view(f"<u{numbers.itemsize}").tobytes()
    values = numbers.astype(FLOAT).tobytes()
    if packing.name == "top_k":
        return values + write_numbers(np.asarray(code.places), place_bits(dim))
    if packing.name == "rand_k":
        return np.asarray(code.seed).astype(WORD).tobytes() + values
    scale = np.asarray(code.scale).astype(FLOAT).tobytes()
    if packing.name == "int8":
        return scale + numbers.astype(np.int8).tobytes()
    if packing.name == "sign":
        return scale + write_numbers(numbers > 0, 1)
    return scale + write_numbers(numbers + levels_of(packing), packing.bits or 0)


def read(layout: Layout, data: bytes | memoryview) -> NDArray[np.floating]:
    """Return the message as its receiver sees it; ValueError if its places cannot be."""
    at = HEAD_BYTES
    blocks = []
    for _ in range(layout.blocks):
        blocks.append(_read_block(layout, data[at : at + layout.block_bytes]))
        at += layout.block_bytes
    rest = np.frombuffer(data[at:], f"<f{layout.rest_bytes}")
    return np.concatenate([*(block.astype(rest.dtype) for block in blocks), rest])


def _read_block(layout: Layout, data: bytes | memoryview) -> NDArray[np.float32]:
    name, dim, number = layout.name, layout.dim, layout.number
    if name == "bfloat16":
        upper = np.frombuffer(data, "<u2").astype(np.uint32)
        return (upper << np.uint32(16)).view(np.float32)
    if name in CASTS:
        return np.frombuffer(data, {"float32": "<f4", "float16": "<f2"}[name]).astype(np.float32)
    if name in ("top_k", "rand_k"):
        return _read_some(layout, data)
    scale = np.frombuffer(data[:4], FLOAT)[0]
    if name == "int8":
        levels = np.frombuffer(data[4:], np.int8)
    elif name == "sign":
        levels = 2 * read_numbers(data[4:], dim, 1).astype(np.int64) - 1
    else:
        levels = read_numbers(data[4:], dim, number).astype(np.int64) - (2 ** (number - 1) - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return levels.astype(np.float32) * scale


def _read_some(layout: Layout, data: bytes | memoryview) -> NDArray[np.float32]:
    dim, kept = layout.dim, layout.number
    if layout.name == "top_k":
        values = np.frombuffer(data[: 4 * kept], FLOAT)
        places = read_numbers(data[4 * kept :], kept, place_bits(dim))
        if places[-1] >= dim or not (np.diff(places.astype(np.int64)) > 0).all():
            raise ValueError(f"expected {kept} ascending places below {dim}")
    else:
        seed = np.frombuffer(data[:4], WORD)[0]
        values = np.frombuffer(data[4:], FLOAT)
        with np.errstate(over="ignore"):
            words = mixed(np.arange(dim, dtype=np.uint32) * GOLDEN + seed)
        places = np.sort(np.argsort(words, kind="stable")[:kept])
    found = np.zeros(dim, np.float32)
    found[places] = values
    return found


def write_numbers(numbers: NDArray, bits: int) -> bytes:
    """Return unsigned numbers of some bits, one after another, lowest bit first."""
    each = (numbers.astype(np.uint32)[:, None] >> np.arange(bits, dtype=np.uint32)) & 1
    return np.packbits(each.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def read_numbers(data: bytes | memoryview, count: int, bits: int) -> NDArray[np.uint32]:
    """Return `count` numbers of a stream."""
    stream = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits, bitorder="little")
    weights = np.uint32(1) << np.arange(bits, dtype=np.uint32)
    return (stream.reshape(count, bits).astype(np.uint32) * weights).sum(axis=1, dtype=np.uint32)
