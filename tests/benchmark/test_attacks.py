"""Five processes, one of which is a member that lies: what the honest ones learn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POINT = 0.01
"""Of the accuracy on test samples; runs without a liar differ by a third of it."""


@pytest.mark.process
@pytest.mark.slow
def test_with_a_byzantine_member_honest_nodes_are_within_a_point_of_those_without():
    asked = ["--transport", "tcp", "--attack", "none", "poison", "never_acknowledges"]
    done = subprocess.run(
        [sys.executable, "benchmarks/attacks.py", *asked, "--steps", "40", "--slot-s", "0.1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )

    assert done.returncode == 0, done.stderr
    found = {each["attack"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert all(each["ended"] for each in found.values())
    honest = found["none"]["accuracy"]
    assert honest > 0.85  # a node that took the poison has a tenth
    assert abs(found["poison"]["accuracy"] - honest) <= POINT
    assert abs(found["never_acknowledges"]["accuracy"] - honest) <= POINT
    assert found["poison"]["refused"]["far"] > 0
