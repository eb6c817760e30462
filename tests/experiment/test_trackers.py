"""Trackers, each read back with its own reader; what goes wrong in one leaves the run alone."""

import json
import sys
import time

import pytest

from folkman.cli import main
from folkman.experiment import trackers
from folkman.experiment.trackers import check_packages, make_shared, tracking
from folkman.record.run import Run
from shell import undrawn

# the packages behind the trackers warn of their own past and future
pytestmark = pytest.mark.filterwarnings("ignore")

CONFIG = {"slots": 30, "data": {"name": "digits"}, "algorithm": ({"name": "fedavg", "step": 0.2},)}


def walk(watch, upto, start=0, run=None):
    """Tell a watcher of slots 0, 10 ... as a run would; return the run."""
    run = run or Run("fedavg", "FedAvg", 3)
    for slot in range(start, upto + 1, 10):
        run.rows.append(
            {"slots": float(slot), "train_loss": 1.0 / (1 + slot), "optimum_distance": float("nan")}
        )
        run.status = "finished"
        watch(run, slot, 30)
    return run


def told_twice(name, root):
    """Interrupt a run after slot 20, and take it up again from a checkpoint at slot 10."""
    with tracking([name], root, "project", CONFIG) as watch:
        run = walk(watch, 20)
    run.rows = run.rows[:2]
    with tracking([name], root, "project", CONFIG) as watch:
        walk(watch, 30, 20, run)


EXPECTED = {slot: 1.0 / (1 + slot) for slot in (0, 10, 20, 30)}


def test_tensorboard_reads_each_slot_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told_twice("tensorboard", tmp_path)

    found = EventAccumulator(str(tmp_path / "tensorboard" / "fedavg-seed3")).Reload()
    assert {event.step: event.value for event in found.Scalars("train_loss")} == pytest.approx(
        EXPECTED
    )
    assert len(found.Scalars("train_loss")) == 4
    assert "optimum_distance" not in found.Tags()["scalars"]


@pytest.mark.slow
def test_mlflow_has_one_run_with_each_slot_once(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    make_shared(["mlflow"], tmp_path, "project")
    told_twice("mlflow", tmp_path)

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("project")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "train_loss")
    assert sorted(metric.step for metric in history) == [0, 10, 20, 30]
    assert {metric.step: metric.value for metric in history} == pytest.approx(EXPECTED)
    assert run.data.params["algorithm.0.step"] == "0.2"
    assert run.info.run_name == "fedavg-seed3"
    assert run.info.status == "FINISHED"


def records(log):
    """Yield the records of a Weights & Biases file: LevelDB's log format, blocks of 32 KiB after a
    head of 7 bytes."""
    place, record = 7, b""
    while place + 7 <= len(log):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(log[place + 4 : place + 6], "little"), log[place + 6]
        record += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


def told_offline(log, patience_s=60.0):
    """Return the records of a finished run: another process writes them, and may flush the last
    after `finish`."""
    from wandb.proto import wandb_internal_pb2

    for _ in range(int(patience_s / 0.1)):
        found = []
        for data in records(log.read_bytes()):
            found.append(wandb_internal_pb2.Record())  # type: ignore[attr-defined] - generated code
            found[-1].ParseFromString(data)
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError(f"{log.name} has no exit record after {patience_s:g} s")


@pytest.mark.process
@pytest.mark.slow
def test_weights_and_biases_works_offline(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with tracking(["wandb"], tmp_path, "project", CONFIG) as watch:
        walk(watch, 30)

    (log,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = {}
    for record in told_offline(log):
        items = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        if "train_loss" in items:
            found[items["slots"]] = items["train_loss"]
    assert found == pytest.approx(EXPECTED)


def test_a_tracker_that_fails_is_told_once_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    def broken(scene):
        raise OSError("no space")

    monkeypatch.setitem(trackers.TRACKERS, "broken", (broken, ()))
    seen = []
    with tracking(
        ["broken"], tmp_path, "p", CONFIG, then=lambda *told: seen.append(told[1])
    ) as watch:
        walk(watch, 30)

    assert seen == [0, 10, 20, 30]
    assert capsys.readouterr().err.count("broken is no longer told of this run: no space") == 1


def test_a_tracker_that_is_not_there_is_refused_with_its_remedy(monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "mine", (trackers.TensorBoard, ("no_such_package",)))

    with pytest.raises(ValueError, match=r"needs no_such_package, .*pip install 'folkman\[mine\]'"):
        check_packages(["mine"])
    with pytest.raises(ValueError, match="did you mean 'wandb'"):
        check_packages(["wanb"])


def test_a_run_is_tracked_from_the_command_line(tmp_path, monkeypatch, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    settings = ["slots=20", "seeds=[0]", "data.train_size=60", "nodes=3", "model.name=softmax"]
    settings += ['algorithm=[{name="fedavg", step=0.2}]']
    arguments = [part for text in settings for part in ("--set", text)]
    monkeypatch.setattr(
        sys, "argv", ["folkman", "run", *arguments, "--out", "r", "--track", "tensorboard"]
    )
    with undrawn(), pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 0, capsys.readouterr().err
    found = EventAccumulator(str(tmp_path / "r" / "tensorboard" / "fedavg-seed0")).Reload()
    assert [event.step for event in found.Scalars("test_accuracy")] == [0, 10, 20]
