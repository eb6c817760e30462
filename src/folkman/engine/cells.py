"""Many cells: the same algorithm in each, side by side.

    run = simulate_cells(field, network, algorithm, slots=200, seed=0)

Cells do not share parameters, so a few at a time run to the end as one compiled program over a
leading cell axis (parted over the cores where `use_cores` made devices of them): time is linear in
nodes, and memory does not depend on the number of cells. A row is the mean over cells; its bits are
those of all cells, its extremes the largest.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import nan
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

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
from folkman.radio.delivery import Network, check_horizon
from folkman.record.run import ENERGY_COLUMNS, Run

__all__ = ["simulate_cells"]

ROOM_BYTES = 10**9
"""Memory for the samples and states of the cells that run at once."""

COPIES = 8
"""Vectors a node, about: its parameters, copies of them on their way, points and gradients."""


def simulate_cells(  # noqa: PLR0913 - all but three by name
    field: Field,
    network: Network,
    algorithm: Algorithm,
    *,
    slots: int,
    seed: int = 0,
    clock: Clock = Clock(),  # noqa: B008 - immutable
    recording: Recording = Recording(),  # noqa: B008 - immutable
    at_once: int | None = None,
    energy: Energy = Energy(),  # noqa: B008 - immutable
) -> Run:
    """Run every cell for `slots` slots and return the mean over cells; `run.model` is (cell, d).

    `at_once` cells run together; by default as many as fit in about a gigabyte.
    """
    require(
        not recording.timeline and not recording.nodes and not recording.stop_at,
        "many cells keep neither timelines nor the measures of single nodes, and stop at no "
        "target; simulate one cell for those",
    )
    check_length(slots, recording.every)
    check_horizon(network, slots)
    check_clock(network, clock)
    simulation = Simulation(field.first, network, algorithm, clock, recording, energy=energy)
    check_fit(field.first.num_nodes, network, algorithm)
    run, portions = Run(algorithm.name, algorithm.name, seed), _portions(field, at_once)
    table: list[list[dict[str, float]]] = []
    models = []
    for cells in portions:
        rows, last = [], np.zeros(0)
        # the last models are kept
        for last, row in _march(simulation, field, cells, slots, seed):  # noqa: B007
            rows.append(row)
        table.append(rows)
        models.append(last)
    for rows in zip(*table, strict=True):
        note(run, _joined(list(rows), [len(cells) for cells in portions]))
    judge(run)
    run.model = np.concatenate(models)
    return run


def _portions(field: Field, at_once: int | None) -> list[range]:
    """Cut the cells into equal runs of cells, the last one perhaps shorter."""
    states = COPIES * 4 * field.first.num_nodes * field.first.dim
    size = max(1, ROOM_BYTES // (field.cell_bytes + states)) if at_once is None else at_once
    require(size >= 1, f"at least one cell must run at once, got {size}")
    size = min(size, field.num_cells)
    size = max(size - size % len(jax.devices()), 1)
    return [
        range(start, min(start + size, field.num_cells))
        for start in range(0, field.num_cells, size)
    ]


def _march(
    simulation: Simulation, field: Field, cells: range, slots: int, seed: int
) -> Iterator[tuple[np.ndarray, dict[str, float]]]:
    """Yield the models (cell, d) and the row of some cells.

    At slot 0, at every recorded slot and at the last.
    """
    problem = _placed(field.problem(cells))
    nodes = field.first.num_nodes
    network, algorithm, medium = simulation.network, simulation.algorithm, simulation.medium
    compute, faults = simulation.clock.per_node(nodes), simulation.faults
    seeds = jnp.asarray(
        np.random.SeedSequence(seed).generate_state(field.num_cells)[cells.start : cells.stop]
    )
    carry = _first(problem, network, algorithm, compute, _placed(seeds))
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
    def one(problem: Problem, seed: Array) -> Carry:
        return first(problem, network, algorithm, compute, seed)

    return jax.vmap(one, (_axes(problem), 0))(problem, seeds)


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
