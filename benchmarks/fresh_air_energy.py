"""What fresh air costs in joules beside the paper's rule: digits, MLP, five nodes, its radio.

    python benchmarks/fresh_air_energy.py --out runs/energy.jsonl            minutes on a CPU
    python benchmarks/fresh_air_energy.py --table runs/energy.jsonl          what came out

Slots last 11.2 ms, so that a transfer of its 4,810 parameters takes the part of a slot that the
paper's CNN takes of 1 s;
300 slots, full gradients, 16 bits a parameter, 19 in sums, which stay exact so; the default powers
of `folkman.energy`. Values are not rounded. A drop is a draw of positions, interferers and fading;
all arms of a drop meet the same one. The arms:

    paper      the paper's rule, at the threshold of seven with the least mean age on this drop
    fresh      index schedule, sums, own part centred
    measured   the same with own = "measured"
    newest     the same with equation (9) as it is
    station    FedAvg through the base station, by Proposition 1

The step of each arm, and FedAvg's local steps, are the best of a few on drops of their own: those
with the least training loss at the end. A run is a JSON line; runs that are there are not made
again.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import stats

from benchmarks.fresh_air_learn import BITS, THRESHOLDS_DB, mean_age
from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.base import Algorithm
from folkman.algorithm.fedavg import fedavg
from folkman.checks import require
from folkman.energy import Energy
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.keys import Stream, make_key
from folkman.packing.packing import none, place_bits
from folkman.problem.data import digits
from folkman.problem.partition import iid, sorted_labels
from folkman.problem.problem import Problem, make_problem
from folkman.radio.compressed import Compressed
from folkman.radio.network import RadioNetwork

NODES, SLOTS, EVERY = 5, 300, 5
DIM = 4810
SLOT_S = DIM / 430_698
"""A transfer takes the part of it that the paper's CNN takes of 1 s."""
ARMS = ("paper", "fresh", "measured", "newest", "station")
SUMS = {"fresh": "centred", "measured": "measured", "newest": "newest"}
"""Arms with sums on the index schedule, and their own parts."""
SPLITS = ("label", "even")
STEPS = (0.1, 0.2, 0.5, 1.0)
LOCAL_STEPS = (1, 5)
TUNING_DROPS = (1000, 1001, 1002, 1003)
TARGETS = (1.0, 0.3)
KEPT = ("slots", "train_loss", "test_accuracy", "energy_j", "transmit_j", "receive_j")
KEPT += ("compute_j", "station_j", "joules_per_percent", "mean_age")


class Job(NamedTuple):
    """One run."""

    split: str
    arm: str
    drop: int
    step: float
    local_steps: int = 1

    @property
    def name(self) -> str:
        """Return what a line is found by."""
        return "-".join(map(str, self))


def options(arm: str) -> list[tuple[float, int]]:
    """Return the steps and local steps that an arm is tuned over."""
    local = LOCAL_STEPS if arm == "station" else (1,)
    return [(step, steps) for step in STEPS for steps in local]


def problem_of(split: str) -> Problem:
    """Return the digits on the nodes."""
    data = digits()
    parts = (iid if split == "even" else sorted_labels)(data.y_train, NODES)
    problem = make_problem(data, "mlp", parts, seed=0)
    require(problem.dim == DIM, f"slots are for {DIM} parameters, got {problem.dim}")
    return problem


def best_threshold_db(drop: int, dim: int) -> float:
    """Return the threshold of seven with the least mean age on a drop."""
    key, bits = make_key(drop, Stream.DELAY), jnp.float32(BITS * dim)

    def age(threshold_db: float) -> float:
        radio = RadioNetwork(threshold_db, slot_s=SLOT_S)
        return float(mean_age(radio, NODES, SLOTS, bits, key))

    return min(THRESHOLDS_DB, key=age)


def built(job: Job, dim: int) -> tuple[RadioNetwork, Algorithm]:
    """Return the radio and the method of a run."""
    own: Any = SUMS.get(job.arm, "newest")
    if job.arm == "station":
        return RadioNetwork(slot_s=SLOT_S), fedavg(job.step, job.local_steps)
    if job.arm in SUMS:
        bits = BITS + place_bits(NODES)  # a sum that stays exact
        radio = RadioNetwork(
            schedule="index", message="sum", slot_s=SLOT_S, bits_per_parameter=bits
        )
    else:
        radio = RadioNetwork(best_threshold_db(job.drop, dim), slot_s=SLOT_S)
    return radio, async_sharing(job.step, own=own, memory=32)


def made(job: Job, problem: Problem) -> dict[str, Any]:
    """Make a run and return its line."""
    radio, algorithm = built(job, problem.dim)
    run = simulate(
        problem,
        Compressed(radio, none()),
        algorithm,
        slots=SLOTS,
        seed=job.drop,
        clock=Clock(SLOT_S),
        recording=Recording(every=EVERY),
    )
    rows = [{name: row[name] for name in KEPT} for row in run.rows]
    return {"name": job.name, **job._asdict(), "threshold_db": radio.threshold_db, "rows": rows}


