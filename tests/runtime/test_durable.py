"""What a node has saved survives every power cut: all crash points with all that may be kept."""

import copy
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as safetensors_of

from folkman.record import cluster
from folkman.runtime import durable
from folkman.runtime.disk import FolderDisk

RUN = "a run's fingerprint"
SECTOR = 512


class PowerCutError(Exception):
    """The machine is off; no code of the process runs any more."""


class FrailDisk:
    """A disk that loses power, or refuses, at one of its operations.

    Bytes are durable after `sync`, names after `sync_folder`. Of everything else `ruins` may keep
    any part: each operation on names whole or not, each sector of a file new or old, and its old or
    its new size.
    """

    def __init__(self, names=(), files=(), fails_at: int = -1, error: Exception | None = None):
        self.names_now: dict[str, int] = dict(names)
        self.files: list[bytes] = list(files)
        self.synced: list[bytes] = list(files)
        self.durable_names = dict(names)
        self.pending: list[dict[str, int | None]] = []
        self.operations, self.fails_at, self.error = 0, fails_at, error or PowerCutError()

    def _count(self) -> None:
        self.operations += 1
        if self.operations - 1 == self.fails_at:
            raise self.error

    def read(self, name: str) -> bytes | None:
        return self.files[self.names_now[name]] if name in self.names_now else None

    def names(self) -> list[str]:
        return sorted(self.names_now)

    def write(self, name: str, data: bytes) -> None:
        self._count()
        if name not in self.names_now:
            self._name({name: len(self.files)})
            self.files.append(b"")
            self.synced.append(b"")
        self.files[self.names_now[name]] = data

    def append(self, name: str, data: bytes) -> None:
        self.write(name, (self.read(name) or b"") + data)

    def sync(self, name: str) -> None:
        self._count()
        self.synced[self.names_now[name]] = self.files[self.names_now[name]]

    def rename(self, old: str, new: str) -> None:
        self._count()
        self._name({old: None, new: self.names_now[old]})

    def sync_folder(self) -> None:
        self._count()
        self.durable_names, self.pending = dict(self.names_now), []

    def remove(self, name: str) -> None:
        self._count()
        if name in self.names_now:
            self._name({name: None})

    def _name(self, change: dict[str, int | None]) -> None:
        self.pending.append(change)
        self.names_now = named(self.names_now, change)

    def ruins(self) -> "Iterator[FrailDisk]":
        """Yield every disk that may be found after the power is back."""
        for kept in itertools.product((False, True), repeat=len(self.pending)):
            names = self.durable_names
            for change in itertools.compress(self.pending, kept):
                names = named(names, change)
            choices = [torn(self.synced[i], self.files[i]) for i in names.values()]
            for files in itertools.product(*choices):
                numbered = {name: k for k, name in enumerate(names)}
                yield FrailDisk(numbered, files)


def named(names: dict[str, int], change: dict[str, int | None]) -> dict[str, int]:
    return {k: v for k, v in (names | change).items() if v is not None}


def torn(old: bytes, new: bytes) -> list[bytes]:
    """Return all that a file may be of which `old` is synced and `new` was written since."""
    if old == new:
        return [old]
    sectors = range(0, max(len(old), len(new)), SECTOR)
    found = set()
    for size in (len(old), len(new)):
        for kept in itertools.product((False, True), repeat=len(sectors)):
            parts = [
                (new if fresh else old)[k : k + SECTOR].ljust(SECTOR, b"\0")
                for k, fresh in zip(sectors, kept, strict=True)
            ]
            found.add(b"".join(parts)[:size])
    return sorted(found)


def state_of(number: int) -> durable.Arrays:
    """Return a state that knows its number, longer than a sector."""
    return {"params": np.arange(60.0) + number, "counters": np.array([0, number, 0, 0])}


def number_in(arrays: durable.Arrays | None) -> int:
    if arrays is None:
        return 0
    number = int(arrays["counters"][1])
    np.testing.assert_array_equal(arrays["params"], state_of(number)["params"])
    return number


class History:
    """A node that lives on one disk after the other, and what it was promised."""

    def __init__(self) -> None:
        self.tried = self.promised = 0
        self.lives: list[int] = []

    def live(self, disk: FrailDisk, saves: int) -> None:
        """Begin a life on what is left and save a few states."""
        durable.remove_parts(disk)
        found = durable.read_state(disk, RUN)
        assert found.warnings == ()
        assert self.promised <= number_in(found.arrays) <= self.tried
        life = 1 + durable.read_life(disk).life
        durable.save_life(disk, life)
        assert life > max(self.lives, default=0)
        self.lives.append(life)
        for _ in range(saves):
            self.save(disk)

    def save(self, disk: FrailDisk) -> None:
        self.tried += 1
        durable.save_state(disk, state_of(self.tried), RUN)
        self.promised = self.tried


