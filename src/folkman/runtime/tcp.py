"""Plain TCP with TLS 1.3, in the asyncio loop of whoever opens it.

One connection a pair: the node with the smaller number dials, and redials for ever. After the
handshake both sides say hello with run and number, which must be the number of the certificate's
name. Then frames, little-endian:

    kind u8, length u32, content of at most 65536 bytes
    0 hello    magic "FLKM", version u16, run u64, node u32
    1 part     of a parameter message, more follows           2 last part of it
    3 control  a control message, whole                       4 ping, empty, after 2 s of silence

Parameters travel in parts so that control never waits behind a megabyte. A link on which nothing
was heard for 15 s is dropped; all links are looked at every 2 s. Without certificates (asked for by
name) the same frames go over plain TCP.

Whoever connects speaks first, with TLS or the hello; `folkman.runtime.entrance` lets them in.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial

from folkman.runtime.control import LARGEST_BYTES
from folkman.runtime.door import Door
from folkman.runtime.entrance import Address, Contexts, Entrance, Reader, connected, let_go
from folkman.runtime.transport import MOST_CONTROL, Events, Security

__all__ = ["Address", "TcpTransport"]

HELLO, PART, LAST, CONTROL, PING = range(5)
PART_BYTES = 65536
PING_S, SILENCE_S, HANDSHAKE_S = 2.0, 15.0, 10.0
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
        self.link: _Link | None = None
        self.idle: _Link | None = None  # it, if nothing of its own is under way
        self.pings = False  # is a ping to be sent?
        self.sent_s = 0.0  # when a frame last went out


class _Link(asyncio.Protocol):
    """A connection whose two ends have greeted: frames come out of it, and it is full or not.

    `taken` is called with kind and content of each frame, from within the loop: no task is woken.
    """

    def __init__(
        self, transport: asyncio.WriteTransport, taken: "Callable[[_Link, int, bytes], None]"
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.transport, self._taken = transport, taken
        self.heard_s = self._loop.time()
        self.parts = bytearray()  # of a parameter message
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._rest = bytearray()  # a frame whose end has not come yet

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole now."""
        self.heard_s = self._loop.time()
        held, at = self._rest, 0
        held += data
        try:
            while len(held) - at >= _FRAME.size and not self.ended.done():
                kind, length = _FRAME.unpack_from(held, at)
                _check_length(length)
                begin = at + _FRAME.size
                if len(held) < begin + length:
                    break
                at = begin + length
                self._taken(self, kind, bytes(held[begin:at]))
        except _RefusalError as error:
            self._end(error)
        del held[:at]

    def eof_received(self) -> None:
        """Take notice that the other end says nothing more."""
        self._end(EOFError())

    def connection_lost(self, exc: Exception | None) -> None:
        """Take notice that nothing comes any more."""
        self._end(exc or EOFError())

    def pause_writing(self) -> None:
        """Let what is to be written wait."""
        self.has_room.clear()

    def resume_writing(self) -> None:
        """Let it go on."""
        self.has_room.set()

    def give_up(self) -> None:
        """Let go of the connection, also of one that has ended without a word."""
        self.transport.abort()
        self._end(EOFError())

    def _end(self, why: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(why)


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
        self._peers: dict[int, _Peer] = {}
        self._up: frozenset[int] = frozenset()
        self._due: dict[_Peer, None] = {}  # those with something new that waits for them
        self._entrance = Entrance(
            listen,
            Door(),
            lambda reader, writer: self._meet(reader, writer, None),
            lambda reason, text: self._events.refused(reason, text),
            limit_bytes=2 * PART_BYTES,
        )
        self.counts: Counter[str] = self._entrance.counts
        self._tls = Contexts(security.identity) if security is not None else None

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
        self._soon(box)

    def tell(self, peer: int, data: bytes) -> None:
        """Send a control message."""
        box = self._peers[peer]
        if box.link is None:
            return
        if len(box.control) >= MOST_CONTROL:
            box.control.popleft()
            self.counts["dropped_control"] += 1
        box.control.append(data)
        self._soon(box)

    def links(self) -> frozenset[int]:
        """Return the peers whose links are up."""
        return self._up

    def revalidate(self) -> None:
        """Drop the links to those who are no longer members."""
        for number, peer in self._peers.items():
            if (
                peer.link is not None
                and self._security
                and not self._security.members.allowed(number)
            ):
                self._events.refused(
                    "member", f"node {number} is no longer a member; its link is closed"
                )
                peer.link.give_up()

    def _start(self) -> None:
        self._loop.set_exception_handler(self._complain)
        self._entrance.open()
        for number, address in self._addresses.items():
            self._entrance.door.know(number, address[0])
            if self.me < number:
                self._entrance.spawn(self._dial(number, address))
        self._entrance.spawn(self._watch())

    async def close(self) -> None:
        """Stop listening, and end every task."""
        await self._entrance.close()

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

    async def _watch(self) -> None:
        """Ping those to whom nothing was sent for a while; drop the links of those who are silent.

        One look at all links costs less than a timer for each frame.
        """
        while True:
            await asyncio.sleep(PING_S)
            now_s = self._loop.time()
            for peer in self._peers.values():
                if peer.link is None:
                    continue
                if now_s - peer.link.heard_s > SILENCE_S:
                    peer.link.give_up()
                elif now_s - peer.sent_s >= PING_S:
                    peer.pings = True
                    self._soon(peer)

    async def _dial(self, number: int, address: Address) -> None:
        """Connect, talk until the link breaks, and connect again."""
        wait_s = FIRST_REDIAL_S
        while True:
            try:
                work = connected(address, 2 * PART_BYTES)
                reader, writer = await asyncio.wait_for(work, HANDSHAKE_S)
                if await self._meet(reader, writer, number):
                    wait_s = FIRST_REDIAL_S
            except ssl.SSLError as error:
                self._events.refused(
                    "handshake", f"node {number} at {address[0]}:{address[1]}: {error}"
                )
                let_go(error)
            except (OSError, TimeoutError) as error:
                self.counts["redials"] += 1
                let_go(error)
            spread = random.uniform(0.75, 1.25)  # noqa: S311 - only to spread redials
            await asyncio.sleep(wait_s * spread)
            wait_s = min(2 * wait_s, LAST_REDIAL_S)

    async def _meet(
        self, reader: Reader, writer: asyncio.StreamWriter, dialled: int | None
    ) -> bool:
        """Go over to TLS if there are certificates, talk, and let go of the socket.

        Return whether they greeted.
        """
        from folkman.runtime.identity import name_of

        raw = writer.transport
        try:
            kind = ssl.PROTOCOL_TLS_SERVER if dialled is None else ssl.PROTOCOL_TLS_CLIENT
            if self._tls is not None:
                name = None if dialled is None else name_of(dialled)
                await writer.start_tls(
                    self._tls.of(kind), server_hostname=name, ssl_handshake_timeout=HANDSHAKE_S
                )
            return await self._talk(reader, writer, dialled)
        finally:
            raw.abort()

    async def _talk(
        self, reader: Reader, writer: asyncio.StreamWriter, dialled: int | None
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
                self._entrance.door.leave(asyncio.current_task())
            self._entrance.door.know(number, (writer.get_extra_info("peername") or ("",))[0])
            await self._serve(number, reader, writer.transport)
        except _RefusalError as error:
            self._events.refused(error.reason, str(error))
            let_go(error)
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError) as error:
            let_go(error)  # the link broke: redialled by whoever dialled
        finally:
            writer.transport.abort()
        return greeted

    async def _greeting(
        self, reader: Reader, writer: asyncio.StreamWriter, dialled: int | None
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
                "run",
                f"node {number} is in run {run:016x}, we in {self._run:016x}; give both the same "
                "configuration, label, seed and version of folkman",
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

    async def _serve(self, number: int, reader: Reader, transport: asyncio.WriteTransport) -> None:
        peer, link = self._peers[number], _Link(transport, partial(self._take, number))
        if peer.link is not None:  # a half-open one: the peer has dialled anew
            peer.link.give_up()
        peer.link, peer.sent_s = link, self._loop.time()
        writing = self._loop.create_task(self._write(peer, link))
        try:
            self._note_link(number, up=True)
            transport.set_protocol(link)
            link.data_received(await reader.rest())  # what came with the greeting
            reader.gone.add_done_callback(lambda _: link.eof_received())
            await link.ended
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            if peer.link is link:
                peer.link = None
                peer.control.clear()
                self._note_link(number, up=False)

    def _note_link(self, number: int, *, up: bool) -> None:
        self._up = self._up | {number} if up else self._up - {number}
        self._events.linked(number, up)

    def _take(self, number: int, link: _Link, kind: int, content: bytes) -> None:
        """Take a frame of a neighbour."""
        self.counts["bytes_received"] += len(content) + _FRAME.size
        if kind == CONTROL:
            self._events.told(number, content)
        elif kind in (PART, LAST):
            parts = link.parts
            parts += content
            if len(parts) > self._largest_bytes:
                raise _RefusalError(
                    "length", f"node {number} sent more than {self._largest_bytes} bytes at once"
                )
            if kind == LAST:
                self._events.received(number, bytes(parts))
                parts.clear()
        elif kind != PING:
            raise _RefusalError("frame", f"node {number} sent a frame of kind {kind}")

    def _soon(self, peer: _Peer) -> None:
        """Let what waits for a neighbour go out when the loop comes round."""
        if not self._due:
            self._loop.call_soon(self._send_due)
        self._due[peer] = None

    def _send_due(self) -> None:
        """Send what waits in one write each; what is long, or must wait, is its task's."""
        due, self._due = self._due, {}
        for peer in due:
            link = peer.idle
            if link is None or not _takes(peer, link) or len(peer.slot or b"") > PART_BYTES:
                peer.something.set()
                continue
            self._put(peer, link, _waiting(peer))
            if not link.has_room.is_set():
                peer.something.set()  # the task waits until there is room

    def _put(self, peer: _Peer, link: _Link, frame: bytes) -> None:
        link.transport.write(frame)
        peer.sent_s = self._loop.time()
        self.counts["bytes_sent"] += len(frame)

    async def _write(self, peer: _Peer, link: _Link) -> None:
        """Send what is long, part by part, and whatever has come while that was under way."""
        current: memoryview | None = None
        try:
            while True:
                await link.has_room.wait()
                if not _takes(peer, link):
                    return
                if current is not None and not peer.control:
                    kind = LAST if len(current) <= PART_BYTES else PART
                    frame, rest = _framed(kind, current[:PART_BYTES]), current[PART_BYTES:]
                    current = rest if kind == PART else None
                elif current is None and len(peer.slot or b"") > PART_BYTES:
                    whole, peer.slot = peer.slot, None
                    current = memoryview(whole or b"")
                    continue
                elif not (frame := _waiting(peer, with_slot=current is None)):
                    peer.something.clear()
                    peer.idle = link
                    await peer.something.wait()
                    peer.idle = None
                    continue
                self._put(peer, link, frame)
        finally:
            if peer.idle is link:
                peer.idle = None
            if current is not None and peer.slot is None:
                peer.slot = bytes(
                    current.obj
                )  # cut in the middle: the whole of it is still the newest
                peer.something.set()


def _takes(peer: _Peer, link: _Link) -> bool:
    """Tell whether a link may have what waits: one that was replaced leaves it to its successor."""
    return peer.link is link and not link.ended.done()


def _waiting(peer: _Peer, *, with_slot: bool = True) -> bytes:
    """Return all that waits for a neighbour and fits one part, control first; take it away."""
    frames = [_framed(CONTROL, each) for each in peer.control]
    peer.control.clear()
    if with_slot and peer.slot is not None:
        frames.append(_framed(LAST, peer.slot))
        peer.slot = None
    elif peer.pings and not frames:
        frames.append(_framed(PING, b""))
    peer.pings = False
    return b"".join(frames)


async def _frame(reader: Reader) -> tuple[int, bytes]:
    kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
    _check_length(length)
    return kind, await reader.readexactly(length) if length else b""


def _check_length(length: int) -> None:
    if length > max(PART_BYTES, LARGEST_BYTES):
        raise _RefusalError(
            "frame", f"expected a frame of at most {PART_BYTES} bytes, got {length}"
        )


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
