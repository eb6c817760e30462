"""A Python loop over steps, seeds and gammas in one process: it compiles once and stays flat.

    python benchmarks/loop.py --runs 2000

Prints the compilations, the seconds of a run, the memory and the memory maps of the process at some
runs. Each run has a step and a seed of its own, and its gamma is one of 1 to 20. With `--hand-made`
every algorithm is built without `folkman.method`, as a closure of its own: each needs a program of
its own then, and what counts is that the process stays within its limits.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import jax

import folkman as fm

SHOWN = (1, 10, 100, 200, 500, 1000, 2000, 5000)


class Compilations:
    """Counts what XLA compiles."""

    def __init__(self) -> None:
        self.number = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event: str, duration_secs: float, **_: str | int) -> None:
        del duration_secs
        self.number += event == "/jax/core/compile/backend_compile_duration"


def megabytes() -> float:
    """Return the resident memory of this process."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096 / 1e6


def maps() -> int:
    """Return the memory maps of this process."""
    return len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Run the loop."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=50)
    parser.add_argument("--hand-made", action="store_true")
    asked = parser.parse_args()
    problem = fm.make_problem(fm.load("digits", train_size=300), "softmax", 5)
    counted = Compilations()
    begun_s = last_s = time.monotonic()
    last = 0
    print(f"{'run':>6} {'compiled':>9} {'s a run':>8} {'MB':>7} {'maps':>7}")
    for run in range(1, asked.runs + 1):
        algorithm = fm.async_sharing(0.05 + 1e-4 * run)
        if asked.hand_made:
            algorithm = replace(algorithm, name=f"run {run}")
        network = fm.snapshot(1 + run % 20)
        fm.simulate(problem, network, algorithm, slots=asked.slots, seed=run)
        if run in SHOWN or run == asked.runs:
            now_s = time.monotonic()
            each = (now_s - last_s) / (run - last)
            print(f"{run:>6} {counted.number:>9} {each:>8.3f} {megabytes():>7.0f} {maps():>7}")
            last, last_s = run, now_s
    print(f"{time.monotonic() - begun_s:.0f} s in all")


if __name__ == "__main__":
    main()
