"""One process a folder, and a cluster that stops its own processes only."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from folkman.record.cluster import ClusterFolder, NodeFolder, Process, is_alive
from folkman.record.json_file import read_json
from folkman.runtime import assembly, cluster, entrance, identity
from folkman.runtime.disk import FolderLock, FolderTakenError
from shell import folkman

HOLD = """
import sys
from pathlib import Path
from folkman.runtime.disk import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
input()
"""


def until(holds, patience_s=60.0):
    """Wait for something to hold."""
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def close(process):
    """Wait for a process that was ended, and let go of its pipes."""
    process.wait(5)
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was buffered for it has no reader any more
            pipe.close()


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Let `run_node` read a made-up node of a folder; return what it would have built."""
    built = []
    config = SimpleNamespace(
        config="", label="", seed=0, number=3, insecure=False, metrics=None, arithmetic="auto",
        folder=tmp_path, listen="127.0.0.1:0",
    )  # fmt: skip
    drive = SimpleNamespace(run=lambda: 0, members=None)
    for name, value in {
        "hold_little": lambda: None,
        "read_little": lambda: None,
        "read_node": lambda _: config,
        "read_task": lambda *_: None,
        "use_precision": lambda _: None,
        "assemble": lambda *_: built.append(config) or drive,
    }.items():
        monkeypatch.setattr(assembly, name, value)
    monkeypatch.setattr(assembly.signal, "signal", lambda *_: None)
    monkeypatch.setattr(assembly.faulthandler, "register", lambda *_: None)
    return SimpleNamespace(config=config, built=built)


def test_a_second_node_in_a_folder_is_refused_in_a_sentence_and_touches_nothing(
    tmp_path, begun, capfd
):
    (tmp_path / ".state.part").write_bytes(b"of the node that runs")
    first = FolderLock(NodeFolder(tmp_path).lock)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    code = assembly.run_node(tmp_path / "node.toml")

    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert code == assembly.WRONG_INPUT
    assert (line["event"], line["level"]) == ("not started", "error")
    assert f"{tmp_path} is in use by process {os.getpid()} since 20" in line["text"]
    assert line["text"].endswith("; stop that one, or give this node another folder")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert begun.built == []
    first.close()
    assert assembly.run_node(tmp_path / "node.toml") == 0
    assert not (tmp_path / ".state.part").exists()


def test_the_process_of_a_node_reads_each_connection_into_little(begun, tmp_path, monkeypatch):
    """asyncio has one size for a process, so who embeds a node keeps what it has."""
    theirs = 4 * entrance.READ_BYTES
    monkeypatch.setattr(SSLProtocol, "max_size", theirs)  # other tests may have begun a node here
    identity.init(tmp_path)
    identity.issue(tmp_path, 3)
    entrance.Contexts(identity.Identity(tmp_path, 3))
    assert SSLProtocol.max_size == theirs > entrance.READ_BYTES

    monkeypatch.setattr(assembly, "read_little", entrance.read_little)
    assert assembly.run_node(tmp_path / "node.toml") == 0

    async def held():
        loop, context = asyncio.get_running_loop(), ssl.create_default_context()
        made: Any = SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future())
        made._get_app_transport()._closed = True  # it never had a connection to close
        return len(made._ssl_buffer)

    assert asyncio.run(held()) == entrance.READ_BYTES


