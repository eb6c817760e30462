"""A node's timeline as it happens: which messages each slot saw, and what was sent when.

One file a node: sections one after the other, each a head and records of a fixed size. A process
begins a section when it starts, and another one when a disk that refused takes bytes again.

    head      16 bytes that are in no record, version u16 (2), senders u16, node u32,
              life u64: number of the process's life
              kept u64: how many records of this life count that stand before the head
              lost u64: records of this life that are missing after these
              check u32: CRC-32 of the fields from the version on
    record    kind u8, computed u8, zero u16, slot i32, one i64 a sender

    1 start   the node begins, or begins again; slot: where; the sequence numbers of what it holds
    2 wake    a slot: its number, whether a gradient was taken, the sequence numbers of what it saw
    3 send    slot: after how many slots the message was formed; the first entry is its sequence
              number
    4 answer  a server's send; the entries are 1 for the nodes it is for, its sequence number is
              that of the wake
    5 lost    a sum could not be adopted, since it holds own parameters that are no longer kept; the
              first two entries are its carrier and the stamp of these parameters
    6 forgot  the first entry is a node that is no member any more; its first message is held again

Where messages are sums, stamps stand for sequence numbers. A tail that a crash cut is left out.
Version 1 had one section, whose head was "FLKT", version u16, senders u16, node u32, zero u32.
"""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.record.cluster import JOURNAL_FILE
from folkman.runtime.disk import Disk

__all__ = ["ANSWER", "FORGOT", "LOST", "SEND", "START", "WAKE", "Gap", "Journal", "Log", "read"]

START, WAKE, SEND, ANSWER, LOST, FORGOT = 1, 2, 3, 4, 5, 6
VERSION = 2
SEAM = bytes.fromhex("464c4b54d3a94f0e8b7c21f5e6905ad8")  # "FLKT" and 12 drawn bytes
_HEAD = struct.Struct("<HHIQQQ")  # version, senders, node, life, kept, lost
_HEAD_BYTES = _HEAD.size + 4
_HEAD_BEFORE = struct.Struct("<4sHHII")  # of version 1
BATCH_BYTES = 1 << 16
"""Records are handed to the disk when there are so many, and at every `flush`."""
MOST_WAITING_BYTES = 1 << 20
"""Records that wait for a disk that refuses; those beyond are lost, and counted."""


class Journal:
    """An append-only file that outlives a full disk.

    While the disk refuses, records wait; those beyond `MOST_WAITING_BYTES` are left out, and the
    gap is marked. The node never waits and never ends for it. `written_bytes`: what the file has
    already of its `most_bytes`.
    """

    def __init__(
        self,
        disk: Disk | None,
        node: int,
        senders: int,
        *,
        life: int,
        written_bytes: int = 0,
        most_bytes: int = 256 << 20,
    ) -> None:
        self._disk = disk
        self._about = (VERSION, senders, node, life)
        self._senders, self._row = senders, struct.Struct(f"<BBHi{senders}q")
        self._room_bytes = most_bytes - written_bytes
        self._head = self._head_of(kept=0, lost=0)  # still to be written; empty: it is
        self._waiting: list[bytes] = []  # records after the head
        self._taken = 0  # records that the disk has for sure
        self._beyond = 0  # records that were left out after those that wait
        self._refusal = ""  # what the disk said when it last refused
        self._ended = "not asked for" if disk is None else ""
        self.lost = 0  # records that were left out

    @property
    def ended(self) -> str:
        """Return what is wrong with the journal; empty: all is recorded."""
        if self._ended or not (self._refusal or self.lost):
            return self._ended
        waits = f"waits for the disk: {self._refusal}" if self._refusal else "recorded with a gap"
        return f"{waits}; {self.lost} records lost" if self.lost else waits

    def note(
        self, kind: int, slot: int, sequence: Iterable[int] | NDArray, *, computed: bool = False
    ) -> None:
        """Append a record."""
        numbers = sequence.tolist() if isinstance(sequence, np.ndarray) else list(sequence)
        numbers += [0] * (self._senders - len(numbers))
        if self._ended:
            return
        waiting_bytes = len(self._waiting) * self._row.size
        if self._beyond or waiting_bytes >= MOST_WAITING_BYTES:
            self._beyond += 1
            self.lost += 1
            return
        self._room_bytes -= self._row.size
        if self._room_bytes < 0:
            self._write()
            self._ended = "full"
            return
        self._waiting.append(self._row.pack(kind, computed, 0, slot, *numbers))
        if waiting_bytes >= BATCH_BYTES and not self._refusal:
            self._write()

    def leave_out(self, records: int) -> None:
        """Mark a gap of records that could not wait."""
        self._beyond, self.lost = self._beyond + records, self.lost + records

    def flush(self) -> None:
        """Hand what waits to the disk; what it refuses waits on."""
        self._write()

    def close(self) -> None:
        """Hand what waits to the disk, for the last time."""
        self._write()
        self._ended = self._ended or "closed"

    def _write(self) -> None:
        if self._disk is None or self._ended:
            return
        if not (self._head or self._waiting or self._beyond):
            return
        try:
            self._disk.append(JOURNAL_FILE, self._head + b"".join(self._waiting))
        except OSError as error:  # any part of it may be on the disk: the next head takes it back
            self._refusal = str(error)
            self._head = self._head or self._head_of(kept=self._taken, lost=0)
            return
        self._taken += len(self._waiting)
        self._head, self._waiting, self._refusal = b"", [], ""
        if self._beyond:
            self._head, self._beyond = self._head_of(kept=self._taken, lost=self._beyond), 0
            self._write()

    def _head_of(self, *, kept: int, lost: int) -> bytes:
        fields = _HEAD.pack(*self._about, kept, lost)
        return SEAM + fields + zlib.crc32(fields).to_bytes(4, "little")


