"""What the transports carry by themselves, without learners.

Messages of the paper's CNN (1.7 MB), TLS, loopback.

    python benchmarks/transport.py [SECONDS [PEERS]]

One sender hands the next message to a peer as soon as that peer has answered the last one by a
control message, as a learner with acknowledgements does. Prints one JSON line a transport: goodput
over all peers, time to the answer, cores.
"""

import asyncio
import json
import resource
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from folkman.runtime import identity
from folkman.runtime.tcp import TcpTransport
from folkman.runtime.transport import Security, Transport
from folkman.runtime.zenoh import ZenohTransport

MESSAGE_BYTES = 4 * 430_698 + 144


class Receiver:
    """Answers every message."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def received(self, peer: int, data: bytes) -> None:
        """Say that it came."""
        self.transport.tell(peer, len(data).to_bytes(8, "little"))

    def told(self, peer: int, data: bytes) -> None:
        """Hear nothing."""

    def linked(self, peer: int, up: bool) -> None:
        """Not care."""

    def refused(self, reason: str, text: str) -> None:
        """Not expect it."""
        print(reason, text, file=sys.stderr)


class Sender(Receiver):
    """Sends the next message when the last one was answered."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.sent_s: dict[int, float] = {}
        self.took_s: list[float] = []
        self.going = threading.Event()

    def send(self, peer: int) -> None:
        """Hand over a message."""
        self.sent_s[peer] = time.perf_counter()
        self.transport.publish(peer, bytes(MESSAGE_BYTES))

    def told(self, peer: int, data: bytes) -> None:
        """Take the answer, and go on."""
        del data
        self.took_s.append(time.perf_counter() - self.sent_s[peer])
        if self.going.is_set():
            self.send(peer)


def main() -> None:
    """Measure both transports."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    peers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    with tempfile.TemporaryDirectory() as place:
        certs = Path(place)
        identity.init(certs)
        for node in range(peers + 1):
            identity.issue(certs, node)
        for kind in (TcpTransport, ZenohTransport):
            print(json.dumps(asyncio.run(measure(kind, certs, peers, seconds))), flush=True)


async def measure(
    kind: type[TcpTransport | ZenohTransport], certs: Path, peers: int, seconds: float
) -> dict[str, object]:
    """Let node 0 send to all others."""
    places = {node: _free() for node in range(peers + 1)}
    members = identity.Members(certs / "members.json", certs / "ca.crt")

    def make(node: int, near: list[int]) -> Transport:
        security = Security(identity.Identity(certs, node), members)
        addresses = {other: places[other] for other in near}
        return kind(
            node, places[node], addresses, run=1, largest_bytes=2 * MESSAGE_BYTES, security=security
        )

    hub = make(0, list(range(1, peers + 1)))
    sender, others = Sender(hub), [make(node, [0]) for node in range(1, peers + 1)]
    for each in others:
        await each.open(Receiver(each))
    await hub.open(sender)
    while len(hub.links()) < peers:
        await asyncio.sleep(0.05)
    sender.going.set()
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for peer in range(1, peers + 1):
        sender.send(peer)
    await asyncio.sleep(seconds)
    sender.going.clear()
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    answers = sorted(sender.took_s)
    await asyncio.sleep(1.0)
    for each in (hub, *others):
        await each.close()
    return {
        "transport": kind.__name__,
        "peers": peers,
        "goodput_mb_s": round(len(answers) * MESSAGE_BYTES / took / 1e6, 1),
        "answer_ms": [
            round(1e3 * answers[int(part * (len(answers) - 1))], 1) for part in (0.5, 0.99)
        ],
        "cores": round((after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime) / took, 2),
    }


def _free() -> tuple[str, int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()


if __name__ == "__main__":
    main()
