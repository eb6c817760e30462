"""Nodes that carry sums, or pass copies on, over bytes: they end where the simulator does."""

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from folkman import Clock, RadioNetwork, Recording, async_sharing, load, make_problem, sgp, simulate
from folkman import reference as run_reference
from folkman.packing import fixed
from folkman.radio.shared import shared
from folkman.runtime import codec
from folkman.runtime.codec import CodecError, LostPastError, Message
from folkman.runtime.fresh_codec import Carried, encode, slots_of
from folkman.runtime.fresh_node import ForwardNode
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Wire
from folkman.runtime.state import pack, restore
from reference.fresh_wire import make_nodes, play_fresh

SLOT_S, SLOTS = 2e-5, 40  # of one message of 30 numbers, some slots
METHOD = async_sharing(0.05)


def radio(message, **options):
    return RadioNetwork(schedule="index", message=message, slot_s=SLOT_S, **options)


def simulated(problem, network, method=METHOD, slots=SLOTS):
    clock = Clock(getattr(network, "slot_s", 1.0))
    recording = Recording(20, timeline=True)
    return simulate(problem, network, method, slots=slots, clock=clock, recording=recording)


def assert_same_stamps(held, timeline):
    others = ~np.eye(held.shape[1], dtype=bool)
    np.testing.assert_array_equal(slots_of(held)[:, others], timeline.held[:, others])


@pytest.mark.parametrize(
    "network",
    [shared(0.4, message="sum"), shared(1.7, message="sum"), radio("sum")],
    ids=["several a slot", "several slots", "radio, on the grid"],
)
def test_sums_over_bytes_are_the_sums_of_the_reference(quadratics, network):
    problem = quadratics(nodes=4, dim=30, heterogeneity=1.0)
    run = simulated(problem, network)
    packing = fixed(16) if network.name == "radio" else network.packing
    sums = run_reference(problem, run.timeline, METHOD, packing=packing, carry="sums")

    nodes, held = play_fresh(problem, network, METHOD, SLOTS)

    assert_same_stamps(held, run.timeline)
    assert (run.timeline.held[-1] > 0).sum() > 6  # something was sent
    ends = np.stack([node.params() for node in nodes])
    np.testing.assert_allclose(ends, sums.nodes, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-12, atol=1e-12)
    assert not any(node.mailbox.refused for node in nodes)


@pytest.mark.parametrize("network", [shared(0.6, message="forward"), radio("forward")])
def test_forwards_over_bytes_end_where_the_simulator_does(quadratics, network):
    problem = quadratics(nodes=4, dim=30, heterogeneity=1.0)
    run = simulated(problem, network)

    nodes, held = play_fresh(problem, network, METHOD, SLOTS)

    assert_same_stamps(held, run.timeline)
    ends = np.stack([node.params() for node in nodes])
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        shared(0.6, message="sum"),
        RadioNetwork(schedule="index", message="sum", slot_s=2e-4),
    ],
    ids=["as computed", "on the grid"],
)
def test_in_float32_sums_stay_near_the_simulator(network):
    """One rounding at every hop, or none on the grid: the aligned own part and mini-batches too."""
    problem = make_problem(load("digits", train_size=120), "softmax", 4, batch=8)
    method = async_sharing(0.2, own="aligned")
    run = simulated(problem, network, method, slots=60)

    nodes, held = play_fresh(problem, network, method, 60)

    assert_same_stamps(held, run.timeline)
    ends = np.stack([node.params() for node in nodes])
    assert np.abs(ends - run.nodes).max() < 1e-5 * np.abs(run.nodes).max()


def exchange(nodes):
    """Let all nodes live a slot, and then one after the other send to all others."""
    for node in nodes:
        node.freeze()
        node.wake()
    for sender in nodes:
        data, _ = sender.carry(origin=sender.index)
        for other in nodes:
            if other is not sender:
                other.take(data)


