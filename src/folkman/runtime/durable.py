"""What a node keeps through a power cut: its state in two generations, its life, its result.

Every function takes a `Disk`, so that the same code runs in a folder and in a simulated world.

    state.safetensors             the newest state
    state.before.safetensors      the state before it, for when the newest one is damaged
    state.damaged.safetensors     the last state that was found damaged, for those who look for why
    final.safetensors             the result
    incarnation, incarnation.copy the number of the life, twice; the higher one counts
    members.seen                  the version of the newest list of members

A file is written under another name, synced, renamed, and then the folder is synced. So a power cut
between any two operations leaves the file as it was or as it shall be. What a function has returned
from survives every power cut.

A state is a safetensors file whose metadata has a digest: BLAKE3 over all bytes of the file, with
the digits of the digest itself as zeros. Nothing in it is executed. Files of format 1 are read
too; they have no digest.
"""

import json
import re
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.record.cluster import (
    FINAL_FILE,
    LIFE_COPY_FILE,
    LIFE_FILE,
    MEMBERS_SEEN_FILE,
    STATE_BEFORE_FILE,
    STATE_DAMAGED_FILE,
    STATE_FILE,
)
from folkman.runtime.disk import Disk
from folkman.runtime.same_bytes import with_notes_in_order

__all__ = ["MOST_LIVES", "Arrays", "DamagedError", "SavedLife", "SavedState"]
__all__ += ["arrays_of", "remove_parts", "state_bytes", "write_whole"]
__all__ += ["read_life", "read_state", "save_final", "save_life", "save_state"]
__all__ += ["read_members_seen", "save_members_seen"]

Arrays: TypeAlias = dict[str, NDArray]
"""A node by the names of its arrays."""

FORMAT, FORMAT_BEFORE = "folkman node 2", "folkman node 1"  # the one before had no digest
NO_DIGEST = b"0" * 64
DIGEST = re.compile(rb'"digest":"([0-9a-f]{64})"')
SENT_OR_MIXED = ("params", "model", "mailbox.payload")
"""Arrays whose numbers are all finite; others may be infinite on purpose, as a best loss so far."""
MOST_LIVES = 2**31 - 1
"""A life is the upper half of a sequence number of 64 bits with a sign."""


class DamagedError(ValueError):
    """Bytes that are not what was saved."""


class SavedState(NamedTuple):
    """What `read_state` found."""

    arrays: Arrays | None  # None: no state, or none that can be read
    warnings: tuple[str, ...] = ()  # what was damaged, one sentence each


class SavedLife(NamedTuple):
    """What `read_life` found."""

    life: int  # 0: none yet, or none that can be read
    warnings: tuple[str, ...] = ()


# -- bytes ---------------------------------------------------------------------------------------


def state_bytes(arrays: Arrays, fingerprint: str) -> bytes:
    """Return arrays as the bytes of a file of the run with this fingerprint.

    Raise a ValueError for parameters that are not finite: they must not take a good state's place.
    """
    from safetensors.numpy import save

    if wrong := _not_finite(arrays):
        raise ValueError(f"'{wrong}' is not finite, and is not saved; try a smaller step")
    # of an array without axes, `ascontiguousarray` makes one with one axis
    plain = {k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in arrays.items()}
    data = with_notes_in_order(
        save(plain, {"format": FORMAT, "fingerprint": fingerprint, "digest": NO_DIGEST.decode()})
    )
    place = DIGEST.search(data, 8, _end_of_header(data))
    assert place is not None  # noqa: S101 - written one line above
    return _with(data, place, _digest(data))


