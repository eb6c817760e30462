"""The images and the compose file: read as Docker would, and their steps done without Docker.

No daemon is needed. What an image installs is installed in an environment of its own, and five
nodes are started there by the very commands of the images and of the compose file.
"""

import ipaddress
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "packaging" / "docker"
IMAGES = [DOCKER / "simulator.Dockerfile", DOCKER / "node.Dockerfile"]
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text())
NODES = {name: each for name, each in COMPOSE["services"].items() if name != "plan"}


def steps(path):
    """Return the instructions of a Dockerfile as (name, rest)."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    pairs = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, rest in pairs]


def last(path, name):
    return [rest for each, rest in steps(path) if each == name][-1]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_is_made_of_known_steps_and_files_that_are_there(path):
    found = steps(path)

    assert found[0][0] == "FROM"
    assert {name for name, _ in found} <= KNOWN
    stages = [rest.partition(" AS ")[2] for name, rest in found if name == "FROM"]
    for name, rest in found:
        if name == "COPY" and rest.startswith("--from="):
            assert rest.split()[0].removeprefix("--from=") in stages
        elif name == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
    assert json.loads(last(path, "ENTRYPOINT")) == ["folkman"]
    assert isinstance(json.loads(last(path, "CMD")), list)
    assert last(path, "USER") == "folkman"  # not root


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_what_is_copied_is_not_ignored(path):
    ignored = path.with_name(f"{path.name}.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}

    for name, rest in steps(path):
        if name == "COPY" and not rest.startswith("--from="):
            assert {source.split("/")[0] for source in rest.split()[:-1]} <= kept


PROJECTS = [(IMAGES[0], "."), (IMAGES[1], "packaging/node")]


@pytest.mark.parametrize(("path", "project"), PROJECTS)
def test_what_is_copied_is_enough_to_build(path, project, tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="pip install hatchling")
    for name, rest in steps(path):
        if name == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, tmp_path / target, folder=target.endswith("/"))

    builder = wheel.WheelBuilder(str(tmp_path / project))
    made = next(iter(builder.build(directory=str(tmp_path / "dist"), versions=["standard"])))

    with zipfile.ZipFile(made) as archive:
        held = archive.namelist()
    assert "folkman/cli/__init__.py" in held
    assert ("folkman/engine/__init__.py" in held) == (project == ".")


def copy(source, target, *, folder):
    """Copy as Docker does: a folder's content into the target, a file into a folder or as it."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return
    place = target / source.name if folder or target.is_dir() else target
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, place)


def test_the_compose_file_is_one():
    schema = json.loads((ROOT / "tests" / "data" / "compose_spec.json").read_text())

    assert [error.message for error in Draft7Validator(schema).iter_errors(COMPOSE)] == []
    wrong = {**COMPOSE, "services": {"a": {"imag": "b"}}}
    assert list(Draft7Validator(schema).iter_errors(wrong))


def test_five_nodes_have_the_addresses_that_the_plan_is_given():
    addresses = [each["networks"]["air"]["ipv4_address"] for each in NODES.values()]
    subnet = ipaddress.ip_network(COMPOSE["networks"]["air"]["ipam"]["config"][0]["subnet"])

    assert list(NODES) == [f"node-{number}" for number in range(5)]
    assert COMPOSE["services"]["plan"]["command"][2:] == addresses
    assert all(ipaddress.ip_address(each) in subnet for each in addresses)
    for name, each in NODES.items():
        assert each["command"][-1] == f"/cluster/run/nodes/{name}/node.toml"
        assert each["depends_on"]["plan"]["condition"] == "service_completed_successfully"
    for service in COMPOSE["services"].values():
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert (DOCKER / service["build"]["context"]).resolve() == ROOT


@pytest.mark.process
@pytest.mark.slow
def test_five_nodes_run_to_their_end_by_the_commands_of_the_image(tmp_path):
    """The pip step of the node's image in a bare environment; hosts are loopback addresses."""
    venv = tmp_path / "folkman"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (install,) = [
        rest for name, rest in steps(IMAGES[1]) if name == "RUN" and "pip install" in rest
    ]
    words = shlex.split(install.replace("/opt/folkman", str(venv)))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if "NewConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr

    place = {"/plan": str(DOCKER), "/cluster": str(tmp_path)}
    hosts = [f"127.0.0.{number + 11}" for number in range(5)]
    plan = COMPOSE["services"]["plan"]
    words = [here(word, place) for word in (*plan["entrypoint"], *plan["command"][:2])]
    subprocess.run([sys.executable, *words[1:], *hosts], check=True, capture_output=True)
    again = subprocess.run(
        [sys.executable, *words[1:], *hosts], check=True, capture_output=True, text=True
    )
    assert "stays as it is" in again.stdout

    entry = [str(venv / "bin" / word) for word in json.loads(last(IMAGES[1], "ENTRYPOINT"))]
    environment = {key: os.environ[key] for key in ("HOME", "LANG") if key in os.environ}
    nodes = []
    for name, service in NODES.items():
        log = (tmp_path / f"{name}.log").open("w")
        command = [*entry, *(here(word, place) for word in service["command"])]
        nodes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        log.close()
    codes = [node.wait(timeout=180) for node in nodes]

    assert codes == [0] * 5, (tmp_path / "node-0.log").read_text()[-2000:]
    for name in NODES:
        home = tmp_path / "run" / "nodes" / name
        health = json.loads((home / "health.json").read_text())
        assert health["state"] == "done"
        assert health["counts"]["taken"] > 0
        assert health["memory_peak_bytes"] < 192 * 2**20  # mem_limit of the compose file
        assert (home / "final.safetensors").is_file()


def here(word, place):
    """Return a path of a container as it is in this test."""
    for inside, outside in place.items():
        if word == inside or word.startswith(f"{inside}/"):
            return outside + word.removeprefix(inside)
    return word
