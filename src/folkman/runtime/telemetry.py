"""What a node says of itself: JSON lines, a health file, and an address that answers questions.

The metrics that it answers with are in `folkman.runtime.exposition`.
"""

import asyncio
import json
import os
import re
import resource
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from folkman.machine import resident_bytes
from folkman.record.json_file import Json, Table, write_json
from folkman.runtime.rate_limit import RateLimit

__all__ = [
    "Logger",
    "MetricsServer",
    "answer_to",
    "is_well",
    "process_facts",
    "write_health",
]

REPEAT_S = 5.0
"""An event of one kind and reason is logged at most once in this time; what was left out is
counted."""
FLAPS = {"link": (0.1, 6)}
"""Events that come and go: lines per second, and at once, for each neighbour."""
QUESTION_S, MOST_QUESTION_BYTES, MOST_CALLERS = 2.0, 8192, 16
"""What who asks for metrics may take."""
MOST_UNREAD = 1_000
"""Lines that are kept for a reader of the log that does not read, beside what a pipe holds."""


class Logger:
    """One JSON object a line. An insecure node says so in every one.

    Whoever says something never waits for the reader of the log: a pipe that is full or a terminal
    on hold gets its lines later, and what is beyond `MOST_UNREAD` is left out and counted.
    """

    def __init__(self, node: str, *, insecure: bool, stream: TextIO | None = None) -> None:
        self._head = {"node": node} | (
            {"security": "NONE: insecure was asked for"} if insecure else {}
        )
        self._stream = stream or sys.stderr
        self._descriptor = _descriptor(self._stream)
        self._unread: deque[bytes] = deque()  # of the first, a part may be written
        self._unkept = 0  # lines since there was room
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}
        self._muted: dict[tuple[str, str], int] = {}
        self._limits: dict[tuple[str, str], RateLimit] = {}
        self.listener: Callable[[str], None] | None = None
        """Who else gets each line, whoever reads the log."""

    def say(self, event: str, *, level: str = "info", reason: str = "", **fields: object) -> None:
        """Write a line; a disk that refuses costs the line and nothing else."""
        with self._lock:
            kind = (event, reason or str(fields.get("peer", "")))
            if (reason or (event in FLAPS and "peer" in fields)) and not self._due(kind):
                return
            if len(self._unread) >= MOST_UNREAD:
                self._unkept += 1
                return
            muted = self._muted.pop(kind, 0)
            extra = ({"reason": reason} if reason else {}) | ({"left_out": muted} if muted else {})
            extra |= {"unread": self._unkept} if self._unkept else {}
            stamp = (
                time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
                + f".{time.time_ns() // 10**6 % 1000:03d}Z"
            )
            line = json.dumps(
                {"time": stamp, "level": level, "event": event, **self._head, **extra, **fields}
            )
            self._unkept = 0
            self._unread.append(line.encode() + b"\n")
            if self.listener is not None:
                self.listener(line)
            self._write(0.0)

    def flush(self, patience_s: float = 0.0) -> None:
        """Write what the reader takes now, or within a time."""
        with self._lock:
            self._write(patience_s)

    def _write(self, patience_s: float) -> None:
        """Write lines until one would have to wait; short ones whole, by one call each."""
        end_s = time.monotonic() + patience_s
        while self._unread:
            line = self._unread[0]
            try:
                if self._descriptor is None:
                    self._stream.write(line.decode())
                    self._stream.flush()
                    rest = b""
                elif _takes(self._descriptor, max(0.0, end_s - time.monotonic())):
                    rest = line[os.write(self._descriptor, line[: select.PIPE_BUF]) :]
                else:
                    return
            except BlockingIOError:  # another writer was faster
                return
            except (OSError, ValueError):
                rest = b""
            self._unread[0] = rest
            if not rest:
                self._unread.popleft()

    def _due(self, kind: tuple[str, str]) -> bool:
        now = time.monotonic()
        if kind[0] in FLAPS:
            due = self._limits.setdefault(kind, RateLimit(*FLAPS[kind[0]])).takes(now)
        else:
            due = now - self._last.get(kind, -REPEAT_S) >= REPEAT_S
        if not due:
            self._muted[kind] = self._muted.get(kind, 0) + 1
            return False
        self._last[kind] = now
        return True


def _descriptor(stream: TextIO) -> int | None:
    """Return the number of an open file; None if a stream has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):  # of memory, or closed
        return None


def _takes(descriptor: int, within_s: float) -> bool:
    """Tell whether a write of at most PIPE_BUF bytes would return at once.

    What is broken says so in the write itself.
    """
    asked = select.poll()
    asked.register(descriptor, select.POLLOUT)
    return bool(asked.poll(1000.0 * within_s))


def process_facts() -> Json:
    """Return what a health file says of the process; every key is stable."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    memory_bytes, peak_bytes = resident_bytes()
    return {
        "pid": os.getpid(),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "memory_bytes": memory_bytes,
        "memory_peak_bytes": peak_bytes,
    }


def write_health(path: Path, facts: Table) -> None:
    """Write a health file, with the time.

    A full disk raises an OSError, but leaves a file that is as new as if it had been written: a
    node that runs is not to be taken for one that hangs.
    """
    try:
        write_json(path, {**facts, "written_s": round(time.time(), 3)}, indent=None)
    except OSError:
        with suppress(OSError):
            os.utime(path)
        raise


class MetricsServer:
    """Answers GET /metrics and /health on one address: one thread, few connections.

    A caller has two seconds for its question; of too many callers the oldest is dropped.
    """

    def __init__(self, address: tuple[str, int], facts: Callable[[], Table]) -> None:
        self._facts = facts
        self._callers: dict[asyncio.Task, None] = {}  # oldest first
        self._loop = asyncio.new_event_loop()
        try:
            work = asyncio.start_server(self._serve, *address, limit=MOST_QUESTION_BYTES)
            self._server = self._loop.run_until_complete(work)
        except OSError:
            self._loop.close()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        self._callers[task] = None
        if len(self._callers) > MOST_CALLERS:
            oldest = next(iter(self._callers))
            del self._callers[oldest]
            oldest.cancel()
        try:
            async with asyncio.timeout(QUESTION_S):
                question = await reader.readuntil(b"\r\n\r\n")
                writer.write(answer_to(question, self._facts()))
                await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # gone, slow, or no question at all
        except asyncio.CancelledError:
            pass  # closing, or a newer caller has its place
        finally:
            self._callers.pop(task, None)
            writer.close()


def answer_to(question: bytes, facts: Table) -> bytes:
    """Return the answer to an HTTP request, head and body."""
    head, _, fields = question.partition(b"\r\n")
    method, path, *_ = [*head.split(b" "), b"", b""]
    path = path.partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        code, kind, text = "405 Method Not Allowed", "text/plain", "ask with GET\n"
    elif path == b"/metrics":
        from folkman.runtime.exposition import exposition  # here: few nodes are asked

        wanted = re.search(rb"(?im)^accept:.*application/openmetrics-text", fields)
        code, (kind, text) = "200 OK", exposition(facts, openmetrics=wanted is not None)
    elif path == b"/health":
        code = "200 OK" if is_well(facts) else "503 Service Unavailable"
        kind, text = "application/json", json.dumps(facts)
    else:
        code, kind, text = "404 Not Found", "text/plain", "ask for /metrics or /health\n"
    body = text.encode()
    answer = f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    answer += "Connection: close\r\n\r\n"
    return answer.encode() + (b"" if method == b"HEAD" else body)


def is_well(facts: Table) -> bool:
    """Tell whether a node does what it should, by its own word; one that starts says nothing."""
    return bool(facts.get("ok"))