def arrays_of(data: bytes, fingerprint: str | None = None) -> Arrays:
    """Return the arrays of a file.

    Raise a DamagedError for bytes that were not saved so, and a ValueError for another run's.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    notes = _checked_notes(data)
    try:
        arrays = load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise DamagedError(f"it is no safetensors file ({error})") from None
    if wrong := _not_finite(arrays):
        raise DamagedError(f"its array '{wrong}' is not finite")
    if fingerprint is not None and notes.get("fingerprint") != fingerprint:
        raise ValueError("it belongs to another run or configuration")
    return arrays


def _checked_notes(data: bytes) -> dict[str, str]:
    """Return the metadata of a file whose bytes fit their digest, or are of the format before."""
    end = _end_of_header(data)
    try:
        notes = json.loads(data[8:end])["__metadata__"]
        form = notes["format"]
    except (ValueError, KeyError, TypeError):
        raise DamagedError("it does not begin as a saved node does") from None
    place = DIGEST.search(data, 8, end)
    if form == FORMAT_BEFORE and place is None:
        return notes
    if form != FORMAT or place is None:
        raise DamagedError(f"expected format '{FORMAT}' with a digest, it says {form!r}")
    if _digest(_with(data, place, NO_DIGEST)) != place[1]:
        raise DamagedError("its bytes do not fit its digest")
    return notes


def _end_of_header(data: bytes) -> int:
    return 8 + int.from_bytes(data[:8], "little")


def _digest(data: bytes) -> bytes:
    from blake3 import blake3  # here: who only reads the names of files does not need it

    return blake3(data).hexdigest().encode()


def _with(data: bytes, place: re.Match[bytes], digest: bytes) -> bytes:
    return b"".join((data[: place.start(1)], digest, data[place.end(1) :]))


def _not_finite(arrays: Arrays) -> str | None:
    """Return the name of an array that should be finite and is not."""
    found = (name for name in SENT_OR_MIXED if name in arrays)
    return next((name for name in found if not np.isfinite(arrays[name]).all()), None)


# -- files ---------------------------------------------------------------------------------------


def write_whole(disk: Disk, name: str, data: bytes) -> None:
    """Write a file that is as before or whole, and survives a power cut from now on."""
    disk.rename(_synced_part(disk, name, data), name)
    disk.sync_folder()


def save_state(disk: Disk, arrays: Arrays, fingerprint: str) -> None:
    """Write a state as the newest one, and keep the one before if it is good.

    Raise a ValueError for parameters that are not finite, and an OSError if the disk refuses. Then
    the newest state is still the one before.
    """
    part = _synced_part(disk, STATE_FILE, state_bytes(arrays, fingerprint))
    newest = disk.read(STATE_FILE)
    if newest is not None:  # a damaged state must not take a good one's place
        disk.rename(STATE_FILE, STATE_BEFORE_FILE if _is_good(newest) else STATE_DAMAGED_FILE)
    disk.rename(part, STATE_FILE)
    disk.sync_folder()


def read_state(disk: Disk, fingerprint: str | None = None) -> SavedState:
    """Return the newest good state.

    Raise a ValueError if it belongs to another run, and an OSError if the disk does not answer.
    """
    warnings: list[str] = []
    for name in (STATE_FILE, STATE_BEFORE_FILE):
        data = disk.read(name)
        if data is None:
            continue
        try:
            arrays = arrays_of(data, fingerprint)
        except DamagedError as error:
            warnings.append(f"{name} is damaged: {error}")
            continue
        except ValueError as error:
            raise ValueError(f"{name}: {error}; move it away to begin anew") from None
        if warnings:
            warnings.append(f"the node goes on from {name}, which was saved earlier")
        return SavedState(arrays, tuple(warnings))
    if warnings:
        warnings.append("no saved state can be read; the node begins anew")
    return SavedState(None, tuple(warnings))


def save_final(disk: Disk, arrays: Arrays, fingerprint: str) -> None:
    """Write the result."""
    write_whole(disk, FINAL_FILE, state_bytes(arrays, fingerprint))


def save_life(disk: Disk, life: int) -> None:
    """Note that a life begins; no later one has its number, even if one of the copies is lost."""
    for name in (LIFE_FILE, LIFE_COPY_FILE):
        disk.rename(_synced_part(disk, name, b"%d\n" % life), name)
    disk.sync_folder()


def read_life(disk: Disk) -> SavedLife:
    """Return the number of the last life that was noted."""
    life, warnings = 0, []
    for name in (LIFE_FILE, LIFE_COPY_FILE):
        data = disk.read(name)
        if data is None:
            continue
        if re.fullmatch(rb"[0-9]{1,10}\n?", data) and int(data) <= MOST_LIVES:
            life = max(life, int(data))
        else:
            warnings.append(
                f"{name} is damaged: expected how often the node has begun, it has {data[:20]!r}"
            )
    return SavedLife(life, tuple(warnings))


def read_members_seen(disk: Disk) -> int:
    """Return the version of the newest list of members that a node has taken over; 0: none."""
    data = disk.read(MEMBERS_SEEN_FILE) or b""
    return int(data) if re.fullmatch(rb"[0-9]{1,15}\n?", data) else 0


def save_members_seen(disk: Disk, version: int) -> None:
    """Note the version of a list that is taken over; one that was noted before is not lowered."""
    if version > read_members_seen(disk):
        write_whole(disk, MEMBERS_SEEN_FILE, b"%d\n" % version)


def remove_parts(disk: Disk) -> list[str]:
    """Remove files that a killed process had not finished; return their names.

    Call it only while no other process writes here.
    """
    parts = [name for name in disk.names() if re.fullmatch(r"\..+\.part(\.\w+)?", name)]
    for name in parts:
        disk.remove(name)
    return parts


def _synced_part(disk: Disk, name: str, data: bytes) -> str:
    """Write bytes beside a file, so that they survive; return the name they have."""
    part = f".{name}.part"
    try:
        disk.write(part, data)
        disk.sync(part)
    except OSError:
        with suppress(OSError):  # on a full disk it would keep the room that others need
            disk.remove(part)
        raise
    return part


def _is_good(data: bytes) -> bool:
    """Tell whether a file is as it was saved; what fits its digest was finite when it was."""
    try:
        if _checked_notes(data)["format"] != FORMAT:
            arrays_of(data)
    except DamagedError:
        return False
    return True
