"""A table prepared as the table that a model was learnt from: columns, windows and scale.

    alike(Path("new.csv"), {"path": "old.csv", "drop": ["time"], "scale": "standard"}, features=2)

A run of a .csv file has that file's options in its table [data]. New samples need the same
columns, so many lines to a window, and the mean and deviation of the samples that were learnt.
Those are not kept with a model: they are taken from the file again, by the same split.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.table import LABELS, Moments, csv_samples, moments, read_columns
from folkman.problem.windows import windows_of
from folkman.record.json_file import Json

__all__ = ["Samples", "alike"]


class Samples(NamedTuple):
    """Samples, and their labels where the file has them."""

    x: NDArray
    y: NDArray | None


def alike(path: Path, data: Json, features: int) -> Samples:
    """Read samples of a .csv file as a run read its own, with so many features in a line.

    The columns of labels, of devices and of `drop` may be absent.
    """
    columns = read_columns(path, apart=_words(data))
    named = data.get("label")
    labels = [named] if named else [each for each in columns.apart if each.lower() in LABELS]
    y = next((columns.apart[each] for each in labels if each in columns.apart), None)
    x, group = columns.x, columns.apart.get(data.get("group") or "")
    if y is None and not named and x.shape[1] == features + 1:  # the last, as in training
        x, y = x[:, :-1], x[:, -1]
    require(
        y is None or y.dtype.kind == "f",
        f"{path}: expected labels as numbers, got words; number them as in training, or leave the "
        "column out of the file",
    )
    if data.get("window"):
        turns = None if data.get("regression") else y
        lines = np.array(windows_of(len(x), data["window"], group, turns))
        require(
            len(lines) > 0,
            f"{path}: expected {data['window']} lines or more of one device, as a window has, got "
            f"{len(x)} in all; add lines",
        )
        x, y = x[lines], None if y is None else y[lines[:, -1]]
    if data.get("scale") == "standard":
        x = _moments(data).applied(x)
    return Samples(x, y)


def _words(data: Json) -> Sequence[str]:
    """Return the columns that are no features, by name or number from 1."""
    named = [data.get("label"), data.get("group")]
    return [*map(str, data.get("drop") or ()), *(each for each in named if each)]


def _moments(data: Json) -> Moments:
    """Return mean and deviation of the samples that were learnt, from their file."""
    file = Path(data["path"])
    if not file.is_file():
        raise FileNotFoundError(
            f'the model learnt samples with scale = "standard", by the mean and deviation of '
            f"{file}, which is not there; put it back, or give scaled samples as .npz"
        )
    apart = ("name", "scale", "train_size", "test_size")  # fewer samples are taken after scaling
    options = {key: value for key, value in data.items() if key not in apart}
    return moments(csv_samples(**options).x_train)
