r"""Whether a step that knows the ages keeps every drop of fresh air stable, and what it costs.

    python benchmarks/own_part_steps.py --timelines runs/timelines --out runs/steps.jsonl
    python benchmarks/own_part_steps.py --table runs/steps.jsonl

An MLP on the digits, full batches, 500 slots, five nodes, `own = "centred"`. Who holds what when is
that of the paper's CNN with sums and slots of 1 s (`fresh_air_learn.py`). Every step is run without
a policy and with `delay_policy = "stable"`, on the same drops. A drop is *thrown back* where the
loss at the end of 25 slots is more than half above an earlier one, and has *failed* where it ends
above 1. Lines that are in --out are not made again.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402 - after the platform

SLOTS, EVERY, NODES = 500, 25, 5
POLICIES = ("none", "stable")
Json = dict[str, Any]
Place = tuple[str, str, float, int]


def place_of(line: Json) -> Place:
    """Return what a line is found by."""
    return line["split"], line["policy"], line["step"], line["drop"]


def lines_of(files: Sequence[Path]) -> dict[Place, Json]:
    """Return the lines of files."""
    texts = [text for file in files if file.exists() for text in file.read_text().splitlines()]
    return {place_of(line): line for line in map(json.loads, texts)}


def run_all(asked: argparse.Namespace) -> None:
    """Make the runs that are not there yet."""
    from benchmarks.fresh_air_learn import Job, age_of, drawn, problem_of
    from folkman.algorithm.async_sharing import async_sharing
    from folkman.engine.simulate import Recording, simulate
    from folkman.problem.data import digits, npz
    from folkman.radio.replay import from_file
    from folkman.radio.trace import load

    data = npz(asked.data) if asked.data else digits()
    data = data._replace(name="digits")
    problems = {split: problem_of(data, split, NODES) for split in asked.splits}
    known = set(lines_of([asked.out]))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for drop in range(*asked.drops):
        path, _ = drawn(asked.timelines, Job("mnist", "label", NODES, "fresh", drop), make=True)
        network = from_file(str(path), None, "sum", alike=True)
        age = age_of(np.asarray(load(path).held))  # type: ignore[union-attr]
        for split, problem in problems.items():
            for policy in asked.policies:
                for step in asked.steps:
                    if (split, policy, step, drop) in known:
                        continue
                    method = async_sharing(step, own="centred", delay_policy=policy)
                    record = Recording(every=EVERY)
                    run = simulate(problem, network, method, slots=SLOTS, recording=record)
                    way = [float(f"{row['train_loss']:.5g}") for row in run.rows]
                    line = {"split": split, "policy": policy, "step": step, "drop": drop}
                    line |= {"mean_age": round(age, 3), "way": way}
                    with asked.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")


def thrown_back(way: Sequence[float]) -> bool:
    """Tell whether the loss ever rises by more than half within a record."""
    pairs = pairwise(way[1:])  # the first model is no achievement
    return any(not after <= 1.5 * before for before, after in pairs)


def end_of(line: Json) -> float:
    """Return the loss at the end, at most that of a guess."""
    last = line["way"][-1]
    return min(last, math.log(10)) if math.isfinite(last) else math.log(10)


def table(lines: dict[Place, Json]) -> str:
    """Return the ends of each policy and step, and the ratio of the policies drop by drop."""
    head = "| data | step | policy | drops | loss: median [least, most] | thrown back | failed | "
    rows = [head + "/ none: geometric mean, youngest half, oldest half |", "|---" * 8 + "|"]
    groups = dict.fromkeys(place[:3] for place in lines)
    for split, policy, step in sorted(groups, key=lambda each: (each[0], each[2], each[1])):
        mine = [line for place, line in lines.items() if place[:3] == (split, policy, step)]
        ends = np.array([end_of(line) for line in mine])
        back = sum(thrown_back(line["way"]) for line in mine)
        told = f"{np.median(ends):.4f} [{ends.min():.4f}, {ends.max():.4f}]"
        ratios = "-"
        if policy != "none":
            pairs = [
                (line["mean_age"], end_of(line) / end_of(lines[split, "none", step, line["drop"]]))
                for line in mine
                if (split, "none", step, line["drop"]) in lines
            ]
            logs = np.log([ratio for _, ratio in sorted(pairs)])
            half = len(logs) // 2
            parts = (logs, logs[:half], logs[half:])
            ratios = ", ".join(f"{np.exp(part.mean()):.2f}" for part in parts if len(part))
        rows.append(
            f"| {split} | {step:g} | {policy} | {len(mine)} | {told} | {back} | "
            f"{int((ends > 1).sum())} | {ratios} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Run what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timelines", type=Path, default=Path("runs/timelines"))
    parser.add_argument("--out", type=Path, default=Path("runs/steps.jsonl"))
    parser.add_argument("--data", help="an .npz file of the digits; scikit-learn's by default")
    parser.add_argument("--drops", type=int, nargs=2, default=(100, 120), help="first, beyond last")
    parser.add_argument("--steps", type=float, nargs="+", default=(0.2, 0.5, 1.0))
    parser.add_argument("--splits", nargs="+", default=("label", "even"))
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--table", type=Path, nargs="+")
    asked = parser.parse_args()
    print(table(lines_of(asked.table))) if asked.table else run_all(asked)


if __name__ == "__main__":
    main()
