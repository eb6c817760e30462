"""One node from its file: what `folkman node` reads, what it builds, and the process it becomes.

    node = 0                          # or "server"
    config = "config.toml"            # what is learnt: the very file that `folkman run` takes
    shard = "shard.npz"               # this node's own samples
    samples = [240, 240, 239]         # how many each node holds: alpha_i
    listen = "192.0.2.10:7440"
    certs = "certs"                   # or insecure = true

    [peers]
    node-1 = "192.0.2.11:7440"
    node-2 = "192.0.2.12:7440"

Paths are relative to the file. Nothing but parameters leaves a node.
"""

import errno
import faulthandler
import hashlib
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

import folkman
from folkman.algorithm.base import Algorithm
from folkman.arithmetic import Arithmetic, choose, chosen
from folkman.arrays import jax
from folkman.checks import nearest, require
from folkman.config.build import pair, slot_seconds
from folkman.config.choices import ConfigError, describe
from folkman.config.comparison import Comparison, by_content, resolve, to_toml
from folkman.config.text import read
from folkman.machine import hold_little
from folkman.packing.packing import message_bits, width_of
from folkman.problem.learnable import Learnable
from folkman.problem.objective import shares
from folkman.radio.delivery import Network
from folkman.record.cluster import NodeFolder, Process
from folkman.record.json_file import Json
from folkman.runtime.captured import is_on, watch_for_faults
from folkman.runtime.codec import HEADER_BYTES, SERVER
from folkman.runtime.core.core import Core
from folkman.runtime.core.pace import Pace
from folkman.runtime.core.settings import Settings
from folkman.runtime.disk import FolderDisk, FolderLock, FolderTakenError
from folkman.runtime.drive import Drive, Home
from folkman.runtime.durable import read_members_seen, remove_parts, save_members_seen
from folkman.runtime.entrance import read_little
from folkman.runtime.identity import Identity, Members, name_of, number_of
from folkman.runtime.mailbox import Checks
from folkman.runtime.node import Node, Wire
from folkman.runtime.shards import load_guest, load_shard
from folkman.runtime.telemetry import Logger, MetricsServer
from folkman.runtime.transport import Security, Transport
from folkman.runtime.ways import PeerWay, way_of

if TYPE_CHECKING:
    from folkman.runtime.captured import Captured
    from folkman.runtime.server_node import ServerNode

__all__ = [
    "NodeConfig",
    "Task",
    "Trust",
    "address",
    "assemble",
    "build",
    "carried",
    "read_node",
    "read_task",
    "run_node",
    "task_of",
]


class Trust(BaseModel):
    """Who is trusted with what cannot be checked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sums: Literal["members"] | tuple[str, ...] = ()

    @field_validator("sums")
    @classmethod
    def _names(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for name in value if isinstance(value, tuple) else ():
            number_of(name)
        return value


class OperatorOptions(BaseModel):
    """The door for operators; without this table there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: str
    known: tuple[str, ...] = ()
    stay_s: float = Field(86_400.0, ge=0)

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        address(value)
        return value

    @field_validator("known")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            ip_address(each)
        return value


class NodeConfig(BaseModel):
    """One node. The fields are the keys of its file; paths are made absolute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: int | Literal["server"]
    config: Path
    shard: Path
    guest: Path | None = None
    samples: tuple[int, ...] = Field(min_length=1)
    listen: str
    peers: dict[str, str]
    label: str | None = None
    seed: int | None = None
    transport: Literal["zenoh", "tcp"] = "zenoh"
    scouting: bool = False
    radio: Literal["measured", "emulated"] = "measured"
    slot_s: float | None = Field(None, ge=0, allow_inf_nan=False)
    steps: int | None = Field(None, ge=0)
    folder: Path = Path()
    certs: Path | None = None
    insecure: bool = False
    arithmetic: Arithmetic = "auto"
    wire: Literal["float32", "float16"] = "float32"
    largest: float = Field(1e6, gt=0)
    farthest: float = Field(10.0, ge=0)
    threshold_bit_s: float = Field(0.0, ge=0)
    shared_medium: bool = True
    save_every_s: float = Field(2.0, gt=0)
    period_timeout_s: float = Field(10.0, gt=0)
    start_wait_s: float = Field(30.0, ge=0)
    linger_s: float = Field(30.0, ge=0)
    metrics: str | None = None
    timeline: bool = True
    operator: OperatorOptions | None = None
    trust: Trust = Trust()
    past: int | None = Field(None, ge=4)

    @field_validator("listen", "metrics")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None:
            address(value)
        return value

    @property
    def number(self) -> int:
        """Return the node's number on the wire."""
        return SERVER if self.node == "server" else int(self.node)


