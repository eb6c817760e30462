"""docs/protocol.md: its vectors are what we send, and what it says of them holds byte by byte, without our codec."""

import re
import struct
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from folkman.runtime import control, fresh_codec
from folkman.runtime.codec import SERVER, Message, decode, encode
from folkman.runtime.mailbox import Mailbox
from reference.vectors import PUBLIC, RUN, vectors

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SHOWN = {
    name: bytes.fromhex(data)
    for name, data in re.findall(r"^([a-z0-9-]+) ([0-9a-f]+)$", DOCUMENT, re.MULTILINE)
}


def verify(node, content, signature):
    del node
    try:
        Ed25519PublicKey.from_public_bytes(PUBLIC).verify(signature, content)
    except InvalidSignature:
        return False
    return True


def test_the_document_shows_what_we_send():
    assert vectors() == SHOWN


@pytest.mark.parametrize(
    ("name", "node", "round_"), [("float32", 3, 0), ("float16", 3, 0), ("lock-step", 0, 9)]
)
def test_a_parameter_vector_reads_as_the_document_says(name, node, round_):
    data = SHOWN[name]
    magic, version, dtype, run, sender, of_round, sequence, slot, size = struct.unpack_from(
        "<4sHHQIIQQQ", data
    )
    width = {1: 4, 2: 2, 3: 8}[dtype]

    assert (magic, version, run, sender, of_round) == (b"FLKM", 2, RUN, node, round_)
    assert (sequence, slot, size, len(data)) == ((2 << 32) + 17, 42, 4, 144 + 4 * width)
    digest = blake3(data[:48] + data[144:]).digest()
    assert data[48:80] == digest
    assert verify(3, b"folkman parameters 2\0" + digest, data[80:144])
    expected = np.array([0.0, 1.0, -2.5, 0.1], "<f4" if width == 4 else "<f2")
    assert data[144:] == expected.tobytes()
    np.testing.assert_array_equal(decode(data, RUN, 4, verify).params, expected)


