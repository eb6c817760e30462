"""What operators ask of a node over real TLS, and what nobody can do to it."""

import asyncio
import contextlib
import json
import os
import random
import socket
import struct
import threading
import time

import pytest
from doors import OpenDoor, asked, connected, received, until, why

from folkman.record.cluster import NodeFolder
from folkman.runtime.fleet import held_files, operator_door, words
from folkman.runtime.fleet.calls import CallError, ask_each
from folkman.runtime.fleet.kept_lines import KeptLines
from folkman.runtime.operators import operator_in, role_of

# -- what operators ask ----------------------------------------------------------------------------


def test_stop_is_handed_on_with_the_operators_name(door, certs):
    (found,) = asked(door, certs, words.Stop())
    assert isinstance(found, words.Stopping)
    assert door.stops == ["operator alice"]
    assert door.events("operator stop")[0]["operator"] == "alice"


def test_lines_of_the_log_come_by_number_time_and_level(door, certs):
    for k in range(5):
        door.logger.say("tick", level="warning" if k % 2 else "info", k=k)

    first, warned = asked(door, certs, words.Logs(), words.Logs(level="warning"))
    assert isinstance(first, words.Lines)
    assert isinstance(warned, words.Lines)
    told = [json.loads(line) for line in first.lines]
    assert [each["k"] for each in told if each["event"] == "tick"] == [0, 1, 2, 3, 4]
    assert [json.loads(line)["k"] for line in warned.lines] == [1, 3]
    door.logger.say("tick", k=5)
    (more,) = asked(door, certs, words.Logs(after=first.next))
    assert isinstance(more, words.Lines)
    assert [json.loads(line)["k"] for line in more.lines] == [5]
    (none,) = asked(door, certs, words.Logs(since_s=time.time() + 60))
    assert isinstance(none, words.Lines)
    assert none.lines == []


def test_kept_lines_are_bounded_and_say_what_is_gone(tmp_path):
    kept = KeptLines(most_bytes=10_000)
    line = json.dumps({"time": "2026-01-01T00:00:00.000Z", "level": "info", "event": "x" * 50})
    for _ in range(1000):
        kept.add(line)
    kept.add("no JSON")

    found = kept.since(0, 0.0, "debug")
    assert len(found.lines) == 10_000 // len(line)
    assert found.left_out == 1000 - len(found.lines)
    assert kept.since(found.next, 0.0, "debug").left_out == 0


def test_one_answer_holds_part_of_a_long_log_and_the_next_goes_on():
    kept = KeptLines(most_bytes=1 << 22)
    for k in range(3 * words.MOST_LINES):
        kept.add(json.dumps({"time": "2026-01-01T00:00:00Z", "level": "info", "k": k}))
    told, after = [], 0
    for _ in range(3):
        found = kept.since(after, 0.0, "debug")
        told += [json.loads(line)["k"] for line in found.lines]
        after = found.next
    assert told == list(range(3 * words.MOST_LINES))


def test_lines_of_earlier_lives_come_from_the_log_file(tmp_path):
    old = [json.dumps({"time": "2026-01-01T00:00:00Z", "level": "error", "k": k}) for k in range(3)]
    (tmp_path / "node.log").write_text("half a li\n" + "\n".join(old) + "\nno JSON\n")
    kept = KeptLines()
    kept.add_file(tmp_path / "node.log")
    kept.add_file(tmp_path / "not there")
    assert kept.since(0, 0.0, "error").lines == old


def test_files_are_as_they_were_when_they_were_held(door, certs):
    folder = NodeFolder(door.home)
    folder.journal.write_bytes(b"a" * 100)
    folder.state.write_bytes(b"old state")
    (held,) = asked(door, certs, words.Hold())
    assert isinstance(held, words.Held)
    sizes = {each.name: each.size for each in held.files}
    assert sizes == {"timeline.bin": 100, "state.safetensors": 9, "config.toml": 10}

    with folder.journal.open("ab") as more:
        more.write(b"b" * 50)
    new = door.home / "new"
    new.write_bytes(b"new state, longer")
    os.replace(new, folder.state)
    read = [words.Read(held.held, name, 0, 1000) for name in sizes]
    found = asked(door, certs, *read)
    assert [each.data for each in found if isinstance(each, words.Part)] == [
        b"a" * 100,
        b"old state",
        b"nodes = 2\n",
    ]


