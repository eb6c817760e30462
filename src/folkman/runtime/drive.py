"""A node as a process: one loop that owns time and sockets, and asks a core what to do.

    loop       tells the core what has happened, does what it wants, wakes it when it asked for it;
               TCP's links are in it too
    compute    one thread that takes gradients
    save       one thread that writes: states, the journal, the health file; a slow or full disk
               costs saves, never slots

Every decision is the core's (`folkman.runtime.core`). Learning never waits for the network. What a
transport brings waits in a bounded box (`folkman.runtime.arrivals`) until the loop fetches it, some
at a time, so that no flood keeps the loop from its timers.

Exit codes: 0 done or stopped, 1 a fault of ours, 3 diverged, 4 the disk did not take the result;
wrong input is the command line's 2.
"""

import asyncio
import contextlib
import math
import secrets
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from folkman.config import own_faults
from folkman.machine import trim
from folkman.record import run as record
from folkman.record.cluster import NodeFolder
from folkman.record.json_file import Json
from folkman.runtime import durable
from folkman.runtime.arrivals import Arrivals
from folkman.runtime.core import events
from folkman.runtime.core.core import Core
from folkman.runtime.core.events import Effect, Event
from folkman.runtime.core.settings import FAULT
from folkman.runtime.disk import FolderDisk
from folkman.runtime.identity import Members
from folkman.runtime.journal import Journal
from folkman.runtime.telemetry import Logger, process_facts, write_health
from folkman.runtime.transport import Transport

__all__ = ["Drive", "Home"]

AT_ONCE = 64
"""Messages that the core is told of before the loop looks at its timers and workers again."""
MOST_NOTES = 10_000
"""Records of the journal that may wait for a disk that hangs; those beyond are a gap in it."""
LAST_LINES_S = 1.0
"""For the reader of the log, at the end."""
CLOSE_S = 10.0
"""For disk and links to be let go of, at the end."""


