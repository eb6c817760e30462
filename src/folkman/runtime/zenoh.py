"""Eclipse Zenoh as the carrier: TLS over TCP, peer to peer, no broker.

Scouting is off unless asked for.

    folkman/RUN/p/SENDER/RECEIVER    parameters            folkman/RUN/c/SENDER/RECEIVER    control

zenoh's own ways of congestion are all wrong for us (its default drops a message in parts on a slow
link, blocking lets one frozen peer hold up the rest, "block first" loses the newest value), so each
neighbour has a slot, a thread and a blocking publisher of its own. Access control lets a
certificate's name publish under that name alone; it cannot change while running, so whoever is no
longer a member is refused by its signature, message by message.

Both ends of a link dial, and zenoh keeps one connection. For zenoh waits 0.1 s after each handshake
that fails, and lets nobody in meanwhile: ten a second, by anybody, close a node's door, and nothing
in its configuration changes that. Whoever is shut in so still reaches its neighbours by dialling.
"""

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from folkman.checks import need
from folkman.record.json_file import Json
from folkman.runtime.captured import is_on
from folkman.runtime.identity import name_of
from folkman.runtime.tcp import Address
from folkman.runtime.transport import MOST_CONTROL, Events, Security, Slot

if TYPE_CHECKING:
    from zenoh import Publisher, Sample

__all__ = ["ZenohTransport", "settings"]

WAIT_BEFORE_CLOSE_US = 60_000_000
"""How long a blocked transfer may take: with zenoh's 5 s a megabyte at 1 Mbit/s would never
arrive."""


def settings(
    me: int,
    listen: Address,
    addresses: Mapping[int, Address],
    *,
    run: int,
    largest_bytes: int,
    security: Security | None,
    scouting: bool = False,
) -> Json:
    """Return zenoh's configuration."""
    wire = "tls" if security else "tcp"
    dialled = [f"{wire}/{host}:{port}" for host, port in addresses.values()]
    link: Json = {
        "tx": {
            "queue": {"congestion_control": {"block": {"wait_before_close": WAIT_BEFORE_CLOSE_US}}}
        }
    }
    found: Json = {
        "mode": "peer",
        "scouting": {"multicast": {"enabled": scouting}, "gossip": {"enabled": scouting}},
        "listen": {"endpoints": [f"{wire}/{listen[0]}:{listen[1]}"]},
        "connect": {"endpoints": dialled, "timeout_ms": -1, "exit_on_failure": False},
        "transport": {
            "link": link,
            "shared_memory": {"enabled": False},
        },  # it keeps a pool of 280 MB
        "low_pass_filter": [
            {
                "id": "cap",
                "messages": ["put"],
                "flows": ["ingress"],
                "key_exprs": ["folkman/**"],
                "size_limit": largest_bytes,
            }
        ],
    }
    if security is not None:
        identity = security.identity
        own = {"private_key": str(identity.key), "certificate": str(identity.certificate)}
        sides = {
            f"{side}_{name}": path for side in ("listen", "connect") for name, path in own.items()
        }
        link["tls"] = {
            "root_ca_certificate": str(identity.ca),
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
            **sides,
        }
        found["access_control"] = _access(me, addresses, f"folkman/{run:016x}")
    return found


def _access(me: int, peers: Mapping[int, Address], root: str) -> Json:
    """Let each certificate name publish under itself to us, and hear what is for it.

    Nothing else.
    """
    rules, subjects, policies = [], [], []
    for peer in peers:
        name = name_of(peer)
        to_me, from_me = f"{root}/*/{name}/{name_of(me)}", f"{root}/*/{name_of(me)}/{name}"
        grants = {
            "in": (["put"], ["ingress"], to_me),
            "asks": (["declare_subscriber"], ["egress"], to_me),
            "out": (["put"], ["egress"], from_me),
            "asked": (["declare_subscriber"], ["ingress"], from_me),
        }
        for kind, (messages, flows, key) in grants.items():
            rule = {
                "id": f"{name}-{kind}",
                "permission": "allow",
                "messages": messages,
                "flows": flows,
            }
            rules.append({**rule, "key_exprs": [key]})
        subjects.append({"id": name, "cert_common_names": [name]})
        policies.append({"rules": [f"{name}-{kind}" for kind in grants], "subjects": [name]})
    kept = {"enabled": True, "default_permission": "deny"}
    return {**kept, "rules": rules, "subjects": subjects, "policies": policies}


class _Peer:
    """What waits for one neighbour."""

    def __init__(self) -> None:
        self.slot = Slot()
        self.control: deque[bytes] = deque()
        self.waiting = threading.Condition()
        self.up = threading.Event()


