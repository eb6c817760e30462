"""Many nodes on this machine: `folkman up`, `status`, `down`, and the model's measures."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.arrays import jnp
from folkman.checks import need, require
from folkman.config.build import build_problem
from folkman.config.comparison import to_toml
from folkman.config.own_code import bundled, write_bundle
from folkman.config.text import dump
from folkman.problem.objective import model_weights
from folkman.problem.problem import Problem
from folkman.record.cluster import (
    GOING,
    SILENT,
    STARTING,
    ClusterFolder,
    NodeFolder,
    Process,
    is_alive,
)
from folkman.record.folder import RunFolder
from folkman.record.json_file import Json, write_text
from folkman.runtime.assembly import (
    NodeConfig,
    Task,
    build,
    carried,
    check_keys,
    read_node,
    read_task,
    use_precision,
)
from folkman.runtime.codec import SERVER
from folkman.runtime.disk import FolderDisk, holder_of
from folkman.runtime.durable import read_state
from folkman.runtime.entrance import Address
from folkman.runtime.identity import init, issue, name_of
from folkman.runtime.shards import classes_of, save_shard
from folkman.runtime.state import read_arrays
from folkman.runtime.ways import way_of

__all__ = ["Cluster", "await_start", "check_options", "down", "evaluate", "last_params"]
__all__ += ["make_cluster", "node_table", "places", "read_cluster", "start"]

KILLED_S = 5.0
"""How long the system may take to end a process that was killed."""
PORT = 7440
"""Where nodes on machines of their own listen."""
DOOR = 7600
"""Where they listen for operators."""


def make_cluster(
    root: Path,
    task: Task,
    options: Json,
    hosts: Sequence[str] = (),
    operator: str | None = None,
) -> list[Path]:
    """Write a run folder with a file, a shard and certificates for each node.

    Return the nodes' folders.

    `hosts` are the addresses of the nodes, a server's last; without, all are on this machine.
    `operator` is who may look at the nodes by `folkman fleet` and `fleet.toml`.
    """
    comparison = task.comparison
    problem = build_problem(comparison, task.seed, prepare=False)
    algorithm, network = build(task, problem, emulated=options.get("radio") == "emulated")
    if carried(algorithm, network) == "sum":
        from folkman.runtime.fresh_assembly import trusted_with_sums  # here: few clusters have sums

        trusted_with_sums("sum", options.get("trust", {}).get("sums", ()), comparison.nodes)
    RunFolder.create(root, to_toml(bundled(comparison)))
    write_bundle(comparison, root)
    cluster = ClusterFolder(root)
    numbers = [*range(comparison.nodes), *way_of(algorithm).servers()]
    at = places(numbers, hosts, PORT)
    secure = not options.get("insecure")
    if secure:
        init(cluster.certs, days=365)
    doors = {} if operator is None else _doors(cluster, places(numbers, hosts, DOOR), operator)
    made = []
    for number in numbers:
        home = cluster.node(name_of(number))
        home.root.mkdir(parents=True)
        if secure:
            issue(cluster.certs, number, (at[number][0], "localhost"))
        save_shard(home.shard, problem, None if number == SERVER else number, classes_of(problem))
        files = {
            "config": f"../../{RunFolder(root).config.name}",
            "shard": home.shard.name,
            "certs": f"../../{cluster.certs.name}" if secure else None,
        }
        door = {"operator": {**options.get("operator", {}), **doors[number]}} if doors else {}
        table = node_table(task, number, problem, at, {**files, **options, **door})
        write_text(home.config, dump(table))
        made.append(home.root)
    return made


def node_table(
    task: Task, number: int, problem: Problem, at: dict[int, Address], more: Json
) -> Json:
    """Return what the file of one node says; `at` has the addresses of all."""
    return {
        "node": "server" if number == SERVER else number,
        "label": task.label,
        "seed": task.seed,
        "samples": [int(count) for count in problem.count],
        "listen": f"{at[number][0]}:{at[number][1]}",
        **more,
        "peers": {
            name_of(other): f"{host}:{port}"
            for other, (host, port) in at.items()
            if other != number
        },
    }


def places(numbers: Sequence[int], hosts: Sequence[str], port: int) -> dict[int, Address]:
    """Return an address for each node: on hosts of their own, or free ones of this machine."""
    places = [(host, port) for host in hosts] or [
        ("127.0.0.1", port) for port in _free_ports(len(numbers))
    ]
    require(
        len(places) == len(numbers),
        f"expected {len(numbers)} hosts, one a node, got {len(places)}; give --host once for each, "
        "or set nodes",
    )
    return dict(zip(numbers, places, strict=True))


def _doors(cluster: ClusterFolder, at: dict[int, Address], operator: str) -> dict[int, Json]:
    """Make an operator and the file of its fleet; return the table `operator` of each node."""
    from folkman.runtime.fleet.addresses import write_fleet
    from folkman.runtime.operators import make_operator

    make_operator(cluster.certs, operator, days=365)
    names = {name_of(number): place for number, place in at.items()}
    write_fleet(cluster.fleet, names, cluster.certs.name, operator)
    return {number: {"listen": f"{host}:{port}"} for number, (host, port) in at.items()}


def check_options(options: Json, nodes: int) -> None:
    """Refuse, before a folder is made, what would end the nodes of one machine at their start."""
    check_keys(options)
    need("blake3")
    if options.get("transport", "zenoh") == "zenoh":
        need("zenoh")
    if not options.get("insecure"):
        need("cryptography.x509")
    require(
        not (options.get("insecure") and options.get("operator")),
        "operators come by certificates, and --insecure has none; leave out one of the two",
    )
    door = str((options.get("operator") or {}).get("listen", ":0")).rpartition(":")[2]
    require(
        door == "0" or nodes == 1,
        f"expected a port for operators for each of {nodes} nodes, got the one port {door} for "
        "all; write --operator NAME, and each node gets a free one",
    )
    port = str(options.get("metrics") or ":0").rpartition(":")[2]
    require(
        port == "0" or nodes == 1,
        f"expected a metrics port for each of {nodes} nodes, got the one port {port} for all; "
        "write --node-set metrics=127.0.0.1:0, and each node logs the free port that it takes",
    )


def await_start(root: Path, patience_s: float = 20.0) -> list[Json]:
    """Wait until each node of a cluster has begun to learn or has ended; return how they stand."""
    cluster, end_s = ClusterFolder(root), time.monotonic() + patience_s
    while True:
        found = cluster.standing()
        starting = any(each["alive"] and each["state"] == STARTING for each in found)
        if not starting or time.monotonic() > end_s:
            return found
        time.sleep(0.2)


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
    """Start the node of a folder as a process of its own, by a command `within` if given.

    Its log goes to node.log.
    """
    files = NodeFolder(home)
    with files.log.open("ab") as log:
        process = subprocess.Popen(
            [*within, sys.executable, "-m", "folkman", "node", "--config", str(files.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=environment,
        )
    files.note(Process.known(process.pid))
    return process


def down(root: Path, patience_s: float = 15.0) -> list[Json]:
    """Ask the nodes of a cluster to stop; end those that do not.

    Return how each stands. `left` says of a node that may still run why that is so, else None.
    """
    cluster = ClusterFolder(root)
    found = [process for node in cluster.nodes() if (process := node.process()) is not None]
    for process in found:
        _send(process, signal.SIGTERM)
    _await_end(found, patience_s)
    for process in found:
        _send(process, signal.SIGKILL)
    _await_end(found, KILLED_S)
    nodes = [(node, node.standing()) for node in cluster.nodes()]
    return [standing | {"left": _left(node, standing)} for node, standing in nodes]


def _left(node: NodeFolder, standing: Json) -> str | None:
    """Return why a node may still run after all was done to stop it; None if it does not."""
    if standing["alive"]:
        return f"process {standing['pid']} has not ended; look why: ps -p {standing['pid']}"
    if holder := holder_of(node.lock):
        return f"its folder is in use by {holder}, which its file pid does not name; stop that one"
    if standing["pid"] is None and node.health.is_file() and standing["state"] in (*GOING, SILENT):
        return "its process is not known on this machine; if it runs on another one, stop it there"
    return None


def _await_end(processes: list[Process], patience_s: float) -> None:
    end_s = time.monotonic() + patience_s
    while any(is_alive(process) for process in processes) and time.monotonic() < end_s:
        time.sleep(0.1)


def _send(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process if it still runs; never to another one of its number."""
    try:
        handle = os.pidfd_open(process.pid)  # from here on the number is not given to another
    except OSError:
        return
    try:
        if is_alive(process):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:  # it has ended meanwhile
        pass
    finally:
        os.close(handle)


