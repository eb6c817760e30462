r"""Fresh air beside the paper's rule on the radio: how old copies are, and what a slot costs.

    python benchmarks/fresh_air.py ages --drops 8 --slots 300     mean ages, paired by drop
    python benchmarks/fresh_air.py trouble --drops 20             the same in trouble
    python benchmarks/fresh_air.py cost                           time of a slot, as a ratio

`ages`: the paper's cell and message, every rule on the same fresh drops and fading. Of the paper's
rule the threshold with the least mean age over these drops is taken, of seven. Ages count after a
quarter of the slots. The age of a pair that has never met is that of the first model, and grows
with the slots: read the share of such pairs beside it. The ratio is the mean over drops of (the
paper's age / fresh air's), in logarithms, with its 95 % interval by Student's t; the worst drop is
the least ratio. The last columns are the mean over drops of the age over floors that no schedule of
direct copies, and no scheme at all, can be below; in brackets at the length of a sum. `sum@1.5` is
the index schedule with a thrift of 1.5. `--rules sum sum@1.5` measures a few rules alone.

`trouble`: the same where nodes know what they heard alone, lose a fifth of all messages, are away
for a third of the time, or walk at 10 m/s (`fresh_air_drops.TROUBLES`); the paper's rule is at its
best threshold in the same trouble, and knows all. The floors of loss are those without.

Both need nothing but NumPy and JAX, and folkman need not be installed. With --out every drop is a
JSON line, and drops that are there are not made again: a run that was cut off goes on. With
--workers 16 as many processes share the work. The first command takes about 1,500 core-seconds
for the ages and 1,400 for the floors (`--skip-floors` leaves these out), the second 1,000:

    python benchmarks/fresh_air.py ages --drops 50 --slots 500 --nodes 5 10 15 30 --slot-s 0.2 1 \
        --workers 16 --out ages.jsonl
    python benchmarks/fresh_air.py trouble --drops 20 --slots 500 --workers 16 --out trouble.jsonl

The records of the first one are kept. A packed file is only read: this prints its table.

    python benchmarks/fresh_air.py ages --drops 50 --slots 500 --nodes 5 10 15 30 --slot-s 0.2 1 \
        --out docs/data/fresh-air/ages.jsonl.xz

`cost`: the rules in one process, in turn, many slots in one compiled loop; CPU time, which other
work on the machine hardly moves, and the median of the ratios of each pass. Placing nodes and
interferers is measured apart and taken off. The paper's rule runs for 2,400 slots, since an epoch
of many nodes is long. It draws the fading once an epoch; with the rule `node` it draws all of it in
almost every slot. Fresh air draws in almost every slot what decides who sends.
"""

import argparse
import json
import lzma
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import benchmarks.bare  # noqa: F401 - makes the rest importable where little is installed

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS") or "cpu"

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy import stats

from benchmarks import fresh_air_drops as drops_of
from benchmarks.fresh_air_drops import FLOORS, MESSAGES, PAPER, RULES, TROUBLES, Job
from folkman.keys import Stream, make_key
from folkman.radio import fresh
from folkman.radio.network import RadioNetwork

AT_ONCE = 10
"""Drops of a job: a program is compiled once for all of them."""

Values = dict[str, NDArray[np.float64]]


