"""Lost lives: who hears that it has lost some goes beyond them. Invariant 31, a re-telling."""

import math
from typing import TYPE_CHECKING, Any

from folkman.runtime.control import LIFE_BITS, Known
from folkman.runtime.core.events import Log, Start, Tell, Told
from folkman.runtime.world.audit import Invariant, Seen, broken

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["Lives"]

MOST_BELIEVED = 2**30
TOLD_EVERY_S = 1.0


class _Process:
    def __init__(self) -> None:
        self.believed: set[int] = set()
        self.life = 0  # that is on, or to come
        self.repeated = 0
        self.told_s: dict[int, float] = {}  # neighbour -> when it was last told of its life


class Lives(Invariant):
    """31: a life that was lost is heard of, and each neighbour is believed once."""

    number = 31
    sentence = "who is told of a later life of its own goes beyond it; who has lost one is told so"
    looks_at = (Start, Tell, Told)

    def __init__(self) -> None:
        self._of: dict[int, _Process] = {}

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Begin anew."""
        del world, start
        self._of[host.number] = _Process()

    def stepped(self, seen: Seen) -> None:
        """Look at what a neighbour knows of us, and at what we tell one that repeats itself."""
        core: Any = seen.host.core
        of, now_s, event = self._of[seen.host.number], core._now_s, seen.event
        of.life = max(of.life, core.life.number)
        if isinstance(event, Told):
            self._look_at_claim(seen, of, event.peer)
            self._look_at_repeated(seen, of, event.peer, now_s)
        for to, control in seen.told:
            if isinstance(control.body, Known):
                of.told_s[to] = now_s  # whatever it was that it answered

    def _look_at_claim(self, seen: Seen, of: _Process, peer: int) -> None:
        said = seen.word.life if isinstance(seen.word, Known) else None
        if seen.beyond is not None and not seen.world.setting.counts_on:
            said = seen.beyond >> LIFE_BITS  # it acknowledges what this life has not sent
        goes = said is not None and peer not in of.believed and of.life <= said < MOST_BELIEVED
        number = seen.host.number
        if goes != any(log.event == "life" for log in seen.of(Log)):
            does = "does not go" if goes else "goes"
            raise broken(self, f"node {number} in life {of.life} {does} beyond life {said}")
        if goes and said is not None:
            of.believed.add(peer)
            of.life = said + 1

    def _look_at_repeated(self, seen: Seen, of: _Process, peer: int, now_s: float) -> None:
        """See that a neighbour whose words were heard before is told of the life that is known."""
        told = {to for to, control in seen.told if isinstance(control.body, Known)}
        was, of.repeated = of.repeated, seen.repeated
        late = now_s - of.told_s.get(peer, -math.inf) >= TOLD_EVERY_S
        if seen.repeated > was and late and peer not in told:
            raise broken(self, f"node {seen.host.number} does not tell {peer} of its life")