def test_neither_samples_nor_keys_are_ever_among_the_files(door, certs):
    folder = NodeFolder(door.home)
    for path in (folder.shard, folder.lock, folder.pid, door.home / "node-0.key"):
        path.write_bytes(b"secret")
    (held,) = asked(door, certs, words.Hold())
    assert isinstance(held, words.Held)
    assert [each.name for each in held.files] == ["config.toml"]
    with pytest.raises(CallError, match=r"no file 'shard\.npz' is held"):
        asked(door, certs, words.Read(held.held, "shard.npz", 0, 10))
    with pytest.raises(CallError, match="expected a word"):  # no path is a name
        asked(door, certs, words.Read(held.held, "../certs/ca.key", 0, 10))


def test_files_that_are_held_no_longer_are_refused(door, certs):
    (first,) = asked(door, certs, words.Hold())
    asked(door, certs, words.Hold())
    assert isinstance(first, words.Held)
    with pytest.raises(CallError, match="held no longer"):
        asked(door, certs, words.Read(first.held, "config.toml", 0, 10))


def test_what_is_no_file_is_not_waited_for(door, certs):
    os.mkfifo(NodeFolder(door.home).log)
    (held,) = asked(door, certs, words.Hold())
    assert isinstance(held, words.Held)
    assert {each.name: each.size for each in held.files}["node.log"] == 0


# -- what nobody can do ----------------------------------------------------------------------------

