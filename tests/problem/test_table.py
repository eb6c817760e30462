"""Tables of a user: against NumPy's own reader, and damaged ones by their line."""

from typing import Any

import numpy as np
import pytest

import folkman as fm
from folkman.checks import Notice
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
    "a word": (
        "a,y\n1,0\ncat,0\n3,1\n",
        {},
        r"line 3, column 1 \(a\): expected a number, got 'cat'; correct it",
    ),
    "a word for a label": (
        "a,y\n1,0\n2,cat\n3,1\n",
        {},
        r"line 3, column 2 \(y\): expected a number, got 'cat'; correct it",
    ),
    "words for labels": (
        "a,y\n1,run\n2,eat\n3,run\n",
        {},
        r"line 2, column 2 \(y\): expected a label, .* got 'run'; number .* as in eat = 0, run = 1",
    ),
    "times": (
        "when,a,y\n2024-01-01,1,0\n2024-01-02,1,0\n2024-01-03,2,1\n",
        {},
        r"line 2, column 1 \(when\): .*when or which a sample is, .* drop = ..when",
    ),
    "machines": (
        "a,unit,y\n1,east,0\n2,west,0\n3,west,1\n",
        {},
        r"line 2, column 2 \(unit\): expected a number, got 'east'; .* group = .unit.; else",
    ),
    "machines without names": (
        "1,east,0\n2,west,0\n3,west,1\n",
        {},
        r"line 1, column 2: .* group, and a line of names; else .* drop = ..2",
    ),
    "no machine": ("a,unit,y\n1,east,0\n2,,0\n", {"group": "unit"}, "line 3.* got nothing; fill"),
    "an unknown drop": ("a,b,y\n1,0,0\n", {"drop": ("c",)}, "no column 'c' to drop; known: a"),
    "labels dropped": ("a,b,y\n1,0,0\n", {"drop": ("y",), "label": "y"}, "it is in drop; correct"),
    "all dropped": ("a,b,y\n1,0,0\n", {"drop": ("a", "b")}, "a column of labels, got 1"),
    "a window of nothing": ("1,0\n2,1\n", {"window": 0}, "expected a window of one line or more"),
    "a window too long": ("1,0\n2,0\n3,1\n", {"window": 2}, "got 1 in all of 2 lines of one"),
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
    "semicolons": ("1;0\n2;1\n", {}, "between columns, got semicolons; save it with commas"),
    "an unknown label": ("a,kind\n1,0\n", {"label": "kid"}, "no column 'kid'; did you mean 'kind'"),
    "a label without names": ("1,0\n2,1\n", {"label": "kind"}, "add the names, or leave label out"),
    "an unknown group": ("a,b,y\n1,0,0\n", {"group": "c"}, "no column 'c'; known: a, b, y"),
    "half a device": ("a,b,y\n1,.5,0\n2,1,1\n", {"group": "b"}, r"column 2 \(b\): .* device"),
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


def test_devices_may_have_names(tmp_path):
    """Named or numbered, the samples of one device are one node's; names by the alphabet."""
    names = ["lathe", "drill", "saw"]
    rows = [f"{x[0]:.6f},{names[i % 3]},{y}" for i, (x, y) in enumerate(zip(X, Y, strict=True))]
    (tmp_path / "mine.csv").write_text("\n".join(["a,unit,y", *rows]))

    found = fm.load("csv", path=tmp_path / "mine.csv", group="unit")

    of_sample = {f"{x[0]:.6f}": sorted(names).index(names[i % 3]) for i, x in enumerate(X)}
    assert found.group is not None
    assert [of_sample[f"{x:.6f}"] for x in found.x_train[:, 0]] == found.group.tolist()
    assert found.x_train.shape[1] == 1


TIMES = {
    "a name": ("time", [5.0, 1.0, 3.0] * 4, r"column 1 \(time\) is called 'time'"),
    "a clock": ("a", np.arange(12) * 0.02, r"column 1 \(a\) only increases from line to line"),
    "numbers": ("a", np.arange(12)[::-1] + 40, r"column 1 \(a\) has another whole number in"),
}


@pytest.mark.parametrize(("name", "column", "complaint"), TIMES.values(), ids=TIMES)
def test_a_time_is_no_feature_without_a_word(tmp_path, name, column, complaint):
    path = tmp_path / "mine.csv"
    rows = np.column_stack([column, X[:12, 0], Y[:12]])
    np.savetxt(path, rows, "%.6g", ",", header=f"{name},b,y", comments="")

    with pytest.warns(Notice, match=complaint + rf'.* leave it out with drop = \["{name}"\]'):
        kept = fm.load("csv", path=path)
    left = fm.load("csv", path=path, drop=(name,))

    assert (kept.x_train.shape[1], left.x_train.shape[1]) == (2, 1)
    np.testing.assert_array_equal(left.x_train[:, 0], kept.x_train[:, 1])


