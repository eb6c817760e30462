"""A message of fresh air on the wire: stamps, and a sum or a copy that is passed on.

The header is that of `folkman.runtime.codec` with version 3 and these kinds in the place of the
dtype; its node is who carries the message, and signs it. docs/protocol.md has test vectors.

    33 sum of float32, 35 of float64, 44 of whole numbers (`fixed`), 64 forward

    144     4     I: number of stamps, one for each node
    148     4     B: bits of an entry of kind 44, else 0
    152     8 I   stamps: of what the sum holds; with a forward, of what its sender holds
    ...           sum: its entries. Forward: the message of its origin as the origin signed it

A stamp names the parameters of one node at one time: the node's life, from 1, in the upper 32 bits,
and the slots that it had lived in the lower. 0 is the first model. A life is part of it because a
node that was killed lives slots again that others have heard of, with other parameters.
"""

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.packing.wire import read_numbers, write_numbers
from folkman.runtime.codec import (
    DIGEST_END,
    FIELDS,
    HEADER_BYTES,
    MAGIC,
    MOST,
    MOST_SEQUENCE,
    UNSIGNED,
    CodecError,
    Sign,
    Verify,
    digest_of,
)

__all__ = ["CONTEXT", "FORWARD", "LIFE_BITS", "MOST_BITS", "SUMS", "VERSION", "WHOLE", "Carried"]
__all__ += ["decode", "encode", "largest_bytes", "slot_of", "slots_of", "stamp_of", "stamps_in"]

VERSION = 3
CONTEXT = b"folkman fresh air 3\0"
"""What is signed begins with this."""
LIFE_BITS = 32
FORWARD, WHOLE = 64, 44
SUMS = {33: np.dtype("<f4"), 35: np.dtype("<f8")}
"""Kinds of sums of floating numbers."""
MOST_BITS = 32
"""Of an entry of whole numbers."""
_KINDS = {np.dtype("<f4"): 33, np.dtype("<f8"): 35}
_HEAD = struct.Struct("<II")


class Carried(NamedTuple):
    """What a node carries to others: a sum (`entries`) or a copy that it passes on (`inner`)."""

    run: int
    node: int  # who carries it
    sequence: int
    slot: int
    stamps: NDArray[np.int64]  # (node,)
    entries: NDArray | None = None  # (d,) of a sum: floating, or whole numbers
    inner: bytes = b""  # of a forward
    round: int = 0  # the number of the transfer on an emulated air
    bits: int = 0  # of an entry of whole numbers
    size: int = 0  # d


def stamp_of(life: int, slot: int) -> int:
    """Return the stamp of the parameters after so many slots of a life."""
    return (life << LIFE_BITS) + slot


def slot_of(stamp: int) -> int:
    """Return the slot that a stamp names, without the life."""
    return stamp & ((1 << LIFE_BITS) - 1)