class Cluster(NamedTuple):
    """What a cluster was made of: its nodes' files, its task, and the problem of all of them."""

    configs: list[NodeConfig]
    task: Task
    problem: Problem
    algorithm: Algorithm


def read_cluster(root: Path) -> Cluster:
    """Read the files of a cluster and build its problem anew, test data too."""
    configs = [read_node(node.config) for node in ClusterFolder(root).nodes()]
    task = read_task(configs[0].config, configs[0].label, configs[0].seed)
    use_precision(task)
    problem = build_problem(task.comparison, task.seed)
    return Cluster(configs, task, problem, build(task, problem)[0])


def last_params(config: NodeConfig, task: Task) -> NDArray:
    """Return a node's last parameters: its result, or where it was stopped."""
    files = NodeFolder(config.folder)
    if files.final.is_file():
        return read_arrays(files.final, task.fingerprint)["params"]
    kept = read_state(FolderDisk(config.folder), task.fingerprint).arrays
    if kept is not None:
        return kept["params"]
    raise ValueError(
        f"{config.folder} has no result yet; wait for the node, or stop it: folkman down"
    )


def evaluate(root: Path) -> dict[str, float | None]:
    """Return the measures of the network's model, that of the nodes or the server's.

    What is not finite is None.
    """
    configs, task, problem, algorithm = read_cluster(root)
    last = {config.number: last_params(config, task) for config in configs}
    weight = np.asarray(model_weights(problem, evenly=algorithm.declares.evenly))
    model = (
        last[SERVER]
        if SERVER in last
        else sum(weight[i] * last[i] for i in range(problem.num_nodes))
    )
    worth = problem.evaluate(jnp.asarray(model, problem.initial.dtype))
    return {
        name: float(value) if np.isfinite(value) else None
        for name, value in worth._asdict().items()
    }
