"""`folkman predict` of a table: columns, windows and scale are those that the model learnt."""

import csv
import io
import json

import numpy as np
import pytest

from folkman.checks import Notice
from folkman.deploy.alike import alike, is_there
from folkman.problem.table import csv_samples
from shell import folkman, undrawn

NAMES = ["time", "speed", "heat", "machine", "state"]


def lines(rng, many, first=0):
    """Return lines of two machines: two features of very different size, two states."""
    state = np.repeat(rng.integers(0, 2, many // 4), 4)
    speed = 1e4 * (state + 0.1 * rng.normal(size=many)) + 5e4
    heat = 1e-3 * (state + 0.1 * rng.normal(size=many))
    machine = np.repeat(["left", "right"], many // 2)
    time = np.arange(first, first + many)
    return [list(row) for row in zip(time, speed, heat, machine, state, strict=True)]


def written(path, rows, names=NAMES):
    """Write a table, of these columns alone."""
    places = [NAMES.index(name) for name in names]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([row[at] for at in places] for row in rows)


def table(path, names, rows):
    """Write a small table; without names there is no line of them."""
    head = [names] if names else []
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in (*head, *rows)))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with a run of scaled windows, and tables of what came later."""
    folder, rng = tmp_path_factory.mktemp("alike"), np.random.default_rng(0)
    written(folder / "old.csv", lines(rng, 160))
    later = lines(rng, 40, first=160)
    written(folder / "new.csv", later)
    written(folder / "bare.csv", later, ["speed", "heat"])
    options = {"path": "old.csv", "label": "state", "group": "machine", "drop": ["time"]}
    options |= {"window": 4, "scale": "standard"}
    words = ["data.name=csv", "model.name=softmax", "nodes=2", "slots=40", "seeds=[0]"]
    words += [f"data.{key}={json.dumps(value)}" for key, value in options.items()]
    with undrawn():
        settings = [word for each in words for word in ("--set", each)]
        done = folkman("run", *settings, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def predicted(home, file, *words):
    return folkman("predict", "run", "--data", file, *words, cwd=home)


def test_new_lines_are_cut_and_scaled_as_those_that_were_learnt(home):
    options = {"label": "state", "group": "machine", "drop": ["time"], "window": 4}
    learnt = csv_samples(home / "old.csv", **options).x_train.astype(float)
    plain = csv_samples(home / "new.csv", **options, test_share=0.1)
    raw = np.concatenate([plain.x_train, plain.x_test])

    data = {**options, "path": str(home / "old.csv"), "scale": "standard"}
    found = alike(home / "new.csv", data)

    scaled = (raw - learnt.mean(axis=(0, 1))) / learnt.std(axis=(0, 1))
    assert found.x.shape == scaled.shape
    ours, theirs = (each.reshape(len(raw), -1) for each in (found.x, scaled))
    order = [np.argsort(each[:, 0]) for each in (ours, theirs)]
    np.testing.assert_allclose(ours[order[0]], theirs[order[1]], rtol=1e-5, atol=1e-5)


def test_predictions_of_a_table_with_other_columns_beside_the_features(home):
    done = predicted(home, "new.csv", "--json")

    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout.splitlines()[-1])
    assert whole["samples"] == 10
    assert whole["accuracy"] > 0.9  # unscaled, speed alone would decide, and wrongly


def test_a_table_of_features_alone_will_do(home):
    """Windows then follow each other without a look at labels and machines."""
    done = predicted(home, "bare.csv")

    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 10
    assert "label" not in rows[0]


def test_columns_go_by_their_names_wherever_they_stand(tmp_path):
    """Also a feature called y, where the labels are another column, as of an accelerometer."""
    rows = [[t, t % 7, t % 5, t % 3, t % 2] for t in range(20)]
    table(tmp_path / "old.csv", ["time", "x", "y", "z", "state"], rows)
    turned = [[row[4], row[3], row[1], row[2]] for row in rows]
    table(tmp_path / "new.csv", ["state", "z", "x", "y"], turned)
    data = {"path": str(tmp_path / "old.csv"), "label": "state", "drop": ["time"]}

    found = alike(tmp_path / "new.csv", data)

    np.testing.assert_array_equal(found.x, [row[1:4] for row in rows])
    assert found.y is not None
    np.testing.assert_array_equal(found.y, [row[4] for row in rows])


def test_without_names_columns_go_by_their_places(tmp_path):
    rows = [[t % 7, t % 5, t % 2] for t in range(20)]
    table(tmp_path / "old.csv", [], rows)
    table(tmp_path / "alike.csv", ["a", "b", "c"], rows)
    table(tmp_path / "features.csv", [], [row[:2] for row in rows])
    data = {"path": str(tmp_path / "old.csv"), "scale": "standard"}

    with_labels, alone = (alike(tmp_path / f"{name}.csv", data) for name in ("alike", "features"))

    np.testing.assert_array_equal(with_labels.x, alone.x)
    assert with_labels.y is not None
    assert alone.y is None


@pytest.mark.parametrize(
    ("names", "width", "complaint"),
    [
        (["speed", "cold"], 2, "has no column 'heat', which the model learnt from"),
        ([], 1, "expected 3 columns, as .* has, or the 2 of its features, got 1"),
        ([], 4, "expected 3 columns, as .* has, or the 2 of its features, got 4"),
    ],
)
def test_other_columns_are_refused(names, width, complaint, tmp_path):
    """One column would else be scaled as if it were all of them."""
    table(tmp_path / "old.csv", ["speed", "heat", "state"], [[t, t % 5, t % 2] for t in range(20)])
    table(tmp_path / "new.csv", names, [[t] * width for t in range(5)])

    with pytest.raises(ValueError, match=complaint):
        alike(tmp_path / "new.csv", {"path": str(tmp_path / "old.csv"), "scale": "standard"})


def test_a_learnt_file_that_is_younger_than_its_model_is_told(tmp_path):
    (tmp_path / "old.csv").write_text("1,2")
    data = {"path": str(tmp_path / "old.csv")}

    with pytest.warns(Notice, match="was written after the model that learnt it"):
        assert is_there(data, made_s=0.0)
    assert not is_there({"path": str(tmp_path / "gone.csv")})


def test_without_the_learnt_file_nothing_is_scaled_by_guessing(home):
    (home / "old.csv").rename(home / "away.csv")
    try:
        done = predicted(home, "new.csv")
    finally:
        (home / "away.csv").rename(home / "old.csv")

    assert done.returncode == 2
    assert "with window and scale, and it is not there to prepare samples by; put it" in done.stderr
    assert "Traceback" not in done.stderr
