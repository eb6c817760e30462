"""The journal: cut by crashes, refused by disks, and read back with what is missing."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.runtime import causal, journal
from folkman.runtime.disk import FolderDisk
from folkman.runtime.journal import SEND, WAKE, Gap, Journal


class FickleDisk(FolderDisk):
    """A folder that takes a part of some appends and then says that it is full."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.takes_bytes: int | None = None  # of the next append; None: all

    def append(self, name: str, data: bytes) -> None:
        if self.takes_bytes is None:
            return super().append(name, data)
        super().append(name, data[: self.takes_bytes])
        raise OSError(28, "No space left on device", name)


def slots(log: journal.Log) -> list[int]:
    return log.records["slot"].tolist()


def test_records_come_back_and_a_tail_that_a_crash_cut_is_left_out(tmp_path):
    path = tmp_path / "timeline.bin"
    book = Journal(FolderDisk(tmp_path), 2, 3, life=1)
    book.note(WAKE, 0, np.array([1, 2, 3]), computed=True)
    book.close()
    path.write_bytes(path.read_bytes() + b"half a rec")
    book = Journal(FolderDisk(tmp_path), 2, 3, life=2)
    book.note(SEND, 1, [9])
    book.close()

    log = journal.read(path)

    assert log.node == 2
    assert log.records["kind"].tolist() == [WAKE, SEND]
    assert log.records["computed"].tolist() == [1, 0]
    assert log.records["sequence"].tolist() == [[1, 2, 3], [9, 0, 0]]
    assert log.gaps == ()


def test_a_journal_ends_where_its_room_ends(tmp_path):
    small = Journal(FolderDisk(tmp_path), 0, 3, life=1, most_bytes=100)
    for _ in range(10):
        small.note(WAKE, 0, [0, 0, 0])
    assert small.ended == "full"
    assert len(journal.read(tmp_path / "timeline.bin").records) == 3
    again = Journal(FolderDisk(tmp_path), 0, 3, life=2, most_bytes=100, written_bytes=144)
    again.note(WAKE, 0, [0, 0, 0])
    assert again.ended == "full"


def test_a_journal_of_version_1_is_read_and_goes_on(tmp_path):
    path = tmp_path / "timeline.bin"
    head = struct.pack("<4sHHII", b"FLKT", 1, 2, 7, 0)
    path.write_bytes(head + struct.pack("<BBHi2q", WAKE, 1, 0, 5, 3, 4) + b"torn")
    assert slots(journal.read(path)) == [5]
    book = Journal(FolderDisk(tmp_path), 7, 2, life=3)
    book.note(WAKE, 6, [3, 4])
    book.close()

    log = journal.read(path)

    assert (log.node, slots(log), log.gaps) == (7, [5, 6], ())


@pytest.mark.parametrize("content", [b"", b"FLKT", b"no journal at all, but a long text" * 9])
def test_what_is_no_journal_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"expected the journal of one node, .* has 0; the node"):
        journal.read(tmp_path / "x")


def test_a_disk_that_was_full_for_a_while_costs_no_record(tmp_path):
    """Before, the first refusal ended the journal for good."""
    disk = FickleDisk(tmp_path)
    book = Journal(disk, 0, 1, life=1)
    for slot in range(3):
        book.note(WAKE, slot, [slot])
    book.flush()
    for slot, taken in ((3, 0), (4, 7), (5, 63), (6, 90)):
        disk.takes_bytes = taken
        book.note(WAKE, slot, [slot])
        book.flush()
        assert (
            book.ended == "waits for the disk: [Errno 28] No space left on device: 'timeline.bin'"
        )
    disk.takes_bytes = None
    book.flush()
    assert book.ended == ""
    book.note(WAKE, 7, [7])
    book.close()

    log = journal.read(tmp_path / "timeline.bin")

    assert slots(log) == list(range(8))
    assert log.gaps == ()


def test_beyond_its_memory_a_gap_is_marked_and_the_replay_refuses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "MOST_WAITING_BYTES", 5 * 16)
    disk = FickleDisk(tmp_path)
    book = Journal(disk, 0, 1, life=1)
    book.note(WAKE, 0, [0])
    book.flush()
    disk.takes_bytes = 20
    for slot in range(1, 9):
        book.note(WAKE, slot, [0])
        book.flush()
    assert book.ended.endswith("; 3 records lost")
    disk.takes_bytes = None
    book.flush()
    book.note(WAKE, 9, [0])
    book.close()
    assert book.lost == 3

    log = journal.read(tmp_path / "timeline.bin")

    assert slots(log) == [0, 1, 2, 3, 4, 5, 9]
    assert log.gaps == (Gap(6, 3),)
    with pytest.raises(
        ValueError, match="journal of node 0 lacks 3 records after slot 5: its disk"
    ):
        causal.between_peers({0: log}, np.zeros((1, 1), bool), paced=False, rounds=False)


def test_bytes_that_a_power_cut_left_unwritten_are_a_gap(tmp_path):
    path = tmp_path / "timeline.bin"
    book = Journal(FolderDisk(tmp_path), 0, 1, life=1)
    for slot in range(4):
        book.note(WAKE, slot, [0])
    book.close()
    data = path.read_bytes()
    path.write_bytes(data[:-32] + bytes(32))

    log = journal.read(path)

    assert (slots(log), log.gaps) == ([0, 1], (Gap(2, 2),))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_whatever_the_disk_takes_what_is_read_is_what_was_noted_less_the_gaps(
    tmp_path_factory, data
):
    """Notes are numbered: those that are read and those that gaps count are all, in order."""
    home = tmp_path_factory.mktemp("journal")
    disk, noted = FickleDisk(home), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "MOST_WAITING_BYTES", 4 * 16)
        for life in range(1, 1 + data.draw(st.integers(1, 3))):
            book = Journal(disk, 0, 1, life=life)
            for _ in range(data.draw(st.integers(0, 6))):
                for _ in range(data.draw(st.integers(0, 6))):
                    book.note(WAKE, noted, [noted])
                    noted += 1
                disk.takes_bytes = data.draw(st.none() | st.integers(0, 150))
                book.flush()
            disk.takes_bytes = None
            book.close()
    log = journal.read(home / "timeline.bin")

    expected, number = [], 0
    for index in range(len(log.records) + 1):
        number += sum(gap.lost for gap in log.gaps if gap.at == index)
        if index < len(log.records):
            expected.append(number)
            number += 1
    assert slots(log) == expected
    assert number == noted


def test_records_that_could_not_wait_are_a_gap_also_without_any_that_did(tmp_path):
    book = Journal(FolderDisk(tmp_path), 0, 2, life=1)
    book.note(WAKE, 0, [1, 1])
    book.flush()
    book.leave_out(5)
    book.flush()
    book.note(WAKE, 6, [1, 1])
    book.close()

    log = journal.read(tmp_path / "timeline.bin")

    assert slots(log) == [0, 6]
    assert [gap.lost for gap in log.gaps] == [5]
