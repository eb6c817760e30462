"""The serial medium told transfer by transfer is the one of the simulator."""

from itertools import pairwise

import numpy as np
import pytest

from folkman import Lossy, RadioNetwork, record_timeline
from folkman.keys import Stream, make_key
from folkman.radio.shared import shared
from folkman.radio.unrolled import Unrolled
from folkman.runtime.fresh_air import MOST_AT_ONCE, FreshAir

NODES, SEED, BITS = 4, 3, 16 * 1000


def radio(**options):
    return RadioNetwork(schedule="index", slot_s=2e-3, **options)


@pytest.mark.parametrize(
    "network",
    [
        radio(message="sum"),
        radio(message="forward"),
        radio(message="sum", control="heard", contention_s=1e-5),
        Lossy(radio(message="sum"), 0.3),
        shared(0.4, message="sum"),
        shared(2.5, message="forward"),
    ],
    ids=["sum", "forward", "heard", "losses", "several a slot", "several slots"],
)
def test_its_events_bring_what_the_simulator_says_is_held(network):
    slots = 80
    timeline = record_timeline(network, NODES, slots, SEED, BITS)
    told = Unrolled(network.peers(), NODES, BITS, make_key(SEED, Stream.DELAY))
    held, sends, seen = np.zeros((NODES, NODES), int), np.zeros((slots, NODES), bool), []
    others = ~np.eye(NODES, dtype=bool)

    for slot in range(1, slots):
        np.testing.assert_array_equal(held[others], timeline.held[slot][others])
        for event in told.next_slot():
            assert event.slot == slot
            seen.append(event)
            stamps = np.array(event.stamps)
            if event.ends:
                for rx in event.receivers:
                    held[rx] = np.where((stamps >= 0) & others[rx], stamps, held[rx])
            elif event.stamps[event.sender] == slot:
                sends[slot - 1, event.sender] = True
    starts = [event.number for event in seen if not event.ends]
    assert starts == list(range(1, len(starts) + 1))
    assert len(starts) > 25
    np.testing.assert_array_equal(sends[: slots - 1], timeline.sends[: slots - 1])
    for one, two in pairwise(seen):  # one message at a time
        assert one.ends != two.ends
        assert two.ends or two.number == one.number + 1


def test_a_node_that_begins_again_is_not_asked_for_what_was_before():
    air = FreshAir(shared(0.4, message="sum").peers(), NODES, 1, seed=SEED, message_bits=BITS)
    air.skip(20)
    event = air.next(40)
    assert event is not None
    assert event.slot >= 20


def test_a_node_that_is_far_behind_keeps_nothing_of_the_slots_that_it_will_never_do():
    air = FreshAir(shared(0.4, message="sum").peers(), NODES, 1, seed=SEED, message_bits=BITS)
    most, looks = 0, 0
    while not air.rolled_to(3000, 2990):
        most, looks = max(most, len(air._mine)), looks + 1

    assert looks == 3000 // MOST_AT_ONCE  # it does other things in between
    assert most == 0
    event = air.next(3000)
    assert event is not None
    assert event.slot >= 2990