class Task(NamedTuple):
    """What a run on devices learns: one algorithm of a comparison under one seed."""

    comparison: Comparison
    label: str
    seed: int
    run: int  # the same for all nodes of the run, and of no other
    fingerprint: str


def address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT."""
    host, _, port = text.rpartition(":")
    require(bool(host) and port.isdigit(), f"expected HOST:PORT, got '{text}'")
    require(int(port) < 65536, f"a port lies in 0 .. 65535, got '{text}'")
    return host.strip("[]"), int(port)


def check_keys(options: Json) -> None:
    """Refuse keys that every node of a cluster would refuse; see `folkman up --node-set`."""
    place: Json = {"node": 0, "config": "c", "shard": "s", "samples": [1], "listen": "h:0"}
    given = {key: value for key, value in options.items() if value is not None}
    _node_config({**place, "peers": {}, **given}, "--node-set")


def _node_config(raw: Json, where: str) -> NodeConfig:
    for key in raw:
        if key not in NodeConfig.model_fields:
            raise ConfigError(
                f"unknown key '{key}' in {where}; {nearest(key, NodeConfig.model_fields)}"
            )
    try:
        return NodeConfig(**raw)
    except ValidationError as error:
        raise ConfigError(describe(error, "")) from None


def read_node(path: Path) -> NodeConfig:
    """Read a node's file, or say what is wrong with it."""
    found = _node_config(read(path), str(path))
    here = path.resolve().parent
    paths = {
        key: here / each
        for key in ("config", "shard", "guest", "folder", "certs")
        if (each := getattr(found, key))
    }
    found = found.model_copy(update={"folder": here, **paths})
    require(
        found.insecure or found.certs is not None,
        f"{path} has no certs; make some, or ask for insecure = true",
    )
    require(
        not (found.insecure and found.certs), f"{path} has certs and insecure = true; choose one"
    )
    require(
        found.operator is None or found.certs is not None,
        f"{path} has [operator] and insecure = true; operators come by certificates: make some",
    )
    inside = found.node == "server" or 0 <= int(found.node) < len(found.samples)
    require(
        inside,
        f"node {found.node} is not among the {len(found.samples)} of samples; number nodes from 0",
    )
    return found


def task_of(comparison: Comparison, label: str | None = None, seed: int | None = None) -> Task:
    """Choose one algorithm and one seed of a comparison; the first of each unless told."""
    labels = [table["label"] for table in comparison.algorithm]
    name = labels[0] if label is None else label
    require(name in labels, f"there is no label '{name}'; {nearest(name, labels)}")
    seed = comparison.seeds[0] if seed is None else seed
    require(seed in comparison.seeds, f"there is no seed {seed}; known: {list(comparison.seeds)}")
    # own code may lie elsewhere on another machine
    text = f"{to_toml(by_content(comparison))}\n{name}\n{seed}"
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    return Task(comparison, name, seed, int(fingerprint[:16], 16), fingerprint)


def read_task(path: Path, label: str | None, seed: int | None) -> Task:
    """Read what is learnt from a file; `build` tries the builders."""
    return task_of(resolve(read(path), try_builders=False), label, seed)


def use_precision(task: Task) -> None:
    """Let JAX compute in the precision of a task; call it before any array is made."""
    jax.config.update("jax_enable_x64", task.comparison.precision == "float64")


def build(task: Task, problem: Learnable, *, emulated: bool = False) -> tuple[Algorithm, Network]:
    """Build the algorithm and its network, and refuse what devices cannot run.

    `emulated`: the network is to be emulated between them.
    """
    labels = [table["label"] for table in task.comparison.algorithm]
    algorithm, network = pair(task.comparison, problem, labels.index(task.label), task.seed)
    way = way_of(algorithm)
    way.check(task.label)
    way.check_memory(network.packing, emulated=emulated)
    require(
        network.packing.name != "bfloat16" or chosen().name == "jax",
        "messages in bfloat16 need JAX, and this node computes with NumPy; take float16, or "
        "pip install 'folkman-node[jax]'",
    )
    if carried(algorithm, network) != "copy":
        from folkman.runtime.fresh_assembly import check_fresh  # here: few nodes are of its kind

        check_fresh(algorithm, network, emulated=emulated)
    return algorithm, network


