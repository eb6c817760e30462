"""Files in the format of LEAF [1]: samples by the users who made them, as JSON.

A file is one object with the keys

    users         names, in order
    num_samples   how many samples each of them has
    user_data     name -> {"x": [...], "y": [...]}, one entry a sample in both

and a path is one such file, a folder of them, or a folder with `train` and `test` folders. Without
test files the last fifth of every user's samples is held out, of one sample none. A user may stand
in several files. The group of a sample is its user.

    femnist        x: 784 numbers, an image row by row;      y: 0 .. 61
    shakespeare    x: text of one length, usually 80 signs;  y: the sign that follows

[1] Caldas et al. LEAF: A Benchmark for Federated Settings. 2018. arXiv:1812.01097
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.problem.data import DataSet

__all__ = ["LETTERS", "femnist", "shakespeare"]

IMAGE = (28, 28, 1)
CHARACTERS = 62  # digits, capital and small letters
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The signs of LEAF's Shakespeare, each numbered by its place."""
HELD_OUT = 5  # one in so many samples of a user

Decode: TypeAlias = Callable[[Any, str], Any]
"""(one entry, where it stands) -> its value; a wrong entry is refused."""


class Samples(NamedTuple):
    """The samples of one user."""

    x: list[NDArray]
    y: list[int]


def femnist(path: Path | str, *, users: int | None = None) -> DataSet:
    """Load handwritten characters by their writers: images 28x28x1, 62 classes.

    `path` holds LEAF's JSON files; `users` keeps the first so many writers. Values are as they
    stand: 1 is white in LEAF's own files.
    """
    return _load(path, users, _image, _character, CHARACTERS)


def shakespeare(path: Path | str, *, users: int | None = None) -> DataSet:
    """Load lines of plays by their speakers: texts as int32 signs, the next sign to be told.

    `path` holds LEAF's JSON files; `users` keeps the first so many speakers. The model `gru` with
    `embedding` reads such samples.
    """
    return _load(path, users, _text, _sign, len(LETTERS))


def _image(entry: Any, where: str) -> NDArray[np.float32]:
    size = int(np.prod(IMAGE))
    numbers = isinstance(entry, list) and all(isinstance(v, int | float) for v in entry)
    came = f"{len(entry)} entries" if isinstance(entry, list) else type(entry).__name__
    require(
        numbers and len(entry) == size,
        f"{where}: expected x to be {size} numbers, got {came}; write the image row by row",
    )
    found = np.asarray(entry, np.float32).reshape(IMAGE)
    require(
        bool(np.isfinite(found).all()), f"{where}: expected finite numbers in x; clean the data"
    )
    return found


def _character(entry: Any, where: str) -> int:
    fits = isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < CHARACTERS
    require(fits, f"{where}: expected y in 0..{CHARACTERS - 1}, got {entry!r}; renumber the labels")
    return entry


def _text(entry: Any, where: str) -> NDArray[np.int32]:
    require(
        isinstance(entry, str) and len(entry) > 0,
        f"{where}: expected x to be text, got {entry!r:.40}; write the signs before y",
    )
    return np.array([_sign(sign, where) for sign in entry], np.int32)


def _sign(entry: Any, where: str) -> int:
    fits = isinstance(entry, str) and len(entry) == 1 and entry in LETTERS
    require(
        fits,
        f"{where}: expected one of LEAF's {len(LETTERS)} signs, got {entry!r:.40}; "
        "replace it, for instance by a space",
    )
    return LETTERS.index(entry)


