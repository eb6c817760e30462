"""Error feedback between devices: whatever is lost and whoever begins anew, a receiver holds what
its sender believes it holds, bit for bit."""

import io
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from folkman import (
    Compressed,
    async_sharing,
    dfedavgm,
    dpsgd,
    fedavg,
    ideal,
    make_problem,
    simulate,
)
from folkman.packing import Packing, int8, qsgd, rand_k, sign, top_k
from folkman.packing.packing import bits_of
from folkman.problem import data
from folkman.runtime import codec
from folkman.runtime import state as saved
from folkman.runtime.cluster import make_cluster
from folkman.runtime.codec import Base, CodecError, Message, base_of, decode, encode, encode_packed
from folkman.runtime.core import events as happened
from folkman.runtime.core.core import Core
from folkman.runtime.core.own_beat import OwnBeat
from folkman.runtime.core.settings import Settings
from folkman.runtime.drive import Drive, Home
from folkman.runtime.emulation import Emulation
from folkman.runtime.node import Node, Wire
from folkman.runtime.server_node import ServerNode
from folkman.runtime.telemetry import Logger
from folkman.runtime.transport import Local, LocalExchange
from folkman.runtime.ways import way_of
from runtime.hosts import task

RUN, NODES, DIM = 5, 3, 6
LARGEST = top_k(0.3, feedback=True)
HEAD = codec.HEADER_BYTES + 8 + 12  # of a change: the header, its base, the head of what is packed


@pytest.fixture(scope="module")
def problem():
    samples = data.quadratic(nodes=NODES, dim=DIM, heterogeneity=1.0)
    assert samples.group is not None
    parts = [np.flatnonzero(samples.group == node) for node in range(NODES)]
    return make_problem(samples, "quadratic", parts)


class Noted(Node):
    """A node that notes what its receivers are to hold after each message."""

    told: dict[int, np.ndarray]

    def _written(self, message, key):
        found = super()._written(message, key)
        self.told[message.sequence] = self.memories[0].kept.copy()
        return found


def node_of(problem, algorithm, number, packing: Packing = LARGEST):
    shares, wire = np.asarray(problem.share), Wire(RUN, packing=packing)
    node = Noted(number, problem.of_node(number), algorithm, shares, seed=1, wire=wire)
    node.told = {0: np.asarray(problem.initial)}
    return node


def agrees(receiver, sender):
    """Tell whether a receiver holds what the sender believes of the message that it has."""
    box = receiver.mailbox
    return np.array_equal(box.payload[sender.index], sender.told[int(box.sequence[sender.index])])


@pytest.mark.parametrize(
    "packing",
    [
        LARGEST,
        sign(feedback=True),
        int8(feedback=True),
        qsgd(3, feedback=True),
        rand_k(0.5, feedback=True),
    ],
    ids=lambda each: each.name,
)
def test_changes_cost_their_price_and_add_up_to_the_same_bits_on_both_sides(problem, packing):
    sender, receiver = (node_of(problem, async_sharing(0.1), i, packing) for i in (0, 1))
    on = 0
    for _ in range(4):
        sender.wake()
        message = sender.send()
        assert len(message) - HEAD == ceil(bits_of(packing, DIM) / 8)
        assert base_of(message) == on
        assert receiver.receive(message)
        assert agrees(receiver, sender)
        on = sender.sequence
    assert len(sender.told) == 5


def test_who_missed_a_message_refuses_the_next_and_takes_the_whole_one(problem):
    sender, receiver = (node_of(problem, async_sharing(0.1), i) for i in (0, 1))
    messages = []
    for _ in range(3):
        sender.wake()
        messages.append(sender.send())

    assert receiver.receive(messages[0])
    with pytest.raises(CodecError, match="message 3 of node 0 builds on 2, held is 1"):
        receiver.take(messages[2])
    assert agrees(receiver, sender)
    assert receiver.receive(sender.whole())
    assert receiver.mailbox.held_of(0) == 3
    assert agrees(receiver, sender)
    sender.wake()
    assert receiver.receive(sender.send())
    assert agrees(receiver, sender)
    assert receiver.mailbox.refused == {"base": 1}


