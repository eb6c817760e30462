"""The transports: the newest wins, nobody waits for a frozen peer, strangers stay outside."""

import asyncio
import gc
import shutil
import socket
import ssl
import struct
import threading
import time
import warnings
from contextlib import contextmanager, suppress

import pytest

from folkman.runtime import identity
from folkman.runtime.transport import Local, LocalExchange, Security, Slot
from runtime.threaded import Tcp, Zenoh

pytestmark = pytest.mark.process

KINDS = {"tcp": Tcp, "zenoh": Zenoh}
RUN = 77


class Ear:
    """Keeps what a transport tells; `frozen` makes it a slow reader."""

    def __init__(self):
        self.params, self.control, self.ups, self.refusals = [], [], set(), []
        self.turns = []  # of links: up or not

    def received(self, peer, data):
        self.params.append((peer, data))

    def told(self, peer, data):
        self.control.append((peer, data))

    def linked(self, peer, up):
        (self.ups.add if up else self.ups.discard)(peer)
        self.turns.append(up)

    def refused(self, reason, text):
        self.refusals.append((reason, text))


def until(holds, patience_s=40.0):
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s, "not in time"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    identity.init(folder / "ours")
    for node in range(4):
        identity.issue(folder / "ours", node)
    identity.init(folder / "foreign")
    identity.issue(folder / "foreign", 1)
    return folder


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()


def secured(folder, node, trusted=None):
    trusted = trusted or folder
    return Security(
        identity.Identity(folder, node),
        identity.Members(trusted / "members.json", trusted / "ca.crt"),
    )


@pytest.fixture(params=["tcp", "zenoh"])
def net(request, certs):
    """Make transports on loopback; all are closed at the end."""
    places = {node: free_address() for node in range(3)}
    opened = []

    def join(node, security=..., among=(0, 1, 2), called=None):
        security = secured(certs / "ours", node) if security is ... else security
        near = {other: places[other] for other in among if other != node}
        made = KINDS[request.param](
            node if called is None else called,
            places[node],
            near,
            run=RUN,
            largest_bytes=1 << 22,
            security=security,
        )
        ear = Ear()
        made.open(ear)
        opened.append(made)
        return made, ear

    yield join
    for each in opened:
        each.close()


def test_parameters_and_control_arrive_whole_and_control_in_order(net):
    (one, _), (two, ear) = net(0, among=(0, 1)), net(1, among=(0, 1))
    until(lambda: 1 in one.links() and 0 in two.links())
    whole = bytes(range(256)) * 4096

    one.publish(1, whole)
    for k in range(50):
        one.tell(1, b"%d" % k)

    until(lambda: ear.params and len(ear.control) == 50)
    assert ear.params == [(0, whole)]
    assert [data for _, data in ear.control] == [b"%d" % k for k in range(50)]


def test_what_was_published_before_the_link_is_sent_when_it_is_there_the_newest_alone(net):
    one, _ = net(0, among=(0, 1))
    for k in range(5):
        one.publish(1, b"message %d" % k)

    two, ear = net(1, among=(0, 1))

    until(lambda: bool(ear.params))
    time.sleep(0.3)
    assert [data for _, data in ear.params] in ([b"message 4"], [b"message 0", b"message 4"])
    assert one.counts["overwritten"] >= 3
    assert two.links() == {0}


def test_a_peer_that_comes_back_is_linked_again(net):
    (one, ear), (two, _) = net(0, among=(0, 1)), net(1, among=(0, 1))
    until(lambda: 1 in one.links())

    two.close()
    until(lambda: 1 not in one.links())
    assert 1 not in ear.ups
    _, again = net(1, among=(0, 1))
    until(lambda: 1 in one.links())
    one.publish(1, b"after")

    until(lambda: (0, b"after") in again.params)


def until_refused(transport, reasons, *ears):
    """Wait until a stranger was turned away twice; zenoh does not tell, so there only time does."""

    def count():
        return sum(reason in reasons for ear in ears for reason, _ in ear.refusals)

    if isinstance(transport, Tcp):
        until(lambda: count() >= 2)
    else:
        time.sleep(2.5)


