"""Folders that version 0.1.0 left, before `record` owned them, still open.

`before.tar.xz` holds `run/`, interrupted in the third of its four runs at slot 10 of 20, and
`sweep/`, a finished sweep of four jobs: softmax on sixty digits, three nodes, two seeds.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from folkman.config.comparison import resolve
from folkman.config.text import read
from folkman.dash.serve import make_source
from folkman.experiment.parts import make_all, parts
from folkman.record.folder import RunFolder, list_runs
from folkman.record.run import COLUMNS, Run
from folkman.record.store import SweepFolder
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


def test_an_interrupted_run_is_not_gone_on_with(before):
    """Its options have other meanings now: 16 bits are rounded to, a server's answer takes time."""
    folder = RunFolder.open(before / "run")
    comparison = resolve(read(folder.configuration()))

    with pytest.raises(ValueError, match="earlier version that read it otherwise"):
        make_all(parts(comparison), folder)

    assert len(folder.read_run("async_sharing", "Algorithm 1", 1).rows) == 3
    assert folder.model(Run("fedavg", "FedAvg", 0)).is_file()


@pytest.mark.process
def test_a_sweep_of_before_is_compared_and_reported(before):
    root = SweepFolder.open(before / "sweep").root

    found = read_results(root)
    arms = arms_of([root])

    assert len(found) == 4
    assert list(arms) == ["Algorithm 1, gamma=2", "Algorithm 1, gamma=5"]
    assert arms["Algorithm 1, gamma=5"][1].last("train_loss") == found[3].last("train_loss")
    page = write_report(root).read_text()
    assert "2 arms, 2 seeds, 4 jobs: 4 finished" in page
    assert len(write_job_reports(root).written) == 4
    assert make_source(root, cluster=False).state()["state"] == "finished"
