"""`folkman predict` and `export` as a user meets them: run folders, files, refusals."""

import csv
import io
import json
import os
import shutil

import numpy as np
import pytest

import folkman as fm
from folkman.record.folder import RunFolder
from folkman.record.model import load_model
from folkman.runtime.state import read_arrays
from shell import folkman, undrawn
from test_deletion import cluster, to_their_end

SMALL = ["slots=6", "nodes=3", "seeds=[0, 1]", "data.train_size=60", "model.name=softmax"]
SMALL += ["keep_nodes=true", "record_every=6"]
OWN_MODEL = """
from dataclasses import dataclass

import jax.numpy as jnp

from folkman.problem.models import Dense, Head, Model, softmax

@dataclass(frozen=True)
class Plain:
    \"\"\"A network that does not say its layers.\"\"\"
    inner: Dense
    layout = property(lambda self: self.inner.layout)
    def init(self, key):
        return self.inner.init(key)
    def prepare(self, x):
        return x
    def scores(self, w, x):
        return self.inner.scores(w, x)

def losses(scores, y):
    return jnp.sum((scores - jnp.eye(scores.shape[1])[y]) ** 2, axis=1)

def hits(scores, y):
    return jnp.argmax(scores, axis=1) == y

SQUARES = Head(losses, hits, "labels")

def mine(sample, classes):
    return Model(Plain(softmax(sample, classes).network), SQUARES)
"""


