"""Shards for boards: those of the simulator bit for bit, with a manifest, for their owners' eyes."""

import hashlib
import json

import numpy as np
import pytest
from hosts import task

from folkman.config.build import build_problem
from folkman.config.text import read
from folkman.problem import partition
from folkman.problem.data import load
from folkman.runtime import identity
from folkman.runtime.assembly import read_node
from folkman.runtime.cut import cut
from folkman.runtime.operators import make_operator
from folkman.runtime.shards import load_shard
from shell import folkman

CASES = {
    "iid": {"nodes": 3},
    "dirichlet": {"nodes": 4, "partition": {"name": "dirichlet", "concentration": 0.3}},
    "one label each": {"nodes": 10, "partition": {"name": "case2"}},
    "thinned": {"nodes": 3, "partition": {"name": "iid", "per_node": 17}},
    "numbers": {
        "nodes": 3,
        "data": {"name": "digits", "train_size": 90},
        "model": {"name": "linear"},
    },
}


def shard(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 7])
def test_a_shard_is_what_the_simulator_gives_that_node(case, seed, tmp_path):
    chosen = task(**CASES[case], seeds=[seed])
    manifest = cut(tmp_path / "s", chosen)
    problem = build_problem(chosen.comparison, seed)  # as `folkman run` builds it

    assert manifest["samples"] == [int(n) for n in problem.count]
    for i, count in enumerate(manifest["samples"]):
        found = shard(tmp_path / "s" / f"node-{i}.npz")
        for name in ("x", "y"):
            expected = np.asarray(getattr(problem, name)[i, :count])
            assert found[name].dtype == expected.dtype
            assert found[name].tobytes() == expected.tobytes()
        own = load_shard(tmp_path / "s" / f"node-{i}.npz", chosen.comparison, seed)
        assert np.array_equal(np.asarray(own.x[0]), found["x"])
        assert np.array_equal(np.asarray(own.initial), np.asarray(problem.initial))


def test_a_shard_is_what_the_data_set_and_the_partition_say(tmp_path):
    """Told again without the configuration: rows of the data set, by the partition's own function."""
    chosen = task(nodes=4, partition={"name": "dirichlet", "concentration": 0.5}, seeds=[3])
    cut(tmp_path / "s", chosen)
    data = load("digits", train_size=400)
    parts = partition.dirichlet(data.y_train, 4, concentration=0.5, seed=3)
    every = []
    for i, rows in enumerate(parts):
        found = shard(tmp_path / "s" / f"node-{i}.npz")
        assert np.array_equal(found["y"], data.y_train[rows])
        assert np.array_equal(
            found["x"].reshape(len(rows), -1), data.x_train[rows].reshape(len(rows), -1)
        )
        every += list(rows)
    assert sorted(every) == list(range(400))  # no sample twice, none left out


def test_the_manifest_is_true_and_files_are_their_owners(tmp_path):
    cut(tmp_path / "s", task(nodes=3))
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    for name, told in manifest["nodes"].items():
        path = tmp_path / "s" / told["file"]
        found = shard(path)
        assert told["file"] == f"{name}.npz"
        assert told["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert told["bytes"] == path.stat().st_size
        assert told["samples"] == len(found["x"])
        assert told["labels"] == {str(k): int((found["y"] == k).sum()) for k in range(10)}
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "s").iterdir()}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700


def test_the_same_cut_has_the_same_digests(tmp_path):
    drawn = {"nodes": 3, "partition": {"name": "dirichlet"}}
    first, second = (cut(tmp_path / name, task(**drawn)) for name in "ab")
    other = cut(tmp_path / "c", task(**drawn, seeds=[1]))
    assert first == second
    assert first["nodes"]["node-0"]["sha256"] != other["nodes"]["node-0"]["sha256"]


def test_a_server_has_the_shape_of_a_sample_and_none(tmp_path):
    manifest = cut(tmp_path / "s", task(nodes=2, algorithm=[{"name": "fedavg", "step": 0.1}]))
    assert list(manifest["nodes"]) == ["node-0", "node-1", "server"]
    assert manifest["nodes"]["server"]["samples"] == 0
    assert not shard(tmp_path / "s" / "server.npz")["x"].any()


def test_boards_with_addresses_get_files_that_a_node_takes(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'nodes = 2\nslots = 5\nseeds = [0]\n[data]\nname = "digits"\ntrain_size = 60\n'
        '[model]\nname = "softmax"\n[[algorithm]]\nname = "async_sharing"\nstep = 0.1\n'
    )
    done = folkman(
        "shards", "mine.toml", "--out", "s", "--host", "127.0.0.1", "--host", "127.0.0.2",
        "--node-set", "transport=tcp", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert sum(answer["samples"]) == 60
    made = tmp_path / "s"
    identity.init(made / "certs")
    for i in (0, 1):
        identity.issue(made / "certs", i, (f"127.0.0.{i + 1}",))
    make_operator(made / "certs", "alice")

    config = read_node(made / "node-1.toml")
    assert (config.listen, config.peers) == ("127.0.0.2:7440", {"node-0": "127.0.0.1:7440"})
    assert config.operator is not None
    assert config.operator.listen == "127.0.0.2:7600"
    fleet = read(made / "fleet.toml")
    assert fleet["nodes"] == {"node-0": "127.0.0.1:7600", "node-1": "127.0.0.2:7600"}
    checked = folkman("node", "--config", made / "node-1.toml", "--check", "--json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["samples"] == answer["samples"][1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--out'"),
        (["--out", "mine.toml"], "choose another --out"),
        (["--out", "full"], "choose another --out"),
        (["--out", "s", "--host", "192.0.2.1"], "expected 2 hosts, one a node, got 1"),
        (["--out", "s", "--node-set", "wire=float16"], "--node-set goes with --host"),
        (["--out", "s", "--seed", "9"], "there is no seed 9"),
        (["--out", "s", "--label", "x"], "there is no label 'x'"),
        (
            ["--out", "s", "--host", "a", "--host", "b", "--node-set", "wyre=1"],
            "did you mean 'wire'",
        ),
        (["--out", "s", "--set", "nodes=9999"], "expected samples at every node"),
    ],
)
def test_wrong_input_is_refused_and_leaves_nothing(words, said, tmp_path):
    (tmp_path / "mine.toml").write_text('nodes = 2\nseeds = [0]\n[model]\nname = "softmax"\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    done = folkman("shards", "mine.toml", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "mine.toml"]
