"""A run in Python: what is printed of it, and the folder that it is saved as."""

import json
from math import inf, nan

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import folkman as fm
from folkman.cli import app
from folkman.radio.trace import PeerTimeline
from folkman.record import folder
from folkman.record.folder import RunFolder, save_runs
from folkman.record.run import DIVERGED, WAITING, Run, read_table
from folkman.record.scene import load_scene
from folkman.report.notebook import Results, read_results


@pytest.fixture(scope="module")
def run():
    """A run of Algorithm 1 on sixty digits between three nodes."""
    problem = fm.make_problem(fm.load("digits", train_size=60), "softmax", 3)
    recording = fm.Recording(every=5, timeline=True)
    return fm.simulate(
        problem, fm.snapshot(2), fm.async_sharing(0.2), slots=20, seed=3, recording=recording
    )


def test_a_run_is_printed_in_two_lines_without_its_rows(run):
    assert len(repr(run)) < 300
    assert repr(run).count("\n") == 1
    assert "seed 3): finished at slots 20" in repr(run)
    assert "5 rows, model (650,), nodes (3, 650), timeline" in repr(run)
    assert repr(Run("a", "b", 0, status=WAITING)) == "<Run of a: b (seed 0): waiting\n 0 rows>"


def test_results_are_printed_in_a_few_lines(run):
    shown = repr(Results([run] * 40)).splitlines()

    assert shown[0] == "Results of 40 runs"
    assert shown[1] == str(run)
    assert shown[-1] == "... and 34 more"
    assert len(shown) == 8


def test_a_saved_run_is_read_again_to_the_same_bits(run, tmp_path):
    place = run.save(tmp_path / "mine")

    (found,) = read_results(place)

    assert (found.algorithm, found.label, found.seed) == (run.algorithm, run.label, run.seed)
    assert found.status == run.status
    assert set(found.rows[0]) == set(run.rows[0])
    for name in run.rows[0]:
        np.testing.assert_array_equal(found.column(name), run.column(name))
    assert found.scene is not None
    np.testing.assert_array_equal(found.scene.age_slots[-1], 19 - run.timeline.held[19])
    summary = json.loads((place / "summary.json").read_text())
    assert summary["runs"] == [run.summary()]
    assert RunFolder.open(place).read().config["nodes"] == 3


def test_a_saved_run_is_reported_drawn_and_listed_but_not_resumed(run, tmp_path):
    place = run.save(tmp_path / "mine")
    command = CliRunner()

    for arguments in (
        ["report", str(place)],
        ["plot", str(place)],
        ["plot", str(place), "--kind", "ages"],
    ):
        answer = command.invoke(app, arguments)
        assert answer.exit_code == 0, answer.output
    page = (place / "report.html").read_text()
    assert "3 nodes, 20 slots, 1 seeds" in page
    assert "folkman run " not in page
    assert "finished" in command.invoke(app, ["ls", str(tmp_path)]).output
    answer = command.invoke(app, ["run", "--resume", str(place)])
    assert "was made from Python objects and has none; run the script again" in str(
        answer.exception
    )


def test_many_runs_are_saved_as_one_folder_and_need_not_be_of_all_seeds(run, tmp_path):
    other = Run(
        "fedavg", 'with "signs" \\ and ü', 8, [dict(row) for row in run.rows], DIVERGED, "it left"
    )

    save_runs(tmp_path / "two", [run, other])
    found = read_results(tmp_path / "two")

    assert [(each.label, each.seed, each.status, each.message) for each in found] == [
        (run.label, 3, "finished", ""),
        (other.label, 8, "diverged", "it left"),
    ]


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(run, tmp_path):
    with pytest.raises(ValueError, match="each with a label and seed of its own"):
        save_runs(tmp_path / "new", [run, run])
    with pytest.raises(ValueError, match="expected runs with rows"):
        Run("a", "b", 0).save(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FileExistsError, match=r"has content; choose another folder$"):
        run.save(tmp_path)


def test_a_scene_of_too_many_nodes_is_not_saved(run, tmp_path):
    """Sixty frames of three tables of nodes x nodes would be larger than all the rest."""
    big = Run(run.algorithm, run.label, run.seed, run.rows, run.status)
    big.timeline = PeerTimeline(
        np.zeros((2, 65, 65), np.int32), np.zeros((2, 65), bool), np.zeros((2, 65), bool)
    )

    folder = RunFolder(big.save(tmp_path / "big"))

    assert load_scene(folder.scene(big)) is None


def test_a_table_is_the_one_of_pyarrow_and_asks_for_no_pandas(tmp_path, monkeypatch):
    """Byte by byte; `pa.array` and `pq.read_table`, which import pandas, are called for nothing
    but values that are not there."""
    rows = [
        {"label": "", "slots": 3, "loss": 1.5, "mixed": 1, "none": None},
        {"label": "Grüße, 1", "slots": -(2**62), "loss": nan, "mixed": inf, "none": 2.0},
    ]
    plain = [{name: row[name] for name in row if name != "none"} for row in rows]
    tables = (rows, plain, plain[:1], [])
    for number, given in enumerate(tables):
        pq.write_table(pa.Table.from_pylist(given), tmp_path / f"{number}.parquet")
        folder._write_table(tmp_path / "own.parquet", given)
        own = (tmp_path / "own.parquet").read_bytes()
        assert own == (tmp_path / f"{number}.parquet").read_bytes()

    monkeypatch.delattr(pa, "array")
    monkeypatch.delattr(pq, "read_table")
    folder._write_table(tmp_path / "own.parquet", plain)
    found = read_table(tmp_path / "own.parquet", "restore it").to_pylist()
    assert str(found) == str([{**plain[0], "mixed": 1.0}, plain[1]])  # NaN is not itself
