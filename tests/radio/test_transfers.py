"""The sums that were sent, found again in who held what when."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import serial_air
from folkman.radio.delay import ideal
from folkman.radio.trace import PeerTimeline, record_timeline
from folkman.radio.transfers import adoptions, own_past

HISTORIES = {
    "seed": st.integers(0, 2**32 - 1),
    "nodes": st.integers(2, 6),
    "longest": st.sampled_from([0.4, 1.2, 4.0]),
    "eager": st.sampled_from([0.0, 0.6]),
    "stale": st.sampled_from([0.0, 0.5]),
}


def a_history(seed, nodes, longest, eager, stale, slots=30):
    rng = np.random.default_rng(seed)
    shortest = min(0.15, longest)
    options = {"longest": longest, "shortest": shortest, "eager": eager, "stale": stale}
    return serial_air.draw(rng, nodes, slots, **options)


@settings(max_examples=60, deadline=None)
@given(**HISTORIES)
def test_adoptions_explain_every_row_by_rows_that_were_there(seed, nodes, longest, eager, stale):
    """Follow the adoptions with stamps alone: every node comes to hold what it held."""
    history = a_history(seed, nodes, longest, eager, stale)
    found = adoptions(history.timeline)
    rows, after = np.zeros((nodes, nodes), int), {}
    others = ~np.eye(nodes, dtype=bool)
    due = iter([*found, None])
    frozen = np.array(
        [
            [max([0, *(np.flatnonzero(history.sends[:s, k]) + 1)]) for k in range(nodes)]
            for s in range(len(history.sends))
        ]
    )
    event, number = next(due), 0
    for slot in range(len(history.timeline.held)):
        while event is not None and event.used == slot:
            assert event.after < number
            assert event.start < event.used
            own = frozen[event.start, event.sender]
            sent = after[event.after] if event.after >= 0 else np.zeros(nodes, int)
            if event.after >= 0:
                assert found[event.after].receiver == event.sender
                assert found[event.after].used <= event.start + 1
            expected = np.where(np.arange(nodes) == event.sender, own, sent)
            np.testing.assert_array_equal(event.stamps, expected)
            after[number] = event.stamps
            if event.kept:
                rows[event.receiver] = event.stamps
            event, number = next(due), number + 1
        np.testing.assert_array_equal(rows[others], history.held[slot][others])


@settings(max_examples=30, deadline=None)
@given(**HISTORIES)
def test_a_node_needs_no_more_own_past_than_there_are_nodes(seed, nodes, longest, eager, stale):
    history = a_history(seed, nodes, longest, eager, stale)
    most, oldest = own_past(history.timeline)

    assert (most <= nodes + 1).all()
    assert (oldest < len(history.sends)).all()


def test_the_own_past_of_two_nodes_is_that_counted_by_hand():
    """Node 0 sends in slot 1, node 1 has it in slot 3 and answers, node 0 has that in slot 5."""
    held, sends = np.zeros((6, 2, 2), np.int32), np.zeros((6, 2), bool)
    held[3:, 1, 0], held[5:, 0, 1] = 1, 3
    sends[0, 0] = sends[2, 1] = True
    timeline = PeerTimeline(held, sends, np.ones((6, 2), bool))

    there, back = adoptions(timeline)

    assert (there.used, there.receiver, there.sender, there.after) == (3, 1, 0, -1)
    assert (back.used, back.receiver, back.sender, back.after) == (5, 0, 1, 0)
    assert there.stamps.tolist() == [1, 0]
    assert back.stamps.tolist() == [1, 3]
    most, oldest = own_past(timeline)
    assert most.tolist() == [1, 1]
    assert oldest.tolist() == [3, 2]  # w_0(1) until slot 4, w_1(0) until slot 2


def test_stamps_that_no_sum_can_have_brought_are_refused():
    """Without delay a stamp is used in its own slot: no message has had time to bring it."""
    with pytest.raises(ValueError, match=r"in slot 1 node 0 .* message = 'sum'"):
        adoptions(record_timeline(ideal(), 3, 5))
