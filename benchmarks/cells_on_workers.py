"""Cells on several workers: how much sooner two are done than one, and what memory a worker takes.

    python benchmarks/cells_on_workers.py speed --rounds 3
    python benchmarks/cells_on_workers.py memory --at-once 4 32 256

`speed` runs the same cells on one worker and on two, in turn, each warm; the ratio counts. Beside
it stands what a machine whose cores others use can still tell: the CPU seconds of the workers, of
which there should be no more with two. `memory` runs twice `at_once` cells, and twice as many, on
one worker for each size, and prints the most memory that it took.
"""

import argparse
import resource
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import median

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


def run_once(hands: Engine, work: CellWork, at_once: int) -> tuple[float, float]:
    """Return the seconds of all cells, and the most memory of a worker in MB."""
    begun_s = time.perf_counter()
    told = [done.told for done in portions_on(hands, work, spread(work.field, at_once))]
    return time.perf_counter() - begun_s, max(each["peak_mb"] for each in told)


def speed(asked: argparse.Namespace) -> None:
    """Time one worker against two, in turn, and print the ratios."""
    work, took = work_of(asked.cells, asked.slots), {1: [], 2: []}
    with (
        closing(engine_for(crew_for(asked.engine, 1))) as one,
        closing(engine_for(crew_for(asked.engine, 2))) as two,
    ):
        for k in range(asked.rounds + 1):
            for number, hands in ((1, one), (2, two)):
                seconds, _ = run_once(hands, work, asked.at_once[0])
                took[number] += [seconds] if k else []  # the first one compiles
    ratios = [first / second for first, second in zip(took[1], took[2], strict=True)]
    for number, seconds in took.items():
        print(f"{number} workers: {', '.join(f'{each:.1f}' for each in seconds)} s")
    print(f"1 worker / 2 workers: median {median(ratios):.2f} of {len(ratios)}")


def cpu(asked: argparse.Namespace) -> None:
    """Print the CPU seconds of one worker and of two, their starts and compiling with them."""
    work, spent = work_of(asked.cells, asked.slots), []
    for number in (1, 2) * asked.rounds:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with closing(engine_for(crew_for(asked.engine, number))) as hands:
            run_once(hands, work, asked.at_once[0])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"{number} workers: {spent[-1]:.1f} CPU s", flush=True)
    ratios = [one / two for one, two in zip(spent[::2], spent[1::2], strict=True)]
    print(f"1 worker / 2 workers: median {median(ratios):.2f} of {len(ratios)}")


def memory(asked: argparse.Namespace) -> None:
    """Print the most memory of a worker by the cells that it runs at once, and by their number."""
    for at_once in asked.at_once:
        most = []
        for portions in (2, 4):
            work = work_of(portions * at_once, asked.slots)
            with closing(engine_for(crew_for(asked.engine, 1))) as hands:
                most.append(run_once(hands, work, at_once)[1])
        print(f"{at_once:>6} at once: {most[0]:6.0f} MB; twice as many cells: {most[1]:6.0f} MB")


def main() -> None:
    """Read the command line and measure."""
    read = argparse.ArgumentParser(description="cells on several workers")
    read.add_argument("what", choices=("speed", "cpu", "memory"))
    read.add_argument("--cells", type=int, default=512)
    read.add_argument("--slots", type=int, default=100)
    read.add_argument("--at-once", type=int, nargs="+", default=[32])
    read.add_argument("--rounds", type=int, default=3)
    read.add_argument("--engine", choices=("processes", "dask"), default="processes")
    asked = read.parse_args()
    {"speed": speed, "cpu": cpu, "memory": memory}[asked.what](asked)


if __name__ == "__main__":
    main()
