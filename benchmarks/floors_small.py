"""Thousands of small drops on which no schedule may be below its floor.

    python -m benchmarks.floors_small --drops 2000

A drop has two to six nodes and 26 slots. Messages take from a twentieth of a slot to some dozens of
slots: alike for all pairs, or with a level for each; with fading in every slot, or none. On each
drop copies, forwards, sums and messages that hold everything are sent by the index rule and at
random, as `tests/reference/band.py` tells it: eight schedules. `floor_direct` is held against
copies, `floor_any` against all. Printed are how many were below, which must be none, and how near
the nearest came. The mean begins in the slots 0 to 4 in turn. `--seed` gives other drops.
"""

import argparse
import math
import time
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from folkman.radio.floor import floor_any, floor_direct
from tests.reference.band import KINDS, index_choice, mean_age, play, random_choice

SLOTS = 26
FIRST_SLOTS = 5


def drop(seed: int) -> NDArray[np.float64]:
    """Return costs (slot, rx, tx) in slots; every fourth drop has no fading."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 7))
    spread, scale = rng.choice([0.0, 0.5, 1.5]), np.exp(rng.uniform(-3.0, 1.5))
    level = scale * np.exp(spread * rng.standard_normal((nodes, nodes)))
    faded = rng.exponential(size=(SLOTS, nodes, nodes)) if seed % 4 else np.ones((SLOTS, 1, 1))
    cost = np.broadcast_to(level / np.log2(1 + 3 * faded), (SLOTS, nodes, nodes)).copy()
    cost[:, np.arange(nodes), np.arange(nodes)] = 1.0  # nobody sends to itself
    return cost


def ratios(seed: int) -> Iterator[tuple[str, float]]:
    """Yield the mean age of each schedule of a drop over each floor under it."""
    cost, first = drop(seed), seed % FIRST_SLOTS
    direct = floor_direct(cost, first_slot=first).value_slots
    anyhow = floor_any(cost, first_slot=first).value_slots
    for kind, by_index in product(KINDS, (True, False)):
        rule = index_choice(kind) if by_index else random_choice
        age = mean_age(play(cost, kind, rule, seed), first)
        yield "any", age / anyhow
        if kind == "copy":
            yield "direct", age / direct


def main() -> None:
    """Print how many schedules were below their floor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--drops", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first drop")
    asked = parser.parse_args()
    begun_s = time.process_time()
    nearest = {"direct": math.inf, "any": math.inf}
    below, number = dict.fromkeys(nearest, 0), dict.fromkeys(nearest, 0)
    for seed in range(asked.seed, asked.seed + asked.drops):
        for floor, ratio in ratios(seed):
            nearest[floor] = min(nearest[floor], ratio)
            below[floor] += ratio < 1
            number[floor] += 1
    print("| floor | drops | schedules | below it | nearest: age / floor |\n|---|---|---|---|---|")
    for floor in nearest:
        print(
            f"| {floor} | {asked.drops} | {number[floor]} | {below[floor]} | {nearest[floor]:.3f} |"
        )
    print(f"\n{time.process_time() - begun_s:.0f} s of CPU time")


if __name__ == "__main__":
    main()