def slots_of(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the slots that stamps name, without the lives."""
    return stamps & ((1 << LIFE_BITS) - 1)


def stamps_in(data: bytes, num_nodes: int) -> NDArray[np.int64]:
    """Return the stamps of a message; unchecked."""
    start = HEADER_BYTES + _HEAD.size
    return np.frombuffer(data[start : start + 8 * num_nodes], "<u8").astype(np.int64)


def largest_bytes(num_nodes: int, size: int) -> int:
    """Return a bound on the bytes of any such message of d entries."""
    return 2 * HEADER_BYTES + _HEAD.size + 8 * num_nodes + 8 * size + 64


def encode(carried: Carried, sign: Sign | None = None) -> bytes:
    """Return the bytes of a message; the type of its entries is the wire's."""
    kind, content = _content(carried)
    stamps = carried.stamps.astype("<u8").tobytes()
    body = _HEAD.pack(len(carried.stamps), carried.bits) + stamps + content
    size = carried.size if carried.entries is None else len(carried.entries)
    names = (carried.run, carried.node, carried.round, carried.sequence, carried.slot, size)
    head = FIELDS.pack(MAGIC, VERSION, kind, *names)
    digest = digest_of(head, body)
    return b"".join([head, digest, sign(CONTEXT + digest) if sign else UNSIGNED, body])


def _content(carried: Carried) -> tuple[int, bytes]:
    if carried.entries is None:
        return FORWARD, carried.inner
    if carried.bits:
        lowest = carried.entries & ((1 << carried.bits) - 1)
        return WHOLE, write_numbers(lowest, carried.bits)
    kind = _KINDS[carried.entries.dtype.newbyteorder("<")]
    return kind, carried.entries.astype(SUMS[kind], copy=False).tobytes()


def decode(
    data: bytes, run: int, size: int, num_nodes: int, verify: Verify | None = None
) -> Carried:
    """Return the message in `data`: of `run`, with so many entries and stamps, its carrier's.

    Raises `CodecError`, and nothing else, whatever the bytes. The copy within a forward is not
    looked at. Without `verify` signatures are not either.
    """
    if len(data) < HEADER_BYTES + _HEAD.size:
        least = HEADER_BYTES + _HEAD.size
        raise CodecError("length", f"expected at least {least} bytes, got {len(data)}")
    view = memoryview(data)
    head, body = bytes(view[: FIELDS.size]), view[HEADER_BYTES:]
    magic, version, kind, sender_run, node, round_, sequence, slot, count = FIELDS.unpack(head)
    if magic != MAGIC:
        raise CodecError("magic", f"expected a message that begins with {MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise CodecError("version", f"expected version {VERSION}, got {version}")
    if kind not in SUMS and kind not in (WHOLE, FORWARD):
        raise CodecError("dtype", f"expected a sum or a forward, got kind {kind}")
    if sender_run != run:
        raise CodecError("run", f"expected run {run:016x}, got {sender_run:016x}")
    number, bits = _HEAD.unpack(body[: _HEAD.size])
    start = _HEAD.size + 8 * num_nodes
    expected = _bytes(kind, bits, size, len(body) - start)
    if (number, count) != (num_nodes, size) or len(body) - start != expected:
        raise CodecError(
            "length",
            f"expected {num_nodes} stamps and {size} entries in {start + expected} bytes, got "
            f"{number} and {count} in {len(body)}",
        )
    digest = bytes(view[FIELDS.size : DIGEST_END])
    if digest_of(head, body) != digest:
        raise CodecError("digest", "the digest does not match the content; it was damaged")
    if verify is not None and not verify(
        node, CONTEXT + digest, bytes(view[DIGEST_END:HEADER_BYTES])
    ):
        raise CodecError("signature", f"expected the signature of node {node}; it is another's")
    stamps = np.frombuffer(body[_HEAD.size : start], "<u8")
    _check_ranges(stamps, (sequence, slot, round_), node)
    found = Carried(run, node, sequence, slot, stamps.astype(np.int64), round=round_, size=size)
    return _with_content(found, kind, bits, body[start:])


def _bytes(kind: int, bits: int, size: int, there: int) -> int:
    """Return the bytes of the content that a kind asks for; of a forward, what there is."""
    if kind == FORWARD:
        return max(there, HEADER_BYTES)
    if kind == WHOLE:
        return (size * bits + 7) // 8 if 1 <= bits <= MOST_BITS else 1 << 62
    return size * SUMS[kind].itemsize


def _check_ranges(stamps: NDArray[np.uint64], head: tuple[int, int, int], node: int) -> None:
    """Refuse numbers beyond any honest run, and stamps of what their carrier has not lived."""
    sequence, slot, round_ = head
    if sequence > MOST_SEQUENCE or slot > MOST or round_ > MOST:
        raise CodecError(
            "range", f"expected slot and round of at most {MOST}, got {slot}, {round_}"
        )
    lived = stamps & np.uint64((1 << LIFE_BITS) - 1)
    if stamps.max(initial=0) > MOST_SEQUENCE or lived.max(initial=0) > MOST:
        raise CodecError("range", f"expected stamps of at most {MOST} slots, got {lived.max()}")
    if node < len(stamps) and int(lived[node]) > slot:
        raise CodecError(
            "range", f"node {node} has lived {slot} slots and sends its own of {lived[node]}"
        )


def _with_content(found: Carried, kind: int, bits: int, content: memoryview) -> Carried:
    if kind == FORWARD:
        return found._replace(inner=bytes(content))
    if kind == WHOLE:
        whole = read_numbers(content, found.size, bits).astype(np.int64)
        return found._replace(entries=whole, bits=bits)
    entries = np.frombuffer(content, SUMS[kind])
    if not np.isfinite(entries).all():
        raise CodecError("finite", "expected finite entries", found.node, found.sequence)
    return found._replace(entries=entries)
