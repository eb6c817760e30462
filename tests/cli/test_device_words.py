"""What the commands of a cluster say to a person: after Ctrl-C, at the end, and of a replay."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from folkman.cli import node
from folkman.record.cluster import ClusterFolder
from shell import folkman

FEW = ["--set", "data.train_size=100", "--set", "model.name=softmax", "--transport", "tcp"]
FEW += ["--insecure", "--radio", "measured", "--node-set", "arithmetic=numpy"]


def node_with(root, **health):
    home = ClusterFolder(root).node("node-0")
    home.root.mkdir(parents=True)
    home.health.write_text(json.dumps(health))


def test_status_says_what_its_loss_is_where_it_shows_one(tmp_path):
    node_with(tmp_path / "one", state="done", loss=0.25)
    node_with(tmp_path / "two", state="starting")

    shown, without = (folkman("status", name, cwd=tmp_path).stdout for name in ("one", "two"))

    assert shown.splitlines()[0].endswith("loss 0.2500")
    assert shown.splitlines()[1:] == [
        "loss: training loss of a node's last gradient, on its own samples"
    ]
    assert len(without.splitlines()) == 1


@pytest.mark.parametrize("state", ["failed", "diverged", "stopped", "done"])
def test_the_exit_code_of_status_is_5_where_a_node_is_not_well(tmp_path, state):
    node_with(tmp_path, state=state)

    codes = [folkman("status", ".", *more, cwd=tmp_path).returncode for more in ([], ["--json"])]

    assert codes == [5 if state in ("failed", "diverged") else 0] * 2


@pytest.mark.parametrize(
    ("slots", "radio", "expected"),
    [
        (50, "measured", "50 slots replayed"),
        (77, "emulated", "77 slots replayed; no node was awake in more than 50 of them"),
        (
            77,
            "measured",
            "77 slots replayed; no node was awake in more than 50 of them: nodes count their own "
            "slots, and a slot comes after those that formed its messages",
        ),
    ],
)
def test_replay_says_why_it_has_more_slots_than_a_node(slots, radio, expected):
    found = {"slots": slots, "most_lived": 50, "radio": radio}

    assert f"{slots} slots replayed{node._why_so_many(found)}" == expected


@pytest.mark.process
@pytest.mark.slow
def test_two_nodes_to_their_end_are_told_in_four_digits_and_replayed(tmp_path):
    some = ["--nodes", "2", "--set", "slots=12", "--node-set", "slot_s=0.02"]
    done = folkman("up", *FEW, *some, "--out", "c", "--wait", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = folkman("replay", "c", cwd=tmp_path)
    told = json.loads(folkman("replay", "c", "--json", cwd=tmp_path).stdout)

    accuracy = json.loads(done.stdout)["test_accuracy"]
    assert f", test accuracy {accuracy:.4f}\n" in done.stderr
    assert told["most_lived"] == 12 <= told["slots"]
    assert again.stdout.splitlines()[2].startswith(f"{told['slots']} slots replayed")
    assert (" 12 of them: nodes count" in again.stdout) == (told["slots"] > 12)


@pytest.mark.process
def test_ctrl_c_while_up_waits_says_that_the_nodes_still_run(tmp_path):
    words = ["up", "--nodes", "1", *FEW, "--node-set", "steps=0", "--out", "c", "--wait"]
    waiting = subprocess.Popen(
        [sys.executable, "-m", "folkman", *words],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith("preparing the nodes")
        assert "folkman down c" in waiting.stderr.readline()
        time.sleep(0.2)
        os.killpg(waiting.pid, signal.SIGINT)  # as a terminal does
        _, said = waiting.communicate(timeout=20)
        (left,) = ClusterFolder(tmp_path / "c").standing()
    finally:
        waiting.kill()
        ended = folkman("down", "c", cwd=tmp_path)

    assert waiting.returncode == 130
    assert said == "interrupted; the nodes still run; stop them with: folkman down c\n"
    assert left["alive"]
    assert ended.returncode == 0, ended.stderr
