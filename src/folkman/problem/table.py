"""Tables of text: .csv files of samples, for training and for predictions.

One sample per line, a comma between numbers, with a line of names above or without; a line of names
is one that has a word in it. A column called y, label, class or target holds the labels; another
may be named, and without names the labels of training are the last column. Lines that follow each
other may be windows of a recording.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.checks import nearest, notice, require
from folkman.problem.data import DataSet, of_arrays
from folkman.problem.windows import windowed

__all__ = ["LABELS", "Moments", "Table", "csv_samples", "lines_alike", "moments", "read_table"]

LABELS = ("y", "label", "class", "target")
"""Names of the column of labels, in any case."""
NO_FEATURES = ("time", "timestamp", "datetime", "date", "id", "uid", "index", "row", "unnamed: 0")
"""Names of columns that say when or which a sample is, in any case."""
APART = {";": "semicolons", "\t": "tabs"}
"""Signs that other programs put between columns."""
FEWEST_LINES = 10
"""Lines from which a first column that only increases, or never repeats, says that of itself."""

MOST_CLASSES = 12
"""Names of classes that an error lists."""

SCALES = ("none", "standard")


class Cells(NamedTuple):
    """The text of a file."""

    path: Path
    names: list[str]  # of the columns; empty without a line of names
    rows: list[list[str]]  # of one width
    lines: list[int]  # of the file, for each sample

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return len(self.rows[0])

    def column(self, at: int) -> list[str]:
        """Return the cells of a column."""
        return [row[at].strip() for row in self.rows]

    def titled(self, at: int) -> str:
        """Return a column by its number, and by its name where it has one."""
        return f"column {at + 1}" + (f" ({self.names[at]})" if self.names else "")

    def called(self, at: int) -> str:
        """Return what an option names a column by."""
        return self.names[at] if self.names else str(at + 1)

    def place(self, row: int, at: int) -> str:
        """Return where a cell is."""
        return f"{self.path}, line {self.lines[row]}, {self.titled(at)}"


class Table(NamedTuple):
    """The numbers of a file."""

    names: list[str]  # of the columns; empty without a line of names
    numbers: NDArray[np.float64]  # (sample, column)

    @property
    def label(self) -> int | None:
        """Return the column whose name says that it holds labels, or None."""
        return _usual(self.names)

    def without(self, column: int) -> NDArray[np.float64]:
        """Return all columns but one."""
        return np.delete(self.numbers, column, axis=1)


def _usual(names: Sequence[str]) -> int | None:
    """Return the column whose name says that it holds labels, or None."""
    return next((at for at, name in enumerate(names) if name.lower() in LABELS), None)


def read_table(path: Path) -> Table:
    """Read comma-separated numbers; a line of names is one that has a word in it."""
    cells = _read(path)
    columns = [_numbers(cells, at, cure=OF_A_FILE) for at in range(cells.width)]
    return Table(cells.names, np.column_stack(columns))


class Chosen(NamedTuple):
    """Which columns of a file are what, by their places."""

    features: list[int]
    label: int
    group: int | None


class Lines(NamedTuple):
    """The numbers of a file's lines, by what they are."""

    x: NDArray[np.float64]  # (line, feature)
    y: NDArray[np.float64] | None  # (line,) where the file has labels
    device: NDArray[np.int64] | None  # (line,) where it says of which machine a line is


def lines_alike(
    path: Path,
    learnt: Path,
    label: str | None = None,
    group: str | None = None,
    drop: Sequence[str | int] = (),
) -> Lines:
    """Read a table for a model that learnt another table: the same columns, by their names.

    Columns of labels, of devices and of `drop` may be absent, and may stand elsewhere. Without
    names in one of the two, all columns are there in the same order, or the features alone.
    """
    cells, known = _read(path), _read(learnt)
    chosen = _chosen(known, label, group, drop)
    places = _by_name if cells.names and known.names else _by_place
    at = places(cells, known, chosen)
    x = np.column_stack([_finite(cells, k, _numbers(cells, k, OF_A_FILE)) for k in at.features])
    y = None if at.label < 0 else _finite(cells, at.label, _numbers(cells, at.label, OF_A_FILE))
    return Lines(x, y, None if at.group is None else _devices(cells, at.group))


