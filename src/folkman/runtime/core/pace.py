"""What a pace is: when a node lives its slots, and when it sends."""

import math
from typing import TYPE_CHECKING

from folkman.runtime import control
from folkman.runtime.codec import LostPastError

if TYPE_CHECKING:
    from folkman.runtime.core.core import Core

__all__ = ["Pace"]


class Pace:
    """A small state machine inside a core, which it is given at every call.

    `act` does all that can be done now, and is called after everything that happens while the node
    learns; it must do nothing if nothing has changed. `next_s` is when it wants to be called at the
    latest.
    """

    room = 2
    """Messages that may wait for one neighbour's acknowledgement."""
    greet_every = 1
    """Times that a node looks around until it says hello again, where links are settled."""

    def warm(self) -> None:
        """Compile what is needed while learning."""

    def begin(self, core: "Core", now_s: float) -> None:
        """Learning begins, or goes on after a restart."""

    def act(self, core: "Core", now_s: float) -> None:
        """Do what is due."""
        raise NotImplementedError

    def next_s(self, core: "Core", now_s: float) -> float:
        """Return when `act` has something to do though nothing happens."""
        raise NotImplementedError

    def sort(self, core: "Core", peer: int, data: bytes, now_s: float) -> None:
        """Take a message, or put it on an emulated air first."""
        core.hearing.take(peer, data, now_s)

    def deliver(self, core: "Core", now_s: float) -> None:
        """Take what has come to the end of an emulated way, whatever the node does."""

    def deliver_s(self) -> float:
        """Return when something comes to the end of an emulated way."""
        return math.inf

    def heed(self, core: "Core", peer: int, body: control.Body, now_s: float) -> None:
        """Act on what a neighbour says, besides what every node does."""

    def lost(self, core: "Core", error: LostPastError, now_s: float) -> None:
        """Take notice that a sum holds own parameters that are no longer kept."""

    def equivocated(self, core: "Core", first: bytes, second: bytes) -> None:
        """Take notice of two messages that one node has signed under one number."""

    def prove(self, core: "Core", peer: int, now_s: float) -> None:
        """Tell one that passes on what an excluded node has signed why that is refused."""

    def unlinked(self, peer: int) -> None:
        """Take notice that a neighbour is gone."""
