"""Many schedules on many processes: what is counted is what was run, in the order of the seeds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import schedules

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
FAILS_BY = """
import os, sys
os.environ["FOLKMAN_ARITHMETIC"] = "numpy"
from benchmarks import schedules
from folkman.runtime.world import audit, swarm

class Never(audit.Invariant):
    number = 99
    def over(self, world):
        from folkman.runtime.world.world import Broken
        if world.plan.seed % 2:
            raise Broken(99, "an odd seed")

swarm.all_invariants = lambda: [Never()]
sys.exit(schedules.main(sys.argv[1:]))
"""


def run(*arguments: str, program: tuple[str, ...] = ("benchmarks/schedules.py",)) -> tuple:
    """Run it as on a machine without folkman or JAX's settings; return its code and its words."""
    done = subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]},
    )
    return done.returncode, done.stdout, done.stderr


def test_two_processes_count_what_one_does(tmp_path: Path):
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    common = ("--first", "40", "--schedules", "25", "--method", "rounds")

    assert run(*common, "--workers", "1", "--out", str(one))[0] == 0
    assert run(*common, "--workers", "2", "--out", str(two))[0] == 0

    first, second = json.loads(one.read_text()), json.loads(two.read_text())
    for name in ("schedules", "events", "node_slots", "node_hours", "digest", "failures", "kinds"):
        assert first[name] == second[name]
    assert (first["first_seed"], first["last_seed"], first["schedules"]) == (40, 64, 25)
    assert first["methods"] == {"rounds": 25}
    assert first["schedules_per_s_per_core"] == pytest.approx(25 / first["cpu_s"])


def test_a_schedule_that_breaks_is_named_by_its_seed():
    code, said, _ = run("--schedules", "4", "--workers", "2", program=("-c", FAILS_BY))

    found = json.loads(said[said.index("{") :])
    assert code == 5
    assert [(each["seed"], each["invariant"]) for each in found["failures"]] == [(1, 99), (3, 99)]


def test_a_run_that_is_killed_keeps_what_broke_before(tmp_path: Path):
    out = tmp_path / "counts.json"
    arguments = ("--schedules", "1000000", "--workers", "1", "--out", str(out))
    running = subprocess.Popen(
        [sys.executable, "-c", FAILS_BY, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": os.environ["PATH"]},
    )
    try:
        until_s = time.monotonic() + schedules.SAID_EVERY_S
        while not out.exists() and time.monotonic() < until_s:
            time.sleep(0.02)
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # its workers too: none outlives the test
        running.wait()

    kept = json.loads(out.read_text())
    assert kept["schedules"] >= schedules.CHUNK
    assert [each["seed"] for each in kept["failures"]] == list(range(1, kept["schedules"], 2))


def test_no_time_is_no_schedules_and_no_workers_is_refused():
    code, said, _ = run("--schedules", "1000", "--workers", "1", "--until-s", "-1")
    assert (code, json.loads(said)["schedules"]) == (0, 0)

    code, _, error = run("--workers", "0")
    assert code == 2
    assert "expected at least one schedule, one worker and a first seed from 0" in error
