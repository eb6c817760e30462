"""Fresh air beside the paper's rule on the radio: how old copies are, and what a slot costs.

    python benchmarks/fresh_air.py ages --drops 8 --slots 300     mean ages, paired by drop
    python benchmarks/fresh_air.py cost                           time of a slot, as a ratio

`ages`: the paper's cell and message, every rule on the same fresh drops and fading. Of the paper's
rule the threshold with the least mean age over these drops is taken, of seven. Ages count after a
quarter of the slots. The age of a pair that has never met is that of the first model, and grows
with the slots: read the share of such pairs beside it. The ratio is the mean over drops of (the
paper's age / fresh air's), in logarithms, with its 95 % interval by Student's t; the worst drop is
the least ratio.

`cost`: both rules in one process, in turn, many slots in one compiled loop; the median of the
ratios of each pass. The paper's rule draws the fading once an epoch, which lasts for many slots;
with the rule `node` it draws in almost every slot, as fresh air does. The draws are the larger part
of a slot.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray
from scipy import stats

from folkman.keys import Stream, make_key
from folkman.packing.sums import forward_bits, settled_sums, sum_bits
from folkman.radio import fresh
from folkman.radio.network import RadioNetwork

DIM, BITS = 430_698, 16 * 430_698


def bits_of(network: RadioNetwork, nodes: int) -> int:
    """Return what a message costs, as a run prices it: sums stay exact, stamps are sent."""
    if network.message == "sum":
        return sum_bits(settled_sums(network.packing, "a sum"), DIM, nodes)
    return forward_bits(BITS, nodes) if network.message == "forward" else BITS


THRESHOLDS_DB = (-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0)


@partial(jax.jit, static_argnums=(1, 2))
def roll(network: RadioNetwork, nodes: int, slots: int, key: Array) -> tuple[Array, Array]:
    """Return the mean age of one drop after the warm-up, and the share of pairs that never met."""
    peers: Any = network.peers()
    others = ~jnp.eye(nodes, dtype=bool)
    offers, bits = jnp.ones(nodes, bool), bits_of(network, nodes)

    def slot(carry: tuple[Any, Array], t: Array) -> tuple[tuple[Any, Array], Array]:
        state, _ = carry
        state, delivery = peers.step(state, offers, bits, jax.random.fold_in(key, t))
        age = jnp.where(others, t + 1 - delivery.held, 0)
        return (state, delivery.held), jnp.sum(age)

    begin = (peers.init(nodes, key), jnp.zeros((nodes, nodes), jnp.int32))
    (_, held), ages = lax.scan(slot, begin, jnp.arange(slots))
    pairs = nodes * (nodes - 1)
    unheard = jnp.sum((held == 0) & others) / pairs
    return jnp.mean(ages[slots // 4 :].astype(jnp.float32)) / pairs, unheard


def drops_of(
    network: RadioNetwork, nodes: int, slots: int, drops: int, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Return the mean age of each drop, (drop,), and the share of pairs that never met."""
    key = make_key(seed, Stream.DELAY)
    found = [roll(network, nodes, slots, jax.random.fold_in(key, d)) for d in range(drops)]
    ages, unheard = (np.array(part, np.float64) for part in zip(*found, strict=True))
    return ages, float(unheard.mean())


def interval(ratios: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean of ratios in logarithms, and its 95 % interval."""
    logs = np.log(ratios)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return tuple(np.exp(logs.mean() + half * sign) for sign in (0, -1, 1))


def ages(asked: argparse.Namespace) -> None:
    """Print a table of mean ages."""
    print(
        "| I, T | paper's rule (threshold, never heard) | message | age (never heard) | ratio | "
        "worst drop |"
    )
    print("|---|---|---|---|---|---|")
    for nodes in asked.nodes:
        for slot_s in asked.slot_s:
            amount = (nodes, asked.slots, asked.drops, asked.seed)
            tried = {
                threshold: drops_of(RadioNetwork(threshold, slot_s=slot_s), *amount)
                for threshold in THRESHOLDS_DB
            }
            best = min(tried, key=lambda threshold: tried[threshold][0].mean())
            paper, unheard = tried[best]
            for message in fresh.MESSAGES:
                network = RadioNetwork(
                    schedule="index", message=message, slot_s=slot_s, control=asked.control
                )
                found, never = drops_of(network, *amount)
                ratio, low, high = interval(paper / found)
                print(
                    f"| {nodes}, {slot_s:g} s | {paper.mean():.1f} ({best:g} dB, {unheard:.0%}) | "
                    f"{message} | {found.mean():.1f} ({never:.0%}) | "
                    f"{ratio:.2f} [{low:.2f}, {high:.2f}] | {(paper / found).min():.2f} |",
                    flush=True,
                )


def timed(network: RadioNetwork, nodes: int, slots: int, key: Array) -> Callable[[], float]:
    """Return a function that runs a compiled loop of slots, and tells the seconds of one."""

    def run() -> float:
        begun = time.perf_counter()
        jax.block_until_ready(roll(network, nodes, slots, key))
        return (time.perf_counter() - begun) / slots

    run()  # compile
    return run


def cost(asked: argparse.Namespace) -> None:
    """Print what a slot costs beside one of the paper's rule."""
    key = make_key(asked.seed, Stream.DELAY)
    columns = ["rule `node`", *fresh.MESSAGES]
    print("| I, T | paper's rule, ms | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for nodes in asked.nodes:
        for slot_s in asked.slot_s:
            slots = max(20, asked.slots * 15 // nodes)
            paper = timed(RadioNetwork(slot_s=slot_s), nodes, slots, key)
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
                f"| {nodes}, {slot_s:g} s | {1e3 * np.median(seconds[:, 0]):.2f} | {cells} |",
                flush=True,
            )


def main() -> None:
    """Read what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("ages", "cost"))
    parser.add_argument("--nodes", type=int, nargs="+")
    parser.add_argument("--slot-s", type=float, nargs="+")
    parser.add_argument("--drops", type=int, default=16)
    parser.add_argument("--slots", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--control", choices=("ideal", "heard"), default="ideal")
    parser.add_argument("--least-without-forward", type=int, default=1000)
    asked = parser.parse_args()
    if asked.what == "ages":
        asked.nodes, asked.slot_s = asked.nodes or [5, 10, 15], asked.slot_s or [0.2, 1.0]
        ages(asked)
    else:
        asked.nodes, asked.slot_s = asked.nodes or [15, 50, 200], asked.slot_s or [1.0]
        cost(asked)


if __name__ == "__main__":
    main()
