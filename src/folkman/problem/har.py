"""The files of "Human Activity Recognition Using Smartphones" [1], as its authors publish them.

A folder with `train` and `test`; each has, a line for every window of 2.56 s at 50 Hz,

    X_<part>.txt          561 features in [-1, 1]
    y_<part>.txt          the activity, 1 .. 6
    subject_<part>.txt    the person, 1 .. 30
    Inertial Signals/     body_acc, body_gyro and total_acc along x, y, z: 128 numbers a line each

The group of a sample is its person. Persons of the test files are others than those of the training
files, as the authors divided them.

[1] Anguita et al. A Public Domain Dataset for Human Activity Recognition Using Smartphones.
    ESANN 2013.
"""

from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.data import DataSet

__all__ = ["ACTIVITIES", "uci_har"]

ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "lying")
FEATURES, STEPS = 561, 128
SIGNALS = tuple(
    f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"
)


def uci_har(
    path: Path | str,
    *,
    # features: 561 numbers; signals: 128 steps of 9 channels
    form: Literal["features", "signals"] = "features",
    users: int | None = None,
) -> DataSet:
    """Load activities by the persons who did them, from the folder `path`: six classes.

    In the form "features" a sample is 561 numbers; as "signals" it is 128 steps of 9 channels.
    `users` keeps the training samples of the first so many persons, by their numbers.
    """
    known = ("features", "signals")
    require(form in known, f"expected a form of {' or '.join(known)}, got {form!r}; correct it")
    parts = [_part(Path(path), part, form) for part in ("train", "test")]
    (x, y, person), (x_test, y_test, _) = parts
    persons = np.unique(person)
    require(
        users is None or 1 <= users <= len(persons),
        f"{path}: expected users in 1..{len(persons)}, got {users}; correct it",
    )
    kept = np.isin(person, persons[:users])
    return DataSet("uci_har", x[kept], y[kept], x_test, y_test, len(ACTIVITIES), group=person[kept])


def _part(folder: Path, part: str, form: str) -> tuple[NDArray, NDArray[np.int32], NDArray]:
    """Return samples, labels from 0 and persons of the training or the test files."""
    place = folder / part
    labels = place / f"y_{part}.txt"
    y = _whole(labels, len(ACTIVITIES)) - 1
    person = _whole(place / f"subject_{part}.txt", None)
    if form == "features":
        files, width = [place / f"X_{part}.txt"], FEATURES
    else:
        files, width = [place / "Inertial Signals" / f"{s}_{part}.txt" for s in SIGNALS], STEPS
    tables = [_table(file, width) for file in files]
    for file, rows in zip([*files, place / f"subject_{part}.txt"], [*tables, person], strict=True):
        require(
            len(rows) == len(y),
            f"{file}: expected {len(y)} lines, as many as {labels.name} has, got {len(rows)}; "
            "get the files again",
        )
    x = tables[0] if form == "features" else np.stack(tables, axis=-1)
    return x.astype(np.float32), y.astype(np.int32), person


def _whole(file: Path, most: int | None) -> NDArray[np.int64]:
    """Return a column of whole numbers from 1."""
    found = _table(file, 1)[:, 0]
    bad = np.flatnonzero((found % 1 != 0) | (found < 1) | (found > (most or np.inf)))
    if len(bad):
        upper = "" if most is None else f"..{most}"
        raise ValueError(
            f"{file}, line {bad[0] + 1}: expected a whole number 1{upper}, got {found[bad[0]]:g}; "
            "get the file again"
        )
    return found.astype(np.int64)


def _table(file: Path, columns: int) -> NDArray[np.float64]:
    """Return the numbers of a text file, a row for each line; name the line that is wrong."""
    if not file.is_file():
        raise FileNotFoundError(
            f"expected {file}, found none; name the folder that holds train and test"
        )
    found = np.zeros((0, 0))
    if file.read_bytes().strip():  # NumPy warns of an empty file
        with suppress(ValueError):  # also of what is not UTF-8
            found = np.loadtxt(file, ndmin=2, comments=None)
    if found.shape[1] == columns and len(found) and np.isfinite(found).all():
        return found
    raise ValueError(_wrong_line(file, columns))


def _wrong_line(file: Path, columns: int) -> str:
    """Return what is wrong with the first line that is."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        words = line.split()
        where = f"{file}, line {number}"
        if len(words) != columns:
            return f"{where}: expected {columns} columns, got {len(words)}; get the file again"
        for word in words:
            if not _is_number(word):
                return f"{where}: expected finite numbers, got {word!r:.40}; get the file again"
    return f"{file}: expected lines of {columns} columns, got an empty file; get it again"


def _is_number(word: str) -> bool:
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False