@pytest.mark.parametrize("who", ["foreign", "expired", "plain"])
def test_a_stranger_is_refused_and_a_member_not_harmed(net, certs, who, tmp_path):
    (one, ear), (two, friend) = net(0), net(2)
    until(lambda: 2 in one.links())
    security = None
    if who == "foreign":
        security = secured(certs / "foreign", 1, certs / "ours")
    elif who == "expired":
        shutil.copytree(certs / "ours", tmp_path / "old")
        identity.issue(tmp_path / "old", 1, days=-1)
        security = secured(tmp_path / "old", 1)

    stranger, heard = net(1, security)
    stranger.publish(0, b"poison")
    stranger.publish(2, b"poison")
    one.publish(2, b"good")
    until(lambda: (0, b"good") in friend.params)
    until_refused(one, ["handshake", "hello"], ear, heard)

    assert not stranger.links()
    assert 1 not in one.links() | two.links()
    assert not ear.params
    assert friend.params == [(0, b"good")]
    assert not heard.params


def test_a_member_under_anothers_number_is_refused(net, certs):
    (one, ear), _ = net(0), net(2)

    thief, _ = net(
        1, secured(certs / "ours", 3), called=1
    )  # the certificate of node 3, the number of node 1
    thief.publish(0, b"poison")
    until_refused(one, ["handshake", "hello", "member"], ear)

    assert not ear.params
    assert 1 not in ear.ups


@contextmanager
def two(kind, first, second):
    """Yield two transports, node 0 and node 1 under their securities, and what they hear."""
    places, ears = {0: free_address(), 1: free_address()}, [Ear(), Ear()]
    made = [
        kind(
            me, places[me], {1 - me: places[1 - me]}, run=RUN, largest_bytes=999, security=security
        )
        for me, security in enumerate((first, second))
    ]
    try:
        for each, ear in zip(made, ears, strict=True):
            each.open(ear)
        yield made, ears
    finally:
        for each in made:
            each.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_revoked_member_is_no_longer_spoken_to(certs, tmp_path, kind):
    shutil.copytree(certs / "ours", tmp_path / "certs")
    watched = secured(tmp_path / "certs", 0)
    with two(KINDS[kind], watched, secured(certs / "ours", 1)) as (made, ears):
        until(lambda: made[0].links() == {1})
        identity.revoke(tmp_path / "certs", 1)
        watched.members.reload()
        made[0].revalidate()
        until(lambda: made[0].links() == frozenset())

        made[0].publish(1, b"secret")
        made[0].tell(1, b"secret")
        time.sleep(1.5)

        assert made[0].links() == frozenset()
        assert not ears[1].params
        assert not ears[1].control
        if kind == "tcp":  # zenoh cannot close the link
            assert any(reason == "member" for reason, _ in ears[0].refusals)


def test_a_certificate_that_was_replaced_is_refused(certs, tmp_path):
    """A key is stolen, the node gets a new certificate: whoever shows the old one is turned away."""
    shutil.copytree(certs / "ours", tmp_path / "stolen")
    shutil.copytree(certs / "ours", tmp_path / "certs")
    identity.issue(tmp_path / "certs", 1)
    thief = secured(tmp_path / "stolen", 1, tmp_path / "certs")
    with two(Tcp, secured(tmp_path / "certs", 0), thief) as (made, ears):
        until(lambda: any(reason == "member" for reason, _ in ears[0].refusals))

        assert made[0].links() == frozenset()
        assert not ears[0].params


def test_a_message_above_the_limit_ends_the_link_and_is_not_handed_over():
    places = {0: free_address(), 1: free_address()}
    made = [
        Tcp(me, places[me], {1 - me: places[1 - me]}, run=RUN, largest_bytes=100_000, security=None)
        for me in (0, 1)
    ]
    ears = [Ear(), Ear()]
    try:
        for each, ear in zip(made, ears, strict=True):
            each.open(ear)
        until(lambda: made[0].links() == {1})

        made[0].publish(1, bytes(200_000))

        until(lambda: any(reason == "length" for reason, _ in ears[1].refusals))
        assert not ears[1].params
    finally:
        for each in made:
            each.close()


