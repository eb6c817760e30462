"""Works that nobody tuned for: folkman beside PyTorch and JAX scripts, in turn, on this machine.

    python benchmarks/untuned.py --works mlp wide small --batches 8 64 512 --rounds 5 --out FILE

A work is a model, its nodes and a batch. In a slot every node takes one gradient step from the
common model, and all models are averaged. The scripts are a `vmap` over nodes and a loop over them,
in either library. folkman runs its whole engine, on the way that `folkman.fastest` picks. All sides
of a work are started and warmed up, then asked in turn; PyTorch's threads sleep while they wait,
since on a busy machine they would only burn time.

By the clock nothing counts on a machine that others use. So two things are told of each side,
medians of the rounds: CPU milliseconds a slot, and those of its busiest thread, below which no
number of cores gets it. The last columns are the best script's over folkman's.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

SIDES = ("folkman", "torch-vmap", "torch-loop", "jax-vmap", "jax-loop")
ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
SIDE = Path(__file__).with_name("untuned_side.py")


class Side:
    """A process that makes slots when it is asked."""

    def __init__(self, name: str, work: str, batch: int) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, str(SIDE), name, work, str(batch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ASLEEP},
        )

    def ask(self, slots: int) -> dict:
        """Return what so many slots took; the first answer is about the side itself."""
        told, heard = self._process.stdin, self._process.stdout
        if told is None or heard is None:
            raise RuntimeError("a side is a process with pipes")
        told.write(f"{slots}\n")
        told.flush()
        return json.loads(heard.readline())

    def end(self) -> None:
        """Close the process."""
        self._process.communicate("0\n")


def measured(work: str, batch: int, slots: int, rounds: int) -> dict:
    """Return the medians of all sides at one work."""
    sides = [Side(name, work, batch) for name in SIDES]
    for side in sides:
        side.ask(2)
    found: dict[str, list[dict]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for side in sides:
            found[side.name].append(side.ask(slots))
    for side in sides:
        side.end()
    row: dict = {"work": work, "batch": batch, "mflop": found["folkman"][0]["mflop"]}
    for name, answers in found.items():
        row[name] = {
            key: round(median(each[key] for each in answers), 3)
            for key in ("wall_ms", "cpu_ms", "busiest_ms")
        }
    row["way"] = found["folkman"][0]["way"]
    for key in ("wall_ms", "cpu_ms", "busiest_ms"):
        best = min(SIDES[1:], key=lambda name, key=key: row[name][key])
        row[f"best_{key}"] = (best, round(row[best][key] / row["folkman"][key], 2))
    return row


def main() -> None:
    """Measure the works asked for; print a line each, and keep all in a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--works", nargs="+", default=["mlp", "wide", "small"])
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 64, 512])
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for work in asked.works:
        for batch in asked.batches:
            row = measured(work, batch, asked.slots, asked.rounds)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if asked.out:
                asked.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
