"""A log is JSON from its first line to its last, whatever libraries print: real processes, real zenoh."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from hosts import Cluster, task

from folkman.runtime.captured import _COLOUR, _ZENOH, level_of
from shell import folkman

PRINTS = """
import os, sys, threading, time, warnings
from folkman.runtime.captured import captured
from folkman.runtime.telemetry import Logger
with captured() as output:
    logger = Logger("node-0", insecure=False, stream=output.log)
    os.write(1, b"\\x1b[2m2026-01-01T00:00:00.1Z\\x1b[0m \\x1b[33m WARN\\x1b[0m acc-0 ThreadId(06) "
                b"\\x1b[2mzenoh_link_tls::unicast\\x1b[0m\\x1b[2m:\\x1b[0m received corrupt message\\n")
    output.tell(logger)
    warnings.warn("of Python")
    thread = threading.Thread(target=lambda: 1 / 0, name="dying")
    thread.start()
    thread.join()
    os.write(2, b"\\xff\\xfe no UTF-8, and no end of line")
    logger.say("mine", k=1)
    time.sleep(0.2)
    for _ in range(int(sys.argv[1])):
        print("flood")
        sys.stdout.flush()
print("after", flush=True)
"""


def ran(*words):
    return subprocess.run(
        [sys.executable, "-c", PRINTS, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.process
def test_what_is_printed_becomes_events_and_the_rest_is_as_it_was():
    done = ran("0")
    assert done.stdout == "after\n"  # put back
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["event"] for line in lines} == {"zenoh", "output", "mine"}
    (zenoh,) = [line for line in lines if line["event"] == "zenoh"]
    assert zenoh["level"] == "warning"
    assert zenoh["reason"] == "zenoh_link_tls::unicast"
    assert zenoh["text"] == "received corrupt message"
    texts = "\n".join(line["text"] for line in lines if line["event"] == "output")
    for part in ("UserWarning: of Python", "ZeroDivisionError", "no UTF-8, and no end of line"):
        assert part in texts
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("word", "text", "level"),
    [
        ("WARN", "Scouting delay elapsed before start conditions are met.", "info"),
        ("WARN", "Gossip is disabled: cannot de-duplicate data traversing region gateways", "info"),
        ("WARN", "received corrupt message", "warning"),
        ("ERROR", "Gossip is disabled: it broke", "error"),
        ("TRACE", "a word", "debug"),
    ],
)
def test_what_zenoh_warns_of_at_every_start_is_no_fault(word, text, level):
    assert level_of(word, text) == level


@pytest.mark.process
def test_a_flood_is_bounded_and_counted():
    done = ran("20000")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert len(done.stderr) < 3_000_000
    assert len([line for line in lines if line["event"] == "output"]) < 60


@pytest.mark.parametrize(
    ("line", "level", "target"),
    [
        (
            "\x1b[2m2026-11-18T14:53:05.641019Z\x1b[0m \x1b[33m WARN\x1b[0m acc-0 ThreadId(06) "
            "\x1b[2mzenoh_link_tls::unicast\x1b[0m\x1b[2m:\x1b[0m received corrupt message",
            "WARN",
            "zenoh_link_tls::unicast",
        ),
        ("2026-11-18T14:53:05Z ERROR main zenoh: no", "ERROR", "zenoh"),
        (
            "2026-11-18T14:53:05Z  INFO rx-0 ThreadId(03) zenoh::net::x: a: b",
            "INFO",
            "zenoh::net::x",
        ),
    ],
)
def test_lines_of_zenoh_are_told_apart(line, level, target):
    found = _ZENOH.match(_COLOUR.sub("", line))
    assert found is not None
    assert (found["level"], found["target"]) == (level, target)


@pytest.mark.parametrize(
    "line", ["zenoh: hello", "WARN zenoh", "Traceback (most recent call last):"]
)
def test_other_lines_are_not_zenohs(line):
    assert _ZENOH.match(line) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node = 0\nnonsense = 1\n", "unknown key 'nonsense'"),
        ("node = [", "node.toml"),
        ('arithmetic = "abacus"\n', "arithmetic"),
        (None, "check the path"),
    ],
)
def test_why_a_node_did_not_start_is_one_line_of_json(tmp_path, text, said):
    if text is not None:
        (tmp_path / "node.toml").write_text(text)
    done = folkman("node", "--config", tmp_path / "node.toml", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = [json.loads(each) for each in done.stderr.splitlines()]
    assert (line["event"], line["level"]) == ("not started", "error")
    assert said in line["text"]


def test_a_fault_of_ours_is_a_line_of_json_too(tmp_path, monkeypatch):
    monkeypatch.setattr("folkman.runtime.assembly.run_node", lambda *_: [][1])
    done = folkman("node", "--config", tmp_path / "node.toml", cwd=tmp_path)
    assert done.returncode == 1
    (line,) = [json.loads(each) for each in done.stderr.splitlines()]
    assert "IndexError" in line["text"]


@pytest.mark.process
@pytest.mark.slow
def test_the_log_of_a_real_node_of_zenoh_is_json_when_zenoh_complains(tmp_path, monkeypatch):
    """A stranger's handshake makes zenoh warn; SIGUSR1 and a death leave their marks in a file."""
    monkeypatch.delenv("RUST_LOG", raising=False)
    options = {"transport": "zenoh", "radio": "measured", "steps": 0, "slot_s": 0.05}
    nodes = Cluster(tmp_path / "c", task(nodes=2), {**options, "arithmetic": "numpy"})
    try:
        for i in (0, 1):
            nodes.start(i)
        nodes.until(lambda: all(nodes.health(i)["linked"] for i in (0, 1)), "links")
        table = (nodes.homes[0] / "node.toml").read_text()
        port = int(table.split('listen = "127.0.0.1:')[1].split('"')[0])
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
                time.sleep(0.2)
        log = nodes.homes[0] / "node.log"
        warning = '"level": "warning", "event": "zenoh"'
        nodes.until(lambda: warning in log.read_text(), "zenoh's warning", 20)
        os.kill(nodes.processes[0].pid, signal.SIGUSR1)
        faults = nodes.homes[0] / "faults.txt"
        nodes.until(lambda: "Thread 0x" in faults.read_text(), "where every thread is", 20)
        nodes.kill(0, signal.SIGABRT)
        nodes.start(0)
        nodes.until(lambda: '"event": "died before"' in log.read_text(), "the mark of a death", 30)
    finally:
        nodes.close()
    lines = [json.loads(line) for line in log.read_text().splitlines()]  # every single one
    warned = [
        line for line in lines if line["event"] == "zenoh" and line["level"] in ("warning", "error")
    ]
    assert warned  # of the stranger, and of nothing that every start brings
    assert all(line["reason"].startswith("zenoh_link") for line in warned), warned
    (died,) = [line for line in lines if line["event"] == "died before"]
    assert "Fatal Python error: Aborted" in died["text"]
