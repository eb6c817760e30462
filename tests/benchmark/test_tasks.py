"""The works as data, their arithmetic, and the names on the command line."""

from math import prod

import pytest

from benchmarks.environments import SCRIPTS, OpponentAbsentError, ensure
from benchmarks.measure import floors, measured, verdict, with_ratios
from benchmarks.results import Asked, choose
from benchmarks.runs import OPPONENTS
from benchmarks.tables import remark
from benchmarks.tasks import (
    CLASSES,
    IMAGE,
    Task,
    bytes_per_node_step,
    flops_per_node_step,
    load_works,
    num_parameters,
    quicker,
)
from folkman.problem.models import MODELS

TASK = Task(
    "t", "softmax", nodes=3, samples=10, batch=None, rounds=4, step=0.1, network="free", cell=None
)


FLOPS, BYTES = 2 * 10 * 2 * 7840, 4 * (10 * 784 + 4 * 7850)


def test_the_works_are_those_asked_for():
    found = load_works()

    assert list(found) == ["W1", "W1m", "W2", "W2a", "W3", "W4", "W5"]
    assert [task.nodes for task in found["W3"].tasks] == [10, 100, 1000, 10_000, 100_000]
    assert [task.cell for task in found["W3"].tasks] == [None, None, 20, 20, 20]
    assert found["W1"].tasks[0].batch_size == 600
    assert found["W1m"].tasks[0].batch_size == 32
    assert sum(task.nodes * task.samples for task in found["W4"].tasks) == 2 * 60_000


@pytest.mark.parametrize(
    ("model", "options", "sample", "classes"),
    [
        ("softmax", {}, IMAGE, CLASSES),
        ("mlp", {"hidden": (32, 16)}, (8, 8, 1), 4),
        ("cnn", {}, IMAGE, CLASSES),
        ("cnn", {}, (32, 16, 3), 7),
    ],
)
def test_the_arithmetic_is_that_of_the_models_own_kernels(model, options, sample, classes):
    """Every kernel is used once at each position of its output, forward, for its gradient, and for
    its input's."""
    layout, (height, width, _) = MODELS[model](sample, classes, **options).layout, sample
    positions = {"conv0/kernel": height * width, "conv1/kernel": height * width // 4}
    forward = {
        name: positions.get(name, 1) * prod(s) for name, s in layout.shapes if "kernel" in name
    }
    first = next(iter(forward.values()))
    task = TASK._replace(model=model, batch=7, sample=sample, classes=classes, **options)

    assert num_parameters(task) == layout.size
    assert flops_per_node_step(task) == 2 * 7 * (3 * sum(forward.values()) - first)


def test_the_arithmetic_of_a_model_that_is_not_known_is_left_out():
    task = TASK._replace(model="gru")
    row = measured(task, "x", "1", [{"seconds": 1.0}])

    assert floors(task, 2.0, 4.0) == {}
    assert with_ratios([row], 10.0, own="x")[0]["of_peak"] is None
    assert with_ratios([row], 10.0, own="x")[0]["ratio"] == 1.0


def test_in_a_hurry_there_are_a_tenth_of_the_rounds_and_no_large_tasks():
    works = load_works()

    assert [name for name, work in works.items() if work.quick] == ["W1m", "W2", "W2a", "W3"]
    assert [task.rounds for task in quicker(works["W3"]).tasks] == [40, 20, 5]
    assert [work.name for work in choose([], [], [], Asked(quick=True))[0]] == [
        *("W1m", "W2", "W2a", "W3")
    ]


def test_the_bytes_are_samples_and_four_times_the_model():
    assert bytes_per_node_step(TASK._replace(batch=32)) == 4 * (32 * 784 + 4 * 7850)


def test_the_floors_are_work_over_rate():
    found = floors(TASK, peak_gflops=2.0, copy_gb_per_s=4.0)

    assert found["arithmetic_s"] == pytest.approx(12 * FLOPS / 2e9)
    assert found["bytes_s"] == pytest.approx(12 * BYTES / 4e9)


def test_a_row_is_the_median_without_what_was_aside():
    answers = [{"seconds": s, "aside_s": 0.5} for s in (1.5, 9.5, 2.5)]

    row = measured(TASK, "x", "1", answers)

    assert row["seconds"] == 2.0
    assert row["seconds_each"] == [1.0, 9.0, 2.0]
    assert row["node_steps_per_s"] == 6.0
    assert row["gflops"] == pytest.approx(6.0 * FLOPS / 1e9)


def test_ratios_are_times_of_folkmans():
    rows = [
        {"side": "slow", "status": "measured", "seconds": 6.0, "gflops": 1.0},
        {"side": "folkman", "status": "measured", "seconds": 2.0, "gflops": 3.0},
        {"side": "gone", "status": "absent", "reason": "-"},
    ]

    slow, ours, gone = with_ratios(rows, peak_gflops=10.0)

    assert (slow["ratio"], ours["ratio"]) == (3.0, 1.0)
    assert (slow["of_peak"], ours["of_peak"]) == (0.1, 0.3)
    assert "ratio" not in gone
    assert with_ratios([rows[0]], 10.0)[0]["ratio"] is None


@pytest.mark.parametrize(
    ("loss", "batches", "said"),
    [
        (1.01, None, "same work"),
        (1.03, None, "different work"),
        (1.05, "own", "same work"),
        (0.85, "own", "different work"),
        (float("nan"), "own", "different work"),
    ],
)
def test_the_verdict_is_by_the_final_loss_as_a_part_of_the_gain(loss, batches, said):
    row = {"batches": batches} if batches else {}

    assert verdict(row, loss, ours=1.0, first=2.0) == said


def test_a_row_says_what_sets_it_apart():
    row = {
        "side": "x",
        "status": "measured",
        "work": "different work",
        "batches": "own",
        "foreign_cores": 1.25,
    }

    assert remark(row) == "different work, own batches, others took 1.2 cores"
    assert remark({"status": "absent", "reason": "no registry"}) == "absent: no registry"
    assert remark({"status": "measured", "work": "same work", "foreign_cores": 0.1}) == ""


def test_names_are_chosen_from_both_lists():
    works, against = choose(["W2"], [], ["torch", "W1", "jax"])

    assert [work.name for work in works] == ["W1", "W2"]
    assert against == ["torch", "jax"]
    assert choose([], ["none"], [])[1] == []
    assert choose([], [], [])[1] == list(OPPONENTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((["W9"], [], []), "there is no work 'W9'; .*known: W1, W1m, W2, W2a, W3, W4, W5"),
        (
            ([], ["toch"], []),
            "did you mean 'torch'\\? known: torch, jax, flower, fedjax, pfl, gossipy",
        ),
        (([], [], ["W1", "x"]), "there is no work or opponent 'x'; known: W1, .*gossipy, none"),
    ],
)
def test_a_name_that_is_not_known_is_refused_with_the_list(given, message):
    with pytest.raises(ValueError, match=message):
        choose(*given)


