"""Nodes put together and put on a machine: the process behind `folkman node`, and a local cluster of them."""

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.config.build import build_problem, slot_seconds
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network
from folkman.record.cluster import ClusterFolder, NodeFolder, is_alive
from folkman.record.folder import RunFolder
from folkman.runtime import loops
from folkman.runtime.assembly import (
    NodeConfig,
    Task,
    address,
    build,
    load_guest,
    load_shard,
    read_node,
    read_task,
    save_shard,
    write_toml,
)
from folkman.runtime.codec import HEADER_BYTES, SERVER
from folkman.runtime.daemon import Daemon, Settings
from folkman.runtime.emulation import Emulation, Trips
from folkman.runtime.identity import Identity, Members, init, issue, name_of, number_of
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Node, ServerNode, Wire
from folkman.runtime.telemetry import Logger, MetricsServer
from folkman.runtime.transport import Security

__all__ = ["down", "make_cluster", "run_node", "start"]

PORT = 7440
"""Where nodes on machines of their own listen."""


def run_node(path: Path) -> int:
    """Be the node of a file until done or stopped; return the exit code."""
    _give_memory_back()
    config = read_node(path)
    task = read_task(config.config, config.label, config.seed)
    jax.config.update("jax_enable_x64", task.comparison.precision == "float64")
    logger = Logger(name_of(config.number), insecure=config.insecure)
    daemon, loop = assemble(config, task, logger)

    def ask(number: int, _: object) -> None:
        daemon.asked = signal.Signals(number).name

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    faulthandler.register(signal.SIGUSR1)  # kill -USR1: where every thread is
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes does not end a daemon
    metrics = MetricsServer(address(config.metrics), daemon.facts) if config.metrics else None
    if metrics:
        logger.say("metrics", port=metrics.port)
    code = daemon.run(loop)
    if metrics:
        metrics.close()
    return code


def _give_memory_back() -> None:
    """Let glibc return freed megabytes to the system at once.

    By default it raises its own limit with every large block that is freed, and a hundred threads each keep a heap:
    sixteen nodes of the paper's CNN then hold twice what they use.
    """
    mmap_threshold, arena_max = -3, -8  # M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 1 << 20)
        library.mallopt(arena_max, 2)


def assemble(config: NodeConfig, task: Task, logger: Logger) -> tuple[Daemon, Any]:
    """Build a node with everything around it, and the loop that it lives in."""
    me, shares = config.number, np.array(config.samples) / sum(config.samples)
    guest = config.guest
    problem = load_shard(config.shard, task) if guest is None else load_guest(guest, config.shard, task)
    algorithm, network = build(task, problem)
    require((algorithm.server is not None) or me != SERVER, f"'{task.label}' has no server; leave this node out")
    security = None
    if config.certs is not None:
        identity = Identity(config.certs, me)
        security = Security(identity, Members(config.certs / "members.json", identity.ca))
    checks = Checks(security.members.verify if security else None, config.largest)
    dtype = config.wire if config.wire == "float16" else None
    wire = Wire(task.run, security.identity.sign if security else None, checks, dtype)
    if me == SERVER:
        node: Node | ServerNode = ServerNode(problem.initial, algorithm, shares, seed=task.seed, wire=wire)
    else:
        node = Node(me, problem, algorithm, shares, seed=task.seed, wire=wire)
    slot_s = config.slot_s if config.slot_s is not None else slot_seconds(task.comparison, problem)
    config = config.model_copy(update={"slot_s": slot_s if config.radio == "emulated" or config.slot_s else 0.0})
    air, trips = _air(config, task, network, node)
    steps = task.comparison.slots if config.steps is None else config.steps or None
    settings = Settings(
        config.folder,
        task.fingerprint,
        steps=None if me == SERVER else steps,
        slot_s=config.slot_s or 0.0,
        save_every_s=config.save_every_s,
        period_timeout_s=config.period_timeout_s,
        start_wait_s=config.start_wait_s,
        linger_s=config.linger_s,
        threshold_bit_s=config.threshold_bit_s,
        shared_medium=config.shared_medium,
        timeline=config.timeline,
    )
    transport = _transport(config, task, node, security)
    members = security.members if security else None
    daemon = Daemon(node, transport, settings, logger, members=members, emulation=air, trips=trips)
    return daemon, _loop_of(algorithm, node, air)


