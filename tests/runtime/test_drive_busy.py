"""The loop of a node under a flood, and with workers that never come back: it answers, and it ends."""

import io
import json
import threading
import time
from collections import Counter
from typing import Any

import pytest

from folkman.runtime import control, drive, durable
from folkman.runtime.arrivals import MOST_TOLD
from folkman.runtime.core import core as core_module
from folkman.runtime.core.settings import Settings
from folkman.runtime.drive import Drive, Home
from folkman.runtime.telemetry import Logger
from runtime.cores import RUN, core_of, node_of

pytestmark = pytest.mark.process  # they wait in real time, for threads

PATIENCE_S = 30.0
SETTINGS = Settings(slot_s=0.02, keep_every_s=0.05, save_every_s=0.1, start_wait_s=0.0)


class Ether:
    """A transport that keeps what a node says, and says what a test wants."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.said: list[Any] = []
        self.events: Any = None

    async def open(self, events):
        self.events = events
        events.linked(1, True)

    def publish(self, peer, data):
        """Lose it."""

    def tell(self, peer, data):
        del peer
        self.said.append(control.open_sealed(data, RUN).body)

    def links(self):
        return frozenset({1})

    def revalidate(self):
        """Keep everyone."""

    async def close(self):
        """Let go of nothing."""

    def greetings(self):
        return sum(isinstance(body, control.Hello) for body in self.said)


def until(holds):
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.005)


class Living:
    """A node in a thread of its own, with its transport."""

    def __init__(self, folder, nodes=2, **changes):
        self.core, self.ether = core_of(0, nodes, SETTINGS), Ether()
        for name, value in changes.items():
            setattr(self.core.node, name, value)
        logger = Logger("node-0", insecure=True, stream=io.StringIO())
        self.drive = Drive(self.core, self.ether, Home(folder, "test"), logger)
        self.codes = []
        self.thread = threading.Thread(target=lambda: self.codes.append(self.drive.run()))
        self.thread.daemon = True

    def __enter__(self):
        self.thread.start()
        until(lambda: self.ether.greetings() > 2)
        return self

    def __exit__(self, *_):
        self.drive.ask("enough")
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def goes_on_greeting(self):
        before = self.ether.greetings()
        until(lambda: self.ether.greetings() > before + 5)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait for what hangs for a moment only; each wait is its own constant."""
    monkeypatch.setattr(core_module, "GIVE_UP_S", 0.2)
    monkeypatch.setattr(drive, "CLOSE_S", 0.2)


@pytest.fixture
def hung():
    """An event that nobody sets until the test is over: whoever waits for it hangs."""
    over = threading.Event()
    yield over
    over.set()


def flood(living, over, told):
    """Bring control messages and parameters as fast as one thread can, until it is over."""
    events = living.ether.events
    while not over.is_set():
        events.told(1, b"x" * 100)
        events.received(1, b"y" * 1000)
        events.refused("handshake", "a stranger")
        told.append(1)


def test_a_flood_keeps_nobody_from_being_greeted_and_waits_in_bounded_room(tmp_path):
    over, told = threading.Event(), []
    with Living(tmp_path) as living:
        threads = [
            threading.Thread(target=flood, args=(living, over, told), daemon=True) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        steps = living.core.node.steps
        living.goes_on_greeting()
        until(lambda: living.core.node.steps > steps + 5 and len(told) > 10 * MOST_TOLD)
        loop: Any = living.drive._loop
        waiting = max(len(living.drive._arrivals) for _ in range(100))
        handles = max(len(loop._ready) for _ in range(100))
        living.drive.ask("in the midst of it")
        living.thread.join(PATIENCE_S)
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)

    assert living.codes == [0]
    assert waiting <= MOST_TOLD + 1 + 2 + 64
    assert handles < 50  # a wake-up, timers, workers: not a call for each message
    counts = json.loads((tmp_path / "health.json").read_text())["counts"]
    assert counts["control_dropped"] > 0


def test_while_the_loop_is_busy_a_flood_costs_one_wake_up(tmp_path):
    with Living(tmp_path) as living:
        loop: Any = living.drive._loop
        held = threading.Event()
        busy = threading.Event()
        loop.call_soon_threadsafe(lambda: (busy.set(), held.wait(PATIENCE_S)))
        assert busy.wait(PATIENCE_S)
        before = len(loop._ready)
        for _ in range(20_000):
            living.ether.events.told(1, b"x")
            living.ether.events.received(1, b"y")
        queued, waiting = len(loop._ready) - before, len(living.drive._arrivals)
        held.set()

    assert queued <= 3  # the wake-up, and what a worker may have reported
    assert waiting == MOST_TOLD + 1


def test_with_a_gradient_that_never_comes_a_node_greets_and_can_be_stopped(tmp_path, hung):
    def never(point, step):
        del step
        if threading.current_thread().name == "compute":  # not where the node warms up
            hung.wait()
        return 0.0, point

    with Living(tmp_path, gradient=never) as living:
        living.goes_on_greeting()

    assert living.codes == [0]
    assert living.core.node.steps == 0


@pytest.mark.parametrize("what", ["save_state", "save_life"])
def test_with_a_disk_that_hangs_a_node_greets_and_can_be_stopped(tmp_path, hung, monkeypatch, what):
    write = getattr(durable, what)

    def hang(*given):
        if what == "save_life" and given[1] == 1:  # the first: without it nothing is said
            return write(*given)
        hung.wait()
        return None

    monkeypatch.setattr(durable, what, hang)
    with Living(tmp_path) as living:
        if what == "save_life":  # a neighbour knows of an earlier life
            sealed = control.Voice(RUN, 1, 1, None, None).sealed(control.Known(3))
            living.ether.events.told(1, sealed)
        until(lambda: not living.core.saving.is_idle)
        steps = living.core.node.steps
        living.goes_on_greeting()
        until(lambda: living.core.node.steps > steps + 3)

    assert living.codes == [0]
    assert living.drive._notes_lost == 0


def test_what_came_before_the_core_began_is_told_then(tmp_path):
    """A transport may bring messages while it opens: they wait, and are not lost."""
    neighbour = node_of(1, 2)
    neighbour.sequence = 1 << 32
    neighbour.wake()

    with Living(tmp_path) as living:
        living.ether.events.received(1, neighbour.send())
        until(lambda: living.core.hands.counts["taken"] == 1)
        assert 1 in living.core.linked  # told by `open`, before the core began
