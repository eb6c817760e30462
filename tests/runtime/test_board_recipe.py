"""The recipe of docs/tutorials/own-devices.md for two boards, line by line, with two folders and
two loopback addresses in the place of the boards."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from shell import folkman

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own-devices.md"
HOSTS = ("127.47.3.10", "127.47.3.11")
CONFIG = """
slots = 60
seeds = [0]
[data]
name = "digits"
train_size = 60
[model]
name = "softmax"
[[algorithm]]
name = "mine.py:gossip"
step = 1.0
"""
MINE = "import folkman as fm\n\n\ndef gossip(step=0.1):\n    return fm.async_sharing(step=step)\n"


def section(title):
    """Return the text of a section of the page."""
    return PAGE.read_text(encoding="utf-8").split(f"### {title}\n")[1].split("\n### ")[0]


def lines_of(title):
    """Return the commands of a section's text blocks, with addresses of this machine."""
    found = "\n".join(re.findall(r"```text\n(.*?)```", section(title), re.DOTALL))
    for host, here in zip(("192.0.2.10", "192.0.2.11"), HOSTS, strict=True):
        found = found.replace(host, here)
    bare = [re.sub(r"\s+#.*$", "", line) for line in found.replace("\\\n", " ").splitlines()]
    return [line for line in bare if line]


def told(lines, start):
    (line,) = [line for line in lines if line.startswith(start)]
    return line


def shell(line, folder):
    subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=folder, check=True)


def act(line, folder, *more):
    """Run a command of folkman that must succeed."""
    done = folkman(*shlex.split(line)[1:], *more, cwd=folder)
    assert done.returncode == 0, (line, done.stderr)
    return done


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "mine.toml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(MINE)
    return lines_of("Two boards, step by step")


FAST = ["--node-set", "transport=tcp", "--node-set", "slot_s=0.02"]


def boards(lines, place, shards=None):
    """Follow the recipe to two unpacked boards; return their folders."""
    act(shards or told(lines, "folkman shards"), place, *FAST)
    for line in lines:
        if line.startswith("folkman certs"):
            act(line, place)
    pack, unpack = told(lines, "tar czf"), told(lines, "mkdir")
    made = []
    for name in ("node-0", "node-1"):
        number = name[-1]
        own = [each.replace("node-0", name).replace("board-0", f"board-{number}")
               for each in (pack, unpack, told(lines, "mv"))]  # fmt: skip
        shell(own[0], place / "boards")
        home = place / f"pi-{number}"
        home.mkdir()
        (place / "boards" / f"board-{number}.tar.gz").rename(home / f"board-{number}.tar.gz")
        shell(own[1], home)
        shell(own[2], home / "board")
        made.append(home / "board")
    return made


def test_a_board_has_all_that_it_needs_and_nothing_of_another(lines, tmp_path):
    """With a method of one's own, whose code a board needs."""
    said = folkman("shards", "mine.toml", "--set", "nodes=1", "--out", "s", "--host", HOSTS[0],
                   "--node-set", "operator.stay_s=60", cwd=tmp_path)  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "next: folkman certs init --folder s/certs" in said.stderr

    for number, board in enumerate(boards(lines, tmp_path)):
        names = {path.name for path in board.rglob("*")}
        assert "own_code" in names
        assert not names & {"ca.key", f"node-{1 - number}.key", f"node-{1 - number}.npz"}
        act(told(lines, "folkman node --config node.toml --check"), board)


def test_the_port_is_that_of_every_other_page():
    pages = [*PAGE.parents[1].rglob("*.md"), *PAGE.parents[2].glob("examples/devices/*")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages if page.is_file())
    assert set(re.findall(r"192\.0\.2\.\d+:(\d+)", text)) == {"7440", "7600"}


@pytest.mark.process
@pytest.mark.slow
def test_boards_with_samples_of_their_own_learn_and_tell_their_accuracy(lines, tmp_path):
    title = "Each board has recorded its own samples"
    own = lines_of(title)
    (code,) = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    (tmp_path / "mine.toml").write_text(CONFIG.replace("mine.py:gossip", "async_sharing"))
    made = boards(lines, tmp_path, told(own, "folkman shards"))
    for board, count in zip(made, (100, 80), strict=True):
        exec(located(code, board, count), {"np": np})  # noqa: S102
        said = act("folkman node --config node.toml --check", board).stdout
        assert f"samples     {count} of 180 in all" in said

    nodes = [begin(board) for board in made]
    try:
        fleet = [line for line in lines if line.startswith("folkman fleet")]
        until_done(tmp_path / "boards")
        for line in fleet:
            act(line, tmp_path / "boards")
        codes = [node.wait(20) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()

    assert codes == [0, 0]
    again = folkman("replay", "collected", cwd=tmp_path)
    assert again.returncode == 2
    assert "[30, 30] of them, the nodes had [100, 80]; a run on samples" in again.stderr
    for board in made:
        said = act(told(own, "folkman predict"), board)
        assert float(re.findall(r"accuracy ([\d.]+)", said.stderr)[0]) > 0.8


def located(code, board, count):
    """Return the page's code with files in a board's folder, and as many samples as it has."""
    for name in ("shard.npz", "own-test.npz"):
        code = code.replace(f'"{name}"', repr(str(board / name)))
    return code.replace("100", str(count)).replace("120", str(count + 20))


def begin(board):
    with (board / "node.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "folkman", "node", "--config", "node.toml"],
            cwd=board, stdout=log, stderr=log, env={**os.environ, "FOLKMAN_ARITHMETIC": "numpy"},
        )  # fmt: skip


def until_done(place, patience_s=60.0):
    """Wait until the fleet's table has two nodes that are done."""
    end_s = time.monotonic() + patience_s
    while folkman("fleet", "status", cwd=place).stdout.count(" done ") < 2:
        assert time.monotonic() < end_s
        time.sleep(0.2)
