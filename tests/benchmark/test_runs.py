"""One run of the benchmark with real processes: who did the same work, who did not, who is not
there."""

import json
import os
import subprocess
import sys
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import gpu, results, runs
from benchmarks.command import app
from benchmarks.environments import OpponentAbsentError
from benchmarks.gpu import gradient
from benchmarks.opponents.protocol import Arrays, Form
from benchmarks.own_side import NotAvailableError, gradient_timer, problem_of
from benchmarks.tasks import Task, load_works

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("numpy_opponent.py")
if TYPE_CHECKING:
    from benchmarks.pipe import Side

TASK = Task(
    "tiny", "softmax", nodes=4, samples=12, batch=5, rounds=6, step=0.05, network="free", cell=None
)


def command(name, settings):
    if name == "absent":
        raise OpponentAbsentError("the environment of 'absent' could not be made: no registry")
    return [sys.executable, str(FAKE), name]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "opponent_command", command)
        settings = runs.Settings(2, tmp_path_factory.mktemp("environments"), 120.0, said.append)
        return runs.learning(TASK, ["right", "wrong", "broken", "absent"], settings)


def row(found, side):
    return next(each for each in found["rows"] if each["side"] == side)


@pytest.mark.process
def test_plain_numpy_on_the_same_batches_ends_at_the_same_model(found):
    right, ours = row(found, "right"), row(found, "folkman")

    assert right["work"] == ours["work"] == "same work"
    assert isclose(right["loss"], ours["loss"], rel_tol=1e-5)


@pytest.mark.process
def test_twice_the_step_is_different_work(found):
    assert row(found, "wrong")["work"] == "different work"


@pytest.mark.process
def test_a_side_that_fails_or_is_absent_is_told_and_the_others_go_on(found):
    assert row(found, "broken")["status"] == "failed"
    assert "out of order" in row(found, "broken")["reason"]
    assert row(found, "absent")["status"] == "absent"
    assert "no registry" in row(found, "absent")["reason"]
    assert row(found, "right")["status"] == row(found, "folkman")["status"] == "measured"


@pytest.mark.process
def test_a_measured_row_has_every_figure(found):
    for side in ("folkman", "right"):
        each = row(found, side)
        assert len(each["seconds_each"]) == 2
        assert each["seconds"] > 0
        assert isclose(each["node_steps_per_s"], TASK.node_steps / each["seconds"])
        assert each["memory_mb"] > 10
        assert each["startup_s"] > 0
        assert each["warm_up_s"] > 0
        assert isclose(each["of_peak"], each["gflops"] / found["peak"]["gemm_gflops"])
    assert row(found, "folkman")["ratio"] == 1
    assert all(floor > 0 for floor in found["floors"].values())


@pytest.mark.process
def test_the_command_prints_a_table_and_writes_what_it_prints_as_json(found, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "learning", lambda _, asked, *__: found | {"asked": asked})
    out = tmp_path / "new" / "results.json"
    words = ["--work", "W2", "W1", "--against", "torch", "jax", "--out", str(out), "--json"]

    done = CliRunner().invoke(app, words, catch_exceptions=False)

    told = json.loads(done.stdout.splitlines()[-1])
    assert told == json.loads(out.read_text(encoding="utf-8"))
    assert [work["name"] for work in told["works"]] == ["W1", "W2"]
    shown = json.loads(json.dumps(found | {"asked": ["torch", "jax"]}))
    assert told["works"][0]["runs"] == [shown]
    assert told["command"][:3] == ["python", "-m", "benchmarks"]
    assert "x folkman" in done.stderr


@pytest.mark.process
def test_wrong_input_ends_with_2_and_a_sentence_also_in_another_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--work", "W9"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no work 'W9'")
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_what_the_engine_cannot_do_is_not_available(tmp_path):
    script = tmp_path / "side.py"
    script.write_text(
        'print(\'{"error": "NotAvailableError: the engine has no cells"}\')\n', encoding="utf-8"
    )
    sides, rows = {}, []

    runs._start(
        sides,
        rows,
        "folkman",
        [sys.executable, str(script)],
        runs.Settings(1, tmp_path, 60.0, print),
    )

    assert not sides
    assert rows == [
        {"side": "folkman", "status": "not available", "reason": "the engine has no cells"}
    ]


