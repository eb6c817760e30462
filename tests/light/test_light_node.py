"""A node where JAX cannot be imported: real processes that the simulator repeats, and refusals."""

import json
import os
import subprocess
import sys

import pytest

from folkman import arithmetic
from folkman.cli import main
from folkman.experiment.replay import replay
from folkman.runtime.cluster import make_cluster
from light.two_arithmetics import REFUSED
from runtime.hosts import task
from test_deletion import cluster, to_their_end

CUSTOM = f"""
import sys

class Refusal:
    def find_spec(self, name, *_):
        if name.split(".")[0] in {REFUSED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusal())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Return an environment in which Python imports no heavy package."""
    folder = tmp_path_factory.mktemp("custom")
    (folder / "sitecustomize.py").write_text(CUSTOM)
    path = [str(folder), *(each for each in sys.path if each)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def command(environment, *arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", "folkman", *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


SUMS = {"network": {"name": "radio", "schedule": "index", "message": "sum"}}


@pytest.mark.process
@pytest.mark.parametrize("tables", [{}, SUMS], ids=["copies", "sums"])
def test_nodes_without_jax_run_to_their_end_and_the_simulator_repeats_them(
    tmp_path, environment, tables
):
    options = {"transport": "tcp", "radio": "measured", "steps": 20, "slot_s": 0.02}
    options |= {"trust": {"sums": "members"}} if tables else {}
    homes = make_cluster(tmp_path / "cluster", task(nodes=3, **tables), options)

    for modules, home in zip(to_their_end(environment, homes), homes, strict=True):
        assert not {name.split(".")[0] for name in modules} & set(REFUSED)
        assert json.loads((home / "health.json").read_text())["memory_peak_bytes"] < 80e6
    again = replay(tmp_path / "cluster")

    assert max(again["difference"].values()) < 1e-5
    assert again["slots"] >= 20


@pytest.mark.process
@pytest.mark.slow
def test_nodes_of_both_kinds_learn_together(tmp_path):
    homes = cluster(tmp_path / "cluster", 2, steps=20)
    light = homes[1] / "node.toml"
    light.write_text(f'arithmetic = "numpy"\n{light.read_text()}')

    with_jax, without = to_their_end(dict(os.environ), homes)

    assert "jax" in with_jax
    assert not {name.split(".")[0] for name in without} & set(REFUSED)
    assert max(replay(tmp_path / "cluster")["difference"].values()) < 1e-5


@pytest.mark.process
def test_a_node_says_what_it_computes_with_and_why(tmp_path, environment):
    home, _ = cluster(tmp_path / "cluster", 2)
    file = home / "node.toml"
    where = ("node", "--config", file, "--check")

    without = command(environment, *where, "--json", folder=tmp_path)
    file.write_text(f'arithmetic = "jax"\n{file.read_text()}')
    asked = command(environment, *where, folder=tmp_path)
    file.write_text(file.read_text().replace('"jax"', '"numpy"'))
    chosen = command(os.environ, *where, folder=tmp_path)
    file.write_text(file.read_text().replace('"numpy"', '"cupy"'))
    wrong = command(environment, *where, folder=tmp_path)

    found = json.loads(without.stdout)["arithmetic"]
    assert found == {"name": "numpy", "why": "JAX is not installed"}
    assert asked.returncode == wrong.returncode == 2
    assert "JAX is not installed; pip install jax" in asked.stderr
    assert chosen.returncode == 0, chosen.stderr
    assert "arithmetic  numpy: asked for" in chosen.stdout
    assert "arithmetic must be 'auto', 'jax' or 'numpy', got 'cupy'" in wrong.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("tables", "remedy"),
    [
        ({"algorithm": [{"name": "cga"}]}, "this needs 'jax', which is not installed here; pip"),
        ({"algorithm": [{"name": "fedavg", "optimizer": "adam"}]}, "this needs 'optax', which"),
        ({"compression": {"name": "bfloat16"}}, "messages in bfloat16 need JAX, and this node"),
    ],
)
def test_what_numpy_cannot_do_is_refused_with_a_sentence(tmp_path, environment, tables, remedy):
    options = {"transport": "tcp", "radio": "measured"}
    home = make_cluster(tmp_path / "cluster", task(nodes=2, **tables), options)[0]

    refused = command(environment, "node", "--config", home / "node.toml", folder=tmp_path)

    assert refused.returncode == 2
    assert remedy in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_second_choice_in_a_process_must_be_the_same():
    assert arithmetic.choose("auto").name == arithmetic.choose("jax").name == "jax"
    with pytest.raises(ValueError, match="computes with jax already; start another process"):
        arithmetic.choose("numpy")


def test_the_choice_may_come_from_the_environment(monkeypatch):
    monkeypatch.setattr(arithmetic, "_made", [])
    monkeypatch.setenv(arithmetic.VARIABLE, "numpy")

    assert arithmetic.chosen() == ("numpy", f"asked for by {arithmetic.VARIABLE}")


SIMULATES = [
    ("run",),
    ("up", "--nodes", "2"),
    ("radio",),
    ("theory", "gap"),
    ("replay", "nowhere"),
    ("algorithms",),
]


@pytest.fixture
def with_numpy(monkeypatch):
    """Ask for NumPy by the environment, in a process that has not chosen yet."""
    monkeypatch.setattr(arithmetic, "_made", [])
    monkeypatch.setenv(arithmetic.VARIABLE, "numpy")


def answered(*words):
    """Return the exit code of a command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["folkman", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return end.value.code


@pytest.mark.parametrize("words", SIMULATES, ids=lambda words: words[0])
def test_the_simulator_refuses_numpy_at_its_start(words, with_numpy, capsys):
    assert answered(*words) == 2

    said = capsys.readouterr().err
    assert said.startswith(f"error: folkman {words[0]} needs JAX, and FOLKMAN_ARITHMETIC=numpy")
    assert "unset FOLKMAN_ARITHMETIC" in said


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("up", "--help"),
        ("node", "--help"),
        ("theory", "--help"),
        ("theory", "gap", "--help"),
    ],
    ids=" ".join,
)
def test_help_needs_no_jax(words, with_numpy, capsys):
    assert answered(*words) == 0
    assert "Usage" in capsys.readouterr().out


def test_what_a_node_needs_runs_with_numpy(with_numpy, tmp_path, capsys):
    home = tmp_path / "nodes" / "node-0"
    home.mkdir(parents=True)
    (home / "node.toml").touch()
    certs = tmp_path / "certs"

    assert answered("certs", "init", "--folder", str(certs)) == 0
    assert certs.is_dir()
    for name in ("status", "down"):
        assert answered(name, str(tmp_path)) == 0
        assert "node-0" in capsys.readouterr().out


def test_without_jax_up_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setattr(arithmetic, "_made", [])
    monkeypatch.setattr(arithmetic, "_installed", lambda: False)

    assert answered("up", "--nodes", "2") == 2
    assert "this needs 'jax', which is not installed here; pip" in capsys.readouterr().err
