"""Nodes that take bytes and give bytes end where the simulator does."""

import numpy as np
import pytest

from folkman import (
    Node,
    Recording,
    ServerNode,
    async_sharing,
    dpsgd,
    fedavg,
    ideal,
    load,
    make_problem,
    pipelined,
    simulate,
    snapshot,
    split,
)
from folkman.algorithm.dfedavgm import dfedavgm
from folkman.algorithm.fedap import fedap
from folkman.runtime.codec import Message, decode, encode, sequence_of
from folkman.runtime.node import Wire

NODES, SLOTS, RUN = 12, 40, 99


@pytest.fixture(scope="module")
def problem():
    samples = load("digits", train_size=600)
    parts = split("dirichlet", samples.y_train, NODES, concentration=5.0, seed=2)
    return make_problem(samples, "softmax", parts, batch=16)


def make_nodes(problem, algorithm, seed):
    shares = np.asarray(problem.share)
    return [
        Node(i, problem.of_node(i), algorithm, shares, run=RUN, seed=seed)
        for i in range(problem.num_nodes)
    ]


@pytest.mark.parametrize("network", [snapshot(4), pipelined(3)], ids=lambda n: n.name)
def test_twelve_nodes_over_bytes_end_with_the_simulators_parameters(problem, network):
    algorithm = async_sharing(0.2)
    run = simulate(
        problem, network, algorithm, slots=SLOTS, seed=4, recording=Recording(timeline=True)
    )
    nodes, held = make_nodes(problem, algorithm, seed=4), run.timeline.held
    wire = {}  # (sender, stamp) -> bytes

    for t in range(SLOTS):
        for rx, tx in np.argwhere(held[t] != held[max(t - 1, 0)]):
            if rx != tx:
                assert nodes[rx].receive(wire[tx, held[t, rx, tx]])
        for node in nodes:
            assert node.wake()
        for tx in np.flatnonzero(run.timeline.sends[t]):
            wire[tx, t + 1] = nodes[tx].send()

    ends = np.stack([node.params() for node in nodes])
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-6, atol=1e-6 * np.abs(run.nodes).max())
    assert not any(node.mailbox.refused for node in nodes)


def live_around(server, nodes, timeline):
    """Let byte-level nodes and their server live a timeline."""
    uploads, answers = {}, {}
    for t in range(SLOTS):
        for i, node in enumerate(nodes):
            assert node.wake() == timeline.finished[t, i]
            if timeline.up_started[t, i]:
                assert node.offers()
                uploads[i] = node.send()
        for i in np.flatnonzero(timeline.up_arrived[t]):
            assert server.receive(uploads[i])
        answers_now = server.wake()
        assert answers_now == timeline.down_started[t].any()
        if answers_now:
            data = server.send()
            answers = answers | dict.fromkeys(np.flatnonzero(timeline.down_started[t]), data)
        for i in np.flatnonzero(timeline.down_arrived[t]):
            assert nodes[i].receive(answers[i])


def test_fedavg_over_bytes_ends_with_the_simulators_model(problem):
    algorithm = fedavg(0.2, local_steps=2)
    run = simulate(
        problem, snapshot(3), algorithm, slots=SLOTS, seed=4, recording=Recording(timeline=True)
    )
    nodes = make_nodes(problem, algorithm, seed=4)
    server = ServerNode(problem.initial, algorithm, np.asarray(problem.share), run=RUN)

    live_around(server, nodes, run.timeline)

    scale = np.abs(run.model).max()
    np.testing.assert_allclose(
        server.server.params(server.state), run.model, rtol=1e-6, atol=1e-6 * scale
    )
    np.testing.assert_allclose(
        np.stack([n.params() for n in nodes]), run.nodes, rtol=1e-6, atol=1e-6 * scale
    )


@pytest.mark.parametrize("seeds", [{}, {"seed": 4}], ids=["unsaid", "said"])
def test_a_server_that_draws_whom_it_asks_draws_as_the_simulator_does(problem, seeds):
    """And where nobody says a run or a seed, all sides mean the same."""
    algorithm = fedap(0.2, m=4, selection="random")
    run = simulate(
        problem, snapshot(2), algorithm, slots=SLOTS, recording=Recording(timeline=True), **seeds
    )
    shares = np.asarray(problem.share)
    nodes = [Node(i, problem.of_node(i), algorithm, shares, **seeds) for i in range(NODES)]
    server = ServerNode(problem.initial, algorithm, shares, **seeds)

    live_around(server, nodes, run.timeline)

    assert server.steps == run.last("rounds") > 3
    np.testing.assert_allclose(server.model(), run.model, rtol=1e-5, atol=1e-6)


def test_both_roles_number_their_messages_from_one_without_a_gap(problem):
    """A receiver holds number 0 of everyone before it hears any."""
    algorithm = fedavg(0.2)
    node, *_ = make_nodes(problem, algorithm, seed=0)
    server = ServerNode(problem.initial, algorithm, np.asarray(problem.share), run=RUN)

    for sender, receiver in ((node, server), (server, node)):
        for number in (1, 2, 3):
            data, sequence, slot = sender.formed()
            assert (sequence, sequence_of(data), slot) == (number, number, 0)
            assert receiver.receive(data)


