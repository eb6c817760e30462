"""Windows: so many lines of a recording that follow each other and make one sample."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from folkman.checks import notice, require

__all__ = ["windowed", "windows_of"]


def windowed(
    arrays: Mapping[str, NDArray],  # x (line, feature), y (line,) and perhaps group (line,)
    window: int,
    test_share: float,
    path: str,
    *,
    regression: bool,
) -> dict[str, NDArray]:
    """Return windows of lines as samples, x (window, line, feature), the last of each device apart.

    A window has lines of one device, in the order of the file, and of one label; lines that fill no
    window are left out. In a regression the target is that of the last line. Windows beside each
    other are alike, so those held out are the last of each device's.
    """
    require(window >= 1, f"{path}: expected a window of one line or more, got {window}; correct it")
    require(
        0 < test_share < 1, f"{path}: expected test_share in (0, 1), got {test_share}; correct it"
    )
    x, y = arrays["x"], arrays["y"]
    device = arrays.get("group", np.zeros(len(y), np.int64))
    found: dict[str, list[NDArray]] = {"train": [], "test": []}
    for own in _by_device(device, None if regression else y, window):
        # a product such as 0.2 * 15 may lie just below its whole number
        held = min(max(1, int(test_share * len(own) + 1e-9)), len(own) - 1) if own else 0
        found["train"] += own[: len(own) - held]
        found["test"] += own[len(own) - held :]
    number = sum(map(len, found.values()))
    alike = "device" if regression else "device and one label"
    require(
        bool(found["train"] and found["test"]),
        f"{path}: expected two windows or more of one device to split, got {number} in all of "
        f"{window} lines of one {alike}; lower window, or add lines",
    )
    if number * window < len(y) / 2:
        notice(
            f"{path}: windows of {window} lines of one {alike} take {number * window} of "
            f"{len(y)} lines, the others are left out; a lower window takes more"
        )
    made: dict[str, NDArray] = {}
    for part, own in found.items():
        lines = np.stack(own)  # (window, line)
        made |= {f"x_{part}": x[lines], f"y_{part}": y[lines[:, -1]]}
        if part == "train" and "group" in arrays:
            made["group"] = device[lines[:, 0]]
    if not regression:
        _check_labels(made["y_train"], made["y_test"], path)
    return made


def windows_of(
    lines: int,
    window: int,
    device: NDArray | None = None,  # (line,) None: all of one
    labels: NDArray | None = None,  # (line,) a window has one label; None: labels do not matter
) -> list[NDArray[np.int64]]:
    """Return the lines of each window, device by device."""
    device = np.zeros(lines, np.int64) if device is None else device
    return [own for each in _by_device(device, labels, window) for own in each]


def _by_device(
    device: NDArray, labels: NDArray | None, window: int
) -> Iterator[list[NDArray[np.int64]]]:
    """Yield the windows of each device."""
    for each in np.unique(device):
        lines = np.flatnonzero(device == each)
        yield list(_cut(lines, None if labels is None else labels[lines], window))


def _check_labels(learned: NDArray, held: NDArray, path: str) -> None:
    """Say where the last windows of the devices lack labels that the others have."""
    lacking = np.setdiff1d(learned, held)
    if len(lacking):
        notice(
            f"{path}: the last windows of each device, which are held out, have no label "
            f"{', '.join(map(str, lacking[:5]))}, so an accuracy says little; raise test_share"
        )


def _cut(lines: NDArray, labels: NDArray | None, window: int) -> Iterator[NDArray]:
    """Yield the lines of each window of one device; a new label begins a new window."""
    turns = [] if labels is None else np.flatnonzero(labels[1:] != labels[:-1]) + 1
    for stretch in np.split(lines, turns):
        for at in range(len(stretch) // window):
            yield stretch[at * window : (at + 1) * window]
