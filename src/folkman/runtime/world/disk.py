"""A disk that forgets what was not synced, tears it, fills up, fails, and rots.

Contents and names are kept twice: as the running system sees them, and as a power cut would leave
them. A cut keeps any subset of what was not synced: of a file's bytes by sectors, of names by
operations. A killed process alone loses nothing that it had written.
"""

import errno
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

__all__ = ["Interrupted", "Trouble", "VirtualDisk"]

SECTOR_BYTES = 512


class Interrupted(BaseException):
    """The process ends in the middle of this operation."""


class Trouble(NamedTuple):
    """What ails a disk at some time."""

    full: bool = False
    failing: bool = False
    slow: float = 1.0  # times as long for every operation


class _File:
    """Bytes as they are seen, and as they would survive."""

    def __init__(self, seen: bytes = b"", safe: bytes = b"") -> None:
        self.seen, self.safe = seen, safe


class VirtualDisk:
    """One node's folder (`folkman.runtime.disk.Disk`).

    Operations take `operation_s` of the disk's own time `now_s`, which its owner sets before it
    lets a save run. A process that is to end at `ends_s` is interrupted between operations.
    """

    def __init__(self, draws: Random, trouble: Callable[[float], Trouble]) -> None:
        self._draws, self._trouble = draws, trouble
        self._seen: dict[str, _File] = {}
        self._safe: dict[str, _File] = {}
        self._named: list[dict[str, _File | None]] = []  # operations on names, not synced
        self.now_s, self.ends_s, self.operation_s = 0.0, float("inf"), 0.0
        self.operations = 0

    # -- what a node may do ------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        file = self._seen.get(name)
        return None if file is None else file.seen

    def write(self, name: str, data: bytes) -> None:
        """Write a file anew."""
        kept = self._room_for(data)
        self._opened(name).seen = data[:kept]
        self._go_on_after(data, kept)

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to the end of a file, or begin it."""
        kept = self._room_for(data)
        self._opened(name).seen += data[:kept]
        self._go_on_after(data, kept)

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""
        self._operate()
        file = self._found(name)
        file.safe = file.seen

    def rename(self, old: str, new: str) -> None:
        """Let a file take another name."""
        self._operate()
        self._name({new: self._found(old), old: None})

    def sync_folder(self) -> None:
        """Make names durable."""
        self._operate()
        self._safe = dict(self._seen)
        self._named.clear()

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._operate()
        if name in self._seen:
            self._name({name: None})

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self._seen)

    # -- what happens to it ------------------------------------------------------------------------

    def cut(self, *, keeps: float | None = None) -> None:
        """Lose power: of what was not synced any part survives.

        `keeps` is how likely each part is to; 0 is the worst case, and None draws it.
        """
        keeps = self._draws.choice((0.0, 0.5, 0.9, 1.0)) if keeps is None else keeps
        for operation in self._named:
            if self._draws.random() < keeps:
                _apply(self._safe, operation)
        self._named.clear()
        for file in dict.fromkeys(self._safe[name] for name in sorted(self._safe)):
            if file.seen != file.safe:
                file.safe = self._torn(file, keeps)
            file.seen = file.safe
        self._seen = dict(self._safe)

    def survivor(self) -> "VirtualDisk":
        """Return the disk as a power cut now would leave it at worst: only what was synced."""
        left = VirtualDisk(self._draws, self._trouble)
        for name, file in self._safe.items():
            left._seen[name] = copy = _File()
            copy.seen = copy.safe = file.safe
        left._safe = dict(left._seen)
        return left

    def is_settled(self) -> bool:
        """Tell whether a cut would change nothing: all that was written or named is synced."""
        return not self._named and all(f.seen == f.safe for f in self._safe.values())

    def copy(self, draws: Random) -> "VirtualDisk":
        """Return a disk like this one that nothing ails, and what was not synced on it."""
        files = {id(file): file for held in (self._seen, self._safe) for file in held.values()}
        for operation in self._named:
            files |= {id(file): file for file in operation.values() if file is not None}
        copies = {key: _File(file.seen, file.safe) for key, file in files.items()}

        def copied(held: dict[str, _File | None]) -> dict[str, Any]:
            return {name: None if f is None else copies[id(f)] for name, f in held.items()}

        found = VirtualDisk(draws, lambda _: Trouble())
        found._seen, found._safe = copied({**self._seen}), copied({**self._safe})
        found._named = [copied(operation) for operation in self._named]
        return found

    def flip(self, name: str = "", bit: int | None = None) -> str:
        """Flip one bit, by default any of any file; return its name, nothing if all is empty."""
        names = [each for each in self.names() if self._seen[each].seen]
        if not names:
            return ""
        name = name or self._draws.choice(names)
        file = self._seen[name]
        at = self._draws.randrange(8 * len(file.seen)) if bit is None else bit
        was_safe = file.seen == file.safe
        changed = bytearray(file.seen)
        changed[at // 8] ^= 1 << at % 8
        file.seen = bytes(changed)
        if was_safe:
            file.safe = file.seen
        return name

    def wipe(self) -> None:
        """Lose the folder."""
        self._seen, self._safe = {}, {}
        self._named.clear()

    # -- inside ------------------------------------------------------------------------------------

    def _operate(self) -> None:
        """Let the time of one operation pass, and refuse what a failing disk refuses."""
        self.now_s += self.operation_s * self._trouble(self.now_s).slow
        self.operations += 1
        if self.now_s >= self.ends_s:
            raise Interrupted
        if self._trouble(self.now_s).failing:
            raise OSError(errno.EIO, "the disk failed")

    def _room_for(self, data: bytes) -> int:
        """Return how many of the bytes are written before the process ends or the room does."""
        try:
            self._operate()
        except Interrupted:
            return self._draws.randrange(len(data) + 1)
        full = self._trouble(self.now_s).full
        return self._draws.randrange(len(data) + 1) if full and data else len(data)

    def _go_on_after(self, data: bytes, kept: int) -> None:
        if self.now_s >= self.ends_s:
            raise Interrupted
        if kept < len(data) or (data and self._trouble(self.now_s).full):
            raise OSError(errno.ENOSPC, "no room is left on the disk")

    def _opened(self, name: str) -> _File:
        if name not in self._seen:
            self._name({name: _File()})
        return self._seen[name]

    def _found(self, name: str) -> _File:
        if name not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self._seen[name]

    def _name(self, operation: dict[str, _File | None]) -> None:
        _apply(self._seen, operation)
        self._named.append(operation)

    def _torn(self, file: _File, keeps: float) -> bytes:
        """Return what is left of a file: each sector as it was or as it was to become."""
        size = len(file.seen) if self._draws.random() < keeps else len(file.safe)
        parts = []
        for start in range(0, size, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, size)
            chosen = file.seen if self._draws.random() < keeps else file.safe
            parts.append(chosen[start:end].ljust(end - start, b"\0"))
        return b"".join(parts)


def _apply(names: dict[str, _File], operation: dict[str, _File | None]) -> None:
    for name, file in operation.items():
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