def streamed(data, bits, count):
    """Return numbers of some bits from a stream, lowest bit first, one bit at a time."""
    whole = int.from_bytes(data, "little")
    return [(whole >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]


def places(seed, dim, kept):
    """Return the places that a seed stands for, as the document says it."""
    words = []
    for i in range(dim):
        x = (0x9E3779B9 * i + seed) % 2**32
        for _ in range(2):
            x = ((x ^ (x >> 16)) * 0x85EBCA6B) % 2**32
            x = ((x ^ (x >> 13)) * 0xC2B2AE35) % 2**32
            x ^= x >> 16
        words.append(x)
    return sorted(sorted(range(dim), key=words.__getitem__)[:kept])


def read_by_hand(code, block, dim, number):
    """Return the values of a block, as the document says them."""
    scale = struct.unpack("<f", block[:4])[0]
    if code == 6:
        return [struct.unpack("<f", b"\0\0" + block[2 * i : 2 * i + 2])[0] for i in range(dim)]
    if code == 7:
        return [scale * level for level in struct.unpack(f"<{dim}b", block[4:])]
    if code == 8:
        return [scale * (n - 2 ** (number - 1) + 1) for n in streamed(block[4:], number, dim)]
    if code == 9:
        return [scale if n else -scale for n in streamed(block[4:], 1, dim)]
    values = np.zeros(dim)
    if code == 10:
        where = streamed(block[4 * number :], (dim - 1).bit_length(), number)
        values[where] = struct.unpack(f"<{number}f", block[: 4 * number])
    else:
        seed = struct.unpack("<I", block[:4])[0]
        values[places(seed, dim, number)] = struct.unpack(f"<{number}f", block[4:])
    return values


@pytest.mark.parametrize(
    ("name", "code", "values"),
    [
        ("bfloat16", 6, [0.0, 1.0, -2.5, 0.100097656]),
        ("int8", 7, [0.0, 1.0039370, -2.5, 0.09842520]),
        ("qsgd-3", 8, [0.0, 1.6666667, -2.5, 0.0]),
        ("sign", 9, [0.9, 0.9, -0.9, 0.9]),
        ("top-k", 10, [0.0, 1.0, -2.5, 0.0]),
        ("rand-k", 11, [0.0, 0.0, -5.0, 0.2]),
    ],
)
def test_a_packed_vector_reads_as_the_document_says(name, code, values):
    data = SHOWN[name]
    dim, number, rest = struct.unpack_from("<III", data, 144)

    assert struct.unpack_from("<H", data, 6)[0] == code
    assert (dim, rest) == (4, 4)
    assert data[-4:] == struct.pack("<f", 7.0)
    found = read_by_hand(code, data[156:-4], dim, number)
    np.testing.assert_allclose(found, values, rtol=1e-6, atol=1e-7)
    decoded = decode(data, RUN, 5, verify)
    np.testing.assert_array_equal(decoded.params, np.append(found, 7.0).astype(np.float32))


def test_the_vector_of_a_change_reads_as_the_document_says():
    data = SHOWN["change"]
    held = np.array([1.0, 1.0, 1.0, 1.0, 3.0], np.float32)

    assert struct.unpack_from("<H", data, 6)[0] == 16 + 10
    on, dim, kept, rest = struct.unpack_from("<QIII", data, 144)
    assert (on, dim, kept, rest) == ((2 << 32) + 16, 4, 2, 4)
    change = read_by_hand(10, data[164:-4], dim, kept)
    np.testing.assert_array_equal(held[:4] + change, [1.0, 2.0, -1.5, 1.0])
    assert data[-4:] == struct.pack("<f", 7.0)
    digest = blake3(data[:48] + data[144:]).digest()
    assert verify(3, b"folkman parameters 2\0" + digest, data[80:144])

    box = Mailbox(held, 4, RUN)
    assert box.put(encode(Message(RUN, 3, (2 << 32) + 16, 41, held)))
    assert box.put(data)
    np.testing.assert_array_equal(box.payload[3], [1.0, 2.0, -1.5, 1.0, 7.0])


@pytest.mark.parametrize(
    ("name", "node", "kind", "number"),
    [("sum", 3, 33, 0), ("sum-whole", 3, 44, 0), ("forward", 1, 64, 6)],
)
def test_a_vector_of_fresh_air_reads_as_the_document_says(name, node, kind, number):
    data = SHOWN[name]
    magic, version, found, run, carrier, of, sequence, slot, size = struct.unpack_from(
        "<4sHHQIIQQQ", data
    )
    names = (magic, version, found, run, carrier, of, size)
    assert names == (b"FLKM", 3, kind, RUN, node, number, 4)
    expected = ((1 << 32) + 5, 43) if name == "forward" else ((2 << 32) + 18, 42)
    assert (sequence, slot) == expected
    digest = blake3(data[:48] + data[144:]).digest()
    assert data[48:80] == digest
    assert verify(node, b"folkman fresh air 3\0" + digest, data[80:144])
    nodes, bits = struct.unpack_from("<II", data, 144)
    assert (nodes, bits) == (4, 18 if kind == 44 else 0)
    stamps = list(struct.unpack_from("<4Q", data, 152))
    assert stamps == [0, (1 << 32) + 40, (1 << 32) + 39, (2 << 32) + 42]
    read = fresh_codec.decode(data, RUN, 4, 4, verify)
    np.testing.assert_array_equal(read.stamps, stamps)
    content = data[184:]
    if kind == 64:
        assert content == SHOWN["float32"] == read.inner
        return
    if kind == 33:
        values = np.frombuffer(content, "<f4").tolist()
    else:
        values = streamed(content, 18, 4)
        assert values == [0, 1, 2**18 - 2, 70_000]
    assert read.entries is not None
    np.testing.assert_array_equal(read.entries, values)


def test_the_servers_vector_is_unsigned():
    data = SHOWN["server-unsigned"]

    assert data[80:144] == bytes(64)
    assert decode(data, RUN, 1).node == SERVER


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("hello", {"type": "Hello", "clock_s": 1.5, "steps": 40, "incarnation": 2}),
        ("ack", {"type": "Ack", "sequence": (2 << 32) + 17}),
        ("period", {"type": "Period", "rate": 1e6, "receivers": [0, 2]}),
    ],
)
def test_a_control_vector_reads_as_the_document_says(name, body):
    data = SHOWN[name]

    found = msgspec.msgpack.decode(data[64:])

    assert verify(3, b"folkman control 1\0" + data[64:], data[:64])
    assert found["body"] == body
    assert (found["run"], found["node"]) == (RUN, 3)
    assert control.open_sealed(data, RUN, verify).sequence == found["sequence"]
