"""A node's folder, operation by operation, so that a crash can be put between any two of them.

What has been written but not synced may survive a power cut in part, torn anywhere, or not at all.
A rename or a new name survives for sure only after the folder was synced too.

One process has a folder: a node holds a lock on it for as long as it runs. The operating system
lets go of the lock when the process ends, however it ends. The file stays: one that is deleted
while another process waits for it would be held twice.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from folkman.record.json_file import now

__all__ = ["Disk", "FolderDisk", "FolderLock", "FolderTakenError", "for_owner", "holder_of"]


class Disk(Protocol):
    """Files by name in one flat folder. Every function may raise `OSError`."""

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file anew; not durable before `sync` and, for a new name, `sync_folder`."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to the end of a file, or begin it."""
        ...

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Let a file take another name, in place of what had it.

        It happens whole or not at all, and is durable after `sync_folder`.
        """
        ...

    def sync_folder(self) -> None:
        """Make names durable."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files."""
        ...


class FolderDisk:
    """A real folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file anew, for its owner's eyes alone."""
        with open(self.folder / name, "wb", opener=for_owner) as file:
            file.write(data)

    def append(self, name: str, data: bytes) -> None:
        """Add bytes to the end of a file, or begin it."""
        with open(self.folder / name, "ab", opener=for_owner) as file:
            file.write(data)

    def sync(self, name: str) -> None:
        """Make a file's bytes durable."""
        self._sync(self.folder / name)

    def rename(self, old: str, new: str) -> None:
        """Let a file take another name."""
        os.replace(self.folder / old, self.folder / new)

    def sync_folder(self) -> None:
        """Make names durable."""
        self._sync(self.folder)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(each.name for each in self.folder.iterdir() if each.is_file())

    @staticmethod
    def _sync(path: Path) -> None:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def for_owner(path: str, flags: int) -> int:
    """Open a file that others cannot read, if it is new; an `opener` of `open`."""
    return os.open(path, flags, 0o600)


class FolderTakenError(RuntimeError):
    """Another process is the node of a folder."""


class FolderLock:
    """A lock that is held from its making to its closing."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._handle, 200).decode(errors="replace").strip()
            os.close(self._handle)
            raise FolderTakenError(
                f"expected a folder without a running node, {path.parent} is in use by "
                f"{holder or 'another process'}; stop that one, or give this node another folder"
            ) from None
        except OSError as error:
            os.close(self._handle)
            text = f"{error.strerror}; a node's folder needs a file system with flock"
            raise OSError(error.errno, text, str(path)) from None
        with suppress(OSError):  # a full disk: the lock is held all the same
            os.ftruncate(self._handle, 0)
            os.write(self._handle, f"process {os.getpid()} since {now()}\n".encode())

    def close(self) -> None:
        """Let go."""
        os.close(self._handle)


def holder_of(path: Path) -> str | None:
    """Return who holds the lock of a folder, in words; None if nobody does.

    To know it, the lock is taken for an instant, so a node that begins just then is refused: look
    only where no node is to begin.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(handle, 200).decode(errors="replace").strip() or "another process"
    finally:
        os.close(handle)
    return None