class ZenohTransport:
    """See the module; the options are those of `settings`."""

    def __init__(
        self,
        me: int,
        listen: Address,
        addresses: Mapping[int, Address],
        *,
        run: int,
        largest_bytes: int,
        security: Security | None,
        scouting: bool = False,
    ) -> None:
        self.me, self._root = me, f"folkman/{run:016x}"
        self._settings = settings(
            me,
            listen,
            addresses,
            run=run,
            largest_bytes=largest_bytes,
            security=security,
            scouting=scouting,
        )
        self._security = security
        self._largest_bytes = largest_bytes
        self._peers = {peer: _Peer() for peer in addresses}
        self.counts: Counter[str] = Counter()
        self._closed = False
        self._kept: list[object] = []

    async def open(self, events: Events) -> None:
        """Listen, and dial the peers."""
        await asyncio.to_thread(self._open, events)

    def _open(self, events: Events) -> None:
        zenoh = need("zenoh")
        # its lines are no JSON: they are shown where they become events of the log
        zenoh.init_log_from_env_or("warn" if is_on() else "off")
        self._events = events
        config = zenoh.Config.from_json5(json.dumps(self._settings))
        try:
            self._session = zenoh.open(config)
        except zenoh.ZError as error:
            raise OSError(f"zenoh cannot listen, or read its certificates: {error}") from None
        for number in self._peers:
            self._join(zenoh, number)

    def publish(self, peer: int, data: bytes) -> None:
        """Send parameters."""
        if self._may(peer):
            self.counts["overwritten"] += self._peers[peer].slot.put(data)

    def tell(self, peer: int, data: bytes) -> None:
        """Send a control message."""
        if not self._may(peer) or not (box := self._peers[peer]).up.is_set():
            return
        with box.waiting:
            if len(box.control) >= MOST_CONTROL:
                box.control.popleft()
                self.counts["dropped_control"] += 1
            box.control.append(data)
            box.waiting.notify()

    def links(self) -> frozenset[int]:
        """Return the peers that listen to us."""
        return frozenset(
            number for number, box in self._peers.items() if box.up.is_set() and self._may(number)
        )

    def _may(self, number: int) -> bool:
        """Tell whether a neighbour may be spoken to."""
        known = number in self._peers
        return known and (self._security is None or self._security.members.allowed(number))

    def revalidate(self) -> None:
        """Let go of what waits for those who are no longer members.

        What they say is refused by its signature.

        zenoh's own access control knows names alone, and not while it runs: the link itself stays.
        """
        for number, box in self._peers.items():
            if not self._may(number):
                box.slot.clear()

    async def close(self) -> None:
        """Close the session; a thread that is blocked on a frozen peer ends with the process."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._closed = True
        for box in self._peers.values():
            box.slot.close()
            box.up.set()
            with box.waiting:
                box.waiting.notify_all()
        closing = threading.Thread(target=self._session.close, daemon=True)
        closing.start()
        closing.join(5)

    def _join(self, zenoh: ModuleType, number: int) -> None:
        """Subscribe to a neighbour, publish to it, and notice when it listens.

        Its own subscriptions are declared in the same order, so that one who hears control hears
        parameters too.
        """
        ours, theirs = (
            f"{name_of(self.me)}/{name_of(number)}",
            f"{name_of(number)}/{name_of(self.me)}",
        )
        steady = {
            "congestion_control": zenoh.CongestionControl.BLOCK,
            "reliability": zenoh.Reliability.RELIABLE,
        }

        def received(sample: "Sample") -> None:
            data = sample.payload.to_bytes()
            self.counts["bytes_received"] += len(data)
            self._events.received(number, data)

        def told(sample: "Sample") -> None:
            self._events.told(number, sample.payload.to_bytes())

        params = self._session.declare_publisher(
            f"{self._root}/p/{ours}", priority=zenoh.Priority.DATA, **steady
        )
        urgent = zenoh.Priority.INTERACTIVE_HIGH
        control = self._session.declare_publisher(
            f"{self._root}/c/{ours}", priority=urgent, express=True, **steady
        )
        self._kept += [
            self._session.declare_subscriber(f"{self._root}/p/{theirs}", received),
            self._session.declare_subscriber(f"{self._root}/c/{theirs}", told),
            control.declare_matching_listener(
                lambda status: self._note_link(number, bool(status.matching))
            ),
        ]
        for work, publisher in ((self._carry, params), (self._carry_control, control)):
            threading.Thread(target=work, args=(number, publisher), daemon=True).start()
        if control.matching_status.matching:
            self._note_link(number, up=True)

    def _note_link(self, number: int, up: bool) -> None:
        box = self._peers[number]
        if self._closed or up == box.up.is_set():
            return
        if up:
            box.up.set()
        else:
            box.up.clear()
            with box.waiting:
                box.control.clear()
        self._events.linked(number, up)

    def _carry(self, number: int, publisher: "Publisher") -> None:
        box = self._peers[number]
        while True:
            box.up.wait()
            data = box.slot.take()
            if self._closed or data is None:
                return
            if not box.up.is_set():
                box.slot.put_back(data)
                continue
            self._put(publisher, data)

    def _carry_control(self, number: int, publisher: "Publisher") -> None:
        box = self._peers[number]
        while True:
            with box.waiting:
                box.waiting.wait_for(lambda: bool(box.control) or self._closed)
                if self._closed:
                    return
                data = box.control.popleft()
            self._put(publisher, data)

    def _put(self, publisher: "Publisher", data: bytes) -> None:
        try:
            publisher.put(data)
            self.counts["bytes_sent"] += len(data)
        except need("zenoh").ZError as error:
            if not self._closed:
                self._events.refused("internal", f"zenoh did not send: {error}")
