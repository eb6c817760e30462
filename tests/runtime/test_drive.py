"""Nodes in one process, joined by the twin: life, save, journal, rounds and the replay of what they did."""

import asyncio
import contextlib
import io
import json
import os
import threading
import time
import urllib.request
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from folkman import async_sharing, dpsgd, fedavg, ideal, load, make_problem, sgp, simulate
from folkman.algorithm.dfedavgm import dfedavgm
from folkman.config.comparison import CHOICES
from folkman.config.own_faults import told
from folkman.engine.presence import Asleep
from folkman.radio import trace
from folkman.radio.replay import replay, replay_rounds, replay_star
from folkman.runtime import durable, identity, journal
from folkman.runtime import state as saved
from folkman.runtime.codec import SERVER, Message, encode, sequence_of
from folkman.runtime.control import Ack
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.rounds import InRounds, Serving
from folkman.runtime.core.settings import DISK, DIVERGED, FAULT, Settings
from folkman.runtime.drive import Drive, Home
from folkman.runtime.exposition import exposition
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Node, Wire
from folkman.runtime.server_node import ServerNode
from folkman.runtime.telemetry import MOST_UNREAD, Logger, MetricsServer
from folkman.runtime.transport import Local, LocalExchange
from folkman.runtime.ways import way_of

NODES, RUN = 3, 11


@pytest.fixture(scope="module")
def problem():
    return make_problem(load("digits", train_size=120), "softmax", NODES, batch=8)


QUICK = Settings(keep_every_s=0.1, linger_s=20.0, save_every_s=0.05, retry_s=0.5, start_wait_s=20.0)


def build(problem, algorithm, folder, exchange, steps, number, log=None, security=None, **more):
    """Return a node and all around it; `log` is where it says what it does."""
    shares = np.asarray(problem.share)
    home = folder / f"node-{number}"
    home.mkdir(parents=True, exist_ok=True)
    members, sign = security or (None, None)
    wire = Wire(RUN, sign, Checks(members.verify if members else None))
    if number == SERVER:
        node = ServerNode(problem.initial, algorithm, shares, seed=1, wire=wire)
        pace, steps = Serving(), None
    else:
        node = Node(number, problem.of_node(number), algorithm, shares, seed=1, wire=wire)
        pace = node.way.pace()
    settings = QUICK._replace(steps=steps, **more)
    logger = Logger(str(number), insecure=members is None, stream=log or io.StringIO())
    core = Core(node, settings, pace, verify=members.verify if members else None)
    transport = Local(number, node.neighbours, exchange)
    return Drive(core, transport, Home(home, "test"), logger, members=members)


