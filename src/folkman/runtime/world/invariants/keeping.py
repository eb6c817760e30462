"""What a disk keeps: invariants 2, 7, 13 and 17."""

from collections import defaultdict
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from folkman.record.cluster import FINAL_FILE
from folkman.runtime import durable
from folkman.runtime.core.events import Asked, Compute, Finish, Publish, Save, Start
from folkman.runtime.core.settings import DISK, DIVERGED
from folkman.runtime.durable import Arrays
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.host import FINGERPRINT

if TYPE_CHECKING:
    from folkman.runtime.world.host import Host
    from folkman.runtime.world.world import World

__all__ = ["ExitCode", "OnePair", "SavedFirst", "SavedStates", "digest_of"]

STEPS, SEQUENCE = 1, 2
"""Places in the counters of a saved state."""


def digest_of(arrays: Arrays) -> bytes:
    """Return a short name of a state: the same for the same bits."""
    digest = blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.digest()


class SavedFirst(Invariant):
    """2: in rounds a node says nothing that it could not say again."""

    number = 2
    sentence = "in rounds a state is saved before it is published, and survives a crash right then"
    looks_at = (Publish,)

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._damaged: set[int] = set()

    def asks(self, world: "World") -> bool:
        """Only where messages must not be lost."""
        return world.setting.counts_on

    def flipped(self, host: "Host") -> None:
        """Ask nothing of a disk that has rotted until it is written anew."""
        self._damaged.add(host.number)

    def saved(self, world: "World", host: "Host", save: Save) -> None:
        """Ask again: it is written anew."""
        del world, save
        self._damaged.discard(host.number)

    def lost_folder(self, host: "Host") -> None:
        """Count anew."""
        self._sent.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """Cut the power in thought right before a message leaves, and look at what is left."""
        number = seen.host.number
        fresh = {h.sequence: h for h in seen.published if h.sequence > self._sent.get(number, 0)}
        for sequence, header in sorted(fresh.items()):
            self._sent[number] = sequence
            if number in self._damaged:
                continue
            left = durable.read_state(seen.host.disk.survivor(), FINGERPRINT).arrays
            if left is None:
                raise broken(self, f"node {number} sends {sequence} and has saved nothing")
            kept = [left[name].tobytes() for name in ("sent", "sent.before") if name in left]
            again = header.data in kept
            if not again and int(left["counters"][SEQUENCE]) + 1 != sequence:
                text = f"node {number} sends {sequence}; after a crash it would go on from"
                raise broken(self, f"{text} {int(left['counters'][SEQUENCE])}")


class SavedStates(Invariant):
    """7: a disk gives back what it was given, the newest that it has acknowledged."""

    number = 7
    sentence = "saved steps never fall; what is read is one of the states saved"
    looks_at = (Save,)

    def __init__(self) -> None:
        self._given: dict[int, set[bytes]] = defaultdict(set)
        self._last: dict[int, bytes] = {}  # the digest of the state that was to be saved last
        self._steps: dict[int, int] = defaultdict(int)
        self._damaged: set[int] = set()

    def flipped(self, host: "Host") -> None:
        """Let a disk that has rotted give back an earlier state, or none."""
        self._damaged.add(host.number)

    def lost_folder(self, host: "Host") -> None:
        """Begin anew."""
        self._given.pop(host.number, None)
        self._steps.pop(host.number, None)

    def stepped(self, seen: Seen) -> None:
        """Remember every state that is to be saved."""
        for effect in seen.of(Save):
            if effect.state is not None:
                self._last[seen.host.number] = digest = digest_of(effect.state)
                self._given[seen.host.number].add(digest)

    def saved(self, world: "World", host: "Host", save: Save) -> None:
        """See that all of a save would survive, and that a later one holds as many steps."""
        del world
        self._check_survives(host, save)
        if save.state is None:
            return
        steps = int(save.state["counters"][STEPS])
        if steps < self._steps[host.number] and host.number not in self._damaged:
            text = f"node {host.number} saves step {steps} over {self._steps[host.number]}"
            raise broken(self, text)
        self._steps[host.number] = steps

    def _check_survives(self, host: "Host", save: Save) -> None:
        """Cut the power in thought right after a save that was taken whole."""
        left = host.disk.survivor()
        if save.life is not None and durable.read_life(left).life < save.life:
            raise broken(self, f"life {save.life} of node {host.number} would not survive a cut")
        if save.final is not None and left.read(FINAL_FILE) is None:
            raise broken(self, f"the result of node {host.number} would not survive a cut")
        if save.state is not None:
            found = durable.read_state(left, FINGERPRINT).arrays
            if found is None or digest_of(found) != self._last[host.number]:
                raise broken(self, f"a state of node {host.number} would not survive a cut")

    def began(self, world: "World", host: "Host", start: Start) -> None:
        """Compare what a process begins with with what was saved."""
        del world
        number = host.number
        if start.state is None:
            if self._steps[number] and number not in self._damaged:
                raise broken(self, f"node {number} reads nothing after it had saved")
            return
        if digest_of(start.state) not in self._given[number]:
            raise broken(self, f"node {number} reads a state that was never saved")
        steps = int(start.state["counters"][STEPS])
        if steps < self._steps[number] and number not in self._damaged:
            text = f"node {number} goes on from step {steps}, {self._steps[number]} was saved"
            raise broken(self, text)
        self._steps[number] = steps


