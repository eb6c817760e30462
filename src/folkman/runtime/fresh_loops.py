"""What a learner does where nodes carry sums or pass copies on: on an emulated band, on links."""

import threading
import time

import numpy as np
from numpy.typing import NDArray

from folkman.record.cluster import LEARNING
from folkman.runtime import control
from folkman.runtime.daemon import Daemon
from folkman.runtime.fresh_air import FreshAir
from folkman.runtime.fresh_codec import slots_of, stamps_in
from folkman.runtime.fresh_index import Offer, best_offer
from folkman.runtime.fresh_node import ForwardNode, FreshNode
from folkman.runtime.fresh_side import FreshSide
from folkman.runtime.journal import SEND
from folkman.runtime.loops import GRACE, MOST_MISSED, goes_on, wake

__all__ = ["Beliefs", "emulated", "freeze", "measured"]

UNMEASURED_S = 1e-3
"""Of a message while no link has been measured."""


def emulated(daemon: Daemon) -> None:
    """Learn in the slots of the emulated band, and do one's part of its transfers in their order.

    In slot s a gradient is taken with what ended by slot s-1. A transfer that starts in slot s has
    the parameters before that gradient.
    """
    node, air, clock = _node(daemon), _side(daemon).air, daemon.clock
    assert air is not None  # noqa: S101 - the command line chose this loop for it
    slot = node.slot
    air.skip(slot)  # a node that starts again has done its part of what was before
    while goes_on(daemon):
        slot = max(clock.slot(), slot)
        air.skip(slot - MOST_MISSED)
        node.slot = slot  # before it sends what is late: no stamp is ahead of its carrier
        while (rest_s := clock.until_s(slot)) > 0 and not daemon.stopping.is_set():
            _work(daemon, air, slot - 1)
            daemon.arrived.wait(min(rest_s, 0.02))
            daemon.arrived.clear()
        _settle(daemon, air, slot)
        if air.starts_own(slot):
            freeze(daemon)
        _work(daemon, air, slot, ends=False)
        wake(daemon)
        daemon.saver.maybe(node)
        slot += 1


def _node(daemon: Daemon) -> FreshNode:
    assert isinstance(daemon.node, FreshNode)  # noqa: S101 - the command line chose such a loop
    return daemon.node


def _side(daemon: Daemon) -> FreshSide:
    assert daemon.fresh is not None  # noqa: S101 - the command line chose such a loop
    return daemon.fresh


def freeze(daemon: Daemon) -> None:
    """Let the node remember its present parameters, and note that."""
    frozen = _node(daemon).freeze()
    if frozen is not None:
        daemon.journal.note(SEND, frozen.slot, [frozen.number])


def _work(daemon: Daemon, air: FreshAir, slot: int, *, ends: bool = True) -> bool:
    """Do what is due by the end of a slot, as far as it can be done; tell whether nothing is left.

    Without `ends` no message is taken.
    """
    while (event := air.next(slot)) is not None:
        if not event.ends:
            _start(daemon, event.number, event.origin, event.receivers)
        elif not ends:
            return False
        else:
            data = air.fetch(event.number)
            if data is None:
                return False
            daemon.take(event.sender, data)
        air.done()
    return True


def _start(daemon: Daemon, number: int, origin: int, receivers: tuple[int, ...]) -> None:
    """Send what a planned transfer would carry, as the node has it."""
    node = _node(daemon)
    if isinstance(node, ForwardNode) and origin not in node.letters:
        daemon.counts["not_held"] += 1  # it was late, or lost
        return
    data, sequence = node.carry(number, origin)
    for peer in receivers:
        daemon.outbox.push(peer, sequence, data)
    daemon.counts["sent"] += 1


def _settle(daemon: Daemon, air: FreshAir, slot: int) -> None:
    """Wait a little for what should have ended before a slot, and go on without it."""
    while not _work(daemon, air, slot - 1) and not daemon.stopping.is_set():
        event = air.next(slot - 1)
        assert event is not None  # noqa: S101 - something is left
        late = daemon.clock.until_s(slot) < -GRACE * daemon.config.slot_s
        if late or event.sender not in daemon.transport.links():
            air.give_up()
            daemon.counts["given_up"] += 1
            continue
        daemon.arrived.wait(0.005)
        daemon.arrived.clear()