def lose(node):
    """Let a node begin again with nothing but its saved parameters' number of life."""
    node.sequence = 1 << 32
    node.mailbox.past.clear()
    node.mailbox.newest = node.frozen = 0


def test_a_node_that_lost_its_past_says_so_and_comes_back_by_copies(quadratics):
    """It refuses sums with its unknown stamps; copies let it form one anew, which others adopt."""
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    nodes = make_nodes(problem, METHOD, "sum")

    for _ in range(3):
        exchange(nodes)
    lose(nodes[1])
    nodes[1].freeze()
    before = nodes[1].mailbox.others.copy()
    with pytest.raises(LostPastError, match="our own parameters of slot 2, which are no longer"):
        nodes[1].take(nodes[0].carry()[0])
    np.testing.assert_array_equal(nodes[1].mailbox.others, before)
    assert nodes[1].mailbox.refused["past"] == 1
    assert nodes[1].mailbox.lost == 2

    for other in (0, 2):
        nodes[1].take(nodes[other].copy()[0])
    assert nodes[1].mailbox.counts["rebuilt"] >= 1
    share = np.asarray(problem.share)
    expected = sum(share[j] * nodes[j].params() for j in (0, 2))
    np.testing.assert_allclose(nodes[1].mailbox.others, expected, rtol=1e-12)

    for node in nodes:
        node.wake()
        node.freeze()
    data, _ = nodes[1].carry()
    nodes[0].take(data)
    assert nodes[0].mailbox.counts["adopted"] >= 3
    nodes[0].wake()
    nodes[0].freeze()
    nodes[1].take(nodes[0].carry()[0])  # the old stamp is gone
    assert nodes[1].mailbox.lost is None
    expected = sum(share[j] * part for j, part in ((0, nodes[0].params()),))
    left = nodes[1].mailbox.others - expected
    stamp = int(nodes[1].mailbox.sequence[2])
    np.testing.assert_allclose(left, nodes[2].mailbox.past[stamp], rtol=1e-9, atol=1e-12)


def test_the_own_past_is_bounded_and_the_oldest_goes(quadratics):
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    nodes = make_nodes(problem, METHOD, "sum", room=3)
    for _ in range(2):
        exchange(nodes)
    for _ in range(5):
        for node in nodes:
            node.freeze()
            node.wake()

    assert sorted(nodes[1].mailbox.past) == [0, 4, 5, 6]  # the first model is always at hand
    with pytest.raises(LostPastError):
        nodes[1].take(nodes[0].carry()[0])  # it holds what node 1 had in slot 1


def test_a_sum_is_taken_only_of_those_who_are_trusted(quadratics):
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    nodes = make_nodes(problem, METHOD, "sum", trusted=frozenset({2}))
    for node in nodes:
        node.wake()
        node.freeze()

    with pytest.raises(CodecError, match="node 1 sends a sum in the name of all nodes"):
        nodes[0].take(nodes[1].carry()[0])
    assert nodes[0].mailbox.refused == {"trust": 1}
    nodes[0].take(nodes[2].carry()[0])
    assert nodes[0].mailbox.counts["adopted"] == 1


def test_robust_rules_and_other_methods_refuse_sums(quadratics):
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    with pytest.raises(ValueError, match="uses the copies in another way"):
        make_nodes(problem, async_sharing(0.05, rule="median"), "sum")
    make_nodes(problem, async_sharing(0.05, rule="median"), "forward")
    with pytest.raises(ValueError, match="travels another way"):
        make_nodes(problem, sgp(0.05, topology="ring"), "forward")


def keyed(nodes):
    """Return keys, and a check of signatures by them."""
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in range(nodes)]

    def verify(node, content, signature):
        try:
            keys[node].public_key().verify(signature, content)
        except InvalidSignature:
            return False
        return True

    return keys, verify


