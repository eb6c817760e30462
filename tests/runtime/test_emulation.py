"""The emulated channel is the simulated one: every node, by itself, knows what the simulator knows of all."""

import numpy as np
import pytest

from folkman import constant, ideal, pipelined, record_timeline, snapshot
from folkman.radio.network import RadioNetwork
from folkman.radio.shared import shared
from folkman.runtime.control import SlotClock
from folkman.runtime.emulation import (
    MOST_HELD_BACK,
    STRETCH,
    Emulation,
    RoundTrips,
    StarTrips,
)
from folkman.runtime.link_quality import Links

NODES, SEED, BITS = 4, 3, 16 * 1000


@pytest.mark.parametrize(
    "network",
    [snapshot(4), pipelined(3), RadioNetwork(threshold_db=0.0, slot_s=0.01)],
    ids=["snapshot", "pipelined", "radio"],
)
def test_all_nodes_together_plan_the_simulators_timeline(network):
    slots = 2 * STRETCH + 10
    timeline = record_timeline(network, NODES, slots, SEED, BITS)
    views = [
        Emulation(network.peers(), NODES, me, seed=SEED, message_bits=BITS) for me in range(NODES)
    ]

    for t in range(slots - 1):
        plans = [view.plan(t) for view in views]
        others = ~np.eye(NODES, dtype=bool)
        np.testing.assert_array_equal(
            np.stack([p.held for p in plans])[others], timeline.held[t][others]
        )
        np.testing.assert_array_equal([p.sends for p in plans], timeline.sends[t])


def test_what_is_sent_may_be_used_when_the_channel_has_delivered_it():
    network = pipelined(3)
    timeline = record_timeline(network, 2, 40, SEED, BITS)
    view = Emulation(network.peers(), 2, 0, seed=SEED, message_bits=BITS)
    used = []

    for t in range(39):
        used += [(t, int(data)) for sender, data in view.due(t) if sender == 1]
        if timeline.sends[t, 1]:
            view.receive(1, t + 1, b"%d" % (t + 1))

    changes = [t for t in range(1, 39) if timeline.held[t, 0, 1] != timeline.held[t - 1, 0, 1]]
    assert used == [(t, int(timeline.held[t, 0, 1])) for t in changes]
    assert len(used) > 5


def test_the_emulated_air_is_bounded():
    view = Emulation(pipelined(50).peers(), 2, 0, seed=SEED, message_bits=BITS)
    for number in range(10_000, 10_100):
        view.receive(1, number, bytes(10))

    assert len(view._air[1]) == MOST_HELD_BACK
    assert view.due(0) == []


def test_a_node_waits_for_who_is_there_and_due():
    view = Emulation(ideal().peers(), 2, 0, seed=SEED, message_bits=BITS)

    assert view.missing(3, frozenset({1}))
    assert not view.missing(3, frozenset())
    view.receive(1, 3, b"")
    assert not view.missing(3, frozenset({1}))


@pytest.mark.parametrize(
    ("network", "slots", "answer"),
    [
        (ideal(), 0, 0),
        (snapshot(5), 5, 0),
        (constant(2), 2, 2),
        (pipelined(4), 4, 4),
        (pipelined(4, download_slots=0), 4, 0),
    ],
    ids=lambda n: getattr(n, "name", n),
)
def test_rounds_take_what_the_delay_law_says(network, slots, answer):
    everyone = np.ones((NODES, NODES), bool)
    trips = RoundTrips(network.rounds(), everyone, seed=SEED, message_bits=BITS)
    star = StarTrips(network.star(), NODES, seed=SEED, message_bits=BITS)

    assert [trips.slots(r, 0) for r in (1, 2, 3)] == [slots] * 3
    assert [star.slots(r, n) for r in (1, 2) for n in range(NODES)] == [slots] * 8
    assert [star.slots(r, n, down=True) for r in (1, 2) for n in range(NODES)] == [answer] * 8


def test_a_round_on_the_index_serves_the_edges_of_its_graph_and_no_other_pairs():
    ring = np.roll(np.eye(NODES, dtype=bool), 1, axis=0)
    took = [
        RoundTrips(shared(1.0).rounds(), beside, seed=SEED, message_bits=BITS).slots(1, 0)
        for beside in (ring, ring & False)
    ]

    assert took[0] >= NODES  # one message of every node, a slot each
    assert took[1] < NODES  # nobody is waited for


def test_rounds_on_the_radio_take_slots_and_end():
    trips = StarTrips(RadioNetwork(slot_s=0.01).star(), NODES, seed=SEED, message_bits=BITS)

    assert all(
        1 <= trips.slots(r, n, down=d) < 10_000
        for r in (1, 2)
        for n in range(NODES)
        for d in (False, True)
    )


def test_a_clock_goes_by_the_middle_of_all_and_lives_no_slot_twice():
    clock = SlotClock(1.0)
    clock.restart(0.0, 5)
    assert clock.slot(0.0) == 5
    clock.heard(1, 9.5, 0.0, linked=[1])  # of two the one that is ahead
    assert clock.slot(0.0) == 9
    clock.heard(1, 1e9, 0.0, linked=[1])  # a clock that has gone mad
    assert clock.slot(0.0) == 9
    clock.heard(1, 2.0, 0.0, linked=[1, 2, 3])
    assert clock.slot(0.0) == 9
    clock.heard(2, 500.0, 0.0, linked=[1, 2, 3])  # one alone moves nobody
    assert clock.slot(0.0) == 9
    clock.heard(3, 400.0, 0.0, linked=[1, 2, 3])  # two of four, and the nearer of them
    assert clock.slot(0.0) == 400
    assert clock.slot(3.0) == 403
    for peer in (1, 2, 3):
        clock.heard(peer, 402.0, 3.0, linked=[1, 2, 3])  # it waits for the others, a little
    assert clock.slot(3.0) == 402
    assert clock.begins_s(404) == 5.0


def test_measured_links_schedule_and_share_by_proposition_1():
    links = Links([1, 2, 3], threshold_bit_s=1e6)
    assert links.receivers([1, 2, 3]) == [1, 2, 3]  # unknown: tried
    assert links.period_s([1, 2], 1000) == 0.0
    for peer, after_s in ((1, 0.001), (2, 0.0005), (3, 0.1)):
        links.note_arrival(peer, 10_000, after_s)

    assert links.receivers([1, 2, 3]) == [1, 2]  # node 3 has 1e5 bit/s
    assert links.rate_bit_s([1, 2]) == pytest.approx(1e7)  # the worst of them
    links.note_rate(9, 2e7)
    # B_i/B = (1/1e7) / (1/1e7 + 1/2e7) = 2/3, so that both end together: bits / (2/3 1e7) = bits / (1/3 2e7)
    assert links.period_s([1, 2], 20_000) == pytest.approx(0.003, rel=1e-5)
    links.note_rate(9, 1e12)  # a claim beyond all that was measured counts as the best of that
    assert links.period_s([1, 2], 20_000) == pytest.approx(0.003, rel=1e-5)
    links.note_rate(9, 1e-9)  # and one below it as the worst, 1e5: B_i/B = 1/101
    assert links.period_s([1, 2], 1_000) == pytest.approx(0.0101, rel=1e-5)
    tried = [links.receivers([1, 2, 3]) for _ in range(20)]
    assert 1 <= sum(3 in each for each in tried) <= 3  # a bad link is tried again now and then
    for _ in range(60):
        links.note_loss(1)
    assert links.receivers([1, 2]) == [2]
