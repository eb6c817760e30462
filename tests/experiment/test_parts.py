"""A comparison into a folder: paired draws, resuming to the bit, whatever stops it."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from folkman.config.build import build_problem
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import override
from folkman.experiment import parts as module
from folkman.experiment.parts import make_all, parts
from folkman.record.folder import RunFolder, list_runs
from folkman.report.statistics import curves

SETTINGS = [
    "slots=24",
    "record_every=4",
    "seeds=[0,1]",
    "data.train_size=200",
    "nodes=4",
    "batch=8",
]


@pytest.fixture(scope="module")
def comparison():
    return resolve(override({}, SETTINGS))


@pytest.fixture(scope="module")
def whole(comparison, tmp_path_factory):
    folder = RunFolder.create(tmp_path_factory.mktemp("whole") / "run", to_toml(comparison))
    return folder, make_all(parts(comparison), folder)


def same_results(a, b):
    assert str(pq.read_table(a.metrics).to_pylist()) == str(
        pq.read_table(b.metrics).to_pylist()
    )  # NaN != NaN
    models = sorted(path.name for path in (a.root / "models").iterdir())
    assert models == sorted(path.name for path in (b.root / "models").iterdir())
    for name in models:
        left, right = load_file(a.root / "models" / name), load_file(b.root / "models" / name)
        assert all((left[key] == right[key]).all() for key in left)


def test_the_folder_holds_what_it_says(whole, comparison):
    folder, runs = whole
    table = pq.read_table(folder.metrics).to_pylist()

    assert len(runs) == 3 * 2
    assert len(table) == 3 * 2 * 7  # slots 0, 4 ... 24
    assert {row["label"] for row in table} == {"Algorithm 1", "FedAvg", "FedAvg, free links"}
    summary = json.loads(folder.summary.read_text())
    assert [run["seed"] for run in summary["runs"]] == [0, 0, 0, 1, 1, 1]
    assert load_file(folder.root / "models" / "fedavg-seed1.safetensors")["kernel0"].shape == (
        64,
        64,
    )
    assert not [path for path in folder.root.rglob("*.safetensors") if path.parent.name == "parts"]
    assert list_runs(folder.root.parent)[0]["state"] == "finished"
    assert [str(run.rows) for run in folder.load_results()] == [str(run.rows) for run in runs]


def test_all_algorithms_of_a_seed_start_from_the_same_draws(whole):
    _, runs = whole
    for seed in (0, 1):
        firsts = [run.rows[0]["train_loss"] for run in runs if run.seed == seed]
        assert len(set(firsts)) == 1
    assert runs[0].rows[0]["train_loss"] != runs[3].rows[0]["train_loss"]


@pytest.mark.parametrize("stop_at", [0, 8, 24, 24 + 12, 4 * 24 + 20])
def test_an_interrupted_comparison_resumes_to_the_bit(whole, comparison, tmp_path, stop_at):
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))
    slots = 0
    last: dict[tuple, int] = {}

    def interrupt(run, done, in_all):
        nonlocal slots
        slots += done - last.get((run.label, run.seed), 0)
        last[run.label, run.seed] = done
        if slots >= stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_all(parts(comparison), folder, interrupt)
    assert list_runs(tmp_path)[0]["state"] == "unfinished"
    make_all(parts(comparison), RunFolder.open(tmp_path / "run"))

    same_results(folder, whole[0])


def test_a_killed_comparison_resumes_from_its_last_checkpoint(
    whole, comparison, tmp_path, monkeypatch
):
    """A kill -9 runs no handler: what counts is the periodic checkpoint."""
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_S", 0.0)
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))

    def die(run, done, in_all):
        if run.seed == 1 and done == 12:
            raise SystemError("gone")

    with pytest.raises(SystemError):
        make_all(parts(comparison), folder, die)
    assert (folder.root / "parts" / "algorithm-1-seed1.safetensors").is_file()
    taken: list[int] = []
    make_all(parts(comparison), folder, lambda *told: taken.append(told[1]))

    assert taken[0] == 12  # went on after slot 8, not from the start
    same_results(folder, whole[0])


def test_a_full_disk_loses_nothing_that_was_whole(whole, comparison, tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))
    real, calls = RunFolder.save_part, []

    def full(self, run, fingerprint):
        calls.append(run.label)
        if len(calls) == 3:
            raise OSError(28, "No space left on device", "parts")
        real(self, run, fingerprint)

    monkeypatch.setattr(RunFolder, "save_part", full)
    with pytest.raises(OSError, match="No space left"):
        make_all(parts(comparison), folder)
    monkeypatch.setattr(RunFolder, "save_part", real)
    make_all(parts(comparison), folder)

    same_results(folder, whole[0])


def test_a_checkpoint_of_another_configuration_is_refused(comparison, tmp_path):
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))

    def interrupt(run, done, in_all):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_all(parts(comparison), folder, interrupt)
    other = resolve(override({}, [*SETTINGS, "network.gamma=3"]))
    with pytest.raises(ValueError, match="made under another configuration"):
        make_all(parts(other), folder)
    for part in (folder.root / "parts").glob("*.parquet"):
        part.unlink()
    with pytest.raises(ValueError, match="belongs to another run or configuration"):
        make_all(parts(other), folder)


def test_a_checkpoint_without_its_rows_starts_the_run_again(whole, comparison, tmp_path):
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))

    def interrupt(run, done, in_all):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_all(parts(comparison), folder, interrupt)
    for part in (folder.root / "parts").glob("*.parquet"):
        part.unlink()
    make_all(parts(comparison), folder)

    same_results(folder, whole[0])


def test_a_damaged_part_is_told_with_its_remedy(comparison, tmp_path):
    folder = RunFolder.create(tmp_path / "run", to_toml(comparison))
    (folder.root / "parts" / "algorithm-1-seed0.parquet").write_bytes(b"PAR1 nonsense")

    with pytest.raises(ValueError, match=r"is damaged: .*; delete it"):
        make_all(parts(comparison), folder)


def test_a_damaged_summary_does_not_spoil_the_listing(comparison, tmp_path):
    for name, text in (("a", "[]"), ("b", "{"), ("c", '{"runs": [1]}')):
        RunFolder.create(tmp_path / name, to_toml(comparison))
        (tmp_path / name / "summary.json").write_text(text)

    assert {entry["state"] for entry in list_runs(tmp_path)} == {"damaged"}


def test_timelines_are_kept_when_asked_for_and_can_be_run_again(tmp_path):
    base = [*SETTINGS, "seeds=[0]", 'algorithm=[{name="async_sharing", step=0.2}]']
    first = resolve(override({}, [*base, "keep_timelines=true"]))
    folder = RunFolder.create(tmp_path / "a", to_toml(first))
    one = make_all(parts(first), folder)[0]
    path = folder.root / "timelines" / "async_sharing-seed0.npz"
    second = resolve(override({}, [*base, "network.name=trace", f"network.path={path}"]))

    two = make_all(parts(second), RunFolder.create(tmp_path / "b", to_toml(second)))[0]

    np.testing.assert_array_equal(one.model, two.model)


def test_synthetic_data_follow_the_seed_and_fit_the_nodes():
    settings = ["data.name=quadratic", "model.name=quadratic", "partition.name=given", "nodes=7"]
    config = resolve(override({}, settings))

    zero, one = build_problem(config, 0), build_problem(config, 1)

    assert zero.num_nodes == 7
    assert (np.asarray(zero.x) != np.asarray(one.x)).any()


def test_folders_are_never_overwritten(tmp_path, comparison):
    RunFolder.create(tmp_path / "run", to_toml(comparison))
    with pytest.raises(
        FileExistsError, match="choose another --out, or go on with: folkman run --resume"
    ):
        RunFolder.create(tmp_path / "run", to_toml(comparison))
    with pytest.raises(FileNotFoundError, match="expected a run folder"):
        RunFolder.open(tmp_path)


def test_curves_average_over_seeds(whole):
    _, runs = whole
    found = {curve.label: curve for curve in curves(runs, "slots", "train_loss")}

    pair = np.array([run.column("train_loss") for run in runs if run.label == "FedAvg"])
    np.testing.assert_allclose(found["FedAvg"].mean, pair.mean(axis=0))
    # two values: t(0.975, 1) = 12.706 times their half-distance
    np.testing.assert_allclose(
        found["FedAvg"].half, 12.7062 * np.abs(pair[0] - pair[1]) / 2, rtol=1e-5
    )