def test_a_transfer_cut_in_the_middle_is_never_handed_over():
    """A peer that sends a hello and half a message, and leaves."""
    place, ear = free_address(), Ear()
    node = Tcp(1, place, {0: free_address()}, run=RUN, largest_bytes=1 << 20, security=None)
    node.open(ear)
    try:
        from folkman.runtime.tcp import _FRAME, _HELLO, HELLO, MAGIC, PART, VERSION

        for garbage in (
            b"",
            b"\xff" * 50,
            _FRAME.pack(HELLO, 5) + b"12345",
            _FRAME.pack(9, 2**32 - 1),
        ):
            with socket.create_connection(place) as peer:
                peer.sendall(garbage)
        with socket.create_connection(place) as peer:
            peer.sendall(_FRAME.pack(HELLO, _HELLO.size) + _HELLO.pack(MAGIC, VERSION, RUN, 0))
            until(lambda: 0 in node.links())
            peer.sendall(_FRAME.pack(PART, 1000) + bytes(1000))
            peer.sendall(_FRAME.pack(PART, 1000) + bytes(10))
        until(lambda: 0 not in node.links())
        assert not ear.params
        assert ear.refusals
    finally:
        node.close()


@contextmanager
def nothing_left_open():
    """Fail if sockets or transports of asyncio are still open when nobody holds them any more."""
    gc.collect()  # what others left
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert not [str(each.message) for each in found]


@pytest.mark.parametrize("tls", [True, False])
def test_closing_lets_go_of_those_who_are_just_coming_in(certs, tls):
    """Strangers connect all the while: some are at the door, some in their handshake, when it closes."""

    def knock(place, callers, over):
        with suppress(OSError):
            while not over.is_set():
                callers.append(socket.create_connection(place, 1))
                time.sleep(0.001)

    with nothing_left_open():
        for k in range(25):
            place, callers, over = free_address(), [], threading.Event()
            security = secured(certs / "ours", 1) if tls else None
            node = Tcp(1, place, {0: free_address()}, run=RUN, largest_bytes=999, security=security)
            node.open(Ear())
            knocking = threading.Thread(target=knock, args=(place, callers, over))
            knocking.start()
            time.sleep(0.001 * k)
            node.close()
            over.set()
            knocking.join()
            for caller in callers:
                caller.close()
            del node


@pytest.mark.parametrize("tls", [True, False])
def test_closing_in_the_middle_of_a_handshake_ends_it(certs, tls):
    with nothing_left_open():
        for k in range(25):
            securities = [secured(certs / "ours", me) if tls else None for me in (0, 1)]
            with two(Tcp, *securities) as (made, _):
                time.sleep(0.06 + 0.003 * k)  # they meet at the first redial, after about 0.1 s
                made[k % 2].close()
            assert all(each._loop.is_closed() for each in made)
            del made


def test_a_frozen_reader_holds_up_nobody_and_gets_the_newest():
    """TCP to a peer that stops reading: the kernel's buffers fill, our slot holds one message, others go on."""
    places = {node: free_address() for node in range(3)}
    ears = {node: Ear() for node in (0, 2)}
    made = {
        node: Tcp(
            node,
            places[node],
            {j: places[j] for j in places if j != node},
            run=RUN,
            largest_bytes=1 << 24,
            security=None,
        )
        for node in (0, 2)
    }
    from folkman.runtime.tcp import _FRAME, _HELLO, HELLO, MAGIC, VERSION

    big, frozen = 1 << 20, socket.socket()
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        listening.bind(places[1])
        listening.listen()
        try:
            for node, each in made.items():
                each.open(ears[node])
            frozen.close()
            frozen, _ = listening.accept()
            frozen.sendall(_FRAME.pack(HELLO, _HELLO.size) + _HELLO.pack(MAGIC, VERSION, RUN, 1))
            until(lambda: made[0].links() == {1, 2})
            for k in range(30):
                made[0].publish(1, bytes([k]) * big)
                made[0].publish(2, bytes([k]) * 1000)
                time.sleep(0.01)
            until(lambda: bool(ears[2].params) and ears[2].params[-1][1][0] == 29)
            assert made[0].counts["overwritten"] >= 20
            got = _read_messages(frozen, 2)
            assert got[-1][0] == 29
        finally:
            for each in made.values():
                each.close()
            frozen.close()


