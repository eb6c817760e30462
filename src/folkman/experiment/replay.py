"""`folkman replay`: what real nodes did, done again by the simulator; and what their model is worth."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from folkman.algorithm.base import Algorithm, Assumption
from folkman.checks import require
from folkman.config.build import build_problem
from folkman.engine.presence import Asleep
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.problem.problem import Problem
from folkman.radio import trace
from folkman.radio.replay import replay, replay_rounds, replay_star
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.runtime import journal
from folkman.runtime.assembly import NodeConfig, Task, build, read_node, read_task
from folkman.runtime.causal import Retold, around_server, between_peers
from folkman.runtime.codec import SERVER
from folkman.runtime.state import read_arrays

__all__ = ["evaluate", "retell"]

TOLERANCE = 1e-5


def retell(root: Path) -> dict[str, Any]:
    """Replay the recorded timeline of a cluster and compare every node's last parameters."""
    configs, task, problem, algorithm = _cluster(root)
    logs = {}
    for config in configs:
        path = NodeFolder(config.folder).journal
        require(path.is_file(), f"expected a journal, there is no {path}; run the nodes with timeline = true")
        logs[config.number] = journal.read(path)
    retold = _timeline(logs, algorithm, problem, paced=configs[0].radio == "emulated")
    slots = len(retold.awake)
    trace.save(retold.timeline, ClusterFolder(root).timeline)
    run = simulate(
        problem,
        _network(retold, algorithm),
        algorithm,
        slots=slots,
        seed=task.seed,
        clock=Clock(1.0),
        recording=Recording(every=slots),
        faults=Asleep(retold.awake),
    )
    difference = {}
    for config in configs:
        expected = run.model if config.number == SERVER else run.nodes[config.number]
        found = _last(config, task)
        scale = max(float(np.abs(expected).max()), 1e-30)
        difference[config.folder.name] = float(np.abs(found - expected).max()) / scale
    return {"folder": str(root), "slots": slots, "difference": difference, "tolerance": TOLERANCE}


def evaluate(root: Path) -> dict[str, Any]:
    """Return the measures of the network's model: sum_i alpha_i w_i, or the server's."""
    configs, task, problem, _ = _cluster(root)
    last = {config.number: _last(config, task) for config in configs}
    share = np.asarray(problem.share)
    model = last[SERVER] if SERVER in last else sum(share[i] * last[i] for i in range(problem.num_nodes))
    worth = problem.evaluate(jnp.asarray(model, problem.initial.dtype))
    return {name: _number(float(value)) for name, value in worth._asdict().items()}


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _cluster(root: Path) -> tuple[list[NodeConfig], Task, Problem, Algorithm]:
    configs = [read_node(node.config) for node in ClusterFolder(root).nodes()]
    task = read_task(configs[0].config, configs[0].label, configs[0].seed)
    jax.config.update("jax_enable_x64", task.comparison.precision == "float64")
    problem = build_problem(task.comparison, task.seed)
    return configs, task, problem, build(task, problem)[0]


def _last(config: NodeConfig, task: Task) -> Any:
    """Return a node's last parameters: its result, or where it was stopped."""
    files = NodeFolder(config.folder)
    for path in (files.final, files.state):
        if path.is_file():
            return read_arrays(path, task.fingerprint)["params"]
    raise ValueError(f"{config.folder} has no result yet; wait for the node, or stop it: folkman down")


def _timeline(logs: dict[int, journal.Log], algorithm: Algorithm, problem: Problem, *, paced: bool) -> Retold:
    if algorithm.server is not None:
        return around_server(logs)
    count = problem.num_nodes
    near = ~np.eye(count, dtype=bool)
    if algorithm.mixing is not None:
        near &= np.asarray(algorithm.mixing.weights(jnp.ones((count, count), bool))) > 0
    rounds = Assumption.LOCKSTEP in algorithm.assumes
    return between_peers(logs, near, paced=paced and not rounds, rounds=rounds)


def _network(retold: Retold, algorithm: Algorithm) -> Any:
    timeline = retold.timeline
    if isinstance(timeline, trace.StarTimeline):
        return replay_star(timeline)
    if Assumption.LOCKSTEP in algorithm.assumes:
        return replay_rounds(timeline)
    return replay(timeline)
