"""An operator's side: a line to a node, and one question to many nodes at a time.

What a node answers is taken as a stranger's word: bounded, checked, and never obeyed. A node is the
one that was dialled if its certificate has that name and is the one last issued to it.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, NamedTuple, TypeVar

from folkman.runtime.entrance import Address
from folkman.runtime.fleet import words
from folkman.runtime.fleet.words import Answer, Question, Refused
from folkman.runtime.identity import Members, number_of
from folkman.runtime.operators import OperatorFiles

__all__ = ["BrokenError", "CallError", "Called", "Line", "ask_each", "dialled"]

AT_ONCE = 32
"""Nodes that are asked at the same time."""
AGAIN_S = 0.4
"""Until a node is dialled again that hung up."""
Found = TypeVar("Found")


class CallError(Exception):
    """A node that did not answer as asked, in a sentence."""


class BrokenError(CallError):
    """A line that broke, or was silent for too long: another attempt may go on."""


class Called(NamedTuple, Generic[Found]):
    """What a node answered, or why it did not."""

    node: str
    address: str
    found: Found | None
    why: str
    broken: bool = False  # it may go better next time


class Line:
    """A connection to one node."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        patience_s: float,
    ) -> None:
        self._reader, self._writer, self._patience_s = reader, writer, patience_s

    async def ask(self, question: Question) -> Answer:
        """Return the answer to a question; a refusal and a broken line are a CallError."""
        try:
            async with asyncio.timeout(self._patience_s):
                self._writer.write(words.frame(question))
                await self._writer.drain()
                head = await self._reader.readexactly(words.HEAD_BYTES)
                length = words.length_of(head, words.MOST_ANSWER_BYTES)
                found = words.answer_of(await self._reader.readexactly(length))
        except words.WordsError as error:
            raise CallError(f"the node answers nonsense: {error}") from None
        except TimeoutError:
            raise BrokenError(f"no answer within {self._patience_s:g} s") from None
        except ssl.SSLError as error:
            raise CallError(_refusal(error)) from None
        except (OSError, EOFError) as error:
            raise BrokenError(
                f"the node hung up ({type(error).__name__}): it does not take this certificate, or "
                "has just ended; see its log"
            ) from None
        if isinstance(found, Refused):
            raise CallError(f"refused ({found.reason[:32]}): {found.text[:500]}")
        return found


@asynccontextmanager
async def dialled(
    name: str, place: Address, files: OperatorFiles, patience_s: float
) -> AsyncIterator[Line]:
    """Connect to a node under an operator's certificate; whatever fails is a CallError."""
    reader, writer = await _connected(name, place, files, patience_s)
    try:
        _check(name, writer, files)
        yield Line(reader, writer, patience_s)
    finally:
        writer.transport.abort()


async def _connected(
    name: str, place: Address, files: OperatorFiles, patience_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Dial; again after a moment where the node lets nobody more in just now."""
    context = files.context()
    context.set_alpn_protocols([words.PROTOCOL])
    end_s = time.monotonic() + patience_s
    while True:
        work = asyncio.open_connection(
            *place, ssl=context, server_hostname=name, limit=2 * words.PART_BYTES
        )
        try:
            return await asyncio.wait_for(work, max(0.0, end_s - time.monotonic()))
        except TimeoutError:
            text = f"no answer within {patience_s:g} s; is the board on the network?"
            raise CallError(text) from None
        except ConnectionRefusedError:
            text = "nobody listens there; does the node run, with [operator] in its file?"
            raise CallError(text) from None
        except (ConnectionError, ssl.SSLEOFError):  # too many strangers are at its door
            if time.monotonic() + AGAIN_S > end_s:
                raise CallError("it hung up before the handshake; is its door busy?") from None
        except ssl.SSLError as error:
            raise CallError(_refusal(error)) from None
        except OSError as error:
            raise CallError(f"cannot be reached: {error.strerror or error}") from None
        await asyncio.sleep(AGAIN_S)


def _check(name: str, writer: asyncio.StreamWriter, files: OperatorFiles) -> None:
    """Refuse a node that speaks otherwise, or whose certificate is revoked or an old one."""
    if writer.get_extra_info("ssl_object").selected_alpn_protocol() != words.PROTOCOL:
        raise CallError("this is not a door for operators; check the port")
    members = Members(files.members, files.ca)
    serial = (writer.get_extra_info("peercert") or {}).get("serialNumber", "0")
    number = number_of(name)
    if not members.allowed(number) or not members.is_current(number, serial):
        raise CallError(
            "its certificate is revoked, or not the one last issued; is members.json here the "
            "newest?"
        )


def _refusal(error: ssl.SSLError) -> str:
    """Return what TLS complains of, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not hold here: {error.verify_message}"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:
        return f"it refuses this operator's certificate: {reason}; expired, or of other authority?"
    return f"TLS failed: {reason}"


async def ask_each(
    nodes: dict[str, Address],
    files: OperatorFiles,
    patience_s: float,
    ask: Callable[[str, Line], Awaitable[Found]],
) -> "list[Called[Found]]":
    """Let `ask` talk to every node, many at a time; return what came of it, in their order."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, place: Address) -> "Called[Found]":
        address = f"{place[0]}:{place[1]}"
        async with places:
            try:
                async with dialled(name, place, files, patience_s) as line:
                    return Called(name, address, await ask(name, line), "")
            except CallError as error:
                return Called(name, address, None, str(error), isinstance(error, BrokenError))

    return await asyncio.gather(*(one(name, place) for name, place in nodes.items()))
