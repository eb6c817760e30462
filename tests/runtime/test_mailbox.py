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
