"""Mean ages of single drops on the radio, with and without trouble, and floors under them.

A job is one rule in one setting on a few drops; `measure` answers with a record for each drop. The
rules: `paper@-5` is the paper's rule at -5 dB; `copy`, `forward` and `sum` are the index schedule,
`sum@1.5` the same with a thrift of 1.5;
`floor_direct` and `floor_any` are ages that no scheme with messages of 16 bits per parameter can be
below, `floor_sum` the same of any scheme whose messages are as long as a sum.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.keys import Stream, make_key
from folkman.packing.sums import forward_bits, settled_sums, sum_bits
from folkman.radio import floor, fresh
from folkman.radio.delivery import Network
from folkman.radio.loss import Lossy
from folkman.radio.network import RadioNetwork

DIM, BITS = 430_698, 16 * 430_698
THRESHOLDS_DB = (-15.0, -10.0, -5.0, 0.0, 5.0, 10.0, 15.0)
PAPER = tuple(f"paper@{threshold:g}" for threshold in THRESHOLDS_DB)
FLOORS = ("floor_direct", "floor_any", "floor_sum")
MESSAGES = (*fresh.MESSAGES, *(f"{message}@1.5" for message in fresh.MESSAGES))
RULES = (*PAPER, *MESSAGES, *FLOORS)


class Trouble(NamedTuple):
    """What goes wrong."""

    control: str = "ideal"  # of the index schedule; the paper's rule knows all in any case
    loss: float = 0.0  # of messages
    away: bool = False  # node 0, for the middle third of the slots
    speed_m_per_s: float = 0.0


TROUBLES = {
    "none": Trouble(),
    "stale control": Trouble("heard"),
    "stale, 20 % lost": Trouble("heard", loss=0.2),
    "stale, one away": Trouble("heard", away=True),
    "stale, 10 m/s": Trouble("heard", speed_m_per_s=10.0),
    "all of these": Trouble("heard", 0.2, True, 10.0),
}


class Job(NamedTuple):
    """One rule in one setting."""

    nodes: int
    slot_s: float
    slots: int
    seed: int
    trouble: str
    rule: str
    drops: tuple[int, ...]


def bits_of(network: RadioNetwork, nodes: int) -> int:
    """Return what a message costs, as a run prices it: sums stay exact, stamps are sent."""
    if network.message == "sum":
        return sum_bits(settled_sums(network.packing, "a sum"), DIM, nodes)
    return forward_bits(BITS, nodes) if network.message == "forward" else BITS


def network_of(rule: str, slot_s: float, trouble: Trouble) -> RadioNetwork:
    """Return the radio with this rule, losses apart."""
    common: dict[str, Any] = {"slot_s": slot_s, "speed_m_per_s": trouble.speed_m_per_s}
    if rule.startswith("paper@"):
        return RadioNetwork(float(rule.removeprefix("paper@")), **common)
    message, _, thrift = rule.partition("@")
    common |= {"message": message, "control": trouble.control, "thrift": float(thrift or 1)}
    return RadioNetwork(schedule="index", **common)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def roll(
    network: Network, nodes: int, slots: int, bits: int, away: bool, key: Array
) -> tuple[Array, Array]:
    """Return the mean age of one drop after the warm-up, and the share of pairs that never met.

    Node 0 may be away for the middle third of the slots. Then it neither sends nor hears, and its
    pairs do not count.
    """
    peers: Any = network.peers()
    others = ~jnp.eye(nodes, dtype=bool)

    def here(slot: Array) -> Array:
        gone = (jnp.arange(nodes) == 0) & (slot >= slots // 3) & (slot < 2 * slots // 3)
        return ~gone if away else jnp.ones(nodes, bool)

    def slot(carry: tuple[Any, Array, Array], t: Array) -> tuple[Any, Array]:
        state, stamps, brought = carry
        if away and hasattr(peers, "attend"):
            state = peers.attend(state, here(t + 1))
        state, delivery = peers.step(state, here(t), bits, jax.random.fold_in(key, t))
        new = here(t)[:, None] & (delivery.held != brought)  # who is away hears nothing
        stamps = jnp.where(new, delivery.held, stamps)
        counts = others & here(t + 1)[:, None] & here(t + 1)[None]
        age = jnp.sum(jnp.where(counts, t + 1 - stamps, 0)) / jnp.sum(counts)
        return (state, stamps, delivery.held), age

    first = jnp.zeros((nodes, nodes), jnp.int32)
    (_, held, _), ages = lax.scan(slot, (peers.init(nodes, key), first, first), jnp.arange(slots))
    unheard = jnp.sum((held == 0) & others) / (nodes * (nodes - 1))
    return jnp.mean(ages[slots // 4 :].astype(jnp.float32)), unheard


@partial(jax.jit, static_argnums=(1, 2, 3))
def cost_draws(network: RadioNetwork, nodes: int, slots: int, bits: int, key: Array) -> Array:
    """Return the costs (slot, rx, tx) that `roll` meets with the same key, slots 1 .. slots."""
    air = network.open_air(nodes, key)

    def block(t: Array) -> Array:
        fading_key = jax.random.fold_in(jax.random.fold_in(key, t), int(Stream.FADING))
        return network.cost_slots(air, bits, fading_key)

    return lax.map(block, jnp.arange(slots))


def floor_of(rule: str, nodes: int, slot_s: float, slots: int, key: Array) -> float:
    """Return a floor under the mean that `roll` takes: slots from a quarter on."""
    bits = BITS
    if rule == "floor_sum":
        bits = bits_of(RadioNetwork(schedule="index", message="sum"), nodes)
    drawn = cost_draws(RadioNetwork(slot_s=slot_s), nodes, slots, bits, key)
    met: NDArray[np.float64] = np.asarray(drawn, np.float64)
    cost = np.concatenate([met[:1], met])  # nothing starts in slot 0
    bound = floor.floor_direct if rule == "floor_direct" else floor.floor_any
    return bound(cost, first_slot=slots // 4 + 1).value_slots


def measure(job: Job) -> list[dict[str, Any]]:
    """Return a record of each drop of a job."""
    root, trouble = make_key(job.seed, Stream.DELAY), TROUBLES[job.trouble]
    setting = {name: value for name, value in job._asdict().items() if name != "drops"}
    records = []
    for drop in job.drops:
        key = jax.random.fold_in(root, drop)
        if job.rule in FLOORS:
            found = {"age": floor_of(job.rule, job.nodes, job.slot_s, job.slots, key)}
        else:
            network = network_of(job.rule, job.slot_s, trouble)
            bits = bits_of(network, job.nodes)
            lossy = Lossy(network, trouble.loss) if trouble.loss else network
            age, unheard = roll(lossy, job.nodes, job.slots, bits, trouble.away, key)
            found = {"age": float(age), "unheard": float(unheard)}
        records.append(setting | {"drop": drop} | found)
    return records