@pytest.mark.parametrize("name", OPPONENTS)
def test_every_opponent_has_a_script_and_pinned_packages(name):
    pinned = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8").split()

    assert (SCRIPTS / f"against_{name}.py").is_file()
    assert pinned
    assert all("==" in line for line in pinned)


def test_an_environment_is_made_once_and_again_when_its_packages_change(tmp_path, monkeypatch):
    commands = []

    def fake(command, name):
        commands.append(command)
        if "venv" in command:
            (tmp_path / "here" / name / "bin").mkdir(parents=True)
            (tmp_path / "here" / name / "bin" / "python").touch()

    monkeypatch.setattr("benchmarks.environments._run", fake)
    wanted = tmp_path / "x.txt"
    wanted.write_text("a==1\n", encoding="ascii")
    ensure("x", wanted, tmp_path / "here")
    python = ensure("x", wanted, tmp_path / "here")
    assert python == tmp_path / "here" / "x" / "bin" / "python"
    assert len(commands) == 2  # venv, pip

    wanted.write_text("a==2\n", encoding="ascii")
    ensure("x", wanted, tmp_path / "here")

    assert len(commands) == 4


def test_an_environment_that_cannot_be_made_says_why_and_leaves_nothing_believed(
    tmp_path, monkeypatch
):
    class Done:
        returncode, stdout, stderr = (
            1,
            "",
            "noise\nERROR: No matching distribution found for a==1\n",
        )

    monkeypatch.setattr("benchmarks.environments.subprocess.run", lambda *_, **__: Done)
    wanted = tmp_path / "x.txt"
    wanted.write_text("a==1\n", encoding="ascii")

    with pytest.raises(
        OpponentAbsentError, match="'x' could not be made: ERROR: No matching distribution"
    ):
        ensure("x", wanted, tmp_path)
    assert not (tmp_path / "x" / "made-from").exists()
