"""What is not new is not sent: between peers a message follows a gradient."""

import numpy as np
import pytest

from folkman import (
    Clock,
    Recording,
    adpsgd,
    async_sharing,
    dpsgd,
    fedavg,
    ideal,
    pipelined,
    record_timeline,
    sgp,
    simulate,
    snapshot,
    swift,
)
from folkman.engine.reference import reference
from folkman.engine.simulate import Simulation, march, start
from folkman.faults import Faults
from folkman.radio.network import RadioNetwork
from folkman.runtime.codec import round_of
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.settings import Settings
from folkman.runtime.core.slots import EmulatedSlots
from folkman.runtime.emulation import Emulation
from folkman.runtime.node import Node

NODES, SLOTS = 6, 50

METHODS = {
    "algorithm 1": async_sharing(0.1),
    "swift": swift(0.1),
    "sgp": sgp(0.1, mode="asynchronous"),
}


def counted(beats, compute_slots):
    """Return who sends when, node by node: on a beat, if a gradient has ended since the last one."""
    sends = np.zeros_like(beats)
    for node, slots in enumerate(compute_slots):
        ended = sent = 0
        for t in range(len(beats)):
            ended += (t + 1) % slots == 0
            if beats[t, node] and ended > sent:
                sends[t, node], sent = True, ended
    return sends


@pytest.mark.parametrize("algorithm", METHODS.values(), ids=METHODS)
def test_ten_updates_are_ten_broadcasts(quadratics, algorithm):
    problem = quadratics(nodes=NODES)

    run = simulate(problem, ideal(), algorithm, slots=SLOTS, clock=Clock(compute_slots=5))

    assert run.last("gradients") == 10
    assert run.last("rounds") == 10
    assert run.last("bits") == 10 * NODES * (64 * problem.dim + 32 * (algorithm.name == "sgp"))


@pytest.mark.parametrize("network", [ideal(), snapshot(4), pipelined(3)], ids=lambda n: n.name)
def test_broadcasts_are_those_of_a_count_by_hand(quadratics, network):
    problem, clock = quadratics(nodes=NODES), Clock(compute_slots=(1, 2, 3, 5, 7, 60))

    run = simulate(
        problem,
        network,
        async_sharing(0.1),
        slots=SLOTS,
        clock=clock,
        recording=Recording(SLOTS, timeline=True),
    )

    beats = record_timeline(network, NODES, SLOTS).sends
    np.testing.assert_array_equal(run.timeline.sends, counted(beats, clock.compute_slots))
    slow = reference(problem, run.timeline, async_sharing(0.1))
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-9, atol=1e-12)


def test_a_node_that_starts_anew_says_so_before_its_next_gradient(quadratics):
    run = simulate(
        quadratics(nodes=3),
        ideal(),
        async_sharing(0.1),
        slots=20,
        clock=Clock(compute_slots=4),
        faults=Faults(crash=((1, 9, 13),)),
        recording=Recording(20, timeline=True),
    )

    np.testing.assert_array_equal(np.flatnonzero(run.timeline.sends[:, 0]), [3, 7, 11, 15, 19])
    np.testing.assert_array_equal(np.flatnonzero(run.timeline.sends[:, 1]), [3, 7, 13, 16])


def test_a_byte_level_node_offers_what_is_new(quadratics):
    problem = quadratics(nodes=2)
    node = Node(0, problem.of_node(0), async_sharing(0.1), np.full(2, 0.5))

    assert not node.offers()
    for _ in range(2):
        node.wake()
        node.wake()
        assert node.offers()
        node.send()
        assert not node.offers()


def test_a_method_that_says_itself_what_is_new_is_asked(quadratics):
    problem = quadratics(nodes=2)
    active, passive = (Node(i, problem.of_node(i), adpsgd(0.1), np.full(2, 0.5)) for i in range(2))
    for node in (active, passive):
        node.wake()

    assert active.offers()  # it proposes after its first gradient
    assert not passive.offers()


def test_a_device_that_missed_slots_of_the_emulated_channel_sends_once(quadratics):
    """Its gradient takes five slots of the channel, on which there is a beat in each."""
    problem = quadratics(nodes=2)
    node = Node(0, problem.of_node(0), async_sharing(0.1), np.full(2, 0.5))
    emulation = Emulation(ideal().peers(), 2, 0, seed=0, message_bits=16)
    settings = Settings(steps=3, slot_s=1.0, start_wait_s=0.0)
    core = Core(node, settings, EmulatedSlots(emulation))
    now_s, sent = 0.0, []
    waiting: list[events.Event] = [events.Start(None, 0)]
    while core.state != "done":
        for effect in core.step(now_s, waiting.pop() if waiting else events.Tick()):
            if isinstance(effect, events.Publish):
                sent.append((effect.peer, round_of(effect.data)))
            elif isinstance(effect, events.Save):
                waiting.append(events.Saved(effect.ticket))
            elif isinstance(effect, events.Compute):
                now_s += 5.0
                found = node.gradient(effect.point, effect.step)
                waiting.append(events.Computed(effect.ticket, *found))

    assert sent == [(1, 1), (1, 6), (1, 11)]


HEARD = {
    "everyone": (ideal(), async_sharing(0.1), 0),
    "nobody is above the threshold": (RadioNetwork(threshold_db=80.0), async_sharing(0.1), 12),
    "a ring": (RadioNetwork(threshold_db=80.0), swift(0.1), 8),
    "not yet": (pipelined(20), async_sharing(0.1), 12),
    "answered": (pipelined(2), fedavg(0.1), 0),
    "not yet answered": (pipelined(4), fedavg(0.1), 4),
    "in rounds": (pipelined(3), dpsgd(0.1), 0),
}


@pytest.mark.parametrize(("network", "algorithm", "links"), HEARD.values(), ids=HEARD)
def test_links_that_have_brought_nothing_are_counted(quadratics, network, algorithm, links):
    problem = quadratics(nodes=4)
    simulation = Simulation(problem, network, algorithm)

    *_, (mark, row) = march(simulation, start(simulation, 0), 8)

    assert simulation.medium.unheard(mark.carry.medium) == links
    if isinstance(network, RadioNetwork):
        assert row["bits"] == 0
