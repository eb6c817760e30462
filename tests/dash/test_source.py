"""What the page is told: of files that grow, are replaced, vanish or are damaged."""

import json
import os
import shutil
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman.dash.run import RunSource, thinned
from folkman.dash.serve import checked_token, make_source
from folkman.dash.sweep import SweepSource
from folkman.machine import is_loopback
from folkman.record.live import Tail

HEAD = {"at": 1.0, "label": "FedAvg", "algorithm": "fedavg", "seed": 1, "slots": 40, "nodes": 5}


def row(slot):
    return {
        "at": 2.0 + slot,
        "row": {"slots": slot, "seconds": slot / 10, "train_loss": 1 / (1 + slot)},
    }


def write(path, *contents, mode="a"):
    path.parent.mkdir(exist_ok=True)
    with path.open(mode) as file:
        file.writelines(json.dumps(content) + "\n" for content in contents)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=12), again=st.booleans())
def test_a_tail_tells_every_line_once_wherever_it_is_cut(tmp_path_factory, cuts, again):
    """Bytes come in pieces; a line is told when it is whole, and all are told when the file is
    replaced."""
    path = tmp_path_factory.mktemp("tail") / "run.jsonl"
    data = "".join(json.dumps(content) + "\n" for content in (HEAD, *map(row, range(6)))).encode()
    tail, told = Tail(path), []
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for begin, end in zip([0, *ends], ends, strict=False):
        with path.open("ab") as file:
            file.write(data[begin:end])
        news = tail.look()
        told += news.rows if news else []
    assert [each["slots"] for each in told] == list(range(6))
    assert tail.head["slots"] == 40
    if again:
        other = path.with_suffix(".part")
        other.write_bytes(data)
        other.replace(path)
        news = tail.look()
        assert news is not None
        assert news.again
        assert len(news.rows) == 6
    assert tail.look() is None


def test_a_line_that_is_no_json_is_left_out(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, HEAD, row(0))
    with path.open("a") as file:
        file.write("{broken\n[1, 2]\n\n")
    write(path, row(1))

    news = Tail(path).look()

    assert news is not None
    assert [each["slots"] for each in news.rows] == [0, 1]


@given(length=st.integers(0, 500), most=st.integers(2, 100))
def test_thinning_keeps_first_and_last_and_no_more_than_asked(length, most):
    rows = [{"slots": float(i)} for i in range(length)]

    kept, step = thinned(rows, most)

    assert len(kept) <= max(most, 0)
    assert kept[:-1] == rows[:-1:step]
    assert kept[:1] == rows[:1]
    assert kept[-1:] == rows[-1:]


def test_everything_told_is_json_and_the_same_as_the_folder(radio_folder):
    state = RunSource(radio_folder).state()

    json.dumps(state, allow_nan=False)
    assert [run["status"] for run in state["runs"]] == ["finished"] * 4
    assert state["runs"][0]["columns"]["slots"] == list(range(0, 41, 4))
    assert "optimum_distance" not in state["runs"][0]["columns"]


@pytest.fixture
def going(radio_folder, tmp_path):
    """A folder in which one run has not ended."""
    folder = tmp_path / "going"
    shutil.copytree(radio_folder, folder)
    for name in ("parts/fedavg-seed1.parquet", "network/fedavg-seed1.npz", "metrics.parquet"):
        (folder / name).unlink()
    return folder


def poll(source):
    source._next_check_s = 0.0
    news = source.poll()
    return {} if news is None else {run["id"]: run for run in news["runs"]}


def test_a_run_that_begins_grows_is_killed_resumed_and_ends(going, radio_folder):
    source, live = RunSource(going), going / "live" / "fedavg-seed1.jsonl"
    here = {"pid": os.getpid(), "host": socket.gethostname()}
    assert poll(source) == {}

    write(live, HEAD | here, row(0))
    first = poll(source)["fedavg-seed1"]
    write(live, row(4), row(8))
    second = poll(source)["fedavg-seed1"]
    assert (first["status"], first["again"], second["again"]) == ("running", True, False)
    assert second["columns"]["slots"] == [4, 8]
    assert poll(source) == {}

    write(live, HEAD | here | {"pid": 2**22 + 1}, row(0), mode="w")  # no such process
    assert poll(source)["fedavg-seed1"]["status"] == "stopped"
    resumed = live.with_suffix(".part")
    write(resumed, HEAD | here, row(0), row(4), mode="w")
    resumed.replace(live)
    third = poll(source)["fedavg-seed1"]
    assert (third["status"], third["again"], third["columns"]["slots"]) == ("running", True, [0, 4])

    shutil.copy(radio_folder / "parts" / "fedavg-seed1.parquet", going / "parts")
    shutil.rmtree(live.parent)
    ended = poll(source)["fedavg-seed1"]
    assert (ended["status"], ended["again"], ended["done"]) == ("finished", True, 40)
    assert poll(source) == {}


def test_a_sweep_is_told_job_by_job(tmp_path, radio_folder):
    folder = tmp_path / "jobs" / "k1"
    shutil.copytree(radio_folder, folder)
    job = {
        "key": "k1",
        "folder": "jobs/k1",
        "arm": "FedAvg",
        "algorithm": "fedavg",
        "label": "FedAvg",
        "seed": 0,
    }
    index = {"format": 1, "name": "s", "state": "running", "jobs": [job | {"state": "waiting"}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    source = make_source(tmp_path, cluster=False)
    assert isinstance(source, SweepSource)
    assert source.state()["jobs"][0]["columns"] == {}

    index |= {"state": "finished", "jobs": [job | {"state": "finished"}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    source._next_check_s = 0.0
    news = source.poll()

    assert news is not None
    assert news["state"] == "finished"
    assert news["jobs"][0]["columns"]["slots"][-1] == 40


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])  # noqa: S104 - refused, never bound
def test_beyond_loopback_a_token_is_needed(host):
    with pytest.raises(ValueError, match=r"can be reached from other machines.*--token new"):
        checked_token(host, None)
    assert len(checked_token(host, "new") or "") >= 32


def test_a_weak_token_is_refused_and_loopback_needs_none():
    with pytest.raises(ValueError, match="at least 16"):
        checked_token("127.0.0.1", "short")
    assert checked_token("::1", None) is None
    assert is_loopback("localhost")
