"""Many cells, in this process, in others, or on the machines of a dask cluster.

    run = simulate_cells(field, network, algorithm, slots=200, seed=0)
    run = simulate_cells(field, network, algorithm, slots=200, at_once=64, engine="processes")

Cells share nothing but where they stand, so a portion of cells is a job of its own. A worker is
sent all that the cells need once, runs the portions that it is given one after the other, and sends
back their rows and last models. A portion whose worker died is run again from its first slot.

How the cells are cut does not depend on the workers, and no product of a worker is split between
threads. So the numbers are the same, to the bit, however many workers there are and whichever dies.
"""

import hashlib
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

import folkman
from folkman.algorithm.base import Algorithm
from folkman.checks import require
from folkman.energy import Energy
from folkman.engine.cells import (
    CellWork,
    Portion,
    cut,
    fitting,
    in_turn,
    joined,
    portions,
    run_portion,
)
from folkman.engine.simulate import Clock, Recording
from folkman.experiment.engines import Engine, Told, engine_for
from folkman.experiment.jobs import CELLS
from folkman.files import write_whole
from folkman.problem.field import Field
from folkman.radio.cells import RadioCells
from folkman.radio.delivery import Network
from folkman.record.json_file import Table
from folkman.record.run import FINISHED, Run

__all__ = ["Done", "make_portion", "portions_on", "simulate_cells", "spread"]

LEAST_PORTIONS = 32
"""Portions that cells are cut into for workers, if there are so many cells: enough for some to be
left when one dies or is slow, and not as many as to compile for nothing."""

KEPT = "portion.npz"
"""The file of a finished portion."""


class Done(NamedTuple):
    """A portion of cells that a worker has run."""

    cells: range
    portion: Portion
    told: Told


def simulate_cells(  # noqa: PLR0913 - all but three by name
    field: Field,  # the cells and their data
    network: Network | RadioCells,
    algorithm: Algorithm,
    *,
    slots: int,
    seed: int = 0,
    clock: Clock = Clock(),  # noqa: B008 - immutable
    recording: Recording = Recording(),  # noqa: B008 - immutable
    at_once: int | None = None,  # cells that run together; None: as many as fit
    energy: Energy = Energy(),  # noqa: B008 - immutable
    engine: str = "here",  # here, processes, dask, or the address of a dask scheduler
    workers: int | None = None,  # processes that run cells; None: one per core
    tls: Sequence[str | PathLike[str]] = (),  # authority, certificate and key of that scheduler
) -> Run:
    """Run every cell for `slots` slots and return the mean over cells; `run.model` is (cell, d).

    `at_once` cells run together; by default as many as fit in about a gigabyte, or in a fifth of a
    GPU's memory. With `RadioCells` cells interfere; any other network is the same in every cell.
    `engine`: here, processes, dask, or the address of a dask scheduler, with `tls` its authority,
    certificate and key. A worker runs `at_once` cells together, by default a 32nd of them at most.
    """
    work = CellWork(field, network, algorithm, slots, seed, clock, recording, energy)
    work.check()
    if engine == "here":
        return joined(work, in_turn(work, portions(field, at_once)))
    from folkman.experiment.sweep import crew_for  # here and not above: one process never asks

    parts = spread(field, at_once)
    with closing(engine_for(crew_for(engine, workers, None, *map(str, tls)))) as hands:
        found = {done.cells: done.portion for done in portions_on(hands, work, parts)}
    return joined(work, [found[cells] for cells in parts])


def spread(field: Field, at_once: int | None = None) -> list[range]:
    """Cut the cells into the portions that workers run, whatever the machine and the workers."""
    size = (
        min(fitting(field), -(-field.num_cells // LEAST_PORTIONS)) if at_once is None else at_once
    )
    return cut(field.num_cells, size)


def portions_on(hands: Engine, work: CellWork, parts: Iterable[range]) -> Iterator[Done]:
    """Yield the portions as they end; the first that cannot be run is an error."""
    content, settings = _packed(work), cast(Any, jax.config)  # its names are made at run time
    with tempfile.TemporaryDirectory(prefix="folkman-cells-") as place:
        common = {
            "kind": CELLS,
            "rank": 0,
            "group": hashlib.sha256(content).hexdigest(),
            "store": place,
            "store_id": "",  # no worker writes here but those that are given the folder
            "own_code": {},
            "work": hands.share(content),
            "version": folkman.__version__,
            "x64": settings.jax_enable_x64,
            "products": settings.jax_default_matmul_precision,
        }
        orders, cells_of = [], {}
        for cells in parts:
            key = f"cells {cells.start} to {cells.stop - 1}"
            cells_of[key] = cells
            own = {"key": key, "arm": key, "folder": str(Path(place) / str(cells.start))}
            orders.append({**common, **own, "cells": [cells.start, cells.stop]})
        for told in hands.map(orders, lambda *_: None):
            if told["state"] != FINISHED:
                raise RuntimeError(f"{told['key']}: {told['message']}")
            cells = cells_of[told["key"]]
            yield Done(cells, _read(Path(place) / str(cells.start) / KEPT), told)


def make_portion(order: Table, folder: Path) -> None:
    """Run the cells of an order in a worker, and write what they left into a folder."""
    require(
        order["version"] == folkman.__version__,
        f"this worker has folkman {folkman.__version__}, expected {order['version']} as where the "
        "cells were asked for; install the same version everywhere",
    )
    with jax.enable_x64(order["x64"]), jax.default_matmul_precision(order["products"]):
        portion = run_portion(_unpacked(order), range(*order["cells"]))
    names = list(portion.rows[0])
    table = np.array([[row[name] for name in names] for row in portion.rows], np.float64)
    held = {"names": np.array(names), "rows": table, "models": portion.models}

    def write(part: Path) -> None:
        with part.open("wb") as file:  # a name would be given an ending
            np.savez(file, **held)

    write_whole(folder / KEPT, write)


def _read(path: Path) -> Portion:
    """Return a portion, and give back the room that its file takes."""
    with np.load(path) as held:
        names, table, models = held["names"].tolist(), held["rows"].tolist(), held["models"]
    path.unlink()
    return Portion(len(models), [dict(zip(names, row, strict=True)) for row in table], models)


def _packed(work: CellWork) -> bytes:
    """Return all that the cells need, for workers; methods are functions within functions."""
    require(
        find_spec("cloudpickle") is not None,
        "cells in other processes need the package cloudpickle, which is not installed; pip "
        "install 'folkman[dask]', or leave engine='here'",
    )
    import cloudpickle

    try:
        return cloudpickle.dumps(work._replace(field=replace(work.field)))  # what it keeps stays
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the field, the network or the algorithm cannot be sent to workers: {error}; leave "
            "engine='here'"
        ) from None


_HELD: dict[str, CellWork] = {}
"""What this worker was sent last, by digest: portions of the same cells share compiled programs."""


def _unpacked(order: Table) -> CellWork:
    if order["group"] not in _HELD:
        _HELD.clear()
        sent = order["work"]
        _HELD[order["group"]] = pickle.loads(  # noqa: S301 - of whoever may run code here anyway
            Path(sent).read_bytes() if isinstance(sent, str) else sent
        )
    return _HELD[order["group"]]
