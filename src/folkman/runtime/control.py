"""Control messages: small, typed, signed, reliable, apart from parameters.

On the wire: 64 bytes of Ed25519 signature of CONTEXT and the body (zeros if unsigned), then the
body, msgpack:

    {"run": ..., "node": ..., "sequence": ..., "body": {"type": "Ack", ...}}

Algorithm 1's control traffic [1, lines 10-15] is here: link qualities (SINR or what stands in for
it), R_i, Y_i, J_ji. A member's message is taken once: its sequence must grow.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from folkman.checks import need
from folkman.runtime.codec import CodecError, Sign, Verify

if TYPE_CHECKING:
    from msgspec import msgpack

__all__ = [
    "Ack",
    "Ask",
    "Body",
    "Claim",
    "Control",
    "Done",
    "Hello",
    "Known",
    "Period",
    "Proof",
    "Quality",
    "Refusal",
    "SlotClock",
    "Voice",
    "open_sealed",
    "seal",
]

CONTEXT = b"folkman control 1\0"
LARGEST_BYTES = 65536
SIGNATURE_BYTES = 64
LIFE_BITS = 32
"""A sequence number is the node's life above these bits and a count below: it grows though the
count may be lost."""
MOST_AHEAD_S = 86_400.0
"""A neighbour's clock that is further ahead than this is not followed."""
MOST_BEHIND = 4
"""Slots that a node waits for the middle of the others."""


class Hello(NamedTuple):
    """A link is up: who I am in time."""

    clock_s: float  # since the first slot began, by the sender's clock of slots
    steps: int
    incarnation: int  # how often it has begun


class Ack(NamedTuple):
    """J_ji: your message has arrived and was taken, or was no longer needed."""

    sequence: int


class Quality(NamedTuple):
    """What a sender measured of its links: node -> (goodput in bit/s, share of messages lost)."""

    links: dict[int, tuple[float, float]]


class Period(NamedTuple):
    """A period begins: R_i at the worst of the receivers Y_i."""

    rate: float
    receivers: list[int]


class Ask(NamedTuple):
    """A sum held my own parameters of this stamp, which I have lost: send me a copy of yours."""

    stamp: int


class Claim(NamedTuple):
    """The band is taken for so long by a message of this index; 0 seconds: it is free again."""

    value: float
    seconds: float


class Done(NamedTuple):
    """I took all the gradients that were asked of me."""

    steps: int


class Refusal(NamedTuple):
    """Your message of this number came and cannot be taken; do not wait for me. Why: one word."""

    sequence: int
    reason: str


class Known(NamedTuple):
    """I hold a message of this life of yours, and you speak as of an earlier one: go beyond it."""

    life: int


class Proof(NamedTuple):
    """Two messages that one node has signed under one number: whoever checks them excludes it."""

    first: bytes
    second: bytes


Body: TypeAlias = Hello | Ack | Quality | Period | Done | Ask | Claim | Refusal | Known | Proof


class Control(NamedTuple):
    """A control message and where it comes from."""

    run: int
    node: int
    sequence: int
    body: Body


def seal(control: Control, sign: Sign | None = None) -> bytes:
    """Return the bytes of a control message."""
    run, node, sequence, said = control
    body = _encoder().encode(
        {"run": run, "node": node, "sequence": sequence, "body": _tagged(said)}
    )
    return (sign(CONTEXT + body) if sign else bytes(SIGNATURE_BYTES)) + body


def open_sealed(data: bytes, run: int, verify: Verify | None = None) -> Control:
    """Return the control message in `data`.

    Raises `CodecError`, and nothing else, whatever the bytes.
    """
    if not SIGNATURE_BYTES < len(data) <= LARGEST_BYTES:
        raise CodecError(
            "length", f"expected {SIGNATURE_BYTES + 1} to {LARGEST_BYTES} bytes, got {len(data)}"
        )
    signature, body = bytes(data[:SIGNATURE_BYTES]), bytes(data[SIGNATURE_BYTES:])
    try:
        found = _decoder().decode(body)
    except (
        need("msgspec").DecodeError,
        RecursionError,
        UnicodeDecodeError,
    ) as error:  # of a type or not msgpack at all
        raise CodecError("control", f"expected a control message: {error}") from None
    if found.run != run:
        raise CodecError(
            "run", f"expected run {run:016x}, got {found.run:016x}; the sender is in another run"
        )
    if verify is not None and not verify(found.node, CONTEXT + body, signature):
        raise CodecError(
            "signature", f"expected the signature of node {found.node}; it is another's"
        )
    said = found.body
    fields = [getattr(said, name) for name in said.__struct_fields__]  # in their order
    return Control(found.run, found.node, found.sequence, _KINDS[type(said).__name__](*fields))


_KINDS: dict[str, Callable[..., Body]] = {
    kind.__name__: kind
    for kind in (Hello, Ack, Quality, Period, Done, Ask, Claim, Refusal, Known, Proof)
}


def _tagged(body: Body) -> dict[str, object]:
    kind = type(body)
    return {"type": kind.__name__, **dict(zip(kind._fields, body, strict=True))}


