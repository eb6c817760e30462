"""A node as a process: learner, receiver, sender and saver side by side.

Learning never waits for the network.

    learner      wakes the node, slot after slot (`folkman.runtime.loops`)
    receiver     takes what has come, newest first of each neighbour, and acknowledges it
    sender       starts a broadcast when the last one has been acknowledged or given up
    saver        writes the newest state; a slow or full disk costs saves, never slots
    keeper       says hello, reads the list of members again, writes health, flushes the journal

Exit codes: 0 done or stopped, 1 a fault of ours, 3 diverged, 4 the disk did not take the result;
wrong input is the command line's 2.
"""

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from folkman.machine import trim
from folkman.record import run as record
from folkman.record.cluster import DONE, LEARNING, STARTING, NodeFolder
from folkman.record.json_file import write_json
from folkman.runtime import control, journal, state
from folkman.runtime.codec import (
    HEADER_BYTES,
    CodecError,
    LostPastError,
    base_of,
    round_of,
    sender_of,
    sequence_of,
)
from folkman.runtime.feedback import NOTHING
from folkman.runtime.identity import Members, name_of
from folkman.runtime.link_quality import Links
from folkman.runtime.node import Node
from folkman.runtime.outbox import Outbox
from folkman.runtime.telemetry import Logger, health_of
from folkman.runtime.transport import Transport

if TYPE_CHECKING:
    from folkman.runtime.emulation import Emulation, Trips
    from folkman.runtime.fresh_side import FreshSide
    from folkman.runtime.server_node import ServerNode

__all__ = ["DISK", "DIVERGED", "FAULT", "Daemon", "DaemonConfig"]

FAULT, DIVERGED, DISK = 1, 3, 4
KEEP_EVERY_S = 0.5
TELL_QUALITY = 4
"""Times that a node keeps until it tells its neighbours again what it measured of its links."""
LAST_LINES_S = 1.0
"""For the reader of the log, at the end."""
ON_THE_BAND = 16
"""Messages of an emulated band that may wait for one neighbour's acknowledgement."""
MOST_TOLD = 256
"""Control messages of one neighbour that may wait for the receiver."""


class DaemonConfig(NamedTuple):
    """How a node lives. Times in seconds."""

    folder: Path
    fingerprint: str  # of the run: a state of another one is refused
    steps: int | None = None  # gradients to take; None: for ever
    slot_s: float = 0.0  # at most one gradient in this time; 0: as fast as it goes
    save_every_s: float = 2.0
    period_timeout_s: float = (
        10.0  # a receiver that has not acknowledged by then is no longer waited for
    )
    retry_s: float = 5.0  # in rounds: what was not acknowledged by then is sent again
    start_wait_s: float = 30.0  # for the neighbours, at the first start
    linger_s: float = 30.0  # for the neighbours, at the end
    threshold_bit_s: float = 0.0
    shared_medium: bool = True  # keep to our share of it; off where links do not disturb each other
    timeline: bool = True


