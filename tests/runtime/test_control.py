"""Control messages: what goes in comes out, and nothing else does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.runtime.codec import CodecError
from folkman.runtime.control import (
    Ack,
    Control,
    Done,
    Hello,
    Known,
    Period,
    Proof,
    Quality,
    Refusal,
    Voice,
    open_sealed,
    seal,
)

COUNT = st.integers(0, 2**63 - 1)
NODE = st.integers(0, 2**32 - 1)
AMOUNT = st.floats(0, 1e15)
BODIES = st.one_of(
    st.builds(Hello, AMOUNT, COUNT, COUNT),
    st.builds(Ack, COUNT),
    st.builds(Quality, st.dictionaries(NODE, st.tuples(AMOUNT, st.floats(0, 1)), max_size=5)),
    st.builds(Period, AMOUNT, st.lists(NODE, max_size=5)),
    st.builds(Done, COUNT),
    st.builds(Refusal, COUNT, st.from_regex("[a-z_]{1,32}", fullmatch=True)),
    st.builds(Known, COUNT),
    st.builds(Proof, st.binary(max_size=300), st.binary(max_size=300)),
)


@settings(max_examples=200, deadline=None)
@given(BODIES, NODE, COUNT)
def test_what_goes_in_comes_out(body, node, sequence):
    assert open_sealed(seal(Control(7, node, sequence, body)), 7) == Control(
        7, node, sequence, body
    )


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_the_codecs_error(data):
    with pytest.raises(CodecError):
        open_sealed(data, 7)


@settings(max_examples=500, deadline=None)
@given(BODIES, st.data())
def test_changed_bytes_are_another_message_or_the_codecs_error(body, data):
    sealed = bytearray(seal(Control(7, 1, 2, body)))
    at = data.draw(st.integers(64, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    try:
        found = open_sealed(bytes(sealed), 7)
    except CodecError:
        return
    assert isinstance(found, Control)


def test_a_voice_is_heard_once_in_order_and_as_itself():
    one, two = Voice(7, 1, 3, None, None), Voice(7, 2, 1, None, None)
    wire = [one.sealed(Ack(k)) for k in range(3)]

    assert [two.hear(1, data) for data in (wire[0], wire[2])] == [Ack(0), Ack(2)]
    for peer, data, reason in [
        (1, wire[2], "stale"),
        (1, wire[1], "stale"),
        (4, wire[2], "sender"),
    ]:
        with pytest.raises(CodecError) as caught:
            two.hear(peer, data)
        assert caught.value.reason == reason


def test_a_later_life_speaks_after_the_one_before():
    two = Voice(7, 2, 1, None, None)
    wire = [Voice(7, 1, life, None, None).sealed(Done(life)) for life in (1, 2)]

    assert [two.hear(1, data) for data in wire] == [Done(1), Done(2)]
