"""What a planner asks before any learning: who hears whom, for how long, and how old copies are.

Monte Carlo over drops (geometry and interferers drawn anew). The first block of each drop gives the
SINR, the link and node probabilities and Gamma_T, as a snapshot; the network itself, run from there
without learning, gives Gamma_W and the ages. All thresholds and allocations meet the same drops and
fading.

A run ends after `slots` slots, and some pairs may not have met by then. Waits still running count
as long as they have lasted, and copies are as old as they are: with `unheard` above 0, Gamma_W and
age are lower bounds that grow with `slots`. A pair in a bad place can wait for ever; no finite mean
exists then.

There are two planners of a threshold. `best_threshold` is a formula on SINR draws and assumes new
positions in every epoch. `least_aged` asks the simulated drops themselves, whose nodes stay where
they are; a pair that never meets then counts with the full age of its first copy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, jax, jnp, lax
from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.radio import bandwidth, latency, schedule, serial
from folkman.radio.air import Air, place
from folkman.radio.delivery import Delivery
from folkman.radio.epochs import RadioPeers, RadioState, rest
from folkman.radio.network import RadioNetwork
from folkman.units import db_to_linear

__all__ = [
    "Drops",
    "Forecast",
    "Sawtooth",
    "age_means",
    "best_threshold",
    "drop_costs",
    "forecast",
    "least_aged",
    "moves_far",
    "sawtooth",
]

BATCH_GAINS = 4_000_000
"""Path gains to interferers that are worked on at once; bounds memory, whatever the number of
drops."""


class Forecast(NamedTuple):
    """One value a drop, (drop,) or (drop, ...); NaN where a drop has none."""

    sinr: NDArray[np.float32]  # (drop, rx, tx) linear; the diagonal means nothing
    linked: NDArray[np.float64]  # (drop,) share of links above the threshold
    scheduled: NDArray[np.float64]  # (drop,) share of nodes that somebody hears
    gamma_t_slots: NDArray[np.float64]  # (drop,) continuous; NaN if nobody is scheduled
    gamma_w_slots: NDArray[np.float64]  # (drop,) mean that a link waited
    ages: NDArray[np.int32]  # (drop, age) how often a copy of this age was held
    unheard: NDArray[np.float64]  # (drop,) share of pairs that never met
    transmit: NDArray[np.float64]  # (drop,) share of time that a node sends, mean over nodes
    # (drop,) share of time that a node listens to a message for it, mean over nodes
    receive: NDArray[np.float64]


class Drops(NamedTuple):
    """How much is simulated."""

    number: int = 600  # number of drops
    slots: int = 200  # slots of each drop, the first quarter of which is warm-up
    seed: int = 0


class Sawtooth(NamedTuple):
    """Ages of the held copies over time, (slot, rx, tx), with one block's picture of the cell."""

    ages: NDArray[np.int32]  # ages of the copies held (slot, rx, tx)
    nodes_m: NDArray[np.float32]  # positions of the nodes (node, 2)
    interferers_m: NDArray[np.float32]  # positions of the interferers of all bands (point, 2)
    sinr_db: NDArray[np.float32]  # SINR of each link (rx, tx)
    linked: NDArray[np.bool_]  # which receivers are above the threshold (rx, tx)
    cell_radius_m: float


