"""What a learner does, slot after slot: on its own beat, in rounds, or around a server.

Each function lives until the daemon stops or the gradients asked for are taken.
"""

import math
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from folkman.record.cluster import LEARNING
from folkman.runtime.codec import round_of, sequence_of, slot_of
from folkman.runtime.daemon import DIVERGED, Daemon
from folkman.runtime.journal import ANSWER, SEND, WAKE
from folkman.runtime.node import Node

if TYPE_CHECKING:
    from folkman.runtime.emulation import Emulation

__all__ = ["GRACE", "alone", "emulated", "goes_on", "in_rounds", "serving", "wake"]

MOST_MISSED = 64
"""Slots that a node looks back at when it was asleep or slow: older broadcasts have been overtaken
anyway."""
GRACE = 0.3
"""Part of a slot that a node waits for messages which the emulated channel has already
delivered."""


def alone(daemon: Daemon) -> None:
    """Learn on the node's own beat.

    A sender beside it follows Algorithm 1, line 10, on measured links.
    """
    sender = threading.Thread(
        target=daemon.guarded, args=(lambda: _send(daemon),), name="sender", daemon=True
    )
    sender.start()
    while goes_on(daemon):
        begun_s = time.monotonic()
        wake(daemon)
        daemon.moved.set()
        daemon.saver.maybe(daemon.node)
        rest_s = daemon.config.slot_s - (time.monotonic() - begun_s)
        if rest_s > 0:
            daemon.stopping.wait(rest_s)
    if not daemon.stopping.is_set():
        daemon.broadcast(list(daemon.transport.links() & set(_receivers(daemon))))


def _send(daemon: Daemon) -> None:
    """Start a broadcast when there is something new and the medium allows.

    The last period must be over, and our share of the medium free.
    """
    node, sent_after, due_s = daemon.node, -1, 0.0
    assert isinstance(node, Node)  # noqa: S101 - a server has a loop of its own
    while not daemon.stopping.is_set() and daemon.state == LEARNING:
        daemon.moved.wait(0.05)
        daemon.moved.clear()
        news = node.slot != sent_after and node.offers()
        if not news or daemon.pending() or time.monotonic() < due_s:
            continue
        there = sorted(daemon.transport.links() & set(_receivers(daemon)))
        receivers = daemon.links.receivers(there)  # Y_i
        if not receivers:
            continue
        sent_after, begun_s = node.slot, time.monotonic()
        daemon.tell_period(daemon.links.rate_bit_s(receivers), receivers)
        bits = daemon.broadcast(receivers)
        period_s = daemon.links.period_s(receivers, bits) if daemon.config.shared_medium else 0.0
        due_s = begun_s + min(
            period_s, daemon.config.period_timeout_s
        )  # whatever rate a neighbour says it has


def emulated(daemon: Daemon) -> None:
    """Learn in the slots of the emulated channel: one gradient per slot.

    Messages come when it delivers them.
    """
    emulation, node, clock = daemon.emulation, daemon.node, daemon.clock
    assert emulation is not None  # noqa: S101 - the command line chose this loop for it
    assert isinstance(node, Node)  # noqa: S101
    slot = node.slot
    while goes_on(daemon):
        slot = max(clock.slot(), slot)
        while (rest_s := clock.until_s(slot)) > 0 and not daemon.stopping.is_set():
            daemon.stopping.wait(min(rest_s, 0.2))
        _await_due(daemon, emulation, slot)
        for peer, data in emulation.due(slot):
            daemon.take(peer, data)
        node.slot = slot
        wake(daemon)
        daemon.saver.maybe(node)
        end = max(clock.slot(), slot + 1)
        for past in range(
            max(slot, end - MOST_MISSED), end
        ):  # of a slot that was missed, what it would have sent
            plan = emulation.plan(past)
            if plan.sends and node.offers():
                daemon.broadcast(plan.receivers, past + 1)
        slot += 1


def _await_due(daemon: Daemon, emulation: "Emulation", slot: int) -> None:
    end_s = -GRACE * daemon.config.slot_s
    while emulation.missing(slot, daemon.transport.links()) and daemon.clock.until_s(slot) > end_s:
        daemon.arrived.wait(0.005)
        daemon.arrived.clear()
        if daemon.stopping.is_set():
            return