def test_who_says_nothing_is_pinged_and_in_the_end_dropped(monkeypatch):
    from folkman.runtime import tcp

    monkeypatch.setattr(tcp, "PING_S", 0.05)
    monkeypatch.setattr(tcp, "SILENCE_S", 1.0)
    place, hello = free_address(), tcp._HELLO.pack(tcp.MAGIC, tcp.VERSION, RUN, 0)
    node = Tcp(1, place, {0: free_address()}, run=RUN, largest_bytes=1 << 20, security=None)
    node.open(Ear())
    try:
        with socket.create_connection(place) as peer:
            peer.settimeout(20)
            peer.sendall(tcp._FRAME.pack(tcp.HELLO, tcp._HELLO.size) + hello)
            until(lambda: node.links() == {0})
            _exactly(peer, tcp._FRAME.size + tcp._HELLO.size)
            end_s = time.monotonic() + 2.0
            while time.monotonic() < end_s:  # twice as long as silence may last
                peer.sendall(tcp._FRAME.pack(tcp.PING, 0))
                assert _exactly(peer, tcp._FRAME.size) == tcp._FRAME.pack(tcp.PING, 0)
            assert node.links() == {0}

            until(lambda: not node.links())
    finally:
        node.close()


def contexts(folder, number):
    """Return what a member shows as it dials, and as it is dialled."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in made:
        context.load_verify_locations(folder / "ca.crt")
        context.load_cert_chain(folder / f"node-{number}.crt", folder / f"node-{number}.key")
        context.verify_mode = ssl.CERT_REQUIRED
    return made


def greeting(number):
    return struct.pack("<BI4sHQI", 0, 18, b"FLKM", 1, RUN, number)


@pytest.mark.parametrize("ends", ["closed", "reset"])
@pytest.mark.parametrize("secure", [True, False])
def test_who_hangs_up_right_after_the_greeting_leaves_no_link_behind(certs, secure, ends):
    """The end of a connection may come while the streams of its greeting still have it.

    A reset may also come before the greeting is read: then there is no link, and one more round.
    """
    place, ear = free_address(), Ear()
    enough = 3 if secure and ends == "reset" else 10  # most of these come before
    security = secured(certs / "ours", 1) if secure else None
    node = Tcp(1, place, {0: free_address()}, run=RUN, largest_bytes=999, security=security)
    node.open(ear)
    try:
        for _ in range(200):
            said = len(ear.turns)
            with socket.create_connection(place, 5) as caller:
                if ends == "reset":
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if secure:
                    dials, _ = contexts(certs / "ours", 0)
                    caller = dials.wrap_socket(caller, server_hostname="node-1")
                caller.sendall(greeting(0)[:-1])
                caller.recv(23)
                caller.sendall(greeting(0)[-1:])
                caller.close()
            with suppress(AssertionError):
                until(lambda said=said: len(ear.turns) > said, 5 if ends == "closed" else 0.2)
            until(lambda: not node.links() and ear.turns.count(True) == ear.turns.count(False), 5)
            if ear.turns.count(True) == enough:
                break
        assert ear.turns == [True, False] * enough
        assert not ear.refusals
    finally:
        node.close()


def test_a_neighbour_that_leaves_as_soon_as_it_has_greeted_is_dialled_again(certs):
    _, answers = contexts(certs / "ours", 1)
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(8)
        places = {1: door.getsockname()}
        security = secured(certs / "ours", 0)
        node = Tcp(0, free_address(), places, run=RUN, largest_bytes=999, security=security)
        node.open(Ear())
        try:
            for _ in range(5):  # each time it comes again; once it stayed away for ever
                raw, _ = door.accept()
                with answers.wrap_socket(raw, server_side=True) as caller:
                    caller.recv(23)
                    caller.sendall(greeting(1))
        finally:
            node.close()


def test_all_that_is_said_at_once_leaves_in_one_write(monkeypatch):
    from folkman.runtime.tcp import TcpTransport

    writes, put = [], TcpTransport._put
    monkeypatch.setattr(
        TcpTransport, "_put", lambda self, *args: (writes.append(args[-1]), put(self, *args))
    )
    places = {node: free_address() for node in range(2)}
    ears = [Ear(), Ear()]
    made = [
        Tcp(i, places[i], {1 - i: places[1 - i]}, run=RUN, largest_bytes=1 << 20, security=None)
        for i in range(2)
    ]
    try:
        for each, ear in zip(made, ears, strict=True):
            each.open(ear)
        until(lambda: all(1 - i in each.links() for i, each in enumerate(made)))
        until(lambda: all(peer.idle for each in made for peer in each._transport._peers.values()))
        sender = made[0]._transport

        def speak():
            sender.publish(1, b"old")
            for word in (b"a", b"b", b"c"):
                sender.tell(1, word)
            sender.publish(1, b"new")

        made[0]._loop.call_soon_threadsafe(speak)
        until(lambda: ears[1].params)
    finally:
        for each in made:
            each.close()
    assert len(writes) == 1
    assert ears[1].control == [(0, b"a"), (0, b"b"), (0, b"c")]
    assert ears[1].params == [(0, b"new")]


def test_frames_that_come_byte_by_byte_are_taken_as_if_they_came_at_once():
    from folkman.runtime import tcp

    place, hello = free_address(), tcp._HELLO.pack(tcp.MAGIC, tcp.VERSION, RUN, 0)
    frames = tcp._framed(tcp.HELLO, hello) + tcp._framed(tcp.CONTROL, b"word")
    frames += tcp._framed(tcp.PART, b"half a ") + tcp._framed(tcp.PING, b"")
    frames += tcp._framed(tcp.CONTROL, b"in between") + tcp._framed(tcp.LAST, b"message")
    for size in (1, 7, len(frames)):
        node, ear = (
            Tcp(1, place, {0: free_address()}, run=RUN, largest_bytes=1 << 20, security=None),
            Ear(),
        )
        node.open(ear)
        try:
            with socket.create_connection(place) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(0, len(frames), size):
                    peer.sendall(frames[at : at + size])
                    time.sleep(0.001)
                until(lambda ear=ear: ear.params)
        finally:
            node.close()
        assert ear.control == [(0, b"word"), (0, b"in between")]
        assert ear.params == [(0, b"half a message")]


def _read_messages(peer, number):
    """Read whole parameter messages from a raw connection."""
    from folkman.runtime.tcp import _FRAME, LAST, PART

    peer.settimeout(20)
    messages, parts = [], b""
    while len(messages) < number:
        head = _exactly(peer, _FRAME.size)
        kind, length = _FRAME.unpack(head)
        content = _exactly(peer, length)
        if kind in (PART, LAST):
            parts += content
        if kind == LAST:
            messages.append(parts)
            parts = b""
    return messages


def _exactly(peer, count):
    data = b""
    while len(data) < count:
        data += peer.recv(count - len(data))
    return data


@pytest.mark.parametrize("kind", ["tcp", "zenoh"])
def test_an_address_that_is_taken_is_said(kind):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = KINDS[kind](0, taken.getsockname(), {}, run=RUN, largest_bytes=999, security=None)
        with pytest.raises(OSError, match="cannot listen"):
            made.open(Ear())


def test_a_slot_keeps_the_newest_and_wakes_who_waits():
    slot, got = Slot(), []
    waiting = threading.Thread(target=lambda: got.append(slot.take(5)))
    waiting.start()

    assert not slot.put(b"1")
    waiting.join(5)
    assert not slot.put(b"2")
    assert slot.put(b"3")
    slot.put_back(b"0")

    assert got == [b"1"]
    assert slot.take(1) == b"3"
    assert slot.take(0.01) is None
    slot.close()
    assert slot.take() is None


def test_the_twin_carries_the_newest_and_loses_what_is_cut():
    exchange = LocalExchange()
    one, two, ear = Local(0, [1], exchange), Local(1, [0], exchange), Ear()
    asyncio.run(one.open(Ear()))
    asyncio.run(two.open(ear))
    one.publish(1, b"a")
    one.tell(1, b"b")
    until(lambda: bool(ear.params and ear.control))
    exchange.cut.add((0, 1))
    one.publish(1, b"c")
    time.sleep(0.1)
    asyncio.run(one.close())
    asyncio.run(two.close())

    assert ear.params == [(0, b"a")]
    assert ear.control == [(0, b"b")]
