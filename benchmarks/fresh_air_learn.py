"""What fresh air is worth to learning at full size: the paper's CNN on MNIST, on the paper's radio.

    python benchmarks/fresh_air_learn.py --out runs/fresh.jsonl               all, a GPU of its own
    python benchmarks/fresh_air_learn.py --out runs/fresh.jsonl --part 1/3    every third run
    python benchmarks/fresh_air_learn.py --out runs/quick.jsonl --quick       digits, minutes
    python benchmarks/fresh_air_learn.py --table runs/fresh*.jsonl            what came out
    python benchmarks/fresh_air_learn.py --table FILES --draw fresh.png       the same, drawn

Slots of 1 s, 500 of them, full gradients, step 0.016, one first model; a drop is a draw of
positions, interferers and fading. All arms of a drop meet the same drop. A message is priced at 16
bits a parameter; its values are not rounded. The arms:

    free       no delay: FedAvg with free links
    paper      the paper's rule, at the threshold of seven with the least mean age on this drop
    fresh      index schedule, sums, own part aligned
    newest     fresh without the last: own part newest, equation (9) as it is
    copies     fresh with copies for sums
    epochs     fresh without the schedule: the paper's rule, own part aligned
    triple     fresh at three times the step

A run is a JSON line, written when it ends; runs that are there are not made again. They come in
order of importance, and none starts after --budget-s.
"""

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from folkman.algorithm.async_sharing import async_sharing
from folkman.algorithm.base import Algorithm
from folkman.engine.simulate import Clock, Recording, simulate
from folkman.keys import Stream, make_key
from folkman.packing.packing import none
from folkman.problem.data import DataSet, digits, mnist
from folkman.problem.models import MODELS
from folkman.problem.partition import iid, sorted_labels
from folkman.problem.problem import Problem, make_problem
from folkman.radio.compressed import Compressed
from folkman.radio.delay import ideal
from folkman.radio.delivery import Network, NetworkState, PeerNetwork
from folkman.radio.network import RadioNetwork

THRESHOLDS_DB = (-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0)
BITS = 16
KEPT = ("slots", "train_loss", "test_accuracy", "mean_age", "max_age", "pairs_unheard", "bits")


class Size(NamedTuple):
    """What is learned, and for how long."""

    data: str
    step: float
    slots: int
    every: int
    slot_s: float


FULL = Size("mnist", 0.016, 500, 25, 1.0)
# a transfer of the small network then takes the part of a slot that the paper's CNN takes of 1 s
QUICK = Size("digits", 0.2, 100, 20, 0.0056)


class Job(NamedTuple):
    """One run."""

    split: str  # even, label
    nodes: int
    arm: str
    drop: int

    @property
    def name(self) -> str:
        """Return what a line is found by."""
        return f"{self.split}-{self.nodes}-{self.arm}-{self.drop}"


def jobs(drops: int) -> Iterator[Job]:
    """Yield all runs, the most important first."""
    yield Job("label", 5, "free", 0)  # without delay the split does not matter
    groups = [
        ("label", 5, ("fresh", "paper")),
        ("even", 5, ("fresh", "paper")),
        ("label", 15, ("fresh", "paper")),
        ("label", 5, ("newest", "copies", "epochs")),
        ("even", 15, ("fresh", "paper")),
        ("even", 5, ("newest",)),
        ("label", 5, ("triple",)),
        ("label", 15, ("newest", "copies", "epochs")),
    ]
    for split, nodes, arms in groups:
        for drop in range(drops):
            for arm in arms:
                yield Job(split, nodes, arm, drop)


def problem_of(size: Size, data: DataSet, split: str, nodes: int) -> Problem:
    """Return the samples on the nodes, and the model's first parameters."""
    parts = (iid if split == "even" else sorted_labels)(data.y_train, nodes)
    shape, classes = data.x_train.shape[1:], data.num_classes
    if size.data == "mnist":
        model = MODELS["cnn"](shape, classes, precision="bfloat16")
    else:
        model = MODELS["mlp"](shape, classes)
    return make_problem(data, model, parts, seed=0)


