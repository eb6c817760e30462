"""What a planner asks before any learning: who will hear whom, for how long, and how old will copies be.

Monte Carlo over drops (geometry and interferers drawn anew). The first block of each drop gives the SINR, the link
and node probabilities and Gamma_T, as a snapshot; the network itself, run from there without learning, gives Gamma_W
and the ages. All thresholds and allocations meet the same drops and fading.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from folkman.keys import Stream, make_key
from folkman.radio import bandwidth, latency, schedule
from folkman.radio.network import RadioNetwork, RadioState, place
from folkman.units import db_to_linear

__all__ = ["Drops", "Plan", "Sawtooth", "best_threshold", "plan", "sawtooth"]


class Plan(NamedTuple):
    """One value a drop, (drop,) or (drop, ...); NaN where a drop has none."""

    sinr: NDArray[np.float32]  # (drop, rx, tx) linear; the diagonal means nothing
    linked: NDArray[np.float64]  # (drop,) share of links above the threshold
    scheduled: NDArray[np.float64]  # (drop,) share of nodes that somebody hears
    gamma_t: NDArray[np.float64]  # (drop,) slots, continuous; NaN if nobody is scheduled
    gamma_w: NDArray[np.float64]  # (drop,) mean slots that a link waited
    age: NDArray[np.float64]  # (drop,) mean age over pairs and slots
    age_p95: NDArray[np.float64]  # (drop,) its 95th percentile


class Drops(NamedTuple):
    """How much is simulated."""

    number: int = 600
    slots: int = 200  # of each drop, the first quarter of which is warm-up
    seed: int = 0


class Sawtooth(NamedTuple):
    """Ages of the held copies over time, (slot, rx, tx), with one block's picture of the cell."""

    ages: NDArray[np.int32]
    nodes_m: NDArray[np.float32]  # (node, 2)
    interferers_m: NDArray[np.float32]  # (point, 2) of all bands
    sinr_db: NDArray[np.float32]  # (rx, tx)
    linked: NDArray[np.bool_]  # (rx, tx)


def plan(network: RadioNetwork, num_nodes: int, message_bits: int, drops: Drops = Drops()) -> Plan:  # noqa: B008 - immutable
    """Simulate `drops.number` drops of a cell; see `Plan`."""
    key = make_key(drops.seed, Stream.DELAY)
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(drops.number))
    plain = replace(network, threshold_db=0.0)  # the threshold is traced: all of them share one program
    snapshot, rolled = _plan(plain, num_nodes, message_bits, drops.slots, jnp.float32(network.threshold_db), keys)
    return Plan(*(np.asarray(part) for part in (*snapshot, *rolled)))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _plan(
    network: RadioNetwork, num_nodes: int, message_bits: int, slots: int, threshold_db: Array, keys: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    network = replace(network, threshold_db=threshold_db)
    first = jax.vmap(lambda key: _first_block(network, num_nodes, message_bits, key))(keys)
    rolled = jax.vmap(lambda key: _roll(network, num_nodes, message_bits, slots, key))(keys)
    return first, rolled


def _first_block(network: RadioNetwork, num_nodes: int, message_bits: int, key: Array) -> tuple[Array, ...]:
    """Return SINR, link share, node share and Gamma_T of the first block of a drop."""
    fading_key, share_key = (
        jax.random.fold_in(jax.random.fold_in(key, 0), int(s)) for s in (Stream.FADING, Stream.ALLOCATION)
    )
    sinr = network.sinr(place(network, num_nodes, key), fading_key)
    linked = schedule.links(sinr, db_to_linear(network.threshold_db))
    sending, rate = schedule.scheduled(linked), schedule.se_min(sinr, linked)
    band_hz = bandwidth.ALLOCATIONS[network.allocation](rate, sending, network.bandwidth_hz, share_key)
    slots = latency.transmission_slots(network.payload_bits(message_bits), band_hz, rate, network.slot_s)
    longest = jnp.where(jnp.any(sending), latency.aggregated_slots(slots, sending), jnp.nan)
    pairs = max(num_nodes * (num_nodes - 1), 1)
    return sinr, jnp.sum(linked) / pairs, jnp.mean(sending), longest


def _run(network: RadioNetwork, num_nodes: int, message_bits: int, slots: int, key: Array) -> tuple[RadioState, Array]:
    """Run the network of a drop alone; return its last state and the ages held when each slot begins."""
    offers = jnp.ones(num_nodes, bool)

    def slot(state: RadioState, t: Array) -> tuple[RadioState, Array]:
        state, delivery = network.step(state, offers, message_bits, jax.random.fold_in(key, t))
        return state, t + 1 - delivery.held

    return lax.scan(slot, network.init(num_nodes, key), jnp.arange(slots))


def _roll(network: RadioNetwork, num_nodes: int, message_bits: int, slots: int, key: Array) -> tuple[Array, ...]:
    """Return mean Gamma_W, mean age and the age's 95th percentile of a drop."""
    state, ages = _run(network, num_nodes, message_bits, slots, key)
    pairs = jnp.broadcast_to(~jnp.eye(num_nodes, dtype=bool), ages.shape) & _late(slots)
    known = jnp.where(pairs, ages, jnp.nan)
    return network.measures(state)["gamma_w"], jnp.nanmean(known), jnp.nanpercentile(known, 95.0)


def _late(slots: int) -> Array:
    """Tell the slots after the warm-up, (slot, 1, 1)."""
    return (jnp.arange(slots) >= slots // 4)[:, None, None]


def best_threshold(
    network: RadioNetwork, sinr: NDArray[np.float32], message_bits: int, low_db: float = -20.0, high_db: float = 20.0
) -> schedule.Search:
    """Return the threshold with the least expected Gamma_W + Gamma_T on SINR draws (drop, rx, tx).

    Drops with fresh geometry: the answer for nodes that move far between epochs, or for an average cell. Random
    shares are judged as optimal ones: their own mean is infinite (D11).
    """
    duration = jax.jit(
        partial(
            schedule.expected_duration,
            payload_bits=network.payload_bits(message_bits),
            total_hz=network.bandwidth_hz,
            slot_s=network.slot_s,
            allocate=bandwidth.uniform if network.allocation == "uniform" else bandwidth.optimal,
        )
    )
    draws = jnp.asarray(sinr)
    return schedule.bracket_search(lambda t: float(duration(draws, db_to_linear(t))), low_db, high_db)


def sawtooth(network: RadioNetwork, num_nodes: int, message_bits: int, slots: int = 120, seed: int = 0) -> Sawtooth:
    """Run one drop and return its ages slot by slot, and a picture of its first block."""
    key = jax.random.fold_in(make_key(seed, Stream.DELAY), 0)
    air = place(network, num_nodes, key)
    sinr = network.sinr(air, jax.random.fold_in(jax.random.fold_in(key, 0), int(Stream.FADING)))
    _, ages = jax.jit(_run, static_argnums=(0, 1, 2, 3))(network, num_nodes, message_bits, slots, key)
    return Sawtooth(
        np.asarray(ages),
        np.asarray(air.nodes.positions_m),
        np.asarray(air.interferers.positions_m)[np.asarray(air.interferers.present)],
        np.asarray(10 * jnp.log10(sinr)),
        np.asarray(schedule.links(sinr, db_to_linear(network.threshold_db))),
    )
