"""The smartwatch set: 140 recordings of shoulder exercises, each by one person on one arm [1].

Ten persons did seven exercises with either arm and wore a smartwatch, which sampled six channels
fifty times a second: acceleration along three axes in g, and angular rate about them. A recording
has 947 to 2618 rows. Its last fifth is for testing; both parts are cut into windows.

The recordings are part of the Python package seglearn (BSD 3-clause licence, D. Burns). Its file is
a pickle inside an .npy file; it is read by walking its opcodes, never executing them. The cache
holds bytes: `signal` the little-endian float64 numbers of all rows, `length` the rows of each
recording as little-endian uint16.

[1] Burns et al. Shoulder Physiotherapy Exercise Recognition: Machine Learning the Inertial Signals
    from a Smartwatch. Physiological Measurement 39(7), 2018. arXiv:1802.01489
"""

import pickletools
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.data import DataSet, Raw, Spec, read_raw

__all__ = ["EXERCISES", "WHEEL", "decode_wheel", "smartwatch"]

WHEEL = "seglearn-1.2.5-py3-none-any.whl"
MEMBER = "seglearn/data/watch_dataset.npy"
MEMBER_LIMIT_BYTES = 40 * 10**6  # twice the honest file
EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
"""The exercises by their label: pendulum, abduction, forward elevation, internal and external
rotation, trapezius extension, upright row."""
CHANNELS = 6
TESTED = 5  # one in so many rows is for testing


def smartwatch(
    folder: Path | str | None = None,
    *,
    window: int = 100,  # rows of a sample; 100 are 2 s
    stride: int = 50,  # rows from one training sample to the next
    # whose samples a device has: one person's, or one arm's
    device: Literal["person", "arm"] = "person",
) -> DataSet:
    """Load the smartwatch set: windows of `window` rows by 6 channels, seven exercises.

    Training windows begin `stride` rows apart, test windows do not overlap. The group of a sample
    is its device: one of ten persons, or one of twenty arms. Values are as published.
    """
    require(
        window >= 1 and stride >= 1,
        f"expected window >= 1 and stride >= 1, got {window} and {stride}; 100 rows are 2 s",
    )
    raw = read_raw("smartwatch", folder)
    parts: tuple[list[NDArray], list[NDArray]] = ([], [])
    held: tuple[list[NDArray], list[NDArray]] = ([], [])
    for number, rows in enumerate(recordings(raw)):
        cut = len(rows) - len(rows) // TESTED
        for which, part, step in ((0, rows[:cut], stride), (1, rows[cut:], window)):
            found = _windows(part, window, step)
            parts[which].append(found)
            held[which].append(np.full(len(found), number))
    (x_train, x_test), (train, test) = map(_joined, parts), map(_joined, held)
    label, owner = raw["label"].astype(np.int32), _devices(raw, device)
    return DataSet(
        "smartwatch",
        x_train.astype(np.float32),
        label[train],
        x_test.astype(np.float32),
        label[test],
        num_classes=len(EXERCISES),
        group=owner[train],
    )


def recordings(raw: Raw) -> list[NDArray[np.float64]]:
    """Return the rows of each recording, (row, channel)."""
    signal = np.ascontiguousarray(raw["signal"]).view("<f8")[..., 0].astype(np.float64)
    lengths = np.ascontiguousarray(raw["length"]).view("<u2")[:, 0].astype(np.int64)
    return np.split(signal, np.cumsum(lengths)[:-1])


def _devices(raw: Raw, device: str) -> NDArray[np.int64]:
    """Return the device of each recording, numbered from 0."""
    known = ("person", "arm")
    require(device in known, f"expected a device of {' or '.join(known)}, got {device!r}")
    person = raw["subject"].astype(np.int64)
    person -= person.min()
    return person if device == "person" else 2 * person + raw["side"].astype(np.int64)


def _windows(rows: NDArray, window: int, step: int) -> NDArray:
    require(
        len(rows) >= window,
        f"expected windows of at most {len(rows)} rows, the shortest part of a recording here, "
        f"got {window}; lower it",
    )
    views = np.lib.stride_tricks.sliding_window_view(rows, window, axis=0)[::step]
    return views.transpose(0, 2, 1)  # (window, row, channel)


def _joined(parts: list[NDArray]) -> NDArray:
    return np.concatenate(parts)


def decode_wheel(wheel: Path, spec: Spec) -> Raw:
    """Decode the recordings in a wheel of seglearn: one long series each, then three vectors."""
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as stream:
        blob = stream.read(MEMBER_LIMIT_BYTES)
    number = spec["label"][0][0]
    found = list(_array_bytes(blob[blob.index(b"\n") + 1 :]))  # behind the header of the .npy
    sound = len(found) == number + 3 and {len(each) for each in found[number:]} == {8 * number}
    sound = sound and not any(len(each) % (8 * CHANNELS) for each in found[:number])
    came = f"{len(found)} arrays"
    require(sound, f"{MEMBER}: expected {number} series and 3 vectors, got {came}; damaged copy")
    # Fortran order: channel after channel
    series = [np.frombuffer(each, "<f8").reshape(CHANNELS, -1).T for each in found[:number]]
    lengths = np.array([len(each) for each in series], "<u2")
    label, subject = (np.frombuffer(each, "<i8") for each in found[number : number + 2])
    return {
        "signal": np.ascontiguousarray(np.concatenate(series))[..., None].view(np.uint8),
        "length": lengths[:, None].view(np.uint8),
        "label": label.astype(np.uint8),
        "subject": subject.astype(np.uint8),
        "side": np.frombuffer(found[-1], "<f8").astype(np.uint8),
    }


def _array_bytes(blob: bytes) -> Iterator[bytes]:
    """Return the contents of the arrays of a pickle, in order; it is walked and never executed.

    Protocol 2 writes them as Latin-1 text, after a flag for the order and a function's place.
    """
    before = ["", ""]
    for opcode, value, _ in pickletools.genops(blob):
        array = before[0] in ("NEWTRUE", "NEWFALSE") and before[1].endswith("BINGET")
        if array and opcode.name == "BINUNICODE":
            yield str(value).encode("latin-1")
        before = [before[1], opcode.name]