def _load(
    path: Path | str, users: int | None, decode_x: Decode, decode_y: Decode, classes: int
) -> DataSet:
    """Read all files of a path, and put the samples of each user after those of the one before."""
    train_files, test_files = _files(Path(path))
    train = _read(train_files, decode_x, decode_y)
    test = _read(test_files, decode_x, decode_y)
    require(
        users is None or 1 <= users <= len(train),
        f"{path}: expected users in 1..{len(train)}, got {users}; correct it",
    )
    kept = list(train)[:users]
    if test_files:
        test = {name: test[name] for name in (kept if users else test) if name in test}
    else:
        train, test = _held_out({name: train[name] for name in kept})
    shapes = {x.shape for part in (train, test) for each in part.values() for x in each.x}
    require(
        len(shapes) == 1,
        f"{path}: expected samples of one length, got {sorted(shapes)}; cut or pad them alike",
    )
    (shape,) = shapes
    x_train, y_train = _arrays([train[name] for name in kept], shape)
    x_test, y_test = _arrays(list(test.values()), shape)
    group = np.repeat(np.arange(len(kept)), [len(train[name].y) for name in kept])
    return DataSet(Path(path).stem, x_train, y_train, x_test, y_test, classes, group=group)


def _arrays(parts: Sequence[Samples], shape: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    x = [each for part in parts for each in part.x]
    y = np.array([each for part in parts for each in part.y], np.int32)
    return np.stack(x) if x else np.zeros((0, *shape), np.float32), y


def _held_out(whole: dict[str, Samples]) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Return the samples to learn from and to test on: the last fifth of each user's."""
    cuts = {name: len(each.y) - len(each.y) // HELD_OUT for name, each in whole.items()}
    train = {k: Samples(each.x[: cuts[k]], each.y[: cuts[k]]) for k, each in whole.items()}
    test = {k: Samples(each.x[cuts[k] :], each.y[cuts[k] :]) for k, each in whole.items()}
    return train, test


def _files(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the files to learn from and to test on."""
    if path.is_file():
        return [path], []
    both = path / "train", path / "test"
    folders = both if both[0].is_dir() else (path, None)
    train, test = (sorted(each.glob("*.json")) if each else [] for each in folders)
    if not train:
        raise FileNotFoundError(
            f"expected LEAF's .json files at {path}, or in its folder train, found none; "
            "correct the path"
        )
    return train, test


def _read(files: Sequence[Path], decode_x: Decode, decode_y: Decode) -> dict[str, Samples]:
    """Return the samples of each user in some files, in the order in which users appear."""
    found: dict[str, Samples] = {}
    for file in files:
        table = _table(file)
        for name, number in zip(table["users"], table["num_samples"], strict=True):
            own = table["user_data"].get(name)
            where = f"{file}: user {name!r}"
            parts = own if isinstance(own, dict) else {}
            lists = all(isinstance(parts.get(key), list) for key in ("x", "y"))
            require(lists, f"{where}: expected lists x and y in user_data; add them")
            lengths = (len(parts["x"]), len(parts["y"]))
            require(
                lengths == (number, number) and number > 0,
                f"{where}: expected as many x and y as num_samples says, one or more, got "
                f"{lengths[0]} and {lengths[1]} for {number}; write the file again",
            )
            kept = found.setdefault(name, Samples([], []))
            for place, (x, y) in enumerate(zip(parts["x"], parts["y"], strict=True)):
                kept.x.append(decode_x(x, f"{where}, sample {place}"))
                kept.y.append(decode_y(y, f"{where}, sample {place}"))
    return found


def _table(file: Path) -> dict[str, Any]:
    """Return the object of a file with all its keys, of the right kinds."""
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{file}, line {error.lineno}: expected JSON, got {error.msg}; get the file again"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: expected text in UTF-8; get the file again") from None
    require(isinstance(table, dict), f"{file}: expected a JSON object; is it a file of LEAF?")
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        require(
            isinstance(table.get(key), kind),
            f"{file}: expected the key '{key}' with a JSON {_JSON[kind]}, found the keys "
            f"{', '.join(sorted(table)) or 'none'}; is it a file of LEAF?",
        )
    named = all(isinstance(name, str) for name in table["users"])
    require(named, f"{file}: expected names in users, as text; write the file again")
    users, numbers = len(table["users"]), len(table["num_samples"])
    require(
        users == numbers,
        f"{file}: expected one entry of num_samples for each of the {users} users, got {numbers}; "
        "write the file again",
    )
    return table


_JSON = {list: "array", dict: "object"}