def test_bad_messages_are_refused_counted_and_survived(problem):
    node, peer, *_ = make_nodes(problem, async_sharing(0.2), seed=0)
    peer.wake()
    good = peer.send()
    damaged = bytearray(good)
    damaged[150] ^= 1

    assert not node.receive(bytes(damaged))
    assert not node.receive(b"")
    assert node.receive(good)
    assert not node.receive(good)  # a replay
    later, latest = peer.send(), peer.send()
    assert node.receive(latest)
    assert not node.receive(later)  # overtaken on its way
    wrong = np.zeros(problem.dim, np.float32)
    assert not node.receive(
        encode(Message(RUN, 0, 1, 0, wrong))
    )  # says it comes from the node itself
    assert not node.receive(encode(Message(RUN, NODES, 1, 0, wrong)))  # nobody has this number
    assert not node.receive(encode(Message(RUN + 1, 2, 1, 0, wrong)))  # of another run
    assert not node.receive(encode(Message(RUN, 2, 1, 0, wrong + np.nan)))

    assert not node.receive(
        encode(Message(RUN, 2, 1, 0, np.full(problem.dim, 1e300)))
    )  # finite only in float64
    assert not node.receive(encode(Message(RUN, 2, 2**64 - 1, 0, wrong)))
    assert not node.receive(encode(Message(RUN, 2, 1, 2**62, wrong)))
    assert node.receive(encode(Message(RUN, 2, 1, 10**6, wrong)))  # a sender that has lived longer

    counted = {"digest": 1, "length": 1, "stale": 2, "sender": 2, "run": 1, "finite": 2, "range": 2}
    assert node.mailbox.refused == counted
    assert np.asarray(node.mailbox.inbox(np.zeros(NODES), 1.0, node.slot).age).min() == 0
    assert node.wake()
    assert np.isfinite(node.params()).all()


def test_a_server_drops_an_upload_that_is_not_finite_and_goes_on(problem):
    algorithm = fedavg(0.2)
    nodes = make_nodes(problem, algorithm, seed=0)
    server = ServerNode(problem.initial, algorithm, np.asarray(problem.share), run=RUN)
    for node in nodes:
        node.wake()
    for node in nodes[1:]:
        assert server.receive(node.send())

    assert not server.receive(
        encode(Message(RUN, 0, 1, 1, np.full(problem.dim, np.nan, np.float32)))
    )
    assert server.wake()

    share = np.asarray(problem.share)[1:]
    kept = np.stack([node.params() for node in nodes[1:]])
    np.testing.assert_allclose(
        server.server.params(server.state), share @ kept / share.sum(), rtol=1e-5, atol=1e-7
    )


def test_a_node_that_hears_nobody_goes_on_learning(problem):
    node = make_nodes(problem, async_sharing(0.2), seed=0)[0]

    for _ in range(5):
        assert node.wake()

    assert node.steps == 5
    assert node.mailbox.inbox(np.zeros(NODES), 1.0, node.slot).age[1] == 5


@pytest.mark.parametrize(
    ("params", "dtype"), [([1.0, -2.5, 6e4], np.float16), ([1.0, -2.5, 7e4], np.float32)]
)
def test_a_model_goes_in_16_bits_if_all_of_it_fits(params, dtype):
    """The largest float16 is 65,504."""
    message = Message(RUN, 1, 1, 0, np.array(params, np.float32))

    sent = decode(Wire(RUN, dtype="float16").encode(message, 3), RUN, 3)

    assert sent.params.dtype == dtype
    assert sent.params.tolist() == params


@pytest.mark.parametrize(("number", "dtype"), [(2048, np.float16), (2049, np.float32)])
def test_a_number_behind_a_model_is_not_rounded(number, dtype):
    """2049 in 16 bits is 2048: a receiver would take a new message for one that it knows."""
    message = Message(RUN, 1, 1, 0, np.array([0.1, 0.2, 0.3, number], np.float32))

    sent = decode(Wire(RUN, dtype="float16").encode(message, 3), RUN, 4)

    assert sent.params.dtype == dtype
    assert sent.params[3] == number


def test_wrong_wiring_is_refused(problem):
    shares = np.asarray(problem.share)
    with pytest.raises(ValueError, match=r"use problem\.of_node\(3\)"):
        Node(3, problem, async_sharing(), shares)
    with pytest.raises(ValueError, match="node 12 is not among the 12 shares"):
        Node(12, problem.of_node(0), async_sharing(), shares)
    with pytest.raises(ValueError, match="async_sharing has no server role"):
        ServerNode(problem.initial, async_sharing(), shares)


@pytest.mark.parametrize(
    "algorithm",
    [dpsgd(0.1, topology="complete"), dfedavgm(0.05, local_steps=3, topology="complete")],
    ids=lambda a: a.name,
)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)], ids=str)
def test_a_round_heard_early_waits_for_the_nodes_own_part(algorithm, order):
    """Whoever is first, all see the same rounds: a node whose neighbours are ahead still finishes its own part."""
    small = make_problem(load("digits", train_size=90), "softmax", 3, batch=8)
    run = simulate(small, ideal(), algorithm, slots=22, seed=4)
    nodes = make_nodes(small, algorithm, seed=4)

    rounds = 0
    while min(node.steps for node in nodes) < run.rows[-1]["gradients"]:
        for i in order:  # each finishes its part before the next one begins, and is heard at once
            while not nodes[i].offers():
                nodes[i].wake()
            data = nodes[i].send()
            assert all(nodes[j].receive(data) for j in order if j != i)
        for node in nodes:
            assert node.complete()
            node.wake()
        rounds += 1
        assert {node.mailbox.round for node in nodes} == {rounds + 1}

    for node, expected in zip(nodes, run.nodes, strict=True):
        np.testing.assert_allclose(
            node.params(), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
        )