class Gap(NamedTuple):
    """Records that are missing."""

    at: int  # index of the record after them
    lost: int


class Log(NamedTuple):
    """A journal that was read."""

    node: int
    records: NDArray  # with fields kind, computed, slot, sequence
    gaps: tuple[Gap, ...] = ()


class _Section(NamedTuple):
    """A section as it stands in the file."""

    senders: int
    node: int
    life: int
    kept: int
    lost: int
    body: bytes


def read(path: Path) -> Log:
    """Read a journal; a tail that a crash cut is left out."""
    sections = _split(path.read_bytes(), path)
    about = {(each.senders, each.node) for each in sections}
    if len(about) != 1:
        raise ValueError(
            f"expected the journal of one node, {path} has {len(about)}; the node recorded "
            "nothing, or the file is damaged"
        )
    [(senders, node)] = about
    lives: dict[int, NDArray] = {}
    gaps: list[tuple[int, Gap]] = []  # (life, gap within it)
    for section in sections:
        so_far = lives.get(section.life, np.zeros(0, _record(senders)))[: section.kept]
        gaps = [each for each in gaps if each[0] != section.life or each[1].at <= len(so_far)]
        found, wrong = _records(section)
        missing = section.kept - len(so_far) + section.lost
        gaps += [(section.life, Gap(len(so_far), missing))] if missing else []
        lives[section.life] = np.concatenate([so_far, found])
        gaps += [(section.life, Gap(len(lives[section.life]), wrong))] if wrong else []
    starts = dict(zip(lives, np.cumsum([0, *map(len, lives.values())]), strict=False))
    placed = [Gap(int(starts[life]) + gap.at, gap.lost) for life, gap in gaps]
    return Log(node, np.concatenate(list(lives.values())), tuple(placed))


def _split(data: bytes, path: Path) -> list[_Section]:
    """Return the sections of a file; a head that a crash cut is none."""
    first, *rest = data.split(SEAM)
    found = []
    if len(first) >= _HEAD_BEFORE.size and first.startswith(b"FLKT\x01\x00"):
        _, _, senders, node, _ = _HEAD_BEFORE.unpack_from(first)
        found.append(_Section(senders, node, -1, 0, 0, first[_HEAD_BEFORE.size :]))
    for piece in rest:
        fields = piece[: _HEAD.size]
        if piece[_HEAD.size : _HEAD_BYTES] != zlib.crc32(fields).to_bytes(4, "little"):
            continue
        version, senders, node, life, kept, lost = _HEAD.unpack(fields)
        if version != VERSION:
            raise ValueError(
                f"expected a journal of version 1 or {VERSION}, {path} has version {version}; "
                "read it with the folkman that wrote it"
            )
        found.append(_Section(senders, node, life, kept, lost, piece[_HEAD_BYTES:]))
    return found


def _record(senders: int) -> np.dtype:
    fields = [("kind", "u1"), ("computed", "u1"), ("zero", "<u2"), ("slot", "<i4")]
    return np.dtype([*fields, ("sequence", "<i8", (senders,))])


def _records(section: _Section) -> tuple[NDArray, int]:
    """Return the records of a section, and how many after them a power cut has spoilt.

    A head of the next life that a full disk cut is no record.
    """
    kind = _record(section.senders)
    whole = np.frombuffer(section.body, kind, count=len(section.body) // kind.itemsize)
    wrong = np.flatnonzero((whole["kind"] < START) | (whole["kind"] > FORGOT) | (whole["zero"] > 0))
    good = int(wrong[0]) if len(wrong) else len(whole)
    is_head = good < len(whole) and whole["kind"][good] == SEAM[0]
    return whole[:good], 0 if is_head else len(whole) - good