def test_measurements_are_no_times(tmp_path):
    """A first column of measurements that go up and down, or of few counts, says nothing."""
    for column in (X[:12, 0], np.array([7, 9, 7, 8] * 3)):
        path = tmp_path / "mine.csv"
        np.savetxt(path, np.column_stack([column, Y[:12]]), "%.6g", ",")
        fm.load("csv", path=path)  # a warning would be an error


def recording(folder, lines=400, machines=3):
    """Write what the guide's Python makes windows of, as one table with a column of machines."""
    rng, tables = np.random.default_rng(0), []
    for machine in range(machines):
        state = np.repeat(rng.integers(0, 2, lines // 50), 50)
        axes = rng.normal(size=(lines, 3)) * (1 + state[:, None])
        tables.append(np.column_stack([axes, np.full(lines, machine), state]))
    path = folder / "machines.csv"
    rows = np.concatenate(tables)
    np.savetxt(path, rows, "%.6g", ",", header="a,b,c,unit,y", comments="")
    return path


def test_windows_of_a_table_are_those_that_plain_numpy_makes(tmp_path):
    path = recording(tmp_path)
    table = np.genfromtxt(path, delimiter=",", skip_header=1)
    parts: dict[str, list] = {"train": [], "test": []}
    for machine in range(3):
        own = table[table[:, 3] == machine]
        for at, window in enumerate(own.reshape(-1, 50, 5)):
            part = "test" if at >= 0.75 * 8 else "train"
            parts[part].append((window[:, :3], window[0, 4], machine))

    found = fm.load("csv", path=path, group="unit", window=50, test_share=0.25)

    for part, x, y in (("train", *found[1:3]), ("test", *found[3:5])):
        np.testing.assert_array_equal(x, np.array([each[0] for each in parts[part]], np.float32))
        assert y.tolist() == [each[1] for each in parts[part]]
    assert found.group is not None
    assert found.group.tolist() == [each[2] for each in parts["train"]]


def test_lines_of_two_devices_or_labels_are_never_one_window(tmp_path):
    """Machines write by turns, and a state lasts seven lines: windows of three leave one out."""
    y = np.repeat([0, 1, 0, 1, 0, 1], 7)
    rows = [[10 * unit + label, unit, label] for label in y for unit in (0, 1)]
    path = tmp_path / "mine.csv"
    np.savetxt(path, rows, "%d", ",", header="a,unit,y", comments="")

    found = fm.load("csv", path=path, group="unit", window=3, test_share=0.4)

    assert len(found.x_train) + len(found.x_test) == 2 * 6 * 2
    for x, label in zip(found.x_train[..., 0], found.y_train, strict=True):
        assert len(set(x)) == 1
        assert x[0] % 10 == label


def test_a_window_that_leaves_most_lines_out_says_so(tmp_path):
    y = np.repeat([0, 1, 0, 1, 0, 1], [5, 4, 4, 5, 4, 4])
    path = tmp_path / "mine.csv"
    np.savetxt(path, np.column_stack([X[:26, 0], y]), "%.6g", ",")
    with pytest.warns(Notice) as told:
        fm.load("csv", path=path, window=5)
    assert "take 10 of 26 lines, the others are left out" in str(told[0].message)


def test_windows_held_out_that_lack_a_label_are_told(tmp_path):
    y = np.repeat([0, 1, 0, 1, 0], 8)
    path = tmp_path / "mine.csv"
    np.savetxt(path, np.column_stack([X[:, 0], y]), "%.6g", ",")
    with pytest.warns(Notice, match="have no label 1, so an accuracy says little; raise test_sh"):
        fm.load("csv", path=path, window=4, test_share=0.2)
    fm.load("csv", path=path, window=4, test_share=0.4)


def test_the_target_of_a_window_in_a_regression_is_that_of_its_last_line(tmp_path):
    path = tmp_path / "mine.csv"
    np.savetxt(path, np.column_stack([X[:, 0], np.arange(40)]), "%.6g", ",")

    found = fm.load("csv", path=path, window=4, regression=True, scale="standard")

    assert found.x_train.shape == (8, 4, 1)
    assert found.y_train.tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    assert found.y_test.tolist() == [35, 39]
    assert abs(found.x_train.mean()) < 1e-6  # one mean for each feature, over lines and windows
    assert found.x_train.std() == pytest.approx(1, rel=1e-5)


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


def test_samples_to_predict_have_no_options_to_leave_a_column_out_with(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("a,unit,b\n1,east,0\n2,west,0\n")
    with pytest.raises(ValueError, match=r"got 'east'; correct it, or leave the column out of the"):
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
