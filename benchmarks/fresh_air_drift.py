"""Sums that travel: how far rounding lets them drift, and what a slot of them costs.

    python benchmarks/fresh_air_drift.py drift --slots 10000   rounding of sums, and own past
    python benchmarks/fresh_air_drift.py cost --slots 256      a slot, against the threshold rule

`drift` records who held what on the radio (index schedule, message = "sum", the paper's cell and
CNN), lets Algorithm 1 descend quadratics that differ between nodes along it in float64, and carries
the sums beside it in several number formats, with the same contributions. The error is that of the
aggregate of a node, the largest over nodes and entries, over the root mean square of the exact
ones. `hops` are those that the sum of a node has behind it.

`cost` runs the same problem on both schedules and prints the time of a slot and the ratio; first
along recorded timelines, where the network costs nothing, then live.
"""

import argparse
from collections.abc import Callable
from time import perf_counter

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.async_sharing import async_sharing
from folkman.engine.carried_sums import CarriedSums
from folkman.engine.simulate import Clock, Recording, Simulation, march, start
from folkman.packing.packing import fixed, place_bits, step_of
from folkman.packing.sums import grid_numbers, signed, sum_bits
from folkman.problem.data import quadratic
from folkman.problem.problem import Problem, make_problem
from folkman.radio.delivery import Network
from folkman.radio.network import RadioNetwork
from folkman.radio.replay import replay
from folkman.radio.trace import PeerTimeline, record_timeline
from folkman.radio.transfers import Adoption, adoptions, own_past

DIM, STEP = 20, 0.05
MESSAGE_BITS = 16 * 430_698
"""Of the paper's CNN: they decide how long a transfer takes."""


def parameters(held: NDArray[np.int32], seed: int) -> NDArray[np.float64]:
    """Return w (slot + 1, node, d) of Algorithm 1 on quadratics that differ between nodes."""
    slots, nodes = held.shape[:2]
    rng = np.random.default_rng(seed)
    centre = 1.0 + rng.standard_normal((nodes, DIM))
    curvature = rng.uniform(0.1, 1.0, (nodes, DIM))
    path = np.zeros((slots + 1, nodes, DIM))
    for t in range(slots):
        copies = path[held[t], np.arange(nodes)[None]]  # (rx, tx, d)
        copies[np.arange(nodes), np.arange(nodes)] = path[t]
        point = copies.mean(axis=1)
        path[t + 1] = path[t] - STEP * curvature * (point - centre)
    return path


def drift(timeline: PeerTimeline, path: NDArray[np.float64]) -> None:
    """Print how far sums in several formats are from the exact ones, on the way and at the end."""
    slots, nodes = timeline.sends.shape
    ways = _ways(adoptions(timeline), path)
    marks = sorted({10, 100, 1000, slots - 2} & set(range(slots - 1)))
    errors: dict[str, list[float]] = {name: [] for name in [*ways, COPIES]}
    hops = []
    for t in range(slots - 1):
        for node in np.flatnonzero(timeline.sends[t]).tolist():
            for name, way in ways.items():
                way.freeze(
                    node, t + 1, _contribution(name, path[t + 1, node], path[0, node], nodes)
                )
        for way in ways.values():
            way.end_slot(t)
        if t in marks:
            exact = _aggregates(path, timeline.held[t + 1], t + 1)
            size = np.sqrt(np.mean(exact**2))
            hops.append(float(ways["float64"].hops.mean()))
            for name, way in ways.items():
                seen = _read(name, way.others, path[t + 1], path[0])
                errors[name].append(np.abs(seen - exact).max() / size)
            copies = _aggregates(path, timeline.held[t + 1], t + 1, _to_float16)
            errors[COPIES].append(np.abs(copies - exact).max() / size)
    print("slots".ljust(22), *(f"{t + 1:10d}" for t in marks))
    print("hops behind a sum".ljust(22), *(f"{each:10.0f}" for each in hops))
    for name, each in errors.items():
        print(name.ljust(22), *(f"{error:10.1e}" for error in each))
    print(
        f"largest |w_j| {np.abs(path[-1]).max():.0f}; own contributions that a node kept at most: "
        f"{ways['float64'].most_kept} (I + 1 = {nodes + 1})"
    )


COPIES = "float16 copies"
GRIDS = {f"fixed, {bits} bits": fixed(bits) for bits in (12, 16)}
WIDTHS = {"float64": np.float64, "float32": np.float32}


def _ways(events: list[Adoption], path: NDArray[np.float64]) -> dict[str, CarriedSums]:
    first = path[0] / path.shape[1]
    ways = {name: CarriedSums(events, first.astype(kind)) for name, kind in WIDTHS.items()}
    ways["float16 at every hop"] = CarriedSums(events, first, hop=_to_float16)
    ways["bfloat16 at every hop"] = CarriedSums(events, first, hop=_to_bfloat16)
    zeros = np.zeros(first.shape, np.int64)
    return ways | {name: CarriedSums(events, zeros) for name in GRIDS}


