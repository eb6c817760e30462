"""Folders that version 0.1.0 left, before `record` owned them, still open.

`before.tar.xz` holds `run/`, interrupted in the third of its four runs at slot 10 of 20, and
`sweep/`, a finished sweep of four jobs: softmax on sixty digits, three nodes, two seeds.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from folkman.config.comparison import resolve, to_toml
from folkman.config.text import read
from folkman.dash.serve import make_source
from folkman.experiment.parts import make_all, parts
from folkman.experiment.plan import axes_of, plan
from folkman.record.folder import RunFolder, list_runs
from folkman.record.run import COLUMNS, Run
from folkman.record.store import Store, SweepFolder, ended
from folkman.record.table import arms_of
from folkman.report.notebook import read_results
from folkman.report.write import write_job_reports, write_report

KEPT = Path(__file__).parents[1] / "data" / "before.tar.xz"


@pytest.fixture
def before(tmp_path):
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def table(rows, names=COLUMNS):
    """Return rows as numbers, (row, column): the named columns that they have."""
    return np.array([[row[name] for name in names if name in row] for row in rows])


def test_an_interrupted_run_opens_as_it_stands(before):
    runs = RunFolder.open(before / "run").read().runs

    stands = [(run.label, run.seed, run.status, run.last("slots")) for run in runs if run.rows]
    assert stands == [
        ("Algorithm 1", 0, "finished", 20),
        ("FedAvg", 0, "finished", 20),
        ("Algorithm 1", 1, "running", 10),
    ]
    assert [run.status for run in runs][-1] == "waiting"
    assert all(run.scene is not None for run in runs[:3])
    assert [found["state"] for found in list_runs(before)] == ["unfinished"]
    assert len(make_source(before / "run", cluster=False).state()["runs"]) == 4


def test_an_interrupted_run_goes_on_from_its_checkpoint_as_if_never_interrupted(before, tmp_path):
    """To the bit where this machine computes the rows before the checkpoint to the bit; else to
    rounding."""
    folder = RunFolder.open(before / "run")
    comparison = resolve(read(folder.configuration()))
    assert to_toml(comparison) == folder.config.read_text()
    whole = make_all(parts(comparison), RunFolder.create(tmp_path / "whole", to_toml(comparison)))
    saved = folder.read_run("async_sharing", "Algorithm 1", 1).rows
    assert len(saved) == 3
    seen: list[tuple[str, int, int]] = []

    runs = make_all(
        parts(comparison), folder, lambda run, done, _: seen.append((run.label, run.seed, done))
    )

    assert seen[0] == ("Algorithm 1", 1, 15)  # nothing before the checkpoint was run again
    assert [run.status for run in runs] == ["finished"] * 4
    # the columns of that version; FedAvg's nodes were judged by other models then
    then = [name for name in saved[0] if name not in ("consensus", "consensus_max")]
    exact = np.array_equal(table(saved, then), table(whole[2].rows, then)[:3], equal_nan=True)
    for run, other in zip(runs, whole, strict=True):
        rtol, atol = (0, 0) if exact else (1e-4, 1e-6)
        np.testing.assert_allclose(table(run.rows, then), table(other.rows, then), rtol, atol)
    resumed = runs[2].column("pairs_unheard")
    assert np.isnan(resumed[:3]).all()
    assert np.isfinite(resumed[3:]).all()
    assert not list((before / "run" / "live").glob("*"))


def test_parts_of_before_have_the_fingerprint_of_today(before):
    folder = RunFolder.open(before / "run")
    part = next(iter(parts(resolve(read(folder.configuration())))))

    folder.load_part(part.run, part.fingerprint)

    assert part.run.status == "finished"
    assert len(part.run.rows) == 5
    assert list(part.run.rows[0]) == [name for name in part.run.rows[0] if name in COLUMNS]
    assert folder.model(Run("fedavg", "FedAvg", 0)).is_file()


@pytest.mark.process
def test_a_sweep_of_before_is_compared_reported_and_not_run_again(before):
    root = before / "sweep"
    folder = SweepFolder.open(root)

    found = read_results(root)
    arms = arms_of([root])
    raw = read(folder.definition)
    planned = plan(raw, axes_of(raw))

    assert len(found) == 4
    assert list(arms) == ["Algorithm 1, gamma=2", "Algorithm 1, gamma=5"]
    assert arms["Algorithm 1, gamma=5"][1].last("train_loss") == found[3].last("train_loss")
    assert all(ended(Store(folder.store_root).job(job.key)) is not None for job in planned.jobs)
    page = write_report(root).read_text()
    assert "2 arms, 2 seeds, 4 jobs: 4 finished" in page
    assert len(write_job_reports(root).written) == 4
    assert make_source(root, cluster=False).state()["state"] == "finished"