def made(folder, *settings):
    words = [word for each in (*SMALL, *settings) for word in ("--set", each)]
    with undrawn():
        done = folkman("run", *words, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    made(folder)
    data = fm.load("digits")
    np.savez(folder / "test.npz", x=data.x_test, y=data.y_test)
    np.save(folder / "test.npy", data.x_test)
    np.savez(folder / "flat.npz", x=data.x_test.reshape(len(data.x_test), -1))
    return folder


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_accuracy_is_that_of_the_run(root):
    for seed in (0, 1):
        for label in ("Algorithm 1", "FedAvg, free links"):
            words = ("--algorithm", label, "--seed", seed, "--json")
            done = folkman("predict", "run", "--data", "test.npz", *words, cwd=root)
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            runs = json.loads((root / "run" / "summary.json").read_text())["runs"]
            (run,) = [each for each in runs if (each["label"], each["seed"]) == (label, seed)]

            assert found["accuracy"] == pytest.approx(run["test_accuracy"], abs=1e-6)
            assert found["model"] == f"{label} (seed {seed}) of run"


def test_classes_and_probabilities_are_printed_as_a_table(root):
    done = folkman("predict", "run", "--data", "test.npz", cwd=root)
    rows = table(done.stdout)

    tensors = load_model(RunFolder(root / "run").root / "models/algorithm-1-seed0.safetensors")
    x = fm.load("digits").x_test.reshape(360, 64).astype(np.float64)
    scores = x @ tensors.tensors["kernel0"].T.astype(float) + tensors.tensors["bias0"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert [int(row["class"]) for row in rows] == scores.argmax(axis=1).tolist()
    np.testing.assert_allclose(
        [float(row["probability"]) for row in rows], chances.max(axis=1), atol=1e-5
    )
    assert "accuracy" in done.stderr


def test_every_kind_of_file_gives_the_same(root):
    data = fm.load("digits")
    flat = data.x_test.reshape(360, 64)
    names = ",".join(f"pixel{i}" for i in range(64))
    lines = [",".join(map(str, row)) for row in flat.tolist()]
    labelled = [f"{line},{label}" for line, label in zip(lines, data.y_test, strict=True)]
    first = [f"{label},{line}" for line, label in zip(lines, data.y_test, strict=True)]
    (root / "bare.csv").write_text("\n".join(lines))
    (root / "named.csv").write_text("\n".join([f"{names},Label", *labelled]))
    (root / "first.csv").write_text("\n".join([f"y,{names}", *first]))
    (root / "last.csv").write_text("\n".join(labelled) + "\n\n")
    expected = table(folkman("predict", "run", "--data", "test.npz", cwd=root).stdout)

    for name in ("test.npy", "flat.npz", "bare.csv", "named.csv", "first.csv", "last.csv"):
        done = folkman("predict", "run", "--data", name, cwd=root)
        found = table(done.stdout)
        assert [row["class"] for row in found] == [row["class"] for row in expected], name
        assert ("accuracy" in done.stderr) == ("label" in found[0]), name
        assert ("label" in found[0]) == (name in ("named.csv", "first.csv", "last.csv")), name


@pytest.mark.parametrize("name", ["out.csv", "out.json"])
def test_predictions_are_written(root, name):
    done = folkman("predict", "run", "--data", "test.npz", "--out", name, cwd=root)
    text = (root / name).read_text()
    rows = json.loads(text)["predictions"] if name.endswith("json") else table(text)

    assert done.stdout == f"{name}\n"
    assert len(rows) == 360
    assert set(rows[0]) == {"sample", "class", "probability", "label"}


def test_a_node_has_its_own_model(root):
    folder = RunFolder(root / "run")
    (run, *_) = fm.read_results(root / "run")
    stacked = load_model(folder.node_models(run)).tensors["kernel0"]
    assert stacked.shape == (3, 10, 64)
    assert np.abs(stacked[0] - stacked[1]).max() > 0

    each = [run.predict(fm.load("digits").x_test, node=node).scores for node in range(3)]
    whole = run.predict(fm.load("digits").x_test).scores
    done = folkman("predict", "run", "--data", "test.npz", "--node", "2", "--json", cwd=root)

    assert not np.allclose(each[0], each[1])
    assert not np.allclose(each[0], whole)
    classes = [row["class"] for row in json.loads(done.stdout)["predictions"]]
    assert classes == each[2].argmax(axis=1).tolist()


def test_the_training_data_are_not_needed(root, tmp_path):
    shutil.copytree(root / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('name = "digits"', 'name = "mnist"'))

    done = folkman("predict", "run", "--data", root / "test.npz", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


def test_a_folder_of_before_builds_its_model_from_the_data(root, tmp_path):
    from folkman.files import save_tensors

    shutil.copytree(root / "run", tmp_path / "run")
    path = tmp_path / "run/models/algorithm-1-seed0.safetensors"
    save_tensors(path, load_model(path).tensors)
    expected = folkman("predict", "run", "--data", "test.npz", cwd=root)

    done = folkman("predict", "run", "--data", root / "test.npz", cwd=tmp_path)

    assert load_model(path).sample is None
    assert done.stdout == expected.stdout


def test_numbers_are_predicted_with_their_error(tmp_path):
    made(tmp_path, "data.name=gaussian", "model.name=linear", "data.dim=3", "data.samples=50")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    np.savez(tmp_path / "mine.npz", x=x, y=y)

    done = folkman("predict", "run", "--data", "mine.npz", "--json", cwd=tmp_path)

    kernel = load_model(tmp_path / "run/models/algorithm-1-seed0.safetensors").tensors["kernel0"]
    found = json.loads(done.stdout)
    assert [row["value"] for row in found["predictions"]] == pytest.approx((x @ kernel[0]).tolist())
    error = np.mean((x @ kernel[0] - y) ** 2)
    assert found["mean_squared_error"] == pytest.approx(error, rel=1e-5)
    assert found["accuracy"] is None


def test_a_margin_has_classes_and_no_probability(tmp_path):
    made(tmp_path, "model.name=svm")
    data = fm.load("digits")
    np.savez(tmp_path / "test.npz", x=data.x_test, y=data.y_test)

    done = folkman("predict", "run", "--data", "test.npz", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)

    assert {row["class"] for row in found["predictions"]} <= {0, 1}
    assert "probability" not in found["predictions"][0]
    runs = json.loads((tmp_path / "run" / "summary.json").read_text())["runs"]
    assert found["accuracy"] == pytest.approx(runs[0]["test_accuracy"], abs=1e-6)


def test_a_model_of_own_code_predicts_and_is_not_exported(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_MODEL)
    made(tmp_path, "model.name=mine.py:mine")
    data = fm.load("digits")
    np.savez(tmp_path / "test.npz", x=data.x_test, y=data.y_test)

    done = folkman("predict", "run", "--data", "test.npz", "--json", cwd=tmp_path)
    refused = folkman("export", "run", "--to", "onnx", cwd=tmp_path)

    runs = json.loads((tmp_path / "run" / "summary.json").read_text())["runs"]
    assert json.loads(done.stdout)["accuracy"] == pytest.approx(runs[0]["test_accuracy"], abs=1e-6)
    assert refused.returncode == 2
    assert "its network Plain does not say which layers it is made of" in refused.stderr
    assert not (tmp_path / "model.onnx").exists()


def test_own_code_that_changed_since_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_MODEL)
    made(tmp_path, "model.name=mine.py:mine")
    (tmp_path / "mine.py").write_text(OWN_MODEL + "\n# other\n")
    np.savez(tmp_path / "test.npz", x=np.zeros((1, 64)))

    done = folkman("predict", "run", "--data", "test.npz", cwd=tmp_path)

    assert done.returncode == 2
    assert "has changed since this was begun" in done.stderr


WRONG = {
    "no such run": (("nowhere", "--data", "test.npz"), "nowhere is none; check the path"),
    "no such file": (("run", "--data", "none.npz"), "there is no none.npz; check the path"),
    "another ending": (("run", "--data", "test.txt"), "ends in .npz, .npy, .csv, got test.txt"),
    "no x": (("run", "--data", "no_x.npz"), "expected an array x, found ['z']"),
    "wrong shape": (
        ("run", "--data", "short.npz"),
        "expected samples of shape (n, 8, 8, 1) or (n, 64), got (5, 63)",
    ),
    "channels first": (("run", "--data", "turned.npz"), "got (5, 1, 8, 8)"),
    "no sample": (("run", "--data", "empty.npz"), "expected at least one sample"),
    "a scalar": (("run", "--data", "scalar.npz"), "got ()"),
    "not finite": (("run", "--data", "nan.npz"), "sample 3 has others (1 samples in all)"),
    "words": (("run", "--data", "words.npz"), "expected numbers, got <U1"),
    "objects": (("run", "--data", "objects.npz"), "could not read objects.npz"),
    "half a file": (("run", "--data", "half.npz"), "could not read half.npz"),
    "no array": (("run", "--data", "text.npy"), "could not read text.npy"),
    "short csv": (("run", "--data", "short.csv"), "expected 64 columns of features"),
    "ragged csv": (("run", "--data", "ragged.csv"), "line 2: expected 64 columns, got 63"),
    "a word in csv": (("run", "--data", "word.csv"), "line 2, column 64: expected a number"),
    "names alone": (("run", "--data", "names.csv"), "expected samples below the names"),
    "empty csv": (("run", "--data", "empty.csv"), "has no line with numbers"),
    "binary csv": (("run", "--data", "binary.csv"), "expected text in UTF-8"),
    "few labels": (("run", "--data", "few.npz"), "expected 5 labels in y, got 4"),
    "no labels": (("run", "--data", "parts.npz"), "expected labels y as one row of whole numbers"),
    "label": (
        ("run", "--data", "test.npz", "--algorithm", "Algoritm 1"),
        "did you mean 'Algorithm 1'?",
    ),
    "twice": (("run", "--data", "test.npz", "--algorithm", "fedavg"), "has 'fedavg' 2 times"),
    "seed": (("run", "--data", "test.npz", "--seed", "7"), "there is no seed 7 in run"),
    "node": (("run", "--data", "test.npz", "--node", "3"), "there is no node 3"),
    "out": (("run", "--data", "test.npz", "--out", "a.txt"), "ends in .csv or .json, got a.txt"),
    "out folder": (("run", "--data", "test.npz", "--out", "no/a.csv"), "No such file or directory"),
}


@pytest.fixture(scope="module")
def wrong(root):
    x = np.zeros((5, 64))
    late = x.copy()
    late[3, 7] = np.nan
    np.savez(root / "no_x.npz", z=x)
    np.savez(root / "short.npz", x=x[:, 1:])
    np.savez(root / "turned.npz", x=x.reshape(5, 1, 8, 8))
    np.savez(root / "empty.npz", x=x[:0])
    np.savez(root / "scalar.npz", x=np.array(1.0))
    np.savez(root / "nan.npz", x=late)
    np.savez(root / "words.npz", x=np.full((5, 64), "a"))
    np.savez(root / "objects.npz", x=np.array([{}] * 5, object))
    np.savez(root / "few.npz", x=x, y=np.zeros(4, int))
    np.savez(root / "parts.npz", x=x, y=np.full(5, 0.5))
    (root / "half.npz").write_bytes((root / "test.npz").read_bytes()[:500])
    (root / "text.npy").write_text("no array")
    (root / "test.txt").write_text("1 2 3")
    line = ",".join(["0"] * 64)
    (root / "short.csv").write_text("1,2,3\n")
    (root / "ragged.csv").write_text(f"{line}\n{line[2:]}\n")
    (root / "word.csv").write_text(f"{line}\n{line[:-1]}zero\n")
    (root / "names.csv").write_text(",".join(["a"] * 64))
    (root / "empty.csv").write_text("\n\n")
    (root / "binary.csv").write_bytes(b"\xff\xfe1")
    return root


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_in_a_sentence(case, wrong):
    words, said = WRONG[case]
    done = folkman("predict", *words, cwd=wrong)

    assert done.returncode == 2, (done.stdout, done.stderr)
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


WRONG_EXPORT = {
    "format": (("run", "--to", "tflite"), "there is no format 'tflite'"),
    "ending": (("run", "--to", "onnx", "--out", "m.pt"), "ends in .onnx, got m.pt"),
    "folder": (("run", "--to", "onnx", "--out", "no/m.onnx"), "there is no no; make it first"),
    "there": (("run", "--to", "onnx", "--out", "there.onnx"), "there.onnx is there"),
    "module there": (("run", "--to", "torch", "--out", "module.pt"), "module.py is there"),
    "seed": (("run", "--to", "onnx", "--seed", "9"), "there is no seed 9"),
}


@pytest.mark.parametrize("case", WRONG_EXPORT)
def test_a_wrong_export_is_refused_in_a_sentence(case, root):
    (root / "there.onnx").write_text("")
    (root / "module.py").write_text("")
    words, said = WRONG_EXPORT[case]
    done = folkman("export", *words, cwd=root)

    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert (root / "there.onnx").read_text() == ""


def test_the_command_exports_what_it_predicts(root):
    onnxruntime = pytest.importorskip("onnxruntime")
    done = folkman("export", "run", "--to", "onnx", "--node", 1, "--out", "m.onnx", cwd=root)
    assert (done.returncode, done.stdout) == (0, "m.onnx\n"), done.stderr

    x = fm.load("digits").x_test
    scores = onnxruntime.InferenceSession(root / "m.onnx").run(["scores"], {"x": x})[0]
    (run, *_) = fm.read_results(root / "run")
    np.testing.assert_allclose(scores, run.predict(x, node=1).scores, rtol=1e-5, atol=1e-5)


def test_a_quadratic_predicts_nothing(tmp_path):
    made(tmp_path, "data.name=quadratic", "model.name=quadratic", "partition.name=given")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 10)))

    done = folkman("predict", "run", "--data", "x.npz", cwd=tmp_path)
    exported = folkman("export", "run", "--to", "onnx", cwd=tmp_path)

    assert (done.returncode, exported.returncode) == (2, 2)
    assert "it has an optimum and predicts nothing" in done.stderr
    assert "it predicts nothing" in exported.stderr