@cache
def _encoder() -> "msgpack.Encoder":
    return need("msgspec").msgpack.Encoder()


@cache
def _decoder() -> "msgpack.Decoder":
    """Build the typed decoder.

    A struct of msgspec for each kind, recognised by `type`, all numbers bounded.
    """
    from typing import Annotated

    msgspec = need("msgspec")
    count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    node = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
    amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    share = Annotated[float, msgspec.Meta(ge=0, le=1)]
    word = Annotated[str, msgspec.Meta(pattern="^[a-z_]{1,32}$")]
    fields = {
        "Hello": [("clock_s", amount), ("steps", count), ("incarnation", count)],
        "Ack": [("sequence", count)],
        "Quality": [("links", dict[node, tuple[amount, share]])],
        "Period": [("rate", amount), ("receivers", list[node])],
        "Done": [("steps", count)],
        "Ask": [("stamp", count)],
        "Claim": [("value", amount), ("seconds", amount)],
        "Refusal": [("sequence", count), ("reason", word)],
        "Known": [("life", count)],
        "Proof": [("first", bytes), ("second", bytes)],
    }
    options = {"tag_field": "type", "forbid_unknown_fields": True, "frozen": True}
    kinds = [msgspec.defstruct(name, each, tag=name, **options) for name, each in fields.items()]
    union = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    run = Annotated[int, msgspec.Meta(ge=0)]
    head = [("run", run), ("node", node), ("sequence", count), ("body", union)]
    return msgspec.msgpack.Decoder(
        msgspec.defstruct("Envelope", head, forbid_unknown_fields=True, frozen=True)
    )


class Voice:
    """A node's side of the control traffic.

    It numbers what it says, and takes of others what is theirs and new.
    """

    def __init__(
        self, run: int, node: int, life: int, sign: Sign | None, verify: Verify | None
    ) -> None:
        self._run, self._node, self._sign, self._verify = run, node, sign, verify
        self._sequence = life << LIFE_BITS
        self._heard: dict[int, int] = {}

    def begin_life(self, life: int) -> None:
        """Speak under the number of a later life from now on."""
        self._sequence = max(self._sequence, life << LIFE_BITS)

    def sealed(self, body: Body) -> bytes:
        """Return the next message; whoever it is for must get it before any later one."""
        self._sequence += 1
        return seal(Control(self._run, self._node, self._sequence, body), self._sign)

    def life_heard(self, peer: int) -> int:
        """Return the latest life of a peer that was heard, 0 if none was."""
        return self._heard.get(peer, 0) >> LIFE_BITS

    def hear(self, peer: int, data: bytes) -> Body:
        """Return what a peer says, or raise `CodecError`."""
        message = open_sealed(data, self._run, self._verify)
        if message.node != peer:
            raise CodecError(
                "sender", f"node {peer} brings a control message of node {message.node}"
            )
        if message.sequence <= self._heard.get(peer, -1):
            raise CodecError(
                "stale",
                f"control message {message.sequence} of node {peer} was heard before",
                message.node,
                message.sequence,
            )
        self._heard[peer] = message.sequence
        return message.body


class SlotClock:
    """Slots of `slot_s` seconds since a start that all nodes come to share. Times are given.

    A node goes by the middle of the clocks of all linked nodes, its own among them: one neighbour
    alone moves nobody's. It skips slots to catch up, and stands still for a few to be caught up
    with; no slot is lived twice.
    """

    def __init__(self, slot_s: float) -> None:
        self.slot_s = slot_s
        self._origin_s = 0.0
        self._claims: dict[int, float] = {}  # neighbour -> where slot 0 began, by its clock

    def restart(self, now_s: float, slot: int = 0) -> None:
        """Let `slot` begin now."""
        self._origin_s = now_s - slot * self.slot_s

    def elapsed_s(self, now_s: float) -> float:
        """Return the time since slot 0 began."""
        return now_s - self._origin_s

    def slot(self, now_s: float) -> int:
        """Return the number of the slot that is on."""
        return int(self.elapsed_s(now_s) / self.slot_s)

    def begins_s(self, slot: int) -> float:
        """Return when a slot begins."""
        return self._origin_s + slot * self.slot_s

    def heard(self, peer: int, elapsed_s: float, now_s: float, linked: Iterable[int]) -> None:
        """Take notice of a neighbour's clock, and go by the middle of all.

        Who has said nothing counts as one that agrees.
        """
        if elapsed_s - self.elapsed_s(now_s) < MOST_AHEAD_S:
            self._claims[peer] = now_s - elapsed_s
        else:
            self._claims.pop(peer, None)
        said = [self._origin_s, *(self._claims.get(j, self._origin_s) for j in linked)]
        middle = sorted(said)[(len(said) - 1) // 2]  # of two the one that is ahead
        # at most a few slots back at a time: those who are ahead wait until all are together
        self._origin_s += min(middle - self._origin_s, MOST_BEHIND * self.slot_s)

    def forget(self, peer: int) -> None:
        """Leave out a neighbour that is gone."""
        self._claims.pop(peer, None)
