"""`folkman fleet`: tables, logs and ends of real doors over TLS, and of real nodes; wrong inputs."""

import asyncio
import json
import shutil
import signal
import socket
import time
import urllib.request

import pytest
from doors import OpenDoor, authority
from hosts import Cluster, task
from prometheus_client.parser import text_string_to_metric_families as families
from test_exposition import BOARD, names_in, queries

from folkman.record.cluster import ClusterFolder
from folkman.runtime.exposition import INFO, SERIES
from folkman.runtime.fleet import look
from folkman.runtime.fleet.addresses import read_fleet
from folkman.runtime.fleet.kept_lines import KeptLines, in_order
from folkman.runtime.operators import operator_in
from shell import folkman


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("issued") / "certs", nodes=(0, 1, 2))


@pytest.fixture
def fleet(issued, tmp_path):
    """Return a folder with a fleet of two nodes that are well, and one that does not answer."""
    doors = [OpenDoor(issued, tmp_path / f"home-{k}", k) for k in (0, 1)]
    shutil.copytree(issued, tmp_path / "certs")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        places = [*(door.place for door in doors), nobody.getsockname()]
        nodes = "".join(f'node-{k} = "{host}:{port}"\n' for k, (host, port) in enumerate(places))
        (tmp_path / "fleet.toml").write_text(f"[nodes]\n{nodes}")
        yield tmp_path, doors
    for door in doors:
        door.close()


def run(fleet, *words):
    return folkman("fleet", *words, cwd=fleet[0])


def test_a_table_of_all_nodes_names_those_that_do_not_answer(fleet):
    fleet[1][1].facts |= {"slot": 17, "loss": 0.25, "num_linked": 1, "num_neighbours": 2}
    fleet[1][1].facts |= {"taken_age_s": {"node-0": 1.5, "node-2": 42.0}, "version": "0.1.0"}
    done = run(fleet, "status")
    assert done.returncode == 5
    head, *rows, last = done.stdout.splitlines()
    assert head.split()[:2] == ["node", "state"]
    assert rows[0].split()[:2] == ["node-0", "learning"]
    for word in ("17", "0.2500", "1/2", "42.0 s", "0.1.0"):
        assert word in rows[1]
    assert rows[2].startswith("node-2  no answer")
    assert "nobody listens there" in rows[2]
    assert last == "2 of 3 nodes are well"


def test_the_exit_code_says_whether_all_are_well(fleet):
    some = ["--node", "node-0", "--node", "node-1"]
    assert run(fleet, "status", *some).returncode == 0
    fleet[1][1].facts |= {"ok": False, "wrong": "no neighbour is linked for 31 s"}
    done = run(fleet, "status", *some)
    assert done.returncode == 5
    assert "no neighbour is linked for 31 s" in done.stdout


def test_json_has_every_fact_and_why(fleet):
    done = run(fleet, "status", "--json")
    answer = json.loads(done.stdout)
    assert answer["well"] == 2
    first, _, third = answer["nodes"]
    assert (first["node"], first["steps"], first["answered"], first["well"]) == (
        "node-0",
        3,
        True,
        True,
    )
    assert (third["answered"], third["well"]) == (False, False)
    assert "nobody listens" in third["why"]


def test_a_node_cannot_write_to_the_operators_terminal(fleet):
    fleet[1][0].facts |= {"state": "\x1b[2Jfine\r\n", "wrong": "\x07" * 999, "version": {"a": 1}}
    fleet[1][0].facts |= {"slot": "x", "loss": float("nan"), "taken_age_s": [1], "steps": 10**300}
    done = run(fleet, "status", "--node", "node-0")
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert len(done.stdout.splitlines()) == 3


def test_addresses_come_from_words_too(fleet):
    host, port = fleet[1][0].place
    (fleet[0] / "fleet.toml").unlink()
    done = run(fleet, "status", "--node", f"node-0={host}:{port}", "--certs", "certs")
    assert done.returncode == 0, done.stderr


def test_logs_of_all_nodes_are_merged_by_time_as_json(fleet):
    for k in range(4):
        fleet[1][k % 2].logger.say("tick", k=k, level="warning" if k == 3 else "info")
        time.sleep(0.002)
    done = run(fleet, "logs", "--node", "node-0", "--node", "node-1")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    ticks = [line for line in lines if line["event"] == "tick"]
    assert [line["k"] for line in ticks] == [0, 1, 2, 3]
    assert [line["node"] for line in ticks] == ["node-0", "node-1"] * 2
    assert done.returncode == 0

    warned = run(fleet, "logs", "--level", "warning")
    assert [json.loads(line)["k"] for line in warned.stdout.splitlines()] == [3]
    assert warned.returncode == 5
    assert "node-2 at 127.0.0.1:" in warned.stderr
    old = run(fleet, "logs", "--node", "node-0", "--since", "2999-01-01")
    assert old.stdout == ""
    assert run(fleet, "logs", "--node", "node-0", "--since", "1h").stdout


