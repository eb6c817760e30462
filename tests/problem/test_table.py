"""Tables of a user: against NumPy's own reader, and damaged ones by their line."""

from typing import Any

import numpy as np
import pytest

import folkman as fm
from folkman.problem.partition import split
from folkman.problem.table import read_table
from shell import folkman, undrawn

RNG = np.random.default_rng(3)
X, Y = RNG.normal(2.0, 3.0, (40, 4)).astype(np.float32), np.arange(40) % 3


def write(folder, *, names="", at=4, y: np.ndarray = Y):
    """Write samples with their labels in column `at`; return the file."""
    path = folder / "mine.csv"
    np.savetxt(path, np.insert(X, at, y, axis=1), "%.9g", ",", header=names, comments="")
    return path


def whole(found):
    """Return all samples of a data set with their labels, sorted."""
    x = np.concatenate([found.x_train, found.x_test])
    y = np.concatenate([found.y_train, found.y_test])
    rows = np.column_stack([x, y])
    return rows[np.lexsort(rows.T[::-1])]


@pytest.mark.parametrize(
    ("names", "at", "options"),
    [
        ("", 4, {}),
        ("a,b,c,d,e", 4, {}),
        ("a,Label,c,d,e", 1, {}),
        ("kind,b,c,d,y", 0, {"label": "kind"}),
    ],
    ids=["no names", "the last", "by its usual name", "by a given name"],
)
def test_a_table_holds_what_numpy_reads(tmp_path, names, at, options):
    path = write(tmp_path, names=names, at=at)

    found = fm.load("csv", path=path, **options)

    plain = np.genfromtxt(path, delimiter=",", skip_header=bool(names))
    x, y = np.delete(plain, at, axis=1).astype(np.float32), plain[:, at]
    rows = np.column_stack([x, y])
    np.testing.assert_array_equal(whole(found), rows[np.lexsort(rows.T[::-1])])
    assert (found.name, found.num_classes) == ("mine", 3)
    assert found.x_train.dtype == np.float32
    assert found.y_train.dtype == np.int32


@pytest.mark.parametrize("file", ["mine.csv", "mine.npz"])
def test_a_file_says_which_device_each_sample_came_from(tmp_path, file):
    """Wherever a sample ends up, its device goes with it; `by_device` then parts the samples."""
    device = np.arange(40) % 5
    if file == "mine.csv":
        rows = np.column_stack([X, Y, device])
        names = "a,b,c,d,kind,machine"
        np.savetxt(tmp_path / file, rows, "%.9g", ",", header=names, comments="")
        options: dict[str, Any] = {"label": "kind", "group": "machine"}
    else:
        np.savez(tmp_path / file, x=X, y=Y, group=device)
        options = {}

    found = fm.load(file[-3:], path=tmp_path / file, **options)

    assert found.group is not None
    of_sample = {tuple(x): (y, at) for x, y, at in zip(X, Y, device, strict=True)}
    learned = zip(found.x_train, found.y_train, found.group, strict=True)
    assert [(y, at) for _, y, at in learned] == [of_sample[tuple(x)] for x in found.x_train]
    parts = split("by_device", found.y_train, 5, group=found.group)
    assert [set(found.group[part]) for part in parts] == [{node} for node in range(5)]


def test_train_and_test_arrays_keep_the_devices_of_the_training_samples(tmp_path):
    given = {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3]}
    np.savez(tmp_path / "mine.npz", **given, group=np.arange(40) % 4)
    np.savez(tmp_path / "short.npz", **given, group=np.arange(39) % 4)

    group = fm.load("npz", path=tmp_path / "mine.npz").group
    assert group is not None
    assert group.tolist() == [*range(4)] * 10
    with pytest.raises(ValueError, match=r"short.npz: expected group to be a vector of 40 whole"):
        fm.load("npz", path=tmp_path / "short.npz")


@pytest.mark.parametrize(("share", "held"), [(0.2, 8), (0.25, 10), (0.001, 1), (0.999, 39)])
def test_a_share_is_held_out(tmp_path, share, held):
    found = fm.load("csv", path=write(tmp_path), test_share=share)

    assert len(found.x_test) == len(found.y_test) == held
    assert len(found.x_train) == 40 - held


def test_a_table_and_an_archive_of_the_same_arrays_are_the_same_data(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X.astype(np.float32), y=Y)

    table, archive = (
        fm.load("csv", path=write(tmp_path)),
        fm.load("npz", path=tmp_path / "mine.npz"),
    )

    np.testing.assert_array_equal(table.x_train, archive.x_train)
    np.testing.assert_array_equal(table.y_test, archive.y_test)


