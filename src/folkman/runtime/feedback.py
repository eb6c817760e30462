"""Error feedback between devices: what a sender remembers, and what a message builds on.

The equations are those of `folkman.packing.memory`. Where a message replaces the one before, only
the change travels, h <- h + C(m - h), and its receiver needs the h before it. Devices lose
messages, so each such message carries the number of the one that it builds on, and a receiver that
holds another refuses it (`base`) and says what it holds. It then gets the *whole* message: h
itself, as computed, under the same number. A sender that begins anew sends a whole one first.

Sender and receiver form h by the same sum of the bytes that travelled, so that they hold the same
bits. Where receivers add messages up, e stays with its sender and a message builds on nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array
from folkman.checks import require
from folkman.packing import wire
from folkman.packing.packing import Packing
from folkman.runtime.codec import Base, Message, Sign, encode, encode_packed

__all__ = ["NOTHING", "Memory", "Remembering", "first_memory"]

NOTHING = -1
"""The base of a sender that does not know what its receivers hold."""


class Memory(NamedTuple):
    """What a sender remembers, and the number of the message after which it holds."""

    kept: NDArray[np.floating]  # (d,) h, or e where receivers add up
    base: int = 0  # 0: the first message, which everyone knows


class Remembering(NamedTuple):
    """How a sender with a memory writes its messages."""

    packing: Packing
    dim: int
    adds: bool
    sign: Sign | None

    def write(self, memory: Memory, message: Message, key: Array) -> tuple[Memory, Message, bytes]:
        """Return the memory after a message, the message as receivers hold it, and its bytes.

        A message that is not finite leaves the memory alone.
        """
        model, rest = message.params[: self.dim], message.params[self.dim :]
        wanted = model + memory.kept if self.adds else model - memory.kept
        body = wire.write(self.packing, np.concatenate([wanted, rest]), self.dim, key)
        layout = wire.layout_of(wire.CODES[self.packing.name], body, len(message.params))
        sent = wire.read(layout, body)[: self.dim].astype(model.dtype)
        seen = sent if self.adds else memory.kept + sent
        after = wanted - sent if self.adds else seen
        after = after if np.isfinite(after).all() else memory.kept
        held = message._replace(params=np.concatenate([seen, rest]))
        return Memory(after, message.sequence), held, self._bytes(memory, held, body)

    def _bytes(self, memory: Memory, held: Message, body: bytes) -> bytes:
        if self.adds:
            return encode_packed(held, self.packing.name, body, self.sign)
        if memory.base == NOTHING:
            return encode(held, self.sign)
        on = held._replace(base=Base(memory.base, self.dim))
        return encode_packed(on, self.packing.name, body, self.sign)


def first_memory(first: NDArray, elsewhere: NDArray, dim: int, *, adds: bool) -> Memory:
    """Return the memory before anything was sent, `first` being the sender's first message.

    `elsewhere` is what receivers take for it, without having heard it.
    """
    require(
        adds or np.array_equal(first[:dim], elsewhere[:dim]),
        "error feedback on devices needs a first message that all nodes share, and those of this "
        "method differ; leave feedback out, or simulate it with `folkman run`",
    )
    return Memory(np.zeros_like(first[:dim]) if adds else first[:dim].copy())
