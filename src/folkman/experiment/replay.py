"""`folkman replay`: what real nodes did, done again by the simulator."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.engine.presence import Asleep
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.engine.travel import medium_of
from folkman.problem.problem import Problem
from folkman.radio import trace
from folkman.radio.compressed import Compressed
from folkman.radio.delivery import Network
from folkman.radio.replay import replay as replay_peers
from folkman.radio.trace import PeerTimeline
from folkman.record.cluster import ClusterFolder, NodeFolder
from folkman.record.json_file import Json
from folkman.runtime import journal
from folkman.runtime.assembly import build, carried
from folkman.runtime.cluster import last_params, read_cluster
from folkman.runtime.codec import SERVER
from folkman.runtime.ways import way_of

__all__ = ["replay"]

TOLERANCE = 1e-5


def replay(root: Path) -> Json:
    """Replay the recorded timeline of a cluster and compare every node's last parameters."""
    configs, task, problem, algorithm = read_cluster(root)
    held, cut = list(configs[0].samples), [int(count) for count in problem.count]
    require(
        held == cut,
        f"expected nodes with samples of the configuration's data set, {cut} of them, the nodes "
        f"had {held}; a run on samples of the boards' own cannot be replayed",
    )
    logs = {}
    for config in configs:
        path = NodeFolder(config.folder).journal
        lacks = f"expected a journal, there is no {path}"
        require(path.is_file(), f"{lacks}; run the nodes with timeline = true")
        logs[config.number] = journal.read(path)
    way = way_of(algorithm)
    paced = configs[0].radio == "emulated"
    joined = way.causal(logs, problem.num_nodes, paced=paced)
    slots = len(joined.awake)
    trace.save(joined.timeline, ClusterFolder(root).timeline)
    _, network = build(task, problem)
    message = carried(algorithm, network)
    repeated = way.replayed(joined.timeline)
    if message != "copy":
        repeated = replay_peers(joined.timeline, message=message)  # type: ignore[arg-type]
    air = Compressed(repeated, network.packing)
    how: Json = {"slots": slots, "seed": task.seed, "clock": Clock(1.0)}
    how |= {"recording": Recording(every=slots), "faults": Asleep(joined.awake)}
    run = simulate(problem, air, algorithm, **how)
    ages = {}
    if isinstance(joined.timeline, PeerTimeline):
        paced_age = mean_age(joined.timeline, joined.awake) if paced else None
        ages["devices"] = age_by_own_counts(logs) if paced_age is None else paced_age
        if message != "copy" and paced:
            planned = _planned(network, algorithm, problem, task.seed, slots)
            ages["simulator"] = mean_age(planned, joined.awake)
            ages["as_planned"] = _alike(planned, joined.timeline, joined.awake)
    difference = {}
    for config in configs:
        expected = run.model if config.number == SERVER else run.nodes[config.number]
        found = last_params(config, task)
        scale = max(float(np.abs(expected).max()), 1e-30)
        difference[config.folder.name] = float(np.abs(found - expected).max()) / scale
    head: Json = {"folder": str(root), "slots": slots, "difference": difference}
    head |= {"most_lived": int(joined.awake.sum(axis=0).max()), "radio": configs[0].radio}
    return head | {"tolerance": TOLERANCE, "mean_age": ages}


def mean_age(timeline: PeerTimeline, awake: NDArray[np.bool_]) -> float:
    """Return the mean age in slots of all copies held, in slots in which their holder is awake."""
    slots, nodes = awake.shape
    ages = np.arange(slots)[:, None, None] - timeline.held
    counts = awake[:, :, None] & ~np.eye(nodes, dtype=bool)
    return float(ages[counts].mean())


def age_by_own_counts(logs: Mapping[int, journal.Log]) -> float:
    """Return the mean age of copies where there is no common clock: in slots as each node counts.

    The slot of a gradient less the slot in which the origin formed the copy, by its own count.
    """
    formed = {}
    for node, log in logs.items():
        sends = log.records[log.records["kind"] == journal.SEND]
        formed[node] = {0: 0, **dict(zip(sends["sequence"][:, 0], sends["slot"], strict=True))}
    found = []
    for node, log in logs.items():
        wakes = log.records[log.records["kind"] == journal.WAKE]
        for sender in logs:
            if sender != node:
                used = [formed[sender][number] for number in wakes["sequence"][:, sender]]
                found.append(wakes["slot"] - np.array(used))
    return float(np.mean(np.concatenate(found))) if found else 0.0  # one node holds no copies


def _alike(one: PeerTimeline, two: PeerTimeline, awake: NDArray[np.bool_]) -> float:
    """Return the share of copies with the same stamp in both timelines."""
    counts = awake[:, :, None] & ~np.eye(awake.shape[1], dtype=bool)
    return float((one.held == two.held)[counts].mean())


def _planned(
    network: Network, algorithm: Algorithm, problem: Problem, seed: int, slots: int
) -> PeerTimeline:
    """Return who holds what when on the network of the configuration, as the simulator has it."""
    bits = medium_of(algorithm, network).prices(problem)[0][0]
    return trace.record_timeline(network, problem.num_nodes, slots, seed, bits)
