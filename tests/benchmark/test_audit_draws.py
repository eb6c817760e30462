"""Draws of a paper, several processes at a time: what each is asked for, told and packed."""

import tarfile

import pytest

from benchmarks import audit_draws
from folkman.record.json_file import write_json

ASKED = ["second", "--seeds", "16", "--first-draw", "3000", "--budget-s", "500", "--out", "runs/x"]


def test_every_process_has_its_share_of_one_folder():
    args = audit_draws.asked(ASKED)

    one, last = (audit_draws.command(args, number) for number in (1, 4))

    assert one[1:5] == ["-m", "folkman", "reproduce", "second"]
    assert [a for a, b in zip(one, last, strict=True) if a != b] == ["1/4"]
    assert one[-4:] == ["--budget-s", "500", "--out", "runs/x"]


def test_what_was_not_made_is_named_and_a_failure_is_shown(tmp_path, capsys):
    args = audit_draws.asked([*ASKED[:-1], str(tmp_path / "x")])
    states = ("finished", "waiting", "waiting")
    jobs = [{"arm": "mnist fedavg", "state": state} for state in states]
    (tmp_path / "x").mkdir()
    write_json(tmp_path / "x" / "index.json", {"format": 1, "jobs": jobs})
    log = tmp_path / "x-1.log"
    log.write_text("no memory\n")

    audit_draws.tell(args, [1], [log])

    told = capsys.readouterr().out
    assert "mnist fedavg: 1 there, 2 waiting" in told
    assert "x-1.log ended with 1:\n  no memory" in told


def test_models_and_checkpoints_stay_behind(tmp_path):
    root, log = tmp_path / "x", tmp_path / "x-1.log"
    for name in ("index.json", "jobs/a/metrics.parquet", "jobs/a/models/m.npz", "jobs/a/parts/p"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    log.write_text("done")

    audit_draws.pack(root, tmp_path / "out" / "x.tar.xz", [log])

    with tarfile.open(tmp_path / "out" / "x.tar.xz") as archive:
        files = {member.name for member in archive if member.isfile()}
    assert files == {"x/index.json", "x/jobs/a/metrics.parquet", "x-1.log"}


def test_without_mps_the_processes_run_plainly(monkeypatch, capsys):
    monkeypatch.setattr(audit_draws, "MPS", "no-such-program")
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        monkeypatch.setenv(name, "/nowhere")

    assert not audit_draws.start_mps()
    assert "without MPS" in capsys.readouterr().out


def test_a_budget_is_needed():
    with pytest.raises(SystemExit):
        audit_draws.asked(["second", "--seeds", "1", "--first-draw", "0", "--out", "x"])
