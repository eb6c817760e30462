"""A parameter message on the wire: versioned, length-checked, typed, digested, signed; no pickle.

Little-endian, 144 bytes of header and then the parameters (docs/protocol.md has test vectors):

    offset  size  field
    0       4     magic "FLKM"
    4       2     version, 2
    6       2     dtype: 1 float32, 2 float16, 3 float64; from 4 on packed (folkman.packing.wire);
                  16 more than a packed one: a change, after 8 bytes with the sequence it builds on
    8       8     run: the same for all nodes of one run
    16      4     node: the sender; 2^32 - 1 is the server
    20      4     round: of methods in lock-step, 0 otherwise
    24      8     sequence: grows with every message of this sender
    32      8     slot: the sender's slot when the message was formed
    40      8     size: number of parameters
    48      32    digest: BLAKE3 of bytes 0..47 and of the parameters
    80      64    signature: Ed25519 of CONTEXT and the digest; zeros if unsigned
    144     ...   the parameters

A message that fails any check is refused whole; the error says which check.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.checks import need
from folkman.packing import wire

__all__ = [
    "CONTEXT",
    "DIGEST_END",
    "FIELDS",
    "HEADER_BYTES",
    "MAGIC",
    "MOST",
    "MOST_SEQUENCE",
    "SERVER",
    "UNSIGNED",
    "VERSION",
    "Base",
    "CodecError",
    "EquivocationError",
    "LostPastError",
    "Message",
    "Sign",
    "Verify",
    "base_of",
    "decode",
    "digest_of",
    "encode",
    "encode_packed",
    "round_of",
    "sender_of",
    "sequence_of",
    "slot_of",
    "version_of",
]

MAGIC, VERSION = b"FLKM", 2
MOST = 2**31 - 1  # of slot and round: no honest run gets there, and ages stay within int32
MOST_SEQUENCE = 2**63 - 1
SERVER = 2**32 - 1
"""The number of the server on the wire."""
CONTEXT = b"folkman parameters 2\0"
"""What is signed begins with this, so that a signature can never be one of something else."""
FIELDS = struct.Struct("<4sHHQIIQQQ")
"""Magic, version, dtype, run, node, round, sequence, slot, size."""
DIGEST_END, _SIGNATURE_BYTES = FIELDS.size + 32, 64
HEADER_BYTES = DIGEST_END + _SIGNATURE_BYTES
UNSIGNED = bytes(_SIGNATURE_BYTES)
_DTYPES = {1: np.dtype("<f4"), 2: np.dtype("<f2"), 3: np.dtype("<f8")}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
CHANGE = 16
"""What is added to a packing's code where the parameters are a change of an earlier message."""
_BASE_BYTES = 8

Sign: TypeAlias = Callable[[bytes], bytes]
"""What is to be signed -> 64 bytes."""
Verify: TypeAlias = Callable[[int, bytes, bytes], bool]
"""(node, what was signed, signature) -> is it that node's?"""


