"""The soak on real processes, made small: all come back, and bad messages are refused."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.soak import _of, mutated

ROOT = Path(__file__).resolve().parents[2]


def test_bad_messages_are_near_good_ones_and_never_empty():
    rng, pool = np.random.default_rng(0), [bytes(range(200)), b"x" * 70]
    found = [mutated(rng, pool) for _ in range(500)]

    assert all(found)
    assert sum(each in pool for each in found) < len(found) / 2
    assert sum(each[:20] in (pool[0][:20], pool[1][:20]) for each in found) > len(found) / 2


@pytest.mark.process
@pytest.mark.slow
def test_nodes_that_are_killed_and_harmed_come_back():
    script = [sys.executable, "benchmarks/soak.py", "--nodes", "3", "--minutes", "0.2"]
    asked = ["--kills", "2", "--faults", "4", "--messages", "600"]
    done = subprocess.run(
        [*script, *asked], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    faults = {"suspended": 1, "lost": 1, "flipped": 1, "crowded": 1}
    assert found["done"] == {"killed": 2, **faults}
    assert found["bad_messages"] >= 500
    assert found["refused_in_last_lives"] > 0
    assert (found["not_back"], found["ended"], found["not_well"]) == ({}, [], [])
    assert {kind: len(times) for kind, times in found["rejoin_s"].items()} == {
        "killed": 3,
        "lost": 3,
        "flipped": 3,
    }


def test_what_was_never_measured_is_no_number_and_costs_no_soak_its_results():
    assert _of(np.median, []) is None
    assert _of(max, []) is None
    assert (_of(np.median, [1, 2]), _of(np.mean, [1, 2], 1)) == (2, 1.5)
