"""Many cells: the same algorithm in each, side by side.

    work = CellWork(field, network, algorithm, slots=200)
    run = joined(work, in_turn(work, portions(field)))

Cells do not share parameters, so a few at a time run to the end as one compiled program over a
leading cell axis (parted over the cores where `use_cores` made devices of them): time is linear in
nodes, and memory in the cells that run at once. A row is the mean over cells; its bits are those of
all cells, its extremes the largest.

Cells that interfere are a `RadioCells` (`folkman.radio.cells`). Cell c is then, number for number,

    simulate(field.cell(c), network.cell(c), algorithm, slots=200, seed=cell_seed(0, c))
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import nan
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.energy import Energy
from folkman.engine.compute_times import Compute
from folkman.engine.judge import judge
from folkman.engine.metrics import Totals, Uses, cell_measures, spent_columns, traffic_bits
from folkman.engine.presence import Presence
from folkman.engine.programs import compiled
from folkman.engine.simulate import (
    Clock,
    Recording,
    Simulation,
    check_clock,
    check_fit,
    check_length,
    longest_stretch,
    note,
    one_slot,
)
from folkman.engine.slot import Carry, Tally, clear, first
from folkman.engine.travel.medium import OnAir
from folkman.problem.cores import unparted
from folkman.problem.field import Field
from folkman.problem.problem import Problem
from folkman.radio.air import Air
from folkman.radio.cells import PlacedRadio, RadioCells
from folkman.radio.delivery import Network, check_horizon
from folkman.record.run import ENERGY_COLUMNS, Run

__all__ = ["CellWork", "Portion", "cell_seed", "cut", "fitting", "in_turn", "joined", "portions"]
__all__ += ["run_portion"]

ROOM_BYTES = 10**9
"""Memory for the samples and states of the cells that run at once."""

DEVICE_SHARE = 0.2
"""Of a GPU's memory, instead: what a program needs beside them is about as much again."""

COPIES = 8
"""Vectors a node, about: its parameters, copies of them on their way, points and gradients."""


class CellWork(NamedTuple):
    """All that cells need to run: a value that can be cut into portions of cells."""

    field: Field
    network: Network | RadioCells
    algorithm: Algorithm
    slots: int
    seed: int = 0
    clock: Clock = Clock()
    recording: Recording = Recording()
    energy: Energy = Energy()

    @property
    def simulation(self) -> Simulation:
        """Return the parts of a run of the first cell."""
        radio = self.network.radio if isinstance(self.network, RadioCells) else self.network
        of_one = (self.field.first, radio, self.algorithm, self.clock, self.recording)
        return Simulation(*of_one, energy=self.energy)

    def check(self) -> None:
        """Refuse what cannot run, before anything does."""
        recording, network, field = self.recording, self.simulation.network, self.field
        require(
            not recording.timeline and not recording.nodes and not recording.stop_at,
            "many cells keep neither timelines nor the measures of single nodes, and stop at no "
            "target; simulate one cell for those",
        )
        if isinstance(self.network, RadioCells):
            laid, asked = self.network.nodes_m.shape[:2], (field.num_cells, field.first.num_nodes)
            require(
                laid == asked,
                f"the network has {laid[0]} cells of {laid[1]} nodes and the field {asked[0]} of "
                f"{asked[1]}; give both the same",
            )
        check_length(self.slots, recording.every)
        check_horizon(network, self.slots)
        check_clock(network, self.clock)
        check_fit(field.first.num_nodes, network, self.algorithm)


class Portion(NamedTuple):
    """What some cells left."""

    cells: int
    rows: list[dict[str, float]]
    models: NDArray  # (cell, d)


def in_turn(work: CellWork, parts: Sequence[range]) -> Iterator[Portion]:
    """Yield what the portions of cells left, one after the other in this process."""
    with ThreadPoolExecutor(1) as beside:  # the next cells' samples are drawn while these run
        coming = beside.submit(work.field.drawn, parts[0])
        for number, cells in enumerate(parts):
            drawn = coming.result()
            if number + 1 < len(parts):
                coming = beside.submit(work.field.drawn, parts[number + 1])
            yield run_portion(work, cells, drawn)


def run_portion(work: CellWork, cells: range, drawn: NDArray[np.int32] | None = None) -> Portion:
    """Run some cells to the end; which others there are changes nothing."""
    rows, last = [], np.zeros(0)
    # the last models are kept
    for last, row in _march(work, cells, drawn):  # noqa: B007
        rows.append(row)
    return Portion(len(cells), rows, last)


