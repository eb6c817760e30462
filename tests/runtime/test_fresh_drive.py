"""Nodes in one process that carry sums and forwards, joined by the twin: emulated, measured, lost and silent."""

import io
import json
import threading
import time

import numpy as np
import pytest

from folkman import async_sharing, load, make_problem, record_timeline, simulate
from folkman.engine.presence import Asleep
from folkman.experiment.replay import age_by_own_counts, mean_age
from folkman.radio.replay import replay
from folkman.radio.shared import shared
from folkman.radio.trace import PeerTimeline
from folkman.runtime import journal
from folkman.runtime.core.core import Core
from folkman.runtime.core.fresh_beat import FreshBeat
from folkman.runtime.core.fresh_slots import FreshSlots
from folkman.runtime.core.settings import Settings
from folkman.runtime.disk import FolderDisk
from folkman.runtime.drive import Drive, Home
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.fresh_node import ForwardNode, SumNode
from folkman.runtime.node import Wire
from folkman.runtime.sum_box import SumBox, SumRules
from folkman.runtime.telemetry import Logger
from folkman.runtime.transport import Local, LocalExchange
from folkman.runtime.ways import way_of

NODES, RUN = 3, 11
KINDS = {"sum": SumNode, "forward": ForwardNode}


@pytest.fixture(scope="module")
def problem():
    return make_problem(load("digits", train_size=120), "softmax", NODES, batch=8)


def build(problem, folder, exchange, number, steps, message, network=None, slot_s=0.0, **more):
    home = folder / f"node-{number}"
    home.mkdir(parents=True, exist_ok=True)
    shares = np.asarray(problem.share)
    rules = SumRules(frozenset(range(NODES)), paced=network is not None)
    part = problem.of_node(number)
    node = KINDS[message](
        number, part, async_sharing(0.1), shares, seed=1, wire=Wire(RUN), rules=rules
    )
    options = {"start_wait_s": 20.0, "linger_s": 20.0, **more}
    settings = Settings(steps=steps, slot_s=slot_s, save_every_s=0.5, keep_every_s=0.1, **options)
    if network is None:
        pace = FreshBeat(node, settings.period_timeout_s)
    else:
        pace = FreshSlots(
            FreshAir(network.peers(), NODES, number, seed=1, message_bits=node.bits())
        )
    logger = Logger(str(number), insecure=True, stream=io.StringIO())
    transport = Local(number, node.neighbours, exchange)
    return Drive(Core(node, settings, pace), transport, Home(home, "test"), logger)