class Daemon:
    """One node, its transport and its threads. `run` returns the exit code."""

    def __init__(
        self,
        node: "Node | ServerNode",
        transport: Transport,
        config: DaemonConfig,
        logger: Logger,
        *,
        members: Members | None,
        emulation: "Emulation | None" = None,
        trips: "Trips | None" = None,
        fresh: "FreshSide | None" = None,
    ) -> None:
        self.node, self.transport, self.config, self.logger = node, transport, config, logger
        self.files = NodeFolder(config.folder)
        self.members, self.emulation, self.trips = members, emulation, trips
        self.fresh = fresh
        self.clock = control.SlotClock(config.slot_s or 1.0)
        self.links = Links(node.neighbours, config.threshold_bit_s)
        room = 2 if fresh is None else ON_THE_BAND
        self.outbox = Outbox(node.neighbours, transport, room)
        self.state = STARTING
        self.code = 0
        self.asked = ""  # why a signal wants us to stop
        self.stopping, self.arrived, self.moved = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self.done: set[int] = set()  # neighbours that say so
        self.qualities: dict[
            int, tuple[float, float]
        ] = {}  # neighbour -> goodput and loss of its link to us
        self._inbound: dict[int, bytes] = {}
        self._told: dict[int, deque[bytes]] = {}  # a flood of one neighbour pushes out no other's
        self._lives: dict[int, int] = {}  # neighbour -> its incarnation
        self._holds: dict[int, int] = {}  # neighbour -> our message that it last said it holds
        self.last_bytes = 0  # of the last message
        self._base: int | None = None  # what our last broadcast builds on
        self._waiting = threading.Condition()
        self._later: list[tuple[float, int, bytes]] = []  # (due, peer, message) on the emulated air
        self._pending: dict[int, tuple[int, float, int]] = {}  # receiver -> (sequence, when, bits)
        self.saver = state.Saver(self.files.state, config.fingerprint, config.save_every_s, logger)
        self.counts: dict[str, int] = {
            "sent": 0,
            "periods_given_up": 0,
            "taken": 0,
            "control_dropped": 0,
            "sent_whole": 0,
            "given_up": 0,
            "not_held": 0,
            "gave_way": 0,
            "copies_sent": 0,
        }
        self.began_s = time.monotonic()
        self._kept = 0

    def saved_now(self) -> bool:
        """Save before going on, as often as the disk needs.

        Return whether it was done before the node was stopped.
        """
        while not self.saver.now(self.node):
            if not np.isfinite(self.node.params()).all():
                self.stop("the parameters are no longer finite; try a smaller step", DIVERGED)
            if self.stopping.wait(1.0):
                return False
        return True

    # -- life --------------------------------------------------------------------------------------

    def run(self, loop: Callable[["Daemon"], None]) -> int:
        """Live until done, stopped or diverged; `loop` is the learner's."""
        self._take_up()
        self.node.warm()
        if self.fresh is not None:
            self.fresh.warm()
        trim()
        self.transport.open(self)
        works = {
            "learner": lambda: self._learn(loop),
            "receiver": self._receive,
            "saver": self.saver.work,
        }
        threads = [
            threading.Thread(target=self.guarded, args=(each,), name=n) for n, each in works.items()
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        while not self.stopping.wait(KEEP_EVERY_S):
            if self.asked:
                self.stop(self.asked)
            self._keep()
        self._wake_all()
        for thread in threads:
            thread.join(10)
        self._last_words()
        return self.code

    def stop(self, why: str, code: int = 0) -> None:
        """Ask everything to end.

        May be called from any thread (a signal handler sets `asked` instead: no locks).
        """
        if not self.stopping.is_set():
            self.code = self.code or code
            self.logger.say("stopping", why=why, code=code)
        self.stopping.set()

    def _take_up(self) -> None:
        """Go on from the last save, if there is one, under a new life's number."""
        kept = self.files.state
        if kept.is_file():
            state.restore(self.node, state.read_arrays(kept, self.config.fingerprint))
        spoken = 0 if self.in_rounds else self.node.sequence >> control.LIFE_BITS
        self.incarnation = state.begin_life(self.files.incarnation, spoken)
        if not self.in_rounds:
            self.node.sequence = max(self.node.sequence, self.incarnation << control.LIFE_BITS)
            if self.incarnation > 1 and isinstance(self.node, Node):
                self.node.forget_receivers()
        self.saver.steps = self.node.steps
        path = self.files.journal if self.config.timeline else None
        self.journal = journal.Journal(path, self.node.index, len(self.node.mailbox.sequence))
        wire, verify = self.node.wire, self.members.verify if self.members else None
        self.voice = control.Voice(
            wire.run, self.node.index, self.incarnation, wire.sign, verify, self.transport.tell
        )
        self.journal.note(journal.START, self.node.slot, self.node.mailbox.sequence)
        self.logger.say(
            "start",
            incarnation=self.incarnation,
            steps=self.node.steps,
            slot=self.node.slot,
            resumed=kept.is_file(),
        )

    @property
    def in_rounds(self) -> bool:
        """Tell whether messages must not be lost: in lock-step and around a server."""
        return self.node.way.loses_nothing

    def _learn(self, loop: Callable[["Daemon"], None]) -> None:
        patience_s = (
            self.config.start_wait_s
            if self.incarnation == 1
            else min(self.config.start_wait_s, 2.0)
        )
        end_s = time.monotonic() + patience_s
        while (
            not self.everyone_linked() and time.monotonic() < end_s and not self.stopping.is_set()
        ):
            self.stopping.wait(0.02)
        self.clock.restart(self.node.slot)
        self.tell_all(self._hello())
        self.state = LEARNING
        self.logger.say(self.state, linked=sorted(name_of(j) for j in self.transport.links()))
        loop(self)
        if not self.stopping.is_set():
            self._finish()

    def everyone_linked(self) -> bool:
        """Tell whether all neighbours can be reached."""
        return set(self.node.neighbours) <= self.transport.links()

    def _finish(self) -> None:
        """Write the result, and stay for those who still need us."""
        self.saver.now(
            self.node
        )  # a disk that refuses must not keep the neighbours waiting: it costs the exit code
        try:
            final = {"params": self.node.params(), "model": self.node.model()}
            state.write_arrays(self.files.final, final, self.config.fingerprint)
        except OSError as error:
            self.logger.say("not saved", level="error", reason="disk", text=str(error))
            self.code = DISK
        self.state = DONE
        self.logger.say(self.state, steps=self.node.steps, slot=self.node.slot)
        end_s = time.monotonic() + self.config.linger_s
        self.tell_all(control.Done(self.node.steps))
        while time.monotonic() < end_s and not set(self.node.neighbours) <= self.done:
            if self.stopping.wait(0.1):
                return
        time.sleep(
            min(2 * KEEP_EVERY_S, self.config.linger_s)
        )  # our last Done may still be on its way
        self.stop(DONE)

    def _last_words(self) -> None:
        ended = {FAULT: record.FAILED, DIVERGED: record.DIVERGED}.get(self.code, record.STOPPED)
        self.state = DONE if self.state == DONE else ended
        settled = (
            self.state == DONE or not self.in_rounds
        )  # in rounds the last save is from before the last message
        if self.code == 0 and settled and self.config.folder.is_dir():
            self.saver.now(self.node)
        self._keep()
        self.transport.close()
        self.journal.close()
        self.logger.say("end", code=self.code, steps=self.node.steps, saved_steps=self.saver.steps)
        self.logger.flush(LAST_LINES_S)

    def guarded(self, work: Callable[[], None]) -> None:
        """Do the work of a thread; what goes wrong in it ends the node."""
        try:
            work()
        except Exception:  # a thread that dies would leave a node that looks alive
            self.logger.say("fault", level="error", text=traceback.format_exc())
            self.stop("a thread failed", FAULT)

    def _wake_all(self) -> None:
        with self._waiting:
            self._waiting.notify_all()
        self.saver.close()
        self.arrived.set()
        self.moved.set()

    # -- what the transport tells ------------------------------------------------------------------

    def received(self, peer: int, data: bytes) -> None:
        """Keep the newest of each peer until the receiver gets to it."""
        with self._waiting:
            self._inbound[peer] = data
            self._waiting.notify()

    def told(self, peer: int, data: bytes) -> None:
        """Keep a control message until the receiver gets to it."""
        with self._waiting:
            box = self._told.setdefault(peer, deque(maxlen=MOST_TOLD))
            self.counts["control_dropped"] += len(box) == MOST_TOLD
            box.append(data)
            self._waiting.notify()

    def linked(self, peer: int, up: bool) -> None:
        """Greet a peer that is there again, and send it what it may have missed."""
        self.logger.say("link", peer=name_of(peer), up=up)
        if up:
            self.voice.say(peer, self._hello())
            self.outbox.again(peer)
        else:
            self._pending.pop(peer, None)
            self.links.forget(peer)
            if self.fresh is not None:
                self.fresh.band.forget(peer)
        self.moved.set()

    def refused(self, reason: str, text: str) -> None:
        """Log and count somebody who was not let in."""
        self.node.mailbox.refused[f"link_{reason}"] += 1
        self.logger.say("refused", level="warning", reason=reason, text=text)

    # -- the receiver ------------------------------------------------------------------------------

    def _receive(self) -> None:
        while not self.stopping.is_set():
            with self._waiting:
                self._waiting.wait_for(self._something, self._until_due_s())
                inbound, self._inbound = self._inbound, {}
                told, self._told = self._told, {}
            for peer, messages in told.items():
                for data in messages:
                    self._heed(peer, data)
            for peer, data in inbound.items():
                self._sort(peer, data)
            now = time.monotonic()
            due, self._later = (
                [e for e in self._later if e[0] <= now],
                [e for e in self._later if e[0] > now],
            )
            for _, peer, data in due:
                self.take(peer, data)

    def _something(self) -> bool:
        return bool(self._inbound or self._told) or self.stopping.is_set()

    def _until_due_s(self) -> float:
        return max(0.0, min([1.0, *(due - time.monotonic() for due, *_ in self._later)]))

    def _sort(self, peer: int, data: bytes) -> None:
        """Take a message, or put it on the emulated air first."""
        if len(data) < HEADER_BYTES or (self.emulation is None and self.trips is None):
            if self.fresh is None or not self.fresh.keeps(self, peer, data):
                self.take(peer, data)
        elif self.emulation is not None:
            self.emulation.receive(peer, round_of(data), data)
            self.arrived.set()
        elif self.trips is not None:
            slots = self._trip(peer, data)
            own = [entry for entry in self._later if entry[1] == peer][
                -1:
            ]  # of a neighbour the last two
            self._later = [entry for entry in self._later if entry[1] != peer] + own
            self._later.append((time.monotonic() + slots * self.config.slot_s, peer, data))

    def _trip(self, peer: int, data: bytes) -> int:
        """Return the slots that a message is on the emulated air, in rounds."""
        assert self.trips is not None  # noqa: S101 - the caller looked
        if self.node.mailbox.round:
            round_ = min(round_of(data), self.node.mailbox.round + 1)
            return self.trips.slots(max(round_, 1), peer)
        if not isinstance(self.node, Node):
            return self.trips.slots(self.node.steps + 1, peer)
        answers = int(self.node.mailbox.sequence[0])
        return self.trips.slots(max(answers + 1, 1), self.node.index, down=True)

    def take(self, peer: int, data: bytes) -> None:
        """Hand a message to the node; acknowledge what was taken or is no longer needed."""
        try:
            if len(data) >= 20 and sender_of(data) != peer:
                self.node.mailbox.refused["sender"] += 1
                raise CodecError("sender", f"node {peer} brings a message under another's number")
            message = self.node.take(data)
        except CodecError as error:
            settled = (
                ("stale", "finite", "absurd", "base")
                if not isinstance(self.node, Node)
                else ("stale", "past", "trust")
            )
            if isinstance(error, LostPastError) and self.fresh is not None:
                self.fresh.lost(self, error)
            settled = () if self._early(data) else settled
            if error.reason in settled and error.node is not None and error.sequence is not None:
                self.voice.say(error.node, control.Ack(error.sequence))
            elif error.reason == "base":
                self.voice.say(peer, control.Ack(self.node.mailbox.held_of(peer)))
            elif error.reason == "round" and self._repeated(data):
                self.voice.say(peer, control.Ack(sequence_of(data)))
            self.logger.say(
                "refused", level="warning", reason=error.reason, peer=name_of(peer), text=str(error)
            )
            return
        self.counts["taken"] += 1
        if not self._early(data):
            self.voice.say(message.node, control.Ack(message.sequence))
        self.arrived.set()

    def _early(self, data: bytes) -> bool:
        """Tell whether a message is acknowledged later: when its round begins."""
        node = self.node
        early = isinstance(node, Node) and node.holds_back and len(data) >= HEADER_BYTES
        return early and round_of(data) > node.mailbox.round

    def _repeated(self, data: bytes) -> bool:
        """Tell whether a message of this round, heard before, came again under a new number.

        Its sender has begun anew, and waits for an acknowledgement.
        """
        node = self.node
        return isinstance(node, Node) and node.holds_back and round_of(data) == node.mailbox.round

    def acknowledge_begun(self) -> None:
        """Acknowledge what came early and is of the round that has begun."""
        box = self.node.mailbox
        with box.lock:
            begun = [(int(row), int(box.sequence[row])) for row in np.flatnonzero(box.heard)]
        for peer, sequence in begun:
            self.voice.say(peer, control.Ack(sequence))

    def _heed(self, peer: int, data: bytes) -> None:
        try:
            body = self.voice.hear(peer, data)
        except CodecError as error:
            self.node.mailbox.refused[f"control_{error.reason}"] += 1
            self.logger.say(
                "refused", level="warning", reason=error.reason, peer=name_of(peer), text=str(error)
            )
            return
        if self.fresh is not None:
            self.fresh.heed(self, peer, body)
        if isinstance(body, control.Ack):
            self._acknowledged(peer, body.sequence)
        elif isinstance(body, control.Hello):
            if (
                self._lives.setdefault(peer, body.incarnation) != body.incarnation
            ):  # it may have lost what it heard
                self._lives[peer] = body.incarnation
                self._holds[peer] = NOTHING
                self.outbox.again(peer)
            if self.state == LEARNING:
                self.clock.follow(body.clock_s)
        elif isinstance(body, control.Period):
            self.links.note_rate(peer, body.rate)
        elif isinstance(body, control.Quality):
            self.qualities[peer] = body.links.get(self.node.index, (0.0, 0.0))
        elif isinstance(body, control.Done):
            self.done.add(peer)

    def _acknowledged(self, peer: int, sequence: int) -> None:
        self.outbox.acknowledged(peer, sequence)
        self.arrived.set()
        self._holds[peer] = sequence
        waited = self._pending.get(peer)
        if waited is not None and sequence >= waited[0]:
            self._pending.pop(peer, None)
            self.links.note_arrival(peer, waited[2], time.monotonic() - waited[1])
            self.moved.set()
        elif waited is not None and self._base is not None and sequence < self._base:
            self._send_whole(peer)

    def _send_whole(self, peer: int) -> None:
        """Send the last message to one that lacks what it builds on."""
        assert isinstance(self.node, Node)  # noqa: S101 - a server sends by the outbox
        self.transport.publish(peer, self.node.whole())
        self.counts["sent_whole"] += 1

    # -- sending -----------------------------------------------------------------------------------

    def broadcast(self, receivers: list[int], number: int = 0) -> int:
        """Send the newest parameters to some neighbours; return the bits of a message."""
        data, sequence, slot = self.node.formed(number)
        self.journal.note(journal.SEND, slot, [sequence])
        return self.publish(data, sequence, receivers)

    def publish(self, data: bytes, sequence: int, receivers: list[int]) -> int:
        """Send a message to some neighbours, who are to acknowledge it; return its bits."""
        now, bits = time.monotonic(), 8 * len(data)
        self.last_bytes = len(data)
        self._base = base_of(data)
        for peer in receivers:
            self._pending[peer] = (sequence, now, bits)
            if self._base is None or self._holds.get(peer, 0) == self._base:
                self.transport.publish(peer, data)
            else:
                self._send_whole(peer)
        self.counts["sent"] += 1
        return bits

    def holds(self, peer: int) -> int:
        """Return the number of our message that a neighbour has acknowledged last."""
        return self._holds.get(peer, 0)

    def pending(self) -> bool:
        """Return whether a present receiver still owes an acknowledgement, and has time for it."""
        now = time.monotonic()
        for peer, (_, since_s, _) in list(self._pending.items()):
            if now - since_s > self.config.period_timeout_s and self._pending.pop(peer, None):
                self.links.note_loss(peer)
                self.counts["periods_given_up"] += 1
        return bool(set(self._pending) & self.transport.links())

    def tell_period(self, rate: float, receivers: list[int]) -> None:
        """Tell the neighbours R_i and Y_i."""
        self.tell_all(control.Period(min(rate, 1e15) if math.isfinite(rate) else 0.0, receivers))

    def tell_all(self, body: control.Body) -> None:
        """Say something to all neighbours."""
        for peer in self.node.neighbours:
            self.voice.say(peer, body)

    def _hello(self) -> control.Hello:
        clock_s = self.clock.elapsed_s() if self.state == LEARNING else 0.0
        return control.Hello(max(clock_s, 0.0), self.node.steps, self.incarnation)

    # -- keeping -----------------------------------------------------------------------------------

    def _keep(self) -> None:
        if self.members is not None:
            try:
                if self.members.reload():
                    self.logger.say("members", allowed=self.members.names())
                self.transport.revalidate()  # every time: a certificate may have expired
            except (OSError, ValueError) as error:
                self.logger.say("members", level="warning", reason="list", text=str(error))
        self.tell_all(self._hello())
        if self.links.goodput_bit_s and self._kept % TELL_QUALITY == 0:
            self.tell_all(control.Quality(self.links.table()))
        self._kept += 1
        if self.state == DONE:
            self.tell_all(control.Done(self.node.steps))
        self.outbox.retry(self.config.retry_s)
        self.journal.flush()
        self.logger.flush()
        try:
            write_json(self.files.health, health_of(self), indent=None)
        except OSError as error:
            self.logger.say("health", level="error", reason="disk", text=str(error))