def test_differences_build_on_nothing_and_none_of_them_is_lost(problem):
    """What was sent and what is remembered is the sum of all that was to be sent."""
    algorithm = dfedavgm(0.1, local_steps=1, exchange="differences", topology="complete")
    node = node_of(problem, algorithm, 0)
    sent, wanted = np.zeros(DIM, np.float32), np.zeros(DIM, np.float32)
    for _ in range(5):
        node.wake()
        wanted += np.asarray(algorithm.message(node.state))
        message = node.send()
        assert base_of(message) is None
        sent += decode(message, RUN, DIM).params

    assert np.abs(node.memories[0].kept).max() > 1e-3
    np.testing.assert_allclose(sent + node.memories[0].kept, wanted, rtol=1e-5, atol=1e-6)


def changed(values, *, on=0, sequence=1, node=1):
    """Return a change of one entry, the largest."""
    message = Message(RUN, node, sequence, 0, np.zeros(DIM, np.float32), base=Base(on, DIM))
    packing, key = top_k(0.1), saved.jax.random.key(0)
    body = codec.wire.write(packing, np.asarray(values, np.float32), DIM, key)
    return encode_packed(message, "top_k", body)


def test_a_change_that_cannot_be_is_refused(problem):
    receiver = node_of(problem, async_sharing(0.1), 0)
    receiver.mailbox.guard = None  # how far a message is away is another's test
    before = receiver.mailbox.payload.copy()
    large = np.full(DIM, 9e5)

    assert not receiver.receive(changed(large, on=1, sequence=1))  # on itself
    assert not receiver.receive(changed(large, on=7, sequence=8))  # on what nobody sent
    cut = changed(large)[: codec.HEADER_BYTES + 4]
    assert not receiver.receive(cut)
    damaged = bytearray(changed(large))
    damaged[codec.HEADER_BYTES] ^= 1  # the number that it builds on is under the digest
    assert not receiver.receive(bytes(damaged))
    np.testing.assert_array_equal(receiver.mailbox.payload, before)
    assert receiver.receive(changed(large))
    held = receiver.mailbox.payload.copy()
    assert not receiver.receive(changed(large, on=1, sequence=2))  # together beyond the limit
    np.testing.assert_array_equal(receiver.mailbox.payload, held)

    counted = {"range": 1, "base": 1, "length": 1, "digest": 1, "absurd": 1}
    assert receiver.mailbox.refused == counted


def test_a_server_goes_on_without_a_node_whose_change_it_had_to_refuse(problem):
    """And takes it in again by a whole message."""
    shares, wire = np.asarray(problem.share), Wire(RUN, packing=LARGEST)
    server = ServerNode(problem.initial, fedavg(0.1), shares, wire=wire)
    large = np.full(DIM, 9e5)
    ones = np.ones(DIM, np.float32)

    assert server.receive(changed(large, node=0))
    assert not server.receive(changed(large, on=1, sequence=2, node=0))  # absurd
    assert server.mailbox.heard[0]
    server.mailbox.heard[:] = False
    assert not server.receive(changed(ones, on=2, sequence=3, node=0))
    assert server.mailbox.heard[0]
    assert not server.mailbox.finite[0]
    assert server.receive(encode(Message(RUN, 0, 4, 0, ones)))
    assert server.receive(changed(ones, on=4, sequence=5, node=0))
    assert server.mailbox.finite[0]
    np.testing.assert_array_equal(server.mailbox.payload[0], ones + np.eye(DIM)[0])


def test_a_server_that_begins_again_repeats_its_answers_byte_for_byte(problem):
    """Each node has its own memory: who was left out once gets other bytes."""
    shares, wire = np.asarray(problem.share), Wire(RUN, packing=LARGEST)
    algorithm = fedavg(0.1)
    nodes = [node_of(problem, algorithm, i) for i in range(NODES)]
    server, again = (ServerNode(problem.initial, algorithm, shares, wire=wire) for _ in range(2))
    for node in nodes:
        node.wake()
        assert server.receive(node.send())
    assert server.wake()
    first, *_ = server.answers([0, 1])
    assert first[0] == first[1]
    saved.restore(again, saved.pack(server))

    answers = server.answers([0, 1, 2])[0]

    assert answers[0] == answers[1] != answers[2]
    assert [base_of(answers[i]) for i in range(NODES)] == [1, 1, 0]
    assert again.answers([0, 1, 2])[0] == answers
    for i in (0, 1):
        assert nodes[i].receive(first[i])
    for i, node in enumerate(nodes):
        assert node.receive(answers[i])
        np.testing.assert_array_equal(node.mailbox.payload[0], server.memories[i].kept)


