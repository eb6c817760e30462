"""What a node tells those who ask, and its log: few connections, honest health, no floods."""

import io
import json
import socket
import threading
import urllib.request
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from folkman.runtime import telemetry
from folkman.runtime.exposition import exposition
from folkman.runtime.rate_limit import RateLimit
from folkman.runtime.shards import save_shard
from folkman.runtime.telemetry import Logger, MetricsServer, answer_to

WELL = {"state": "learning", "ok": True, "steps": 3}


@pytest.fixture
def server():
    made = MetricsServer(("127.0.0.1", 0), lambda: WELL)
    yield made
    made.close()


def asked(server, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_idle_callers_neither_keep_others_out_nor_cost_threads(server):
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(60)]
    try:
        assert json.loads(asked(server, "/health")) == WELL
        assert asked(server, "/metrics") == exposition(WELL)[1]
        assert threading.active_count() == before
        assert len(server._callers) <= telemetry.MOST_CALLERS
        assert idle[0].recv(1) == b""  # the oldest made room
    finally:
        for each in idle:
            each.close()


def test_a_caller_that_asks_nothing_is_dropped(server, monkeypatch):
    monkeypatch.setattr(telemetry, "QUESTION_S", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), 5) as slow:
        slow.sendall(b"GET /metr")
        assert slow.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), 5) as long:
        long.sendall(b"x" * 3 * telemetry.MOST_QUESTION_BYTES)
        with suppress(ConnectionError):  # closed with bytes unread: reset
            assert long.recv(1) == b""


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"state": "learning", "ok": True}, 200),
        ({"state": "learning", "ok": False, "wrong": "no slot was lived for 60 s"}, 503),
        ({}, 503),
    ],
)
def test_health_is_503_where_the_node_says_that_it_is_not_well(facts, code):
    head, _, body = answer_to(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", facts).partition(
        b"\r\n\r\n"
    )
    assert head.startswith(f"HTTP/1.1 {code} ".encode())
    assert json.loads(body) == facts


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0", b"200"),
        (b"HEAD /health HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"", b"405"),
        (b"\xff\xfe", b"405"),
    ],
)
def test_odd_questions_are_answered(question, code):
    answer = answer_to(question + b"\r\n\r\n", WELL)
    assert answer.startswith(b"HTTP/1.1 " + code)
    assert (answer.endswith(b"\r\n\r\n")) == question.startswith(b"HEAD")


def test_every_link_is_a_series_and_tells_whether_it_is_up():
    facts = {**WELL, "linked": ["node-1"], "latency_s": {"node-1": 0.01, "node-2": 0.2}}
    lines = exposition(facts)[1].splitlines()
    assert 'folkman_link_up{peer="node-1"} 1' in lines
    assert 'folkman_link_up{peer="node-2"} 0' in lines
    assert "# TYPE folkman_link_up gauge" in lines
    assert 'folkman_link_latency_seconds{peer="node-2"} 0.2' in lines


def test_a_link_that_flaps_does_not_fill_the_log_and_hides_no_other():
    stream = io.StringIO()
    logger = Logger("node-0", insecure=False, stream=stream)
    for k in range(1000):
        logger.say("link", peer="node-1", up=bool(k % 2))
    logger.say("link", peer="node-2", up=True)

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]

    assert [line["peer"] for line in lines] == ["node-1"] * 6 + ["node-2"]


def test_what_was_left_out_of_the_log_is_counted(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    logger = Logger("node-0", insecure=False, stream=stream)
    for _ in range(10):
        logger.say("link", peer="node-1", up=True)
    now[0] += 10.0
    logger.say("link", peer="node-1", up=False)

    assert json.loads(stream.getvalue().splitlines()[-1])["left_out"] == 4


def test_a_pace_is_kept_on_the_long_run():
    limit = RateLimit(2.0, at_once=3.0)
    assert [limit.takes(1.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert not limit.takes(0.0)  # time that falls gives nothing
    assert sum(limit.takes(1.0 + 0.01 * k) for k in range(1001)) == 20


def test_samples_are_for_their_owners_eyes_alone(tmp_path):
    problem = SimpleNamespace(x=np.zeros((2, 3, 4)), y=np.zeros((2, 3)), count=np.array([3, 2]))
    save_shard(tmp_path / "shard.npz", problem, 1, 2)  # type: ignore[arg-type]
    assert (tmp_path / "shard.npz").stat().st_mode & 0o777 == 0o600
    with np.load(tmp_path / "shard.npz") as found:
        assert found["x"].shape == (2, 4)
