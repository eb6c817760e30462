"""The store: who holds a job, what ends with a process, and what a later folkman wrote."""

import json
import os
import signal
import subprocess
import sys

import pytest

from folkman.config.comparison import resolve, to_toml
from folkman.record.folder import RunFolder
from folkman.record.json_file import FORMAT, write_json
from folkman.record.store import Store, SweepFolder, claim, ended


def holder(lock):
    """Start a process that holds a lock; return it when it does."""
    code = (
        "import sys, time; from pathlib import Path; from folkman.record.store import claim\n"
        "with claim(Path(sys.argv[1])) as mine:\n    print(mine, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "True"
    return process


@pytest.mark.process
def test_a_claim_is_of_one_process_and_ends_with_it_however_it_ends(tmp_path):
    lock = tmp_path / "job.lock"
    other = holder(lock)
    with claim(lock) as mine:
        assert not mine
    known = json.loads(lock.read_text())
    assert known["pid"] == other.pid

    os.kill(other.pid, signal.SIGKILL)
    other.communicate()

    with claim(lock) as mine:
        assert mine
        assert json.loads(lock.read_text())["pid"] == os.getpid()


@pytest.mark.process
def test_one_process_sweeps_a_folder(tmp_path):
    folder = SweepFolder.create(tmp_path / "s", "a = 1\n")
    other = holder(folder.lock)

    with (
        pytest.raises(RuntimeError, match=rf"is in use by process {other.pid} .*--store"),
        folder.held(),
    ):
        pass
    other.kill()
    other.communicate()
    with folder.held():
        pass


def test_only_a_whole_job_counts_as_ended(tmp_path):
    assert ended(tmp_path) is None
    write_json(tmp_path / "job.json", {"format": 1, "state": "finished"})
    assert ended(tmp_path) is None  # its rows are not there
    (tmp_path / "metrics.parquet").touch()
    assert ended(tmp_path) is not None
    write_json(tmp_path / "job.json", {"format": 1, "state": "failed"})
    assert ended(tmp_path) is None
    (tmp_path / "job.json").write_text('{"format": 1, "sta')
    assert ended(tmp_path) is None


def test_what_a_later_folkman_wrote_is_refused_and_left_alone(tmp_path):
    folder = SweepFolder.create(tmp_path / "s", "a = 1\n")
    folder.index.write_text(json.dumps({"format": 2, "jobs": "who knows"}))
    with pytest.raises(ValueError, match=r"has format 2, this folkman reads up to 1; .*upgrade"):
        folder.read_index()
    with pytest.raises(ValueError, match="upgrade"):
        SweepFolder.open(tmp_path / "s")
    write_json(tmp_path / "job.json", {"format": 7, "state": "finished"})
    with pytest.raises(ValueError, match="has format 7"):
        ended(tmp_path)
    assert json.loads(folder.index.read_text())["format"] == 2


@pytest.mark.parametrize("version", [FORMAT + 1, "2.0", None])
def test_a_run_folder_of_a_later_folkman_is_refused(tmp_path, version):
    folder = RunFolder.create(tmp_path / "run", to_toml(resolve({})))
    write_json(folder.provenance, {"format": version, "versions": {"folkman": "9.9"}})

    with pytest.raises(ValueError, match=r"reads up to 1; it was written by folkman 9\.9: upgrade"):
        RunFolder.open(folder.root)


def test_a_run_folder_that_says_no_format_is_of_the_first(tmp_path):
    folder = RunFolder.create(tmp_path / "run", to_toml(resolve({})))
    RunFolder.open(folder.root)
    for text in ("{}", '{"versions": {}}', "damaged {"):
        (folder.root / "provenance.json").write_text(text)
        RunFolder.open(folder.root)


def test_a_store_keeps_its_name(tmp_path):
    assert Store(tmp_path / "a").id == Store(tmp_path / "a").id != Store(tmp_path / "b").id


def test_a_sweep_folder_is_taken_up_by_the_same_sweep_only(tmp_path):
    SweepFolder.create(tmp_path / "s", "a = 1\n")
    SweepFolder.create(tmp_path / "s", "a = 1\n")
    with pytest.raises(FileExistsError, match=r"holds another sweep; .*--store"):
        SweepFolder.create(tmp_path / "s", "a = 2\n")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "mine").touch()
    with pytest.raises(FileExistsError, match="has content"):
        SweepFolder.create(tmp_path / "f", "a = 1\n")
    with pytest.raises(FileExistsError, match="is a file"):
        SweepFolder.create(tmp_path / "f" / "mine", "a = 1\n")
    with pytest.raises(FileNotFoundError, match="expected a sweep folder"):
        SweepFolder.open(tmp_path / "f")


def test_a_shared_store_is_known_before_the_first_job(tmp_path):
    SweepFolder.create(tmp_path / "s", "slots = 5\n", tmp_path / "shared")

    assert SweepFolder.open(tmp_path / "s").store_root == (tmp_path / "shared").resolve()
