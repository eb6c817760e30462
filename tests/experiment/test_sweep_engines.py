"""The processes of an engine, with a worker that does what it is told: dies, grows, or answers."""

import sys
import time
from pathlib import Path

import pytest

from folkman.experiment.engines import choose
from folkman.experiment.engines.processes import Processes

WORKER = """
import json, os, signal, sys, time
from pathlib import Path
def say(x): print(json.dumps(x), flush=True)
say({"ready": True})
for line in sys.stdin:
    order = json.loads(line)
    with open(order["log"], "a") as log: log.write(f"{os.getpid()} {order['key']}\\n")
    if order["do"] == "die" or (order["do"] == "die once" and not Path(order["mark"]).exists()):
        if order.get("mark"): Path(order["mark"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    held = bytearray(150_000_000) if order["do"] == "grow" else b""
    if order["do"] == "grow": time.sleep(30)
    rss = 90.0 if order["do"] == "swell" else 10.0
    worker = str(os.getpid())
    say({"key": order["key"], "state": "finished", "message": "", "worker": worker, "rss_mb": rss})
"""


def unheard(key, worker):
    """Take no notice of a start."""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)

    def run(*doings, workers=2, memory_limit_mb=None, group=None):
        log = tmp_path / "log"
        orders = [
            {
                "key": str(i),
                "rank": 0,
                "do": do,
                "group": group or str(i),
                "log": str(log),
                "mark": str(tmp_path / f"mark{i}"),
            }
            for i, do in enumerate(doings)
        ]
        engine = Processes(workers, memory_limit_mb, (sys.executable, str(tmp_path / "worker.py")))
        try:
            told = {each["key"]: each for each in engine.map(orders, unheard)}
        finally:
            engine.close()
        return told, [line.split() for line in log.read_text().splitlines()]

    return run


@pytest.mark.process
def test_every_order_is_answered_once(run):
    told, log = run(*["ok"] * 20)

    assert {each["state"] for each in told.values()} == {"finished"}
    assert sorted(int(key) for _, key in log) == list(range(20))
    assert len({worker for worker, _ in log}) <= 2


@pytest.mark.process
def test_a_job_outlives_its_worker(run):
    told, log = run("ok", "die once", "ok", "die once", "ok")

    assert {each["state"] for each in told.values()} == {"finished"}
    assert [key for _, key in log].count("1") == 2


@pytest.mark.process
def test_a_job_that_kills_every_worker_is_given_up_and_the_others_go_on(run):
    told, log = run("ok", "die", "ok", "ok")

    assert told["1"]["state"] == "failed"
    assert "its worker died 3 times, last by signal SIGKILL" in told["1"]["message"]
    assert [key for _, key in log].count("1") == 3
    assert [told[key]["state"] for key in "023"] == ["finished"] * 3


@pytest.mark.process
def test_a_job_that_outgrows_the_limit_is_ended_and_told(run):
    told, log = run("ok", "grow", "ok", memory_limit_mb=100)

    assert told["1"]["state"] == "failed"
    assert "needed more than the limit of 100 MB" in told["1"]["message"]
    assert [key for _, key in log].count("1") == 1
    assert told["1"]["peak_mb"] > 100
    assert [told[key]["state"] for key in "02"] == ["finished"] * 2


@pytest.mark.process
def test_a_worker_that_has_grown_is_replaced_between_jobs(run):
    _, log = run("swell", "swell", "swell", workers=1, memory_limit_mb=100)

    assert len({worker for worker, _ in log}) == 3


@pytest.mark.process
def test_a_small_worker_is_kept(run):
    _, log = run("ok", "ok", "ok", workers=1, memory_limit_mb=100)

    assert len({worker for worker, _ in log}) == 1


@pytest.mark.process
def test_workers_that_cannot_start_are_told_with_their_last_words():
    engine = Processes(2, command=(sys.executable, "-c", "raise SystemExit('no such module')"))
    order = {"key": "0", "rank": 0, "group": "g"}

    with pytest.raises(
        RuntimeError,
        match=r"workers do not start: with exit code 1; their last words: no such module",
    ):
        list(engine.map([order], unheard))
    engine.close()


@pytest.mark.process
def test_closing_leaves_no_process(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    engine = Processes(2, command=(sys.executable, str(tmp_path / "worker.py")))
    orders = [
        {"key": str(i), "rank": 0, "do": "grow", "group": "g", "log": str(tmp_path / "log")}
        for i in range(2)
    ]
    seen = []

    def stop(key, worker):
        seen.append(int(worker.split(":")[1]))
        raise OSError("stop")

    mapped = engine.map(orders, stop)

    with pytest.raises(OSError, match="stop"):
        next(mapped)
    engine.close()

    assert seen
    assert not any(Path(f"/proc/{pid}").exists() for pid in seen)


def test_a_worker_stays_with_its_arm_and_else_goes_where_nobody_is():
    waiting = [{"group": group, "rank": 0} for group in "aabbcc"]

    assert choose(waiting, "b", ["a"]) == 2
    assert choose(waiting, "z", ["a"]) == 2
    assert choose(waiting, None, ["a", "b"]) == 4
    assert choose(waiting, None, ["a", "b", "c"]) == 0


def test_orders_of_a_lower_rank_come_first_also_for_a_worker_with_programs_of_another():
    waiting = [{"group": group, "rank": rank} for group, rank in (("a", 1), ("b", 1), ("c", 2))]

    assert choose(waiting, "c", []) == 0
    assert choose(waiting, "c", ["a"]) == 1
    assert choose(waiting[2:], "c", ["a"]) == 0


@pytest.mark.process
def test_processes_let_go_of_a_job_when_their_time_is_over(tmp_path):
    """The worker sleeps for half a minute; the engine stops after a second and begins nothing
    more."""
    orders = [
        {"key": str(i), "rank": 0, "group": "g", "do": "grow", "log": str(tmp_path / "log")}
        for i in range(2)
    ]
    (tmp_path / "worker.py").write_text(WORKER)
    engine, began_s = (
        Processes(1, command=(sys.executable, str(tmp_path / "worker.py"))),
        time.monotonic(),
    )

    assert list(engine.map(orders, unheard, until_s=began_s + 1)) == []
    engine.close()
    assert time.monotonic() - began_s < 20
    assert len((tmp_path / "log").read_text().splitlines()) == 1
