"""A node's door for operators: mutual TLS 1.3, a role, a few questions at a pace.

It runs in the node's own loop. A stranger costs a place for 2 s and, if it speaks, a handshake;
there are `PLACES` and `HANDSHAKES_PER_S`. An operator is somebody whose certificate is the
authority's and has the role, and who is in the list of members, at every question anew. Of
operators there are `MOST_OPERATORS` at a time. Files are read and digests formed by one thread of
its own; who asks faster than `QUESTIONS_PER_S`, or does not read its answers, waits or is dropped.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from folkman.record.cluster import NodeFolder
from folkman.record.json_file import Json
from folkman.runtime.core.settings import DIVERGED
from folkman.runtime.door import Door
from folkman.runtime.entrance import Address, Contexts, Entrance
from folkman.runtime.fleet import words
from folkman.runtime.fleet.held_files import HeldFiles
from folkman.runtime.fleet.kept_lines import KeptLines
from folkman.runtime.fleet.words import Answer, Question, Refused
from folkman.runtime.operators import role_of
from folkman.runtime.rate_limit import RateLimit
from folkman.runtime.telemetry import Logger
from folkman.runtime.transport import Security

__all__ = ["Desk", "OperatorDoor"]

PLACES, HANDSHAKES_PER_S = 16, 5.0
MOST_OPERATORS = 4
HANDSHAKE_S, IDLE_S, ANSWER_S = 5.0, 30.0, 30.0
"""For a handshake; between two questions; for an answer to be read."""
QUESTIONS_PER_S, QUESTIONS_AT_ONCE = 40.0, 80.0
FAREWELL_S = 1.0
"""For a refusal to be read."""
HELD_S = 600.0
"""How long files are held for an operator that does not read on."""
STAY_LOOK_S, STAY_LOOKS = 0.5, 8
"""Of a node that has come to its end: between looks whether somebody stops it, and how many there
are between two writes of its health file."""


class Desk(NamedTuple):
    """What the door may see and do of its node."""

    facts: Callable[[], Json]
    stop: Callable[[str], None]
    asked: Callable[[], bool]  # was the node asked to end?
    keep: Callable[[], None]  # renew the health file
    lines: KeptLines
    folder: NodeFolder
    task: Path  # the configuration that says what is learnt
    run: str  # its fingerprint, with label and seed
    label: str
    seed: int


class OperatorDoor:
    """See the module. Opened and closed in the node's loop."""

    def __init__(
        self,
        listen: Address,
        security: Security,
        desk: Desk,
        logger: Logger,
        *,
        known: tuple[str, ...] = (),
        stay_s: float = 0.0,
    ) -> None:
        self._stay_s = stay_s
        door = Door(PLACES, HANDSHAKES_PER_S)
        self._known = {address: number for number, address in enumerate(known)}
        for address, number in self._known.items():
            door.know(number, address)
        self._desk, self._logger, self._members = desk, logger, security.members
        self._entrance = Entrance(
            listen, door, self._meet, self._refused, limit_bytes=2 * words.MOST_QUESTION_BYTES
        )
        self._listen, self.port = listen, 0
        self._contexts = Contexts(security.identity, words.PROTOCOL)
        self._operators: set[str] = set()  # connections by name and port
        self._reader: ThreadPoolExecutor | None = None
        self._held: HeldFiles | None = None
        self._held_until: asyncio.TimerHandle | None = None

    @property
    def counts(self) -> "Counter[str]":
        """Return events at the door: `questions`, `refused`, `turned_away`, `silent_strangers`."""
        return self._entrance.counts

    async def around(self, learning: Coroutine[Any, Any, int]) -> int:
        """Be open while a node learns, and for some time after its end; return its exit code."""
        try:
            await self.open()
        except OSError:
            learning.close()
            raise
        try:
            code = await learning
            if code in (0, DIVERGED):
                await self._stay()
            return code
        finally:
            await self.close()

    async def _stay(self) -> None:
        """Let operators look at a node that has come to its end, until somebody stops it."""
        end_s = time.monotonic() + self._stay_s
        while not self._desk.asked() and time.monotonic() < end_s:
            await asyncio.to_thread(self._desk.keep)
            for _ in range(STAY_LOOKS):
                if not self._desk.asked():
                    await asyncio.sleep(STAY_LOOK_S)

    async def open(self) -> None:
        """Listen; an address that cannot be had is an OSError."""
        try:
            self.port = self._entrance.open()
        except OSError as error:
            host, port = self._listen
            text = f"cannot listen for operators on {host}:{port}: {error.strerror}; choose another"
            raise OSError(error.errno, f"{text} address in [operator]") from None
        self._logger.say("operator door", port=self.port)

    async def close(self) -> None:
        """Let go of everybody, and of all files."""
        await self._entrance.close()
        if self._reader is not None:
            self._reader.submit(self._let_go)
            self._reader.shutdown(wait=False)
        if self._held_until is not None:
            self._held_until.cancel()

    def _refused(self, reason: str, text: str) -> None:
        self.counts["refused"] += 1
        self._logger.say("operator refused", level="warning", reason=reason, text=text)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Shake hands with a stranger, and answer its questions if it is an operator."""
        raw, place = writer.transport, writer.get_extra_info("peername") or ("", 0)
        where = f"{place[0]}:{place[1]}"
        try:
            await writer.start_tls(
                self._contexts.of(ssl.PROTOCOL_TLS_SERVER), ssl_handshake_timeout=HANDSHAKE_S
            )
            shown = writer.get_extra_info("peercert") or {}
            spoken = writer.get_extra_info("ssl_object").selected_alpn_protocol()
            if spoken != words.PROTOCOL:
                self._refused("protocol", f"{where} speaks {spoken}, not {words.PROTOCOL}")
                return
            name = role_of(shown)
            why = self._why_not(name, shown.get("serialNumber", "0"))
            if why:
                self._refused("role", f"{where}: {why}")
                await self._part_with(reader, writer, Refused("role", why))
                return
            self._know(name, place[0])
            await self._serve(name, shown["serialNumber"], where, reader, writer)
        except (EOFError, ConnectionError, asyncio.IncompleteReadError):
            pass  # it is gone
        finally:
            raw.abort()

    def _why_not(self, name: str, serial: str) -> str:
        """Return why a certificate is not an operator's, by the list as it is now; empty: it is.

        A list that is damaged leaves the last one in force; the node itself logs that.
        """
        with suppress(OSError, ValueError):
            self._members.reload()
        if not name:
            return "this certificate has no operator's role; make one: folkman certs operator NAME"
        return self._members.why_not_operator(name, serial)

    async def _serve(
        self,
        name: str,
        serial: str,
        where: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer questions until the operator leaves, is silent, or is no operator any more."""
        if len(self._operators) >= MOST_OPERATORS:
            self.counts["turned_away"] += 1
            text = f"{MOST_OPERATORS} operators are here already; try again in a minute"
            await self._part_with(reader, writer, Refused("busy", text))
            return
        self._entrance.door.leave(asyncio.current_task())
        writer.transport.set_write_buffer_limits(high=words.PART_BYTES)
        me, pace = f"{name} {where}", RateLimit(QUESTIONS_PER_S, QUESTIONS_AT_ONCE)
        self._operators.add(me)
        try:
            while True:
                question = await self._question(reader)
                while not pace.takes(asyncio.get_running_loop().time()):
                    await asyncio.sleep(0.05)
                if why := self._why_not(name, serial):
                    self._refused("role", f"{where}: {why}")
                    await self._part_with(reader, writer, Refused("role", why))
                    return
                self.counts["questions"] += 1
                await self._say(writer, await self._answer(name, question))
        except TimeoutError:
            pass  # silent, or it does not read
        except words.WordsError as error:
            self._refused("words", f"operator {name} at {where}: {error}")
            await self._part_with(reader, writer, Refused("words", str(error)))
        finally:
            self._operators.discard(me)

    async def _question(self, reader: asyncio.StreamReader) -> Question:
        async with asyncio.timeout(IDLE_S):
            head = await reader.readexactly(words.HEAD_BYTES)
            length = words.length_of(head, words.MOST_QUESTION_BYTES)
            return words.question_of(await reader.readexactly(length))

    async def _say(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        data = words.frame(answer)
        if len(data) > words.MOST_ANSWER_BYTES:
            text = f"the answer has {len(data)} bytes, at most {words.MOST_ANSWER_BYTES} are sent"
            data = words.frame(Refused("size", text))
        writer.write(data)
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()

    async def _part_with(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: Refused
    ) -> None:
        """Say why, and let it be read: a connection that is closed with bytes unread is reset."""
        await self._say(writer, last)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                for _ in range(16):
                    if not await reader.read(words.MOST_QUESTION_BYTES):
                        return

    def _know(self, name: str, address: str) -> None:
        """Let an operator that was here shake hands again, however many strangers do."""
        number = self._known.setdefault(name, len(self._known))
        self._entrance.door.know(number, address)

    async def _answer(self, name: str, question: Question) -> Answer:
        """Return the answer to a question of an operator."""
        desk = self._desk
        if isinstance(question, words.Status):
            return words.Standing({**desk.facts(), "operator_door": dict(self.counts)})
        if isinstance(question, words.Logs):
            return desk.lines.since(question.after, question.since_s, question.level)
        if isinstance(question, words.Stop):
            self._logger.say("operator stop", operator=name)
            desk.stop(f"operator {name}")
            return words.Stopping()
        if isinstance(question, words.Hold):
            self._logger.say("operator collects", operator=name)
            return await self._read_files(self._hold)
        return await self._read_files(lambda: self._part(question))

    async def _read_files(self, work: Callable[[], Answer]) -> Answer:
        """Let the reading thread do something; what the disk refuses is told."""
        loop = asyncio.get_running_loop()
        self._reader = self._reader or ThreadPoolExecutor(1, "operator")
        if self._held_until is not None:
            self._held_until.cancel()
        try:
            return await loop.run_in_executor(self._reader, work)
        except OSError as error:
            return Refused("disk", f"the node's disk refused: {error.strerror}")
        finally:
            self._held_until = loop.call_later(HELD_S, self._reader.submit, self._let_go)

    # -- what the reading thread does --------------------------------------------------------------

    def _hold(self) -> Answer:
        self._let_go()
        desk = self._desk
        self._held = held = HeldFiles(desk.folder, desk.task)
        return words.Held(held.token, desk.run, desk.label, desk.seed, list(held.files))

    def _part(self, question: words.Read) -> Answer:
        held = self._held
        if held is None or held.token != question.held:
            return Refused("held", "these files are held no longer; ask for them anew")
        found = held.read(question.name, question.offset, question.length)
        return found if isinstance(found, Refused) else words.Part(found)

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
        self._held = None