def carried(algorithm: Algorithm, network: Network) -> str:
    """Return what messages hold: in rounds and around a server always copies."""
    return network.message if type(way_of(algorithm)) is PeerWay else "copy"


def assemble(config: NodeConfig, task: Task, logger: Logger) -> Drive:
    """Build a node with everything around it. Nothing is opened or written yet."""
    problem = _problem(config, task)
    algorithm, network = build(task, problem, emulated=config.radio == "emulated")
    security = _security(config)
    node = _node(config, task, problem, (algorithm, network), security)
    slot_s = config.slot_s if config.slot_s is not None else slot_seconds(task.comparison, problem)
    paced = config.radio == "emulated" or bool(config.slot_s)
    steps = task.comparison.slots if config.steps is None else config.steps or None
    settings = Settings(
        steps=None if config.number == SERVER else steps,
        slot_s=slot_s if paced else 0.0,
        save_every_s=config.save_every_s,
        period_timeout_s=config.period_timeout_s,
        start_wait_s=config.start_wait_s,
        linger_s=config.linger_s,
        threshold_bit_s=config.threshold_bit_s,
        shared_medium=config.shared_medium,
    )
    members = security.members if security else None
    core = Core(
        node,
        settings,
        _pace(config, task, network, node),
        verify=members.verify if members else None,
    )
    about = {"version": folkman.__version__, "method": algorithm.name, "label": task.label}
    about |= {"arithmetic": chosen().name}
    home = Home(config.folder, task.fingerprint, config.timeline, about)
    carrier = _transport(config, task, node, security)
    drive = Drive(core, carrier, home, logger, members=members)
    if config.operator is not None and security is not None:
        from folkman.runtime.fleet.assembly import add_door  # here: few nodes have one

        add_door(drive, config, task, security)
    return drive


def _problem(config: NodeConfig, task: Task) -> Learnable:
    if config.guest is None:
        return load_shard(config.shard, task.comparison, task.seed)
    comparison = task.comparison
    return load_guest(
        config.guest, config.shard, comparison.batch, task.seed, sampling=comparison.sampling
    )


def _security(config: NodeConfig) -> Security | None:
    if config.certs is None:
        return None
    identity = Identity(config.certs, config.number)
    seen = read_members_seen(FolderDisk(config.folder))
    return Security(identity, Members(config.certs / "members.json", identity.ca, seen))


def _node(
    config: NodeConfig,
    task: Task,
    problem: Learnable,
    built: tuple[Algorithm, Network],
    security: Security | None,
) -> "Node | ServerNode":
    algorithm, network = built
    me, alpha = config.number, shares(config.samples, task.comparison.objective)
    serves = me in way_of(algorithm).servers()
    require(serves or me != SERVER, f"'{task.label}' has no server; leave this node out")
    checks = Checks(security.members.verify if security else None, config.largest, config.farthest)
    dtype = config.wire if config.wire == "float16" else None
    sign = security.identity.sign if security else None
    wire = Wire(task.run, sign, checks, dtype, network.packing)
    if carried(algorithm, network) != "copy":
        from folkman.runtime.fresh_assembly import fresh_node

        return fresh_node(config, task, problem, built, wire)
    if serves:
        from folkman.runtime.server_node import ServerNode  # here: one node of a run is one

        return ServerNode(problem.initial, algorithm, alpha, seed=task.seed, wire=wire)
    return Node(me, problem, algorithm, alpha, seed=task.seed, wire=wire)


