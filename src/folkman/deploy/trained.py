"""A model with its last parameters, from wherever a run left it.

    trained("runs/first", algorithm="Algorithm 1", seed=0)      a run folder: the network's model
    trained("runs/first", node=2)                               one node's, with keep_nodes = true
    trained("runs/cluster", node=2)                             what a real node ended with
    trained(run)                                                a run in memory

The data that it was learnt from are not needed: a model's file says which samples it is for.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import jnp
from folkman.checks import nearest, require
from folkman.config.comparison import CHOICES, Comparison, resolve
from folkman.config.plugins import check_unchanged
from folkman.config.text import read
from folkman.problem.models import Fitted
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.record.folder import RunFolder
from folkman.record.json_file import Json
from folkman.record.model import StoredModel, load_model
from folkman.record.run import Run

__all__ = ["Trained", "trained", "trained_of_run"]


class Trained(NamedTuple):
    """A model, its parameters, and how to call it in a message."""

    fitted: Fitted
    w: NDArray[np.float32]  # (d,)
    title: str
    data: Json | None = None  # the table [data] that it was learnt from, where that is known
    made_s: float | None = None  # when its file was written, in seconds since 1970

    @property
    def tensors(self) -> dict[str, NDArray]:
        """Return the parameters as named tensors."""
        return self.fitted.model.layout.unflatten(self.w)  # type: ignore[arg-type] - NumPy's too

    @property
    def outputs(self) -> int:
        """Return how many scores a sample has."""
        sample = np.zeros((1, *self.fitted.sample), np.float32)
        network = self.fitted.model.network
        return network.scores(jnp.asarray(self.w), jnp.asarray(sample)).shape[1]


def trained(
    source: Run | str | Path,
    *,
    algorithm: str | None = None,
    seed: int | None = None,
    node: int | None = None,
) -> Trained:
    """Return the model of a run, a run folder or a cluster; the first algorithm and seed of it.

    `algorithm` is a label of the configuration, or the name of a method that it has once.
    """
    if isinstance(source, Run):
        require(
            algorithm is None and seed is None,
            "a run is of one algorithm and one seed; leave out algorithm and seed",
        )
        return trained_of_run(source, node)
    root = Path(source)
    for home in (ClusterFolder(root), NodeFolder(root)):
        if home.is_there():
            require(
                algorithm is None and seed is None,
                f"{root} is of real nodes, which learn one algorithm under one seed; leave out "
                "--algorithm and --seed",
            )
            return _of_node(_chosen_node(home, node))
    folder = RunFolder.open(root)
    return _of_folder(folder, _chosen_run(folder, algorithm, seed), node)


def trained_of_run(run: Run, node: int | None = None) -> Trained:
    """Return the model of a run in memory, or of the folder that it was read from."""
    if node is None and run.model is not None and run.fitted is not None:
        return Trained(run.fitted, np.asarray(run.model, np.float32), _title(run))
    kept = "settings={'keep_nodes': True}"
    require(
        run.folder is not None,
        f"expected a run with a model of folkman's own, {_title(run)} has none; "
        + ("predict with the library of its problem" if node is None else f"use fm.run({kept})"),
    )
    return _of_folder(RunFolder.open(Path(run.folder or "")), run, node)


def _title(run: Run) -> str:
    return f"{run.label} (seed {run.seed})"


def _chosen_run(folder: RunFolder, algorithm: str | None, seed: int | None) -> Run:
    """Return the run that is asked for, without its rows."""
    config = folder.read_config()
    names = {str(table.get("label")): str(table.get("name")) for table in config["algorithm"]}
    seeds = [int(each) for each in config["seeds"]]
    label = next(iter(names)) if algorithm is None else algorithm
    if label not in names:
        alike = [each for each, name in names.items() if name == label]
        require(
            len(alike) < 2,
            f"{folder.root} has '{label}' {len(alike)} times; choose a label: {alike}",
        )
        require(
            bool(alike),
            f"there is no algorithm '{label}' in {folder.root}; {nearest(label, names)}",
        )
        label = alike[0]
    seed = seeds[0] if seed is None else seed
    require(seed in seeds, f"there is no seed {seed} in {folder.root}; known: {seeds}")
    return Run(names[label], label, seed)


def _of_folder(folder: RunFolder, run: Run, node: int | None) -> Trained:
    """Build the model of a folder's configuration and fill it with what the folder keeps."""
    path = folder.model(run) if node is None else folder.node_models(run)
    title = f"{_title(run)} of {folder.root}"
    if not path.is_file():
        wanted = "the last model" if node is None else "the models of single nodes"
        remedy = f"finish it: folkman run --resume {folder.root}"
        if folder.model(run).is_file():
            remedy = "run it again with --set keep_nodes=true, or leave out --node"
        raise FileNotFoundError(f"expected {wanted} in {path}, there is none; {remedy}")
    check_unchanged(folder.own_code())
    stored = load_model(path)
    if node is not None:
        nodes = len(next(iter(stored.tensors.values())))
        require(0 <= node < nodes, f"there is no node {node} in {title}; known: 0 .. {nodes - 1}")
        own = {name: tensor[node] for name, tensor in stored.tensors.items()}
        stored, title = stored._replace(tensors=own), f"node {node} of {title}"
    comparison = resolve(read(folder.configuration(), warn=False), try_builders=False)
    fitted = _fitted(comparison, stored, run.seed)
    w = _joined(fitted, stored, title)
    return Trained(fitted, w, title, dict(comparison.data), path.stat().st_mtime)