def tuned(lines: dict[str, dict[str, Any]], split: str, arm: str) -> tuple[float, int]:
    """Return the options with the least loss at the end, mean over the tuning drops."""

    def loss(option: tuple[float, int]) -> float:
        ends = [lines[Job(split, arm, drop, *option).name]["rows"][-1] for drop in TUNING_DROPS]
        found = np.mean([end["train_loss"] for end in ends])
        return float(found) if np.isfinite(found) else np.inf

    return min(options(arm), key=loss)


def jobs(lines: dict[str, dict[str, Any]], drops: int) -> Iterator[Job]:
    """Yield all runs: the tuning of an arm first."""
    for split in SPLITS:
        for arm in ARMS:
            for drop in TUNING_DROPS:
                yield from (Job(split, arm, drop, *option) for option in options(arm))
        for drop in range(drops):
            for arm in ARMS:
                yield Job(split, arm, drop, *tuned(lines, split, arm))


def to_target(rows: list[dict[str, Any]], target: float) -> float:
    """Return the joules at the first row whose training loss is at most the target; else inf."""
    return next((row["energy_j"] for row in rows if row["train_loss"] <= target), np.inf)


def paired(mine: np.ndarray, other: np.ndarray) -> str:
    """Return the geometric mean of the ratio over drops and its 95 % interval, by Student's t."""
    both = np.isfinite(mine) & np.isfinite(other)
    if both.sum() < 2:
        return "-"
    logs = np.log(mine[both] / other[both])
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    low, mid, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
    of = "" if both.all() else f" ({both.sum()} of {len(both)})"
    return f"{mid:.2f} [{low:.2f}, {high:.2f}]{of}"


def table(file: Path) -> None:
    """Print joules and what they buy, each arm beside the paper's rule on the same drops."""
    lines = {line["name"]: line for line in map(json.loads, file.read_text().splitlines())}
    listening_j = Energy().receive_w * NODES * SLOTS * SLOT_S
    goals = " | ".join(f"J to loss {target:g} | / paper" for target in TARGETS)
    print(
        "| data, arm | step | loss [least, most] | accuracy | joules | station | J per percent | "
        f"/ paper | {goals} | always listening: / paper |"
    )
    print("|---" * (9 + 2 * len(TARGETS)) + "|")
    for split in SPLITS:
        ends: dict[str, dict[str, np.ndarray]] = {}
        for arm in ARMS:
            step, local = tuned(lines, split, arm)
            keys, wanted = ("split", "arm", "step", "local_steps"), (split, arm, step, local)
            mine = [e for e in lines.values() if tuple(e[key] for key in keys) == wanted]
            mine = [e for e in mine if e["drop"] < min(TUNING_DROPS)]
            mine.sort(key=lambda line: line["drop"])
            last = {name: np.array([e["rows"][-1][name] for e in mine]) for name in KEPT}
            for target in TARGETS:
                last[f"to {target}"] = np.array([to_target(e["rows"], target) for e in mine])
            always = last["energy_j"] - last["receive_j"] + listening_j
            last["always"] = always / (100 * last["test_accuracy"])
            ends[arm] = last
            print(_line(split, arm, f"{step:g}, {local}", last, ends["paper"]))


def _line(
    split: str, arm: str, options: str, mine: dict[str, np.ndarray], paper: dict[str, np.ndarray]
) -> str:
    """Return a row of the table: medians over drops, and paired ratios."""
    loss = mine["train_loss"]
    cells = [f"{split}, {arm}", options.removesuffix(", 1")]
    cells += [f"{np.median(loss):.3g} [{loss.min():.2g}, {loss.max():.2g}]"]
    cells += [f"{np.median(mine['test_accuracy']):.3f}"]
    cells += [f"{np.median(mine[name]):.3g}" for name in ("energy_j", "station_j")]
    cells += [f"{np.median(mine['joules_per_percent']):.3g}"]
    cells += [paired(mine["joules_per_percent"], paper["joules_per_percent"])]
    for target in TARGETS:
        spent = mine[f"to {target}"]
        reached = spent[np.isfinite(spent)]
        middle = f"{np.median(reached):.3g}" if len(reached) else "-"
        cells += [f"{middle} ({len(reached)} of {len(spent)})"]
        cells += [paired(spent, paper[f"to {target}"])]
    return f"| {' | '.join([*cells, paired(mine['always'], paper['always'])])} |"


def main() -> None:
    """Run what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--drops", type=int, default=8)
    asked = parser.parse_args()
    if asked.table:
        table(asked.table)
        return
    begun = time.monotonic()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    known = asked.out.read_text().splitlines() if asked.out.exists() else []
    lines = {line["name"]: line for line in map(json.loads, known)}
    problems = {split: problem_of(split) for split in SPLITS}
    for job in jobs(lines, asked.drops):
        if job.name in lines:
            continue
        line = made(job, problems[job.split])
        lines[job.name] = line
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        last = line["rows"][-1]
        print(
            f"{time.monotonic() - begun:6.0f} s  {job.name}: loss {last['train_loss']:.4f}, "
            f"accuracy {last['test_accuracy']:.4f}, {last['energy_j']:.3g} J",
            flush=True,
        )


if __name__ == "__main__":
    main()
