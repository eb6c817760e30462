"""What would end the nodes of a cluster at their start is found before, or told at once."""

import json
import os
import socket
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

import shell
from folkman.checks import need
from folkman.cli.node import _complain_of_the_dead
from folkman.record.cluster import ClusterFolder
from folkman.runtime import assembly, cluster, identity

FEW = ["--nodes", "3", "--set", "data.train_size=60", "--set", "model.name=softmax"]


@pytest.fixture
def folkman(tmp_path):
    return partial(shell.folkman, cwd=tmp_path)


def test_one_metrics_port_for_all_nodes_is_refused_before_a_folder_is_made(folkman, tmp_path):
    done = folkman("up", *FEW, "--out", "c", "--node-set", "metrics=127.0.0.1:9191")
    assert done.returncode == 2
    assert "a metrics port for each of 3 nodes, got the one port 9191" in done.stderr
    assert "metrics=127.0.0.1:0" in done.stderr
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("package", ["zenoh", "cryptography.x509", "blake3"])
def test_a_missing_package_leaves_no_folder_behind(folkman, tmp_path, monkeypatch, package):
    def need(module):
        if module == package:
            raise RuntimeError(f"this needs '{module}'; pip install 'folkman[devices]'")

    monkeypatch.setattr(cluster, "need", need)
    monkeypatch.setattr(cluster, "start", lambda _: pytest.fail("a node was started"))
    done = folkman("up", *FEW, "--out", "c")
    assert done.returncode == 2
    assert "pip install 'folkman[devices]'" in done.stderr
    assert not (tmp_path / "c").exists()


def test_an_installation_without_the_extra_says_which_to_install(tmp_path):
    """A process of its own, in which the packages of the extra cannot be imported."""
    hidden = ("blake3", "cryptography", "msgspec", "zenoh")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(
        f"import sys\nfor name in {hidden}:\n    sys.modules[name] = None\n"
    )
    command = [sys.executable, "-m", "folkman", "up", *FEW, "--out", "c"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(bare)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert "pip install 'folkman[devices]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "c").exists()


def test_an_authority_without_its_package_leaves_no_folder_behind(folkman, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "need", lambda _: need("no_such_package"))
    done = folkman("certs", "init")
    assert done.returncode == 2
    assert "pip install 'folkman[devices]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_cluster_over_another_is_not_told_to_resume(folkman, tmp_path):
    """`folkman up` cannot go on with a folder; a run's folder is named with the command that can."""
    home = ClusterFolder(tmp_path / "c").node("node-0")
    home.root.mkdir(parents=True)
    home.config.write_text("")
    (tmp_path / "c" / "config.toml").write_text("")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "config.toml").write_text("")
    over_cluster, over_run = (folkman("up", *FEW, "--out", each).stderr for each in ("c", "r"))
    assert "c has content; choose another --out\n" in over_cluster
    assert "or go on with: folkman run --resume r\n" in over_run


@pytest.mark.process
def test_a_cluster_whose_node_dies_at_its_start_is_not_called_well(folkman, tmp_path):
    """A real process: its metrics port is taken, and `up` says so with the node's own words."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"metrics=127.0.0.1:{taken.getsockname()[1]}"
        few = ["--nodes", "1", *FEW[2:], "--transport", "tcp", "--insecure"]
        done = folkman("up", *few, "--out", "c", "--node-set", where)

    assert done.returncode == 2
    assert "1 of 1 nodes have ended already" in done.stderr
    assert "node-0: " in done.stderr
    assert "port 0" in done.stderr


def test_nodes_that_are_dead_already_are_named_with_their_last_line(tmp_path):
    for name in ("node-0", "node-1"):
        home = ClusterFolder(tmp_path).node(name)
        home.root.mkdir(parents=True)
        home.config.write_text("")
        home.pid.write_text("4194303\n")  # above the largest number of a process
        home.log.write_text('{"event": "start"}\n{"event": "not started", "text": "port"}\n')
    ClusterFolder(tmp_path).node("node-1").health.write_text(json.dumps({"state": "done"}))

    with pytest.raises(RuntimeError) as told:
        _complain_of_the_dead(tmp_path)

    assert "1 of 2 nodes have ended already" in str(told.value)
    assert "node-0: port" in str(told.value)
    assert "folkman down" in str(told.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "expected a configuration file"),
        ("node = ", "node.toml"),
        ("nodee = 1", "did you mean 'node'"),
        ("node = 0\nconfig = 'none.toml'\n", "'shard' is needed"),
    ],
)
def test_a_node_that_cannot_start_logs_a_line_of_json(tmp_path, text, complaint):
    """Whoever gathers the logs of a fleet reads JSON; a person at a terminal reads a sentence."""
    if text is not None:
        (tmp_path / "node.toml").write_text(text)
    done = shell.folkman("node", "--config", tmp_path / "node.toml", cwd=tmp_path)

    line = json.loads(done.stderr)
    assert done.returncode == 2
    assert (line["event"], line["level"]) == ("not started", "error")
    assert complaint in line["text"]
    assert line["node"] == tmp_path.name


def test_a_metrics_port_that_is_taken_ends_a_node_with_a_line_of_json(monkeypatch, capfd, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        config = SimpleNamespace(
            config="", label="", seed=0, number=0, insecure=False, metrics=where, arithmetic="auto",
            folder=tmp_path, listen="127.0.0.1:0",
        )  # fmt: skip
        for name, value in {
            "hold_little": lambda: None,
            "read_little": lambda: None,
            "read_node": lambda _: config,
            "read_task": lambda *_: None,
            "use_precision": lambda _: None,
            "assemble": lambda *_: SimpleNamespace(members=None, facts=dict),
            "signal": SimpleNamespace(
                signal=lambda *_: None, Signals=None, SIGTERM=0, SIGINT=0, SIGUSR1=0, SIGHUP=0,
                SIG_IGN=0,
            ),
            "faulthandler": SimpleNamespace(register=lambda *_: None),
            "MetricsServer": assembly.MetricsServer,
        }.items():  # fmt: skip
            monkeypatch.setattr(assembly, name, value)
        code = assembly.run_node("node.toml")  # pyright: ignore[reportArgumentType]

    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert code == 2
    assert (line["event"], line["level"]) == ("not started", "error")
    assert where in line["text"]
    assert "port 0" in line["text"]
