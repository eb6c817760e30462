"""`folkman replay`: what real nodes did, done again by the simulator."""

from pathlib import Path

import numpy as np

from folkman.checks import require
from folkman.engine.presence import Asleep
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.radio import trace
from folkman.radio.compressed import Compressed
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.record.json_file import Json
from folkman.runtime import journal
from folkman.runtime.assembly import build
from folkman.runtime.cluster import last_params, read_cluster
from folkman.runtime.codec import SERVER
from folkman.runtime.ways import way_of

__all__ = ["replay"]

TOLERANCE = 1e-5


def replay(root: Path) -> Json:
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
    way = way_of(algorithm)
    paced = configs[0].radio == "emulated"
    joined = way.causal(logs, problem.num_nodes, paced=paced)
    slots = len(joined.awake)
    trace.save(joined.timeline, ClusterFolder(root).timeline)
    _, network = build(task, problem)
    run = simulate(
        problem,
        Compressed(way.replayed(joined.timeline), network.packing),
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
