"""The wire: round trip, and every kind of damage refused by its own name."""

import struct

import jax
import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from folkman.packing import top_k, wire
from folkman.runtime.codec import (
    HEADER_BYTES,
    SERVER,
    CodecError,
    Message,
    decode,
    encode,
    encode_packed,
    round_of,
    sender_of,
    sequence_of,
)

PARAMS = st.one_of(
    arrays(np.float16, st.integers(0, 40), elements=st.floats(-100, 100, width=16)),
    arrays(np.float32, st.integers(0, 40), elements=st.floats(-100, 100, width=32)),
    arrays(np.float64, st.integers(0, 40), elements=st.floats(-100, 100, width=64)),
)
MESSAGE = Message(0xABCDEF, 3, 17, 42, np.arange(6, dtype=np.float32), round=5)


@settings(max_examples=200, deadline=None)
@given(PARAMS, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_what_goes_in_comes_out(params, run, node, sequence):
    message = Message(run, node, sequence, sequence, params)

    found = decode(encode(message), run, len(params))

    assert found[:4] == message[:4]
    assert found.params.dtype == params.dtype
    np.testing.assert_array_equal(found.params, params)


def test_the_bytes_are_the_documented_ones():
    data = encode(MESSAGE)

    assert HEADER_BYTES == 144
    assert len(data) == 144 + 6 * 4
    assert data[:4] == b"FLKM"
    assert struct.unpack_from("<HHQIIQQQ", data, 4) == (2, 1, 0xABCDEF, 3, 5, 17, 42, 6)
    assert data[48:80] == blake3(data[:48] + data[144:]).digest()
    assert data[80:144] == bytes(64)
    assert data[144:] == np.arange(6, dtype="<f4").tobytes()


def altered(offset, value):
    data = bytearray(encode(MESSAGE))
    data[offset] ^= value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "length"),
        (encode(MESSAGE)[:143], "length"),
        (encode(MESSAGE)[:-1], "length"),
        (encode(MESSAGE) + b"\0", "length"),
        (altered(0, 1), "magic"),
        (altered(4, 2), "version"),
        (altered(6, 88), "dtype"),
        (altered(8, 1), "run"),
        (altered(40, 1), "length"),
        (altered(16, 1), "digest"),
        (altered(20, 1), "digest"),
        (altered(48, 1), "digest"),
        (altered(32, 1), "digest"),
        (altered(150, 1), "digest"),
        (encode(MESSAGE._replace(params=np.array([1, np.nan, 0, 0, 0, 0], np.float32))), "finite"),
        (encode(MESSAGE._replace(params=np.array([1, np.inf, 0, 0, 0, 0], np.float32))), "finite"),
        (encode(MESSAGE._replace(run=1)), "run"),
        (encode(MESSAGE._replace(sequence=2**64 - 1)), "range"),
        (encode(MESSAGE._replace(slot=2**31)), "range"),
        (encode(MESSAGE._replace(round=2**31)), "range"),
        (encode(MESSAGE._replace(params=np.zeros(7, np.float32))), "length"),
    ],
)
def test_a_damaged_message_is_refused_by_name(data, reason):
    with pytest.raises(CodecError) as caught:
        decode(data, 0xABCDEF, 6)

    assert caught.value.reason == reason


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_the_codecs_error(data):
    with pytest.raises(CodecError):
        decode(data, 0xABCDEF, 6)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 167).filter(lambda k: not 80 <= k < 144), st.integers(1, 255))
def test_every_single_byte_change_is_noticed(offset, mask):
    with pytest.raises(CodecError):
        decode(altered(offset, mask), 0xABCDEF, 6)


@pytest.mark.parametrize(
    "params", [np.zeros((2, 3), np.float32), np.zeros(3, np.int32), np.zeros(3, complex)]
)
def test_what_has_no_place_on_the_wire_is_not_sent(params):
    with pytest.raises(CodecError, match="expected a flat vector"):
        encode(MESSAGE._replace(params=params))


@pytest.mark.parametrize(
    ("field", "most"),
    [("sequence", 2**63 - 1), ("slot", 2**31 - 1), ("round", 2**31 - 1)],
)
def test_a_number_may_be_as_large_as_the_protocol_says_and_no_larger(field, most):
    for value in (0, most):
        found = decode(encode(MESSAGE._replace(**{field: value})), 0xABCDEF, 6)
        assert getattr(found, field) == value
    with pytest.raises(CodecError) as caught:
        decode(encode(MESSAGE._replace(**{field: most + 1})), 0xABCDEF, 6)
    assert caught.value.reason == "range"


def test_fields_may_be_full_and_a_message_may_be_its_header_alone():
    full = Message(2**64 - 1, SERVER, 2**63 - 1, 2**31 - 1, np.zeros(0, np.float32), 2**31 - 1)

    data = encode(full)

    assert len(data) == HEADER_BYTES
    assert SERVER == 2**32 - 1
    found = decode(data, 2**64 - 1, 0)
    assert (*found[:4], found.round) == (*full[:4], full.round)
    assert (sender_of(data), round_of(data), sequence_of(data)) == (SERVER, 2**31 - 1, 2**63 - 1)
    with pytest.raises(CodecError) as caught:
        decode(data[:-1], 2**64 - 1, 0)
    assert caught.value.reason == "length"


def test_a_header_tells_its_sender_round_and_sequence_apart():
    data = encode(MESSAGE)

    assert (sender_of(data), round_of(data), sequence_of(data)) == (3, 5, 17)


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda body: body[:11], "length"),
        (lambda body: body + b"\0", "length"),
        (lambda body: struct.pack("<I", 0) + body[4:], "length"),
        (lambda body: struct.pack("<I", 2**32 - 1) + body[4:], "length"),
        (lambda body: body[:4] + struct.pack("<I", 7) + body[8:], "length"),
        (lambda body: body[:-2] + b"\xff\xff", "packing"),  # places that are not below d
        (lambda body: body[:12] + b"\0\0\xc0\x7f" + body[16:], "finite"),
    ],
)
def test_packed_parameters_that_cannot_be_are_refused_with_one_reason(alter, reason):
    values = np.arange(6, dtype=np.float32)
    body = wire.write(top_k(0.5), values, 6, jax.random.key(0))

    assert decode(encode_packed(MESSAGE, "top_k", body), MESSAGE.run, 6).params[3:].all()
    with pytest.raises(CodecError) as error:
        decode(encode_packed(MESSAGE, "top_k", alter(body)), MESSAGE.run, 6)
    assert error.value.reason == reason
