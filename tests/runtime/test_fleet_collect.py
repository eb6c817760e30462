"""Collecting the folders of a fleet, over real sockets and TLS: whole, resumed, and from hostile boards."""

import asyncio
import hashlib
import json
import os
import shutil

import pytest
from doors import OpenDoor, authority

from folkman.config.comparison import resolve
from folkman.config.text import dump
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.runtime.assembly import task_of
from folkman.runtime.fleet import calls, held_files, words
from folkman.runtime.fleet import collect as collecting
from folkman.runtime.fleet.collect import collect
from folkman.runtime.operators import operator_in

TASK = {
    "nodes": 2,
    "slots": 5,
    "seeds": [0],
    "data": {"name": "digits", "train_size": 40},
    "model": {"name": "softmax"},
    "algorithm": [{"name": "async_sharing", "step": 0.1}],
}


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("issued") / "certs")


class Board(OpenDoor):
    """A board with files as a node writes them, and the task above."""

    def __init__(self, certs, home, node, table=TASK, **more):
        super().__init__(certs, home, node)
        task = task_of(resolve(TASK, try_builders=False))
        (home / "task.toml").write_text(dump(table))
        self.door._desk = self.door._desk._replace(run=task.fingerprint, label=task.label)
        self.files = NodeFolder(home)
        own = {
            "node": node,
            "config": "task.toml",
            "shard": "shard.npz",
            "samples": [20, 20],
            "listen": "127.0.0.1:7440",
            "certs": "certs",
            "metrics": "127.0.0.1:9100",
            "operator": {"listen": "127.0.0.1:7600"},
            "peers": {f"node-{1 - node}": "127.0.0.1:7441"},
            **more,
        }
        self.files.config.write_text(dump(own))
        self.files.journal.write_bytes(os.urandom(700_000))
        self.files.state.write_bytes(os.urandom(600_000))
        self.files.log.write_text('{"time": "2026-01-01T00:00:00Z", "level": "info"}\n')
        self.files.health.write_text('{"state": "done", "ok": true}')
        self.files.shard.write_bytes(b"samples")


@pytest.fixture
def boards(issued, tmp_path):
    made = [Board(issued, tmp_path / f"board-{node}", node) for node in (0, 1)]
    yield made
    for each in made:
        each.close()


def places(boards):
    return {f"node-{k}": board.place for k, board in enumerate(boards)}


def fetch(boards, issued, root, **options):
    return collect(root, places(boards), operator_in(issued), 10.0, **options)


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_file_comes_bit_for_bit_and_the_folder_is_that_of_a_cluster(boards, issued, tmp_path):
    found = fetch(boards, issued, tmp_path / "got")

    assert [each.why for each in found] == ["", ""]
    cluster = ClusterFolder(tmp_path / "got")
    for k, board in enumerate(boards):
        here = cluster.node(f"node-{k}")
        for name in ("journal", "state", "log", "health"):
            assert sha(getattr(here, name)) == sha(getattr(board.files, name)), name
            assert getattr(here, name).stat().st_mode & 0o777 == 0o600
        assert here.board_config.read_bytes() == board.files.config.read_bytes()
        assert not here.shard.exists()
        assert not list(here.root.glob(".*"))
    assert [each["state"] for each in cluster.standing()] == ["done", "done"]
    noted = json.loads(cluster.collected.read_text())["nodes"]["node-1"]["files"]
    assert noted["timeline.bin"] == {"size": 700_000, "sha256": sha(boards[1].files.journal)}


def test_what_is_whole_is_not_fetched_again_and_what_has_grown_is_fetched_from_there_on(
    boards, issued, tmp_path
):
    fetch(boards, issued, tmp_path / "got")
    (again, _) = fetch(boards, issued, tmp_path / "got")
    assert again.found is not None
    assert (again.found.received_bytes, again.found.there_already) == (0, again.found.files)

    with boards[0].files.journal.open("ab") as more:
        more.write(b"more")
    new = tmp_path / "new"
    new.write_bytes(b"a newer state")
    os.replace(new, boards[0].files.state)
    (later, _) = fetch(boards, issued, tmp_path / "got")

    assert later.found is not None
    assert later.found.received_bytes == len(b"more") + len(b"a newer state")
    here = ClusterFolder(tmp_path / "got").node("node-0")
    assert sha(here.journal) == sha(boards[0].files.journal)
    assert here.state.read_bytes() == b"a newer state"