def crashed(disk: FrailDisk, history: History, saves: int) -> "Iterator[tuple[FrailDisk, History]]":
    """Yield all that may be found if the power fails in any operation of a life, or after it."""
    for crash in itertools.count():
        frail = FrailDisk(disk.names_now, disk.files, fails_at=crash)
        lived = copy.deepcopy(history)
        try:
            lived.live(frail, saves)
        except PowerCutError:
            yield from ((ruin, copy.deepcopy(lived)) for ruin in frail.ruins())
        else:
            yield FrailDisk(frail.names_now, frail.files), lived
            return


def test_whatever_two_power_cuts_keep_no_saved_state_is_lost_and_no_life_is_used_twice():
    seen = 0
    for ruin, lived in crashed(FrailDisk(), History(), 2):
        for second, again in crashed(ruin, lived, 1):
            again.live(second, 0)
            seen += 1
    assert seen > 1000


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_nor_do_many_power_cuts_one_after_the_other(data):
    disk, history = FrailDisk(), History()
    for _ in range(data.draw(st.integers(1, 6))):
        disk.fails_at = disk.operations + data.draw(st.integers(0, 24))
        try:
            history.live(disk, 3)
        except PowerCutError:
            disk = data.draw(st.sampled_from(list(disk.ruins())))
    disk.fails_at = -1
    history.live(disk, 1)


def test_a_disk_that_refuses_any_operation_keeps_what_was_promised_and_takes_the_next_save():
    whole = FrailDisk()
    History().live(whole, 3)
    for refused in range(whole.operations):
        disk = FrailDisk(fails_at=refused, error=OSError(28, "No space left on device"))
        history = History()
        with pytest.raises(OSError, match="No space"):
            history.live(disk, 3)
        for ruin in disk.ruins():
            found = durable.read_state(ruin, RUN)
            assert history.promised <= number_in(found.arrays) <= history.tried
        history.save(disk)
        assert {number_in(durable.read_state(ruin, RUN).arrays) for ruin in disk.ruins()} == {
            history.tried
        }