def test_lines_are_written_anew_under_the_name_that_was_dialled():
    lines = in_order(
        [
            ("node-1", '{"time": "2026-01-01T00:00:02Z", "node": "node-9", "text": "\\u001b[2J"}'),
            ("node-0", '{"time": "2026-01-01T00:00:01Z"}'),
            ("node-0", "no JSON"),
        ]
    )
    assert [json.loads(line)["node"] for line in lines] == ["node-0", "node-1"]
    assert "\x1b" not in "".join(lines)


@pytest.mark.process
def test_follow_goes_on_over_a_break_and_tells_no_line_twice(fleet, monkeypatch):
    monkeypatch.setattr(look, "FOLLOW_S", 0.1)
    doors, told = fleet[1], []

    tmp = fleet[0]

    async def follow():
        places = {"node-0": doors[0].place, "node-1": doors[1].place}
        batches = look.followed(places, operator_in(fleet[0] / "certs"), 5.0, time.time() - 1)

        async def read():
            async for lines in batches:
                told.extend(json.loads(line) for line in lines)

        task = asyncio.create_task(read())
        for k in range(8):
            doors[k % 2].logger.say("tick", k=k)
            await asyncio.sleep(0.05)
            if k == 2:  # all lines to it break
                door = doors[0]
                for each in list(door.door._entrance._tasks):
                    door.loop.call_soon_threadsafe(each.cancel)
            if k == 4:  # it begins again, with the end of its log
                again = KeptLines()
                (tmp / "node.log").write_text(doors[0].log.getvalue())
                again.add_file(tmp / "node.log")
                doors[0].door._desk = doors[0].door._desk._replace(lines=again)
                doors[0].logger.listener = again.add
        end_s = time.monotonic() + 20
        while len([line for line in told if "k" in line]) < 8 and time.monotonic() < end_s:
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await batches.aclose()  # type: ignore[attr-defined]

    asyncio.run(follow())
    assert sorted(line["k"] for line in told if "k" in line) == [*range(8)]


def test_stop_asks_first_and_stops_the_chosen(fleet, monkeypatch):
    first, second = fleet[1]
    nobody = run(fleet, "stop", "--node", "node-0")
    assert nobody.returncode == 2
    assert "this stops node-0, and nobody is there to ask; say --yes" in nobody.stderr
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda text: "node-0" not in text)
    assert "nothing was stopped" in run(fleet, "stop", "--node", "node-0").stderr
    assert first.stops == second.stops == []

    monkeypatch.setattr(look, "ENDED_S", 0.3)
    slow = run(fleet, "stop", "--node", "node-1", "--yes")
    assert second.stops == ["operator alice"]
    assert slow.returncode == 5  # this door never closes
    assert "still answers after" in slow.stdout
    assert first.stops == []