def _contribution(name: str, own: NDArray, initial: NDArray, nodes: int) -> NDArray:
    if name in GRIDS:
        return grid_numbers(GRIDS[name], own, initial, 1.0)
    return (own / nodes).astype(WIDTHS.get(name, np.float64))


def _read(name: str, others: NDArray, own: NDArray, initial: NDArray) -> NDArray[np.float64]:
    """Return the nodes' aggregates: the sum that each holds, with its present own part."""
    nodes = len(own)
    if name not in GRIDS:
        return others + own / nodes
    packing = GRIDS[name]
    parts = grid_numbers(packing, own, initial, 1.0)
    bits = (packing.bits or 0) + place_bits(nodes)
    unit = step_of(packing) / nodes
    left = (own - initial) / nodes - unit * parts  # a node has its own part exactly
    return initial + unit * signed(others + parts, bits) + left


def _aggregates(
    path: NDArray[np.float64],
    held: NDArray[np.int32],
    slot: int,
    rounded: Callable[[NDArray], NDArray] | None = None,
) -> NDArray[np.float64]:
    """Return v_i of a slot from copies, exact or rounded."""
    nodes = held.shape[0]
    copies = path[held, np.arange(nodes)[None]]
    copies = copies if rounded is None else rounded(copies)
    copies[np.arange(nodes), np.arange(nodes)] = path[slot]
    return copies.sum(axis=1) / nodes


def _to_float16(values: NDArray) -> NDArray:
    return values.astype(np.float16).astype(np.float64)


def _to_bfloat16(values: NDArray) -> NDArray:
    return np.asarray(jnp.asarray(values, jnp.bfloat16), np.float64)


def measure_drift(nodes: int, slot_s: float, slots: int, seed: int) -> None:
    """Print drift and own past on one drop of the radio."""
    bits = sum_bits(fixed(16), 430_698, nodes)
    air = RadioNetwork(schedule="index", message="sum", slot_s=slot_s)
    timeline = record_timeline(air, nodes, slots, seed, bits)
    others = ~np.eye(nodes, dtype=bool)
    ages = (np.arange(slots)[:, None, None] - timeline.held)[slots // 4 :, others]
    print(f"\nI = {nodes}, T = {slot_s} s, {slots} slots, seed {seed}: mean age {ages.mean():.1f}")
    began = perf_counter()
    most, oldest = own_past(timeline)
    print(
        f"own past taken out of sums: at most {most.max()} at once, the oldest {oldest.max()} "
        f"slots old; messages found again in {perf_counter() - began:.1f} s"
    )
    drift(timeline, parameters(timeline.held, seed))


def measure_cost(nodes: int, dim: int, slots: int, repeats: int) -> None:
    """Print the time of a slot on both schedules, the best of some runs."""
    problem = make_problem(quadratic(nodes=nodes, dim=dim), "quadratic", nodes)
    slot_s = 16 * dim / MESSAGE_BITS  # a transfer takes as many slots as the paper's CNN at 1 s
    airs = {
        "threshold": RadioNetwork(slot_s=slot_s),
        "index, copy": RadioNetwork(slot_s=slot_s, schedule="index"),
        "index, sum": RadioNetwork(slot_s=slot_s, schedule="index", message="sum"),
    }
    base_us = 1.0
    for kind in ("recorded", "live"):
        for name, air in airs.items():
            network: Network = air
            if kind == "recorded":
                timeline = record_timeline(air, nodes, 2 * slots, 0, 16 * dim)
                network = replay(timeline, 16, air.message)
            each_us, rows = _slot_us(problem, network, slots, repeats, slot_s)
            base_us = each_us if name == "threshold" else base_us
            print(
                f"I = {nodes}  {kind:9s} {name:12s} {each_us:7.0f} us a slot  "
                f"{each_us / base_us:5.2f}  rows {rows}",
                flush=True,
            )


def _slot_us(
    problem: Problem, network: Network, slots: int, repeats: int, slot_s: float
) -> tuple[float, int]:
    """Return the microseconds of a slot, and the rows of the store."""
    clock, recording = Clock(slot_s), Recording(every=slots)
    simulation = Simulation(problem, network, async_sharing(0.01), clock, recording)
    best_s, mark = np.inf, start(simulation, 0)
    for _ in range(repeats + 1):  # the first compiles
        *_, (mark, _) = march(simulation, start(simulation, 0), slots)
        began = perf_counter()
        for _ in march(simulation, mark, 2 * slots):
            pass
        best_s = min(best_s, perf_counter() - began)
    return 1e6 * best_s / slots, mark.carry.medium.snapshots.payload.shape[0]


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["drift", "cost"])
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, nargs="+", default=[5, 15])
    parser.add_argument("--slot-s", type=float, default=1.0)
    parser.add_argument("--dim", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for nodes in asked.nodes:
        if asked.what == "drift":
            measure_drift(nodes, asked.slot_s, asked.slots, asked.seed)
        else:
            measure_cost(nodes, asked.dim, asked.slots, repeats=2)


if __name__ == "__main__":
    main()
