"""Mean ages on the radio beside floors that no schedule can be below, on the same draws.

    python benchmarks/floors.py [--nodes 5 --nodes 10] [--slot-s 0.2] [--drops 8] [--slots 400]

For each number of nodes: Proposition 1 at the best of three thresholds, the index schedule with
copies, forwarded copies and sums, and the floors of `folkman.radio.floor`, as means over drops of
the mean age over all pairs and slots. `crossed` counts drops in which a schedule is below its
floor: it must be 0. The message has 16 bits for each of the 430,698 parameters of the paper's CNN.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.keys import Stream, make_key
from folkman.radio.floor import cost_draws, floor_any, floor_direct
from folkman.radio.network import RadioNetwork

BITS = 16 * 430_698
THRESHOLDS_DB = (-5.0, 0.0, 5.0)
MESSAGES = ("copy", "forward", "sum")


def mean_ages(network: RadioNetwork, nodes: int, slots: int, drops: int) -> NDArray[np.float64]:
    """Return the mean age over all pairs and slots of each drop; one program for all drops."""
    peers, offers = network.peers(), jnp.ones(nodes, bool)

    def drop(key: Array) -> Array:
        def slot(state: Any, t: Array) -> tuple[Any, Array]:
            state, delivery = peers.step(state, offers, BITS, jax.random.fold_in(key, t))
            return state, delivery.held

        return lax.scan(slot, peers.init(nodes, key), jnp.arange(slots - 1))[1]

    keys = jnp.stack([make_key(seed, Stream.DELAY) for seed in range(drops)])
    held = np.asarray(jax.jit(partial(lax.map, drop))(keys))  # (drop, slot - 1, rx, tx)
    ages = np.arange(1, slots)[:, None, None] - held
    return ages[..., ~np.eye(nodes, dtype=bool)].mean(axis=-1).sum(axis=1) / slots


def measure(nodes: int, slot_s: float, slots: int, drops: int) -> dict[str, NDArray[np.float64]]:
    """Return ages and floors (drop,) by name."""
    costs = [
        cost_draws(RadioNetwork(slot_s=slot_s), nodes, slots, seed, BITS) for seed in range(drops)
    ]
    found = {
        "floor_direct": np.array([floor_direct(cost).value_slots for cost in costs]),
        "floor_any": np.array([floor_any(cost).value_slots for cost in costs]),
        "now": np.array([floor_direct(cost, knowledge="now").value_slots for cost in costs]),
    }
    epochs = [
        mean_ages(RadioNetwork(gamma, slot_s=slot_s), nodes, slots, drops)
        for gamma in THRESHOLDS_DB
    ]
    found["prop1"] = np.min(epochs, axis=0)
    for message in MESSAGES:
        index = RadioNetwork(slot_s=slot_s, schedule="index", message=message, control_bits=0)
        found[message] = mean_ages(index, nodes, slots, drops)
    below = (found["copy"] < found["floor_direct"]) | (found["prop1"] < found["floor_direct"])
    for message in MESSAGES:
        below |= found[message] < found["floor_any"]
    return found | {"crossed": below.astype(float)}


def table(rows: dict[str, NDArray[np.float64]], nodes: int) -> str:
    """Return one line of the table: means over drops."""
    means = {name: values.mean() for name, values in rows.items()}
    shown = ("prop1", *MESSAGES, "floor_direct", "now", "floor_any")
    cells = " | ".join(f"{means[name]:.1f}" for name in shown)
    beneath = (rows["sum"] < rows["floor_direct"]).mean()
    loose = (rows["sum"] / rows["floor_any"]).mean()
    return f"| {nodes} | {cells} | {beneath:.0%} | {loose:.1f} | {rows['crossed'].sum():.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, action="append", help="repeat for several")
    parser.add_argument("--slot-s", type=float, default=0.2)
    parser.add_argument("--drops", type=int, default=8)
    parser.add_argument("--slots", type=int, default=400)
    given = parser.parse_args(arguments)
    heads = "Prop. 1 | copy | forward | sum | floor direct | the same, now | floor any"
    print(f"| I | {heads} | drops with sum below direct | sum / floor any | crossed |")
    for nodes in given.nodes or [5, 10, 15]:
        print(table(measure(nodes, given.slot_s, given.slots, given.drops), nodes), flush=True)


if __name__ == "__main__":
    main()