def live(problem, algorithm, folder, steps, numbers=None, log=None):
    """Run nodes to their ends; return their codes and what they were."""
    exchange = LocalExchange()
    numbers = numbers or [*range(NODES), *way_of(algorithm).servers()]
    made = {
        number: build(problem, algorithm, folder, exchange, steps, number, log)
        for number in numbers
    }
    codes = {}

    def one(number, drive):
        codes[number] = drive.run()

    threads = [threading.Thread(target=one, args=each, daemon=True) for each in made.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return codes, {number: drive.core for number, drive in made.items()}


def retold(algorithm, folder, numbers):
    logs = {number: journal.read(folder / f"node-{number}" / "timeline.bin") for number in numbers}
    return way_of(algorithm).causal(logs, NODES, paced=False)


@pytest.mark.process
@pytest.mark.parametrize(
    ("algorithm", "network"),
    [
        pytest.param(async_sharing(0.1), replay, id="async_sharing"),
        pytest.param(dpsgd(0.1, topology="complete"), replay_rounds, id="dpsgd"),
        pytest.param(
            dfedavgm(0.05, local_steps=2, topology="complete"), replay_rounds, id="dfedavgm"
        ),
        pytest.param(sgp(0.1, topology="directed_ring"), replay_rounds, id="sgp, directed"),
        pytest.param(
            sgp(0.1, topology="one_peer_exponential"), replay_rounds, id="sgp, one peer a round"
        ),
        pytest.param(
            dpsgd(0.1, topology="matching"), replay_rounds, id="dpsgd, pairs and one rests"
        ),
        pytest.param(fedavg(0.1, local_steps=2), replay_star, id="fedavg"),
    ],
)
def test_what_nodes_did_replayed_by_the_simulator_ends_in_their_parameters(
    problem, tmp_path, algorithm, network
):
    codes, cores = live(problem, algorithm, tmp_path, steps=12)
    told = retold(algorithm, tmp_path, cores)

    run = simulate(
        problem,
        network(told.timeline),
        algorithm,
        slots=len(told.awake),
        seed=1,
        faults=Asleep(told.awake),
    )

    assert set(codes.values()) == {0}
    for number, core in cores.items():
        expected = run.model if number == SERVER else run.nodes[number]
        np.testing.assert_allclose(
            core.node.params(), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max()
        )
        if number != SERVER:
            assert core.node.steps == 12
    assert told.timeline.finished.sum() == 12 * NODES


@pytest.mark.process
def test_a_node_restarted_goes_on_where_it_was_and_is_heard(problem, tmp_path):
    algorithm = async_sharing(0.1)
    live(problem, algorithm, tmp_path, steps=5)
    before = saved.read_arrays(tmp_path / "node-1" / "state.safetensors")
    codes, cores = live(problem, algorithm, tmp_path, steps=9)

    assert int(before["counters"][1]) == 5
    assert set(codes.values()) == {0}
    assert [core.node.steps for core in cores.values()] == [9] * NODES
    assert cores[1].life.number == 2
    assert (
        cores[0].node.mailbox.sequence[1] >> 32 == 2
    )  # of the second life, though its count began anew
    told = retold(algorithm, tmp_path, cores)  # nothing was lost, so both lives are one timeline
    assert isinstance(told.timeline, trace.PeerTimeline)
    run = simulate(
        problem,
        replay(told.timeline),
        algorithm,
        slots=len(told.awake),
        seed=1,
        faults=Asleep(told.awake),
    )
    np.testing.assert_allclose(cores[2].node.params(), run.nodes[2], rtol=1e-5, atol=1e-6)


@pytest.mark.process
def test_in_rounds_the_last_two_messages_are_sent_again_after_a_restart(problem, tmp_path):
    """Ended, and asked for one more round: a neighbour that missed one still gets it, and nobody waits for good."""
    algorithm = dpsgd(0.1, topology="complete")
    live(problem, algorithm, tmp_path, steps=4)
    kept = saved.read_arrays(tmp_path / "node-1" / "state.safetensors")["sent"].tobytes()
    drive = build(problem, algorithm, tmp_path, LocalExchange(), 5, 1)
    pushed = watch_pushes(drive)

    run_until(drive, lambda: len(pushed) >= 6)

    assert [peer for peer, *_ in pushed[:6]] == [0, 2, 0, 2, 0, 2]
    assert pushed[2][2] == kept
    assert pushed[0][1] == pushed[2][1] - 1
    assert pushed[4][1] == pushed[2][1] + 1


def watch_pushes(drive, note=lambda: None):
    """Return a list that what a node sends, and must arrive, is noted in, with what `note` says."""
    pushed = []

    def push(peer, sequence, data, now_s):
        del now_s
        pushed.append((peer, sequence, data, note()))

    drive.core.sending.outbox.push = push
    return pushed


def run_until(drive, happened):
    """Run a node in a thread until something has happened, and stop it."""
    thread = threading.Thread(target=drive.run, daemon=True)
    thread.start()
    end_s = time.monotonic() + 60
    while not happened() and time.monotonic() < end_s:
        time.sleep(0.02)
    drive.ask("seen")
    thread.join(30)
    assert not thread.is_alive()


def test_on_a_directed_graph_nobody_runs_ahead_of_who_hears_it(problem, tmp_path):
    """A message of the next round is acknowledged when that begins, and a round ends when it was."""
    algorithm = sgp(0.1, topology="directed_ring")  # 0 -> 1 -> 2 -> 0
    core = build(problem, algorithm, tmp_path, LocalExchange(), 4, 1).core
    node, said = core.node, []
    assert isinstance(node, Node)
    core.hands.tell = lambda peer, body: said.append((peer, body))
    mass = np.ones(problem.dim + 1, np.float32)

    def of_node_0(number, round_):
        core.hearing.take(0, encode(Message(RUN, 0, number, 1, mass, round_)), 0.0)

    of_node_0(2, 2)
    of_node_0(2, 2)  # again, as nothing was acknowledged
    assert said == []
    of_node_0(1, 1)
    assert said == [(0, Ack(1))]
    of_node_0(3, 1)  # of a sender that began anew
    assert said.pop() == (0, Ack(3))
    assert node.wake()
    assert node.complete()
    assert node.neighbours == [0, 2]
    assert node.receivers() == [2]
    data = node.send()
    core.sending.push(2, sequence_of(data), data, 0.0)
    assert not InRounds.may_end(core)
    core.sending.acknowledged(2, 1, 0.1)
    assert InRounds.may_end(core)
    node.wake()
    core.hearing.acknowledge_begun()
    assert said[-1] == (0, Ack(2))
    assert node.mailbox.round == 2


@pytest.mark.process
def test_rounds_on_a_directed_graph_go_on_after_a_restart(problem, tmp_path):
    algorithm = sgp(0.1, topology="directed_ring")
    live(problem, algorithm, tmp_path, steps=3)

    codes, cores = live(problem, algorithm, tmp_path, steps=6)

    assert set(codes.values()) == {0}
    assert [core.node.steps for core in cores.values()] == [6] * NODES
    run = simulate(problem, ideal(), algorithm, slots=6, seed=1)
    ends = np.stack([core.node.params() for core in cores.values()])
    np.testing.assert_allclose(ends, run.nodes, rtol=1e-5, atol=1e-5 * np.abs(run.nodes).max())


def test_a_result_that_the_disk_does_not_take_is_told_by_the_exit_code(
    problem, tmp_path, monkeypatch
):
    """The disk fills before the end: the node ends all the same, its neighbours are not kept waiting."""

    def refuse(disk, arrays, fingerprint):
        raise OSError(28, "No space left on device", str(disk.folder))

    quick = {"start_wait_s": 0.1, "linger_s": 0.1}
    drive = build(problem, async_sharing(0.1), tmp_path, LocalExchange(), 3, 0, **quick)
    monkeypatch.setattr(durable, "save_state", refuse)
    monkeypatch.setattr(durable, "save_final", refuse)

    assert drive.run() == DISK
    assert drive.core.state == "done"
    assert not (tmp_path / "node-0" / "final.safetensors").exists()


@pytest.mark.process
def test_in_rounds_nothing_is_sent_before_it_is_saved(problem, tmp_path, monkeypatch):
    algorithm, write, failed = dpsgd(0.1, topology="complete"), durable.save_state, []
    drive = build(problem, algorithm, tmp_path, LocalExchange(), 4, 0, start_wait_s=0.1)
    pushed = watch_pushes(drive, lambda: len(failed))

    def now_and_then(disk, arrays, fingerprint):
        if len(failed) < 2:
            failed.append(disk)
            assert not pushed
            raise OSError(28, "No space left on device", str(disk.folder))
        write(disk, arrays, fingerprint)

    monkeypatch.setattr(durable, "save_state", now_and_then)
    run_until(drive, lambda: pushed)

    assert {saves for *_, saves in pushed} == {2}  # both refusals came before the first message
    assert drive.core.hands.counts["saves_failed"] == 2


def test_a_note_of_lives_that_was_lost_is_made_up_from_the_state(problem, tmp_path):
    core = build(problem, async_sharing(0.1), tmp_path, LocalExchange(), 3, 0).core
    core.node.sequence = 2 << 32
    kept = saved.pack(core.node)

    effects = core.step(0.0, events.Start(kept, 0))

    assert [each.life for each in effects if isinstance(each, events.Save)] == [3]


@pytest.mark.process
def test_a_life_that_was_lost_cannot_be_told_as_one_timeline(problem, tmp_path):
    algorithm = async_sharing(0.1)
    live(problem, algorithm, tmp_path, steps=4)
    for kept in (tmp_path / "node-1").glob("state*.safetensors"):
        kept.unlink()
    live(problem, algorithm, tmp_path, steps=6)

    with pytest.raises(ValueError, match="node 1 began again in slot 0 after it had lived 4"):
        retold(algorithm, tmp_path, range(NODES))


class Thief:
    """A member gone bad on the exchange: throws what it hears back, as itself and as others, and garbage."""

    def __init__(self, number, exchange, victim, sign):
        self.carrier, self.victim, self.sign, self.heard = (
            Local(number, [victim], exchange),
            victim,
            sign,
            [],
        )
        asyncio.run(self.carrier.open(self))

    def received(self, peer, data):
        del peer
        self.heard.append(data)

    def told(self, peer, data):
        """Repeat control messages under our own link."""
        del peer
        self.carrier.tell(self.victim, data)

    def linked(self, peer, up):
        """Not care."""

    def refused(self, reason, text):
        """Not care."""

    def attack(self, dim):
        rng = np.random.default_rng(0)
        wild = [np.full(dim, np.nan, np.float32), np.full(dim, 1e9, np.float32)]
        nothing = np.zeros(dim, np.float32)
        forged = [
            encode(Message(RUN, 1, 2**60, 0, nothing), self.sign),
            encode(Message(RUN, 2, 2**60, 0, nothing)),
        ]
        poison = [
            encode(Message(RUN, 2, 2**50 + k, 0, each), self.sign) for k, each in enumerate(wild)
        ]
        for data in [*self.heard[:1], *forged, *poison, rng.bytes(1000), b"", *self.heard[-1:]]:
            self.carrier.publish(self.victim, data)
            time.sleep(0.05)
        self.carrier.tell(self.victim, rng.bytes(100))


@pytest.mark.process
def test_a_member_gone_bad_is_refused_logged_and_learning_unharmed(problem, tmp_path):
    identity.init(tmp_path / "certs")
    for number in range(NODES):
        identity.issue(tmp_path / "certs", number)
    members = identity.Members(tmp_path / "certs" / "members.json", tmp_path / "certs" / "ca.crt")
    exchange, logs = LocalExchange(), io.StringIO()
    security = members, identity.Identity(tmp_path / "certs", 0).sign
    quick = {"start_wait_s": 0.0, "slot_s": 0.02}
    drive = build(problem, async_sharing(0.1), tmp_path, exchange, None, 0, logs, security, **quick)
    node = drive.core.node
    thief = Thief(2, exchange, 0, identity.Identity(tmp_path / "certs", 2).sign)
    living = threading.Thread(target=drive.run)
    living.start()
    end_s = time.monotonic() + 60
    while node.steps < 5 and time.monotonic() < end_s:
        time.sleep(0.05)
    held = node.mailbox.payload.copy()
    thief.attack(problem.dim)
    steps = node.steps
    while node.steps < steps + 5 and time.monotonic() < end_s:
        time.sleep(0.05)
    drive.ask("enough")
    living.join(30)
    asyncio.run(thief.carrier.close())

    found = set(node.mailbox.refused)
    assert {
        "sender",
        "signature",
        "finite",
        "absurd",
        "length",
    } <= found  # node 1's number, no signature, ...
    assert {"control_signature", "control_sender", "control_control"} & found
    np.testing.assert_array_equal(node.mailbox.payload, held)
    assert node.steps >= steps + 5
    assert drive.core.code == 0
    logged = {
        line.get("reason")
        for line in map(json.loads, logs.getvalue().splitlines())
        if line["event"] == "refused"
    }
    assert {"sender", "signature", "finite", "absurd", "length"} <= logged


def test_a_node_alone_learns_and_ends(problem, tmp_path):
    exchange = LocalExchange()
    quick = {"start_wait_s": 0.1, "linger_s": 0.1}
    drive = build(problem, async_sharing(0.1), tmp_path, exchange, 6, 0, **quick)

    assert drive.run() == 0
    assert drive.core.node.steps == 6
    health = json.loads((tmp_path / "node-0" / "health.json").read_text())
    assert (health["state"], health["steps"], health["saved_steps"]) == ("done", 6, 6)


def test_a_node_that_diverges_ends_with_its_last_good_state(problem, tmp_path):
    exchange = LocalExchange()
    quick = {"start_wait_s": 0.0, "linger_s": 0.0}
    drive = build(problem, async_sharing(1e38), tmp_path, exchange, 50, 0, **quick)

    assert drive.run() == DIVERGED
    state = tmp_path / "node-0" / "state.safetensors"
    assert not state.exists() or np.isfinite(saved.read_arrays(state)["params"]).all()


def test_a_node_whose_own_code_fails_logs_the_line_and_no_traceback(problem, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\nimport folkman as fm\n\ndef mine():\n"
        "    def update(state, inbox, loss, grad, key):\n"
        "        return state.nothing\n\n"
        "    return replace(fm.async_sharing(0.1), update=update)\n"
    )
    algorithm = CHOICES["algorithm"].build({"name": f"{file}:mine"})
    log = io.StringIO()
    quick = {"start_wait_s": 0.0, "linger_s": 0.0}
    drive = build(problem, algorithm, tmp_path, LocalExchange(), 3, 0, log, **quick)
    with pytest.raises(AttributeError) as early:  # before its start: the command tells it
        drive.run()
    drive.core.node.warm = lambda: None  # as if it showed in a later slot

    code = drive.run()

    assert "line 6, `return state" in (told(early.value) or "")
    drive.logger.flush(1.0)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (fault,) = [line["text"] for line in lines if line["event"] == "fault"]
    assert code == FAULT
    assert fault.startswith(
        f"'mine.py:mine' raised AttributeError at {file}, line 6, `return state"
    )
    assert "Traceback" not in fault
    assert "a fault of own code" in log.getvalue()


def test_a_state_of_another_run_is_refused(problem, tmp_path):
    drive = build(problem, async_sharing(0.1), tmp_path, LocalExchange(), 3, 0)
    arrays = saved.pack(drive.core.node)
    state = tmp_path / "node-0" / "state.safetensors"
    state.write_bytes(durable.state_bytes(arrays, "another"))
    with pytest.raises(ValueError, match="belongs to another run"):
        drive.run()


def test_a_node_whose_states_are_all_damaged_says_so_and_begins_anew(problem, tmp_path):
    drive = build(problem, async_sharing(0.1), tmp_path, LocalExchange(), 3, 0)
    (tmp_path / "node-0" / "state.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0garbage")

    start = drive._read()

    assert start.state is None
    assert start.warnings[-1] == "no saved state can be read; the node begins anew"


def test_a_saved_node_is_the_same_node(problem, tmp_path):
    algorithm = dpsgd(0.1, topology="complete")
    nodes = [
        Node(i, problem.of_node(i), algorithm, np.asarray(problem.share), seed=1)
        for i in range(NODES)
    ]
    for node in nodes:
        node.wake()
    nodes[0].receive(nodes[1].send())
    (tmp_path / "state").write_bytes(durable.state_bytes(saved.pack(nodes[0]), "x"))
    again = Node(0, problem.of_node(0), algorithm, np.asarray(problem.share), seed=1)
    saved.restore(again, saved.read_arrays(tmp_path / "state", "x"))

    for node in (nodes[0], again):
        assert node.receive(nodes[2].send()) or node is again  # the second copy has a later number
        node.wake()

    np.testing.assert_array_equal(nodes[0].params(), again.params())
    assert nodes[0].send() == again.send()


def test_every_line_of_an_insecure_node_says_so_and_repeats_are_counted():
    log = io.StringIO()
    logger = Logger("node-0", insecure=True, stream=log)
    for _ in range(5):
        logger.say("refused", reason="digest")
    logger.say("end")

    lines = [json.loads(line) for line in log.getvalue().splitlines()]

    assert [line["event"] for line in lines] == ["refused", "end"]
    assert all(line["security"].startswith("NONE") for line in lines)


@pytest.fixture
def full_pipe():
    """A pipe that takes no more: its end to read, its end to write as a text file."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    os.set_blocking(writer, True)
    with contextlib.suppress(BrokenPipeError), open(writer, "w") as text:
        yield reader, text
        os.close(reader)  # whoever waits to write is let go


def within(seconds, work):
    """Do something in a thread; fail if it takes longer."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"not within {seconds} s"


def read_now(reader):
    return [line for line in os.read(reader, 1 << 20).decode().splitlines() if line]


def test_a_log_that_nobody_reads_makes_nobody_wait_and_comes_whole_when_it_is_read(full_pipe):
    reader, text = full_pipe
    logger = Logger("node-0", insecure=False, stream=text)
    long = "x" * 100_000  # more than the pipe holds

    within(20, lambda: [logger.say("link", number=k) for k in range(MOST_UNREAD + 3)])
    unread = read_now(reader)
    logger.flush()
    kept = [json.loads(line) for line in read_now(reader)]
    while logger.flush() or len(kept) < MOST_UNREAD:
        kept += [json.loads(line) for line in read_now(reader)]
    within(20, lambda: logger.say("fault", text=long))
    parts = []
    while not parts or not parts[-1].endswith("\n"):
        parts.append(os.read(reader, 1 << 20).decode())
        logger.flush()

    assert unread == []
    assert [line["number"] for line in kept] == list(range(MOST_UNREAD))
    assert json.loads("".join(parts))["text"] == long
    assert json.loads("".join(parts))["unread"] == 3


def test_the_last_lines_wait_a_moment_for_their_reader(full_pipe):
    reader, text = full_pipe
    logger = Logger("node-0", insecure=False, stream=text)
    within(20, lambda: logger.say("end"))

    late = threading.Timer(0.05, lambda: os.read(reader, 1 << 20))
    late.start()
    within(20, lambda: logger.flush(10.0))
    late.join()

    assert [json.loads(line)["event"] for line in read_now(reader)] == ["end"]


@pytest.mark.process
def test_nodes_whose_log_nobody_reads_learn_and_hear_to_their_end(problem, tmp_path, full_pipe):
    codes, cores = live(problem, async_sharing(0.1), tmp_path, steps=12, log=full_pipe[1])

    assert set(codes.values()) == {0}
    for core in cores.values():
        assert core.node.steps == 12
        assert core.hands.counts["taken"] > 0


def test_what_the_loop_itself_brings_wakes_no_loop(tmp_path):
    called = []
    loop: Any = SimpleNamespace(
        call_soon=lambda _: called.append("soon"),
        call_soon_threadsafe=lambda _: called.append("woken"),
    )
    nothing: Any = None
    for own in (True, False):
        drive = Drive(nothing, nothing, Home(tmp_path, ""), nothing)
        drive._loop, drive._thread = loop, threading.get_ident()
        if own:
            drive.told(1, b"word")
        else:
            other = threading.Thread(target=drive.told, args=(1, b"word"))
            other.start()
            other.join()
    assert called == ["soon", "woken"]


def test_metrics_and_health_are_served():
    facts = {
        "state": "learning",
        "ok": True,
        "steps": 3,
        "refused": {"digest": 2},
        "insecure": False,
        "linked": ["node-1"],
    }
    server = MetricsServer(("127.0.0.1", 0), lambda: facts)
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.port}/metrics", timeout=10
        ) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=10) as answer:
            health = json.load(answer)
    finally:
        server.close()

    assert text == exposition(facts)[1]
    assert "folkman_steps_total 3\n" in text
    assert 'folkman_refused_messages_total{reason="digest"} 2\n' in text
    assert health == facts
