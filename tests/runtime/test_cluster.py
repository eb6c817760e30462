"""A cluster of real processes: the command line, parity with the simulation, secured and insecure."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from folkman.runtime.assembly import read_node
from folkman.runtime.state import read_arrays
from runtime.hosts import Cluster, task
from shell import folkman, undrawn

ROOT = Path(__file__).parents[2]

CONFIG = """
nodes = 5
slots = 60
slot_s = 0.25
seeds = [0]
record_every = 60

[data]
name = "digits"

[model]
name = "softmax"

[network]
name = "snapshot"
gamma = 4

[[algorithm]]
name = "async_sharing"
step = 0.5
"""


def states(folder):
    answer = folkman("status", "cluster", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["nodes"]


@pytest.mark.process
@pytest.mark.slow
def test_five_processes_on_the_emulated_channel_are_the_simulation(tmp_path):
    """Recorded and replayed: the same parameters; against the simulation of the configuration: the same accuracy."""
    (tmp_path / "config.toml").write_text(CONFIG)
    with undrawn():
        simulated = folkman("run", "config.toml", "--out", "simulated", "--json", cwd=tmp_path)

    done = folkman("up", "config.toml", "--out", "cluster", "--wait", "--json", cwd=tmp_path)
    again = folkman("replay", "cluster", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert again.returncode == 0, again.stderr
    expected = json.loads(simulated.stdout.splitlines()[-1])["runs"][0]
    found, replayed = json.loads(done.stdout), json.loads(again.stdout)
    assert len(replayed["difference"]) == 5
    assert max(replayed["difference"].values()) < 1e-5
    assert found["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=0.005)
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=0.05)
    assert {each["state"] for each in states(tmp_path)} == {"done"}
    assert not any(each["insecure"] for each in states(tmp_path))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "transport"),
    [("dpsgd", "tcp"), ("dfedavgm", "zenoh"), ("fedavg", "tcp")],
    ids=["dpsgd", "dfedavgm", "fedavg"],
)
def test_methods_that_wait_end_on_processes_where_the_simulator_does(tmp_path, method, transport):
    """Rounds between peers and around a server, secured; what the processes did, repeated, gives their parameters."""
    own = {"dpsgd": "", "dfedavgm": "local_steps = 2", "fedavg": "local_steps = 2"}[method]
    (tmp_path / "config.toml").write_text(
        CONFIG.replace('name = "async_sharing"', f'name = "{method}"\n{own}').replace(
            "step = 0.5", "step = 0.1"
        )
    )
    options = [
        "--nodes",
        "3",
        "--transport",
        transport,
        "--radio",
        "measured",
        "--node-set",
        "steps=10",
    ]

    done = folkman(
        "up", "config.toml", "--out", "cluster", *options, "--wait", "--json", cwd=tmp_path
    )
    again = folkman("replay", "cluster", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert again.returncode == 0, again.stderr
    assert max(json.loads(again.stdout)["difference"].values()) < 1e-5
    assert {each["state"] for each in states(tmp_path)} == {"done"}
    assert json.loads(done.stdout)["train_loss"] < 2.25  # of ln 10 at the start


@pytest.mark.process
@pytest.mark.slow
def test_a_pytorch_guest_learns_between_processes(tmp_path):
    guest = ROOT / "examples" / "devices" / "guest.py"
    options = {
        "transport": "tcp",
        "radio": "measured",
        "guest": str(guest),
        "steps": 60,
        "linger_s": 20.0,
    }
    cluster = Cluster(tmp_path / "cluster", task(nodes=2, model={"name": "softmax"}), options)
    try:
        for i in range(2):
            cluster.start(i)
        cluster.until(
            lambda: all(cluster.health(i)["state"] == "done" for i in range(2)),
            "both are done",
            180,
        )
        heard = [cluster.health(i)["counts"]["taken"] for i in range(2)]
    finally:
        cluster.close()

    finals = [read_arrays(home / "final.safetensors")["model"] for home in cluster.homes]
    assert [len(final) for final in finals] == [64 * 24 + 24 + 24 * 10 + 10] * 2
    assert min(heard) > 0
    assert all(cluster.log(i)[-1]["steps"] == 60 for i in range(2))
    assert all(cluster.health(i)["loss"] < 2.2 for i in range(2))  # of ln 10 at the start


@pytest.mark.process
@pytest.mark.slow
def test_a_cluster_starts_tells_and_stops(tmp_path):
    from folkman.dash import cluster as page

    (tmp_path / "config.toml").write_text(CONFIG)
    options = [
        "--nodes",
        "2",
        "--transport",
        "tcp",
        "--radio",
        "measured",
        "--insecure",
        "--node-set",
        "steps=0",
    ]

    begun = folkman("up", "config.toml", "--out", "cluster", *options, cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    try:
        end_s = time.monotonic() + 120
        while not all(
            each["state"] == "learning" and each.get("steps", 0) > 3 for each in states(tmp_path)
        ):
            assert time.monotonic() < end_s, states(tmp_path)
            time.sleep(0.1)
        shown = folkman("status", "cluster", cwd=tmp_path).stdout
        source = page.ClusterSource(tmp_path / "cluster")
        healthy = source.state()["nodes"]
        os.kill(states(tmp_path)[1]["pid"], signal.SIGKILL)
        while (lost := source.state()["nodes"][1])["state"] != "gone":
            assert time.monotonic() < end_s, lost
            time.sleep(0.1)
        faults = source.state()["faults"]
    finally:
        ended = folkman("down", "cluster", cwd=tmp_path)

    assert re.search(r"node-1 +learning +pid \d+ +steps \d+", shown)
    assert [(row["state"], row["bad"], row["linked"]) for row in healthy] == [
        ("learning", False, 1)
    ] * 2
    assert all(row["steps"] > 3 and row["loss"] > 0 and row["memory (MB)"] > 10 for row in healthy)
    assert lost["bad"]
    assert [fault["node"] for fault in faults if fault["what"].startswith("gone: ")] == ["node-1"]
    assert page.ClusterSource(tmp_path / "cluster").state()["nodes"][0]["state"] == "stopped"
    assert re.findall(r"node-\d +(\w+)", ended.stdout) == ["stopped", "gone"]
    log = (tmp_path / "cluster" / "nodes" / "node-0" / "node.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    assert all("NONE" in line["security"] for line in lines)
    assert lines[-1]["event"] == "end"
    assert lines[-1]["saved_steps"] == lines[-1]["steps"] > 3  # what was learnt is on disk


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ("node = 9", "node 9 is not among the 2 of samples"),
        ("nodee = 1", "unknown key 'nodee' .* did you mean 'node'"),
        ("listen = 'here'", "expected HOST:PORT"),
        ("certs = ''", "has no certs"),
        ("transport = 'pigeon'", "transport"),
    ],
)
def test_a_nodes_file_that_is_wrong_is_refused_with_advice(tmp_path, change, match):
    table = {
        "node": "0",
        "config": "'c.toml'",
        "shard": "'s.npz'",
        "samples": "[1, 1]",
        "listen": "'127.0.0.1:1'",
        "certs": "'certs'",
    }
    key, _, value = change.partition(" = ")
    table = {**table, key: value}
    if value == "''":
        del table[key]
    text = "\n".join(f"{name} = {each}" for name, each in table.items()) + "\n[peers]\n"
    (tmp_path / "node.toml").write_text(text)

    with pytest.raises(ValueError, match=match):
        read_node(tmp_path / "node.toml")


def test_wrong_input_is_no_traceback(tmp_path):
    for arguments in (["status", "none"], ["replay", "none"]):
        answer = folkman(*arguments, cwd=tmp_path)
        assert answer.returncode == 2
        assert answer.stderr.startswith("error: ")
        assert "Traceback" not in answer.stderr
