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

from folkman.runtime import control
from folkman.runtime.codec import SERVER, decode
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