@pytest.mark.parametrize("refused", [0, 1])
def test_a_full_disk_is_not_filled_further_by_what_could_not_be_written(refused):
    disk = FrailDisk(fails_at=refused, error=OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        durable.save_state(disk, state_of(1), RUN)
    assert disk.names() == []


def test_the_same_state_is_the_same_bytes():
    arrays = state_of(3)
    found = {durable.state_bytes(arrays, RUN) for _ in range(20)}  # three notes have six orders

    assert len(found) == 1
    assert set(durable.arrays_of(found.pop(), RUN)) == set(arrays)


def test_a_result_is_there_whole_or_not_at_all():
    whole = FrailDisk()
    durable.save_final(whole, state_of(1), RUN)
    for crash in range(whole.operations):
        disk = FrailDisk(fails_at=crash)
        with pytest.raises(PowerCutError):
            durable.save_final(disk, state_of(1), RUN)
        for ruin in disk.ruins():
            data = ruin.read(cluster.FINAL_FILE)
            assert data is None or number_in(durable.arrays_of(data, RUN)) == 1
    assert [ruin.names() for ruin in whole.ruins()] == [[cluster.FINAL_FILE]]


def test_any_flipped_bit_is_seen_and_the_generation_before_is_taken():
    disk = FrailDisk()
    durable.save_state(disk, state_of(1), RUN)
    durable.save_state(disk, state_of(2), RUN)
    good = disk.read(cluster.STATE_FILE)
    assert good is not None
    for bit in range(0, 8 * len(good), 3):  # three divides no byte: all eight places are tried
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        disk.write(cluster.STATE_FILE, bytes(bad))

        found = durable.read_state(disk, RUN)

        assert number_in(found.arrays) == 1
        assert found.warnings[0].startswith("state.safetensors is damaged: ")
        assert found.warnings[1].endswith("state.before.safetensors, which was saved earlier")


def test_a_damaged_state_is_put_aside_and_never_takes_the_good_ones_place():
    disk = FrailDisk()
    durable.save_state(disk, state_of(1), RUN)
    durable.save_state(disk, state_of(2), RUN)
    disk.write(cluster.STATE_FILE, b"no state")

    durable.save_state(disk, state_of(3), RUN)

    assert number_in(durable.read_state(disk, RUN).arrays) == 3
    assert number_in(durable.arrays_of(disk.read(cluster.STATE_BEFORE_FILE) or b"", RUN)) == 1
    assert disk.read(cluster.STATE_DAMAGED_FILE) == b"no state"


def test_where_no_generation_can_be_read_the_node_begins_anew_and_says_so():
    disk = FrailDisk()
    disk.write(cluster.STATE_FILE, b"")
    disk.write(cluster.STATE_BEFORE_FILE, b"\xff" * 600)

    assert durable.read_state(disk, RUN) == (
        None,
        (
            "state.safetensors is damaged: it does not begin as a saved node does",
            "state.before.safetensors is damaged: it does not begin as a saved node does",
            "no saved state can be read; the node begins anew",
        ),
    )


def test_a_state_of_the_version_before_opens_and_becomes_the_generation_before():
    disk = FrailDisk()
    notes = {"format": "folkman node 1", "fingerprint": RUN}
    disk.write(cluster.STATE_FILE, safetensors_of(state_of(7), notes))
    assert number_in(durable.read_state(disk, RUN).arrays) == 7

    durable.save_state(disk, state_of(8), RUN)

    assert number_in(durable.read_state(disk, RUN).arrays) == 8
    assert number_in(durable.arrays_of(disk.read(cluster.STATE_BEFORE_FILE) or b"")) == 7


def test_a_state_of_another_run_is_refused_and_what_is_not_finite_is_not_written():
    disk = FrailDisk()
    durable.save_state(disk, state_of(1), RUN)
    with pytest.raises(ValueError, match=r"state\.safetensors: it belongs to another run .* move"):
        durable.read_state(disk, "another fingerprint")
    with pytest.raises(ValueError, match="'params' is not finite"):
        durable.save_state(disk, {"params": np.array([1.0, np.nan])}, RUN)
    assert number_in(durable.read_state(disk, RUN).arrays) == 1


def test_arrays_come_back_as_they_were():
    arrays = {
        "params": np.linspace(0, 1, 7, dtype=np.float32),
        "state.best_loss": np.array(np.inf),
        "none": np.zeros((0, 3), np.int64),
        "turned": np.arange(6.0).reshape(2, 3).T,
        "flags": np.array([True, False]),
    }
    found = durable.arrays_of(durable.state_bytes(arrays, RUN), RUN)
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize(
    "odd", [b"", b"\xc2\xb2\n", b"\xff\xfe\n", b"-3\n", b"99999999999\n", b"4 4"]
)
@pytest.mark.parametrize("name", [cluster.LIFE_FILE, cluster.LIFE_COPY_FILE])
def test_odd_bytes_in_the_mark_of_lives_cost_a_sentence_and_no_life(name, odd):
    disk = FrailDisk()
    for life in (1, 2, 3):
        durable.save_life(disk, life)
    disk.write(name, odd)

    life, warnings = durable.read_life(disk)

    assert life == 3
    assert warnings == (
        f"{name} is damaged: expected how often the node has begun, it has {odd!r}",
    )


@pytest.mark.parametrize("name", [cluster.LIFE_FILE, cluster.LIFE_COPY_FILE])
def test_a_flipped_digit_of_one_mark_does_not_bring_a_life_back(name):
    disk = FrailDisk()
    durable.save_life(disk, 3)
    disk.write(name, b"1\n")

    assert durable.read_life(disk).life == 3


def test_parts_that_a_killed_process_left_are_removed_and_nothing_else():
    disk = FrailDisk()
    kept = ["state.safetensors", "node.toml", ".hidden", "a.part", "incarnation"]
    for name in [
        *kept,
        ".state.4711.part.safetensors",
        ".health.99.part.json",
        ".incarnation.part",
    ]:
        disk.write(name, b"x")

    assert len(durable.remove_parts(disk)) == 3
    assert disk.names() == sorted(kept)


def test_files_of_a_node_are_for_its_owners_eyes_alone(tmp_path):
    disk = FolderDisk(tmp_path)
    durable.save_state(disk, state_of(1), RUN)
    durable.save_state(disk, state_of(2), RUN)
    durable.save_final(disk, state_of(2), RUN)
    durable.save_life(disk, 1)

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}

    saved = {
        cluster.STATE_FILE,
        cluster.STATE_BEFORE_FILE,
        cluster.FINAL_FILE,
        cluster.LIFE_FILE,
        cluster.LIFE_COPY_FILE,
    }
    assert modes == dict.fromkeys(saved, 0o600)
