"""Tables of numbers in text: .csv files of samples, for training and for predictions.

One sample per line, a comma between numbers, with a line of names above or without; a line of names
is one that has a word in it. A column called y, label, class or target holds the labels; another
may be named, and without names the labels of training are the last column.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import nearest, require
from folkman.problem.data import DataSet, of_arrays

__all__ = ["LABELS", "Table", "csv_samples", "read_table"]

LABELS = ("y", "label", "class", "target")
"""Names of the column of labels, in any case."""

SCALES = ("none", "standard")


class Table(NamedTuple):
    """The numbers of a file."""

    names: list[str]  # of the columns; empty without a line of names
    numbers: NDArray[np.float64]  # (sample, column)
    lines: list[int]  # of the file, for each sample

    @property
    def label(self) -> int | None:
        """Return the column whose name says that it holds labels, or None."""
        found = (at for at, name in enumerate(self.names) if name.lower() in LABELS)
        return next(found, None)

    def without(self, column: int) -> NDArray[np.float64]:
        """Return all columns but one."""
        return np.delete(self.numbers, column, axis=1)


def read_table(path: Path) -> Table:
    """Read comma-separated numbers; a line of names is one that has a word in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"expected text in UTF-8, {path} is none (byte {error.start}); save it so"
        ) from None
    try:
        rows = [(at, row) for at, row in enumerate(csv.reader(io.StringIO(text)), 1) if any(row)]
    except csv.Error as error:
        raise ValueError(f"expected a .csv file, could not read {path}: {error}") from None
    require(bool(rows), f"expected samples, {path} has no line with numbers; add some")
    names = [] if all(map(_is_number, rows[0][1])) else [each.strip() for each in rows[0][1]]
    rows = rows[1:] if names else rows
    require(bool(rows), f"expected samples below the names, {path} has none; add some")
    width = len(names or rows[0][1])
    for at, row in rows:
        _check_row(row, width, f"{path}, line {at}")
    return Table(names, np.array([row for _, row in rows], float), [at for at, _ in rows])


def _check_row(row: list[str], width: int, where: str) -> None:
    require(
        len(row) == width,
        f"{where}: expected {width} columns, got {len(row)}; give every line as many, with a comma "
        "between them",
    )
    for column, cell in enumerate(row, 1):
        require(
            _is_number(cell),
            f"{where}, column {column}: expected a number, got {cell!r}; correct it, and number "
            "classes and devices from 0",
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def csv_samples(
    path: Path | str,
    *,
    label: str | None = None,  # column of the labels; None: y, label, class, target, or the last
    group: str | None = None,  # column that says which device a sample came from
    regression: bool = False,
    test_share: float = 0.2,  # share of the samples that is held out
    # standard: each feature to mean 0 and standard deviation 1
    scale: Literal["none", "standard"] = "none",
) -> DataSet:
    """Load the user's own table: a sample per line, one column of labels 0..C-1.

    The labels are the column called `label`; by default one called y, label, class or target, else
    the last one. The column called `group` says which device a sample came from, by a whole number:
    the partition `by_device` goes by it. `regression` takes labels as targets. The last
    `test_share` of a fixed permutation is held out. "standard" scales each feature to mean 0 and
    standard deviation 1 over the training samples; a constant one becomes 0.
    """
    require(scale in SCALES, f"expected a scale of {' or '.join(SCALES)}, got {scale!r}; choose")
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"expected a .csv file, {_instead(file)}")
    table = read_table(file)
    _check_finite(table, path)
    arrays: dict[str, NDArray] = {}
    columns = list(range(table.numbers.shape[1]))
    if group is not None:
        at = _named_column(table, "group", group, path)
        require(
            label != group,
            f"{path}: expected two columns, got {group!r} for label and group; correct one",
        )
        arrays["group"] = _whole(table, at, path, "the number of a device, a whole number from 0")
        columns.remove(at)
    column = _label_column(table, columns, label, path)
    columns.remove(column)
    wanted = "a label, a whole number from 0"
    cure = "correct it, name the labels' column (label), or set regression = true"
    y = table.numbers[:, column] if regression else _whole(table, column, path, wanted, cure)
    arrays |= {"x": table.numbers[:, columns], "y": y}
    found = of_arrays(arrays, str(path), regression=regression, test_share=test_share)
    return found if scale == "none" else _standard(found)


def _instead(path: Path) -> str:
    """Return what is there in the place of a file, and what to do."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else []
    if files:
        return (
            f"{path} is a folder of {len(files)} of them; name one, or join them by a function of "
            "your own, one group for each file (docs/tutorials/own-data.md)"
        )
    return f"found none at {path}; correct the path"


def _whole(
    table: Table, column: int, path: Path | str, wanted: str, cure: str = "correct it"
) -> NDArray[np.int64]:
    """Return a column of whole numbers from 0, or refuse the first that is none."""
    values = table.numbers[:, column]
    broken = np.flatnonzero((values != np.round(values)) | (values < 0))
    if len(broken):
        raise ValueError(
            f"{path}, line {table.lines[broken[0]]}, column {column + 1}: expected {wanted}, got "
            f"{values[broken[0]]:g}; {cure}"
        )
    return values.astype(np.int64)


def _check_finite(table: Table, path: Path | str) -> None:
    """Refuse NaN and numbers beyond float32, which no gradient survives."""
    with np.errstate(over="ignore"):
        bad = np.argwhere(~np.isfinite(table.numbers.astype(np.float32)))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{path}, line {table.lines[row]}, column {column + 1}: expected a finite number, got "
            f"{table.numbers[row, column]} ({len(bad)} such in all); clean the data"
        )


def _label_column(table: Table, columns: Sequence[int], label: str | None, path: Path | str) -> int:
    """Return which of these columns has the labels; refuse a name that the file lacks."""
    require(
        len(columns) >= 2,
        f"{path}: expected features and a column of labels, got {len(columns)} column; put a comma "
        "between columns",
    )
    if label is None:
        usual = table.label
        return columns[-1] if usual is None or usual not in columns else usual
    return _named_column(table, "label", label, path)


def _named_column(table: Table, option: str, name: str, path: Path | str) -> int:
    """Return the column of a name; refuse a name that the file lacks."""
    without = {"label": "; the last column holds labels then", "group": ""}[option]
    require(
        bool(table.names),
        f"{path}: expected a line of names, for {option} = {name!r}, got numbers in line "
        f"{table.lines[0]}; add the names, or leave {option} out{without}",
    )
    require(name in table.names, f"{path} has no column {name!r}; {nearest(name, table.names)}")
    return table.names.index(name)


def _standard(found: DataSet) -> DataSet:
    """Return samples with features of mean 0 and standard deviation 1 where they are learned."""
    train = found.x_train.astype(np.float64)
    mean, std = train.mean(axis=0), train.std(axis=0)
    std[std == 0] = 1.0
    scaled = [((x - mean) / std).astype(np.float32) for x in (train, found.x_test)]
    return found._replace(x_train=scaled[0], x_test=scaled[1])
