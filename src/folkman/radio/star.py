"""The same radio around a server: uploads to a base station at the centre, its answers back.

    upload    SINR_i at the base station by eq. (24), in node i's band; Proposition 1 with R_i = log2(1 + SINR_i)
    answer    one broadcast over the whole band B with the power of a node, at the rate of its worst receiver

There is no threshold: a server waits for everyone it needs. A node below `least_sinr_db` does not start in this
block; the fading is drawn anew in the next slot, rather than a transfer begun that would last for hours. Uploads that
start together divide the bandwidth that is free. The base station's broadcast meets the interferers of band 0.

Differs from [1]: it plots FedAvg without communication time; this is what its comparison on the radio needs.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing for
    Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from folkman.keys import Stream
from folkman.radio import bandwidth, channel, latency, schedule
from folkman.radio.delivery import Transfer
from folkman.units import db_to_linear, dbm_to_watt

if TYPE_CHECKING:
    from folkman.radio.network import Air, RadioNetwork

__all__ = ["StarState", "at_rest", "downlink", "uplink"]


class StarState(NamedTuple):
    """Slots left of each transfer (0 for none), and the path gains."""

    up_left: Array  # (node,)
    down_left: Array  # (node,)
    waiting: Array  # (node,) bool: has uploaded or is doing so, and has not been answered
    in_use_hz: Array  # (node,) of the uploads on the air
    station: Array  # (node,) d^-a between node and base station
    at_station: Array  # (band, point) d^-a from interferers to the base station
    at_node: Array  # (node, near) d^-a from the nearest interferers of band 0 to each node
    behind_node: Array  # (node,) sum of d^-a of the others


def at_rest(air: "Air", exponent: float) -> StarState:
    """Return the star before slot 0, its base station at the origin."""
    origin = jnp.zeros((1, 2), air.link.dtype)
    nodes = air.link.shape[0]
    none = jnp.zeros(nodes, jnp.int32)
    return StarState(
        up_left=none,
        down_left=none,
        waiting=none.astype(bool),
        in_use_hz=none.astype(air.link.dtype),
        station=channel.link_gain(origin, air.nodes.positions_m, exponent)[0],
        at_station=channel.interferer_gain(origin, air.interferers, exponent)[0],
        at_node=air.interferer[:, 0],
        behind_node=air.background[:, 0],
    )


def _sinr(network: "RadioNetwork", link: Array, interferer: Array, background: ArrayLike, key: Array) -> Array:
    """Draw one block's SINR over the links (node,) with interferers (node, point), eq. (24)."""
    power_w = dbm_to_watt(network.power_dbm)
    noise_w = network.noise_w + power_w * jnp.atleast_2d(jnp.asarray(background, link.dtype))
    return channel.sinr_draw(link[None], interferer[None], key, power_w=power_w, noise_w=noise_w)[0]


def uplink(
    network: "RadioNetwork", state: StarState, offers: Array, bits: float, key: Array
) -> tuple[StarState, Transfer]:
    """End a slot of the uploads, and start those that are offered and can be heard."""
    fading_key, share_key = (jax.random.fold_in(key, int(s)) for s in (Stream.FADING, Stream.ALLOCATION))
    left = jnp.maximum(state.up_left - 1, 0)
    arrived = (state.up_left > 0) & (left == 0)
    in_use_hz = jnp.where(left > 0, state.in_use_hz, 0.0)
    sinr = _sinr(network, state.station, state.at_station, 0.0, fading_key)
    wants = offers & ~state.waiting & (sinr >= db_to_linear(network.least_sinr_db))
    free_hz = jnp.maximum(network.bandwidth_hz - jnp.sum(in_use_hz), 0.0)
    starts = wants & (free_hz > 1e-3 * network.bandwidth_hz)  # rounding leaves crumbs that are no bandwidth
    rate = schedule.spectral_efficiency(sinr)
    share = bandwidth.ALLOCATIONS[network.allocation](rate, starts, 1.0, share_key)
    slots = latency.transmission_slots(bits, share * free_hz, rate, network.slot_s)
    new = state._replace(
        up_left=jnp.where(starts, latency.whole_slots(slots), left),
        waiting=state.waiting | starts,
        in_use_hz=jnp.where(starts, share * free_hz, in_use_hz),
    )
    return new, Transfer(starts, arrived)


def downlink(
    network: "RadioNetwork", state: StarState, offers: Array, bits: float, key: Array
) -> tuple[StarState, Transfer]:
    """End a slot of the answers, and start a broadcast to all that are to be answered once all can hear it."""
    wants = offers & state.waiting & (state.up_left == 0) & (state.down_left == 0)
    if network.answers == "free":
        return state._replace(waiting=state.waiting & ~wants), Transfer(wants, wants)
    left = jnp.maximum(state.down_left - 1, 0)
    arrived = (state.down_left > 0) & (left == 0)
    sinr = _sinr(network, state.station, state.at_node, state.behind_node, jax.random.fold_in(key, int(Stream.FADING)))
    heard = jnp.all((sinr >= db_to_linear(network.least_sinr_db)) | ~wants)
    starts = wants & heard
    rate = jnp.min(jnp.where(wants, schedule.spectral_efficiency(sinr), jnp.inf))
    band_hz = jnp.asarray(network.bandwidth_hz, sinr.dtype)
    slots = latency.whole_slots(latency.transmission_slots(bits, band_hz, rate, network.slot_s))
    new = state._replace(
        down_left=jnp.where(starts, slots, left),
        waiting=state.waiting & ~arrived,
    )
    return new, Transfer(starts, arrived)