def test_in_rounds_a_sender_that_begins_again_repeats_itself_byte_for_byte(problem):
    algorithm = dpsgd(0.1, topology="complete")
    node, again = (node_of(problem, algorithm, 0) for _ in range(2))
    node.wake()
    node.send()
    saved.restore(again, saved.pack(node))

    assert again.send() == node.send()
    np.testing.assert_array_equal(again.memories[0].kept, node.memories[0].kept)


def test_the_state_of_a_node_without_memory_is_refused_by_one_with(problem):
    plain = node_of(problem, async_sharing(0.1), 0, top_k(0.3))

    with pytest.raises(ValueError, match=r"'memory\.kept' should be float32\[1, 6\].* has none"):
        saved.restore(node_of(problem, async_sharing(0.1), 0), saved.pack(plain))


def test_the_emulated_air_between_peers_leaves_messages_out_and_is_refused(problem):
    del problem
    way = way_of(async_sharing(0.1))
    options = {"seed": 0, "message_bits": 8}

    assert isinstance(way.air(ideal(), NODES, 0, **options)[0], Emulation)
    with pytest.raises(ValueError, match="use radio = 'measured', or leave feedback out"):
        way.air(Compressed(ideal(), LARGEST), NODES, 0, **options)
    rounds = way_of(dpsgd(0.1, topology="complete"))
    rounds.check_memory(LARGEST, emulated=True)


def test_a_cluster_that_could_not_run_is_refused_before_it_is_made(tmp_path):
    table = {"name": "top_k", "fraction": 0.1, "feedback": True}

    with pytest.raises(ValueError, match="use radio = 'measured', or leave feedback out"):
        make_cluster(tmp_path / "cluster", task(nodes=2, compression=table), {"radio": "emulated"})
    assert not (tmp_path / "cluster").exists()


class Still(OwnBeat):
    """A pace that does nothing by itself."""

    def act(self, core, now_s):
        """Do nothing."""

    def next_s(self, core, now_s):
        del core, now_s
        return float("inf")


class Pair:
    """Two cores driven by hand, 0 sends to 1; either can be killed and begin again.

    Of parameters the newest waits to be carried, of control everything, in order.
    """

    def __init__(self, problem):
        self.problem, self.cores = problem, {}
        self.disks: dict[int, Any] = {0: (None, 0), 1: (None, 0)}
        self.parameters: dict[int, Any]
        self.told = defaultdict(lambda: {0: np.asarray(problem.initial)})
        self.parameters, self.control = {0: None, 1: None}, {0: [], 1: []}
        for number in (0, 1):
            self.begin(number)

    def begin(self, number):
        """Begin a life from what was saved; what was on its way to it and from it is lost."""
        node = node_of(self.problem, async_sharing(0.1), number)
        node.told = self.told[number]
        core = Core(node, Settings(period_timeout_s=0.0, start_wait_s=0.0), Still())
        self.cores[number] = core
        self.tell(number, happened.Start(*self.disks[number]))
        self.parameters, self.control = {0: None, 1: None}, {0: [], 1: []}
        for each in self.cores:
            self.tell(each, happened.Linked(1 - each))

    def tell(self, number, event):
        """Tell a core what happened, and keep what it sends."""
        for effect in self.cores[number].step(0.0, event):
            if isinstance(effect, happened.Publish):
                self.parameters[number] = effect.data
            elif isinstance(effect, happened.Tell):
                self.control[number].append(effect.data)
            elif isinstance(effect, happened.Save):
                state, life = self.disks[number]
                self.disks[number] = effect.state or state, effect.life or life
                self.tell(number, happened.Saved(effect.ticket))

    def node(self, number):
        return self.cores[number].node

    def save(self, number):
        self.cores[number].saving.start(with_state=True)
        self.tell(number, happened.Tick())

    def talk(self):
        """Carry control until nobody has anything to say."""
        while any(self.control.values()):
            for number in self.cores:
                told, self.control[number] = self.control[number], []
                for message in told:
                    self.tell(1 - number, happened.Told(number, message))

    def send(self):
        self.node(0).wake()
        self.cores[0].sending.broadcast([1], 0.0)
        self.tell(0, happened.Tick())

    def carry(self):
        if self.parameters[0] is not None:
            message, self.parameters[0] = self.parameters[0], None
            self.tell(1, happened.Received(0, message))
        assert agrees(self.node(1), self.node(0))

    def lose(self):
        self.parameters[0] = None

    def exchange(self):
        self.send()
        self.carry()
        self.talk()