class Worker:
    """One thread that does one thing after the other; a thing that hangs outlives no process."""

    def __init__(self, name: str) -> None:
        self._things: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (thing := self._things.get()) is not None:
            thing()

    def submit(self, work: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Let something be done; return its outcome to come."""
        future: Future[Any] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                found = work(*args)
            except BaseException as error:  # whoever waits must be told, whatever it is
                future.set_exception(error)
            else:
                future.set_result(found)

        self._things.put(do)
        return future

    def close(self) -> None:
        """End the thread after all that was asked for."""
        self._things.put(None)


class Home(NamedTuple):
    """Where a node's files are, and which run they are of."""

    folder: Path
    fingerprint: str  # of the run: a state of another one is refused
    timeline: bool = True
    about: Mapping[str, str] = {}


class Drive:
    """One core, its transport, its files and its two workers. `run` returns the exit code."""

    def __init__(
        self,
        core: Core,
        transport: Transport,
        home: Home,
        logger: Logger,
        *,
        members: Members | None = None,
    ) -> None:
        self.core, self.transport, self.home, self.logger = core, transport, home, logger
        self.files, self.members = NodeFolder(home.folder), members
        self.around: Callable[[Coroutine[Any, Any, int]], Awaitable[int]] | None = None
        """What else runs in the loop while the node lives; a door for operators."""
        self._disk = FolderDisk(home.folder)
        self._worker: dict[str, Worker] = {}
        self._begun = False  # was the core told to start?
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0  # the one that the loop runs in
        self._code: asyncio.Future[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.asked = ""  # who asked the node to end
        self._arrivals = Arrivals(self._fetch)
        self._notes: list[events.Note] = []
        self._notes_lost = 0  # beyond them
        self._journal: Journal | None = None
        self._writing_health = False
        self._facts: Json = {}
        self._doing: dict[type, Callable[[Any], None]] = {
            events.Publish: lambda e: self.transport.publish(e.peer, e.data),
            events.Tell: lambda e: self.transport.tell(e.peer, e.data),
            events.Save: self._save,
            events.Compute: self._compute,
            events.Note: self._note,
            events.Log: self._log,
            events.Health: self._health,
            events.Drop: lambda _: self.transport.revalidate(),
            events.Finish: self._finish,
        }

    # -- life --------------------------------------------------------------------------------------

    def run(self) -> int:
        """Live until done, stopped or diverged."""
        start = self._read()
        self.core.node.warm()
        self.core.pace.warm()
        trim()
        self._worker = {name: Worker(name) for name in ("compute", "save")}
        try:
            return asyncio.run(self._live(start))
        finally:
            for worker in self._worker.values():
                worker.close()

    def ask(self, why: str) -> None:
        """Ask the node to end. From any thread, and from a signal handler."""
        self.asked = why
        if self._loop is not None:
            self._hand(self._event, events.Asked(why))

    def facts(self) -> Json:
        """Return how the node stands, as it last said."""
        return self._facts

    def _read(self) -> events.Start:
        """Read what the disk has; refuse a state of another run."""
        kept = durable.read_state(self._disk, self.home.fingerprint)
        life = durable.read_life(self._disk)
        warnings = (*kept.warnings, *life.warnings)
        return events.Start(kept.arrays, life.life, warnings, secrets.randbits(31))

    def keep(self) -> None:
        """Write the health file again: a node that has come to its end and stays is not silent."""
        self._facts |= {"staying": True}
        self._write_health(self._facts)

    async def _live(self, start: events.Start) -> int:
        learning = self._learn(start)
        return await (learning if self.around is None else self.around(learning))

    async def _learn(self, start: events.Start) -> int:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        loop = self._loop
        self._code = loop.create_future()
        await self.transport.open(self)
        try:
            self._begin(start)
            return await self._code
        finally:
            self._loop = None
            closing = asyncio.wrap_future(self._worker["save"].submit(self._close))
            for last in (closing, self.transport.close()):  # links may take long
                with contextlib.suppress(TimeoutError):  # of a disk or a peer that hangs
                    await asyncio.wait_for(last, CLOSE_S)
            self.logger.flush(LAST_LINES_S)

    def _begin(self, start: events.Start) -> None:
        self._begun = True
        self._event(start)
        self._look_at_members()
        if self.asked:
            self._event(events.Asked(self.asked))
        self._drain()  # what has come meanwhile

    def _close(self) -> None:
        """Write what is left; the save worker's."""
        self._write_journal(self._notes, self._notes_lost)
        if self._journal is not None:
            self._journal.close()
        self._write_health(self._facts)

    # -- the core ----------------------------------------------------------------------------------

    def _event(self, *happened: Event) -> None:
        """Tell the core, and do what it wants; a fault of ours ends the node."""
        for event in happened:
            if self._begun and self._code is not None and not self._code.done():
                self._tell(event)
        self._set_timer()

    def _tell(self, event: Event) -> None:
        assert self._code is not None  # noqa: S101 - the loop runs
        try:
            self._do(self.core.step(time.monotonic(), event))
        except ValueError as error:
            if not isinstance(event, events.Start):
                self._fail(error)
            else:  # a state that is not of this node: whoever called says so
                self._code.set_exception(error)
        except Exception as error:  # a node that looks alive and does nothing is worse than none
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        own = own_faults.told(error)
        why = "a fault of own code" if own else "a fault of ours"
        self.logger.say("fault", level="error", text=own or _trace(error))
        self.logger.say("stopping", why=why, code=FAULT)
        if self._facts:
            self._facts |= {"state": record.FAILED, "ok": False, "wrong": why}
        self._finish(events.Finish(FAULT))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._doing[type(effect)](effect)

    def _set_timer(self) -> None:
        """Let the core be called when it asks for it; little of what happens moves that."""
        over = self._loop is None or self._code is None or self._code.done()
        next_s = math.inf if over else self.core.next_s()
        if self._timer is not None:
            if self._timer.when() == next_s:
                return
            self._timer.cancel()
            self._timer = None
        if self._loop is not None and next_s < math.inf:
            self._timer = self._loop.call_at(next_s, self._tick)

    def _tick(self) -> None:
        self._timer = None  # it has rung
        self._event(events.Tick())

    # -- effects -----------------------------------------------------------------------------------

    def _compute(self, effect: events.Compute) -> None:
        node: Any = self.core.node  # a server never computes
        self._work(
            "compute",
            partial(node.gradient, effect.point, effect.step),
            lambda found: events.Computed(effect.ticket, *found),
            lambda text: events.ComputeFailed(effect.ticket, text),
        )

    def _save(self, effect: events.Save) -> None:
        self._work(
            "save",
            partial(self._write, effect),
            lambda _: events.Saved(effect.ticket),
            lambda text: events.SaveFailed(effect.ticket, text),
        )

    def _work(
        self,
        worker: str,
        work: Callable[[], Any],
        done: Callable[[Any], Event],
        failed: Callable[[str], Event],
    ) -> None:
        """Let a worker do something, and tell the core how it went."""

        def report(future: "Future[Any]") -> None:
            error = future.exception()
            if error is None:
                event = done(future.result())
            elif isinstance(error, OSError | ValueError):
                event = failed(own_faults.told(error) or str(error))
            else:
                event = failed(own_faults.told(error) or _trace(error))
            self._hand(self._event, event)

        self._worker[worker].submit(work).add_done_callback(report)

    def _write(self, effect: events.Save) -> None:
        """Write what a save asks for; the save worker's."""
        if effect.life is not None:
            durable.save_life(self._disk, effect.life)
            self._journal = self._journal or self._opened(effect.life)
        if effect.state is not None:
            durable.save_state(self._disk, effect.state, self.home.fingerprint)
        if effect.final is not None:
            durable.save_final(self._disk, effect.final, self.home.fingerprint)

    def _opened(self, life: int) -> Journal:
        node, book = self.core.node, self.files.journal
        return Journal(
            self._disk if self.home.timeline else None,
            node.index,
            len(node.mailbox.sequence),
            life=life,
            written_bytes=book.stat().st_size if book.is_file() else 0,
        )

    def _log(self, effect: events.Log) -> None:
        fields: dict[str, Any] = dict(effect.fields)
        self.logger.say(effect.event, level=effect.level, **fields)

    def _health(self, effect: events.Health) -> None:
        """Let the disk have health and journal, and look around."""
        own = process_facts()
        box = self._arrivals
        dropped = {"control_dropped": box.control_dropped, "refusals_dropped": box.refusals_dropped}
        counts = effect.facts["counts"] | dropped  # type: ignore[operator]
        ended = self._journal.ended if self._journal is not None else ""
        more = {"transport": dict(self.transport.counts), "timeline": ended or "recorded"}
        self._facts = {**self.home.about, **effect.facts, **own, **more, "counts": counts}
        self._look_at_members()
        self.logger.flush()
        if not self._writing_health:
            self._writing_health = True
            batch, lost = self._notes, self._notes_lost
            self._notes, self._notes_lost = [], 0
            self._worker["save"].submit(self._write_both, batch, lost, self._facts)

    def _note(self, effect: events.Note) -> None:
        """Keep a record until the disk takes the next ones."""
        if len(self._notes) < MOST_NOTES:
            self._notes.append(effect)
        else:
            self._notes_lost += 1

    def _write_both(self, notes: list[events.Note], lost: int, facts: Json) -> None:
        try:
            self._write_journal(notes, lost)
            self._write_health(facts)
        finally:
            self._writing_health = False

    def _write_journal(self, notes: list[events.Note], lost: int) -> None:
        if self._journal is not None:
            for note in notes:
                self._journal.note(note.kind, note.slot, note.sequence, computed=note.computed)
            self._journal.leave_out(lost)
            self._journal.flush()

    def _write_health(self, facts: Json) -> None:
        if not facts or not self.files.root.is_dir():
            return
        try:
            write_health(self.files.health, facts)
        except OSError as error:
            self.logger.say("health", level="error", reason="disk", text=str(error))

    def _look_at_members(self) -> None:
        """Read the list of members again; a certificate may have expired meanwhile."""
        if self.members is None:
            return
        text = ""
        try:
            self.members.reload()
        except (OSError, ValueError) as error:
            text = str(error)
        allowed = frozenset(j for j in self.core.node.neighbours if self.members.allowed(j))
        if text or allowed != self.core.members:
            assert self._loop is not None  # noqa: S101 - it calls us
            self._loop.call_soon(self._event, events.MembersChanged(allowed, text))
        self.transport.revalidate()

    def _finish(self, effect: events.Finish) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._code is not None and not self._code.done():
            self._code.set_result(effect.code)

    # -- what the transport tells, from threads of its own -----------------------------------------

    def received(self, peer: int, data: bytes) -> None:
        """Take parameters."""
        if self._loop is not None:
            self._arrivals.received(peer, data)

    def told(self, peer: int, data: bytes) -> None:
        """Take a control message."""
        if self._loop is not None:
            self._arrivals.told(peer, data)

    def linked(self, peer: int, up: bool) -> None:
        """Take notice that a link came up or went down."""
        if self._loop is not None:
            self._arrivals.linked(peer, up)

    def refused(self, reason: str, text: str) -> None:
        """Take notice that somebody was not let in."""
        if self._loop is not None:
            self._arrivals.refused(reason, text)

    def _hand(self, call: Callable[..., object], *args: object) -> None:
        """Let the loop do something, if there is one still."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(call, *args)
            except RuntimeError:  # it was closed just now
                return

    def _fetch(self) -> None:
        """Let the loop fetch what has come; where the loop itself brought it, nobody wakes it."""
        loop = self._loop
        if loop is not None and threading.get_ident() == self._thread:
            loop.call_soon(self._drain)
        else:
            self._hand(self._drain)

    def _drain(self) -> None:
        """Tell the core some of what has come; the rest after what else the loop has to do."""
        if not self._begun:  # it is told of them then
            return
        found, more = self._arrivals.take(AT_ONCE)
        self._event(*found)
        if more and self._loop is not None:
            self._loop.call_soon(self._drain)


def _trace(error: BaseException) -> str:
    """Return an error with all the calls that led to it."""
    return "".join(traceback.format_exception(error))
