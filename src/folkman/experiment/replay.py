"""`folkman replay`: what real nodes did, done again by the simulator."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from folkman.algorithm.base import Algorithm, Assumption
from folkman.checks import require
from folkman.engine.presence import Asleep
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.problem.problem import Problem
from folkman.radio import trace
from folkman.radio.replay import replay as replay_peers
from folkman.radio.replay import replay_rounds, replay_star
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.runtime import journal
from folkman.runtime.causal import CausalTimeline, around_server, between_peers
from folkman.runtime.cluster import last_params, read_cluster
from folkman.runtime.codec import SERVER

__all__ = ["replay"]

TOLERANCE = 1e-5


def replay(root: Path) -> dict[str, Any]:
    """Replay the recorded timeline of a cluster and compare every node's last parameters."""
    configs, task, problem, algorithm = read_cluster(root)
    logs = {}
    for config in configs:
        path = NodeFolder(config.folder).journal
        require(
            path.is_file(),
            f"expected a journal, there is no {path}; run the nodes with timeline = true",
        )
        logs[config.number] = journal.read(path)
    joined = _timeline(logs, algorithm, problem, paced=configs[0].radio == "emulated")
    slots = len(joined.awake)
    trace.save(joined.timeline, ClusterFolder(root).timeline)
    run = simulate(
        problem,
        _network(joined, algorithm),
        algorithm,
        slots=slots,
        seed=task.seed,
        clock=Clock(1.0),
        recording=Recording(every=slots),
        faults=Asleep(joined.awake),
    )
    difference = {}
    for config in configs:
        expected = run.model if config.number == SERVER else run.nodes[config.number]
        found = last_params(config, task)
        scale = max(float(np.abs(expected).max()), 1e-30)
        difference[config.folder.name] = float(np.abs(found - expected).max()) / scale
    return {"folder": str(root), "slots": slots, "difference": difference, "tolerance": TOLERANCE}


def _timeline(
    logs: dict[int, journal.Log], algorithm: Algorithm, problem: Problem, *, paced: bool
) -> CausalTimeline:
    if algorithm.server is not None:
        return around_server(logs)
    count = problem.num_nodes
    near = ~np.eye(count, dtype=bool)
    if algorithm.mixing is not None:
        near &= np.asarray(algorithm.mixing.weights(jnp.ones((count, count), bool))) > 0
    rounds = Assumption.LOCKSTEP in algorithm.assumes
    return between_peers(logs, near, paced=paced and not rounds, rounds=rounds)


def _network(joined: CausalTimeline, algorithm: Algorithm) -> Any:
    timeline = joined.timeline
    if isinstance(timeline, trace.StarTimeline):
        return replay_star(timeline)
    if Assumption.LOCKSTEP in algorithm.assumes:
        return replay_rounds(timeline)
    return replay_peers(timeline)
