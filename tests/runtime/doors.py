"""Operator doors for tests: real sockets and real TLS, in the loop of a thread; the desk is ours."""

import asyncio
import io
import json
import socket
import ssl
import struct
import threading
import time
from pathlib import Path

import pytest

from folkman.record.cluster import NodeFolder
from folkman.runtime import identity
from folkman.runtime.fleet import words
from folkman.runtime.fleet.calls import CallError, dialled
from folkman.runtime.fleet.kept_lines import KeptLines
from folkman.runtime.fleet.operator_door import Desk, OperatorDoor
from folkman.runtime.operators import make_operator, operator_in
from folkman.runtime.telemetry import Logger
from folkman.runtime.transport import Security

RUN = "0" * 64


def authority(folder, nodes=(0, 1), operators=("alice",)):
    """Make an authority with members and operators; return its folder."""
    identity.init(folder)
    for node in nodes:
        identity.issue(folder, node)
    for name in operators:
        make_operator(folder, name)
    return folder


class OpenDoor:
    """The door of one node, open until closed. What it did with its node is in `stops`."""

    def __init__(self, certs: Path, home: Path, node: int = 0, facts=None, **options):
        home.mkdir(parents=True, exist_ok=True)
        self.home, self.log, self.stops = home, io.StringIO(), []
        self.facts = {"state": "learning", "ok": True, "steps": 3} if facts is None else facts
        self.lines = KeptLines()
        logger = Logger(identity.name_of(node), insecure=False, stream=self.log)
        logger.listener = self.lines.add
        self.logger = logger
        own = identity.Identity(certs, node)
        self.members = identity.Members(certs / "members.json", certs / "ca.crt")
        task = home / "task.toml"
        task.write_text("nodes = 2\n")
        desk = Desk(
            facts=lambda: self.facts,
            stop=self.stops.append,
            asked=lambda: bool(self.stops),
            keep=lambda: None,
            lines=self.lines,
            folder=NodeFolder(home),
            task=task,
            run=RUN,
            label="x",
            seed=0,
        )
        self.loop = asyncio.new_event_loop()
        self.door = OperatorDoor(
            ("127.0.0.1", 0), Security(own, self.members), desk, logger, **options
        )
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self.door.open())
        self.place = ("127.0.0.1", self.door.port)

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def events(self, name=None):
        found = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [each for each in found if name in (None, each["event"])]

    def close(self):
        self._do(self.door.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


def asked(door, certs, *questions, name="node-0", operator="alice", patience_s=10.0):
    """Return the answers of a door to an operator's questions."""

    async def ask():
        files = operator_in(certs, operator)
        async with dialled(name, door.place, files, patience_s) as line:
            return [await line.ask(each) for each in questions]

    return asyncio.run(ask())


def why(door, certs, **options):
    with pytest.raises(CallError) as caught:
        asked(door, certs, words.Status(), **options)
    return str(caught.value)


def context_of(certs, name, protocol=words.PROTOCOL):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certs / "ca.crt")
    context.load_cert_chain(certs / f"{name}.crt", certs / f"{name}.key")
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


def connected(door, certs, name="operator-alice", **options):
    raw = socket.create_connection(door.place, 10)
    return context_of(certs, name, **options).wrap_socket(raw, server_hostname="node-0")


def received(line):
    """Return the answer that a socket brings."""
    (length,) = struct.unpack("<I", line.recv(4))
    data = b""
    while len(data) < length:
        data += line.recv(length - len(data))
    return words.answer_of(data)


def until(holds, patience_s=10.0):
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def hung_up(line):
    """Ask, and tell whether the other end hangs up without an answer.

    In TLS 1.3 a server sees the client's certificate when the client is done already.
    """
    try:
        line.sendall(words.frame(words.Status()))
        return line.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True