def test_a_run_without_nodes_says_how_to_keep_them(tmp_path):
    made(tmp_path, "keep_nodes=false")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 64)))

    done = folkman("predict", "run", "--data", "x.npz", "--node", 0, cwd=tmp_path)

    assert done.returncode == 2
    assert "--set keep_nodes=true" in done.stderr


@pytest.mark.process
@pytest.mark.slow
def test_a_real_node_predicts_with_what_it_ended_with(tmp_path):
    homes = cluster(tmp_path / "cluster", 2)
    to_their_end(dict(os.environ), homes)
    x = fm.load("digits").x_test
    np.savez(tmp_path / "x.npz", x=x, y=fm.load("digits").y_test)

    for node, words in ((1, ("cluster", "--node", "1")), (0, ("cluster/nodes/node-0",))):
        done = folkman("predict", *words, "--data", "x.npz", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        model = read_arrays(homes[node] / "final.safetensors")["model"]
        scores = x.reshape(360, 64) @ model[:640].reshape(10, 64).T + model[640:]
        found = [row["class"] for row in json.loads(done.stdout)["predictions"]]
        assert found == scores.argmax(axis=1).tolist()
    absent = folkman("predict", "cluster", "--node", "7", "--data", "x.npz", cwd=tmp_path)
    assert (absent.returncode, "there is no node 7" in absent.stderr) == (2, True)