def test_scaled_features_have_mean_0_and_deviation_1_over_the_training_samples(tmp_path):
    path = tmp_path / "mine.csv"
    np.savetxt(path, np.column_stack([X, np.full(40, 7.0), Y]), "%.9g", ",")

    plain, found = (fm.load("csv", path=path, scale=scale) for scale in ("none", "standard"))

    varying = found.x_train[:, :4].astype(float)
    np.testing.assert_allclose(varying.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(varying.std(axis=0), 1, rtol=1e-6)
    assert not found.x_train[:, 4].any()  # a constant feature
    mean, std = (getattr(plain.x_train[:, :4].astype(float), of)(axis=0) for of in ("mean", "std"))
    np.testing.assert_allclose(found.x_test[:, :4], (plain.x_test[:, :4] - mean) / std, rtol=1e-5)


def test_targets_may_be_any_numbers_for_regression(tmp_path):
    found = fm.load("csv", path=write(tmp_path, y=X[:, 0] / 3), regression=True)

    assert found.num_classes == 0
    np.testing.assert_allclose(found.y_train, found.x_train[:, 0] / 3, rtol=1e-6)


BAD = {
    "nothing": ("", {}, "has no line with numbers; add some"),
    "names alone": ("a,b\n", {}, "expected samples below the names"),
    "a short line": ("a,y\n1,0\n2\n", {}, r"line 3: expected 2 columns, got 1; give every line"),
    "a word": ("a,y\n1,0\n2,cat\n", {}, r"line 3, column 2: expected a number, got 'cat'; correct"),
    "a gap": (
        "1,0\n,1\n",
        {},
        r"line 2, column 1: expected a number, got ''",
    ),
    "not a number": ("1,0\nnan,1\n", {}, r"line 2, column 1: expected a finite number, got nan"),
    "too large": ("1,0\n1e99,1\n", {}, r"line 2, column 1: expected a finite number, got 1e\+99"),
    "half a label": (
        "1,0\n2,0.5\n",
        {},
        r"line 2, column 2: expected a label, .* got 0.5; .*regres",
    ),
    "a label below 0": ("1,0\n2,-1\n", {}, r"line 2, column 2: expected a label, .* got -1"),
    "labels from 1": (
        "1,1\n2,2\n",
        {},
        r"expected labels 0..C-1, each in use, got \[1, 2\]; renumb",
    ),
    "one sample": ("1,0\n", {}, "expected two samples or more"),
    "one column": ("1\n2\n", {}, "expected features and a column of labels, got 1 column"),
    "semicolons": ("1;0\n2;1\n", {}, r"line 2, column 1: expected a number, got '2;1'"),
    "an unknown label": ("a,kind\n1,0\n", {"label": "kid"}, "no column 'kid'; did you mean 'kind'"),
    "a label without names": ("1,0\n2,1\n", {"label": "kind"}, "add the names, or leave label out"),
    "an unknown group": ("a,b,y\n1,0,0\n", {"group": "c"}, "no column 'c'; known: a, b, y"),
    "half a device": ("a,b,y\n1,.5,0\n2,1,1\n", {"group": "b"}, "line 2, column 2: .* device"),
    "a group for a label": ("a,b,y\n1,0,0\n", {"group": "y", "label": "y"}, "two columns"),
    "a group without names": ("1,0\n2,1\n", {"group": "y"}, "or leave group out$"),
    "all held out": ("1,0\n2,1\n", {"test_share": 1.0}, r"test_share in \(0, 1\), got 1.0"),
    "no scale": ("1,0\n2,1\n", {"scale": "big"}, "expected a scale of none or standard"),
}


@pytest.mark.parametrize(("text", "options", "complaint"), BAD.values(), ids=BAD)
def test_a_bad_table_is_refused_with_its_line_and_a_remedy(tmp_path, text, options, complaint):
    path = tmp_path / "bad.csv"
    path.write_text(text)

    with pytest.raises(ValueError, match=complaint):
        fm.load("csv", path=path, **options)


def test_a_folder_of_tables_is_said_to_be_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("1,0\n2,1\n")

    with pytest.raises(FileNotFoundError, match="is a folder of 2 of them; name one, or join them"):
        fm.load("csv", path=tmp_path)


def test_a_table_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_bytes("größe,y\n1,0\n".encode("latin-1"))

    with pytest.raises(ValueError, match=r"expected text in UTF-8, .*bad\.csv is none \(byte 2\)"):
        read_table(path)


def test_what_was_learned_from_a_table_predicts_the_same_table(tmp_path):
    write(tmp_path, names="a,b,c,d,y")
    small = ["nodes=2", "slots=3", "seeds=[0]", "model.name=softmax", "data.name=csv"]
    words = [part for each in [*small, "data.path=mine.csv"] for part in ("--set", each)]

    with undrawn():
        made = folkman("run", "--out", "r", *words, cwd=tmp_path)
    told = folkman("predict", "r", "--data", "mine.csv", "--json", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    assert told.returncode == 0, told.stderr
    assert '"samples": 40' in told.stdout