@pytest.fixture
def broken_lines(monkeypatch):
    """Let every line break after some questions; return how many parts were read in all."""
    read, ask = [0], calls.Line.ask

    def breaks(after):
        async def asked(self, question):
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > after:
                self._writer.transport.abort()
            read[0] += isinstance(question, words.Read)
            return await ask(self, question)

        monkeypatch.setattr(calls.Line, "ask", asked)
        monkeypatch.setattr(collecting, "AGAIN_S", 0.0)
        return read

    return breaks


def test_a_broken_transfer_goes_on_where_it_broke(boards, issued, tmp_path, broken_lines):
    """Three attempts a call, five questions a line; calls until all is there."""
    read = broken_lines(5)
    rounds = 0
    while any(each.found is None for each in fetch(boards, issued, tmp_path / "got")):
        rounds += 1
        assert rounds < 12
    here = ClusterFolder(tmp_path / "got").node("node-1")
    assert sha(here.journal) == sha(boards[1].files.journal)
    assert sha(here.state) == sha(boards[1].files.state)
    parts = 2 * (3 + 3 + 3)  # of journal, state, and the small ones
    assert read[0] <= parts + 2 * 3 * (rounds + 2)  # a broken line asks one part in vain


def test_a_part_of_another_content_is_not_completed(boards, issued, tmp_path):
    fetch(boards, issued, tmp_path / "got")
    here = ClusterFolder(tmp_path / "got").node("node-0")
    boards[0].files.journal.write_bytes(os.urandom(900_000))  # begun anew on the board
    (found, _) = fetch(boards, issued, tmp_path / "got")
    assert found.why == ""
    assert sha(here.journal) == sha(boards[0].files.journal)


def test_other_peoples_data_are_never_overwritten(boards, issued, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="has other content; choose another --out"):
        fetch(boards, issued, mine)
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]

    fetch(boards, issued, tmp_path / "got")
    here = ClusterFolder(tmp_path / "got").node("node-0")
    here.state.write_bytes(b"changed by hand")
    (found, other) = fetch(boards, issued, tmp_path / "got")
    assert "is not what was collected; move it away" in found.why
    assert here.state.read_bytes() == b"changed by hand"
    assert other.why == ""


def test_nodes_of_another_run_are_not_mixed_in(boards, issued, tmp_path):
    desk = boards[1].door._desk
    boards[1].door._desk = desk._replace(run="f" * 64)
    (first, second) = fetch(boards, issued, tmp_path / "got")
    assert {first.why == "", second.why == ""} == {True, False}
    assert "run" in second.why


def test_nodes_that_are_down_are_named_and_fetched_later(boards, issued, tmp_path):
    files = operator_in(issued)
    with_nobody = {**places(boards), "node-1": ("127.0.0.1", 1)}
    first, second = collect(tmp_path / "got", with_nobody, files, 5.0)
    assert first.found is not None
    assert "nobody listens there" in second.why
    assert [each.why for each in fetch(boards, issued, tmp_path / "got")] == ["", ""]


# -- boards in other hands -------------------------------------------------------------------------


def hostile(monkeypatch, change):
    """Let boards change what they hold before they tell of it."""
    make = held_files.HeldFiles.__init__

    def made(self, folder, task):
        make(self, folder, task)
        change(self)

    monkeypatch.setattr(held_files.HeldFiles, "__init__", made)


def test_bytes_that_are_not_those_of_the_digest_are_thrown_away(
    boards, issued, tmp_path, monkeypatch
):
    def lie(self):
        self.files = [
            words.HeldFile(e.name, e.size, "0" * 64) if e.name == "state.safetensors" else e
            for e in self.files
        ]

    hostile(monkeypatch, lie)
    found = fetch(boards, issued, tmp_path / "got")
    assert all("is not what its digest says" in each.why for each in found)
    here = ClusterFolder(tmp_path / "got").node("node-0")
    assert not here.state.exists()
    assert not list(here.root.glob(".state*"))


