"""A table prepared as the table that a model was learnt from: columns, windows and scale.

    alike(Path("new.csv"), {"path": "old.csv", "drop": ["time"], "scale": "standard"})

A run of a .csv file has that file's options in its table [data]. New samples need the same
columns, so many lines to a window, and the mean and deviation of the samples that were learnt.
Those are not kept with a model: they are taken from the file again, by the same split.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import notice, require
from folkman.problem.table import csv_samples, lines_alike, moments
from folkman.problem.windows import windows_of
from folkman.record.json_file import Json

__all__ = ["Samples", "alike", "is_there"]

CHOICE = ("label", "group", "drop")
"""Options that say which column is what."""
APART = ("name", "scale", "train_size", "test_size")
"""Options that do not change mean and deviation: fewer samples are taken after scaling."""


class Samples(NamedTuple):
    """Samples, and their labels where the file has them."""

    x: NDArray
    y: NDArray | None


def is_there(data: Json, made_s: float | None = None) -> bool:
    """Tell whether the file that was learnt is there to prepare samples by; refuse if it must be.

    `made_s` is the time at which the model was written. A file that is younger may be another.
    """
    file = Path(data["path"])
    if file.is_file():
        if made_s is not None and file.stat().st_mtime > made_s:
            notice(
                f"{file} was written after the model that learnt it; samples are prepared by what "
                "it holds now. Put back what was learnt if that was something else"
            )
        return True
    needed = [option for option in ("window", "scale") if data.get(option) not in (None, "none")]
    if needed:
        raise FileNotFoundError(
            f"the model learnt {file} with {' and '.join(needed)}, and it is not there to prepare "
            "samples by; put it back, or give prepared samples as .npz"
        )
    return False


def alike(path: Path, data: Json) -> Samples:
    """Read samples of a .csv file as a run read its own, which is there."""
    learnt = Path(data["path"])
    options = {key: data[key] for key in CHOICE if data.get(key)}
    x, y, device = lines_alike(path, learnt, **options)
    if data.get("window"):
        turns = None if data.get("regression") else y
        lines = np.array(windows_of(len(x), data["window"], device, turns))
        require(
            len(lines) > 0,
            f"{path}: expected {data['window']} lines or more of one device, as a window has, got "
            f"{len(x)} in all; add lines",
        )
        x, y = x[lines], None if y is None else y[lines[:, -1]]
    if data.get("scale") == "standard":
        whole = {key: value for key, value in data.items() if key not in APART}
        x = moments(csv_samples(**whole).x_train).applied(x)
    return Samples(x, y)