NONSENSE = {
    "nothing": b"\x00\x00\x00\x00",
    "too long": struct.pack("<I", words.MOST_QUESTION_BYTES + 1),
    "four gigabytes": b"\xff\xff\xff\xff",
    "no MessagePack": struct.pack("<I", 3) + b"\xc1\xc1\xc1",
    "an unknown word": words.frame(words.Status()).replace(b"status", b"statuz"),
    "an answer": words.frame(words.Stopping()),
    "deep nests": struct.pack("<I", 4000) + b"\x91" * 4000,
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_ends_the_connection_and_nothing_else(case, door, certs):
    with connected(door, certs) as line:
        line.sendall(NONSENSE[case])
        found = received(line)
        assert isinstance(found, words.Refused)
        assert found.reason == "words"
        assert line.recv(1) == b""
    assert door.events("operator refused")[0]["reason"] == "words"
    assert asked(door, certs, words.Status())


def test_random_words_never_do_anything(door, certs):
    draw = random.Random(7)  # noqa: S311 - no secret
    sound = [words.frame(each)[4:] for each in (words.Stop(), words.Logs(), words.Hold())]
    for _ in range(2000):
        data = bytearray(draw.choice(sound))
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            found = words.question_of(bytes(data))
        except words.WordsError:
            continue
        assert isinstance(found, words.Question)


def test_a_fifth_operator_is_told_that_there_are_four(door, certs):
    lines = [connected(door, certs) for _ in range(operator_door.MOST_OPERATORS)]
    try:
        for line in lines:
            line.sendall(words.frame(words.Status()))
            assert isinstance(received(line), words.Standing)
        assert "refused (busy)" in why(door, certs)
    finally:
        for line in lines:
            line.close()
    until(lambda: not door.door._operators)
    assert asked(door, certs, words.Status())


def test_an_operator_that_is_silent_loses_its_place(door, certs, monkeypatch):
    monkeypatch.setattr(operator_door, "IDLE_S", 0.1)
    with connected(door, certs) as line:
        line.sendall(words.frame(words.Status()))
        assert isinstance(received(line), words.Standing)
        assert line.recv(1) == b""
    until(lambda: not door.door._operators)


@pytest.mark.process
def test_questions_come_at_a_pace(door, certs, monkeypatch):
    monkeypatch.setattr(operator_door, "QUESTIONS_PER_S", 20.0)
    monkeypatch.setattr(operator_door, "QUESTIONS_AT_ONCE", 2.0)
    began_s = time.monotonic()
    asked(door, certs, *[words.Status()] * 12)
    assert time.monotonic() - began_s > 0.9 * 10 / 20


def test_strangers_neither_keep_an_operator_out_nor_cost_more_than_a_few_handshakes(
    certs, tmp_path
):
    """From one address: 200 that say nothing, and 200 that send nonsense for a handshake."""
    door = OpenDoor(certs, tmp_path / "busy", known=("127.0.0.2",))
    try:
        silent = [socket.create_connection(door.place, 10) for _ in range(200)]
        for _ in range(200):
            with socket.create_connection(door.place, 10) as loud:
                loud.sendall(b"\x16\x03\x01\x00\x05hello")
        counts = door.door.counts
        files = operator_in(certs)

        async def ask():
            context = files.context()
            context.set_alpn_protocols([words.PROTOCOL])
            _, writer = await asyncio.open_connection(
                *door.place, ssl=context, server_hostname="node-0", local_addr=("127.0.0.2", 0)
            )
            writer.transport.abort()
            await asyncio.sleep(0)

        asyncio.run(asyncio.wait_for(ask(), 5))
        assert len(door.door._entrance.door) <= operator_door.PLACES
        assert counts["turned_away"] >= 300
        assert counts["refused"] <= 20  # handshakes that were tried: 5 at once, 5 per second
        for each in silent:
            each.close()
    finally:
        door.close()


def test_handshakes_with_strangers_are_few(door):
    """One after the other, each waiting for its end, so that none makes room for the next."""
    began_s = time.monotonic()
    for _ in range(40):
        with socket.create_connection(door.place, 10) as loud:
            loud.sendall(b"\x16\x03\x01\x00\x05hello")
            with contextlib.suppress(ConnectionError):
                while loud.recv(100):
                    pass
    until(lambda: door.door.counts["refused"] + door.door.counts["turned_away"] == 40)
    most = operator_door.HANDSHAKES_PER_S * (1 + time.monotonic() - began_s)
    assert 1 <= door.door.counts["refused"] <= most + 1


@pytest.mark.parametrize(
    ("names", "role"),
    [
        ([("URI", "spiffe://folkman/operator/alice")], "alice"),
        ([("URI", "spiffe://folkman/node-1"), ("DNS", "node-1")], ""),
        ([("URI", "alice")], ""),
        ([("DNS", "spiffe://folkman/operator/alice")], ""),
        ([("URI", "spiffe://folkman/operator/alice"), ("URI", "spiffe://folkman/node-1")], ""),
        ([("URI", "spiffe://folkman/operator/alice/x")], ""),
        ([("URI", "spiffe://folkman/operator/")], ""),
        ([("URI", "spiffe://elsewhere/operator/alice")], ""),
        ([], ""),
    ],
)
def test_the_role_is_one_uri_and_nothing_else(names, role):
    assert role_of({"subjectAltName": names}) == role


@pytest.mark.process
def test_the_loop_of_the_node_is_never_held_up(door, certs, monkeypatch):
    """While a digest is formed and files are read, timers of the loop come in time."""
    folder = NodeFolder(door.home)
    folder.state.write_bytes(b"x" * 1000)
    late, going = [], threading.Event()

    def beat(at_s):
        late.append(door.loop.time() - at_s)
        if not going.is_set():
            door.loop.call_at(door.loop.time() + 0.005, beat, door.loop.time() + 0.005)

    slow = held_files.HeldFiles._hold

    def hold(self, name, path):
        time.sleep(0.06)  # a slow card
        slow(self, name, path)

    monkeypatch.setattr(held_files.HeldFiles, "_hold", hold)
    door.loop.call_soon_threadsafe(beat, door.loop.time())
    asked(door, certs, words.Hold())
    going.set()

    assert len(late) > 30
    assert sorted(late)[int(0.95 * len(late))] < 0.1


def test_an_operator_that_does_not_read_is_dropped(door, certs, monkeypatch):
    monkeypatch.setattr(operator_door, "ANSWER_S", 0.3)
    door.facts["long"] = "x" * 900_000
    with connected(door, certs) as line:
        for _ in range(30):
            line.sendall(words.frame(words.Status()))
        until(lambda: door.door._operators)
        until(lambda: not door.door._operators)
    del door.facts["long"]
    assert asked(door, certs, words.Status())


def test_an_answer_that_is_too_long_is_a_refusal(door, certs):
    door.facts["long"] = "x" * (words.MOST_ANSWER_BYTES + 1)
    assert "refused (size)" in why(door, certs)


@pytest.mark.process
def test_who_does_not_answer_is_named_with_why(door, certs):
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        places = {
            "node-0": door.place,
            "node-1": mute.getsockname(),
            "node-2": nobody.getsockname(),
            "node-3": ("no-such-host.invalid", 1),
        }

        async def ask(_, line):
            return await line.ask(words.Status())

        found = asyncio.run(ask_each(places, operator_in(certs), 0.5, ask))
    assert [each.node for each in found] == list(places)
    assert [each.found is not None for each in found] == [True, False, False, False]
    assert "no answer within 0.5 s" in found[1].why
    assert "nobody listens there" in found[2].why
    assert "cannot be reached" in found[3].why


def test_an_address_that_is_taken_is_told(certs, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        door = OpenDoor(certs, tmp_path / "other")
        door.door._entrance._listen = door.door._listen = taken.getsockname()
        with pytest.raises(OSError, match=r"cannot listen for operators on .*\[operator\]"):
            asyncio.run(door.door.open())
        door.close()
