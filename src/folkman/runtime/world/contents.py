"""What a receiver holds once it has taken a message: parameters under their origin and number."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.runtime import codec
from folkman.runtime.codec import FIELDS, HEADER_BYTES
from folkman.runtime.fresh_codec import slots_of

__all__ = ["Content", "Contents", "Header", "formed_slots", "header_of", "heard_number", "held_by"]


class Header(NamedTuple):
    """What a parameter message says of itself."""

    peer: int
    node: int
    round: int
    sequence: int
    slot: int
    data: bytes


class Content(NamedTuple):
    """The parameters of one node after some slot, whoever brought them."""

    origin: int
    sequence: int
    slot: int
    params: bytes


def header_of(peer: int, data: bytes) -> Header:
    """Return what a message says of itself; nothing of one that is too short."""
    if len(data) < HEADER_BYTES:
        return Header(peer, -1, 0, 0, 0, data)
    fields = FIELDS.unpack(data[: FIELDS.size])
    return Header(peer, fields[4], fields[5], fields[6], fields[7], data)


class Contents:
    """The contents of the messages of one schedule."""

    def __init__(self, carries: str, run: int, dim: int, nodes: int) -> None:
        self._carries, self._run, self._dim = carries, run, dim
        self._inner_at = HEADER_BYTES + 8 + 8 * nodes  # of a copy that is passed on
        self._whole: dict[tuple[int, int], NDArray] = {}  # with error feedback, by their numbers

    def of(self, header: Header) -> Content | None:
        """Return what a message leaves with its receiver; None: nothing of one node alone."""
        if self._carries == "sum" or len(header.data) < HEADER_BYTES:
            return None
        if self._carries == "forward":
            header = header_of(header.peer, header.data[self._inner_at :])
        elif self._carries == "feedback":
            return self._built(header)
        return Content(header.node, header.sequence, header.slot, header.data[HEADER_BYTES:])

    def _built(self, header: Header) -> Content | None:
        """Return a message that may be a change of an earlier one as a whole."""
        message = codec.decode(header.data, self._run, self._dim)
        params = message.params
        if message.base is not None:
            on, changed = message.base
            first = np.zeros(self._dim, params.dtype)
            before = first if on == 0 else self._whole.get((message.node, on))
            if before is None:
                return None
            params = params.copy()
            params[:changed] += before[:changed]
        self._whole[message.node, message.sequence] = params
        return Content(message.node, message.sequence, message.slot, params.tobytes())


def heard_number(node: object, peer: int, first: int) -> int:
    """Return the number of the newest message that a node has taken of a neighbour."""
    box = node.mailbox  # type: ignore[attr-defined]
    if getattr(node, "message", "copy") == "forward":
        return int(node.last[peer])  # type: ignore[attr-defined]
    if getattr(node, "message", "copy") == "sum":
        return int(box.last[peer])
    early = box.ahead.get(peer - first)
    return max(int(box.newest[peer - first]), 0 if early is None else early.sequence)


def formed_slots(node: object) -> list[int]:
    """Return the slots after which the parameters were formed that a node holds of each other."""
    box = node.mailbox  # type: ignore[attr-defined]
    if getattr(node, "message", "copy") == "sum":
        return slots_of(box.sequence).tolist()
    return box.slot.tolist()


def held_by(node: object) -> tuple[bytes, ...]:
    """Return what a node holds of others, as bytes that change whenever it does."""
    box = node.mailbox  # type: ignore[attr-defined]
    if getattr(node, "message", "copy") == "sum":
        return box.sequence.tobytes(), box.last.tobytes(), box.others.tobytes()
    return box.sequence.tobytes(), box.newest.tobytes(), box.payload.tobytes()
