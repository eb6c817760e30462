"""One look at the folder for all visitors: news are read once and handed to everyone.

A visitor who cannot keep up loses news, never memory: when his queue is full it is emptied, and he
is told everything anew.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from folkman.record.json_file import Json

__all__ = ["Hub", "Source"]

BUSY_S, IDLE_S = 0.02, 0.2
"""Seconds between two looks, while something happens and while nothing does."""
CALM_S = 3.0
MOST_VISITORS = 32
MOST_WAITING = 200
HEARTBEAT_S = 10.0
DAMAGE = (OSError, ValueError, KeyError, TypeError)
"""What reading a damaged folder raises: it is told, and the folder watched on."""


class Source(Protocol):
    """What tells of a folder; both are called from one thread at a time, and never at once."""

    def state(self) -> Json:
        """Return everything, as far as it was looked at."""
        ...

    def poll(self) -> Json | None:
        """Look, and return what is new."""
        ...


class Hub:
    """The watcher of a source and its visitors."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._visitors: set[asyncio.Queue[str | None]] = set()
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch in the background."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def close(self) -> None:
        """End all visits, so that the server can end; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send_away)

    def _send_away(self) -> None:
        for queue in self._visitors:
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)

    async def _watch(self) -> None:
        busy_until = 0.0
        while True:
            async with self._lock:
                news = await asyncio.to_thread(self._news)
                if news is not None:
                    busy_until = time.monotonic() + CALM_S
                    await self._publish(news)
            await asyncio.sleep(BUSY_S if time.monotonic() < busy_until else IDLE_S)

    def _news(self) -> str | None:
        try:
            found = self.source.poll()
        except DAMAGE as error:
            found = {"trouble": str(error)}
        return None if found is None else _event("news", found)

    async def _publish(self, text: str) -> None:
        for queue in list(self._visitors):
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(await asyncio.to_thread(self._everything))
            else:
                queue.put_nowait(text)

    def _everything(self) -> str:
        try:
            return _event("state", self.source.state())
        except DAMAGE as error:
            return _event("news", {"trouble": str(error)})

    @property
    def is_full(self) -> bool:
        """Tell whether no more visitors are let in."""
        return len(self._visitors) >= MOST_VISITORS

    async def events(self) -> AsyncIterator[str]:
        """Tell one visitor everything, and then what is new, for as long as he stays."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)
        async with self._lock:
            queue.put_nowait(await asyncio.to_thread(self._everything))
            self._visitors.add(queue)
        try:
            yield "retry: 1000\n\n"
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), HEARTBEAT_S)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self._visitors.discard(queue)


def _event(kind: str, content: Json) -> str:
    return f"event: {kind}\ndata: {json.dumps(content, allow_nan=False, separators=(',', ':'))}\n\n"
