"""The distribution folkman-node: what it ships, what it installs, and a node that runs on nothing
else."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from test_deletion import SIMULATOR, SOURCE, cluster, to_their_end

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packaging" / "node"
HEAVY = ("matplotlib", "scikit-learn", "pyarrow", "networkx", "pillow")
HEAVY += ("jax", "jaxlib", "jaxtyping", "optax", "scipy")


@pytest.fixture(scope="module")
def whole():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def small():
    return tomllib.loads((PACKAGE / "pyproject.toml").read_text())


def test_it_ships_everything_but_the_simulator(small):
    listed = small["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    there = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"} - {"bench"}

    assert {Path(name).name for name in listed} == there - set(SIMULATOR)
    assert all(Path(name).name == Path(place).name for name, place in listed.items())


def test_it_asks_for_the_versions_that_folkman_asks_for(whole, small):
    asked = set(small["project"]["dependencies"])
    known = {*whole["dependencies"], *whole["optional-dependencies"]["devices"]}

    assert asked <= known
    assert set(small["project"]["optional-dependencies"]["jax"]) <= known - asked
    assert set(whole["optional-dependencies"]["devices"]) <= asked
    assert not any(each.startswith(HEAVY) for each in asked)
    assert small["project"]["scripts"] == whole["scripts"]


@pytest.mark.process
@pytest.mark.slow
def test_in_an_environment_of_its_own_a_node_runs_to_its_end(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "-q", str(PACKAGE)], capture_output=True, text=True, check=False
    )
    if "NewConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    installed = subprocess.run(
        [*pip, "freeze"], capture_output=True, text=True, check=True
    ).stdout.lower()

    assert not [name for name in HEAVY if f"\n{name}==" in f"\n{installed}"]
    homes = cluster(tmp_path / "cluster", 2, transport="zenoh")
    to_their_end({"PATH": ""}, homes, python=str(python))
    for home in homes:  # zenoh's own threads and buffers come to the 80 MB of TCP
        assert json.loads((home / "health.json").read_text())["memory_peak_bytes"] < 100e6
