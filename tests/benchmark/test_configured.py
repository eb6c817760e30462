"""A configuration as a work of the benchmark: what is measured, and what nobody else can do."""

import sys
from math import isclose
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import runs
from benchmarks.arrays import batches, write
from benchmarks.configured import work_of
from benchmarks.opponents.jax_models import from_flat, loss, to_flat
from benchmarks.opponents.protocol import Form, load_arrays
from benchmarks.results import Asked, choose
from benchmarks.unable import unable
from folkman.problem.models import MODELS

FAKE = Path(__file__).with_name("numpy_opponent.py")
MINE = """
name = "mine"
nodes = 3
slots = 6
batch = 5
seeds = [3, 4]
data.name = "digits"
data.train_size = 100
partition.name = "iid"
model.name = "softmax"
network.name = "ideal"
[[algorithm]]
name = "fedavg"
step = 0.5
[[algorithm]]
name = "async_sharing"
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    return lambda *settings: work_of(str(path), settings).tasks


def test_every_method_of_a_configuration_is_a_task(mine):
    first, second = mine("model.name=mlp", "model.hidden=[32, 16]", "partition.per_node=20")

    assert (first.model, first.hidden, first.nodes, first.samples) == ("mlp", (32, 16), 3, 20)
    assert (first.batch, first.rounds, first.step, first.seed) == (5, 6, 0.5, 3)
    assert (first.sample, first.classes, first.uneven) == ((8, 8, 1), 10, False)
    assert unable(first, "torch") is None
    assert (
        unable(second, "torch") == "the method is async_sharing; it does FedAvg with one local step"
    )


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("network.name=pipelined", "it has no network pipelined; its links take no time"),
        ("network.name=radio", "it has no network radio"),
        ("network.bits_per_parameter=16", r"no option network\.bits_per_parameter = 16"),
        ("model.name=logistic", "the model is logistic; its script has softmax, mlp, cnn"),
        (
            "algorithm.0.participation=0.5",
            r"no option algorithm\.participation = 0\.5; it does 1\.0",
        ),
        ("algorithm.0.local_steps=2", r"no option algorithm\.local_steps = 2; it does 1"),
        ("sampling=epochs", "no option sampling"),
        ("l2=0.1", "no option l2"),
        ("faults.loss=0.1", "no option faults"),
        ("compression.name=top_k", "neither packs models"),
        ("objective=nodes", "it weighs nodes by their samples"),
    ],
)
def test_what_no_opponent_can_do_is_said_of_every_one(mine, setting, says):
    (task, *_) = mine(setting)

    for opponent in runs.OPPONENTS:
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(unable(task, opponent))


def test_nodes_of_unequal_data_are_for_those_who_weigh_them(mine):
    drawn, whole = mine()[0], mine()[0]._replace(batch=None)

    assert drawn.uneven
    assert {name for name in runs.OPPONENTS if unable(drawn, name)} == {"pfl", "gossipy"}
    assert {name for name in runs.OPPONENTS if unable(whole, name)} == {"pfl", "gossipy", "fedjax"}


def test_the_arrays_are_the_samples_of_the_nodes(mine, tmp_path):
    task = mine()[0]
    write(task, tmp_path)
    arrays = load_arrays(str(tmp_path))
    x, y = arrays.samples()

    assert arrays.counts is not None
    assert arrays.shares is not None
    assert sorted(arrays.counts) == [33, 33, 34]
    np.testing.assert_allclose(arrays.shares, arrays.counts / 100, rtol=1e-6)
    assert x.shape == (3, 34, 64)
    for i in range(3):
        drawn = [arrays.rows(k, i) for k in range(task.rounds)]
        assert np.max(drawn) < arrays.counts[i]
        short = int(arrays.counts[i])
        np.testing.assert_array_equal(x[i, short:], x[i, [0] * (34 - short)])  # padding
    assert len(np.unique(arrays.pool_x, axis=0)) > 95
    np.testing.assert_array_equal(batches(task._replace(samples=9)), batches(task, np.full(3, 9)))
    assert set(y.ravel()) <= set(range(10))


@pytest.mark.process
def test_plain_numpy_does_the_same_work_from_a_configuration(mine, monkeypatch, tmp_path):
    """Unequal nodes, samples of digits, another seed: the same batches lead to the same model."""
    monkeypatch.setattr(runs, "opponent_command", lambda *_: [sys.executable, str(FAKE), "right"])
    task = mine()[0]

    found = runs.learning(task, ["torch", "pfl"], runs.Settings(1, tmp_path, 120.0, lambda _: None))

    rows = {row["side"]: row for row in found["rows"]}
    assert rows["torch"]["work"] == rows["folkman"]["work"] == "same work"
    assert isclose(rows["torch"]["loss"], rows["folkman"]["loss"], rel_tol=1e-5)
    assert rows["pfl"]["status"] == "not available"
    assert "weighs every node alike" in rows["pfl"]["reason"]


@pytest.mark.parametrize(
    ("form", "options"),
    [
        (Form("mlp", (4, 4, 1), (5, 3), 6), {"hidden": (5, 3)}),
        (Form("softmax", (4, 4, 1), (), 6), {}),
        (Form("cnn", (8, 4, 3), (), 6), {}),
    ],
)
def test_the_opponents_models_are_folkmans(form, options):
    """In JAX, and in PyTorch where it is: the same loss at the same vector, and the way back."""
    rng = np.random.default_rng(0)
    model = MODELS[form.model](form.sample, form.classes, **options)
    w = rng.normal(0, 0.3, model.layout.size).astype(np.float32)
    x = rng.random((7, *form.sample), np.float32)
    y = rng.integers(0, form.classes, 7)
    known = float(np.mean(model.losses(*map(jnp.asarray, (w, x, y)))))

    with jax.numpy_rank_promotion("allow"):  # as in a script of its own
        found = [loss(form, tuned, from_flat(form, w), x.reshape(7, -1), y) for tuned in (0, 1)]
    np.testing.assert_allclose(found, known, rtol=1e-4)
    np.testing.assert_array_equal(to_flat(form, from_flat(form, w)), w)
    torch = pytest.importorskip("torch", reason="pip install 'folkman[torch]'")
    from benchmarks.opponents import torch_models

    for tuned in (False, True):
        net = torch_models.make(form, w, tuned)
        scores = net(torch.from_numpy(x.reshape(7, -1)))
        found = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y)).item()
        assert isclose(found, known, rel_tol=1e-4)
        np.testing.assert_array_equal(torch_models.to_flat(form, net.state_dict()), w)


def test_a_configuration_stands_alone_or_beside_named_works(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")

    def names(works, **asked):
        return [work.name for work in choose(works, ["jax"], [], Asked(str(path), **asked))[0]]

    assert names([]) == ["mine"]
    assert names(["W2"]) == ["W2", "mine"]
    assert (
        choose([], [], [], Asked(str(path), ("slots=90",), quick=True))[0][0].tasks[0].rounds == 9
    )
    with pytest.raises(ValueError, match="add --config FILE"):
        choose([], [], [], Asked(None, ("slots=90",)))
    with pytest.raises(ValueError, match="unknown key 'nods'"):
        names([], settings=("nods=3",))