def _pace(config: NodeConfig, task: Task, network: Network, node: "Node | ServerNode") -> Pace:
    """Build when the node learns and sends, with its view of an emulated air."""
    if node.message != "copy":
        from folkman.runtime.fresh_assembly import fresh_pace

        return fresh_pace(config, task, network, node)  # type: ignore[arg-type] - a fresh one
    emulation, trips = None, None
    if config.radio == "emulated":
        payload = node.mailbox.payload
        width = width_of(payload.dtype)
        bits = message_bits(node.packing, payload.shape[1], node.dim, width)
        air = {"seed": task.seed, "message_bits": bits}
        emulation, trips = node.way.air(network, len(config.samples), node.index, **air)
    if isinstance(node, Node):
        return node.way.pace(emulation, trips)
    from folkman.runtime.core.rounds import Serving  # here: one node of a run is one

    return Serving(trips)


def _transport(
    config: NodeConfig, task: Task, node: "Node | ServerNode", security: Security | None
) -> Transport:
    addresses = {number_of(name): address(text) for name, text in config.peers.items()}
    lacking = [name_of(j) for j in node.neighbours if j not in addresses]
    require(not lacking, f"[peers] lacks {', '.join(lacking)}; every neighbour needs an address")
    near = {j: addresses[j] for j in node.neighbours}
    nodes, size = len(config.samples), max(node.mailbox.payload.shape[1], 8192)
    largest = HEADER_BYTES + 8 * size
    if node.message != "copy":
        from folkman.runtime.fresh_codec import largest_bytes

        largest = largest_bytes(nodes, size)
    options = {"run": task.run, "largest_bytes": largest, "security": security}
    if config.transport == "tcp":
        from folkman.runtime.tcp import TcpTransport

        return TcpTransport(config.number, address(config.listen), near, **options)
    from folkman.runtime.zenoh import ZenohTransport

    return ZenohTransport(
        config.number, address(config.listen), near, scouting=config.scouting, **options
    )


WRONG_INPUT = 2
"""The exit code of a node that its file or its machine does not let begin."""


def run_node(path: Path, output: "Captured | None" = None) -> int:
    """Be the node of a file until done or stopped; return the exit code.

    `output` is what libraries print, which the log then has too.
    """
    hold_little()
    read_little()
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", 0.0
    )  # a start that compiles nothing is small
    config = read_node(path)
    choose(config.arithmetic)
    task = read_task(config.config, config.label, config.seed)
    use_precision(task)
    stream = output.log if output else None
    logger = Logger(name_of(config.number), insecure=config.insecure, stream=stream)
    if output is not None:
        output.tell(logger)
    try:
        lock = FolderLock(NodeFolder(config.folder).lock)
    except FolderTakenError as error:
        logger.say("not started", level="error", text=str(error))
        return WRONG_INPUT
    with suppress(OSError):  # a full disk: the node runs all the same
        NodeFolder(config.folder).note(Process.known(os.getpid()))
    try:
        return _run_alone(config, task, logger)
    finally:
        lock.close()


def _run_alone(config: NodeConfig, task: Task, logger: Logger) -> int:
    """Be the node of a folder that no other process has."""
    if text := _port_taken(config.listen):
        logger.say("not started", level="error", text=text)
        return WRONG_INPUT
    disk = FolderDisk(config.folder)
    remove_parts(disk)
    drive = assemble(config, task, logger)
    if drive.members is not None:
        drive.members.remember(partial(save_members_seen, disk))

    def ask(number: int, _: object) -> None:
        drive.ask(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    faults = watch_for_faults(NodeFolder(config.folder).faults, logger) if is_on() else None
    faulthandler.register(signal.SIGUSR1, faults or sys.stderr)  # kill -USR1: where all threads are
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes does not end a daemon
    metrics = None
    if config.metrics:
        try:
            metrics = MetricsServer(address(config.metrics), drive.facts)
        except OSError as error:
            advice = "give every node another port, or port 0 for a free one"
            text = f"could not listen for metrics on {config.metrics}: {error.strerror}; {advice}"
            logger.say("not started", level="error", text=text)
            return WRONG_INPUT
        logger.say("metrics", port=metrics.port)
    try:
        return drive.run()
    finally:
        if metrics:
            metrics.close()


def _port_taken(listen: str) -> str:
    """Return why a node cannot listen where it should; empty: it can."""
    host, port = address(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:  # it may come yet: the transport says so, with code 4
            return ""
        advice = "choose another address, or end who has it"
        return f"cannot listen on {listen}: {error.strerror}; {advice}"
    return ""