def in_rounds(daemon: Daemon) -> None:
    """Learn until the node has something to send; then send it, wait for what it needs, and hear.

    The state is saved before anything is sent, and with it the message before: a node that begins
    again repeats itself word for word, and whoever missed that message still gets it. After the end
    of a run the message of the last round is saved too, and is not formed again.
    """
    node, sent_at = daemon.node, None
    assert isinstance(node, Node)  # noqa: S101 - a server has a loop of its own
    if node.last_sent:
        _push(daemon, node.last_sent)
        if slot_of(node.last_sent) == node.slot:
            sent_at = _place(node)
    while True:
        here = _place(node)
        if node.offers() and sent_at != here and daemon.saved_now():
            data, sequence, slot = node.formed()
            daemon.journal.note(SEND, slot, [sequence])
            _push(daemon, data)
            node.last_sent = data
            daemon.counts["sent"] += 1
            sent_at = here
        if not goes_on(daemon):
            return
        while node.offers() and not _may_end(daemon, node) and not daemon.stopping.is_set():
            daemon.arrived.wait(0.2)
            daemon.arrived.clear()
        if daemon.stopping.is_set():
            return
        begun_s = time.monotonic()
        wake(daemon)
        if node.holds_back:
            daemon.acknowledge_begun()
        rest_s = daemon.config.slot_s - (time.monotonic() - begun_s)
        if rest_s > 0:
            daemon.stopping.wait(rest_s)


def _place(node: Node) -> tuple[int, int, int]:
    """Return where a node stands: a message is formed once at each."""
    return node.steps, node.mailbox.round, int(node.used[0])


def _may_end(daemon: Daemon, node: Node) -> bool:
    """Tell whether all who are to be heard were, and, where senders hold back, all have heard."""
    return node.complete() and not (node.holds_back and daemon.outbox.owed())


def _receivers(daemon: Daemon) -> list[int]:
    node = daemon.node
    return node.receivers() if isinstance(node, Node) else node.neighbours


def _push(daemon: Daemon, data: bytes) -> None:
    node = daemon.node
    assert isinstance(node, Node)  # noqa: S101 - a server has a loop of its own
    for peer in node.receivers(round_of(data)):
        daemon.outbox.push(peer, sequence_of(data), data)


def serving(daemon: Daemon) -> None:
    """Be the server: act on what arrives, answer, until all nodes are done."""
    node = daemon.node
    assert not isinstance(node, Node)  # noqa: S101 - the command line chose this loop for it
    answered_at = -1
    while not daemon.stopping.is_set():
        offers = np.asarray(node.offers())
        if offers.any() and answered_at != node.slot and daemon.saved_now():
            answered_at = node.slot
            answers, sequence, slot = node.answers([int(peer) for peer in np.flatnonzero(offers)])
            daemon.journal.note(SEND, slot, [sequence])
            daemon.journal.note(ANSWER, slot, offers.astype(np.int64))
            for peer, data in answers.items():
                daemon.outbox.push(peer, sequence, data)
            daemon.counts["sent"] += 1
        while not node.complete() and not daemon.stopping.is_set():
            if set(node.neighbours) <= daemon.done:
                return
            daemon.arrived.wait(0.2)
            daemon.arrived.clear()
        if not daemon.stopping.is_set():
            node.wake()
            daemon.journal.note(WAKE, node.slot - 1, node.used)


def goes_on(daemon: Daemon) -> bool:
    """Tell whether there are gradients left to take."""
    most = daemon.config.steps
    return not daemon.stopping.is_set() and (most is None or daemon.node.steps < most)


def wake(daemon: Daemon) -> None:
    """Live a slot and note it.

    A loss that is not finite ends the node, its last good state kept.
    """
    node = daemon.node
    computed = node.wake()
    daemon.journal.note(WAKE, node.slot - 1, node.used, computed=computed)
    if computed and not math.isfinite(getattr(node, "loss", 0.0)):
        daemon.stop("the loss is no longer finite; try a smaller step", DIVERGED)