@partial(jax.jit, static_argnums=(1, 2))
def mean_age(radio: RadioNetwork, nodes: int, slots: int, bits: Array, key: Array) -> Array:
    """Return the mean age on a drop, over all pairs, after a quarter of the slots."""
    peers: PeerNetwork = radio.peers()
    offers = jnp.ones(nodes, bool)

    def slot(state: NetworkState, t: Array) -> tuple[NetworkState, Array]:
        state, delivery = peers.step(state, offers, bits, jax.random.fold_in(key, t))
        apart = ~jnp.eye(nodes, dtype=bool)
        return state, jnp.mean(t + 1 - delivery.held, where=apart)

    _, ages = lax.scan(slot, peers.init(nodes, key), jnp.arange(slots))
    return jnp.mean(ages[slots // 4 :])


def best_threshold_db(size: Size, nodes: int, drop: int, dim: int) -> float:
    """Return the threshold of the paper's rule with the least mean age on a drop."""
    key, bits = make_key(drop, Stream.DELAY), jnp.float32(BITS * dim)

    def age(threshold_db: float) -> float:
        radio = RadioNetwork(threshold_db, slot_s=size.slot_s)
        return float(mean_age(radio, nodes, size.slots, bits, key))

    return min(THRESHOLDS_DB, key=age)


def built(size: Size, job: Job, dim: int) -> tuple[Network, Algorithm, dict[str, Any]]:
    """Return the network and the method of a run, and what was chosen for it."""
    step = size.step * (3 if job.arm == "triple" else 1)
    own = "aligned" if job.arm in ("fresh", "copies", "epochs", "triple") else "newest"
    algorithm = async_sharing(step=step, own=own, memory=32)
    if job.arm == "free":
        return ideal(), algorithm, {}
    if job.arm in ("paper", "epochs"):
        threshold_db = best_threshold_db(size, job.nodes, job.drop, dim)
        radio = RadioNetwork(threshold_db, slot_s=size.slot_s)
        return Compressed(radio, none()), algorithm, {"threshold_db": threshold_db}
    message = "copy" if job.arm == "copies" else "sum"
    radio = RadioNetwork(schedule="index", message=message, slot_s=size.slot_s)
    return Compressed(radio, none()), algorithm, {}


def table(files: list[Path]) -> None:
    """Print the loss of each arm beside that of free links, over drops."""
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    ends: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for line in lines:
        ends.setdefault((line["split"], line["nodes"], line["arm"]), []).append(line["rows"][-1])
    free = next((rows[0] for (*_, arm), rows in ends.items() if arm == "free"), None)
    print(
        "| data, I | arm | drops | loss: median [least, most] | / free | within 1.05, 1.10 | "
        "accuracy: median (least) | mean age |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (split, nodes, arm), rows in ends.items():
        loss = np.array([row["train_loss"] for row in rows])
        accuracy = np.array([row["test_accuracy"] for row in rows])
        ratio = loss / free["train_loss"] if free else np.full(len(loss), np.nan)
        near = ", ".join(str(int((ratio <= bound).sum())) for bound in (1.05, 1.10))
        age = np.mean([row["mean_age"] for row in rows])
        print(
            f"| {split}, {nodes} | {arm} | {len(rows)} | {np.median(loss):.3f} "
            f"[{loss.min():.3f}, {loss.max():.3f}] | {np.median(ratio):.2f} | {near} | "
            f"{np.median(accuracy):.3f} ({accuracy.min():.3f}) | {age:.1f} |"
        )


def draw(files: list[Path], target: Path) -> None:
    """Draw the training loss over slots, data by label on five nodes: all drops, and medians."""
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    looks = {
        "paper": ("the paper's rule", "#d55e00"),
        "fresh": ("fresh air", "#0072b2"),
        "free": ("free links", "#000000"),
    }
    last = lines[0]["rows"][-1]["slots"]
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for arm, (name, colour) in looks.items():
        mine = [e for e in lines if (e["split"], e["nodes"], e["arm"]) == ("label", 5, arm)]
        slots = [row["slots"] for row in mine[0]["rows"]]
        loss = np.array([[row["train_loss"] for row in each["rows"]] for each in mine])
        if len(mine) > 1:
            axes.plot(slots, loss.T, color=colour, alpha=0.25, linewidth=0.7)
        middle = np.median(loss, axis=0)
        dashed = "--" if arm == "free" else "-"
        axes.plot(slots, middle, color=colour, linewidth=2, linestyle=dashed)
        end = {"paper": 0, "fresh": 7, "free": -7}[arm]  # two of the labels would meet
        place = {"xytext": (6, end), "textcoords": "offset points", "va": "center"}
        axes.annotate(name, (slots[-1], middle[-1]), color=colour, **place)
    axes.set(yscale="log", xlabel="slots of 1 s", ylabel="training loss F(w)", xlim=(0, last))
    ticks = (0.2, 0.5, 1, 2, 5)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=150)


def main() -> None:
    """Run what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("--draw", type=Path, help="with --table: a figure as well")
    parser.add_argument("--folder", type=Path, help="where mnist.npz is; default the user's cache")
    parser.add_argument("--drops", type=int, default=20)
    parser.add_argument("--part", default="1/1", help="K/N: every N-th run")
    parser.add_argument("--budget-s", type=float, default=float("inf"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.table:
        table(asked.table)
        if asked.draw:
            draw(asked.table, asked.draw)
        return
    begun, size = time.monotonic(), QUICK if asked.quick else FULL
    which, of = map(int, asked.part.split("/"))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = asked.out.read_text().splitlines() if asked.out.exists() else []
    known = {json.loads(line)["name"] for line in done}
    data = digits() if asked.quick else mnist(asked.folder)
    problems: dict[tuple[str, int], Problem] = {}
    mine = [job for job in list(jobs(asked.drops))[which - 1 :: of] if job.name not in known]
    for job in mine:
        if time.monotonic() - begun > asked.budget_s:
            break
        place = (job.split, job.nodes)
        if place not in problems:
            problems = {place: problem_of(size, data, *place)}  # one at a time: they are large
        problem, since = problems[place], time.monotonic()
        network, algorithm, chosen = built(size, job, problem.dim)
        run = simulate(
            problem,
            network,
            algorithm,
            slots=size.slots,
            seed=job.drop,
            clock=Clock(size.slot_s),
            recording=Recording(every=size.every),
        )
        rows = [{name: row[name] for name in KEPT} for row in run.rows]
        line = {"name": job.name, **job._asdict(), **chosen, "rows": rows}
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        last = rows[-1]
        print(
            f"{time.monotonic() - begun:6.0f} s  {job.name}: {last['train_loss']:.4f} "
            f"{last['test_accuracy']:.4f}, age {last['mean_age']:.1f} "
            f"({time.monotonic() - since:.1f} s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
