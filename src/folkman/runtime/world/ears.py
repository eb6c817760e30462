"""What a process has heard of its neighbours' words, told again apart from `control.Voice`.

A word counts if its signature is its sender's, the sender is the neighbour that brings it, and its
number is above all that were heard of that neighbour.
"""

from typing import Any

from folkman.runtime.codec import CodecError
from folkman.runtime.control import Ack, Body, Refusal, open_sealed
from folkman.runtime.core.events import Told
from folkman.runtime.world.audit import Seen

__all__ = ["Ears"]


class Ears:
    """The words of one process, and how many were heard before."""

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}  # neighbour -> the highest number of its words
        self._said = 0  # the highest number of our messages after the step before
        self.repeated = 0

    def body(self, seen: Seen) -> Body | None:
        """Return the word that a step was told, None if there was none that counts."""
        core: Any = seen.host.core
        said, self._said = self._said, int(core.node.sequence)
        event = seen.event
        if not isinstance(event, Told) or core.hands.voice is None:
            return None
        if event.peer in core.node.excluded:
            return None
        try:
            found = open_sealed(event.data, seen.world.setting.run, core.verify)
        except CodecError:
            return None
        if found.node != event.peer:
            return None
        if found.sequence <= self._heard.get(event.peer, -1):
            self.repeated += 1
            return None
        self._heard[event.peer] = found.sequence
        beyond = isinstance(found.body, Ack | Refusal) and found.body.sequence > said
        return None if beyond else found.body