def forecast(
    network: RadioNetwork,
    num_nodes: int,
    message_bits: int,
    # how much is simulated
    drops: Drops = Drops(),  # noqa: B008 - immutable
) -> Forecast:
    """Simulate `drops.number` drops of a cell; see `Forecast`."""
    key = make_key(drops.seed, Stream.DELAY)
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(drops.number))
    plain = replace(
        network, threshold_db=0.0
    )  # the threshold is traced: all of them share one program
    found = _forecast(
        plain, num_nodes, message_bits, drops.slots, jnp.float32(network.threshold_db), keys
    )
    return Forecast(*(np.asarray(part) for part in found))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _forecast(
    network: RadioNetwork,
    num_nodes: int,
    message_bits: int,
    slots: int,
    threshold_db: Array,
    keys: Array,
) -> tuple[Array, ...]:
    network = replace(network, threshold_db=threshold_db)

    def of_one(key: Array) -> tuple[Array, ...]:
        air = place(network, num_nodes, key)
        if network.schedule == "index":
            return _roll_serial(network, num_nodes, message_bits, slots, key)
        return (
            *_first_block(network, air, message_bits, key),
            *_roll(network, air, message_bits, slots, key),
        )

    points = jax.eval_shape(
        lambda key: place(network, num_nodes, key), keys[0]
    ).interferers.present.shape[1]
    batch = max(1, min(len(keys), BATCH_GAINS // (num_nodes**2 * points)))
    return lax.map(of_one, keys, batch_size=batch)


def _first_block(
    network: RadioNetwork, air: Air, message_bits: int, key: Array
) -> tuple[Array, ...]:
    """Return SINR, link share, node share and Gamma_T of the first block of a drop."""
    fading_key, allocation_key = (
        jax.random.fold_in(jax.random.fold_in(key, 0), int(s))
        for s in (Stream.FADING, Stream.ALLOCATION)
    )
    sinr = network.sinr(air, fading_key)
    linked = schedule.links(sinr, db_to_linear(network.threshold_db))
    sending, rate = schedule.scheduled(linked), schedule.se_min(sinr, linked)
    band_hz = bandwidth.ALLOCATIONS[network.allocation](
        rate, sending, network.bandwidth_hz, allocation_key
    )
    slots = latency.transmission_slots(
        network.payload_bits(message_bits), band_hz, rate, network.slot_s
    )
    longest = jnp.where(jnp.any(sending), latency.aggregated_slots(slots, sending), jnp.nan)
    num_nodes = air.link.shape[0]
    pairs = max(num_nodes * (num_nodes - 1), 1)
    return sinr, jnp.sum(linked) / pairs, jnp.mean(sending), longest


def _roll(
    network: RadioNetwork, air: Air, message_bits: int, slots: int, key: Array
) -> tuple[Array, ...]:
    """Return mean Gamma_W, the histogram of ages, the share of pairs that never met, the air time.

    Ages count after the warm-up.
    """
    num_nodes = air.link.shape[0]
    others = ~jnp.eye(num_nodes, dtype=bool)
    offers = jnp.ones(num_nodes, bool)

    def slot(t: Array, carry: tuple[RadioState, Array, Array]) -> tuple[RadioState, Array, Array]:
        state, counts, used = carry
        state, delivery = RadioPeers(network).step(
            state, offers, message_bits, jax.random.fold_in(key, t)
        )
        late = jnp.where(others & (t >= slots // 4), 1, 0)
        return state, counts.at[t + 1 - delivery.held].add(late), used + _shares(delivery)

    begin = (rest(air), jnp.zeros(slots + 1, jnp.int32), jnp.zeros(2, jnp.float32))
    state, ages, used = lax.fori_loop(0, slots, slot, begin)
    served = (
        state.linked & state.unnoted[None]
    )  # in a period that goes on: its wait is over, and noted
    open_slots = jnp.where(others & ~served, state.slot - state.since, 0)
    running = jnp.sum(open_slots > 0, dtype=jnp.int32)
    sums = state.durations
    waits = sums.num_waits + running
    gamma_w = (sums.waiting_slots + jnp.sum(open_slots, dtype=jnp.int32)) / waits
    unheard = jnp.sum(others & (state.held == 0)) / max(num_nodes * (num_nodes - 1), 1)
    return gamma_w, ages, unheard, *(used / slots)


def _shares(delivery: Delivery) -> Array:
    """Return the share of a slot that a node sends and listens, mean over nodes, (2,)."""
    airtime = delivery.airtime
    assert airtime is not None  # noqa: S101 - the radio tells
    return jnp.stack([jnp.mean(airtime.transmit), jnp.mean(airtime.receive)]).astype(jnp.float32)


def _roll_serial(
    network: RadioNetwork, num_nodes: int, message_bits: int, slots: int, key: Array
) -> tuple[Array, ...]:
    """Return what `_first_block` and `_roll` do, of fresh air.

    It has no threshold: who is linked and scheduled has no meaning. Gamma_T is the mean transfer.
    """
    others = ~jnp.eye(num_nodes, dtype=bool)
    offers = jnp.ones(num_nodes, bool)
    peers = serial.SerialPeers(network)

    def slot(t: Array, carry: tuple[serial.SerialState, Array, Array]) -> tuple[Any, Array, Array]:
        state, counts, used = carry
        state, delivery = peers.step(state, offers, message_bits, jax.random.fold_in(key, t))
        late = jnp.where(others & (t >= slots // 4), 1, 0)
        return state, counts.at[t + 1 - delivery.held].add(late), used + _shares(delivery)

    begin = peers.init(num_nodes, key)
    fading_key = jax.random.fold_in(jax.random.fold_in(key, 0), int(Stream.FADING))
    sinr = network.sinr(begin.air, fading_key)
    first = (begin, jnp.zeros(slots + 1, jnp.int32), jnp.zeros(2, jnp.float32))
    state, ages, used = lax.fori_loop(0, slots, slot, first)
    open_slots = jnp.where(others, jnp.maximum(state.slot - state.since, 0), 0)
    sums = state.sums
    waits = sums.waits + jnp.sum(open_slots > 0, dtype=jnp.int32)
    gamma_w = (sums.waited_slots + jnp.sum(open_slots, dtype=jnp.int32)) / waits
    unheard = jnp.sum(others & (state.held == 0)) / max(num_nodes * (num_nodes - 1), 1)
    unknown = jnp.full((), jnp.nan)
    gamma_t = sums.air_slots / sums.number
    return sinr, unknown, unknown, gamma_t, gamma_w, ages, unheard, *(used / slots)


def drop_costs(
    network: RadioNetwork,
    num_nodes: int,
    message_bits: int,
    drops: Drops,  # how much is drawn
) -> Iterator[NDArray[np.float64]]:
    """Yield the costs (slot, rx, tx) of each drop that `forecast` meets, slots 0 .. `slots`.

    Those of the payload alone, and of nodes that stay: what `folkman.radio.floor` asks for.
    """
    speed = network.speed_m_per_s
    require(
        speed == 0,
        f"a floor is for nodes that stay, got a speed of {speed:g} m/s; set speed_m_per_s to 0, or "
        "leave the floor out",
    )
    root = make_key(drops.seed, Stream.DELAY)

    @jax.jit
    def draw(key: Array) -> Array:
        air = network.open_air(num_nodes, key)

        def block(t: Array) -> Array:
            fading_key = jax.random.fold_in(jax.random.fold_in(key, t), int(Stream.FADING))
            return network.cost_slots(air, network.payload_bits(message_bits), fading_key)

        return lax.map(block, jnp.arange(drops.slots))

    for drop in range(drops.number):
        met = np.asarray(draw(jax.random.fold_in(root, drop)), np.float64)
        yield np.concatenate([met[:1], met])  # nothing starts in slot 0


def best_threshold(
    network: RadioNetwork,
    sinr: NDArray[np.float32],
    message_bits: int,
    objective: str = "duration",  # duration or age
    low_db: float = -20.0,
    high_db: float = 20.0,
) -> schedule.Search:
    """Return the threshold with the least expected Gamma_W + Gamma_T, or age.

    SINR draws are (drop, rx, tx).

    Epochs with fresh geometry: the answer for nodes that move far between epochs, or for an average
    cell. Random shares are judged as optimal ones, their own mean being infinite (D11).
    """
    value = jax.jit(
        partial(
            schedule.expected_duration if objective == "duration" else schedule.expected_age,
            payload_bits=network.payload_bits(message_bits),
            total_hz=network.bandwidth_hz,
            slot_s=network.slot_s,
            allocate=bandwidth.uniform if network.allocation == "uniform" else bandwidth.optimal,
        )
    )
    draws = jnp.asarray(sinr)
    return schedule.bracket_search(lambda t: float(value(draws, db_to_linear(t))), low_db, high_db)


def age_means(
    found: Forecast,  # what was simulated
) -> NDArray[np.float64]:
    """Return the mean age of the held copies of each drop, (drop,); NaN where there are none."""
    counts = found.ages.sum(axis=1)
    sums = found.ages @ np.arange(found.ages.shape[1])
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def moves_far(network: RadioNetwork) -> bool:
    """Tell whether a node crosses the cell within a slot, so that every epoch has new positions."""
    return network.speed_m_per_s * network.slot_s >= network.cell_radius_m


def least_aged(
    age_at: Callable[[float], float],  # threshold in dB -> mean age
    tried_db: Iterable[float],  # thresholds that are tried too, in dB
    low_db: float = -20.0,
    high_db: float = 20.0,
) -> float:
    """Return the threshold with the least simulated mean age, those of `tried_db` among them.

    `age_at` is the mean age of the same drops at a threshold in dB. It is asked on a grid of 5 dB
    and then, around the least of all, down to 1 dB.
    """
    tried = schedule.grid_search(age_at, list(tried_db))
    search = schedule.bracket_search(age_at, low_db, high_db, tolerance_db=1.0)
    return min(tried, search, key=lambda found: found.value).threshold_db


def sawtooth(
    network: RadioNetwork, num_nodes: int, message_bits: int, slots: int = 120, seed: int = 0
) -> Sawtooth:
    """Run one drop and return its ages slot by slot, and a picture of its first block."""
    key = jax.random.fold_in(make_key(seed, Stream.DELAY), 0)
    air = place(network, num_nodes, key)
    sinr = network.sinr(air, jax.random.fold_in(jax.random.fold_in(key, 0), int(Stream.FADING)))
    offers = jnp.ones(num_nodes, bool)

    peers: Any = network.peers()

    def slot(state: Any, t: Array) -> tuple[Any, tuple[Array, Array]]:
        state, delivery = peers.step(state, offers, message_bits, jax.random.fold_in(key, t))
        return state, (t + 1 - delivery.held, delivery.linked)

    roll = jax.jit(lambda: lax.scan(slot, peers.init(num_nodes, key), jnp.arange(slots)))
    _, (ages, started) = roll()
    linked = schedule.links(sinr, db_to_linear(network.threshold_db))
    if network.schedule == "index":
        linked = started[0]
    return Sawtooth(
        np.asarray(ages),
        np.asarray(air.nodes.positions_m),
        np.asarray(air.interferers.positions_m)[np.asarray(air.interferers.present)],
        np.asarray(10 * jnp.log10(sinr)),
        np.asarray(linked),
        network.cell_radius_m,
    )
