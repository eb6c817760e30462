"""A parameter message on the wire: versioned, length-checked, typed, digested; no pickle.

Little-endian, 60 bytes of header and then the parameters:

    offset  size  field
    0       4     magic "FLKM"
    4       2     version, 1
    6       2     dtype: 1 float32, 2 float16, 3 float64
    8       8     run: the same for all nodes of one run
    16      4     node: the sender
    20      8     sequence: grows with every message of this sender
    28      8     slot: the sender's slot when the message was formed
    36      8     size: number of parameters
    44      16    digest: BLAKE2b-128 of the header before it and of the parameters
    60      ...   the parameters

A message that fails any check is refused whole; the error says which check.
"""

import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["HEADER_BYTES", "CodecError", "Message", "decode", "encode"]

MAGIC, VERSION = b"FLKM", 1
MOST = 2**31 - 1  # of sequence and slot: no honest run gets there, and ages stay within int32
_FIELDS = struct.Struct("<4sHHQIQQQ")
_DIGEST_BYTES = 16
HEADER_BYTES = _FIELDS.size + _DIGEST_BYTES
_DTYPES = {1: np.dtype("<f4"), 2: np.dtype("<f2"), 3: np.dtype("<f8")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class CodecError(ValueError):
    """A message that cannot be taken; `reason` is one word, for counting."""

    def __init__(self, reason: str, text: str, node: int | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.node = node  # the sender, where the message is whole and only its content is refused


class Message(NamedTuple):
    """A node's parameters and where they come from."""

    run: int
    node: int
    sequence: int
    slot: int
    params: NDArray[np.floating]  # (d,)


def encode(message: Message) -> bytes:
    """Return the bytes of a message; the array's dtype is the wire's."""
    params = np.ascontiguousarray(message.params)
    code = _CODES.get(params.dtype.newbyteorder("<"))
    if code is None or params.ndim != 1:
        raise CodecError(
            "dtype",
            f"expected a flat vector of float16, 32 or 64, got {params.dtype}{list(params.shape)}; convert it",
        )
    body = params.astype(_DTYPES[code], copy=False).tobytes()
    head = _FIELDS.pack(
        MAGIC, VERSION, code, message.run, message.node, message.sequence, message.slot, params.shape[0]
    )
    return head + _digest(head, body) + body


def decode(data: bytes, run: int, size: int) -> Message:
    """Return the message in `data`, which must belong to `run` and hold `size` parameters, all finite.

    Raises `CodecError`, and nothing else, whatever the bytes.
    """
    if len(data) < HEADER_BYTES:
        raise CodecError("length", f"expected at least {HEADER_BYTES} bytes, got {len(data)}; the message is cut")
    head, digest, body = data[: _FIELDS.size], data[_FIELDS.size : HEADER_BYTES], data[HEADER_BYTES:]
    magic, version, code, sender_run, node, sequence, slot, count = _FIELDS.unpack(head)
    if magic != MAGIC:
        raise CodecError("magic", f"expected a message that begins with {MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise CodecError("version", f"expected version {VERSION}, got {version}; update the older side")
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise CodecError("dtype", f"expected dtype code 1, 2 or 3, got {code}")
    if sender_run != run:
        raise CodecError("run", f"expected run {run:016x}, got {sender_run:016x}; the sender is in another run")
    if count != size or len(body) != size * dtype.itemsize:
        raise CodecError(
            "length",
            f"expected {size} parameters in {size * dtype.itemsize} bytes, got {count} in {len(body)}",
        )
    if _digest(head, body) != digest:
        raise CodecError("digest", "the digest does not match the content; the message was damaged on its way")
    if sequence > MOST or slot > MOST:
        raise CodecError("range", f"expected sequence and slot of at most {MOST}, got {sequence} and {slot}")
    params = np.frombuffer(body, dtype)
    if not np.isfinite(params).all():
        raise CodecError("finite", "expected finite parameters; the sender has diverged", node)
    return Message(run, node, sequence, slot, params)


def _digest(head: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, key=head).digest()
