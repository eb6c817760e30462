"""Messages of fresh air: whatever the bytes, they are read exactly or refused with a reason."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.packing import NONE, fixed
from folkman.runtime import codec, fresh_codec
from folkman.runtime.codec import CodecError, Message
from folkman.runtime.contributions import Contributions
from folkman.runtime.fresh_codec import Carried, decode, encode, stamp_of
from folkman.runtime.mailbox import Checks
from folkman.runtime.sum_box import SumBox, SumRules

RUN, NODES, SIZE = 5, 3, 4
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(NODES)]
FIRST = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
SHARES = np.array([0.5, 0.25, 0.25], np.float32)


def verify(node, content, signature):
    try:
        KEYS[node].public_key().verify(signature, content)
    except Exception:  # a forged one, or no such node
        return False
    return True


def box(packing=NONE, checks=None, **rules):
    """Return the box of node 0 in slot 8, which has frozen stamps 3 and 7."""
    parts = Contributions(packing, FIRST, SHARES)
    asked = SumRules(**{"trusted": frozenset({1, 2}), "paced": True, **rules})
    made = SumBox(
        0,
        RUN,
        parts,
        lambda: (8, parts.of(0, FIRST + 1)),
        checks=checks or Checks(verify),
        rules=asked,
    )
    for stamp in (3, 7):
        made.freeze(stamp, parts.of(0, FIRST + np.float32(0.1 * stamp)))
    return made


def message(node=1, sequence=1, slot=8, stamps=(7, 8, 6), sign=True, **more):
    entries = np.arange(SIZE, dtype=np.float32)
    made = Carried(RUN, node, sequence, slot, np.array(stamps), **{"entries": entries, **more})
    return encode(made, KEYS[node].sign if sign else None)


def reason(target, data):
    before = target.others.copy(), target.sequence.copy()
    with pytest.raises(CodecError) as caught:
        target.take(data)
    for old, new in zip(before, (target.others, target.sequence), strict=True):
        np.testing.assert_array_equal(old, new)  # not a bit applied
    assert target.refused[caught.value.reason] == 1
    return caught.value.reason


def test_a_sum_is_adopted_and_the_own_old_part_taken_out():
    target = box()

    target.take(message())

    np.testing.assert_array_equal(target.sequence, [0, 8, 6])
    own = np.float64(0.5) * (FIRST + np.float32(0.7)).astype(np.float64)
    np.testing.assert_allclose(target.others, np.arange(SIZE) - own, rtol=1e-15)
    shown = target.inbox(np.array([0.0, 0.25, 0.25]), 0.5, 8)
    assert np.asarray(shown.age).tolist() == [8, 0, 2]
    assert np.asarray(shown.heard).tolist() == [False, True, True]
    assert np.isnan(np.asarray(shown.store)).all()  # nobody can look at a copy


def test_one_that_is_not_younger_is_heard_and_left():
    target = box()
    target.take(message())
    before = target.others.copy()

    target.take(message(node=2, sequence=1, stamps=(3, 5, 8)))

    np.testing.assert_array_equal(target.others, before)
    assert target.counts["declined"] == 1
    np.testing.assert_array_equal(target.rows[2], [3, 5, 8])  # and its stamps are known


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (message(stamps=(8, 8, 6)), "range"),  # our own, not sent yet
        (message(stamps=(1 << 40, 8, 6)), "range"),  # of a life that we have not lived
        (message(stamps=(5, 8, 6)), "past"),
        (message(stamps=(7, 9, 6)), "range"),  # its own future
        (message(stamps=(7, 8, 9)), "range"),  # another's
        (message(stamps=(7, 8, -1)), "range"),
        (message(stamps=(7, 8, stamp_of(1, 2**31))), "range"),
        (message(stamps=(7, 8)), "length"),
        (message(stamps=(7, 8, 6, 0)), "length"),
        (message(entries=np.zeros(SIZE + 1, np.float32)), "length"),
        (message(entries=np.full(SIZE, np.nan, np.float32)), "finite"),
        (message(entries=np.full(SIZE, 1e7, np.float32)), "absurd"),
        (message(entries=np.arange(SIZE), bits=18), "dtype"),  # whole numbers, not asked for
        (message(entries=None, inner=bytes(200), size=SIZE), "dtype"),
        (message(sign=False), "signature"),
        (message(node=0), "sender"),
        (message()[:-1], "length"),
        (message()[:151], "length"),
        (message() + b"\0", "length"),
    ],
)
def test_what_is_wrong_with_a_sum_is_said_and_nothing_applied(data, why):
    assert reason(box(), data) == why


@pytest.mark.parametrize(
    "stamps",
    [(0, 9, 0), (0, 0, -1), (stamp_of(1, 2**31), 0, 0)],
    ids=["the carrier's future", "negative", "beyond any run"],
)
def test_stamps_that_nobody_can_have_are_refused_without_a_look_at_what_is_held(stamps):
    with pytest.raises(CodecError) as caught:
        decode(message(stamps=stamps), RUN, SIZE, NODES, verify)
    assert caught.value.reason == "range"


def test_a_sum_that_another_signed_and_one_that_came_before_are_refused():
    target = box()
    forged = Carried(RUN, 1, 1, 8, np.array([7, 8, 6]), np.zeros(SIZE, np.float32))
    assert reason(target, encode(forged, KEYS[2].sign)) == "signature"
    target.take(message(sequence=4))

    assert reason(target, message(sequence=4)) == "stale"
    assert reason(box(trusted=frozenset({2})), message()) == "trust"


def test_without_a_common_clock_a_stamp_may_be_ahead_of_its_carrier():
    target = box(paced=False)

    target.take(message(stamps=(7, 8, 90)))

    assert target.sequence[2] == 90


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_messages_never_get_through(data):
    """Bytes changed, cut, doubled or made up: refused for a reason, and not a bit applied."""
    good = bytearray(message())
    kind = data.draw(st.sampled_from(["flip", "cut", "noise", "splice"]))
    if kind == "flip":
        place = data.draw(st.integers(0, len(good) - 1))
        good[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        good = good[: data.draw(st.integers(0, len(good) - 1))]
    elif kind == "noise":
        good = bytearray(data.draw(st.binary(max_size=400)))
    else:
        good[144:152] = data.draw(
            st.binary(min_size=8, max_size=8).filter(lambda b: b != good[144:152])
        )
    target = box()

    reason(target, bytes(good))


@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(st.integers(-(2**17), 2**17 - 1), min_size=SIZE, max_size=SIZE),
    stamps=st.lists(st.integers(0, 2**31 - 1), min_size=NODES, max_size=NODES),
    slot=st.integers(0, 2**31 - 1),
)
def test_whole_numbers_and_stamps_come_back_as_they_were_sent(entries, stamps, slot):
    stamps = np.array(stamps)
    stamps[1] = min(stamps[1], slot)
    sent = Carried(RUN, 1, 9, slot, stamps, np.array(entries), bits=18)

    found = decode(encode(sent, KEYS[1].sign), RUN, SIZE, NODES, verify)

    assert found.entries is not None
    np.testing.assert_array_equal(found.entries, np.array(entries) % 2**18)
    np.testing.assert_array_equal(found.stamps, stamps)


@settings(max_examples=50, deadline=None)
@given(drift=st.floats(-200, 200), hops=st.integers(1, 6))
def test_on_the_grid_a_sum_is_exact_however_far_its_parts_have_drifted(drift, hops):
    """Contributions far beyond the range of a sum cancel in it to the last bit."""
    parts = Contributions(fixed(16, largest=8.0), FIRST, SHARES)
    mine, theirs = FIRST + np.float32(drift), FIRST - np.float32(2 * drift)
    others = parts.of(1, theirs)
    total = others + parts.of(0, mine) + parts.of(2, FIRST)
    for _ in range(hops):  # taken out and put in again
        total = parts.without(total % 2**parts.bits, parts.of(2, FIRST)) + parts.of(2, FIRST)
    found = parts.mixed(0, parts.without(total, parts.of(0, mine)), parts.of(0, mine))
    exact = 0.25 * theirs.astype(float) + 0.25 * FIRST.astype(float)
    steps = 8.0 / 2**15
    np.testing.assert_allclose(found, exact, atol=2 * steps + 1e-5 * abs(drift))


def test_a_copy_goes_into_a_sum_only_where_the_past_is_lost():
    target = box()
    copied = codec.encode(Message(RUN, 1, 1, 8, FIRST + np.float32(2)), KEYS[1].sign)
    target.take(copied)
    assert target.sequence.tolist() == [0, 0, 0]
    assert reason(target, message(node=2, stamps=(5, 4, 8))) == "past"
    assert target.lost == 5

    target.take(codec.encode(Message(RUN, 2, 3, 8, FIRST), KEYS[2].sign))

    assert target.sequence.tolist() == [0, 8, 8]
    expected = 0.25 * (FIRST + np.float32(2)).astype(float) + 0.25 * FIRST.astype(float)
    np.testing.assert_allclose(target.others, expected, rtol=1e-6)
    forged = codec.encode(Message(RUN, 1, 5, 9, FIRST), KEYS[2].sign)
    assert reason(target, forged) == "signature"
    assert fresh_codec.slot_of(stamp_of(3, 8)) == 8