class CodecError(ValueError):
    """A message that cannot be taken; `reason` is one word, for counting."""

    def __init__(
        self, reason: str, text: str, node: int | None = None, sequence: int | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.node = node  # the sender, where the message is whole and only its content is refused
        self.sequence = sequence


class LostPastError(CodecError):
    """A sum holds an own contribution that is no longer kept; `message`: its carrier and number."""

    def __init__(self, text: str, message: tuple[int, int], stamp: int) -> None:
        super().__init__("past", text, *message)
        self.stamp = stamp


class EquivocationError(CodecError):
    """An origin has signed two contents under one number; `proof` are both messages, whole."""

    def __init__(self, text: str, message: tuple[int, int], proof: tuple[bytes, bytes]) -> None:
        super().__init__("equivocation", text, *message)
        self.proof = proof


class Base(NamedTuple):
    """What a message builds on: its first entries are to be added to those of an earlier one."""

    sequence: int
    entries: int


class Message(NamedTuple):
    """A node's parameters and where they come from."""

    run: int
    node: int
    sequence: int
    slot: int
    params: NDArray[np.floating]  # (d,)
    round: int = 0
    base: Base | None = None  # None: the parameters are whole


def version_of(data: bytes) -> int:
    """Return the version that a header names; unchecked."""
    return int.from_bytes(data[4:6], "little")


def sender_of(data: bytes) -> int:
    """Return the sender that a header names; unchecked."""
    return int.from_bytes(data[16:20], "little")


def round_of(data: bytes) -> int:
    """Return the round that a header names; unchecked."""
    return int.from_bytes(data[20:24], "little")


def sequence_of(data: bytes) -> int:
    """Return the sequence number of a header; unchecked."""
    return int.from_bytes(data[24:32], "little")


def slot_of(data: bytes) -> int:
    """Return the slot that a header names; unchecked."""
    return int.from_bytes(data[32:40], "little")


def base_of(data: bytes) -> int | None:
    """Return the sequence number that a message builds on, None if it is whole; unchecked."""
    if version_of(data) != VERSION or int.from_bytes(data[6:8], "little") < CHANGE:
        return None
    return int.from_bytes(data[HEADER_BYTES : HEADER_BYTES + _BASE_BYTES], "little")


def encode(message: Message, sign: Sign | None = None) -> bytes:
    """Return the bytes of a message; the array's dtype is the wire's."""
    code, body = _plain(message.params)
    return _encoded(message, code, body, sign)


def encode_packed(message: Message, name: str, body: bytes, sign: Sign | None = None) -> bytes:
    """Return the bytes of a message whose parameters, or their change, were packed into `body`."""
    if message.base is None:
        return _encoded(message, wire.CODES[name], body, sign)
    on = message.base.sequence.to_bytes(_BASE_BYTES, "little")
    return _encoded(message, CHANGE + wire.CODES[name], on + body, sign)


def _plain(given: NDArray[np.floating]) -> tuple[int, bytes]:
    """Return the dtype's code and the bytes of a vector."""
    params = np.ascontiguousarray(given)
    code = _CODES.get(params.dtype.newbyteorder("<"))
    if code is None or params.ndim != 1:
        raise CodecError(
            "dtype",
            f"expected a flat vector of float16, 32 or 64, got {params.dtype}{list(params.shape)}; "
            "convert it",
        )
    return code, params.astype(_DTYPES[code], copy=False).tobytes()


def _encoded(message: Message, code: int, body: bytes, sign: Sign | None) -> bytes:
    run, node, sequence, slot, params, round_, _ = message
    head = FIELDS.pack(MAGIC, VERSION, code, run, node, round_, sequence, slot, params.shape[0])
    digest = digest_of(head, body)
    return b"".join([head, digest, sign(CONTEXT + digest) if sign else UNSIGNED, body])


def decode(data: bytes, run: int, size: int, verify: Verify | None = None) -> Message:
    """Return the message in `data`.

    It must belong to `run`, hold `size` finite parameters and be its sender's.

    Raises `CodecError`, and nothing else, whatever the bytes. Without `verify` signatures are not
    looked at.
    """
    if len(data) < HEADER_BYTES:
        raise CodecError(
            "length", f"expected at least {HEADER_BYTES} bytes, got {len(data)}; the message is cut"
        )
    view = memoryview(data)
    head, body = bytes(view[: FIELDS.size]), view[HEADER_BYTES:]
    magic, version, code, sender_run, node, round_, sequence, slot, count = FIELDS.unpack(head)
    if magic != MAGIC:
        raise CodecError("magic", f"expected a message that begins with {MAGIC!r}, got {magic!r}")
    if version != VERSION:
        raise CodecError(
            "version", f"expected version {VERSION}, got {version}; update the older side"
        )
    packed = code - CHANGE if code >= CHANGE else code
    if code not in _DTYPES and packed not in wire.NAMES:
        raise CodecError(
            "dtype",
            f"expected dtype code 1 to {max(wire.NAMES)}, {CHANGE} more for a change, got {code}",
        )
    if sender_run != run:
        raise CodecError(
            "run", f"expected run {run:016x}, got {sender_run:016x}; the sender is in another run"
        )
    digested, base = body, None
    if code >= CHANGE:
        base, body = int.from_bytes(body[:_BASE_BYTES], "little"), body[_BASE_BYTES:]
    layout = None if code in _DTYPES else _layout(packed, body, size)
    expected = size * _DTYPES[code].itemsize if layout is None else layout.total_bytes
    if count != size or len(body) != expected:
        raise CodecError(
            "length",
            f"expected {size} parameters in {expected} bytes, got {count} in {len(body)}",
        )
    digest = bytes(view[FIELDS.size : DIGEST_END])
    if digest_of(head, digested) != digest:
        raise CodecError(
            "digest", "the digest does not match the content; the message was damaged on its way"
        )
    if verify is not None and not verify(
        node, CONTEXT + digest, bytes(view[DIGEST_END:HEADER_BYTES])
    ):
        raise CodecError(
            "signature",
            f"expected the signature of node {node}; it is another's, or {node} is no member",
        )
    if sequence > MOST_SEQUENCE or slot > MOST or round_ > MOST:
        raise CodecError(
            "range", f"expected slot and round of at most {MOST}, got {slot}, {round_}; {sequence=}"
        )
    if base is not None and base >= sequence:
        raise CodecError("range", f"expected a base before {sequence}, got {base}")
    params = np.frombuffer(body, _DTYPES[code]) if layout is None else _unpacked(layout, body)
    if not np.isfinite(params).all():
        raise CodecError(
            "finite", "expected finite parameters; the sender has diverged", node, sequence
        )
    on = None if base is None or layout is None else Base(base, layout.blocks * layout.dim)
    return Message(run, node, sequence, slot, params, round_, on)


def _layout(code: int, body: memoryview, size: int) -> wire.Layout:
    try:
        return wire.layout_of(code, body, size)
    except ValueError as error:
        raise CodecError("length", str(error)) from None


def _unpacked(layout: wire.Layout, body: memoryview) -> NDArray[np.floating]:
    try:
        return wire.read(layout, body)
    except ValueError as error:
        raise CodecError("packing", str(error)) from None


def digest_of(head: bytes, body: bytes | memoryview) -> bytes:
    """Return the digest of a message."""
    return need("blake3").blake3(head).update(body).digest()
