"""Every way in which a save may be cut off or rot: invariant 30.

A schedule has few power cuts, and each falls on one operation of one save. Here saves are carried
out again on copies of the disk, cut after every operation, with a bit flipped, and read.
"""

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from folkman.record.cluster import FINAL_FILE, LIFE_COPY_FILE, LIFE_FILE, STATE_FILE
from folkman.runtime import durable
from folkman.runtime.core.events import Save
from folkman.runtime.durable import Arrays
from folkman.runtime.world.audit import Invariant, Seen, broken
from folkman.runtime.world.disk import Interrupted, VirtualDisk
from folkman.runtime.world.draws import stream
from folkman.runtime.world.host import FINGERPRINT, write
from folkman.runtime.world.invariants.keeping import digest_of

if TYPE_CHECKING:
    from folkman.runtime.world.world import World

__all__ = ["EveryCut"]

SHARE = 16
"""One schedule of so many is asked: a save is carried out some twenty times for it."""
LOOKED_AT = 2
"""Saves of each kind and member that are looked at."""
KEEPS = (0.0, 0.5, 1.0)
"""How likely each part of what was not synced is to survive a cut."""
MOST_OPERATIONS = 30
FLIPS = 6
"""Bits that are flipped, one after the other."""


class EveryCut(Invariant):
    """30: there is no wrong moment for a power cut, and no bit whose flip goes unnoticed."""

    number = 30
    sentence = "a save that is cut anywhere leaves what was there or what was to be; rot is noticed"
    looks_at = (Save,)

    def __init__(self) -> None:
        self._looked: dict[tuple[int, str], int] = {}
        self._draws = stream(0, "cuts")

    def asks(self, world: "World") -> bool:
        """Ask a sample."""
        self._draws = stream(world.plan.seed, "cuts")
        return world.plan.seed % SHARE == SHARE // 2

    def stepped(self, seen: Seen) -> None:
        """Look at a save that is about to begin, if there is something on the disk to lose.

        After a save that failed, either of two states may be what is there.
        """
        disk = seen.host.disk
        for save in seen.of(Save):
            kind = "state" if save.state is not None else "life"
            if not disk.is_settled() or (kind == "state" and disk.read(STATE_FILE) is None):
                continue
            key = seen.host.number, kind
            self._looked[key] = self._looked.get(key, 0) + 1
            if self._looked[key] <= LOOKED_AT:
                self._cut(seen, disk, save)
                self._rot(seen, disk, save)
                self._look_at_refused(seen, disk, save)

    def _cut(self, seen: Seen, disk: VirtualDisk, save: Save) -> None:
        """Cut the power after every operation."""
        least, before = durable.read_life(disk).life, durable.read_state(disk, FINGERPRINT)
        may = {_name(before.arrays), _name(save.state if save.state is not None else before.arrays)}
        for operations in range(1, MOST_OPERATIONS):
            whole, left = _interrupted(disk, save, operations, self._draws)
            for keeps in KEEPS:
                cut = left.copy(self._draws)
                cut.cut(keeps=keeps)
                where = f"after {operations} operations of a save of node {seen.host.number}"
                found = durable.read_state(cut, FINGERPRINT)
                if _name(found.arrays) not in may or found.warnings > before.warnings:
                    raise broken(self, f"{where} another state would be read, or none")
                if durable.read_life(cut).life < least:
                    raise broken(self, f"{where} an earlier life than {least} would be read")
                final = cut.read(FINAL_FILE)
                if final is not None and final != disk.read(FINAL_FILE):  # that one may be rotten
                    durable.arrays_of(final)
            if whole:
                return

    def _rot(self, seen: Seen, disk: VirtualDisk, save: Save) -> None:
        """Flip bits of what was saved; then of what is saved after that."""
        _, whole = _interrupted(disk, save, MOST_OPERATIONS, self._draws)
        life, before = durable.read_life(whole).life, durable.read_state(disk, FINGERPRINT).arrays
        for name in (LIFE_FILE, LIFE_COPY_FILE) if save.life is not None else ():
            for bit in range(8 * len(whole.read(name) or b"")):
                left = whole.copy(self._draws)
                left.flip(name, bit)
                if durable.read_life(left).life < life:
                    text = f"one flipped bit takes node {seen.host.number} back behind life {life}"
                    raise broken(self, text)
        for _ in range(FLIPS):
            if save.state is None or before is None:
                break
            left = whole.copy(self._draws)
            left.flip(STATE_FILE)
            self._look_at_rotten(seen, left, before)
            _, anew = _interrupted(left, save, MOST_OPERATIONS, self._draws)
            anew.flip(STATE_FILE)  # the damaged one must not have taken the good one's place
            self._look_at_rotten(seen, anew, before)

    def _look_at_refused(self, seen: Seen, disk: VirtualDisk, save: Save) -> None:
        """See that a state with one number that is none is not written over a good one."""
        if save.state is None:
            return
        wrong = save.state["params"].copy()
        wrong[0] = np.nan
        with suppress(ValueError):
            write(disk.copy(self._draws), save._replace(state=save.state | {"params": wrong}))
            raise broken(self, f"node {seen.host.number} would save parameters that are not finite")

    def _look_at_rotten(self, seen: Seen, disk: VirtualDisk, before: Arrays) -> None:
        found = durable.read_state(disk, FINGERPRINT)
        if not found.warnings or _name(found.arrays) != _name(before):
            text = f"with one flipped bit node {seen.host.number} would not go on from the state"
            raise broken(self, f"{text} before")


def _interrupted(
    disk: VirtualDisk, save: Save, operations: int, draws: Random
) -> tuple[bool, VirtualDisk]:
    """Carry a save out on a copy of a disk; tell whether it came to its end before the process."""
    copy = disk.copy(draws)
    copy.now_s, copy.operation_s, copy.ends_s = 0.0, 1.0, operations - 0.5
    try:
        write(copy, save)
    except Interrupted:
        return False, copy
    return True, copy


def _name(arrays: Arrays | None) -> bytes:
    return b"" if arrays is None else digest_of(arrays)
