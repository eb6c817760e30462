"""The folder of a cluster: how a node stands by its health file, its process and the clock, for all
who look."""

import json
import os
import subprocess
import sys
import time

import pytest

from folkman.dash.cluster import ClusterSource
from folkman.record.cluster import ClusterFolder, NodeFolder, Process, is_alive
from folkman.runtime import telemetry
from folkman.runtime.telemetry import write_health

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def process():
    """A process that may be a node's."""
    node = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield Process.known(node.pid)
    node.communicate(b"\n")


def node_of(root, state, *, age_s=0.0, pid=None):
    home = ClusterFolder(root).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    if state is not None:
        home.health.write_text(json.dumps({"node": "node-0", "state": state, "steps": 4}))
        then_s = time.time() - age_s
        os.utime(home.health, (then_s, then_s))
    if pid is not None:
        home.pid.write_text(pid.text() if isinstance(pid, Process) else f"{pid}\n")
    return home


NOBODY = 2**22 + 1


@pytest.mark.parametrize(
    ("state", "age_s", "pid", "seen"),
    [
        ("learning", 0, "process", "learning"),
        ("learning", 60, "process", "silent"),
        ("learning", 0, NOBODY, "gone"),
        (None, 0, NOBODY, "gone"),
        (None, 0, "process", "starting"),
        (None, 0, None, "starting"),
        ("learning", 0, None, "learning"),  # of another machine: its health file is renewed
        ("learning", 60, None, "silent"),
        ("done", 60, NOBODY, "done"),
        ("done", 60, None, "done"),
        ("failed", 60, None, "failed"),
        ("diverged", 60, NOBODY, "diverged"),
    ],
)
def test_a_node_stands_the_same_for_everyone_who_looks(tmp_path, process, state, age_s, pid, seen):
    node_of(tmp_path, state, age_s=age_s, pid=process if pid == "process" else pid)

    (standing,) = ClusterFolder(tmp_path).standing()
    (row,) = ClusterSource(tmp_path).state()["nodes"]

    assert standing["state"] == row["state"] == seen
    assert standing["alive"] == (pid == "process")
    assert row["bad"] == (seen in ("silent", "gone", "failed", "diverged"))


def test_a_number_that_another_process_was_given_is_no_node(tmp_path, process):
    """A word in its command line does not make it one."""
    other = process._replace(began=process.began + "1")
    home = node_of(tmp_path, "learning", pid=other)

    assert is_alive(process)
    assert not is_alive(other)
    assert home.standing()["state"] == "gone"


def test_a_pid_file_of_an_earlier_folkman_says_only_that_a_process_is_gone(tmp_path, process):
    home = node_of(tmp_path, "learning", pid=process.pid)
    assert home.process() is None
    assert home.standing() | {"health_age_s": 0.0} == {
        "node": "node-0",
        "state": "learning",  # as of another machine: by its health file
        "steps": 4,
        "alive": False,
        "pid": None,
        "health_age_s": 0.0,
    }


def test_a_pid_file_of_another_machine_says_nothing_of_this_ones_processes(tmp_path, process):
    """A folder that was copied from a board while its node ran, or that a container has too."""
    home = node_of(tmp_path, "learning", pid=process._replace(place="board/pid:[7]"))
    assert home.process() is None
    assert home.standing()["state"] == "learning"

    home.note(process)
    assert home.process() == process


@pytest.mark.parametrize("odd", [b"", b"\n", b"\xff\xfe", b"12a", "²".encode(), b"-1", b"9" * 40])
def test_a_damaged_pid_file_is_none(tmp_path, odd):
    home = node_of(tmp_path, "learning")
    home.pid.write_bytes(odd)

    assert home.process() is None
    assert home.standing()["state"] == "learning"


def test_a_node_whose_disk_is_full_is_not_silent_but_says_what_is_wrong(tmp_path, monkeypatch):
    home = node_of(tmp_path, "learning")
    write_health(home.health, {"node": "node-0", "state": "learning"})
    assert "wrong" not in home.standing()
    then_s = time.time() - 60
    found = json.loads(home.health.read_text()) | {"written_s": then_s}
    home.health.write_text(json.dumps(found))
    os.utime(home.health, (then_s, then_s))
    assert home.standing()["state"] == "silent"

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(telemetry, "write_json", full)
    with pytest.raises(OSError, match="No space"):
        write_health(home.health, {"node": "node-0", "state": "learning"})

    standing = home.standing()
    assert standing["state"] == "learning"
    assert standing["wrong"] == "its disk has taken no file for 60 s; make room"


def test_nodes_are_found_under_nodes_and_beside_each_other(tmp_path):
    for place in ("nodes/node-1", "nodes/node-0", "certs"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "nodes" / "node-1" / "node.log").touch()
    (tmp_path / "nodes" / "node-0" / "node.toml").touch()
    assert [home.root.name for home in ClusterFolder(tmp_path).nodes()] == ["node-0", "node-1"]
    assert [home.root.name for home in ClusterFolder(tmp_path / "nodes").nodes()] == [
        "node-0",
        "node-1",
    ]


@pytest.mark.parametrize("name", ["none", "."])
def test_what_is_no_cluster_is_refused(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"expected a cluster that `folkman up` made"):
        ClusterFolder(tmp_path / name).standing()
    assert NodeFolder(tmp_path).standing()["state"] == "starting"
