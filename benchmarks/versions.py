"""Two versions of folkman at the same works, in turn: the ratio of their times.

    python benchmarks/versions.py OTHER/src src --work W1m W2 W2a W3

Each version is a folder with the package `folkman`. Both get the same random samples; a process of
each is kept ready, and they take turns, so that a busy machine slows both. The first repetition of
each compiles and does not count.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent


def learner(work: str) -> None:
    """Be one version: a line on standard input is a repetition, its seconds are the answer."""
    import jax
    import numpy as np

    from benchmarks import own_side
    from benchmarks.opponents.protocol import Arrays
    from benchmarks.tasks import load_works
    from folkman.engine.simulate import march, start

    task = min(load_works()[work].tasks, key=lambda task: task.nodes)
    rng = np.random.default_rng(0)
    pool = task.nodes * task.samples
    arrays = Arrays(
        pool_x=rng.uniform(size=(pool, 784)).astype(np.float32),
        pool_y=rng.integers(0, 10, pool).astype(np.int32),
        parts=np.arange(pool).reshape(task.nodes, task.samples),
        initial=np.zeros(0),
        draws=None,
    )
    simulation = own_side.simulation_of(task, own_side.problem_of(task, arrays))
    for _ in sys.stdin:
        mark = jax.block_until_ready(start(simulation, seed=0))
        begun_s = time.perf_counter()
        for reached, _ in march(simulation, mark, task.rounds):
            mark = reached
        jax.block_until_ready(mark.carry.states)
        print(time.perf_counter() - begun_s, flush=True)


def compare(sources: list[Path], work: str, times: int) -> list[float]:
    """Return the median seconds of each version."""
    sides = [
        subprocess.Popen(
            [sys.executable, __file__, "--learner", work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": _path(source)},
        )
        for source in sources
    ]
    took: list[list[float]] = [[] for _ in sides]
    for _ in range(times + 1):
        for side, seconds in zip(sides, took, strict=True):
            assert side.stdin is not None  # noqa: S101 - asked for above
            assert side.stdout is not None  # noqa: S101
            print("go", file=side.stdin, flush=True)
            seconds.append(float(side.stdout.readline()))
    for side in sides:
        side.communicate()
    return [median(seconds[1:]) for seconds in took]


def _path(source: Path) -> str:
    more = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([str(source.resolve()), str(ROOT), *more])


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--work", nargs="+", default=["W1m", "W2", "W2a", "W3"])
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--learner", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.learner:
        learner(asked.learner)
        return
    print(f"{'work':>5} {'first, s':>9} {'second, s':>10} {'second / first':>15}")
    for work in asked.work:
        first, second = compare(asked.sources, work, asked.times)
        print(f"{work:>5} {first:>9.4f} {second:>10.4f} {second / first:>15.3f}", flush=True)


if __name__ == "__main__":
    main()
