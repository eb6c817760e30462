"""What a node says of itself: JSON lines, and metrics in Prometheus' text form."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO

from folkman.record.cluster import DONE, LEARNING

__all__ = ["Logger", "MetricsServer", "prometheus"]

REPEAT_S = 5.0
"""An event of one kind and reason is logged at most once in this time; what was left out is counted."""


class Logger:
    """One JSON object a line. An insecure node says so in every one."""

    def __init__(self, node: str, *, insecure: bool, stream: TextIO | None = None) -> None:
        self._head = {"node": node} | ({"security": "NONE: insecure was asked for"} if insecure else {})
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], float] = {}
        self._muted: dict[tuple[str, str], int] = {}

    def say(self, event: str, *, level: str = "info", reason: str = "", **fields: Any) -> None:
        """Write a line; a disk that refuses costs the line and nothing else."""
        with self._lock:
            if reason and not self._due((event, reason)):
                return
            muted = self._muted.pop((event, reason), 0)
            extra = ({"reason": reason} if reason else {}) | ({"left_out": muted} if muted else {})
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() // 10**6 % 1000:03d}Z"
            line = json.dumps({"time": stamp, "level": level, "event": event, **self._head, **extra, **fields})
            with contextlib.suppress(OSError, ValueError):
                print(line, file=self._stream, flush=True)

    def _due(self, kind: tuple[str, str]) -> bool:
        now = time.monotonic()
        if now - self._last.get(kind, -REPEAT_S) < REPEAT_S:
            self._muted[kind] = self._muted.get(kind, 0) + 1
            return False
        self._last[kind] = now
        return True


def prometheus(facts: Mapping[str, Any]) -> str:
    """Return facts as Prometheus text: numbers as gauges, tables of numbers by label."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, int | float):
            lines += [f"# TYPE folkman_{name} gauge", f"folkman_{name} {value}"]
        elif isinstance(value, Mapping):
            rows = [(key, each) for key, each in value.items() if isinstance(each, int | float)]
            lines += [f"# TYPE folkman_{name} gauge"] if rows else []
            lines += [f'folkman_{name}{{key="{key}"}} {each}' for key, each in rows]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Answers GET /metrics and /health on one address."""

    def __init__(self, address: tuple[str, int], facts: Callable[[], Mapping[str, Any]]) -> None:
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

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as http.server calls it
                """Say nothing: a scrape every few seconds is no event."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
