"""The folder of a cluster: how a node stands by its health file, its process and the clock, for all
who look."""

import json
import os
import subprocess
import sys
import time

import pytest

from folkman.dash.cluster import ClusterSource
from folkman.record.cluster import ClusterFolder, NodeFolder, is_alive

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def process():
    """A process that looks like a node."""
    node = subprocess.Popen([sys.executable, "-c", "input()", "folkman"], stdin=subprocess.PIPE)
    yield node.pid
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
        home.pid.write_text(f"{pid}\n")
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


def test_a_number_that_another_program_has_is_no_node(process):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert is_alive(process)
        assert not is_alive(other.pid)
    finally:
        other.communicate(b"\n")


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
