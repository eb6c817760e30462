"""Folders really deleted from a copy of the package: a node needs no simulator, a simulator needs
no node."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import folkman
from folkman.runtime.cluster import make_cluster
from folkman.runtime.state import read_arrays
from runtime.hosts import task

pytestmark = pytest.mark.process

SOURCE = Path(folkman.__file__).parent
SIMULATOR = ("engine", "theory", "report", "dash", "experiment", "papers")
ABSENT = ("matplotlib", "sklearn", "pyarrow", "networkx", "PIL", "scipy", "optax")
"""Packages that a node of Algorithm 1 never imports; scipy and optax come with JAX and are not
used by it."""

UNCHOSEN = (
    "algorithm.pieces.topology",  # a graph, of methods that have one
    "algorithm.pieces.server_rounds",
    "problem.cnn",
    "radio.air",
    "radio.epochs",
    "radio.network",
    "radio.replay",
    "radio.compressed",
    "radio.wrapped",
    "packing.sums",
    "runtime.zenoh",
    "runtime.server_node",
    "runtime.hierarchy",
    "runtime.fresh_assembly",
    "runtime.fresh_node",
    "runtime.sum_box",
    "runtime.emulation",
    "runtime.causal",
    "runtime.cluster",
    "runtime.preview",
    "runtime.world",
    "runtime.core.rounds",
    "runtime.core.slots",
    "torch",
    "faults",
)
"""Modules of what a file chooses by a name, and that the file of these nodes does not choose."""


def copy_without(folder, *rooms):
    """Copy the package without some of its folders; return the environment in which Python finds
    the copy alone."""
    shutil.copytree(SOURCE, folder / "folkman", ignore=shutil.ignore_patterns("__pycache__"))
    for room in rooms:
        shutil.rmtree(folder / "folkman" / room)
    return {**os.environ, "PYTHONPATH": str(folder)}


def command(environment, *arguments, folder):
    return subprocess.Popen(
        [sys.executable, "-m", "folkman", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def cluster(folder, nodes, **options):
    """Write the files of a cluster, softmax on the digits, with few steps."""
    given = {"transport": "tcp", "radio": "measured", "steps": 8, **options}
    return make_cluster(folder, task(nodes=nodes), given)


LISTING = """
import os, runpy, sys

end = os._exit


def listed(code):
    with open("modules.txt", "w") as file:
        file.write("\\n".join(sorted(sys.modules)))
    end(code)


os._exit = listed  # a node ends by it
runpy.run_module("folkman", run_name="__main__", alter_sys=True)
"""
"""`python -m folkman` for a node that writes what it has imported into its folder as it ends: its
log has no place for Python's own lines."""


def to_their_end(environment, homes, python=sys.executable):
    """Run nodes as processes; check how they ended, and return the modules that each imported."""
    nodes = []
    for home in homes:
        # a file each: a node whose pipe is not read while another is waited for may stand still
        with (home / "log").open("w") as log:
            named = ("node", "--config", str(home / "node.toml"))
            how = {"cwd": home, "env": environment, "text": True, "stdout": subprocess.PIPE}
            nodes.append(subprocess.Popen([python, "-c", LISTING, *named], stderr=log, **how))
    for process, home in zip(nodes, homes, strict=True):
        process.communicate(timeout=120)
        log = (home / "log").read_text()
        assert process.returncode == 0, log[-2000:]
        events = [json.loads(line) for line in log.splitlines()]
        assert [each["event"] for each in events][-1] == "end"
        assert json.loads((home / "health.json").read_text())["counts"]["taken"] > 0
        assert read_arrays(home / "final.safetensors")["model"].shape == (650,)
    return [set((home / "modules.txt").read_text().split()) for home in homes]


@pytest.mark.slow
def test_without_the_simulator_nodes_run_to_their_end(tmp_path):
    environment = copy_without(tmp_path / "package", *SIMULATOR)
    homes = cluster(tmp_path / "cluster", 3)

    for modules in to_their_end(environment, homes):
        assert not {name.split(".")[0] for name in modules} & set(ABSENT)
        assert not {f"folkman.{name}" for name in UNCHOSEN} & modules
        # 91 today: the core, the driver and the disk are 18 small files more than the daemon was,
        # and an operator's door, metrics and captured output are some more
        assert len({name for name in modules if name.split(".")[0] == "folkman"}) <= 92
    refused = command(environment, "run", folder=tmp_path)
    checked = command(
        environment, "node", "--config", str(homes[0] / "node.toml"), "--check", folder=tmp_path
    )

    assert "which is not installed here; pip install folkman" in refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    assert "8 gradients, 8 of them done" in checked.communicate(timeout=60)[0]
    assert checked.returncode == 0


def test_the_modules_that_a_node_must_not_import_are_there():
    assert [name for name in UNCHOSEN if find_spec(f"folkman.{name}") is None] == []


@pytest.mark.slow
def test_without_the_runtime_and_the_live_page_a_simulation_runs(tmp_path):
    environment = copy_without(tmp_path / "package", "runtime", "dash")
    small = ["slots=6", "seeds=[0]", "data.train_size=100", "model.name=softmax", "record_every=3"]
    settings = [word for each in small for word in ("--set", each)]

    run = command(environment, "run", *settings, "--out", "run", "--json", folder=tmp_path)
    up = command(environment, "up", "--nodes", "2", folder=tmp_path)

    answer, log = run.communicate(timeout=180)
    assert run.returncode == 0, log
    assert {each["status"] for each in json.loads(answer.splitlines()[-1])["runs"]} == {"finished"}
    assert (tmp_path / "run" / "report.html").is_file()
    assert "'folkman.runtime'" in up.communicate(timeout=60)[1]
    assert up.returncode == 2
