"""Sweeps as a person runs them: real processes, kill -9, a shared store, failing jobs, a full
disk."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from folkman.experiment.batch import run_batch
from folkman.experiment.jobs import run_anywhere, run_order
from folkman.experiment.plan import axes_of, plan
from folkman.record.store import SweepFolder
from folkman.record.table import arms_of
from shell import folkman, undrawn

BASE = """
slots = 40
seeds = [0, 1]
nodes = 3
[data]
name = "digits"
train_size = 60
[model]
name = "softmax"
[[algorithm]]
name = "async_sharing"
label = "Algorithm 1"
step = 0.2
"""
SWEEP = BASE + "[grid]\nnetwork.gamma = [2, 3]\n"


def command(*arguments):
    return [sys.executable, "-m", "folkman", *map(str, arguments)]


class Here:
    """An engine that runs every job in this process."""

    name = about = "here"

    def __init__(self, run=run_order):
        self.run, self.ran = run, []

    def map(self, orders, started, until_s=None):  # noqa: ARG002
        for order in orders:
            started(order["key"], "here")
            self.ran.append(order["key"])
            yield self.run(order)

    def close(self):
        pass


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Return the folder of an undisturbed sweep on two processes, and what it printed."""
    place = tmp_path_factory.mktemp("quiet")
    (place / "sweep.toml").write_text(SWEEP)
    done = folkman("sweep", "sweep.toml", "--out", "whole", "--workers", 2, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "whole", done


def here(folder, text=SWEEP, engine: Any = None):
    """Sweep in this process."""
    import tomllib

    raw = tomllib.loads(text)
    engine = Here() if engine is None else engine
    return run_batch(plan(raw, axes_of(raw)), folder, engine), engine


@pytest.mark.process
def test_a_sweep_leaves_what_it_says(quiet):
    folder, done = quiet
    answer = json.loads(done.stdout.splitlines()[-1])
    index = json.loads((folder / "index.json").read_text())
    table = pq.read_table(folder / "results.parquet")

    assert (answer["finished"], answer["failed"], answer["state"]) == (4, 0, "finished")
    assert index["state"] == "finished"
    assert index["axes"] == ["network.gamma"]
    assert {job["state"] for job in index["jobs"]} == {"finished"}
    assert all(job["rss_mb"] > 50 and job["compute_s"] <= job["seconds"] for job in index["jobs"])
    assert sum(worker["jobs"] for worker in index["workers"]) == 4
    assert table.column_names[:6] == ["arm", "network.gamma", "algorithm", "label", "seed", "job"]
    assert table.num_rows == 4 * 5  # slots 0, 10 ... 40
    assert set(table["network.gamma"].to_pylist()) == {2, 3}
    page = (folder / "report.html").read_text()
    assert "network.gamma" in page
    assert "finished" in page
    lines = [
        line
        for line in done.stderr.splitlines()
        if re.match(r"\[\d/4\] Algorithm 1, gamma=\d, seed \d", line)
    ]
    assert len(lines) == 4
    assert all("left" in line and "MB" in line for line in lines)
    for job in index["jobs"]:
        place = folder / job["folder"]
        assert {"config.toml", "metrics.parquet", "summary.json", "job.json", "job.log"} <= {
            p.name for p in place.iterdir()
        }


@pytest.mark.process
def test_a_job_is_an_ordinary_run_folder(quiet, tmp_path):
    """Its configuration, run by itself, gives its rows."""
    folder, _ = quiet
    job = json.loads((folder / "index.json").read_text())["jobs"][0]
    with undrawn():
        config = folder / job["folder"] / "config.toml"
        done = folkman("run", config, "--out", "alone", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    one, two = (
        pq.read_table(place / "metrics.parquet")
        for place in (tmp_path / "alone", folder / job["folder"])
    )
    assert one["train_loss"].to_pylist() == pytest.approx(two["train_loss"].to_pylist(), rel=1e-5)


@pytest.mark.process
@pytest.mark.slow
def test_kill_9_of_a_worker_and_of_the_sweep_cost_only_unfinished_jobs(quiet, tmp_path):
    folder, _ = quiet
    (tmp_path / "sweep.toml").write_text(SWEEP)
    process = subprocess.Popen(
        command("sweep", "sweep.toml", "--out", "s", "--workers", 1),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "1 processes here, at most" in process.stderr.readline()
    first = process.stderr.readline()
    assert "finished" in first
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    second = process.stderr.readline()
    assert "finished" in second, second  # by the worker that took its place
    process.kill()
    process.communicate()
    ended_before = {
        path.parent.name: path.stat().st_mtime_ns
        for path in (tmp_path / "s").glob("jobs/*/job.json")
    }
    deadline = time.monotonic() + 30
    while _alive(tmp_path / "s" / "jobs") and time.monotonic() < deadline:
        time.sleep(0.1)

    resumed = folkman("sweep", "--resume", "s", "--reports", cwd=tmp_path)

    assert resumed.returncode == 0, resumed.stderr
    page = (tmp_path / "s" / "report.html").read_text()
    for path in (tmp_path / "s").glob("jobs/*/job.json"):  # also those that ended before
        assert (path.parent / "report.html").is_file()
        assert f'href="jobs/{path.parent.name}/report.html"' in page
    assert 2 <= len(ended_before) < 4
    after = {
        path.parent.name: path.stat().st_mtime_ns
        for path in (tmp_path / "s").glob("jobs/*/job.json")
    }
    assert all(after[key] == when for key, when in ended_before.items())  # not run again
    assert (tmp_path / "s" / "results.parquet").read_bytes() == (
        folder / "results.parquet"
    ).read_bytes()


def _alive(store):
    """Tell whether a worker of an ended sweep is still there."""
    pids = [json.loads(lock.read_text() or "{}").get("pid") for lock in store.glob("*/job.lock")]
    return any(pid and Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.process
@pytest.mark.slow
def test_two_sweeps_at_once_on_one_store_run_each_job_once(quiet, tmp_path):
    folder, _ = quiet
    (tmp_path / "sweep.toml").write_text(SWEEP)
    both = [
        subprocess.Popen(
            command("sweep", "sweep.toml", "--out", out, "--store", "store", "--workers", 1),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for out in ("a", "b")
    ]
    ends = [process.communicate(timeout=400) for process in both]

    assert [process.returncode for process in both] == [0, 0], ends
    for log in (tmp_path / "store").glob("*/job.log"):
        assert len(re.findall(" on ", log.read_text())) == 1, log.read_text()
    tables = [(tmp_path / out / "results.parquet").read_bytes() for out in ("a", "b")]
    assert tables[0] == tables[1] == (folder / "results.parquet").read_bytes()


@pytest.mark.process
def test_a_failing_job_is_listed_with_its_log_and_the_others_are_kept(quiet, tmp_path):
    """Of 60 samples, 500 nodes have none: found when the data are split, on a worker."""
    folder, _ = quiet
    (tmp_path / "sweep.toml").write_text(
        BASE + "[grid]\nnodes = [3, 500]\n[network]\nname='snapshot'\ngamma=2\n"
    )

    done = folkman(
        "sweep",
        "sweep.toml",
        "--out",
        "s",
        "--store",
        folder / "jobs",
        "--workers",
        1,
        cwd=tmp_path,
    )

    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    assert "2 of 4 jobs failed" in done.stderr
    assert "none at node" in done.stderr
    log = re.search(r"^\s+(\S+job\.log)$", done.stderr, re.M)
    assert log is not None
    assert "Traceback" in (tmp_path / log[1]).read_text()
    assert "Algorithm 1, nodes=3" in done.stdout
    index = json.loads((tmp_path / "s" / "index.json").read_text())
    assert [job["state"] for job in index["jobs"]] == ["finished", "finished", "failed", "failed"]
    assert index["state"] == "failed"
    assert index["store"] == str((folder / "jobs").resolve())


@pytest.mark.process
@pytest.mark.slow
def test_a_full_disk_is_told_loses_nothing_and_can_be_resumed(tmp_path):
    """A limit on the size of a written file stands in for the disk: below a model's."""
    (tmp_path / "sweep.toml").write_text(SWEEP.replace("[0, 1]", "[0]").replace("[2, 3]", "[2]"))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, "
        "resource.RLIM_INFINITY));"
        "sys.argv = ['folkman', *sys.argv[1:]]; from folkman.cli import main; main()"
    )
    arguments = [sys.executable, "-c", code, "sweep", "sweep.toml", "--out", "s", "--workers", "1"]
    own = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")
    }  # the limit would cut what others read
    done = subprocess.run(
        arguments, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False, env=own
    )

    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "go on with: folkman sweep --resume s" in done.stderr
    assert not list((tmp_path / "s").rglob("*.part*"))
    resumed = folkman("sweep", "--resume", "s", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "1 finished" in resumed.stdout


@pytest.mark.process
def test_what_is_finished_is_never_run_again(quiet, tmp_path):
    folder, _ = quiet

    outcome, engine = here(SweepFolder.create(tmp_path / "again", SWEEP, folder / "jobs"))

    assert engine.ran == []
    assert outcome.state == "finished"
    assert (tmp_path / "again" / "results.parquet").read_bytes() == (
        folder / "results.parquet"
    ).read_bytes()


@pytest.mark.process
def test_a_worker_that_does_not_see_the_store_sends_its_files(quiet, tmp_path):
    """As on a host without the file system: it meets no store of that name, and works in a folder
    of its own."""
    from folkman.experiment.engines.dask import unpack

    sent = []

    def far(order):
        told = run_anywhere({**order, "store": str(tmp_path / "nowhere")})
        sent.append(sorted(told["files"]))
        assert not (Path(order["folder"]) / "config.toml").exists()
        return unpack(order, told)

    outcome, _ = here(SweepFolder.create(tmp_path / "s", SWEEP), engine=Here(far))

    assert outcome.state == "finished"
    assert all(
        {"config.toml", "job.json", "metrics.parquet", "summary.json"} <= set(files)
        for files in sent
    )
    near, far_ = (pq.read_table(place / "results.parquet") for place in (quiet[0], tmp_path / "s"))
    assert near.schema == far_.schema
    with pytest.raises(ValueError, match="not of its job; refused"):
        unpack({"folder": str(tmp_path / "x")}, {"files": {"../evil": b""}})
    assert not (tmp_path / "evil").exists()


def test_a_job_whose_data_changed_since_it_was_planned_is_refused(tmp_path):
    def changed(order):
        return run_order({**order, "config": order["config"].replace("slots = 40", "slots = 41")})

    outcome, _ = here(SweepFolder.create(tmp_path / "s", SWEEP), engine=Here(changed))

    assert {job["state"] for job in outcome.jobs} == {"failed"}
    assert "not what was planned" in outcome.jobs[0]["message"]


def test_a_busy_job_is_left_to_whoever_has_it_and_looked_at_again(tmp_path, monkeypatch):
    monkeypatch.setattr("folkman.experiment.batch.BUSY_WAIT_S", 0.0)
    turns: list[str] = []

    def busy_at_first(order):
        turns.append(order["key"])
        if turns.count(order["key"]) == 1:
            return {"key": order["key"], "state": "busy", "message": "process 7 on x runs it"}
        costs = {"seconds": 0.0, "compute_s": 0.0, "rss_mb": 1.0, "peak_mb": 1.0, "worker": "x:7"}
        return {"key": order["key"], "state": "failed", "message": "", **costs}

    outcome, _ = here(SweepFolder.create(tmp_path / "s", SWEEP), engine=Here(busy_at_first))

    assert len(turns) == 8
    assert outcome.state == "failed"


@pytest.mark.process
def test_arms_are_read_back_from_sweeps_and_runs(quiet):
    folder, _ = quiet
    arms = arms_of([folder])

    assert {arm: sorted(runs) for arm, runs in arms.items()} == {
        "Algorithm 1, gamma=2": [0, 1],
        "Algorithm 1, gamma=3": [0, 1],
    }
    assert arms["Algorithm 1, gamma=2"][0].last("slots") == 40


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sweep"], "needs something to vary"),
        (["sweep", "none.toml"], "there is no none.toml"),
        (["sweep", "empty.toml"], "[grid] is empty"),
        (["sweep", "twice.toml"], "expected TOML"),
        (["sweep", "--grid", "nodes=2", "--grid", "nodes=3"], "varied twice"),
        (["sweep", "--grid", "nodes="], "has no values"),
        (["sweep", "--grid", "network.gama=1"], "did you mean 'gamma'?"),
        (["sweep", "--grid", "nodes=2", "--memory", "lots"], "--memory looks like 4GB"),
        (
            ["sweep", "--grid", "nodes=2", "--memory", "4GB", "--engine", "tcp://127.0.0.1:1"],
            "--memory-limit 4GB",
        ),
        (["sweep", "--grid", "nodes=2", "--workers", "0"], "--workers must be at least 1"),
        (["sweep", "--grid", "nodes=2", "--engine", "ray"], "expected 'here', 'processes', 'dask'"),
        (["sweep", "--grid", "nodes=2", "--engine", "tcp://10.0.0.1:8786"], "is not encrypted"),
        (
            ["sweep", "--grid", "nodes=2", "--engine", "tls://10.0.0.1:8786"],
            "add --tls-ca, --tls-cert, --tls-key",
        ),
        (["sweep", "--grid", "nodes=2", "--track", "mlflo"], "did you mean 'mlflow'?"),
        (["sweep", "--resume", "."], "expected a sweep folder"),
        (
            ["sweep", "--resume", ".", "--grid", "nodes=2"],
            "--resume takes everything from the folder",
        ),
        (["sweep", "--grid", "nodes=2", "--out", "later"], "has content"),
        (["sweep", "--resume", "later/sweep"], "upgrade"),
        (["compare", "later"], "upgrade folkman"),
        (["compare", "."], "expected a run or a sweep folder"),
        (["compare", "later", "--at", "noon"], "--at looks like seconds=100"),
    ],
)
def test_wrong_input_is_answered_in_one_sentence(tmp_path, arguments, complaint):
    (tmp_path / "empty.toml").write_text("[grid]\n")
    (tmp_path / "twice.toml").write_text("[grid]\nnodes = [2]\nnodes = [3]\n")
    (tmp_path / "later" / "sweep").mkdir(parents=True)
    (tmp_path / "later" / "config.toml").touch()
    (tmp_path / "later" / "provenance.json").write_text(
        '{"format": 9, "versions": {"folkman": "9.0"}}'
    )
    (tmp_path / "later" / "sweep" / "sweep.toml").touch()
    (tmp_path / "later" / "sweep" / "index.json").write_text('{"format": 9}')
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    done = folkman(*arguments, cwd=tmp_path)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.process
def test_compare_prints_tables_and_writes_files(quiet, tmp_path):
    folder, _ = quiet
    signs = {
        "text": "best",
        "markdown": "| ---: |",
        "csv": "train loss ± 95 %",
        "latex": r"\toprule",
    }
    for form, expected in signs.items():
        folkman("compare", folder, "--format", form, "--out", f"t.{form}", cwd=tmp_path)
        assert expected in (tmp_path / f"t.{form}").read_text()
    done = folkman("compare", folder, "--metric", "train_loss", "--json", cwd=tmp_path)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [row["num_seeds"] for row in rows] == [2, 2]
    assert sorted(row["rank"] == "winner" for row in rows) == [False, True]


def test_axes_that_are_tables_or_columns_are_gathered_and_reported(tmp_path):
    from folkman.report.write import write_report

    text = SWEEP.split("[grid]")[0].replace("[0, 1]", "[0]")
    text += "[grid]\nslots = [10, 20]\n"
    text += 'partition = [{name = "iid"}, {name = "dirichlet", concentration = 0.9}]\n'
    folder = SweepFolder.create(tmp_path / "s", text)
    outcome, _ = here(folder, text)
    with undrawn():
        page = write_report(folder.root)

    table = pq.read_table(folder.results)
    assert outcome.state == "finished"
    assert set(table["set.slots"].to_pylist()) == {10, 20}
    assert max(table["slots"].to_pylist()) == 20
    assert "dirichlet" in page.read_text()