def test_a_file_name_of_a_board_is_no_path_of_ours(boards, issued, tmp_path, monkeypatch):
    hostile(monkeypatch, lambda self: self.files.append(words.HeldFile("pid", 1, "0" * 64)))
    found = fetch(boards, issued, tmp_path / "got")
    assert all("it offers files that no node has: ['pid']" in each.why for each in found)
    with pytest.raises(words.WordsError):
        words.answer_of(words.frame(words.Held("0" * 32, "0" * 64, "x", 0, [
            words.HeldFile("../../.bashrc", 1, "0" * 64)]))[4:])  # fmt: skip


def test_a_board_does_not_fill_our_disk(boards, issued, tmp_path, monkeypatch):
    hostile(
        monkeypatch, lambda self: self.files.append(words.HeldFile("node.log", 2**50, "0" * 64))
    )
    found = fetch(boards, issued, tmp_path / "got")
    assert all("expected at most" in each.why for each in found)


def test_code_is_not_taken_from_a_board(issued, tmp_path):
    table = {**TASK, "algorithm": [{"name": "evil.py:method", "step": 0.1}]}
    board = Board(issued, tmp_path / "board", 0, table)
    try:
        (found,) = fetch([board], issued, tmp_path / "got")
    finally:
        board.close()
    assert "names code (evil.py:method), which is not taken from a board" in found.why
    assert not (tmp_path / "got").exists()


def test_ones_own_configuration_stands_in_for_the_boards(issued, tmp_path):
    board = Board(issued, tmp_path / "board", 0, {"nonsense": 1})
    (tmp_path / "mine.toml").write_text(dump(TASK))
    (tmp_path / "other.toml").write_text(dump({**TASK, "slots": 6}))
    try:
        (wrong,) = fetch([board], issued, tmp_path / "got")
        (other,) = fetch([board], issued, tmp_path / "got", config=tmp_path / "other.toml")
        (right,) = fetch([board], issued, tmp_path / "got", config=tmp_path / "mine.toml")
    finally:
        board.close()
    assert wrong.found is None
    assert "its run is not the one of the configuration" in other.why
    assert right.why == ""


def test_paths_and_doors_of_a_boards_file_are_left_behind(issued, tmp_path):
    more = {"guest": "/opt/evil.py", "folder": "/etc"}
    board = Board(issued, tmp_path / "board", 0, **more)
    try:
        fetch([board], issued, tmp_path / "got")
    finally:
        board.close()
    text = ClusterFolder(tmp_path / "got").node("node-0").config.read_text()
    for word in ("evil", "/etc", "metrics", "operator"):
        assert word not in text


def test_a_board_that_calls_itself_another_is_refused(issued, tmp_path):
    board = Board(issued, tmp_path / "board", 0, node_in_file=None)
    table = board.files.config.read_text().replace("node = 0", "node = 1")
    board.files.config.write_text(
        "\n".join(line for line in table.splitlines() if "node_in_file" not in line)
    )
    try:
        (found,) = fetch([board], issued, tmp_path / "got")
    finally:
        board.close()
    assert "its file says that it is node 1" in found.why
    assert not ClusterFolder(tmp_path / "got").node("node-0").config.exists()


def test_answers_are_bounded_on_our_side_too(issued, tmp_path):
    """A board that answers a question with four gigabytes, or with nonsense, costs a sentence."""

    async def ask(data):
        reader = asyncio.StreamReader()
        reader.feed_data(data)

        class Writer:
            def write(self, _):
                pass

            async def drain(self):
                pass

        return await calls.Line(reader, Writer(), 5.0).ask(words.Status())  # type: ignore[arg-type]

    for data in (b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", words.frame(words.Status())):
        with pytest.raises(calls.CallError, match="answers nonsense"):
            asyncio.run(ask(data))


def test_two_keys_of_operators_need_a_name(issued, tmp_path):
    shutil.copytree(issued, tmp_path / "certs")
    for suffix in (".key", ".crt"):
        shutil.copy(
            tmp_path / f"certs/operator-alice{suffix}", tmp_path / f"certs/operator-bob{suffix}"
        )
    with pytest.raises(ValueError, match="choose one with --as"):
        operator_in(tmp_path / "certs")
    with pytest.raises(ValueError, match="has no key of operator 'eve'"):
        operator_in(tmp_path / "certs", "eve")
