"""A node's door for operators, over real sockets and real TLS: who is let in, and what nobody can do."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import ssl
import struct
import threading
import time

import pytest
from cryptography import x509
from doors import OpenDoor, authority

from folkman.record.cluster import NodeFolder
from folkman.runtime import identity
from folkman.runtime.fleet import held_files, operator_door, words
from folkman.runtime.fleet.calls import CallError, ask_each, dialled
from folkman.runtime.fleet.kept_lines import KeptLines
from folkman.runtime.operators import make_operator, operator_in, revoke_operator, role_of


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """Return certificates that no test changes."""
    return authority(tmp_path_factory.mktemp("issued") / "certs")


@pytest.fixture
def certs(issued, tmp_path):
    shutil.copytree(issued, tmp_path / "certs")
    return tmp_path / "certs"


@pytest.fixture
def door(certs, tmp_path, monkeypatch):
    monkeypatch.setattr(operator_door, "FAREWELL_S", 0.1)
    made = OpenDoor(certs, tmp_path / "home")
    yield made
    made.close()


def asked(door, certs, *questions, name="node-0", operator="alice", patience_s=10.0):
    """Return the answers of a door to an operator's questions."""

    async def ask():
        files = operator_in(certs, operator)
        async with dialled(name, door.place, files, patience_s) as line:
            return [await line.ask(each) for each in questions]

    return asyncio.run(ask())


def why(door, certs, **options):
    with pytest.raises(CallError) as caught:
        asked(door, certs, words.Status(), **options)
    return str(caught.value)


def context_of(certs, name, protocol=words.PROTOCOL):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certs / "ca.crt")
    context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


def connected(door, certs, name="operator-alice", **options):
    raw = socket.create_connection(door.place, 10)
    return context_of(certs, name, **options).wrap_socket(raw, server_hostname="node-0")


def received(line):
    """Return the answer that a socket brings."""
    (length,) = struct.unpack("<I", line.recv(4))
    data = b""
    while len(data) < length:
        data += line.recv(length - len(data))
    return words.answer_of(data)


def until(holds, patience_s=10.0):
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def hung_up(line):
    """Ask, and tell whether the other end hangs up without an answer.

    In TLS 1.3 a server sees the client's certificate when the client is done already.
    """
    try:
        line.sendall(words.frame(words.Status()))
        return line.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


# -- who is let in ---------------------------------------------------------------------------------


def test_an_operator_sees_how_the_node_stands(door, certs):
    (found,) = asked(door, certs, words.Status())

    assert isinstance(found, words.Standing)
    assert found.facts == {**door.facts, "operator_door": {"questions": 1}}


def test_it_is_tls_13_and_both_show_certificates(door, certs):
    with connected(door, certs) as line:
        assert line.version() == "TLSv1.3"
    old = context_of(certs, "operator-alice")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(door.place, 10) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw, server_hostname="node-0")


def test_a_nodes_certificate_opens_no_door(door, certs):
    with connected(door, certs, name="node-1") as line:
        line.sendall(words.frame(words.Stop()))
        found = received(line)
    assert isinstance(found, words.Refused)
    assert found.reason == "role"
    assert "has no operator's role" in found.text
    assert door.stops == []
    assert door.events("operator refused")[0]["reason"] == "role"


def test_an_operator_of_another_authority_is_refused(door, certs, tmp_path):
    other = authority(tmp_path / "other", nodes=())
    shutil.copy(certs / "ca.crt", other / "ca.crt")  # so that it trusts the node
    with connected(door, other) as line:
        assert hung_up(line)
    assert door.door.counts["questions"] == 0


def test_no_certificate_at_all_is_refused(door, certs):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certs / "ca.crt")
    raw = socket.create_connection(door.place, 10)
    with context.wrap_socket(raw, server_hostname="node-0") as line:
        assert hung_up(line)
    assert door.door.counts["questions"] == 0


def test_an_operator_that_was_revoked_is_refused_while_it_is_connected(door, certs):
    with connected(door, certs) as line:
        line.sendall(words.frame(words.Status()))
        assert isinstance(received(line), words.Standing)
        revoke_operator(certs, "alice")
        line.sendall(words.frame(words.Stop()))
        found = received(line)
        assert isinstance(found, words.Refused)
        assert "was revoked" in found.text
        assert line.recv(1) == b""
    assert door.stops == []
    assert "was revoked" in why(door, certs)