EVENTS = {
    "exchange": Pair.exchange,
    "send": Pair.send,
    "carry": Pair.carry,
    "lose": Pair.lose,
    "talk": Pair.talk,
    "save sender": lambda pair: pair.save(0),
    "save receiver": lambda pair: pair.save(1),
    "kill sender": lambda pair: pair.begin(0),
    "kill receiver": lambda pair: pair.begin(1),
}


@settings(max_examples=25, deadline=None)
@given(events=st.lists(st.sampled_from(list(EVENTS)), max_size=30))
@example(events=["exchange", "kill receiver"])  # its next change comes before its new hello
@example(events=["exchange", "save sender", "exchange", "kill sender"])
def test_whatever_is_lost_and_whoever_is_killed_both_sides_agree_and_soon_all_arrives(
    problem, events
):
    pair = Pair(problem)
    for event in events:
        EVENTS[event](pair)
        assert agrees(pair.node(1), pair.node(0))

    pair.send()  # refused, or taken
    pair.carry()
    pair.talk()
    pair.carry()  # the whole one, if it was

    sender, receiver = pair.node(0), pair.node(1)
    assert receiver.mailbox.held_of(0) == sender.sequence
    assert agrees(receiver, sender)


class Lossy(Local):
    """The twin, which loses every third message to a neighbour."""

    def publish(self, peer, data):
        self.counts["published"] += 1
        if self.counts["published"] % 3:
            super().publish(peer, data)


def lived(made):
    """Run nodes to their ends, each in a thread of its own; return the exit codes."""
    with ThreadPoolExecutor(len(made)) as pool:
        return list(pool.map(lambda drive: drive.run(), made))


def drives_of(problem, algorithm, folder, steps, transport):
    """Return all nodes with what is around them."""
    exchange, made = LocalExchange(), []
    how = Settings(steps=steps, slot_s=0.005, period_timeout_s=0.02, retry_s=0.1, keep_every_s=0.1)
    for number in range(NODES):
        home = folder / f"node-{number}"
        home.mkdir(exist_ok=True)
        node = node_of(problem, algorithm, number)
        logger = Logger(str(number), insecure=True, stream=io.StringIO())
        air = transport(number, node.neighbours, exchange)
        core = Core(node, how, node.way.pace())
        made.append(Drive(core, air, Home(home, "test", timeline=False), logger))
    return made


@pytest.mark.process
def test_nodes_that_lose_messages_agree_on_what_they_hold_to_their_end(problem, tmp_path):
    made = drives_of(problem, async_sharing(0.1), tmp_path, 40, Lossy)

    assert lived(made) == [0] * NODES
    nodes = [drive.core.node for drive in made]
    for receiver in nodes:
        for sender in nodes:
            if sender is not receiver:
                assert receiver.mailbox.held_of(sender.index) > 0
                assert agrees(receiver, sender)
    counts = [drive.core.hands.counts for drive in made]
    assert all(each["sent_whole"] > 0 for each in counts)
    assert all(each["taken"] > 0 for each in counts)  # how many arrive in time is the machine's


@pytest.mark.process
def test_rounds_that_were_stopped_and_lose_messages_end_where_the_simulator_does(problem, tmp_path):
    algorithm = dpsgd(0.1, topology="complete")
    run = simulate(problem, Compressed(ideal(), LARGEST), algorithm, slots=6, seed=1)
    for steps, air in ((3, Local), (6, Lossy)):
        made = drives_of(problem, algorithm, tmp_path, steps, air)
        assert lived(made) == [0] * NODES

    ends = np.stack([drive.core.node.params() for drive in made])
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-5, atol=1e-6)
    assert not any(drive.core.node.mailbox.refused.get("base") for drive in made)
    assert not any(drive.core.hands.counts["sent_whole"] for drive in made)


def test_where_nothing_is_lost_nothing_goes_whole_and_a_restart_costs_one(problem):
    pair = Pair(problem)

    def sent():
        for _ in range(4):
            pair.exchange()
        return pair.cores[0].hands.counts["sent_whole"]

    assert sent() == 0
    pair.save(1)
    pair.begin(1)
    pair.talk()
    assert sent() == 1  # to a receiver that began anew
    pair.lose()
    pair.send()
    pair.lose()
    assert sent() == 2  # after a message that was lost
    pair.save(0)
    pair.begin(0)
    pair.send()
    assert base_of(pair.parameters[0]) is None  # of a sender that began anew
    pair.carry()
    pair.talk()
    assert sent() == 0
    assert not pair.node(1).mailbox.refused.get("base")
