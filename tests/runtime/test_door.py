"""Nobody without a certificate keeps a neighbour out: who has to go at the door, and real sockets."""

import gc
import socket
import threading
import time
from asyncio.sslproto import SSLProtocol
from contextlib import contextmanager, suppress

import pytest

from folkman.runtime import identity
from folkman.runtime.door import HANDSHAKES_PER_S, PLACES, PLACES_AN_ADDRESS, Door, network_of
from folkman.runtime.transport import Security
from runtime.threaded import Tcp, Zenoh


def test_while_there_is_room_everybody_stays():
    door = Door()
    assert {door.enter(k, f"192.0.2.{k}") for k in range(PLACES)} == {None}
    assert len(door) == PLACES


def test_an_unknown_address_has_few_places_and_its_own_oldest_goes():
    door = Door()
    gone = [door.enter(k, "192.0.2.1") for k in range(PLACES_AN_ADDRESS + 2)]
    assert gone == [None] * PLACES_AN_ADDRESS + [0, 1]


def test_when_all_places_are_taken_the_oldest_of_the_busiest_unknown_address_goes():
    door = Door(places=4)
    door.know(5, "192.0.2.5")
    for stranger, address in enumerate(["192.0.2.5", "192.0.2.8", "192.0.2.9", "192.0.2.9"]):
        assert door.enter(stranger, address) is None
    assert door.enter("neighbour", "192.0.2.5") == 2
    assert door.enter("again", "192.0.2.5") == 1
    assert door.enter("more", "192.0.2.5") == 3
    assert door.enter("foreign", "192.0.2.7") == "foreign"  # all others are of neighbours


def test_behind_one_address_a_newcomer_takes_the_place_of_the_oldest():
    """As on loopback, or behind a router that translates: a neighbour stays long enough."""
    door = Door()
    door.know(5, "192.0.2.5")
    for stranger in range(PLACES):
        assert door.enter(stranger, "192.0.2.5") is None
    assert door.enter("neighbour", "192.0.2.5") == 0
    for stranger in range(PLACES, 2 * PLACES - 1):
        assert door.enter(stranger, "192.0.2.5") == stranger - PLACES + 1
    assert door.enter("last", "192.0.2.5") == "neighbour"


def test_who_leaves_makes_room():
    door = Door(places=1)
    door.enter(0, "192.0.2.1")
    door.leave(0)
    door.leave("nobody")
    assert door.enter(1, "192.0.2.1") is None


def test_handshakes_of_unknown_addresses_are_few_and_neighbours_have_their_own():
    door = Door()
    door.know(5, "192.0.2.5")
    taken = [door.may_shake_hands(f"198.51.100.{k % 99}", 1.0) for k in range(200)]
    assert sum(taken) == HANDSHAKES_PER_S
    assert door.may_shake_hands("192.0.2.5", 1.0)
    assert not door.may_shake_hands("198.51.100.1", 1.001)
    assert door.may_shake_hands("198.51.100.1", 1.5)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a.name", ""),
    ],
)
def test_an_address_counts_by_what_one_party_has(address, network):
    assert network_of(address) == network


# -- real sockets ------------------------------------------------------------------------------


class Ear:
    def __init__(self):
        self.up = threading.Event()

    def linked(self, _, up):
        (self.up.set if up else self.up.clear)()

    def received(self, peer, data): ...

    def told(self, peer, data): ...

    def refused(self, reason, text): ...


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    identity.init(folder)
    for node in range(2):
        identity.issue(folder, node)
    return folder


@contextmanager
def node(kind, certs, me, places):
    security = Security(
        identity.Identity(certs, me), identity.Members(certs / "members.json", certs / "ca.crt")
    )
    others = {1 - me: places[1 - me]}
    made = kind(me, places[me], others, run=7, largest_bytes=999, security=security)
    ear = Ear()
    made.open(ear)
    try:
        yield made, ear
    finally:
        made.close()


@contextmanager
def besieged(place, first_word: bytes, count: int, per_s: float):
    """Connect all the while, and keep `count` connections open that say `first_word` at most."""
    over, open_ = threading.Event(), []

    def connect():
        while not over.wait(1 / per_s):
            with suppress(OSError):
                caller = socket.create_connection(place, 1)
                open_.append(caller)
                if first_word:
                    caller.sendall(first_word)
            while len(open_) > count:
                open_.pop(0).close()

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        time.sleep(min(count / per_s, 1.0) + 0.2)
        yield
    finally:
        over.set()
        thread.join()
        for caller in open_:
            caller.close()


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "word", "count", "per_s"),
    [
        (Tcp, b"", 75, 200.0),  # idle sockets: nobody was let in for as long as they came
        (Tcp, b"\x16\x03\x01\x00\x05hello", 75, 50.0),
        (Zenoh, b"\x16\x03\x01\x00\x05hello", 75, 40.0),  # handshakes that fail
    ],
    ids=["tcp-idle", "tcp-failing", "zenoh-failing"],
)
def test_a_restarted_neighbour_is_linked_within_seconds(certs, kind, word, count, per_s):
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        places = [one.getsockname(), two.getsockname()]
    with node(kind, certs, 1, places) as (listener, heard), besieged(places[1], word, count, per_s):
        for _ in range(2 if kind is Tcp else 1):  # zenoh takes seconds to close
            with node(kind, certs, 0, places) as (_, ear):
                assert ear.up.wait(8)
                assert heard.up.wait(8)
        if kind is Tcp and not word:
            assert listener.counts["turned_away"] > 0


@pytest.mark.process
def test_a_stranger_that_says_nothing_is_dropped_and_counted(certs):
    with socket.create_server(("127.0.0.1", 0)) as one:
        places = [one.getsockname()] * 2
    with node(Tcp, certs, 1, places) as (listener, _):
        with socket.create_connection(places[1], 5) as caller:
            assert caller.recv(1) == b""
        assert listener.counts["silent_strangers"] == 1


@pytest.mark.process
def test_a_stranger_that_hangs_up_without_a_word_costs_no_handshake(certs):
    with socket.create_server(("127.0.0.1", 0)) as one:
        places = [one.getsockname()] * 2
    refused = []
    with node(Tcp, certs, 1, places) as (listener, ear):
        ear.refused = lambda reason, text: refused.append((reason, text))
        for _ in range(5):
            socket.create_connection(places[1], 5).close()
        until_s = time.monotonic() + 5
        while listener.counts["silent_strangers"] + len(refused) < 5:
            assert time.monotonic() < until_s
            time.sleep(0.01)
    assert not refused


@pytest.mark.process
def test_a_handshake_that_fails_leaves_nothing_for_the_garbage_collector(certs):
    """Each leaves a buffer of 64 KiB else, and nobody knows when the collector looks."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        places = [one.getsockname()] * 2

    def handshakes():
        return sum(isinstance(each, SSLProtocol) for each in gc.get_objects())

    with node(Tcp, certs, 1, places):
        gc.collect()
        before = handshakes()
        gc.disable()
        try:
            callers = [socket.create_connection(places[1], 5) for _ in range(20)]
            for caller in callers:
                caller.sendall(b"\x16\x03\x01\x01\x00\x01")  # a part of a first word
            until_s = time.monotonic() + 8
            while handshakes() < before + 20:
                assert time.monotonic() < until_s
                time.sleep(0.05)
            for caller in callers:
                caller.close()
            while handshakes() > before + 2:
                assert time.monotonic() < until_s, handshakes()
                time.sleep(0.05)
        finally:
            gc.enable()