def _fitted(comparison: Comparison, stored: StoredModel, seed: int) -> Fitted:
    """Build the model of a comparison; an earlier version did not note the shape of a sample."""
    given = {"seed": seed, "nodes": comparison.nodes, "horizon": comparison.slots}
    sample, classes = stored.sample, stored.classes
    if sample is None:
        data = CHOICES["data"].build(comparison.data, **given)
        sample, classes = data.x_train.shape[1:], data.num_classes
    model = CHOICES["model"].build(comparison.model, sample=sample, classes=classes, **given)
    return Fitted(model, sample, classes)


def _joined(fitted: Fitted, stored: StoredModel, title: str) -> NDArray[np.float32]:
    """Return the flat vector; refuse tensors that are not those of the model."""
    wanted = dict(fitted.model.layout.shapes)
    found = {name: tensor.shape for name, tensor in stored.tensors.items()}
    require(
        found == wanted,
        f"{title}: expected tensors {wanted}, the file has {found}; it is of another model",
    )
    return np.concatenate([stored.tensors[name].reshape(-1) for name in wanted]).astype(np.float32)


def _chosen_node(home: ClusterFolder | NodeFolder, node: int | None) -> NodeFolder:
    if isinstance(home, NodeFolder):
        return home
    homes = {each.root.name: each for each in home.nodes()}
    name = next(iter(homes)) if node is None else f"node-{node}"
    require(name in homes, f"there is no node {node} in {home.root}; {nearest(name, homes)}")
    return homes[name]


def _of_node(home: NodeFolder) -> Trained:
    """Return what a real node ended with."""
    # here and not above: most models were learnt in a simulation
    from folkman.runtime.assembly import read_node, read_task
    from folkman.runtime.shards import load_shard
    from folkman.runtime.state import read_arrays

    config = read_node(home.config)
    require(
        config.guest is None,
        f"{home.root} learns a PyTorch guest; load {home.final.name} into the guest's own module",
    )
    require(
        home.final.is_file(),
        f"{home.root} has no result yet; wait for the node to end (folkman status)",
    )
    task = read_task(config.config, config.label, config.seed)
    w = np.asarray(read_arrays(home.final, task.fingerprint)["model"], np.float32)
    fitted = getattr(load_shard(config.shard, task.comparison, task.seed), "fitted")  # noqa: B009
    title = f"{task.label} (seed {task.seed}) of {home.root}"
    return Trained(fitted, w, title, dict(task.comparison.data), home.final.stat().st_mtime)
