"""What waits for the loop: bounded for each peer, in order, in turn, and told of once."""

import threading
from typing import Any

from folkman.runtime.arrivals import MOST_REFUSED, MOST_TOLD, Arrivals
from folkman.runtime.core.events import Linked, Received, Refused, Told, Unlinked


def box_and_wakes():
    wakes = []
    return Arrivals(lambda: wakes.append(1)), wakes


def everything(box):
    found, more = box.take(10**6)
    assert not more
    return found


def test_of_each_peer_the_newest_parameters_wait_behind_the_words_that_came_before_them():
    box, _ = box_and_wakes()
    box.received(1, b"old")
    box.told(1, b"word")
    box.received(1, b"new")

    assert everything(box) == [Told(1, b"word"), Received(1, b"new")]
    assert everything(box) == []


def test_a_flood_is_bounded_and_drops_the_oldest_words_of_its_sender_alone():
    box, wakes = box_and_wakes()
    box.told(2, b"honest")
    for k in range(10 * MOST_TOLD):
        box.told(1, b"%d" % k)
        box.received(1, b"%d" % k)
        box.linked(1, up=k % 2 == 0)
        box.refused("handshake", str(k))

    assert len(box) == 1 + MOST_TOLD + 1 + 2 + MOST_REFUSED
    assert wakes == [1]
    assert (box.control_dropped, box.refusals_dropped) == (9 * MOST_TOLD, 2560 - MOST_REFUSED)
    found = everything(box)
    assert [e.data for e in found if isinstance(e, Told) and e.peer == 1] == [
        b"%d" % k for k in range(9 * MOST_TOLD, 10 * MOST_TOLD)
    ]
    assert Told(2, b"honest") in found[:2]  # not behind the flood
    assert [e for e in found if isinstance(e, Linked | Unlinked)] == [Linked(1), Unlinked(1)]
    assert [e.text for e in found if isinstance(e, Refused)][-1] == "2559"


def test_links_that_flap_end_as_they_are():
    for changes in range(1, 8):
        box, _ = box_and_wakes()
        for k in range(changes):
            box.linked(1, up=k % 2 == 0)
        found = everything(box)
        assert len(found) <= 2
        assert found[-1] == (Linked(1) if changes % 2 else Unlinked(1))
        assert found[0] == (Linked(1) if changes % 2 == 0 or len(found) == 1 else Unlinked(1))


def test_what_is_fetched_in_parts_comes_in_order_and_wakes_nobody_until_all_is_fetched():
    box, wakes = box_and_wakes()
    for k in range(10):
        box.told(1, b"a%d" % k)
        box.told(2, b"b%d" % k)
    found: list[Any]
    found, more = box.take(3)
    assert more
    box.told(1, b"a10")
    assert wakes == [1]
    while more:
        part, more = box.take(3)
        found += part
    box.told(2, b"b10")

    assert wakes == [1, 1]
    for peer, letter in ((1, b"a"), (2, b"b")):
        ours = [e.data for e in found if e.peer == peer]
        assert ours == [letter + b"%d" % k for k in range(len(ours))]
    assert [e.peer for e in found[:6]] == [1, 2, 1, 2, 1, 2]


def test_threads_lose_nothing_below_the_bound():
    box, _ = box_and_wakes()

    def tell(peer):
        for k in range(MOST_TOLD):
            box.told(peer, b"%d" % k)

    threads = [threading.Thread(target=tell, args=(peer,)) for peer in range(4)]
    for thread in threads:
        thread.start()
    found: list[Any] = []
    while any(thread.is_alive() for thread in threads):
        found += box.take(7)[0]
    found += everything(box)

    for peer in range(4):
        assert [e.data for e in found if e.peer == peer] == [b"%d" % k for k in range(MOST_TOLD)]