def test_a_copy_that_is_passed_on_is_its_origins_or_refused(quadratics):
    """Byte for byte what the origin signed; a forged, damaged or older one changes nothing."""
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    keys, verify = keyed(3)
    shares = np.asarray(problem.share)
    nodes = [
        ForwardNode(
            i,
            problem.of_node(i),
            METHOD,
            shares,
            wire=Wire(7, sign=keys[i].sign, checks=Checks(verify)),
        )
        for i in range(3)
    ]
    for node in nodes:
        node.wake()
        node.freeze()
    first, _ = nodes[0].carry()
    nodes[1].take(first)
    passed, _ = nodes[1].carry(origin=0)
    nodes[2].take(passed)
    np.testing.assert_array_equal(nodes[2].mailbox.payload[0], nodes[0].params())
    assert nodes[2].letters[0] == nodes[0].letters[0]

    nodes[0].wake()
    nodes[0].freeze()
    newer, _ = nodes[0].carry()
    nodes[2].take(newer)
    again, _ = nodes[1].carry(origin=0)  # node 1 has only the old one
    with pytest.raises(CodecError, match="not newer") as caught:
        nodes[2].take(again)
    assert (caught.value.reason, caught.value.node) == ("stale", 1)  # the carrier is told
    held = nodes[2].mailbox.payload.copy()

    def cover(inner, sequence):
        made = Carried(7, 1, sequence, 9, np.zeros(3, int), inner=inner, size=5)
        return encode(made, keys[1].sign)

    forged = codec.encode(Message(7, 0, 99, 9, np.ones(5)), keys[1].sign)
    damaged = nodes[0].letters[0][:-1] + b"\x7f"
    for number, (inner, why) in enumerate([(forged, "signature"), (damaged, "digest")]):
        with pytest.raises(CodecError) as caught:
            nodes[2].take(cover(inner, 50 + number))
        assert caught.value.reason == why
    np.testing.assert_array_equal(nodes[2].mailbox.payload, held)
    assert not nodes[2].receive(first)  # its cover is an old one
    assert nodes[2].receive(nodes[0].letters[0]) is False  # and a bare copy has none


@pytest.mark.parametrize("message", ["sum", "forward"])
def test_a_node_that_begins_again_from_its_save_goes_on_as_if_nothing_had_been(quadratics, message):
    """Sum, stamps, own past and the others' signed copies are in the state."""
    problem = quadratics(nodes=3, dim=5, heterogeneity=1.0)
    nodes = make_nodes(problem, METHOD, message)

    for _ in range(4):
        exchange(nodes)
    twin = make_nodes(problem, METHOD, message)[1]
    restore(twin, pack(nodes[1]))
    np.testing.assert_array_equal(twin.stamps(), nodes[1].stamps())
    assert twin.carry(origin=2)[0] == nodes[1].carry(origin=2)[0]

    nodes[1] = twin
    exchange(nodes)

    again = make_nodes(problem, METHOD, message)
    for _ in range(5):
        exchange(again)
    for one, two in zip(nodes, again, strict=True):
        np.testing.assert_array_equal(one.params(), two.params())
        np.testing.assert_array_equal(slots_of(one.stamps()), slots_of(two.stamps()))


def test_a_copy_of_an_earlier_life_is_older_than_any_of_the_next(quadratics):
    problem = quadratics(nodes=3, dim=4)
    node = ForwardNode(0, problem.of_node(0), METHOD, np.full(3, 1 / 3))
    node.sequence, node.slot = (
        2 << 32,
        3,
    )  # it began anew, and the others hold slot 11 of its life 1
    node.rows[1] = [(1 << 32) + 11, 0, (2 << 32) + 5]
    node.rows[2] = [(2 << 32) + 2, (1 << 32) + 7, 0]

    known = node.slots_known()

    assert known[:, 0].tolist() == [3, 0, 2]
    assert known[1, 2] == 5  # ours is none: theirs counts as it is
    assert known[2, 1] == 7
