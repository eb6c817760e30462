"""Two thousand schedules in every run of the tests: faults, liars, crashes, and what holds."""

import json
import os
import subprocess
import sys

import pytest

from tests.world_mutants import BEYOND

pytestmark = pytest.mark.process

SCHEDULES, PARTS = 2000, 16
SOAK = 20_000


def simulate(first: int, seeds: int, *more: str, timeout_s: float) -> dict:
    """Run schedules in a process that computes with NumPy; return what it says."""
    command = [sys.executable, "-m", "folkman", "simulate-node", "--json", *more]
    done = subprocess.run(
        [*command, "--first", str(first), "--seeds", str(seeds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, "FOLKMAN_ARITHMETIC": "numpy"},
    )
    assert done.returncode in (0, 5), done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("part", range(PARTS))
def test_all_invariants_hold_in_every_schedule(part: int):
    seeds = SCHEDULES // PARTS
    found = simulate(part * seeds, seeds, timeout_s=600)

    assert found["failures"] == []
    assert found["schedules"] == seeds
    assert found["node_slots"] > 10 * seeds  # nodes did learn


@pytest.mark.parametrize("seed", BEYOND)
def test_seeds_that_alone_show_a_mutant_hold(seed: int):
    assert simulate(seed, 1, timeout_s=600)["failures"] == []


def test_a_method_that_is_not_known_is_refused_with_a_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "folkman", "simulate-node", "--method", "gossip"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    known = "alone, emulated, rounds, server, sum, forward, feedback, band_sum, band_forward"
    assert done.stderr.startswith(f"error: method is one of {known}, got")


@pytest.mark.soak
def test_all_invariants_hold_in_many_more_schedules():
    workers = str(os.cpu_count() or 1)
    found = simulate(SCHEDULES, SOAK, "--workers", workers, timeout_s=7200)
    print(json.dumps(found))

    assert found["failures"] == []
