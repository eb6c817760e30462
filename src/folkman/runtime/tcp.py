"""Plain TCP with TLS 1.3, in the asyncio loop of whoever opens it.

One connection a pair: the node with the smaller number dials, and redials for ever. After the
handshake both sides say hello with run and number, which must be the number of the certificate's
name. Then frames, little-endian:

    kind u8, length u32, content of at most 65536 bytes
    0 hello    magic "FLKM", version u16, run u64, node u32
    1 part     of a parameter message, more follows           2 last part of it
    3 control  a control message, whole                       4 ping, empty, after 2 s of silence

Parameters travel in parts so that control never waits behind a megabyte. A link on which nothing
was heard for 15 s is dropped. Without certificates (asked for by name) the same frames go over
plain TCP.

Whoever connects speaks first, with TLS or the hello. Strangers that say nothing for 2 s are
dropped before anything is computed for them; `folkman.runtime.door` says who has to go when there
are many.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from typing import TypeAlias

from folkman.runtime.control import LARGEST_BYTES
from folkman.runtime.door import Door
from folkman.runtime.transport import MOST_CONTROL, Events, Security

__all__ = ["Address", "TcpTransport"]

Address: TypeAlias = tuple[str, int]
HELLO, PART, LAST, CONTROL, PING = range(5)
PART_BYTES = 65536
PING_S, SILENCE_S, HANDSHAKE_S = 2.0, 15.0, 10.0
FIRST_WORD_S = 2.0
"""A stranger that has not sent a byte by then is dropped."""
NO_HANDLES_S = 1.0
"""How long nobody is let in when the process has no file handles left."""
FIRST_REDIAL_S, LAST_REDIAL_S = 0.1, 2.0
_FRAME = struct.Struct("<BI")
_HELLO = struct.Struct("<4sHQI")
MAGIC, VERSION = b"FLKM", 1
NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


class _RefusalError(Exception):
    """A peer that is not let in; `reason` is one word."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class _Peer:
    """What waits for one neighbour, and its connection if there is one."""

    def __init__(self) -> None:
        self.slot: bytes | None = None
        self.control: deque[bytes] = deque()
        self.something = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None