def measured(daemon: Daemon) -> None:
    """Learn on the node's own beat, while a sender beside it contends for the band by its index."""
    node = _node(daemon)
    sender = threading.Thread(
        target=daemon.guarded, args=(lambda: _contend(daemon, node),), name="sender", daemon=True
    )
    sender.start()
    while goes_on(daemon):
        begun_s = time.monotonic()
        wake(daemon)
        daemon.moved.set()
        daemon.saver.maybe(node)
        rest_s = daemon.config.slot_s - (time.monotonic() - begun_s)
        if rest_s > 0:
            daemon.stopping.wait(rest_s)
    if not daemon.stopping.is_set():  # whoever goes on has the last of it
        freeze(daemon)
        data, sequence = node.carry()
        daemon.publish(data, sequence, sorted(daemon.transport.links() & set(node.neighbours)))


def _contend(daemon: Daemon, node: FreshNode) -> None:
    """Send whenever the band is free, nobody's index is larger, and somebody gains by it."""
    band, shared = _side(daemon).band, daemon.config.shared_medium
    beliefs = Beliefs(daemon, node)
    claimed = False
    while not daemon.stopping.is_set() and daemon.state == LEARNING:
        daemon.moved.wait(0.02)
        daemon.moved.clear()
        if daemon.pending():
            continue
        beliefs.learn_from_acknowledgements()
        if claimed:
            daemon.tell_all(control.Claim(0.0, 0.0))
            claimed = False
        offer = beliefs.best_offer()
        if offer is None:
            continue
        if shared:
            now_s = time.monotonic()
            if band.busy_s(now_s) > 0:
                daemon.moved.wait(min(band.busy_s(now_s), 0.02))
                continue
            if daemon.stopping.wait(band.wait_s(offer.value, now_s)):
                return
            if band.busy_s(time.monotonic()) > 0:  # somebody was faster: think again
                daemon.counts["gave_way"] += 1
                continue
            band.claimed(offer.value, time.monotonic())
            claim = control.Claim(min(offer.value, 1e15), min(offer.seconds, 1e15))
            daemon.tell_all(claim)
            claimed = True
        freeze(daemon)
        data, sequence = node.carry(origin=offer.origin)
        beliefs.sent(sequence, offer, stamps_in(data, len(node.mailbox.sequence)))
        daemon.publish(data, sequence, list(offer.receivers))


class Beliefs:
    """What a node knows of the others' stamps, and of its links."""

    def __init__(self, daemon: Daemon, node: FreshNode) -> None:
        self._daemon, self._node = daemon, node
        nodes = len(node.mailbox.sequence)
        omega = node.rules.omega
        self._omega = np.ones((nodes, nodes)) if omega is None else np.asarray(omega, np.float64)
        self._last: tuple[int, Offer, NDArray[np.int64]] | None = None

    def sent(self, sequence: int, offer: Offer, stamps: NDArray[np.int64]) -> None:
        """Note what is on its way."""
        self._last = (sequence, offer, stamps)

    def learn_from_acknowledgements(self) -> None:
        """Believe that those who have acknowledged the last message took it."""
        if self._last is None:
            return
        (sequence, offer, stamps), self._last = self._last, None
        for peer in offer.receivers:
            if self._daemon.holds(peer) >= sequence:
                self._node.believe(peer, stamps, offer.origin)

    def best_offer(self) -> Offer | None:
        """Return the node's best message now."""
        node, me = self._node, self._node.index
        rows = slots_of(node.rows_heard())
        rows[me] = slots_of(node.stamps())
        rows[me, me] = node.slot
        newest = np.maximum(rows.max(axis=0), 0)
        for peer, steps in list(_side(self._daemon).progress.items()):
            newest[peer] = max(newest[peer], steps)
        ages = newest[None] - rows
        return best_offer(
            me, ages, self._costs_s(), self._omega, node.message, thrift=node.rules.thrift
        )

    def _costs_s(self) -> NDArray[np.floating]:
        """Return the seconds of a message to each; of a link not measured yet, as of the others."""
        daemon, node = self._daemon, self._node
        there = daemon.transport.links() & set(node.neighbours)
        rates = daemon.links.qualities()
        bits = 8.0 * (daemon.last_bytes or node.mailbox.payload[0].nbytes)
        usual = float(np.median([*rates.values()])) if rates else bits / UNMEASURED_S
        found = np.full(len(node.mailbox.sequence), np.inf)
        for peer in there:
            found[peer] = bits / max(rates.get(peer, usual), 1e-3)
        return found