def _by_name(cells: Cells, known: Cells, chosen: Chosen) -> Chosen:
    """Return where the columns of another file stand in this one; a label of -1 is none."""
    for at in chosen.features:
        name = known.names[at]
        require(
            name in cells.names,
            f"{cells.path} has no column {name!r}, which the model learnt from {known.path}; "
            f"{nearest(name, cells.names)}",
        )

    def place(at: int | None) -> int:
        name = None if at is None else known.names[at]
        return cells.names.index(name) if name in cells.names else -1

    group = place(chosen.group)
    features = [place(at) for at in chosen.features]
    return Chosen(features, place(chosen.label), None if group < 0 else group)


def _by_place(cells: Cells, known: Cells, chosen: Chosen) -> Chosen:
    """Return the same columns of a file with as many, or all of one with features alone."""
    if cells.width == known.width:
        return chosen
    features = len(chosen.features)
    require(
        cells.width == features,
        f"{cells.path}: expected {known.width} columns, as {known.path} has, or the {features} of "
        f"its features, got {cells.width}; give both a line of names, or the same columns",
    )
    return Chosen(list(range(features)), -1, None)


def _read(path: Path) -> Cells:
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
    cut_by = next((sign for sign in APART if len(rows[0][1]) == 1 and sign in rows[0][1][0]), None)
    require(
        cut_by is None,
        f"{path}: expected a comma between columns, got {APART.get(cut_by or '')}; save it with "
        "commas, and a point in numbers",
    )
    names = _names([row for _, row in rows])
    rows = rows[1:] if names else rows
    require(bool(rows), f"expected samples below the names, {path} has none; add some")
    width = len(names or rows[0][1])
    for at, row in rows:
        require(
            len(row) == width,
            f"{path}, line {at}: expected {width} columns, got {len(row)}; give every line as "
            "many, with a comma between them",
        )
    return Cells(path, names, [row for _, row in rows], [at for at, _ in rows])