class TcpTransport:
    """See the module. `addresses` are those of the peers to dial.

    `largest_bytes` bounds a parameter message.
    """

    def __init__(
        self,
        me: int,
        listen: Address,
        addresses: Mapping[int, Address],
        *,
        run: int,
        largest_bytes: int,
        security: Security | None,
    ) -> None:
        self.me, self._listen, self._addresses = me, listen, dict(addresses)
        self._run, self._largest_bytes, self._security = run, largest_bytes, security
        self.counts: Counter[str] = Counter()
        self._peers: dict[int, _Peer] = {}
        self._up: frozenset[int] = frozenset()
        self._tasks: set[asyncio.Task] = set()
        self._listening: socket.socket | None = None
        self._door = Door()
        self._tls: dict[int, tuple[tuple[int, ...], ssl.SSLContext]] = {}  # by kind: age, context
        self._closing = False

    async def open(self, events: Events) -> None:
        """Listen, and dial the peers with larger numbers."""
        self._events, self._loop = events, asyncio.get_running_loop()
        self._peers = {peer: _Peer() for peer in self._addresses}
        try:
            self._start()
        except OSError as error:
            host, port = self._listen
            text = (
                f"cannot listen on {host}:{port}: {error.strerror}; "
                "choose another address, or wait for this one"
            )
            raise OSError(error.errno, text) from None

    def publish(self, peer: int, data: bytes) -> None:
        """Send parameters."""
        box = self._peers[peer]
        self.counts["overwritten"] += box.slot is not None
        box.slot = data
        box.something.set()

    def tell(self, peer: int, data: bytes) -> None:
        """Send a control message."""
        box = self._peers[peer]
        if box.writer is None:
            return
        if len(box.control) >= MOST_CONTROL:
            box.control.popleft()
            self.counts["dropped_control"] += 1
        box.control.append(data)
        box.something.set()

    def links(self) -> frozenset[int]:
        """Return the peers whose links are up."""
        return self._up

    def revalidate(self) -> None:
        """Drop the links to those who are no longer members."""
        for number, peer in self._peers.items():
            if (
                peer.writer is not None
                and self._security
                and not self._security.members.allowed(number)
            ):
                self._events.refused(
                    "member", f"node {number} is no longer a member; its link is closed"
                )
                peer.writer.transport.abort()

    def _start(self) -> None:
        self._loop.set_exception_handler(self._complain)
        host, port = self._listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=256)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._let_in)
        for number, address in self._addresses.items():
            self._door.know(number, address[0])
            if self.me < number:
                self._spawn(self._dial(number, address))

    async def close(self) -> None:
        """Stop listening, and end every task.

        They are cancelled until they end: before Python 3.12 `wait_for` forgets it if what it waits
        for has just come.
        """
        self._closing = True
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=0.1)
        await asyncio.sleep(0)  # for what was aborted to let go of its socket

    def _spawn(self, work: Coroutine[object, None, None]) -> asyncio.Task:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Count what asyncio reports of a connection, as a handshake that failed.

        Nothing of it ends the node.
        """
        del loop
        error = context.get("exception")
        if isinstance(error, OSError):  # ssl.SSLError is one
            self._events.refused("handshake", f"{type(error).__name__}: {error}")
        elif error is not None:
            self._events.refused("internal", f"{context.get('message')}: {error!r}")

    def _context(self, kind: int) -> ssl.SSLContext | None:
        if self._security is None:
            return None
        identity = self._security.identity
        paths = (identity.ca, identity.certificate, identity.key)
        age = tuple(path.stat().st_mtime_ns for path in paths)  # they may have been renewed
        if kind in self._tls and self._tls[kind][0] == age:
            return self._tls[kind][1]
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(identity.ca)
        context.load_cert_chain(identity.certificate, identity.key)
        self._tls[kind] = age, context
        return context

    async def _dial(self, number: int, address: Address) -> None:
        """Connect, talk until the link breaks, and connect again."""
        wait_s = FIRST_REDIAL_S
        while True:
            try:
                work = asyncio.open_connection(*address, limit=2 * PART_BYTES)
                reader, writer = await asyncio.wait_for(work, HANDSHAKE_S)
                if await self._meet(reader, writer, number):
                    wait_s = FIRST_REDIAL_S
            except ssl.SSLError as error:
                self._events.refused(
                    "handshake", f"node {number} at {address[0]}:{address[1]}: {error}"
                )
            except (OSError, TimeoutError):
                self.counts["redials"] += 1
            spread = random.uniform(0.75, 1.25)  # noqa: S311 - only to spread redials
            await asyncio.sleep(wait_s * spread)
            wait_s = min(2 * wait_s, LAST_REDIAL_S)

    def _let_in(self) -> None:
        """Give everybody who has connected a place at the door."""
        assert self._listening is not None  # noqa: S101 - only then it is called
        while True:
            try:
                stranger, place = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:  # no handles are left: look again later
                self._events.refused("handles", f"nobody can be let in: {error.strerror}")
                self._loop.remove_reader(self._listening)
                self._loop.call_later(NO_HANDLES_S, self._open_again)
                return
            stranger.setblocking(False)
            task = self._spawn(self._meet_stranger(stranger, place[0]))
            task.add_done_callback(lambda _, gone=stranger: gone.close())  # it may never begin
            goes = self._door.enter(task, place[0])
            if isinstance(goes, asyncio.Task):
                self.counts["turned_away"] += 1
                goes.cancel()

    def _open_again(self) -> None:
        if not self._closing and self._listening is not None:
            self._loop.add_reader(self._listening, self._let_in)

    async def _meet_stranger(self, stranger: socket.socket, host: str) -> None:
        """Wait for the first word of somebody who has connected, then greet."""
        try:
            if not await self._speaks(stranger):
                self.counts["silent_strangers"] += 1
                return
            if not self._door.may_shake_hands(host, self._loop.time()):
                self.counts["turned_away"] += 1
                return
            reader, writer = await self._streams(stranger)
            await self._meet(reader, writer, None)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._events.refused("handshake", f"{host}: {type(error).__name__}: {error}")
        except asyncio.CancelledError:
            pass  # closing, or another one has its place
        finally:
            self._door.leave(asyncio.current_task())

    async def _speaks(self, stranger: socket.socket) -> bool:
        """Return whether a stranger sends something within its time, and leave it unread."""
        spoke = self._loop.create_future()
        self._loop.add_reader(stranger, lambda: spoke.done() or spoke.set_result(None))
        try:
            async with asyncio.timeout(FIRST_WORD_S):
                await spoke
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(stranger)
        return True

    async def _streams(
        self, stranger: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams of a socket that was accepted; `start_tls` then serves."""
        met: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        met = self._loop.create_future()
        reader = asyncio.StreamReader(limit=2 * PART_BYTES, loop=self._loop)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            met.set_result((reader, writer))

        await self._loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader, connected, loop=self._loop), stranger
        )
        return await met

    async def _meet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialled: int | None
    ) -> bool:
        """Go over to TLS if there are certificates, talk, and let go of the socket.

        Return whether they greeted.
        """
        from folkman.runtime.identity import name_of

        raw = writer.transport
        try:
            kind = ssl.PROTOCOL_TLS_SERVER if dialled is None else ssl.PROTOCOL_TLS_CLIENT
            context = self._context(kind)
            if context is not None:
                name = None if dialled is None else name_of(dialled)
                await writer.start_tls(
                    context, server_hostname=name, ssl_handshake_timeout=HANDSHAKE_S
                )
            return await self._talk(reader, writer, dialled)
        finally:
            raw.abort()

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialled: int | None
    ) -> bool:
        """Greet, then read and write until the link breaks; tell whether the greeting went well."""
        number, greeted = None, False
        try:
            _tune(writer)
            writer.write(
                _FRAME.pack(HELLO, _HELLO.size) + _HELLO.pack(MAGIC, VERSION, self._run, self.me)
            )
            number = await asyncio.wait_for(self._greeting(reader, writer, dialled), HANDSHAKE_S)
            greeted = True
            if dialled is None:
                self._door.leave(asyncio.current_task())
            self._door.know(number, (writer.get_extra_info("peername") or ("",))[0])
            await self._serve(number, reader, writer)
        except _RefusalError as error:
            self._events.refused(error.reason, str(error))
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the link broke: redialled by whoever dialled
        finally:
            if number is not None and self._peers[number].writer is writer:
                self._peers[number].writer = None
                self._peers[number].control.clear()
                self._note_link(number, up=False)
            writer.transport.abort()
        return greeted

    async def _greeting(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialled: int | None
    ) -> int:
        """Return who is at the other end, by hello and certificate, or refuse it."""
        kind, content = await _frame(reader)
        if kind != HELLO or len(content) != _HELLO.size:
            raise _RefusalError(
                "hello", f"expected a hello, got a frame of kind {kind} and {len(content)} bytes"
            )
        magic, version, run, number = _HELLO.unpack(content)
        if (magic, version) != (MAGIC, VERSION):
            raise _RefusalError(
                "hello", f"expected hello {MAGIC!r} {VERSION}, got {magic!r} {version}"
            )
        if run != self._run:
            raise _RefusalError(
                "run", f"node {number} is in run {run:016x}, we in {self._run:016x}"
            )
        if number not in self._peers or dialled not in (None, number):
            raise _RefusalError(
                "sender", f"a node that calls itself {number} is none of our neighbours here"
            )
        if self._security is not None:
            shown = writer.get_extra_info("peercert") or {}
            name = dict(pair for group in shown.get("subject", ()) for pair in group).get(
                "commonName", ""
            )
            known = self._security.members.node_called(name)
            if known != number or not self._security.members.is_current(
                number, shown.get("serialNumber", "0")
            ):
                raise _RefusalError(
                    "member",
                    f"certificate '{name}' says node {number}; it is not, or no longer, a member",
                )
        return number

    async def _serve(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = self._peers[number]
        if peer.writer is not None:  # a half-open one: the peer has dialled anew
            peer.writer.transport.abort()
        peer.writer = writer
        self._note_link(number, up=True)
        writing = self._loop.create_task(self._write(peer, writer))
        try:
            await self._read(number, reader)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def _note_link(self, number: int, *, up: bool) -> None:
        self._up = self._up | {number} if up else self._up - {number}
        self._events.linked(number, up)

    async def _read(self, number: int, reader: asyncio.StreamReader) -> None:
        parts = bytearray()
        while True:
            async with asyncio.timeout(SILENCE_S):  # unlike `wait_for` it makes no task of its own
                kind, content = await _frame(reader)
            self.counts["bytes_received"] += len(content) + _FRAME.size
            if kind == CONTROL:
                self._events.told(number, content)
            elif kind in (PART, LAST):
                parts += content
                if len(parts) > self._largest_bytes:
                    raise _RefusalError(
                        "length",
                        f"node {number} sent more than {self._largest_bytes} bytes at once",
                    )
                if kind == LAST:
                    self._events.received(number, bytes(parts))
                    parts = bytearray()
            elif kind != PING:
                raise _RefusalError("frame", f"node {number} sent a frame of kind {kind}")

    async def _write(self, peer: _Peer, writer: asyncio.StreamWriter) -> None:
        current: memoryview | None = None
        try:
            while (
                peer.writer is writer
            ):  # one that was replaced must not take what is for its successor
                if peer.control:
                    waiting, peer.control = peer.control, deque()
                    frame = b"".join(_framed(CONTROL, each) for each in waiting)
                elif current is not None:
                    kind = LAST if len(current) <= PART_BYTES else PART
                    frame, rest = _framed(kind, current[:PART_BYTES]), current[PART_BYTES:]
                    current = rest if kind == PART else None
                elif peer.slot is not None:
                    whole, peer.slot = peer.slot, None
                    current = memoryview(whole)
                    continue
                else:
                    frame = await _idle(peer)
                    if not frame:
                        continue
                writer.write(frame)
                self.counts["bytes_sent"] += len(frame)
                await writer.drain()
        finally:
            if current is not None and peer.slot is None:
                peer.slot = bytes(
                    current.obj
                )  # cut in the middle: the whole of it is still the newest
                peer.something.set()


async def _idle(peer: _Peer) -> bytes:
    """Wait for something to send; a ping after a silence."""
    peer.something.clear()
    if peer.control or peer.slot is not None:
        return b""
    try:
        async with asyncio.timeout(PING_S):
            await peer.something.wait()
    except TimeoutError:
        return _framed(PING, b"")
    return b""


async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    if length > max(PART_BYTES, LARGEST_BYTES):
        raise _RefusalError(
            "frame", f"expected a frame of at most {PART_BYTES} bytes, got {length}"
        )
    return kind, await reader.readexactly(length) if length else b""


def _framed(kind: int, content: bytes | memoryview) -> bytes:
    return _FRAME.pack(kind, len(content)) + bytes(content)


def _tune(writer: asyncio.StreamWriter) -> None:
    """Keep little in the kernel: what waits there cannot be overwritten by something newer."""
    writer.transport.set_write_buffer_limits(high=PART_BYTES)
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.IPPROTO_TCP, NOTSENT_LOWAT, 2 * PART_BYTES)
