r"""What fresh air learns where things go wrong: digits, MLP, the paper's radio.

    python benchmarks/fresh_air_trouble.py --out runs/trouble.jsonl --nodes 5 15      minutes
    python benchmarks/fresh_air_trouble.py --table runs/trouble.jsonl                 what came out

The troubles are those of `fresh_air.py trouble`: control as it is heard, 20 % of the messages lost,
node 0 away for the middle third of the slots, nodes that walk at 10 m/s, and all of these. Slots
last 11.2 ms, so that a transfer of the 4,810 parameters takes the part of a slot that the paper's
CNN takes of 1 s. Control bits, the time of a contention and the speed are scaled alike: a node
walks 10 m in a slot. 500 slots, full gradients, step 0.2, one first model; copies at 16 bits a
parameter, sums at 16 + ceil(log2 I); values are not rounded. The arms:

    fresh     index schedule, sums, own part centred
    paper     the paper's rule, at the threshold of seven with the least mean age in this trouble on
              this drop, and with all knowledge
    free      FedAvg with free links, which has no trouble

A run is a JSON line; lines that are there are not made again.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

SLOTS, EVERY, STEP = 500, 25, 0.2
PAPER_CNN, DIM = 430_698, 4810
SLOT_S = DIM / PAPER_CNN
SPLITS, ARMS = ("label", "even"), ("fresh", "paper")

Json = dict[str, Any]


class Job(NamedTuple):
    """One run."""

    nodes: int
    split: str
    trouble: str
    arm: str
    drop: int


def jobs(nodes: list[int], drops: int, troubles: list[str]) -> Iterator[Job]:
    """Yield all runs, those with few nodes first."""
    for each in nodes:
        for split in SPLITS:
            yield Job(each, split, "none", "free", 0)
        for arm in ARMS:
            for trouble in troubles:
                for drop in range(drops):
                    for split in SPLITS:
                        yield Job(each, split, trouble, arm, drop)


def radio_of(job: Job, dim: int, threshold_db: float | None = None) -> Any:
    """Return the radio of a run in its trouble, losses included."""
    from benchmarks.fresh_air_drops import TROUBLES
    from folkman.packing.packing import none, place_bits
    from folkman.radio.compressed import Compressed
    from folkman.radio.loss import Lossy
    from folkman.radio.network import RadioNetwork

    trouble = TROUBLES[job.trouble]
    options: Json = {"slot_s": SLOT_S, "speed_m_per_s": trouble.speed_m_per_s / SLOT_S}
    if job.arm == "fresh":
        options |= {"schedule": "index", "message": "sum", "control": trouble.control}
        options |= {"control_bits": round(24 * job.nodes**2 * dim / PAPER_CNN)}
        options |= {"contention_s": 1e-3 * SLOT_S, "bits_per_parameter": 16 + place_bits(job.nodes)}
    else:
        options |= {"threshold_db": threshold_db, "bits_per_parameter": 16}
    radio = RadioNetwork(**options)
    lossy = Lossy(radio, trouble.loss) if trouble.loss else radio
    return Compressed(lossy, none())  # the bits are a price; nothing is rounded


AGES: dict[Any, Any] = {}


def best_threshold_db(job: Job, dim: int) -> float:
    """Return the threshold of seven with the least mean age in this trouble on this drop."""
    import jax
    import jax.numpy as jnp

    from benchmarks.fresh_air_drops import THRESHOLDS_DB, TROUBLES, roll
    from folkman.keys import Stream, make_key

    def age(threshold_db: Any, key: Any) -> Any:
        radio, away = radio_of(job, dim, threshold_db), TROUBLES[job.trouble].away
        plain: Any = roll  # inside a program of its own, which takes the threshold as a number
        return plain.__wrapped__(radio, job.nodes, SLOTS, 16 * dim, away, key)[0]

    program = AGES.setdefault((job.nodes, job.trouble), jax.jit(jax.vmap(age, (0, None))))
    key, tried = make_key(job.drop, Stream.DELAY), jnp.asarray(THRESHOLDS_DB, jnp.float32)
    return THRESHOLDS_DB[int(jnp.argmin(program(tried, key)))]


def made(job: Job, problem: Any) -> Json:
    """Make a run and return its line."""
    from benchmarks.fresh_air_drops import TROUBLES
    from folkman.algorithm.async_sharing import async_sharing
    from folkman.engine.simulate import Clock, Recording, simulate
    from folkman.faults import Faults
    from folkman.radio.delay import ideal

    about: Json = {}
    if job.arm == "free":
        network: Any = ideal()
        clock = Clock()
    else:
        if job.arm == "paper":
            about["threshold_db"] = best_threshold_db(job, problem.dim)
        network = radio_of(job, problem.dim, about.get("threshold_db"))
        clock = Clock(SLOT_S)
    gone = ((0, SLOTS // 3, 2 * SLOTS // 3),) if TROUBLES[job.trouble].away else ()
    run = simulate(
        problem,
        network,
        async_sharing(STEP, own="centred" if job.arm == "fresh" else "newest"),
        slots=SLOTS,
        seed=job.drop,
        clock=clock,
        recording=Recording(every=EVERY),
        faults=Faults(away=gone),
    )
    last = run.rows[-1]
    way = [float(f"{row['train_loss']:.5g}") for row in run.rows]
    ends = {name: float(f"{last[name]:.5g}") for name in ("test_accuracy", "mean_age")}
    return {**job._asdict(), **about, **ends, "way": way}


def lines_of(file: Path) -> dict[Job, Json]:
    """Return the lines of a file."""
    found = {}
    for text in file.read_text().splitlines() if file.exists() else []:
        line = json.loads(text)
        found[Job(*(line[name] for name in Job._fields))] = line
    return found


def run_all(asked: argparse.Namespace) -> None:
    """Make the runs that are not there yet."""
    from benchmarks.fresh_air_drops import TROUBLES
    from benchmarks.fresh_air_learn import problem_of
    from folkman.checks import require
    from folkman.problem.data import digits

    data, known, problems = digits(), lines_of(asked.out), {}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for job in jobs(asked.nodes, asked.drops, asked.troubles or list(TROUBLES)):
        if job in known:
            continue
        place = (job.split, job.nodes)
        problems.setdefault(place, None)
        if problems[place] is None:
            problems[place] = problem_of(data, *place)
            require(problems[place].dim == DIM, f"slots are for {DIM} parameters")
        with asked.out.open("a") as file:
            file.write(json.dumps(made(job, problems[place])) + "\n")


def end_of(line: Json) -> float:
    """Return the loss at the end, at most that of a guess."""
    last = line["way"][-1]
    return min(last, math.log(10)) if math.isfinite(last) else math.log(10)


def table(lines: dict[Job, Json]) -> str:
    """Return losses over drops beside those of free links, and the ratio of the two arms."""
    import numpy as np
    from scipy import stats

    head = "| I | data | trouble | drops | fresh air: loss [least, most] | / free [most] | "
    head += "within 1.05, 1.10 | mean age | paper's rule: loss [least, most] | / free | mean age | "
    rows = [head + "fresh / paper |", "|---" * 12 + "|"]
    for nodes, split, trouble in dict.fromkeys(job[:3] for job in lines if job.arm != "free"):
        free = end_of(lines[Job(nodes, split, "none", "free", 0)])
        arms = {arm: _of(lines, nodes, split, trouble, arm) for arm in ARMS}
        drops = sorted(set(arms["fresh"]) & set(arms["paper"] or arms["fresh"]))
        fresh = np.array([end_of(arms["fresh"][d]) for d in drops])
        if not len(drops):
            continue
        near = ", ".join(str(int((fresh <= bound * free).sum())) for bound in (1.05, 1.10))
        age = np.mean([arms["fresh"][d]["mean_age"] for d in drops])
        label = "by label" if split == "label" else split
        cells = [str(nodes), label, trouble, str(len(drops)), _spread(fresh)]
        cells += [f"{np.median(fresh) / free:.2f} [{fresh.max() / free:.2f}]", near, f"{age:.1f}"]
        if not arms["paper"]:
            rows.append("| " + " | ".join([*cells, "-", "-", "-", "-"]) + " |")
            continue
        paper = np.array([end_of(arms["paper"][d]) for d in drops])
        logs = np.log(fresh / paper)
        half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
        low, mid, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
        age = np.mean([arms["paper"][d]["mean_age"] for d in drops])
        cells += [_spread(paper), f"{np.median(paper) / free:.2f}", f"{age:.1f}"]
        rows.append("| " + " | ".join([*cells, f"{mid:.2f} [{low:.2f}, {high:.2f}]"]) + " |")
    return "\n".join(rows)


def _spread(losses: Any) -> str:
    import numpy as np

    return f"{np.median(losses):.3f} [{losses.min():.3f}, {losses.max():.3f}]"


def _of(lines: dict[Job, Json], *place: Any) -> dict[int, Json]:
    """Return the lines of a place by drop."""
    return {job.drop: line for job, line in lines.items() if job[:4] == place}


def main() -> None:
    """Run what is not there yet, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/trouble.jsonl"))
    parser.add_argument("--nodes", type=int, nargs="+", default=[5])
    parser.add_argument("--drops", type=int, default=10)
    parser.add_argument("--troubles", nargs="+", help="names as in fresh_air_drops.py; all")
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    print(table(lines_of(asked.table))) if asked.table else run_all(asked)


if __name__ == "__main__":
    main()