def _names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the names in the first line; none where it is a sample like the next."""
    kinds = [[_is_number(cell) for cell in row] for row in rows[:2]]
    words = [cell for cell in rows[0] if cell.strip() and not _is_number(cell)]
    # a word in the first line is a name, unless numbers are beside it and a word is below it
    told = bool(words) and (not any(kinds[0]) or kinds[1:] != kinds[:1])
    return [each.strip() for each in rows[0]] if told else []


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


OF_A_FILE = "correct it, or leave the column out of the file"
"""What to do where there are no options to leave a column out with."""


def _numbers(cells: Cells, at: int, cure: str = "") -> NDArray[np.float64]:
    """Return a column of numbers, or refuse it and say what else it may be."""
    column = cells.column(at)
    bad = [row for row, cell in enumerate(column) if not _is_number(cell)]
    if bad:
        cure = cure or _cure(cells, at, sum(bool(column[row]) for row in bad))
        raise ValueError(
            f"{cells.place(bad[0], at)}: expected a number, got {column[bad[0]]!r}; {cure}"
        )
    return np.array(column, float)


def _cure(cells: Cells, at: int, words: int) -> str:
    """Return what to do about a column of features with so many words in it."""
    if words <= len(cells.rows) / 2:  # most are numbers
        return "correct it"
    left_out = f"leave the column out with drop = [{cells.called(at)!r}]".replace("'", '"')
    if _is_called_no_feature(cells, at) or len(set(cells.column(at))) == len(cells.rows):
        return f"if it says when or which a sample is, {left_out}"
    group = f'group = "{cells.called(at)}"' if cells.names else "group, and a line of names"
    return f"if it names the device that a sample came from, say so with {group}; else {left_out}"


def _is_called_no_feature(cells: Cells, at: int) -> bool:
    return bool(cells.names) and cells.names[at].lower() in (*NO_FEATURES, "")


def csv_samples(
    path: Path | str,
    *,
    label: str | None = None,  # column of the labels; None: y, label, class, target, or the last
    group: str | None = None,  # column that says which device a sample came from
    drop: tuple[str | int, ...] = (),  # columns that are left out: names, or numbers from 1
    window: int | None = None,  # lines that follow each other and make one sample; None: one each
    regression: bool = False,
    test_share: float = 0.2,  # share of the samples that is held out
    # standard: each feature to mean 0 and standard deviation 1
    scale: Literal["none", "standard"] = "none",
) -> DataSet:
    """Load the user's own table: a sample per line, one column of labels 0..C-1.

    The labels are the column called `label`; by default one called y, label, class or target, else
    the last one. The column called `group` says which device a sample came from, by a whole number
    or by a name; names count in the order of the alphabet. The partition `by_device` goes by it.
    Columns in `drop` are left out. `regression` takes labels as targets. The last `test_share` of a
    fixed permutation is held out. "standard" scales each feature to mean 0 and standard deviation 1
    over the training samples; a constant one becomes 0.

    With `window` a sample is that many lines of one device and one label (window, feature), without
    overlap, and the last `test_share` of each device's windows are held out. In a regression the
    target is that of the last line.
    """
    require(scale in SCALES, f"expected a scale of {' or '.join(SCALES)}, got {scale!r}; choose")
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"expected a .csv file, {_instead(file)}")
    cells = _read(file)
    columns, at, device = _chosen(cells, label, group, drop)
    arrays: dict[str, NDArray] = {} if device is None else {"group": _devices(cells, device)}
    y = _finite(cells, at, _numbers(cells, at)) if regression else _labels(cells, at)
    x = np.column_stack([_finite(cells, each, _numbers(cells, each)) for each in columns])
    _warn_of_no_features(cells, columns, x)
    arrays |= {"x": x, "y": y}
    if window is not None:
        arrays = windowed(arrays, window, test_share, str(path), regression=regression)
    found = of_arrays(arrays, str(path), regression=regression, test_share=test_share)
    return found if scale == "none" else _standard(found)


def _chosen(
    cells: Cells, label: str | None, group: str | None, drop: Sequence[str | int]
) -> Chosen:
    """Return which columns are features, labels and devices."""
    columns, device = _kept(cells, drop), None
    if group is not None:
        device = _named_column(cells, "group", group)
        require(
            label != group,
            f"{cells.path}: expected two columns, got {group!r} for label and group; correct one",
        )
        columns = [each for each in columns if each != device]
    at = _label_column(cells, columns, label)
    features = [each for each in columns if each != at]
    require(
        bool(features), f"{cells.path}: expected features beside the labels, got none; keep some"
    )
    return Chosen(features, at, device)


def _kept(cells: Cells, drop: Sequence[str | int]) -> list[int]:
    """Return the columns that are not left out."""
    twice = next((name for name in cells.names if cells.names.count(name) > 1), None)
    require(
        twice is None,
        f"{cells.path}: expected a name for each column, got {twice!r} twice; give each its own",
    )
    numbers = [str(at + 1) for at in range(cells.width)]
    known = cells.names or numbers
    left_out = set()
    for each in drop:
        among = numbers if isinstance(each, int) else known
        name = str(each)
        require(
            name in among, f"{cells.path} has no column {each!r} to drop; {nearest(name, among)}"
        )
        left_out.add(among.index(name))
    return [at for at in range(cells.width) if at not in left_out]


def _devices(cells: Cells, at: int) -> NDArray[np.int64]:
    """Return the device of each sample: the column's whole numbers, or its names numbered."""
    column = cells.column(at)
    gaps = [row for row, cell in enumerate(column) if not cell]
    if gaps:
        raise ValueError(
            f"{cells.place(gaps[0], at)}: expected the name or the number of a device, got nothing;"
            " fill it in"
        )
    if all(map(_is_number, column)):
        wanted = "the number of a device, a whole number from 0, or a name"
        return _whole(cells, at, np.array(column, float), wanted, "correct it")
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def _labels(cells: Cells, at: int) -> NDArray[np.int64]:
    """Return the column of labels, whole numbers from 0; refuse words with their numbers."""
    column = cells.column(at)
    words = [row for row, cell in enumerate(column) if cell and not _is_number(cell)]
    if len(words) > len(column) / 2:
        named = sorted({column[row] for row in words})
        many = len(named) > MOST_CLASSES
        listed = ", ".join(f"{name} = {number}" for number, name in enumerate(named))
        cure = (
            "name the labels' column (label)"
            if many
            else f"number the classes, as in {listed}, or name another column (label)"
        )
        raise ValueError(
            f"{cells.place(words[0], at)}: expected a label, a whole number from 0, got "
            f"{column[words[0]]!r}; {cure}"
        )
    cure = "correct it, name the labels' column (label), or set regression = true"
    numbers = _finite(cells, at, _numbers(cells, at))
    return _whole(cells, at, numbers, "a label, a whole number from 0", cure)


