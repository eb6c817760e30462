"""What happened, in order: short lines for people, and one hash that two equal runs share."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from folkman.runtime.core.events import (
    Compute,
    Computed,
    Effect,
    Event,
    Finish,
    Health,
    Linked,
    Log,
    MembersChanged,
    Note,
    Publish,
    Received,
    Save,
    Start,
    Tell,
    Tick,
    Told,
    Unlinked,
)

__all__ = ["Line", "Trace"]


class Line(NamedTuple):
    """One thing that happened."""

    now_s: float
    member: int
    what: str
    peer: int = -1
    detail: str = ""

    def said(self) -> str:
        """Return the line as it is printed."""
        peer = f" {_name(self.peer)}" if self.peer >= 0 else ""
        return f"{self.now_s:9.4f}  {_name(self.member):>7}  {self.what}{peer}  {self.detail}"


def _name(member: int) -> str:
    return "server" if member >= 2**31 else f"node {member}" if member >= 0 else "world"


class Trace:
    """The lines so far, if they are kept, and their hash in any case."""

    def __init__(self, *, keeps: bool) -> None:
        self._hash = blake2b(digest_size=16)
        self._keeps = keeps
        self.lines: list[Line] = []
        self.count = 0

    @property
    def digest(self) -> str:
        """Return the hash of all that happened so far."""
        return self._hash.hexdigest()

    def say(self, now_s: float, member: int, what: str, peer: int = -1, detail: str = "") -> None:
        """Note something that the world did."""
        self.count += 1
        self._hash.update(f"{now_s!r} {member} {what} {peer} {detail}\n".encode())
        if self._keeps:
            self.lines.append(Line(now_s, member, what, peer, detail))

    def step(self, now_s: float, member: int, event: Event, effects: list[Effect]) -> None:
        """Note what a core was told, and what it wants."""
        self.count += 1
        parts = [f"{now_s!r} {member}".encode()]
        _feed(parts, event)
        for effect in effects:
            _feed(parts, effect)
        self._hash.update(b"".join(parts))
        if self._keeps:
            if not isinstance(event, Tick) or effects:
                self.lines.append(_line(now_s, member, event))
            self.lines += [_line(now_s, member, effect) for effect in effects]


def _feed(parts: list[bytes], item: Event | Effect) -> None:
    """Add what counts of an event or effect; two runs that differ in it are not the same."""
    kind: Any = type(item)
    parts.append(kind.__name__.encode())
    feed = _FED.get(kind)
    parts += [repr(tuple(item)).encode()] if feed is None else feed(item)


def _feed_bytes(item: Publish | Tell | Received | Told) -> list[bytes]:
    return [b"%d" % item.peer, item.data]


def _feed_save(item: Save) -> list[bytes]:
    parts = [f"{item.ticket} {item.life}".encode()]
    for arrays in (item.state, item.final):
        for name in sorted(arrays or ()):
            parts += [name.encode(), arrays[name].tobytes()]  # type: ignore[index] - it has names
    return parts


_FED: dict[Any, Callable[[Any], list[bytes]]] = {
    Publish: _feed_bytes,
    Tell: _feed_bytes,
    Received: _feed_bytes,
    Told: _feed_bytes,
    Computed: lambda item: [
        f"{item.ticket} {float(item.loss)!r}".encode(),
        np.asarray(item.grad).tobytes(),
    ],
    Compute: lambda item: [
        f"{item.ticket} {item.step}".encode(),
        np.asarray(item.point).tobytes(),
    ],
    Save: _feed_save,
    Start: lambda item: [f"{item.life} {item.warnings} {sorted(item.state or ())}".encode()],
    Health: lambda item: [b"%d" % item.ok],
    Log: lambda item: [item.event.encode()],
    MembersChanged: lambda item: [repr(sorted(item.members)).encode()],
}
"""What is hashed of which kind; of the others all their fields, as Python writes them."""


def _line(now_s: float, member: int, item: Event | Effect) -> Line:
    kind = type(item).__name__
    if isinstance(item, Publish | Received):
        return Line(now_s, member, kind, item.peer, _shown_message(item.data))
    if isinstance(item, Tell | Told):
        return Line(now_s, member, kind, item.peer, _shown_control(item.data))
    if isinstance(item, Linked | Unlinked):
        return Line(now_s, member, kind, item.peer)
    return Line(now_s, member, kind, detail=_shown(item))


def _shown(item: Event | Effect) -> str:  # noqa: PLR0911 - a table
    if isinstance(item, Save):
        parts = [name for name in ("state", "life", "final") if getattr(item, name) is not None]
        steps = "" if item.state is None else f" of step {int(item.state['counters'][1])}"
        return f"ticket {item.ticket}: {', '.join(parts)}{steps}"
    if isinstance(item, Compute):
        return f"gradient {item.step}"
    if isinstance(item, Computed):
        return f"loss {float(item.loss):.6g}"
    if isinstance(item, Start):
        return f"life before {item.life}, {'saved state' if item.state else 'no state'}" + "".join(
            f"; {each}" for each in item.warnings
        )
    if isinstance(item, Note):
        return f"kind {item.kind}, slot {item.slot}, {list(item.sequence)}"
    if isinstance(item, Health):
        return f"{'ok' if item.ok else 'not ok'}: {item.facts}"
    if isinstance(item, Log):
        return " ".join([item.event, *(f"{name}={value}" for name, value in item.fields)])
    if isinstance(item, Finish):
        return f"code {item.code}"
    return " ".join(str(each) for each in item)


def _shown_message(data: bytes) -> str:
    from folkman.runtime.codec import FIELDS, HEADER_BYTES

    if len(data) < HEADER_BYTES:
        return f"{len(data)} bytes"
    _, _, _, _, node, round_, sequence, slot, _ = FIELDS.unpack(data[: FIELDS.size])
    life, number = sequence >> 32, sequence & 0xFFFFFFFF
    return f"message {life}:{number} of {_name(node)}, slot {slot}, round {round_}"


def _shown_control(data: bytes) -> str:
    from folkman.checks import need

    try:
        found = need("msgspec").msgpack.decode(data[64:])
        body = dict(found["body"])
        return f"{body.pop('type')} {body}"
    except (ValueError, KeyError, TypeError):
        return f"{len(data)} bytes"