def _air(
    config: NodeConfig, task: Task, network: Network, node: Node | ServerNode
) -> tuple[Emulation | None, Trips | None]:
    if config.radio != "emulated":
        return None, None
    algorithm, nodes = node.algorithm, len(config.samples)
    bits = node.mailbox.payload.shape[1] * network.bits_per_parameter
    if algorithm.server is not None or node.mailbox.round:
        star = algorithm.server is not None
        return None, Trips(network, nodes, star=star, seed=task.seed, message_bits=bits)
    return Emulation(network, nodes, node.index, seed=task.seed, message_bits=bits), None


def _loop_of(algorithm: Algorithm, node: Node | ServerNode, air: Emulation | None) -> Any:
    if isinstance(node, ServerNode):
        return loops.serving
    if algorithm.server is not None or node.mailbox.round:
        return loops.in_rounds
    return loops.emulated if air is not None else loops.alone


def _transport(config: NodeConfig, task: Task, node: Node | ServerNode, security: Security | None) -> Any:
    addresses = {number_of(name): address(text) for name, text in config.peers.items()}
    lacking = [name_of(j) for j in node.neighbours if j not in addresses]
    require(not lacking, f"[peers] lacks {', '.join(lacking)}; every neighbour needs an address")
    near = {j: addresses[j] for j in node.neighbours}
    largest = HEADER_BYTES + 8 * max(node.mailbox.payload.shape[1], 8192)
    options = {"run": task.run, "largest_bytes": largest, "security": security}
    if config.transport == "tcp":
        from folkman.runtime.tcp import TcpTransport

        return TcpTransport(config.number, address(config.listen), near, **options)
    from folkman.runtime.zenoh import ZenohTransport

    return ZenohTransport(config.number, address(config.listen), near, scouting=config.scouting, **options)


def make_cluster(root: Path, task: Task, options: dict[str, Any], hosts: Sequence[str] = ()) -> list[Path]:
    """Write a run folder with a file, a shard and certificates for each node; return the nodes' folders.

    `hosts` are the addresses of the nodes, a server's last; without, all are on this machine.
    """
    comparison = task.comparison
    problem = build_problem(comparison, task.seed, prepare=False)
    algorithm, _ = build(task, problem)
    from folkman.config.comparison import to_toml
    from folkman.config.own_code import bundled, write_bundle

    RunFolder.create(root, to_toml(bundled(comparison)))
    write_bundle(comparison, root)
    cluster = ClusterFolder(root)
    numbers = [*range(comparison.nodes), *([SERVER] if algorithm.server is not None else [])]
    places = [(host, PORT) for host in hosts] or [("127.0.0.1", port) for port in _free_ports(len(numbers))]
    require(len(places) == len(numbers), f"expected {len(numbers)} hosts, one a node, got {len(places)}")
    at = dict(zip(numbers, places, strict=True))
    secure = not options.get("insecure")
    if secure:
        init(cluster.certs, days=365)
    made = []
    for number in numbers:
        home = cluster.node(name_of(number))
        home.root.mkdir(parents=True)
        if secure:
            issue(cluster.certs, number, (at[number][0], "localhost"))
        save_shard(home.shard, problem, None if number == SERVER else number, _classes(problem))
        table = {
            "node": "server" if number == SERVER else number,
            "config": f"../../{RunFolder(root).config.name}",
            "label": task.label,
            "seed": task.seed,
            "shard": home.shard.name,
            "samples": [int(count) for count in problem.count],
            "listen": f"{at[number][0]}:{at[number][1]}",
            "certs": f"../../{cluster.certs.name}" if secure else None,
            **options,
            "peers": {name_of(other): f"{host}:{port}" for other, (host, port) in at.items() if other != number},
        }
        write_toml(home.config, table)
        made.append(home.root)
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
    files.pid.write_text(f"{process.pid}\n")
    return process


def down(root: Path, patience_s: float = 15.0) -> list[dict[str, Any]]:
    """Ask the nodes of a cluster to stop; end those that do not."""
    cluster = ClusterFolder(root)
    standing = cluster.standing()
    pids = [each["pid"] for each in standing if each["alive"]]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    end_s = time.monotonic() + patience_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end_s:
        time.sleep(0.1)
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
    return cluster.standing()
