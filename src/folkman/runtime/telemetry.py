"""What a node says of itself: JSON lines, a health file, and metrics in Prometheus' text form."""

import json
import math
import os
import resource
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, TextIO

from folkman.machine import resident_bytes
from folkman.record.cluster import DONE, LEARNING
from folkman.record.json_file import Json, Table
from folkman.runtime.identity import name_of

if TYPE_CHECKING:
    from folkman.runtime.daemon import Daemon

__all__ = ["Logger", "MetricsServer", "health_of", "prometheus"]

REPEAT_S = 5.0
"""An event of one kind and reason is logged at most once in this time; what was left out is
counted."""
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

    def say(self, event: str, *, level: str = "info", reason: str = "", **fields: object) -> None:
        """Write a line; a disk that refuses costs the line and nothing else."""
        with self._lock:
            if reason and not self._due((event, reason)):
                return
            if len(self._unread) >= MOST_UNREAD:
                self._unkept += 1
                return
            muted = self._muted.pop((event, reason), 0)
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
        if now - self._last.get(kind, -REPEAT_S) < REPEAT_S:
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


def health_of(daemon: "Daemon") -> Json:
    """Return what a health file says; every key is stable."""
    node, links, transport = daemon.node, daemon.links, daemon.transport
    loss = getattr(node, "loss", math.nan)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "node": name_of(node.index),
        "state": daemon.state,
        "pid": os.getpid(),
        "steps": node.steps,
        "slot": node.slot,
        "round": node.mailbox.round,
        "loss": loss if math.isfinite(loss) else None,
        "saved_steps": daemon.saver.steps,
        "incarnation": daemon.incarnation,
        "uptime_s": round(time.monotonic() - daemon.began_s, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "memory_bytes": resident_bytes(),
        "memory_peak_bytes": resident_bytes(peak=True),
        "linked": sorted(name_of(j) for j in transport.links()),
        "num_linked": len(transport.links()),
        "refused": dict(node.mailbox.refused),
        "counts": daemon.counts | daemon.saver.counts | getattr(node.mailbox, "counts", {}),
        "transport": dict(transport.counts),
        "goodput_bit_s": {name_of(j): round(v) for j, v in list(links.goodput_bit_s.items())},
        "latency_s": {name_of(j): round(v, 6) for j, v in list(links.latency_s.items())},
        "loss_share": {name_of(j): round(v, 4) for j, v in list(links.loss.items())},
        "goodput_here_bit_s": {
            name_of(j): round(rate) for j, (rate, _) in list(daemon.qualities.items())
        },
        "timeline": daemon.journal.ended or "recorded",
        "insecure": daemon.members is None,
    }


HELP = {
    "steps": "gradient steps taken",
    "slot": "number of the present slot",
    "round": "number of the present round, in lock-step",
    "loss": "training loss of the last gradient",
    "saved_steps": "steps in the state on disk",
    "incarnation": "how often the node has begun",
    "uptime_s": "seconds since the node began",
    "cpu_s": "seconds of CPU time used",
    "memory_bytes": "resident memory",
    "memory_peak_bytes": "most resident memory so far",
    "num_linked": "neighbours with a link now",
    "refused": "messages refused, by reason",
    "counts": "events of the node, by kind",
    "transport": "events of the transport, by kind",
    "goodput_bit_s": "rate of acknowledged bits to a neighbour",
    "latency_s": "time until a neighbour's acknowledgement",
    "loss_share": "share of messages to a neighbour without acknowledgement",
    "goodput_here_bit_s": "rate from a neighbour, as it reports it",
    "insecure": "1 if there is no TLS and no signature",
}
"""What the numbers of a health file are."""

COUNTERS = frozenset({"steps", "cpu_s", "refused", "counts", "transport"})
"""Those that only grow while a node runs."""


def prometheus(facts: Table) -> str:
    """Return facts as Prometheus text: numbers as gauges or counters, tables of numbers by label.

    The label `key` of a rate, a latency or a loss is the neighbour at the other end of the link.
    """
    lines = []
    for name, value in facts.items():
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, Mapping):
            rows = [(key, each) for key, each in value.items() if isinstance(each, int | float)]
            told = [f'folkman_{name}{{key="{key}"}} {each}' for key, each in rows]
        else:
            told = [f"folkman_{name} {value}"] if isinstance(value, int | float) else []
        if told:
            kind = "counter" if name in COUNTERS else "gauge"
            lines += [f"# HELP folkman_{name} {HELP.get(name, name.replace('_', ' '))}"]
            lines += [f"# TYPE folkman_{name} {kind}", *told]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET /metrics and /health on one address."""

    def __init__(self, address: tuple[str, int], facts: Callable[[], Table]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = facts()
                if self.path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4", prometheus(found))
                elif self.path == "/health":
                    healthy = found["state"] in (LEARNING, DONE)
                    self._answer(200 if healthy else 503, "application/json", json.dumps(found))
                else:
                    self._answer(404, "text/plain", "ask for /metrics or /health\n")

            def _answer(self, code: int, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base
                """Say nothing: a scrape every few seconds is no event."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
