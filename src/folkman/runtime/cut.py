"""Cut a data set into the shards of boards: `folkman shards`.

    node-0.npz, node-1.npz, ...   x, y and classes of each node, for its owner's eyes alone; a
                                  server's has the shape of a sample and none of them
    manifest.json                 which data, partition and seed; of each file digest, bytes,
                                  samples, and how many of each label

and where the boards have addresses, all that they need besides certificates:

    config.toml, own_code/        what is learnt
    node-0.toml, ...              the file of each node, with a door for operators
    fleet.toml                    where operators reach them

The shards are those that the simulator gives to the nodes: the same code splits the data.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from folkman.checks import require
from folkman.config.build import build_problem
from folkman.config.comparison import to_toml
from folkman.config.own_code import bundled, write_bundle
from folkman.config.text import dump
from folkman.record.cluster import ClusterFolder
from folkman.record.collected import sha256_of
from folkman.record.folder import RunFolder
from folkman.record.json_file import FORMAT, Json, write_json, write_text
from folkman.runtime.assembly import Task, build, check_keys
from folkman.runtime.cluster import DOOR, PORT, node_table, places
from folkman.runtime.codec import SERVER
from folkman.runtime.fleet.addresses import write_fleet
from folkman.runtime.identity import name_of
from folkman.runtime.shards import classes_of, save_shard
from folkman.runtime.ways import way_of

__all__ = ["cut"]


def cut(root: Path, task: Task, hosts: Sequence[str] = (), options: Json | None = None) -> Json:
    """Write the shards of all nodes of a task into a new folder; return the manifest.

    `hosts` are the addresses of the boards, a server's last; `options` more keys of their files.
    """
    require(
        not root.exists() or (root.is_dir() and not any(root.iterdir())),
        f"expected a new or empty folder, {root} is there and not empty; choose another --out",
    )
    comparison = task.comparison
    own: Json = dict(options or {})
    check_keys(own | {"operator": {"listen": f"127.0.0.1:{DOOR}", **own.get("operator", {})}})
    problem = build_problem(comparison, task.seed, prepare=False)
    algorithm, _ = build(task, problem)
    numbers = [*range(comparison.nodes), *way_of(algorithm).servers()]
    at = places(numbers, hosts, PORT) if hosts else {}
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    classes, told = classes_of(problem), {}
    for number in numbers:
        name, path = name_of(number), root / f"{name_of(number)}.npz"
        save_shard(path, problem, None if number == SERVER else number, classes)
        told[name] = _told(path, empty=number == SERVER)
    if at:
        doors = places(numbers, hosts, DOOR)
        write_fleet(
            ClusterFolder(root).fleet, {name_of(i): doors[i] for i in numbers}, "certs", None
        )
        write_text(RunFolder(root).config, to_toml(bundled(comparison)))
        write_bundle(comparison, root)
        for i in numbers:
            files: Json = {"config": RunFolder(root).config.name, "shard": f"{name_of(i)}.npz"}
            files |= {"certs": "certs", "radio": "measured", **own}
            host, port = doors[i]
            files["operator"] = {"listen": f"{host}:{port}", **files.get("operator", {})}
            write_text(root / f"{name_of(i)}.toml", dump(node_table(task, i, problem, at, files)))
    manifest = {
        "format": FORMAT,
        "run": task.fingerprint,
        "label": task.label,
        "seed": task.seed,
        "data": dict(comparison.data),
        "partition": dict(comparison.partition),
        "samples": [int(count) for count in problem.count],
        "nodes": told,
    }
    write_json(root / "manifest.json", manifest)
    (root / "manifest.json").chmod(0o600)
    return manifest


def _told(path: Path, *, empty: bool) -> Json:
    """Return what a manifest says of one shard, read back from its file."""
    with np.load(path, allow_pickle=False) as file:
        x, y, classes = file["x"], file["y"], int(file["classes"])
    labels = None
    if classes and not empty:
        counts = np.bincount(y.astype(np.int64).ravel(), minlength=classes)
        labels = {str(label): int(count) for label, count in enumerate(counts)}
    return {
        "file": path.name,
        "sha256": sha256_of(path),
        "bytes": path.stat().st_size,
        "samples": 0 if empty else len(x),
        "sample_shape": list(x.shape[1:]),
        "dtype": str(x.dtype),
        "labels": labels,
    }