def test_a_port_that_is_taken_costs_no_life(tmp_path, begun, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        begun.config.listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code = assembly.run_node(tmp_path / "node.toml")

    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert code == assembly.WRONG_INPUT
    assert line["text"].startswith(
        f"cannot listen on {begun.config.listen}: Address already in use"
    )
    assert begun.built == []


@pytest.mark.process
def test_a_killed_process_lets_go_of_its_folder(tmp_path):
    path = tmp_path / "lock"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(FolderTakenError, match=f"in use by process {other.pid} since"):
        FolderLock(path)
    other.send_signal(signal.SIGKILL)
    close(other)

    FolderLock(path).close()


@pytest.mark.process
@pytest.mark.parametrize("text", ["{pid}\n", "{pid}\nanother-boot:17\n"])
def test_down_ends_no_foreign_process_that_a_stale_file_names(tmp_path, text):
    """Its command line has the word folkman; that used to be enough."""
    foreign = subprocess.Popen([sys.executable, "-c", "input()", "folkman"], stdin=subprocess.PIPE)
    home = ClusterFolder(tmp_path).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    home.pid.write_text(text.format(pid=foreign.pid))

    cluster.down(tmp_path, patience_s=0.2)

    assert foreign.poll() is None
    foreign.communicate(b"\n")
    assert foreign.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize(("ignored", "ending"), [("", signal.SIGTERM), ("TERM", signal.SIGKILL)])
def test_down_ends_the_process_that_was_started(tmp_path, ignored, ending):
    home = ClusterFolder(tmp_path).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    trap = f"trap '' {ignored}; echo; read x" if ignored else "echo; read x"
    child = subprocess.Popen(["bash", "-c", trap], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    home.pid.write_text(Process.known(child.pid).text())
    assert is_alive(Process.known(child.pid))

    (standing,) = cluster.down(tmp_path, patience_s=0.3)

    assert child.wait(5) == -ending
    assert not standing["alive"]
    assert standing["left"] is None
    close(child)


def test_a_node_writes_its_own_process_where_an_earlier_one_was(tmp_path, begun):
    home = NodeFolder(tmp_path)
    home.pid.write_text("4194303\nanother-boot:17\n")

    assert assembly.run_node(tmp_path / "node.toml") == 0

    assert home.process() == Process.known(os.getpid())


@pytest.mark.process
def test_down_names_a_node_that_its_pid_file_does_not(tmp_path):
    """As where a full disk kept a node from writing who it is."""
    home = ClusterFolder(tmp_path).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    home.pid.write_text("4194303\nanother-boot:17\n")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"

    held = folkman("down", ".", cwd=tmp_path)
    other.kill()
    close(other)
    free = folkman("down", ".", cwd=tmp_path)

    assert held.returncode == 5
    assert f"node-0 may still run: its folder is in use by process {other.pid} since" in held.stderr
    assert (free.returncode, free.stderr) == (0, "")


def test_down_does_not_call_a_node_of_another_machine_stopped(tmp_path):
    home = ClusterFolder(tmp_path).node("node-0")
    home.root.mkdir(parents=True)
    home.config.touch()
    home.health.write_text(json.dumps({"state": "learning"}))
    home.note(Process.known(os.getpid())._replace(place="board/pid:[1]"))

    done = folkman("down", ".", cwd=tmp_path)

    assert done.returncode == 5
    assert "if it runs on another one, stop it there" in done.stderr


def said_by(pid, home):
    """Return the state that a process wrote to its health file; nothing if another one did."""
    found = read_json(home.health) or {}
    return found["state"] if found.get("pid") == pid else ""


@pytest.mark.process
def test_a_node_that_was_killed_and_started_by_hand_is_seen_and_stopped(tmp_path):
    few = ["--nodes", "1", "--set", "data.train_size=100", "--set", "model.name=softmax"]
    light = ["--transport", "tcp", "--insecure", "--radio", "measured"]
    for each in ("steps=0", "arithmetic=numpy", "slot_s=0.1"):
        light += ["--node-set", each]
    begun = folkman("up", *few, *light, "--out", "c", cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    home = ClusterFolder(tmp_path / "c").node("node-0")
    first = home.process()
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not is_alive(first))
    lost = folkman("status", "c", cwd=tmp_path)

    with home.log.open("ab") as log:
        second = subprocess.Popen(
            [sys.executable, "-m", "folkman", "node", "--config", "node.toml"],
            cwd=home.root, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        until(lambda: (home.process() or first).pid == second.pid)
        until(lambda: "learning" in said_by(second.pid, home))  # not what the first one wrote
        seen = folkman("status", "c", cwd=tmp_path)
        ended = folkman("down", "c", cwd=tmp_path)
        code = second.wait(10)
    finally:
        second.kill()
        second.wait()

    assert (lost.returncode, lost.stdout.split()[1]) == (5, "gone")
    assert seen.returncode == 0
    assert seen.stdout.split()[1:4] == ["learning", "pid", str(second.pid)]
    assert (ended.returncode, ended.stdout.split()) == (0, ["node-0", "stopped"])
    assert code == 0
