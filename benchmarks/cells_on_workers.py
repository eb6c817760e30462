"""Cells on several workers: how much sooner two are done than one, and what memory a worker takes.

    python benchmarks/cells_on_workers.py speed --rounds 3
    python benchmarks/cells_on_workers.py memory --at-once 4 32 256

`speed` runs the same cells on one worker and on two, in turn, each warm; the ratio of the seconds
counts. Where others use the cores it says little. The CPU seconds of the workers beside it do: of
them there should be no more with two. `memory` runs twice `at_once` cells, and twice as many, on
one worker for each size, and prints the most memory that it took.
"""

import argparse
import os
import sys
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "src")]

from benchmarks.arrays import pool  # noqa: E402
from benchmarks.tasks import CLASSES  # noqa: E402
from folkman.algorithm.async_sharing import async_sharing  # noqa: E402
from folkman.engine.cells import CellWork  # noqa: E402
from folkman.engine.simulate import Recording  # noqa: E402
from folkman.experiment.cells import portions_on, spread  # noqa: E402
from folkman.experiment.engines import Engine, engine_for  # noqa: E402
from folkman.experiment.sweep import crew_for  # noqa: E402
from folkman.problem.data import DataSet  # noqa: E402
from folkman.problem.field import make_field  # noqa: E402
from folkman.radio.cells import radio_cells  # noqa: E402
from folkman.radio.network import RadioNetwork  # noqa: E402

TRAIN, TEST, NODES, SAMPLES, BATCH = 20_000, 1_000, 20, 100, 32


def work_of(cells: int, slots: int) -> CellWork:
    """Lay out cells of 20 nodes by the paper's rule, with softmax on images of MNIST's shape."""
    x, y = pool(TRAIN + TEST)
    data = DataSet("drawn", x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:], CLASSES)
    field = make_field(data, "softmax", cells=cells, nodes=NODES, samples=SAMPLES, batch=BATCH)
    network = radio_cells(RadioNetwork(threshold_db=-15.0), cells=cells, nodes=NODES)
    return CellWork(field, network, async_sharing(0.05), slots, recording=Recording(every=slots))


class Once(NamedTuple):
    """What all cells took once."""

    seconds: float
    peak_mb: float  # of the largest worker
    core_s: float  # of the workers, since they started


def run_once(hands: Engine, work: CellWork, at_once: int) -> Once:
    """Run all cells on the workers of an engine."""
    begun_s = time.perf_counter()
    told = [done.told for done in portions_on(hands, work, spread(work.field, at_once))]
    seconds = time.perf_counter() - begun_s
    workers = {each["worker"].split(":")[1] for each in told}
    return Once(seconds, max(each["peak_mb"] for each in told), sum(map(core_s, workers)))


def core_s(pid: str) -> float:
    """Return the seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user, system


def speed(asked: argparse.Namespace) -> None:
    """Time one worker against two, in turn, and print the ratios."""
    work = work_of(asked.cells, asked.slots)
    found: dict[int, list[Once]] = {1: [], 2: []}
    with (
        closing(engine_for(crew_for(asked.engine, 1))) as one,
        closing(engine_for(crew_for(asked.engine, 2))) as two,
    ):
        for _ in range(asked.rounds + 1):
            for number, hands in ((1, one), (2, two)):
                found[number].append(run_once(hands, work, asked.at_once[0]))
    each = {}
    for number, runs in found.items():  # the first one compiles
        taken = [(b.seconds, b.core_s - a.core_s) for a, b in pairwise(runs)]
        each[number] = taken
        print(f"{number} workers: " + ", ".join(f"{s:.1f} s ({c:.1f} CPU s)" for s, c in taken))
    for name, place in (("seconds", 0), ("CPU seconds", 1)):
        ratios = [a[place] / b[place] for a, b in zip(each[1], each[2], strict=True)]
        print(f"{name}, 1 worker / 2 workers: median {median(ratios):.2f} of {len(ratios)}")


def memory(asked: argparse.Namespace) -> None:
    """Print the most memory of a worker by the cells that it runs at once, and by their number."""
    for at_once in asked.at_once:
        most = []
        for portions in (2, 4):
            work = work_of(portions * at_once, asked.slots)
            with closing(engine_for(crew_for(asked.engine, 1))) as hands:
                most.append(run_once(hands, work, at_once).peak_mb)
        print(f"{at_once:>6} at once: {most[0]:6.0f} MB; twice as many cells: {most[1]:6.0f} MB")


def main() -> None:
    """Read the command line and measure."""
    read = argparse.ArgumentParser(description="cells on several workers")
    read.add_argument("what", choices=("speed", "memory"))
    read.add_argument("--cells", type=int, default=512)
    read.add_argument("--slots", type=int, default=100)
    read.add_argument("--at-once", type=int, nargs="+", default=[32])
    read.add_argument("--rounds", type=int, default=3)
    read.add_argument("--engine", choices=("processes", "dask"), default="processes")
    asked = read.parse_args()
    {"speed": speed, "memory": memory}[asked.what](asked)


if __name__ == "__main__":
    main()