def test_a_fleets_file_is_written_with_its_authority(tmp_path):
    named = ["--node", "node-0=192.0.2.10:7600", "--node", "node-1=[2001:db8::1]:7601"]
    done = folkman("certs", "init", "--folder", "boards/ca", *named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = read_fleet(tmp_path / "boards" / "fleet.toml")
    assert found.nodes == {"node-0": ("192.0.2.10", 7600), "node-1": ("2001:db8::1", 7601)}
    assert found.certs == tmp_path / "boards" / "ca"
    again = folkman("certs", "init", "--folder", "boards/new", *named, cwd=tmp_path)
    assert "fleet.toml is there" in again.stderr
    assert not (tmp_path / "boards" / "new").exists()


NOBODY = 'node-0 = "127.0.0.1:1"'
BAD = {
    "status": "expected a fleet: name its file with --fleet",
    "status --fleet none.toml": "none.toml",
    "status --fleet bad.toml": "unknown key 'nodez'",
    "status --fleet empty.toml": "expected nodes under [nodes]",
    "status --fleet port.toml": "expected HOST:PORT, got 'somewhere'",
    "status --fleet name.toml": "expected node-N or server, got 'pi'",
    "status --node node-0": "there is no address of 'node-0'; write --node node-0=HOST:PORT",
    "status --node node-0=x": "expected HOST:PORT, got 'x'",
    "status --node node-0=h:0": "expected HOST:PORT, got 'h:0'",
    "status --node x=h:1": "expected node-N or server, got 'x'",
    "status --node node-0=h:1": "there is none in certs; make one: folkman certs operator",
    "status --fleet one.toml --node node-4": "or one of node-0",
    "status --fleet one.toml --as eve": "has no key of operator 'eve'",
    "status --fleet one.toml --timeout-s 0": "--timeout-s must lie in",
    "status --fleet one.toml --every-s 0": "--every-s must be at least 0.1",
    "logs --fleet one.toml --level loud": "there is no level 'loud'",
    "logs --fleet one.toml --since tuesday": "--since is a time",
    "collect --fleet one.toml": "Missing option '--out'",
    "collect --fleet one.toml --out full": "has other content; choose another --out",
    "collect --fleet one.toml --out new --config none.toml": "none.toml",
}


@pytest.mark.parametrize("line", BAD)
def test_wrong_input_is_refused_in_a_sentence(line, issued, tmp_path):
    for name, text in {
        "bad": "nodez = 1",
        "empty": "[nodes]",
        "port": '[nodes]\nnode-0 = "somewhere"',
        "name": '[nodes]\npi = "h:1"',
        "one": f'certs = "{issued}"\n[nodes]\n{NOBODY}',
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    done = folkman("fleet", *line.split(), cwd=tmp_path)
    assert done.returncode == 2, done
    assert BAD[line] in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new").exists()


# -- real nodes ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two real processes with doors and metrics that have learnt for some slots and stay."""
    root = tmp_path_factory.mktemp("nodes") / "c"
    from folkman.runtime import cluster as deploy

    options = {"transport": "tcp", "radio": "measured", "steps": 30, "slot_s": 0.1}
    options |= {"arithmetic": "numpy", "metrics": "127.0.0.1:0"}
    made = Cluster.__new__(Cluster)
    made.root, made.hosts, made.processes = root, None, {}
    made.homes = deploy.make_cluster(root, task(nodes=2), options, operator="alice")
    for i in (0, 1):
        made.start(i)
    made.until(lambda: all(made.health(i)["linked"] for i in (0, 1)), "links")
    yield made
    made.close()


def metrics_of(nodes, i):
    (told,) = [line for line in nodes.log(i) if line["event"] == "metrics"]
    with urllib.request.urlopen(f"http://127.0.0.1:{told['port']}/metrics", timeout=10) as answer:
        return answer.read().decode()


@pytest.mark.process
@pytest.mark.slow
def test_real_nodes_are_seen_collected_replayed_and_stopped(nodes, tmp_path):
    """From the start to the end, under one operator's certificate."""
    fleet = nodes.root
    first = folkman("fleet", "status", "--json", cwd=fleet)
    rows = json.loads(first.stdout)["nodes"]
    assert [row["method"] for row in rows] == ["async_sharing"] * 2
    assert all(row["num_linked"] == row["num_neighbours"] == 1 for row in rows)
    nodes.until(lambda: all(nodes.health(i).get("staying") for i in (0, 1)), "they stay")

    done = folkman("fleet", "collect", "--out", tmp_path / "got", cwd=fleet)
    assert done.returncode == 0, done
    for k in (0, 1):
        here, there = (ClusterFolder(root).node(f"node-{k}") for root in (tmp_path / "got", fleet))
        for name in ("final", "state", "journal", "incarnation"):
            assert getattr(here, name).read_bytes() == getattr(there, name).read_bytes()
    replayed = folkman("replay", tmp_path / "got", "--json", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    assert max(json.loads(replayed.stdout)["difference"].values()) < 1e-5
    shown = folkman("status", tmp_path / "got", "--json", cwd=tmp_path)
    assert [row["state"] for row in json.loads(shown.stdout)["nodes"]] == ["done", "done"]
    logs = folkman("fleet", "logs", cwd=fleet).stdout.splitlines()
    events = [json.loads(line)["event"] for line in logs]
    assert {"start", "learning", "done", "end", "operator collects"} <= set(events)

    stopped = folkman("fleet", "stop", "--node", "node-0", "--yes", cwd=fleet)
    assert stopped.returncode == 0, stopped
    assert nodes.processes[0].wait(10) == 0
    assert nodes.processes[1].poll() is None
    left = json.loads(folkman("fleet", "status", "--json", cwd=fleet).stdout)["nodes"]
    assert [row["answered"] for row in left] == [False, True]
    for line in (nodes.homes[0] / "node.log").read_text().splitlines():
        json.loads(line)


@pytest.mark.process
@pytest.mark.slow
def test_a_real_node_tells_every_series_that_the_board_asks_for(nodes):
    text = metrics_of(nodes, 1)
    found = {sample.name for family in families(text) for sample in family.samples}
    board = json.loads(BOARD.read_text())
    asked = set().union(*map(names_in, queries(board)))
    assert asked - found <= {"folkman_refused_messages_total"}  # none was refused
    facts = nodes.health(1)
    numbers = {key for key, value in facts.items() if isinstance(value, int | float | dict)}
    assert numbers - set(SERIES) - {"pid", "refused_by"} == set()  # no number without a series
    assert set(INFO) <= set(facts)


@pytest.mark.process
@pytest.mark.slow
def test_a_node_that_stays_ends_at_once_by_a_signal_too(nodes):
    nodes.until(lambda: nodes.health(1).get("staying"), "it stays")
    assert ClusterFolder(nodes.root).node("node-1").standing()["state"] == "done"
    assert nodes.kill(1, signal.SIGTERM) == 0