def interval(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean of ratios in logarithms, and its 95 % interval."""
    logs = np.log(ratios)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return tuple(np.exp(logs.mean() + half * sign) for sign in (0, -1, 1))


def jobs(asked: argparse.Namespace, done: set[tuple[Any, ...]]) -> list[Job]:
    """Return what is left to do, the longest first."""
    found = []
    for trouble in asked.troubles:
        for nodes in asked.nodes:
            for slot_s in asked.slot_s:
                for rule in asked.rules:
                    if rule in FLOORS and trouble != "none":
                        continue
                    setting = (nodes, slot_s, asked.slots, asked.seed, trouble, rule)
                    left = [d for d in range(asked.drops) if (*setting, d) not in done]
                    size = 2 if rule in FLOORS else AT_ONCE
                    found += [
                        Job(*setting, tuple(left[at : at + size]))
                        for at in range(0, len(left), size)
                    ]
    return sorted(found, key=lambda job: (job.rule not in FLOORS, -job.nodes))


def records(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records that are there, then those that are made now and kept."""
    kept = list(kept_in(asked.out)) if asked.out is not None and asked.out.exists() else []
    yield from kept
    names = (*Job._fields[:-1], "drop")
    left = jobs(asked, {tuple(record[name] for name in names) for record in kept})
    if asked.out is not None and asked.out.suffix == ".xz":
        return  # kept records are only read
    if asked.workers == 1:
        made = map(drops_of.measure, left)
        yield from keep(made, asked.out, len(left))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        yield from keep(pool.imap_unordered(drops_of.measure, left), asked.out, len(left))


def kept_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; one that ends in .xz is packed."""
    raw = path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()
    yield from map(json.loads, text.splitlines())


def keep(
    made: Iterator[list[dict[str, Any]]], out: Path | None, number: int
) -> Iterator[dict[str, Any]]:
    """Append records to a file as they come, and pass them on."""
    begun = time.perf_counter()
    for at, some in enumerate(made):
        if out is not None:
            with out.open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in some)
        print(f"{at + 1} of {number} jobs, {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        yield from some


def table(found: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """Print the table of what is there."""
    several = asked.what == "trouble"
    print(
        f"| I, T {'| trouble ' * several}| paper's rule (threshold, never heard) | message | age "
        "(never heard) | ratio | worst drop | over floor, direct | any |"
    )
    print("|---" * (8 + several) + "|")
    for trouble in asked.troubles:
        for nodes in asked.nodes:
            for slot_s in asked.slot_s:
                here = [
                    record
                    for record in found
                    if (record["nodes"], record["slot_s"], record["slots"], record["seed"])
                    == (nodes, slot_s, asked.slots, asked.seed)
                    and record["drop"] < asked.drops
                ]
                floors_hold = not (TROUBLES[trouble].away or TROUBLES[trouble].speed_m_per_s)
                floors = [r for r in here if r["rule"] in FLOORS and floors_hold]
                ages, unheard = columns([r for r in here if r["trouble"] == trouble] + floors)
                head = f"| {nodes}, {slot_s:g} s {f'| {trouble} ' * several}"
                for line in lines(ages, unheard):
                    print(head + line, flush=True)


def columns(found: list[dict[str, Any]]) -> tuple[Values, Values]:
    """Return the ages and the shares never heard (drop,) of each rule."""
    by_rule: dict[str, dict[int, dict[str, Any]]] = {}
    for record in found:
        by_rule.setdefault(record["rule"], {})[record["drop"]] = record

    def column(name: str) -> Values:
        return {
            rule: np.array([of[drop].get(name, 0.0) for drop in sorted(of)])
            for rule, of in by_rule.items()
        }

    return column("age"), column("unheard")


def lines(ages: Values, unheard: Values) -> Iterator[str]:
    """Yield the cells of each message."""
    tried = [rule for rule in PAPER if rule in ages]
    if not tried:
        return
    best = min(tried, key=lambda rule: ages[rule].mean())
    paper = ages[best]
    for message in MESSAGES:
        if message not in ages or len(ages[message]) != len(paper):
            continue
        age = ages[message]
        ratio, low, high = interval(paper / age)
        over = [
            f"{(age / ages[name]).mean():.2f}" if len(ages.get(name, ())) == len(age) else "-"
            for name in FLOORS
        ]
        over[1] += f" ({over[2]})" if message.startswith("sum") else ""
        yield (
            f"| {paper.mean():.1f} ({best.removeprefix('paper@')} dB, {unheard[best].mean():.0%}) "
            f"| {message} | {age.mean():.1f} ({unheard[message].mean():.0%}) | "
            f"{ratio:.2f} [{low:.2f}, {high:.2f}] | {(paper / age).min():.2f} | "
            f"{over[0]} | {over[1]} |"
        )


def timed(network: RadioNetwork, nodes: int, slots: int, key: Array) -> Callable[[], float]:
    """Return a function that runs a compiled loop of slots, and tells the CPU seconds of one.

    What placing the nodes and the interferers takes is measured beside it, and taken off.
    """
    bits = drops_of.bits_of(network, nodes)
    placed = jax.jit(lambda key: network.peers().init(nodes, key))

    def run() -> float:
        begun = time.process_time()
        jax.block_until_ready(placed(key))
        between = time.process_time()
        jax.block_until_ready(drops_of.roll(network, nodes, slots, bits, False, key))
        return (time.process_time() - between - (between - begun)) / slots

    run()  # compile
    return run


def cost(asked: argparse.Namespace) -> None:
    """Print what a slot costs beside one of the paper's rule."""
    key = make_key(asked.seed, Stream.DELAY)
    columns = ["rule `node`", *fresh.MESSAGES]
    print("| I, T | paper's rule, µs | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for nodes in asked.nodes:
        for slot_s in asked.slot_s:
            slots = max(20, asked.slots * 15 // nodes)
            many = 4 * asked.slots  # an epoch of many nodes is long
            paper = timed(RadioNetwork(slot_s=slot_s), nodes, many, key)
            others = [timed(RadioNetwork(slot_s=slot_s, period="node"), nodes, slots, key)]
            others += [
                timed(
                    RadioNetwork(schedule="index", message=m, slot_s=slot_s, control=asked.control),
                    nodes,
                    slots,
                    key,
                )
                for m in fresh.MESSAGES
                if m != "forward" or nodes < asked.least_without_forward
            ]
            passes = [[paper(), *(run() for run in others)] for _ in range(asked.passes)]
            seconds = np.array(passes)
            ratio = np.median(seconds[:, 1:] / seconds[:, :1], axis=0)
            cells = " | ".join(f"{value:.2f}" for value in ratio)
            print(
                f"| {nodes}, {slot_s:g} s | {1e6 * np.median(seconds[:, 0]):.0f} | {cells} |",
                flush=True,
            )


def read() -> argparse.Namespace:
    """Read what is asked for, and fill in what depends on it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("ages", "trouble", "cost"))
    parser.add_argument("--nodes", type=int, nargs="+")
    parser.add_argument("--slot-s", type=float, nargs="+")
    parser.add_argument("--drops", type=int, default=16)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="JSON lines, one for each rule and drop")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("--troubles", nargs="+", choices=tuple(TROUBLES))
    parser.add_argument("--skip-floors", action="store_true")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--control", choices=("ideal", "heard"), default="ideal")
    parser.add_argument("--least-without-forward", type=int, default=1000)
    asked = parser.parse_args()
    usual: dict[str, tuple[list[int], list[float], int]] = {
        "ages": ([5, 10, 15], [0.2, 1.0], 600),
        "trouble": ([5, 15], [1.0], 500),
        "cost": ([15, 50, 200], [1.0], 600),
    }
    nodes, slot_s, slots = usual[asked.what]
    asked.nodes, asked.slot_s = asked.nodes or nodes, asked.slot_s or slot_s
    asked.slots = asked.slots or slots
    alone = "none" if asked.control == "ideal" else "stale control"
    asked.troubles = asked.troubles or (list(TROUBLES) if asked.what == "trouble" else [alone])
    asked.rules = [rule for rule in asked.rules if not (asked.skip_floors and rule in FLOORS)]
    return asked


def main() -> None:
    """Measure what is asked for."""
    asked = read()
    if asked.what == "cost":
        cost(asked)
    else:
        if asked.out is not None:
            asked.out.parent.mkdir(parents=True, exist_ok=True)
        table(list(records(asked)), asked)


if __name__ == "__main__":
    main()