def joined(work: CellWork, found: Iterable[Portion]) -> Run:
    """Return the run of all cells from its portions, in their order."""
    found = list(found)
    run = Run(work.algorithm.name, work.algorithm.name, work.seed)
    for rows in zip(*(portion.rows for portion in found), strict=True):
        note(run, _joined(list(rows), [portion.cells for portion in found]))
    judge(run)
    run.model = np.concatenate([portion.models for portion in found])
    return run


def cell_seed(seed: int, cell: int) -> int:
    """Return the seed of one cell of a run, whatever the number of cells."""
    return int(np.random.SeedSequence(seed).generate_state(cell + 1)[cell])


def portions(field: Field, at_once: int | None = None) -> list[range]:
    """Cut the cells into the portions that this process runs, as its memory and devices allow."""
    size = fitting(field, _room_bytes()) if at_once is None else at_once
    size = min(size, field.num_cells)
    return cut(field.num_cells, max(size - size % len(jax.devices()), min(size, 1)))


def fitting(field: Field, room_bytes: int = ROOM_BYTES) -> int:
    """Return how many cells run at once within a memory; at least one."""
    states = COPIES * 4 * field.first.num_nodes * field.first.dim
    return max(1, room_bytes // (field.cell_bytes + states))


def cut(cells: int, size: int) -> list[range]:
    """Cut cells into equal runs of `size`, the last one perhaps shorter."""
    require(size >= 1, f"at least one cell must run at once, got {size}")
    return [range(start, min(start + size, cells)) for start in range(0, cells, size)]


def _room_bytes() -> int:
    """Return the memory for the samples and states of the cells that run at once."""
    device = jax.devices()[0]
    if device.platform != "gpu":
        return ROOM_BYTES
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    return max(ROOM_BYTES, int(DEVICE_SHARE * limit))


def _march(
    work: CellWork, cells: range, drawn: NDArray[np.int32] | None
) -> Iterator[tuple[np.ndarray, dict[str, float]]]:
    """Yield the models (cell, d) and the row of some cells.

    At slot 0, at every recorded slot and at the last.
    """
    simulation, slots = work.simulation, work.slots
    problem = _placed(work.field.problem(cells, drawn))
    nodes = work.field.first.num_nodes
    network, algorithm, medium = simulation.network, simulation.algorithm, simulation.medium
    compute, faults = simulation.clock.per_node(nodes), simulation.faults
    seeds = jnp.asarray(np.random.SeedSequence(work.seed).generate_state(cells.stop)[cells.start :])
    there = work.network.some(cells) if isinstance(work.network, RadioCells) else network
    carry = _first(problem, there, algorithm, compute, _placed(seeds))
    totals = Totals.nothing(jax.tree.map(lambda count: count[0], carry.tally))
    counts = (0,) * nodes * len(cells)
    totals = totals._replace(
        gradients=counts,
        busy=counts,
        held_ages=np.zeros(0, np.int64),
        on_air=Uses.nothing(len(counts)),
    )  # of pairs only a single cell keeps account
    done, every = 0, simulation.recording.every
    longest = longest_stretch(medium, nodes, slots)
    while True:
        if done % every == 0 or done >= slots:
            models, row = _row(simulation, problem, carry, totals, done)
            yield models, row
        if done >= slots:
            return
        length = min(every - done % every, slots - done, longest)
        moved = _advance(problem, network, algorithm, compute, faults, length, carry)
        while medium.lacks_room(moved.medium):
            carry = carry._replace(medium=jax.vmap(medium.with_room)(carry.medium))
            moved = _advance(problem, network, algorithm, compute, faults, length, carry)
        totals = totals.plus(_summed(moved.tally))
        carry, done = clear(moved), done + length


Placed = TypeVar("Placed", Problem, Array)


def _placed(tree: Placed) -> Placed:
    """Part the arrays with a cell axis over the devices, if there are several."""
    devices = jax.devices()
    if len(devices) == 1:
        return tree
    mesh = Mesh(np.array(devices), ("cell",))

    def put(array: Array, axis: int | None) -> Array:
        fits = axis is not None and array.shape[0] % len(devices) == 0
        return jax.device_put(
            array, NamedSharding(mesh, PartitionSpec("cell") if fits else PartitionSpec())
        )

    axes = _axes(tree) if isinstance(tree, Problem) else 0
    if not isinstance(tree, Problem):
        return put(tree, 0)
    return jax.tree.map(put, tree, axes, is_leaf=lambda leaf: leaf is None)


def _axes(problem: Problem) -> Problem:
    """Return which fields of a field's problem have a cell axis, for `jax.vmap`."""
    return replace(
        problem, x=0, y=0, count=0, share=0, node=0, initial=None, x_test=None, y_test=None
    )


@compiled(fixed=(3,))
def _first(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    seeds: Array,
) -> Carry:
    air = network.air if isinstance(network, PlacedRadio) else None

    def one(problem: Problem, own: Air | None, seed: Array) -> Carry:
        there = network
        if own is not None and isinstance(network, PlacedRadio):
            there = replace(network, air=own)
        return first(problem, there, algorithm, compute, seed)

    return jax.vmap(one, (_axes(problem), 0, 0))(problem, air, seeds)


@compiled(fixed=(3, 4))
def _advance(
    problem: Problem,
    network: Network,
    algorithm: Algorithm,
    compute: Compute,
    faults: Presence,
    length: int,
    carry: Carry,
) -> Carry:
    """Run `length` slots of all cells."""

    def one(problem: Problem, carry: Carry) -> Carry:
        return one_slot(problem, network, algorithm, compute, faults, carry)[0]

    each = jax.vmap(one, (_axes(problem), 0))
    with unparted():  # cells are parted over the cores, not their nodes
        return lax.fori_loop(0, length, lambda _, carry: each(problem, carry), carry)


@compiled()
def _measures(
    problem: Problem, network: Network, algorithm: Algorithm, carry: Carry
) -> tuple[Array, dict[str, Array]]:
    def one(problem: Problem, carry: Carry) -> tuple[Array, dict[str, Array]]:
        return cell_measures(problem, network, algorithm, carry)

    return jax.vmap(one, (_axes(problem), 0))(problem, carry)


def _summed(tally: Tally) -> Tally:
    """Return the tally of all cells as one: nodes side by side, messages added."""
    return tally._replace(
        gradients=tally.gradients.reshape(-1),
        busy=tally.busy.reshape(-1),
        traffic=jax.tree.map(lambda count: np.asarray(count, np.int64).sum(axis=0), tally.traffic),
        age_sum=jnp.sum(tally.age_sum),
        age_max=jnp.max(tally.age_max),
        late=tally.late._replace(
            uploads=np.asarray(tally.late.uploads, np.int64).sum(),
            versions=jnp.sum(tally.late.versions),
            most=jnp.max(tally.late.most),
        ),
        on_air=OnAir(
            tally.on_air.transmit.reshape(-1),
            tally.on_air.receive.reshape(-1),
            jnp.sum(tally.on_air.station_transmit),
            jnp.sum(tally.on_air.station_receive),
        ),
    )


def _row(
    simulation: Simulation, problem: Problem, carry: Carry, totals: Totals, slots: int
) -> tuple[np.ndarray, dict[str, float]]:
    medium = simulation.medium
    models, measured = _measures(problem, simulation.network, simulation.algorithm, carry)
    nodes, finished = len(totals.gradients), sum(totals.gradients)
    sent = sum(totals.traffic.sent) / nodes
    rounds = jax.vmap(medium.rounds)(carry.medium)
    bits, bits_unicast = traffic_bits(simulation, totals)
    net = jax.vmap(medium.measures)(carry.medium)
    extremes = ("consensus_max", "node_norm")
    row = {
        "slots": slots,
        "seconds": slots * simulation.clock.slot_s,
        "gradients": finished / nodes,
        "rounds": sent if rounds is None else float(jnp.mean(rounds)),
        "bits": bits,
        **{
            name: float((jnp.max if name in extremes else jnp.mean)(value))
            for name, value in measured.items()
        },
        "mean_age": totals.age_sum / finished if finished else 0.0,
        "max_age": totals.age_max,
        **totals.staleness(),
        "pairs_unheard": float(jnp.sum(jax.vmap(medium.unheard)(carry.medium))),
        "kappa": sum(totals.busy) / (slots * nodes) if slots else 0.0,
        "gradients_max": max(totals.gradients),
        "bits_unicast": bits_unicast,
        "gamma_t": nan,
        "gamma_w": nan,
        **{name: float(jnp.mean(value)) for name, value in net.items()},
    }
    row |= spent_columns(simulation, totals, problem, slots, row["test_accuracy"])
    return np.asarray(models), row


LARGEST = frozenset({"consensus_max", "node_norm", "max_age", "staleness_max", "gradients_max"})
ADDED = frozenset({"bits", "bits_unicast", "pairs_unheard", *ENERGY_COLUMNS})


def _joined(rows: list[dict[str, float]], cells: list[int]) -> dict[str, float]:
    """Return the row of all cells from those of its portions."""
    joined = {}
    for name in rows[0]:
        values = np.array([row[name] for row in rows], float)
        if name in LARGEST:
            joined[name] = values.max()
        else:
            joined[name] = values.sum() if name in ADDED else np.average(values, weights=cells)
    joined["joules_per_percent"] = joined["energy_j"] / (100 * joined["test_accuracy"] or np.nan)
    return {name: float(value) for name, value in joined.items()} | {"slots": int(joined["slots"])}
