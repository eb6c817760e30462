"""A node's timeline as it happens: which messages each slot saw, and what was sent when.

One file a node, records of a fixed size after a header of 16 bytes, so that a cut tail is simply
left out:

    header    magic "FLKT", version u16 (1), senders u16, node u32, zero u32
    record    kind u8, computed u8, zero u16, slot i32, one i64 a sender

    1 start   the node begins, or begins again; slot: where; the sequence numbers of what it holds
    2 wake    a slot: its number, whether a gradient was taken, the sequence numbers of what it saw
    3 send    slot: after how many slots the message was formed; the first entry is its sequence
              number
    4 answer  a server's send; the entries are 1 for the nodes it is for, its sequence number is
              that of the wake
    5 lost    a sum could not be adopted, since it holds own parameters that are no longer kept; the
              first two entries are its carrier and the stamp of these parameters

Where messages are sums, stamps stand for sequence numbers.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ANSWER", "LOST", "SEND", "START", "WAKE", "Journal", "Log", "read"]

MAGIC, VERSION = b"FLKT", 1
START, WAKE, SEND, ANSWER, LOST = 1, 2, 3, 4, 5
_HEAD = np.dtype(
    [("magic", "S4"), ("version", "<u2"), ("senders", "<u2"), ("node", "<u4"), ("zero", "<u4")]
)


def _record(senders: int) -> np.dtype:
    fields = [("kind", "u1"), ("computed", "u1"), ("zero", "<u2"), ("slot", "<i4")]
    return np.dtype([*fields, ("sequence", "<i8", (senders,))])


class Journal:
    """An append-only file.

    A disk that refuses, or the end of its room, ends the journal and not the node.
    """

    def __init__(
        self, path: Path | None, node: int, senders: int, most_bytes: int = 256 << 20
    ) -> None:
        self._type = _record(senders)
        self._left = most_bytes
        self._lock = threading.RLock()  # learner, sender and keeper write
        self._file: BinaryIO | None = None
        self.ended = "not asked for" if path is None else ""
        if path is None:
            return
        fresh = not path.exists() or path.stat().st_size < _HEAD.itemsize
        if not fresh:  # a record that a crash cut in two
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.truncate(size - (size - _HEAD.itemsize) % self._type.itemsize)
            self._left -= size
        self._file = path.open("wb" if fresh else "ab", buffering=1 << 16)
        if fresh:
            self._put(np.array((MAGIC, VERSION, senders, node, 0), _HEAD))

    def note(
        self, kind: int, slot: int, sequence: NDArray | list[int], *, computed: bool = False
    ) -> None:
        """Append a record."""
        row = np.zeros((), self._type)
        row["kind"], row["slot"], row["computed"] = kind, slot, computed
        row["sequence"][: len(sequence)] = sequence
        self._put(row)

    def flush(self) -> None:
        """Hand what is buffered to the system."""
        self._try(lambda file: file.flush())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._try(lambda file: file.close())
            self._file = None

    def _put(self, row: NDArray) -> None:
        with self._lock:
            self._left -= row.nbytes
            if self._left < 0 and self._file is not None:
                self.close()
                self.ended = "full"
            self._try(lambda file: file.write(row.tobytes()))

    def _try(self, work: Callable[[BinaryIO], object]) -> None:
        with self._lock:
            if self._file is None:
                return
            try:
                work(self._file)
            except OSError as error:
                self._file, self.ended = None, str(error)


class Log(NamedTuple):
    """A journal that was read."""

    node: int
    records: NDArray  # with fields kind, computed, slot, sequence


def read(path: Path) -> Log:
    """Read a journal; a tail that a crash cut is left out."""
    data = path.read_bytes()
    if len(data) < _HEAD.itemsize:
        raise ValueError(
            f"expected a journal, {path} has {len(data)} bytes; the node recorded nothing"
        )
    head = np.frombuffer(data[: _HEAD.itemsize], _HEAD)[0]
    if head["magic"] != MAGIC or head["version"] != VERSION:
        raise ValueError(f"expected a journal {MAGIC!r} {VERSION}, {path} begins with {data[:6]!r}")
    kind = _record(int(head["senders"]))
    body = data[_HEAD.itemsize :]
    return Log(
        int(head["node"]), np.frombuffer(body[: len(body) - len(body) % kind.itemsize], kind)
    )