def test_an_operator_that_is_not_in_the_list_is_refused(door, certs, tmp_path):
    """The authority's signature is not enough: the node's list has no such operator."""
    shutil.copytree(certs, tmp_path / "elsewhere")
    make_operator(tmp_path / "elsewhere", "bob")
    assert "there is no operator 'bob'" in why(door, tmp_path / "elsewhere", operator="bob")
    shutil.copy(tmp_path / "elsewhere" / "members.json", certs)  # the node reads it at once
    assert asked(door, tmp_path / "elsewhere", words.Status(), operator="bob")


def test_a_list_that_is_damaged_leaves_the_last_one_in_force(door, certs, tmp_path):
    shutil.copytree(certs, tmp_path / "kept")
    (certs / "members.json").write_text("{")
    assert asked(door, tmp_path / "kept", words.Status())


def test_an_older_certificate_of_an_operator_is_refused(door, certs, tmp_path):
    shutil.copytree(certs, tmp_path / "stolen")
    make_operator(certs, "alice")

    assert "not the one last issued" in why(door, tmp_path / "stolen")
    assert asked(door, certs, words.Status())


def test_an_expired_operator_is_refused(door, certs):
    make_operator(certs, "alice", days=-1)
    door.members.reload()

    with pytest.raises(ValueError, match=r"operator-alice\.crt ended .* folkman certs operator"):
        operator_in(certs)
    with connected(door, certs) as line:  # whoever does not look at its own certificate
        assert hung_up(line)
    assert door.door.counts["questions"] == 0
    until(lambda: door.events("operator refused"))
    assert "certificate has expired" in door.events("operator refused")[0]["text"]
    assert "ended" in door.members.why_not_operator("alice", door.members.operators["alice"].serial)


def test_an_operator_is_no_member_of_the_cluster(certs):
    """Its name is no node's, so that a link refuses it; and nobody can serve under it."""
    members = identity.Members(certs / "members.json", certs / "ca.crt")
    assert members.node_called("operator-alice") is None
    text = (certs / "operator-alice.crt").read_bytes()
    usage = x509.load_pem_x509_certificate(text).extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert list(usage.value) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]


def test_another_protocol_under_a_right_certificate_is_refused(door, certs):
    for protocol in ("", "folkman-operator/2", "h2"):
        with connected(door, certs, protocol=protocol) as line:
            assert hung_up(line)
    assert door.events("operator refused")[0]["reason"] == "protocol"
    assert door.door.counts["refused"] == 3


def test_a_node_under_anothers_name_is_not_believed(door, certs):
    assert "certificate does not hold" in why(door, certs, name="node-1")


def test_a_revoked_node_is_not_believed(door, certs):
    identity.revoke(certs, 0)
    assert "its certificate is revoked, or not the one last issued" in why(door, certs)


def test_the_operators_list_is_under_the_authoritys_signature(certs):
    path = certs / "members.json"
    content = json.loads(path.read_text())
    content["operators"].append(content["operators"][0] | {"name": "eve"})
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is not a list that"):
        identity.Members(path, certs / "ca.crt")


def test_operators_of_an_older_list_do_not_come_back(certs):
    """The version is signed with them: a revoked operator of version 4 is none of version 5."""
    path = certs / "members.json"
    old = json.loads(path.read_text())
    revoke_operator(certs, "alice")
    new = json.loads(path.read_text())
    mixed = {key: old[key] for key in ("operators", "operators_signature")}
    path.write_text(json.dumps(new | mixed))
    with pytest.raises(ValueError, match="is not a list that"):
        identity.Members(path, certs / "ca.crt")


def test_a_list_of_an_earlier_folkman_lets_no_operator_in(certs):
    path = certs / "members.json"
    content = json.loads(path.read_text())
    del content["operators"], content["operators_signature"]
    path.write_text(json.dumps(content))
    known = identity.Members(path, certs / "ca.crt")
    assert known.allowed(0)
    assert "there is no operator" in known.why_not_operator("alice", "1")


@pytest.mark.parametrize("name", ["", "Alice", "a/b", "-a", "a" * 33, "../x", "node 0"])
def test_an_operators_name_is_a_plain_word(certs, name):
    with pytest.raises(ValueError, match="an operator's name is of"):
        make_operator(certs, name)


def test_an_operators_key_is_its_own(certs):
    (certs / "operator-alice.key").chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        operator_in(certs)


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