def test_samples_beyond_memory_are_not_tried(monkeypatch):
    arrays = Arrays(
        np.zeros((8, 784), np.float32),
        np.zeros(8, np.int32),
        np.zeros((4, 12), np.int32),
        np.zeros(0),
        None,
    )
    monkeypatch.setattr("benchmarks.own_side.MOST_SAMPLE_BYTES", 1000)

    with pytest.raises(NotAvailableError, match="4 nodes hold"):
        problem_of(TASK, arrays)


@pytest.mark.process
@pytest.mark.slow
def test_without_a_gpu_its_work_is_skipped_and_with_one_the_overhead_is_told(tmp_path):
    """The processor stands for the GPU, and softmax for the CNN: the arithmetic of the rows is the
    same."""
    whole = TASK._replace(network="snapshot", batch=None)
    work = load_works()["W4"]._replace(tasks=(whole, whole))
    settings = runs.Settings(2, tmp_path, 120.0, print)

    skipped = gradient(work, [], settings)
    alone, iteration = gradient(work, [], settings, backend="cpu", peak_size=64)

    assert skipped[0]["rows"][0]["status"] == "skipped"
    assert alone["rows"][0]["status"] == "measured"
    assert isclose(
        alone["rows"][0]["of_peak"], alone["rows"][0]["gflops"] / alone["peak"]["float32_gflops"]
    )
    assert {row["status"] for row in alone["rows"][1:]} == {
        "not available"
    }  # softmax has one precision
    first, slot = (row for row in iteration["rows"] if row["status"] == "measured")
    assert len(slot["seconds_each"]) == 2
    assert isclose(slot["overhead"], slot["seconds"] / first["seconds"] - 1)
    assert isclose(slot["gflops"] * slot["seconds"], first["gflops"] * first["seconds"])


@pytest.mark.parametrize(
    ("theirs", "work"), [([3.0, 4.1], "same work"), ([-3.0, 4.0], "different work")]
)
def test_another_gradient_of_the_same_size_is_different_work_and_has_no_ratio(theirs, work):
    ours, other = (
        gpu.Entrant(
            [],
            name,
            cast("Side", None),
            TASK,
            {"do": "gradients"},
            [],
            [np.array(shown, np.float32)],
        )
        for name, shown in (("folkman", [3.0, 4.0]), ("torch, eager", theirs))
    )

    found = gpu._compared(other, {"seconds": 6.0}, ours, {"seconds": 2.0})

    assert found["work"] == work
    assert found.get("ratio") == (3.0 if work == "same work" else None)


def test_the_gradient_that_is_shown_is_the_mean_over_the_nodes(tmp_path, monkeypatch):
    """Softmax by hand: mean over samples of (p - onehot) x, at the first model."""
    rng = np.random.default_rng(0)
    arrays = Arrays(
        rng.random((48, 784), np.float32),
        rng.integers(0, 10, 48, np.int32),
        np.arange(48).reshape(4, 12),
        np.zeros(0),
        None,
    )
    problem = problem_of(TASK._replace(batch=None), arrays)
    monkeypatch.setattr(sys, "argv", ["side", str(tmp_path)])

    answer = gradient_timer(problem)({"precision": "float32", "times": 1, "show": True})

    w = np.asarray(problem.initial, np.float64)
    scores = arrays.pool_x @ w[:7840].reshape(10, 784).T + w[7840:]
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(10)[arrays.pool_y]
    known = np.concatenate([(p.T @ arrays.pool_x / 48).ravel(), p.mean(axis=0)])
    np.testing.assert_allclose(np.load(answer["gradient"]), known, rtol=1e-4, atol=1e-6)


def test_the_tuned_cnn_of_pytorch_is_the_plain_one_in_sixteen_bits_too():
    torch = pytest.importorskip("torch", reason="pip install 'folkman[torch]'")
    from benchmarks.opponents import torch_models

    torch.manual_seed(0)
    form = Form("cnn", (28, 28, 1), (), 10)
    x, y = torch.rand(8, 784), torch.arange(8)
    initial = torch_models.to_flat(form, torch_models.CNN(form).state_dict())
    found = {}
    for tuned, precision in ((False, "float32"), (True, "float32"), (True, "bfloat16")):
        net = torch_models.make(form, initial, tuned)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = torch.nn.functional.cross_entropy(net(x).float(), y)
        loss.backward()
        found[tuned, precision] = torch_models.to_flat(
            form, {k: v.grad for k, v in net.named_parameters()}
        )

    plain = found.pop((False, "float32"))
    apart = {
        key: np.linalg.norm(each - plain) / np.linalg.norm(plain) for key, each in found.items()
    }
    assert apart[True, "float32"] < 1e-5
    assert apart[True, "bfloat16"] < 0.05
