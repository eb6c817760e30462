"""Where others come in: a listening socket, places for strangers, their first word, TLS.

Whoever connects speaks first. Strangers that say nothing for 2 s are dropped before anything is
computed for them; `folkman.runtime.door` says who has to go when there are many, and how many may
shake hands. All of it runs in the loop of whoever opens it, and nothing in it waits for a stranger.
"""

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeAlias

from folkman.runtime.door import Door
from folkman.runtime.identity import Identity

__all__ = [
    "Address",
    "Contexts",
    "Entrance",
    "Reader",
    "Streams",
    "connected",
    "let_go",
    "read_little",
]

Address: TypeAlias = tuple[str, int]
Meet: TypeAlias = Callable[["Reader", asyncio.StreamWriter], Awaitable[object]]

FIRST_WORD_S = 2.0
"""A stranger that has not sent a byte by then is dropped."""
READ_BYTES = 65536
"""What each TLS connection of a node's process holds to read into.

With asyncio's own choice, 256 KiB, 15 neighbours take 3.75 MiB, and 64 strangers 16."""
NO_HANDLES_S = 1.0
"""How long nobody is let in when the process has no file handles left."""


class Reader(asyncio.StreamReader):
    """A reader that tells when the other end is gone, to whoever has taken its transport over too.

    asyncio tells the protocol that a transport had as the connection ended. If the next protocol is
    set just then, nobody else hears of it.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.gone: asyncio.Future[None] = loop.create_future()

    def feed_eof(self) -> None:
        """Take notice that nothing more comes."""
        self._note_gone()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        """Take notice that the connection broke."""
        self._note_gone()
        super().set_exception(exc)

    async def rest(self) -> bytes:
        """Return what has come and was not read, at once; the transport is another's by now.

        Nothing is left of a connection that broke: `gone` tells of it.
        """
        super().feed_eof()
        return b"" if self.exception() else await self.read()

    def _note_gone(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


Streams: TypeAlias = tuple[Reader, asyncio.StreamWriter]


async def connected(place: Address, limit_bytes: int) -> Streams:
    """Connect, and return the streams."""
    loop = asyncio.get_running_loop()
    reader = Reader(limit_bytes, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, *place)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class Contexts:
    """The two sides of TLS 1.3 under a node's certificate, made anew when its files are."""

    def __init__(self, identity: Identity, protocol: str = "") -> None:
        self._identity, self._protocol = identity, protocol
        self._made: dict[int, tuple[tuple[int, ...], ssl.SSLContext]] = {}  # by kind: age, context

    def of(self, kind: int) -> ssl.SSLContext:
        """Return the context of a side; both show a certificate and ask for one."""
        identity = self._identity
        paths = (identity.ca, identity.certificate, identity.key)
        age = tuple(path.stat().st_mtime_ns for path in paths)  # they may have been renewed
        if kind in self._made and self._made[kind][0] == age:
            return self._made[kind][1]
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(identity.ca)
        context.load_cert_chain(identity.certificate, identity.key)
        if self._protocol:
            context.set_alpn_protocols([self._protocol])
        self._made[kind] = age, context
        return context


class Entrance:
    """One listening socket. `meet` is called with the streams of a stranger that has spoken.

    `refused` is told why somebody was not let in.
    """

    def __init__(
        self,
        listen: Address,
        door: Door,
        meet: Meet,
        refused: Callable[[str, str], None],
        *,
        limit_bytes: int,
    ) -> None:
        self._listen, self.door, self._meet, self._refused = listen, door, meet, refused
        self._limit_bytes = limit_bytes
        self.counts: Counter[str] = Counter()
        self._tasks: set[asyncio.Task] = set()
        self._listening: socket.socket | None = None
        self._closing = False

    def open(self) -> int:
        """Listen, and return the port; an address that cannot be had is an OSError."""
        self._loop = asyncio.get_running_loop()
        host, port = self._listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, port), family=family, backlog=256)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening, self._let_in)
        return self._listening.getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and end every task."""
        self._closing = True
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
        await cancelled(self._tasks)

    def spawn(self, work: Coroutine[object, None, None]) -> asyncio.Task:
        """Begin a task that ends with the entrance."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _let_in(self) -> None:
        """Give everybody who has connected a place at the door."""
        assert self._listening is not None  # noqa: S101 - only then it is called
        while True:
            try:
                stranger, place = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:  # no handles are left: look again later
                self._refused("handles", f"nobody can be let in: {error.strerror}")
                self._loop.remove_reader(self._listening)
                self._loop.call_later(NO_HANDLES_S, self._open_again)
                return
            stranger.setblocking(False)
            task = self.spawn(self._meet_stranger(stranger, place[0]))
            task.add_done_callback(lambda _, gone=stranger: gone.close())  # it may never begin
            goes = self.door.enter(task, place[0])
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
            if not self.door.may_shake_hands(host, self._loop.time()):
                self.counts["turned_away"] += 1
                return
            reader, writer = await self._streams(stranger)
            await self._meet(reader, writer)
        except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
            self._refused("handshake", f"{host}: {type(error).__name__}: {error}")
            let_go(error)
        except asyncio.CancelledError:
            pass  # closing, or another one has its place
        finally:
            self.door.leave(asyncio.current_task())

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
        return not _hung_up(stranger)

    async def _streams(self, stranger: socket.socket) -> Streams:
        """Return the streams of a socket that was accepted; `start_tls` then serves."""
        met: asyncio.Future[Streams] = self._loop.create_future()
        reader = Reader(self._limit_bytes, self._loop)

        def begun(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            met.set_result((reader, writer))

        await self._loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader, begun, loop=self._loop), stranger
        )
        return await met


def read_little() -> None:
    """Let every TLS connection of this process read into `READ_BYTES`.

    asyncio has one number for all, and makes the buffer before a handshake. So this is for a
    process that is a node and nothing else, not for one that runs nodes beside work of its own.
    """
    SSLProtocol.max_size = READ_BYTES


def let_go(error: BaseException | None) -> None:
    """Break the ring of an error, the frames it came through, and the future that brought it.

    Else the buffers of its connection stay until the garbage collector happens to look.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _hung_up(stranger: socket.socket) -> bool:
    """Tell whether a socket that can be read has come to its end: there is no word to answer.

    A handshake with it would fail, after it has taken an eighth of a megabyte.
    """
    try:
        return not stranger.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def cancelled(tasks: set[asyncio.Task]) -> None:
    """End tasks that take themselves out of a set when they are done.

    They are cancelled until they end: before Python 3.12 `wait_for` forgets it if what it waits for
    has just come.
    """
    while tasks:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.1)
    await asyncio.sleep(0)  # for what was aborted to let go of its socket
