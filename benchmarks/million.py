"""A million radios: cells that interfere, with fading, schedule and ages, softmax in every cell.

    python benchmarks/million.py --nodes 1000000 --cells 50000 --slots 1000 --rule index --check 3

Prints one line of JSON: seconds of all cells from the layout to the last model, the largest memory
of the device, nodes and slots. `--check K` then runs K cells drawn at random once more, each on its
own, and fails where a model differs by more than 1e-5 of the way that it has moved. `--probe` runs
the first cells that run at once alone, twice, and projects the whole from the second time.

Products are taken in whole float32 (`--precision highest`), since units of fewer bits would differ
from a cell's own run by more than that. folkman need not be installed.
"""

import argparse
import json
import resource
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "src")]

import jax  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.arrays import pool  # noqa: E402
from benchmarks.tasks import CLASSES  # noqa: E402
from folkman.algorithm.async_sharing import async_sharing  # noqa: E402
from folkman.engine.cells import (  # noqa: E402
    CellWork,
    cell_seed,
    portions,
    run_portion,
)
from folkman.engine.simulate import Recording, simulate  # noqa: E402
from folkman.experiment.cells import simulate_cells  # noqa: E402
from folkman.problem.data import DataSet  # noqa: E402
from folkman.problem.field import make_field  # noqa: E402
from folkman.radio.cells import radio_cells  # noqa: E402
from folkman.radio.network import RadioNetwork  # noqa: E402

SAME = 1e-5
"""Distance of a cell's model from that of its own run, as a part of the way that it has moved."""

TRAIN, TEST = 20_000, 1_000
"""Samples of the pool, and those that models are tested on."""


def main() -> None:
    """Run, print, check."""
    asked = _asked()
    jax.config.update("jax_default_matmul_precision", asked.precision)
    begun_s = time.perf_counter()
    work = _work(asked)
    laid_s = time.perf_counter() - begun_s
    told = {
        "nodes": asked.nodes,
        "cells": asked.cells,
        "slots": asked.slots,
        "rule": asked.rule,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "layout_s": laid_s,
    }
    if asked.probe:
        print(json.dumps(told | _probe(work, asked)), flush=True)
        return
    parts = portions(work.field, asked.at_once)
    run = simulate_cells(
        *work[:3], slots=work.slots, recording=work.recording, at_once=len(parts[0])
    )
    told |= {
        "seconds": time.perf_counter() - begun_s,
        "at_once": len(parts[0]),
        **_memory(),
        **{name: run.last(name) for name in ("train_loss", "test_accuracy", "mean_age", "rounds")},
    }
    told["node_slots_per_s"] = asked.nodes * asked.slots / told["seconds"]
    told["checked"] = checked = _check(work, run.model, asked)
    print(json.dumps(told), flush=True)
    if any(each["apart"] > SAME for each in checked):
        sys.exit(f"a cell is not the same on its own: expected at most {SAME}; see checked")


def _asked() -> argparse.Namespace:
    """Read the command line."""
    read = argparse.ArgumentParser(description="many cells that interfere, on one device")
    read.add_argument("--nodes", type=int, default=1_000_000)
    read.add_argument("--cells", type=int, default=50_000)
    read.add_argument("--slots", type=int, default=1_000)
    read.add_argument("--rule", choices=("threshold", "index"), default="threshold")
    read.add_argument("--threshold-db", type=float, default=-15.0, help="with --rule threshold")
    read.add_argument("--check", type=int, default=0, metavar="K", help="cells run on their own")
    read.add_argument("--check-on", choices=("same", "cpu"), default="same")
    read.add_argument("--at-once", type=int, help="cells that run together; default: by memory")
    read.add_argument("--samples", type=int, default=100, help="of a node")
    read.add_argument("--batch", type=int, default=32)
    read.add_argument("--precision", choices=("highest", "default"), default="highest")
    read.add_argument("--probe", action="store_true", help="run a part and project the whole")
    asked = read.parse_args()
    if asked.cells < 2 or asked.nodes % asked.cells:
        read.error(
            f"--nodes must be a multiple of --cells, of which there are two at least; "
            f"got {asked.nodes} and {asked.cells}"
        )
    return asked


def _work(asked: argparse.Namespace) -> CellWork:
    """Lay out the cells; samples are drawn, of MNIST's shape."""
    x, y = pool(TRAIN + TEST)
    data = DataSet("drawn", x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:], CLASSES)
    each = asked.nodes // asked.cells
    radio = RadioNetwork(threshold_db=asked.threshold_db)
    if asked.rule == "index":
        radio = RadioNetwork(schedule="index", message="sum")
    field = make_field(
        data, "softmax", cells=asked.cells, nodes=each, samples=asked.samples, batch=asked.batch
    )
    network = radio_cells(radio, cells=asked.cells, nodes=each)
    recording = Recording(every=asked.slots)
    return CellWork(field, network, async_sharing(step=0.05), asked.slots, recording=recording)


def _probe(work: CellWork, asked: argparse.Namespace) -> dict[str, Any]:
    """Run the first portion twice; the second time is compiled."""
    parts = portions(work.field, asked.at_once)
    begun_s = time.perf_counter()
    drawn = work.field.drawn(parts[0])
    drawn_s = time.perf_counter() - begun_s
    took_s = []
    for _ in range(2):
        begun_s = time.perf_counter()
        run_portion(work, parts[0], drawn)
        took_s.append(time.perf_counter() - begun_s)
    slot_ms = 1e3 * took_s[1] / asked.slots
    return {
        "probe": True,
        "portions": len(parts),
        "at_once": len(parts[0]),
        "compile_s": took_s[0] - took_s[1],
        "drawn_s": drawn_s,
        "slot_ms": slot_ms,
        "projected_s_of_1000_slots": len(parts) * slot_ms + took_s[0] - took_s[1],
        **_memory(),
    }


def _memory() -> dict[str, float]:
    """Return the largest memory so far: of the device where it tells, and of this process."""
    used = jax.devices()[0].memory_stats() or {}  # none on a CPU
    own_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    device_gb = used.get("peak_bytes_in_use", 0) / 1e9
    return {"device_gb": device_gb, "host_gb": own_gb}


def _check(work: CellWork, models: np.ndarray, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Run some cells on their own and tell how far their models are."""
    chosen = np.random.default_rng(0).choice(asked.cells, asked.check, replace=False)
    network, found = work.network, []
    place = nullcontext() if asked.check_on == "same" else jax.default_device(jax.devices("cpu")[0])
    with place:
        for cell in sorted(chosen.tolist()):
            problem, there = work.field.cell(cell), network.cell(cell)  # type: ignore[union-attr]
            problem, there = jax.device_put((problem, there))
            alone = simulate(
                problem,
                there,
                work.algorithm,
                slots=work.slots,
                seed=cell_seed(work.seed, cell),
                recording=work.recording,
            )
            moved = np.linalg.norm(alone.model - np.asarray(work.field.first.initial))
            apart = float(np.linalg.norm(models[cell] - alone.model) / moved)
            found.append({"cell": cell, "apart": apart})
    return found


if __name__ == "__main__":
    main()
