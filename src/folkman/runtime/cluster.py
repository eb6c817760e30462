"""Many nodes on this machine: `folkman up`, `status`, `down`, and what the model of a cluster is worth."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.config.build import build_problem
from folkman.config.comparison import to_toml
from folkman.config.text import dump
from folkman.files import write_whole
from folkman.problem.problem import Problem
from folkman.runtime.assembly import NodeConfig, Task, build, read_node, read_task, use_precision
from folkman.runtime.codec import SERVER
from folkman.runtime.identity import init, issue, name_of
from folkman.runtime.shards import save_shard
from folkman.runtime.state import read_arrays

__all__ = ["Cluster", "down", "evaluate", "last_params", "make_cluster", "read_cluster", "start", "status"]

PORT = 7440
"""Where nodes on machines of their own listen."""
FRESH_S = 10.0
"""A health file older than this is of a node that hangs or is gone."""


def make_cluster(root: Path, task: Task, options: dict[str, Any], hosts: Sequence[str] = ()) -> list[Path]:
    """Write a run folder with a file, a shard and certificates for each node; return the nodes' folders.

    `hosts` are the addresses of the nodes, a server's last; without, all are on this machine.
    """
    from folkman.record.folder import RunFolder  # here and not above: it brings pyarrow, and only `up` needs it

    comparison = task.comparison
    problem = build_problem(comparison, task.seed, prepare=False)
    algorithm, _ = build(task, problem)
    folder = RunFolder.create(root, to_toml(comparison))
    numbers = [*range(comparison.nodes), *([SERVER] if algorithm.server is not None else [])]
    places = [(host, PORT) for host in hosts] or [("127.0.0.1", port) for port in _free_ports(len(numbers))]
    require(len(places) == len(numbers), f"expected {len(numbers)} hosts, one a node, got {len(places)}")
    at = dict(zip(numbers, places, strict=True))
    secure = not options.get("insecure")
    if secure:
        init(folder.root / "certs", days=365)
    made = []
    for number in numbers:
        home = folder.root / "nodes" / name_of(number)
        home.mkdir(parents=True)
        if secure:
            issue(folder.root / "certs", number, (at[number][0], "localhost"))
        save_shard(home / "shard.npz", problem, None if number == SERVER else number, _classes(problem))
        table = {
            "node": "server" if number == SERVER else number,
            "config": "../../config.toml",
            "label": task.label,
            "seed": task.seed,
            "shard": "shard.npz",
            "samples": [int(count) for count in problem.count],
            "listen": f"{at[number][0]}:{at[number][1]}",
            "certs": "../../certs" if secure else None,
            **options,
            "peers": {name_of(other): f"{host}:{port}" for other, (host, port) in at.items() if other != number},
        }
        text = dump(table)
        write_whole(home / "node.toml", lambda part, text=text: part.write_text(text, encoding="utf-8"))
        made.append(home)
    return made


def _classes(problem: Problem) -> int:
    """Return the number of classes of a problem with labels, 0 of one with numbers."""
    labels = [np.asarray(y) for y in (problem.y, problem.y_test)]
    known = np.issubdtype(labels[0].dtype, np.integer)
    return 1 + max(int(y.max(initial=0)) for y in labels) if known else 0


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(
    home: Path, environment: dict[str, str] | None = None, within: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """Start the node of a folder as a process of its own, by a command `within` if given; its log goes to node.log."""
    with (home / "node.log").open("ab") as log:
        process = subprocess.Popen(
            [*within, sys.executable, "-m", "folkman", "node", "--config", str(home / "node.toml")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment,
        )
    (home / "pid").write_text(f"{process.pid}\n")
    return process


def status(root: Path) -> list[dict[str, Any]]:
    """Return how each node of a cluster stands."""
    return [_standing(home) for home in _homes(root)]


def _homes(root: Path) -> list[Path]:
    files = sorted((root / "nodes").glob("*/node.toml"))
    require(bool(files), f"expected a cluster that `folkman up` made, {root} is none; check the path")
    return [file.parent for file in files]


def _standing(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / "health.json").read_text(encoding="utf-8"))
        age_s = time.time() - (home / "health.json").stat().st_mtime
    except (FileNotFoundError, ValueError):
        found, age_s = {"node": home.name, "state": "starting"}, 0.0
    pid = int((home / "pid").read_text()) if (home / "pid").is_file() else None
    alive = pid is not None and _alive(pid)
    state = found["state"]
    if not alive and state in ("starting", "learning"):
        state = "gone"
    elif alive and age_s > FRESH_S:
        state = "silent"
    return {**found, "state": state, "alive": alive, "pid": pid, "health_age_s": round(age_s, 1)}


def _alive(pid: int) -> bool:
    """Tell whether a process is a running folkman node: a number may have been given to another since."""
    try:
        status_text = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return status_text.rpartition(")")[2].split()[0] != "Z" and b"folkman" in command


def down(root: Path, patience_s: float = 15.0) -> list[dict[str, Any]]:
    """Ask the nodes of a cluster to stop; end those that do not."""
    standing = status(root)
    pids = [each["pid"] for each in standing if each["alive"]]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    end_s = time.monotonic() + patience_s
    while any(_alive(pid) for pid in pids) and time.monotonic() < end_s:
        time.sleep(0.1)
    for pid in pids:
        if _alive(pid):
            os.kill(pid, signal.SIGKILL)
    return status(root)


class Cluster(NamedTuple):
    """What a cluster was made of: its nodes' files, its task, and the problem of all of them."""

    configs: list[NodeConfig]
    task: Task
    problem: Problem
    algorithm: Algorithm


def read_cluster(root: Path) -> Cluster:
    """Read the files of a cluster and build its problem anew, test data too."""
    configs = [read_node(home / "node.toml") for home in _homes(root)]
    task = read_task(configs[0].config, configs[0].label, configs[0].seed)
    use_precision(task)
    problem = build_problem(task.comparison, task.seed)
    return Cluster(configs, task, problem, build(task, problem)[0])


def last_params(config: NodeConfig, task: Task) -> NDArray[Any]:
    """Return a node's last parameters: its result, or where it was stopped."""
    for name in ("final.safetensors", "state.safetensors"):
        if (config.folder / name).is_file():
            return read_arrays(config.folder / name, task.fingerprint)["params"]
    raise ValueError(f"{config.folder} has no result yet; wait for the node, or stop it: folkman down")


def evaluate(root: Path) -> dict[str, float | None]:
    """Return the measures of the network's model: sum_i alpha_i w_i, or the server's. What is not finite is None."""
    configs, task, problem, _ = read_cluster(root)
    last = {config.number: last_params(config, task) for config in configs}
    share = np.asarray(problem.share)
    model = last[SERVER] if SERVER in last else sum(share[i] * last[i] for i in range(problem.num_nodes))
    worth = problem.evaluate(jnp.asarray(model, problem.initial.dtype))
    return {name: float(value) if np.isfinite(value) else None for name, value in worth._asdict().items()}