def live(made):
    codes = {}

    def one(number, drive):
        codes[number] = drive.run()

    threads = [threading.Thread(target=one, args=each, daemon=True) for each in made.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return codes


def retold(folder, *, paced):
    logs = {n: journal.read(folder / f"node-{n}" / "timeline.bin") for n in range(NODES)}
    told = way_of(async_sharing(0.1)).causal(logs, NODES, paced=paced)
    assert isinstance(told.timeline, PeerTimeline)
    return told.timeline, told.awake


def assert_replayed(problem, folder, made, message, *, paced):
    timeline, awake = retold(folder, paced=paced)
    run = simulate(
        problem,
        replay(timeline, message=message),
        async_sharing(0.1),
        slots=len(awake),
        seed=1,
        faults=Asleep(awake),
    )
    ends = np.stack([made[n].core.node.params() for n in range(NODES)])
    assert np.abs(ends - run.nodes).max() < 1e-5 * np.abs(run.nodes).max()
    return timeline, awake


@pytest.mark.process
@pytest.mark.parametrize("message", ["sum", "forward"])
def test_on_the_emulated_band_nodes_hold_what_the_simulator_says(problem, tmp_path, message):
    network, exchange = shared(0.6, message=message), LocalExchange()
    made = {
        n: build(problem, tmp_path, exchange, n, 20, message, network, 0.25) for n in range(NODES)
    }

    assert live(made) == dict.fromkeys(range(NODES), 0)

    timeline, awake = assert_replayed(problem, tmp_path, made, message, paced=True)
    planned = record_timeline(network, NODES, len(awake), seed=1)
    ages = [mean_age(each, awake) for each in (timeline, planned)]
    missed = sum(drive.core.hands.counts["given_up"] for drive in made.values())
    if awake.all() and not missed:  # on a busy machine slots are missed
        assert ages[0] == pytest.approx(ages[1], rel=0.1)
    assert (timeline.held[-1] > 0).sum() >= NODES * (NODES - 1)
    assert not any(drive.core.node.mailbox.refused for drive in made.values())


@pytest.mark.process
@pytest.mark.parametrize("message", ["sum", "forward"])
def test_on_measured_links_nodes_contend_and_what_they_did_is_replayed(problem, tmp_path, message):
    exchange = LocalExchange()
    made = {
        n: build(problem, tmp_path, exchange, n, 60, message, slot_s=0.1) for n in range(NODES)
    }  # three nodes share one interpreter: an answer takes tens of milliseconds

    assert live(made) == dict.fromkeys(range(NODES), 0)

    timeline, _ = assert_replayed(problem, tmp_path, made, message, paced=False)
    others = ~np.eye(NODES, dtype=bool)
    assert (timeline.held[-1][others] > 0).all()  # everyone has heard of everyone
    logs = {n: journal.read(tmp_path / f"node-{n}" / "timeline.bin") for n in range(NODES)}
    assert abs(age_by_own_counts(logs)) < 30  # of 60 slots; nodes need not be in step
    assert all(drive.core.hands.counts["sent"] > 0 for drive in made.values())


def test_on_the_emulated_band_nobody_takes_the_place_of_anothers_message():
    """A member may send under any number of a transfer, and as often as it likes."""
    air = FreshAir(shared(0.6, message="sum").peers(), NODES, 0, seed=1, message_bits=64)
    assert not air.receive(1, 5, b"of node 1")
    for number in range(200):
        air.receive(2, number, b"of node 2")

    assert air.fetch(1, 5) == b"of node 1"
    assert air.fetch(1, 5) is None
    assert air.fetch(2, 5) is None  # of one sender the newest wait
    assert air.fetch(2, 199) == b"of node 2"


@pytest.mark.process
def test_nobody_waits_for_a_node_that_never_comes(problem, tmp_path):
    exchange = LocalExchange()
    more = {"start_wait_s": 0.2, "linger_s": 0.5, "slot_s": 0.02}
    made = {n: build(problem, tmp_path, exchange, n, 20, "sum", **more) for n in (0, 1)}

    assert live(made) == {0: 0, 1: 0}

    for me, other in ((0, 1), (1, 0)):
        box = made[me].core.node.mailbox
        assert box.sequence[other] > 0
        assert box.sequence[2] == 0  # its first model is in the sum still


@pytest.mark.process
def test_a_node_that_begins_again_without_its_state_asks_for_copies(problem, tmp_path):
    """It says what it lost, in log and journal, and hears on by copies, then by sums again."""
    exchange = LocalExchange()
    more = {"slot_s": 0.05, "start_wait_s": 20.0, "linger_s": 1.0, "period_timeout_s": 0.3}
    made = {n: build(problem, tmp_path, exchange, n, None, "sum", **more) for n in range(NODES)}
    threads = {}

    def start(number):
        threads[number] = threading.Thread(target=made[number].run)
        threads[number].start()

    def stop(number):
        made[number].ask("the test")
        threads[number].join(30)

    def wait_until(happened):
        end_s = time.monotonic() + 60
        while not happened() and time.monotonic() < end_s:
            time.sleep(0.05)

    for number in range(NODES):
        start(number)
    others = [made[n].core.node.mailbox for n in (0, 2)]
    wait_until(lambda: all(box.sequence[1] & 0xFFFF >= 40 for box in others))
    # until it has lived as many slots again, nobody takes its new sums for younger
    stop(1)
    home = tmp_path / "node-1"
    for kept in (*home.glob("state*.safetensors"), home / "timeline.bin"):
        kept.unlink()  # the life's number stays: the disk lost the rest
    made[1] = build(problem, tmp_path, exchange, 1, None, "sum", **more)
    start(1)
    box = made[1].core.node.mailbox
    assert isinstance(box, SumBox)
    wait_until(lambda: box.counts["rebuilt"] and box.counts["adopted"] and box.lost is None)
    for number in range(NODES):
        stop(number)

    assert [made[n].core.code for n in range(NODES)] == [0] * NODES
    assert box.refused["past"] >= 1
    assert box.counts["rebuilt"] >= 1
    assert box.counts["adopted"] >= 1
    records = journal.read(home / "timeline.bin").records
    lost = records[records["kind"] == journal.LOST]
    assert len(lost) >= 1
    assert lost["sequence"][0, 1] >> 32 == 1  # a stamp of its first life
    stream = made[1].logger._stream
    assert isinstance(stream, io.StringIO)
    log = stream.getvalue()
    said = [json.loads(line) for line in log.splitlines()]
    assert any("no longer kept; asking for copies" in each.get("text", "") for each in said)


def test_without_a_common_clock_ages_are_by_the_nodes_own_counts(tmp_path):
    notes = {
        0: [(journal.WAKE, 0, [0, 0]), (journal.SEND, 1, [5]), (journal.WAKE, 1, [0, 0])],
        1: [(journal.WAKE, 0, [0, 0]), (journal.WAKE, 3, [5, 0])],
    }
    for node, records in notes.items():
        (tmp_path / str(node)).mkdir()
        written = journal.Journal(FolderDisk(tmp_path / str(node)), node, 2, life=1)
        for record in records:
            written.note(*record)
        written.close()

    logs = {node: journal.read(tmp_path / str(node) / "timeline.bin") for node in notes}

    assert age_by_own_counts(logs) == (0 + 1 + 0 + 2) / 4


@pytest.mark.process
def test_a_node_that_was_held_up_sends_what_it_has_and_is_not_refused(
    problem, tmp_path, monkeypatch
):
    """Slots that it missed cost age: what it adopted meanwhile is not ahead of it."""
    network, exchange = shared(0.6, message="sum"), LocalExchange()
    made = {n: build(problem, tmp_path, exchange, n, 16, "sum", network, 0.2) for n in range(NODES)}
    node = made[1].core.node
    assert isinstance(node, SumNode)
    compute = node.gradient

    def slowly(point, step):
        if step in (5, 10):
            time.sleep(0.7)
        return compute(point, step)

    monkeypatch.setattr(node, "gradient", slowly)

    assert live(made) == dict.fromkeys(range(NODES), 0)

    refused = [dict(drive.core.node.mailbox.refused) for drive in made.values()]
    assert all(set(each) <= {"stale"} for each in refused), refused
    assert_replayed(problem, tmp_path, made, "sum", paced=True)
    assert node.slot > 16
