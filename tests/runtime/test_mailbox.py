"""What a mailbox keeps: the freshest, the sane, and in lock-step this round and the next."""

import numpy as np
import pytest

from folkman.runtime.codec import SERVER, CodecError, Message, encode
from folkman.runtime.mailbox import Checks, Mailbox

FIRST = np.zeros(3, np.float32)


def message(node=1, sequence=1, value=1.0, round_=0):
    return encode(Message(5, node, sequence, 0, np.full(3, value, np.float32), round_))


def reason(box, data, own=None):
    with pytest.raises(CodecError) as caught:
        box.take(data, own)
    return caught.value.reason


@pytest.mark.parametrize("value", [1e7, -1e7, 3e38])
def test_absurd_parameters_are_refused_and_counted(value):
    box = Mailbox(FIRST, 3, 5, checks=Checks(largest=1e6))

    assert reason(box, message(value=value)) == "absurd"
    assert box.put(message(sequence=2, value=1e6))

    assert box.refused == {"absurd": 1}
    assert box.payload[1].tolist() == [1e6] * 3


def test_one_parameter_too_large_for_our_precision_is_not_finite():
    box = Mailbox(FIRST, 3, 5, checks=Checks(largest=np.inf))

    wide = encode(Message(5, 1, 1, 0, np.array([1.0, 1e300, 0.0])))

    assert reason(box, wide) == "finite"
    assert box.payload.tolist() == [[0.0] * 3] * 3


def test_a_server_is_one_sender_with_a_number_of_its_own():
    box = Mailbox(FIRST, 1, 5, first_sender=SERVER)

    assert reason(box, message(node=0)) == "sender"
    assert box.put(message(node=SERVER))


def test_in_rounds_this_one_and_the_next_are_kept_each_once():
    box = Mailbox(FIRST, 3, 5, in_rounds=True)
    assert reason(box, message(sequence=1, round_=3)) == "round"
    assert box.put(message(sequence=2, value=2.0, round_=2))  # it is ahead
    assert reason(box, message(sequence=3, round_=2)) == "round"
    assert box.put(
        message(sequence=1, value=1.0, round_=1)
    )  # overtaken on its way, and still waited for
    assert reason(box, message(sequence=1, value=1.0, round_=1)) == "stale"

    box = Mailbox(FIRST, 3, 5, in_rounds=True)
    weight = np.array([0.0, 0.5, 0.0])
    assert box.put(message(sequence=1, value=1.0, round_=1))
    assert box.put(message(sequence=2, value=2.0, round_=2))
    first = box.inbox(weight, 0.5, 0, lockstep_of=0)
    second = box.inbox(weight, 0.5, 0, lockstep_of=0)
    third = box.inbox(weight, 0.5, 0, lockstep_of=0)

    assert [box.heard[1] for box in (first, second, third)] == [True, True, False]
    assert [float(box.store[1, 0]) for box in (first, second)] == [1.0, 2.0]
    assert box.round == 3
    assert reason(box, message(sequence=3, round_=1)) == "stale"


def test_in_rounds_nothing_is_heard_until_all_neighbours_are():
    box = Mailbox(FIRST, 3, 5, in_rounds=True)
    weight = np.array([0.0, 0.3, 0.3])
    box.put(message(node=1, round_=1))

    early = box.inbox(weight, 0.4, 0, lockstep_of=0)
    box.put(message(node=2, round_=1))
    late = box.inbox(weight, 0.4, 0, lockstep_of=0)

    assert not np.asarray(early.heard).any()
    assert np.asarray(late.heard).all()


def heard(box):
    """Return of each sender the last number, whether it is new, whether it is finite, and a parameter."""
    return list(
        zip(
            box.sequence.tolist(),
            box.heard.tolist(),
            box.finite.tolist(),
            box.payload[:, 0].tolist(),
            strict=True,
        )
    )


@pytest.mark.parametrize("value", [np.nan, 1e7])
def test_a_broken_message_counts_as_heard_once_and_never_undoes_a_newer_one(value):
    box = Mailbox(FIRST, 2, 5, first_sender=10, note_broken=True, checks=Checks(largest=1e6))
    broken = "finite" if np.isnan(value) else "absurd"
    box.put(message(node=11, sequence=3, value=2.0))
    untouched = (0, False, True, 0.0)

    for stale in (2, 3):  # an older one, and the one that is held
        assert reason(box, message(node=11, sequence=stale, value=value)) == broken
        assert heard(box) == [untouched, (3, True, True, 2.0)]
    assert reason(box, message(node=11, sequence=4, value=value)) == broken
    assert heard(box) == [untouched, (4, True, False, 0.0)]
    box.inbox(np.ones(2), 0.0, 0)
    assert reason(box, message(node=11, sequence=4, value=value)) == broken  # sent again
    assert heard(box) == [untouched, (4, False, False, 0.0)]
    assert box.put(message(node=11, sequence=5, value=1.0))
    assert heard(box) == [untouched, (5, True, True, 1.0)]


@pytest.mark.parametrize("node", [0, 9, 12, SERVER])
def test_a_broken_message_of_a_stranger_is_refused_and_noted_of_nobody(node):
    box = Mailbox(FIRST, 2, 5, first_sender=10, note_broken=True)

    assert reason(box, message(node=node, sequence=7, value=np.nan)) == "finite"

    assert heard(box) == [(0, False, True, 0.0)] * 2
    assert box.refused == {"finite": 1}


def test_senders_are_those_from_the_first_to_the_last_and_not_oneself():
    box = Mailbox(FIRST, 2, 5, first_sender=10)

    assert [reason(box, message(node=node)) for node in (9, 12)] == ["sender"] * 2
    assert reason(box, message(node=11), own=11) == "sender"
    assert [box.put(message(node=node)) for node in (10, 11)] == [True, True]


def test_without_a_wish_to_note_them_broken_messages_leave_no_trace():
    box = Mailbox(FIRST, 2, 5)

    assert reason(box, message(value=np.nan)) == "finite"

    assert heard(box) == [(0, False, True, 0.0)] * 2


def test_the_age_of_a_copy_is_the_slots_since_it_was_formed_and_never_negative():
    box = Mailbox(FIRST, 3, 5)
    for node, slot in ((1, 4), (2, 9)):
        box.put(encode(Message(5, node, 1, slot, FIRST)))

    assert np.asarray(box.inbox(np.ones(3), 0.0, 6).age).tolist() == [6, 2, 0]
