"""Readers of LEAF's and HAR's files: against the files read plainly, and damaged ones."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import folkman as fm
from folkman.problem import partition
from folkman.problem.har import SIGNALS
from folkman.problem.leaf import LETTERS
from shell import folkman

FORMATS = Path(__file__).parents[1] / "data" / "formats"


def test_the_samples_are_what_their_script_makes():
    spec = importlib.util.spec_from_file_location("make", FORMATS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)

    made = make.samples()

    kept = {
        str(path.relative_to(FORMATS)): path.read_text()
        for path in FORMATS.rglob("*")
        if path.suffix in (".json", ".txt", ".csv")
    }
    assert kept == made


def leaf(*parts):
    return json.loads(FORMATS.joinpath(*parts).read_text())["user_data"]


def test_femnist_is_read_by_its_writers():
    found = fm.load("femnist", path=FORMATS / "femnist")

    train, test = (leaf("femnist", part, "all_data_0.json") for part in ("train", "test"))
    x = [np.reshape(image, (28, 28, 1)) for own in train.values() for image in own["x"]]
    np.testing.assert_array_equal(found.x_train, np.stack(x))
    assert found.y_train.tolist() == [label for own in train.values() for label in own["y"]]
    assert found.y_test.tolist() == [label for own in test.values() for label in own["y"]]
    assert found.x_train.dtype == np.float32
    assert found.num_classes == 62
    assert found.group is not None
    assert found.group.tolist() == [0, 0, 1, 1]
    parts = partition.split("by_device", found.y_train, 2, group=found.group)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3]]


def test_shakespeare_is_read_sign_by_sign_and_the_last_fifth_of_each_speaker_is_held_out():
    found = fm.load("shakespeare", path=FORMATS / "shakespeare" / "lines.json")

    own = leaf("shakespeare", "lines.json")
    train, test, group = [], [], []
    for number, speaker in enumerate(own.values()):
        pairs = list(zip(speaker["x"], speaker["y"], strict=True))
        cut = len(pairs) - len(pairs) // 5
        train, test = train + pairs[:cut], test + pairs[cut:]
        group += [number] * cut
    told = ["".join(LETTERS[sign] for sign in row) for row in found.x_train]
    assert told == [x for x, _ in train]
    assert "".join(LETTERS[y] for y in found.y_train) == "".join(y for _, y in train)
    assert "".join(LETTERS[y] for y in found.y_test) == "".join(y for _, y in test)
    assert found.group is not None
    assert found.group.tolist() == group
    assert found.x_train.dtype == np.int32
    assert len(LETTERS) == len(set(LETTERS)) == found.num_classes == 80


def test_a_folder_without_parts_is_read_as_its_files_are():
    alone = fm.load("shakespeare", path=FORMATS / "shakespeare" / "lines.json")
    found = fm.load("shakespeare", path=FORMATS / "shakespeare")

    np.testing.assert_array_equal(found.x_train, alone.x_train)
    np.testing.assert_array_equal(found.x_test, alone.x_test)


def test_a_recurrent_network_learns_the_signs_that_follow():
    data = fm.load("shakespeare", path=FORMATS / "shakespeare")
    model = fm.gru(data.x_train.shape[1:], data.num_classes, hidden=8, embedding=4)
    problem = fm.make_problem(data, model, fm.split("by_device", data.y_train, 2, group=data.group))

    run = fm.simulate(problem, fm.pipelined(2), fm.async_sharing(0.5), slots=30)

    assert run.last("train_loss") < 0.75 * np.log(80)


@pytest.mark.parametrize("form", ["features", "signals"])
def test_har_is_read_by_its_persons(form):
    found = fm.load("uci_har", path=FORMATS / "har", form=form)

    for part, x, y in (
        ("train", found.x_train, found.y_train),
        ("test", found.x_test, found.y_test),
    ):
        place = FORMATS / "har" / part
        rows = (place / f"X_{part}.txt").read_text().splitlines()
        if form == "features":
            expected = [[float(word) for word in row.split()] for row in rows]
        else:
            expected = np.zeros((len(rows), 128, 9))
            for channel, name in enumerate(SIGNALS):
                text = (place / "Inertial Signals" / f"{name}_{part}.txt").read_text()
                for number, line in enumerate(text.splitlines()):
                    expected[number, :, channel] = [float(word) for word in line.split()]
        np.testing.assert_array_equal(x, np.asarray(expected, np.float32))
        assert [1 + each for each in y.tolist()] == [
            int(each) for each in (place / f"y_{part}.txt").read_text().split()
        ]
    assert found.group is not None
    assert found.group.tolist() == [3, 3, 7, 7]
    assert found.num_classes == 6


def test_fewer_users_may_be_kept():
    one = fm.load("femnist", path=FORMATS / "femnist", users=1)
    har = fm.load("uci_har", path=FORMATS / "har", users=1)

    assert (len(one.x_train), len(one.x_test)) == (2, 1)
    assert har.group is not None
    assert har.group.tolist() == [3, 3]
    for name in ("femnist", "uci_har"):
        folder = FORMATS / ("har" if name == "uci_har" else name)
        with pytest.raises(ValueError, match=r"expected users in 1\.\.2, got 3"):
            fm.load(name, path=folder, users=3)


def without(key):
    def change(table):
        del table[key]

    return change


def put(*path):
    """Return a change that sets what a path of keys leads to."""

    def change(table):
        *keys, last, value = path
        for key in keys:
            table = table[key]
        table[last] = value

    return change


def named(speaker, *path):
    return put("user_data", speaker, *path)


FIRST = "A_PLAY_FIRST"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("users"), r"expected the key 'users' with a JSON array, found the keys num_samp"),
        (without("num_samples"), r"expected the key 'num_samples'"),
        (without("user_data"), r"expected the key 'user_data' with a JSON object"),
        (put("users", 0, 7), r"expected names in users, as text"),
        (put("num_samples", [1]), r"for each of the 2 users, got 1; write the file again"),
        (put("num_samples", 0, 4), r"user 'A_PLAY_FIRST': .* as num_samples says, .* for 4"),
        (without("user_data"), r"lines.json: expected"),
        (put("user_data", {}), r"user 'A_PLAY_FIRST': expected lists x and y in user_data"),
        (named(FIRST, "y", ["a"]), r"user 'A_PLAY_FIRST': .* got 11 and 1 for 11"),
        (named(FIRST, "x", 3, "short"), r"expected samples of one length, got \[\(5,\), \(80,\)\]"),
        (named(FIRST, "x", 3, 5), r"sample 3: expected x to be text, got 5"),
        (named(FIRST, "x", 3, "é" * 80), r"sample 3: expected one of LEAF's 80 signs, got 'é'"),
        (named(FIRST, "y", 2, "ab"), r"sample 2: expected one of LEAF's 80 signs, got 'ab'"),
    ],
)
def test_a_damaged_file_of_leaf_is_refused_by_its_place(tmp_path, change, said):
    table = json.loads((FORMATS / "shakespeare" / "lines.json").read_text())
    change(table)
    (tmp_path / "lines.json").write_text(json.dumps(table))

    with pytest.raises(ValueError, match=said):
        fm.load("shakespeare", path=tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("user_data", "f0000_14", "x", 1, [0] * 783), "sample 1: expected x to be 784 numbers"),
        (put("user_data", "f0000_14", "x", 1, "text"), "784 numbers, got str; write the image row"),
        (put("user_data", "f0000_14", "x", 1, 0, float("nan")), "expected finite numbers in x"),
        (put("user_data", "f0001_41", "y", 0, 62), r"f0001_41', sample 0: expected y in 0\.\.61"),
        (put("user_data", "f0001_41", "y", 0, 1.5), r"expected y in 0\.\.61, got 1.5"),
    ],
)
def test_a_damaged_image_is_refused_by_its_place(tmp_path, change, said):
    file = FORMATS / "femnist" / "train" / "all_data_0.json"
    table = json.loads(file.read_text())
    change(table)
    (tmp_path / "hurt.json").write_text(json.dumps(table))

    with pytest.raises(ValueError, match=said):
        fm.load("femnist", path=tmp_path / "hurt.json")


def test_text_that_is_no_json_is_refused_with_its_line(tmp_path):
    (tmp_path / "a.json").write_text('{"users": [],\n "num_samples" [],\n}')
    with pytest.raises(ValueError, match=r"a.json, line 2: expected JSON, got Expecting ':'"):
        fm.load("femnist", path=tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="expected text in UTF-8"):
        fm.load("femnist", path=tmp_path)
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        fm.load("femnist", path=tmp_path)
    (tmp_path / "a.json").unlink()
    with pytest.raises(FileNotFoundError, match="expected LEAF's"):
        fm.load("femnist", path=tmp_path)


HURT = {
    "a column is missing": ("train/X_train.txt", (1, lambda line: line.rsplit(" ", 1)[0])),
    "a word": ("train/X_train.txt", (2, lambda line: line.replace("1", "one", 1))),
    "no number": ("train/X_train.txt", (0, lambda line: line.replace("0", "nan", 1))),
    "a label": ("test/y_test.txt", (1, lambda _: "7")),
    "half a person": ("train/subject_train.txt", (3, lambda _: "2.5")),
    "a line is missing": ("train/subject_train.txt", (3, lambda _: "")),
    "nothing": ("train/X_train.txt", None),
}
SAID = {
    "a column is missing": r"X_train.txt, line 2: expected 561 columns, got 560; get the file",
    "a word": r"X_train.txt, line 3: expected finite numbers, got '-?one'",
    "no number": r"X_train.txt, line 1: expected finite numbers, got 'nan'",
    "a label": r"y_test.txt, line 2: expected a whole number 1\.\.6, got 7",
    "half a person": r"subject_train.txt, line 4: expected a whole number 1, got 2.5",
    "a line is missing": r"subject_train.txt: expected 4 lines, as many as y_train.txt has, got 3",
    "nothing": r"X_train.txt: expected lines of 561 columns, got an empty file",
}


@pytest.mark.parametrize("case", HURT)
def test_a_damaged_file_of_har_is_refused_with_its_line(tmp_path, case):
    folder = tmp_path / "har"
    shutil.copytree(FORMATS / "har", folder)
    name, change = HURT[case]
    lines = (folder / name).read_text().splitlines()
    if change is not None:
        lines[change[0]] = change[1](lines[change[0]])
    (folder / name).write_text("\n".join(lines) + "\n" if change else "")

    with pytest.raises(ValueError, match=SAID[case]):
        fm.load("uci_har", path=folder)


def test_a_folder_without_har_says_which_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="name the folder that holds train and test"):
        fm.load("uci_har", path=tmp_path)
    with pytest.raises(ValueError, match="expected a form of features or signals, got 'words'"):
        fm.load("uci_har", path=FORMATS / "har", form="words")


def run(folder, *settings):
    words = [word for each in settings for word in ("--set", each)]
    small = ["--set", "slots=3", "--set", "seeds=[0]", "--set", 'algorithm=[{name="dpsgd"}]']
    return folkman("run", *words, *small, cwd=folder)


def test_a_configuration_learns_with_one_node_for_each_user(tmp_path):
    settings = ["data.name=uci_har", f"data.path={FORMATS / 'har'}", "partition.name=by_device"]
    settings += ["model.name=softmax"]

    done = run(tmp_path, "nodes=2", *settings)
    wrong = run(tmp_path, "nodes=5", *settings)

    assert done.returncode == 0, done.stderr
    assert wrong.returncode == 2
    assert "each of the 2 devices in the data, got 5 nodes; set nodes = 2" in wrong.stderr
    assert "Traceback" not in wrong.stderr