class OnePair(Invariant):
    """13: a state and its counters are of one instant, and no draw is made twice."""

    number = 13
    sentence = "no torn pair of state and counters; a key is used once a life"
    looks_at = (
        Compute,
        Save,
    )

    def __init__(self) -> None:
        self._computed: dict[tuple[int, int], int] = {}

    def stepped(self, seen: Seen) -> None:
        """Compare what is saved with what is, and count gradients."""
        key = (seen.host.number, seen.host.process)
        for effect in seen.of(Compute):
            if effect.step <= self._computed.get(key, -1):
                text = f"node {seen.host.number} computes gradient {effect.step} again"
                raise broken(self, text)
            self._computed[key] = effect.step
        for effect in seen.of(Save):
            if effect.state is not None:
                node, counters = seen.node, effect.state["counters"]
                if int(counters[STEPS]) != node.steps or (
                    effect.state["params"].tobytes() != np.asarray(node.params()).tobytes()
                ):
                    text = f"node {seen.host.number} saves counters {list(counters)}"
                    raise broken(self, f"{text} with another state's parameters")


class ExitCode(Invariant):
    """17: who reads the exit code knows what is on the disk."""

    number = 17
    sentence = "the exit code matches the disk"
    looks_at = (
        Asked,
        Finish,
    )

    def __init__(self) -> None:
        self._damaged: set[int] = set()
        self._asked: set[tuple[int, int]] = set()  # (member, process) that was asked to stop

    def flipped(self, host: "Host") -> None:
        """Ask nothing of a disk that has rotted."""
        self._damaged.add(host.number)

    def stepped(self, seen: Seen) -> None:
        """Look at what would survive the end of a process."""
        number = seen.host.number
        if isinstance(seen.event, Asked):
            self._asked.add((number, seen.host.process))
        codes = [effect.code for effect in seen.of(Finish)]
        if not codes or number in self._damaged:
            return
        code, node = codes[0], seen.node
        left = seen.host.disk.survivor()
        has_final = left.read(FINAL_FILE) is not None
        steps = seen.world.setting.settings.steps
        is_done = steps is not None and node.steps >= steps and seen.world.setting.learns(number)
        was_asked = (number, seen.host.process) in self._asked
        if code == 0 and is_done and not was_asked and not has_final:
            raise broken(self, f"node {number} ends with 0 after all steps, without a result")
        if code == DISK and has_final:
            raise broken(self, f"node {number} says that the disk took no result, and it has one")
        finite = np.isfinite(node.params()).all() and np.isfinite(getattr(node, "loss", 0.0))
        if code == DIVERGED and finite:
            raise broken(self, f"node {number} says that it diverged, and all is finite")
        if code not in (0, DISK, DIVERGED):
            raise broken(self, f"node {number} ends with {code}: a fault of its own")
