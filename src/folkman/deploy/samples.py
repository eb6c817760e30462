"""Samples from a user's file: .npz, .npy or .csv; and predictions to a file: .csv or .json.

.npz    x, and y if it is there
.npy    x
.csv    one sample a line, comma between numbers, with a line of names above or without.
        A column called y, label, class or target holds the labels; without names it is the last
        one, where there is one more than the model has features. For a model that was learnt
        from a .csv file its columns, windows and scale are those of the training.
"""

import csv
import io
import json
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.deploy.alike import Samples, alike, is_there
from folkman.deploy.predict import Predictions
from folkman.deploy.trained import Trained
from folkman.problem.data import read_npz
from folkman.problem.table import LABELS, read_table
from folkman.record.json_file import Json, write_text
from folkman.record.run import jsonable

__all__ = ["Samples", "as_csv", "as_json", "read_samples", "write_predictions"]

READABLE, WRITABLE = (".npz", ".npy", ".csv"), (".csv", ".json")


def read_samples(path: Path, trained: Trained) -> Samples:
    """Read samples for a model; the shapes are checked by `predict`.

    A .csv file for a model that was learnt from one is prepared as that was.
    """
    require(
        path.suffix in READABLE,
        f"expected a file that ends in {', '.join(READABLE)}, got {path}; convert it",
    )
    if not path.is_file():
        raise FileNotFoundError(f"expected a file of samples, there is no {path}; check the path")
    if path.suffix == ".npz":
        arrays = read_npz(path)
        require("x" in arrays, f"{path}: expected an array x, found {sorted(arrays)}; name it x")
        return Samples(arrays["x"], arrays.get("y"))
    if path.suffix == ".npy":
        return Samples(_read_npy(path), None)
    data = trained.data or {}
    if data.get("name") == "csv" and is_there(data, trained.made_s):
        return alike(path, data)
    return _read_csv(path, prod(trained.fitted.sample))


def _read_npy(path: Path) -> NDArray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError):
        raise ValueError(
            f"expected one plain numeric array, could not read {path}; write it with numpy.save"
        ) from None


def _read_csv(path: Path, features: int) -> Samples:
    """Read a table; refuse a width that fits neither with labels nor without."""
    table = read_table(path)
    width = table.numbers.shape[1]
    if width == features + 1 and (table.label is not None or not table.names):
        label = width - 1 if table.label is None else table.label
        return Samples(table.without(label), table.numbers[:, label])
    require(
        width == features,
        f"{path}: expected {features} columns of features, and one called {' or '.join(LABELS)} if "
        f"there are labels; got {width} columns",
    )
    return Samples(table.numbers, None)


def _columns(found: Predictions, y: NDArray | None) -> dict[str, list]:
    """Return what is written of each sample, by column."""
    columns: dict[str, list] = {"sample": list(range(len(found)))}
    if found.classes is not None:
        columns["class"] = found.classes.tolist()
    if found.probability is not None:
        columns["probability"] = [round(each, 6) for each in found.probability.tolist()]
    if found.values is not None:
        columns["value"] = found.values.tolist()
    if y is not None:
        columns["label"] = [jsonable(float(each)) for each in np.asarray(y)]
    return columns


def as_csv(found: Predictions, y: NDArray | None) -> str:
    """Return predictions as a table with a line of names."""
    columns = _columns(found, y)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def as_json(found: Predictions, y: NDArray | None, model: str) -> Json:
    """Return predictions as one object: the model, how good they are, a row for each sample."""
    columns = _columns(found, y)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    error = None
    if found.values is not None and y is not None:
        error = float(np.mean((found.values - np.asarray(y, np.float64)) ** 2))
    how = {"accuracy": found.accuracy, "mean_squared_error": error}
    return {"model": model, "samples": len(found), **how, "predictions": rows}


def write_predictions(path: Path, found: Predictions, y: NDArray | None, model: str) -> None:
    """Write predictions, as the name of the file says."""
    require(
        path.suffix in WRITABLE,
        f"expected a file that ends in {' or '.join(WRITABLE)}, got {path}; name it so",
    )
    text = as_csv(found, y)
    write_text(path, text if path.suffix == ".csv" else json.dumps(as_json(found, y, model)) + "\n")