def _warn_of_no_features(cells: Cells, columns: Sequence[int], x: NDArray) -> None:
    """Warn of features that say when or which a sample is: a model learns the order of the file."""
    for at, values in zip(columns, x.T, strict=True):
        if _is_called_no_feature(cells, at):
            why = f"is called {cells.names[at]!r}" if cells.names[at] else "has no name"
        elif at == 0 and len(values) >= FEWEST_LINES and np.all(np.diff(values) > 0):
            why = "only increases from line to line"
        elif at == 0 and len(values) >= FEWEST_LINES and _are_numbers_of_samples(values):
            why = "has another whole number in every line"
        else:
            continue
        left_out = f"drop = [{cells.called(at)!r}]".replace("'", '"')
        notice(
            f"{cells.path}: {cells.titled(at)} {why}, so it may say when or which a sample is; it "
            f"is learned as a feature. If it is none, leave it out with {left_out} in [data]"
        )


def _are_numbers_of_samples(values: NDArray) -> bool:
    return bool(np.all(values == np.round(values))) and len(np.unique(values)) == len(values)


def _instead(path: Path) -> str:
    """Return what is there in the place of a file, and what to do."""
    files = sorted(path.glob("*.csv")) if path.is_dir() else []
    if files:
        return (
            f"{path} is a folder of {len(files)} of them; name one, or join them by a function of "
            "your own, one group for each file"
        )
    return f"found none at {path}; correct the path"


def _whole(cells: Cells, at: int, values: NDArray, wanted: str, cure: str) -> NDArray[np.int64]:
    """Return whole numbers from 0, or refuse the first that is none."""
    broken = np.flatnonzero((values != np.round(values)) | (values < 0))
    if len(broken):
        raise ValueError(
            f"{cells.place(broken[0], at)}: expected {wanted}, got {values[broken[0]]:g}; {cure}"
        )
    return values.astype(np.int64)


def _finite(cells: Cells, at: int, values: NDArray) -> NDArray[np.float64]:
    """Refuse NaN and numbers beyond float32, which no gradient survives."""
    with np.errstate(over="ignore"):
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
    if len(bad):
        raise ValueError(
            f"{cells.place(bad[0], at)}: expected a finite number, got {values[bad[0]]} "
            f"({len(bad)} such in the column); clean the data"
        )
    return values


def _label_column(cells: Cells, columns: Sequence[int], label: str | None) -> int:
    """Return which of these columns has the labels; refuse a name that the file lacks."""
    require(
        len(columns) >= 2,
        f"{cells.path}: expected features and a column of labels, got {len(columns)} column; put a "
        "comma between columns",
    )
    if label is None:
        usual = _usual(cells.names)
        return columns[-1] if usual is None or usual not in columns else usual
    at = _named_column(cells, "label", label)
    require(
        at in columns,
        f"{cells.path}: expected the labels' column {label!r} to be kept, it is in drop; correct "
        "one of the two",
    )
    return at


def _named_column(cells: Cells, option: str, name: str) -> int:
    """Return the column of a name; refuse a name that the file lacks."""
    without = {"label": "; the last column holds labels then", "group": ""}[option]
    require(
        bool(cells.names),
        f"{cells.path}: expected a line of names, for {option} = {name!r}, got numbers in line "
        f"{cells.lines[0]}; add the names, or leave {option} out{without}",
    )
    require(
        name in cells.names, f"{cells.path} has no column {name!r}; {nearest(name, cells.names)}"
    )
    return cells.names.index(name)


def _standard(found: DataSet) -> DataSet:
    """Return samples with features of mean 0 and standard deviation 1 where they are learned."""
    learnt = moments(found.x_train)
    return found._replace(
        x_train=learnt.applied(found.x_train), x_test=learnt.applied(found.x_test)
    )


class Moments(NamedTuple):
    """Mean and standard deviation of each feature; 1 where it is constant."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def applied(self, x: NDArray) -> NDArray[np.float32]:
        """Return samples whose features have mean 0 and deviation 1 over those measured."""
        return ((x - self.mean) / self.std).astype(np.float32)


def moments(x: NDArray) -> Moments:
    """Measure the features of samples (n, feature) or windows (n, line, feature)."""
    train = x.astype(np.float64)
    samples = tuple(range(train.ndim - 1))
    mean, std = train.mean(axis=samples), train.std(axis=samples)
    std[std == 0] = 1.0
    return Moments(mean, std)
