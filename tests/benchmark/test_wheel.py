"""What the wheel holds: folkman, and nothing of the benchmark."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_folkman_and_nothing_of_the_benchmark():
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="pip install hatchling")
    builder = wheel.WheelBuilder(str(ROOT))

    held = [Path(file.distribution_path) for file in builder.recurse_included_files()]

    assert Path("folkman/cli/__init__.py") in held
    assert {path.parts[0] for path in held} == {"folkman"}
    assert not [path for path in held if {"bench", "benchmarks", "opponents"} & set(path.parts)]
