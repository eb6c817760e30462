"""The files of a node's folder as they are at one instant, for an operator that fetches them.

A file that is replaced by rename, as a state is, stays readable through its open handle; of one
that only grows, the journal and the log, the first bytes stay what they are. So nothing is copied,
nothing is written, and a full disk does not matter. Keys and samples are never among the files.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path

from folkman.record.cluster import NodeFolder
from folkman.runtime.fleet.words import HeldFile, Refused

__all__ = ["HeldFiles"]

BLOCK_BYTES = 1 << 20
MOST_FILE_BYTES = 1 << 36


class HeldFiles:
    """Open handles and what was found behind them. Made, read and closed by one thread."""

    def __init__(self, folder: NodeFolder, task: Path) -> None:
        self.token = secrets.token_hex(16)
        self._handles: dict[str, int] = {}
        self.files: list[HeldFile] = []
        for name, path in {**folder.told(), folder.TASK: task}.items():
            self._hold(name, path)

    def _hold(self, name: str, path: Path) -> None:
        """Open a file, if it is there, and form its digest."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return
        self._handles[name] = handle
        found, digest, offset = os.fstat(handle), hashlib.sha256(), 0
        size = found.st_size if stat.S_ISREG(found.st_mode) else 0
        while offset < min(size, MOST_FILE_BYTES):
            block = os.pread(handle, min(BLOCK_BYTES, size - offset), offset)
            if not block:  # it was cut meanwhile, as by a rotation of logs
                break
            digest.update(block)
            offset += len(block)
        self.files.append(HeldFile(name, offset, digest.hexdigest()))

    def read(self, name: str, offset: int, length: int) -> bytes | Refused:
        """Return bytes of a file as it was."""
        known = next((each for each in self.files if each.name == name), None)
        if known is None:
            return Refused("name", f"no file '{name}' is held")
        length = min(length, max(0, known.size - offset))
        return os.pread(self._handles[name], length, offset) if length else b""

    def close(self) -> None:
        """Let go of all files."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()
        self.files.clear()
