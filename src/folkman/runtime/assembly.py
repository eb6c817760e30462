"""From a configuration to nodes: what `folkman node`, `up` and `replay` are told, and what they build from it.

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

import hashlib
import runpy
import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from folkman.algorithm.base import Algorithm, Assumption
from folkman.checks import nearest, require
from folkman.config.build import model_problem, pairs
from folkman.config.choices import ConfigError, describe
from folkman.config.comparison import Comparison, resolve, to_toml
from folkman.config.own_code import by_content
from folkman.config.text import read
from folkman.problem.data import DataSet
from folkman.problem.learnable import Learnable
from folkman.problem.problem import Problem
from folkman.radio.delivery import Network
from folkman.runtime.codec import SERVER

__all__ = ["NodeConfig", "Task", "address", "load_guest", "load_shard", "read_node", "save_shard", "task_of"]


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
    wire: Literal["float32", "float16"] = "float32"
    largest: float = Field(1e6, gt=0)
    threshold_bit_s: float = Field(0.0, ge=0)
    shared_medium: bool = True
    save_every_s: float = Field(2.0, gt=0)
    period_timeout_s: float = Field(10.0, gt=0)
    start_wait_s: float = Field(30.0, ge=0)
    linger_s: float = Field(30.0, ge=0)
    metrics: str | None = None
    timeline: bool = True

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
    require(bool(host) and port.isdigit() and int(port) < 65536, f"expected HOST:PORT, got '{text}'")
    return host.strip("[]"), int(port)


def read_node(path: Path) -> NodeConfig:
    """Read a node's file, or say what is wrong with it."""
    raw = read(path)
    for key in raw:
        if key not in NodeConfig.model_fields:
            raise ConfigError(f"unknown key '{key}' in {path}; {nearest(key, NodeConfig.model_fields)}")
    try:
        found = NodeConfig(**raw)
    except ValidationError as error:
        raise ConfigError(describe(error, "")) from None
    here = path.resolve().parent
    paths = {
        key: here / each for key in ("config", "shard", "guest", "folder", "certs") if (each := getattr(found, key))
    }
    found = found.model_copy(update={"folder": here, **paths})
    require(found.insecure or found.certs is not None, f"{path} has no certs; make some, or ask for insecure = true")
    require(not (found.insecure and found.certs), f"{path} has certs and insecure = true; choose one")
    inside = found.node == "server" or 0 <= int(found.node) < len(found.samples)
    require(inside, f"node {found.node} is not among the {len(found.samples)} of samples; number nodes from 0")
    return found


def task_of(comparison: Comparison, label: str | None = None, seed: int | None = None) -> Task:
    """Choose one algorithm and one seed of a comparison; the first of each unless told."""
    labels = [table["label"] for table in comparison.algorithm]
    name = labels[0] if label is None else label
    require(name in labels, f"there is no label '{name}'; {nearest(name, labels)}")
    seed = comparison.seeds[0] if seed is None else seed
    require(seed in comparison.seeds, f"there is no seed {seed}; known: {list(comparison.seeds)}")
    text = f"{to_toml(by_content(comparison))}\n{name}\n{seed}"  # own code may lie elsewhere on another machine
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    return Task(comparison, name, seed, int(fingerprint[:16], 16), fingerprint)


def read_task(path: Path, label: str | None, seed: int | None) -> Task:
    """Read what is learnt from a file."""
    return task_of(resolve(read(path)), label, seed)


def build(task: Task, problem: Learnable) -> tuple[Algorithm, Network]:
    """Build the algorithm and its network, and refuse what devices cannot run."""
    labels = [table["label"] for table in task.comparison.algorithm]
    algorithm, network = pairs(task.comparison, problem, task.seed)[labels.index(task.label)]
    mixing = algorithm.mixing
    require(
        mixing is None or mixing.waits or Assumption.LOCKSTEP not in algorithm.assumes,
        f"'{task.label}' mixes along the radio's schedule, which devices do not share; use another topology",
    )
    return algorithm, network


def save_shard(path: Path, problem: Problem, node: int | None, num_classes: int) -> None:
    """Write the samples of one node; of None, a server, the shape of a sample and no more."""
    from folkman.files import write_whole

    if node is None:
        x, y = (np.zeros((1, *each.shape[2:]), each.dtype) for each in (problem.x, problem.y))
    else:
        count = int(problem.count[node])
        x, y = np.asarray(problem.x[node, :count]), np.asarray(problem.y[node, :count])

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez_compressed(file, x=x, y=y, classes=np.array(num_classes))

    write_whole(path, write)


def load_shard(path: Path, task: Task) -> Problem:
    """Build the problem of one node from its own samples; the common first model comes from the seed."""
    x, y, classes = _read_shard(path)
    data = DataSet(path.stem, x, y, x[:0], y[:0], classes)
    return model_problem(task.comparison, data, [np.arange(len(x))], task.seed)


def load_guest(path: Path, shard: Path, task: Task) -> Learnable:
    """Build the problem of a PyTorch guest: `guest()` of its file returns the module and the loss.

    The seed is set before, so that all nodes begin with the same model; the model of the configuration is not used.
    """
    from folkman.torch import import_torch, problem

    require(path.is_file(), f"expected a guest's Python file, there is no {path}; name it as guest")
    torch = import_torch()
    x, y, _ = _read_shard(shard)
    space = runpy.run_path(str(path))
    require(callable(space.get("guest")), f"expected a function guest() in {path} that returns a module and its loss")
    torch.manual_seed(task.seed)
    module, loss = space["guest"]()
    labels = torch.from_numpy(y)
    labels = labels.long() if np.issubdtype(y.dtype, np.integer) else labels
    return problem(module, loss, [(torch.from_numpy(x), labels)], batch=task.comparison.batch, name=path.stem)


def _read_shard(path: Path) -> tuple[Any, Any, int]:
    require(path.is_file(), f"expected the node's samples, there is no {path}; name its .npz as shard")
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["x"], file["y"], int(file["classes"])
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"expected x, y and classes in {path}: {error}") from None


def write_toml(path: Path, table: dict[str, Any]) -> None:
    """Write a node's file; None is left out."""
    from folkman.config.text import literal
    from folkman.files import write_whole

    plain = {key: value for key, value in table.items() if value is not None and not isinstance(value, dict)}
    lines = [f"{key} = {literal(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{key}]", *(f"{name} = {literal(each)}" for name, each in value.items())]
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
