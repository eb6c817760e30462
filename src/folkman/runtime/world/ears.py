"""What a process has heard of its neighbours' words, told again apart from `control.Voice`.

A word counts if its signature is its sender's, the sender is the neighbour that brings it, and its
number is above all that were heard of that neighbour.
"""

from typing import Any

from folkman.runtime.codec import CodecError
from folkman.runtime.control import (
    CONTEXT,
    SIGNATURE_BYTES,
    Ack,
    Body,
    Control,
    Refusal,
    open_sealed,
)
from folkman.runtime.core.events import Event, Told

__all__ = ["Ears", "Sealed"]


class Sealed:
    """The words of one schedule, each opened once though it is said, heard and looked at."""

    def __init__(self, run: int) -> None:
        self._run = run
        self._found: dict[bytes, Control | None] = {}

    def opened(self, data: bytes) -> Control | None:
        """Return a word whose signature nobody looked at; None: it is none."""
        if data not in self._found:
            try:
                self._found[data] = open_sealed(data, self._run)
            except CodecError:
                self._found[data] = None
        return self._found[data]


class Ears:
    """The words of one process, and how many were heard before."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed
        self._heard: dict[int, int] = {}  # neighbour -> the highest number of its words
        self._said = 0  # the highest number of our messages after the step before
        self.repeated = 0
        self.beyond: int | None = None  # the number of an acknowledged message that was never sent

    def word(self, core: Any, event: Event) -> Body | None:
        """Return the word that a step was told, None if there was none that counts."""
        said, self._said, self.beyond = self._said, int(core.node.sequence), None
        if not isinstance(event, Told) or core.hands.voice is None:
            return None
        found = self._sealed.opened(event.data)
        if found is None or found.node != event.peer or event.peer in core.node.excluded:
            return None
        signature, body = event.data[:SIGNATURE_BYTES], event.data[SIGNATURE_BYTES:]
        if not core.verify(found.node, CONTEXT + body, signature):
            return None
        if found.sequence <= self._heard.get(event.peer, -1):
            self.repeated += 1
            return None
        self._heard[event.peer] = found.sequence
        if isinstance(found.body, Ack | Refusal) and found.body.sequence > said:
            self.beyond = found.body.sequence if isinstance(found.body, Ack) else None
            return None
        return found.body
