"""The same radio around a server: uploads to a base station at the centre, its answers back.

    upload    SINR_i at the base station by eq. (24), in node i's band; Proposition 1 with
              R_i = log2(1 + SINR_i)
    answer    one broadcast at a time over a band of B of its own, with the power of a node, at the
              rate of the worst of those who are to be answered and can hear in this block; the
              others are answered next

There is no threshold: a server waits for everyone it needs. A node below `least_sinr_db` does not
start in this block; the fading is drawn anew in the next slot, rather than a transfer begun that
would last for hours. Uploads that start together divide the bandwidth that is free by Proposition
1, whatever `allocation` says of peers. The base station's broadcast meets the interferers of
band 0. Nodes that move do so in every slot.

Differs from [1]: it plots FedAvg without communication time; this is what its comparison on the
radio needs.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, PRNGKeyArray, jax, jnp
from folkman.keys import Stream, stream_keys
from folkman.radio import bandwidth, channel, latency, schedule
from folkman.radio.delivery import Transfer, Unmeasured
from folkman.units import db_to_linear, dbm_to_watt

if TYPE_CHECKING:
    from folkman.radio.air import Air
    from folkman.radio.network import RadioNetwork

__all__ = ["RadioStar", "StarRadio", "sinr_at_station", "sinr_of_station"]


class StarRadio(NamedTuple):
    """Slots left of each transfer (0 for none), and where everything is."""

    slot: Array  # () slots ended so far
    up_left: Array  # (node,)
    down_left: Array  # (node,)
    waiting: Array  # (node,) bool: has uploaded or is doing so, and has not been answered
    in_use_hz: Array  # (node,) of the uploads on the air
    air: "Air"
    up_air: Array  # (node,) slots that the upload still needs; `up_left` without rounding
    down_air: Array  # (node,) the same of the answer


@dataclass(frozen=True)
class RadioStar(Unmeasured):
    """The radio around a base station at the centre of the cell."""

    radio: "RadioNetwork"

    def init(self, num_nodes: int, key: PRNGKeyArray) -> StarRadio:
        """Drop the same nodes and interferers as between peers."""
        return _at_rest(self.radio.open_air(num_nodes, key))

    def uplink(
        self,
        state: StarRadio,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarRadio, Transfer]:
        """Advance the uploads to the base station."""
        bits = self.radio.payload_bits(message_bits)
        return _uplink(self.radio, state, offers, bits, key)

    def downlink(
        self,
        state: StarRadio,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarRadio, Transfer]:
        """Advance the base station's broadcast."""
        bits = self.radio.payload_bits(message_bits)
        return _downlink(self.radio, state, offers, bits, key)


def _at_rest(air: "Air") -> StarRadio:
    """Return the star before slot 0, its base station at the origin."""
    none = jnp.zeros(air.link.shape[0], jnp.int32)
    still = none.astype(air.link.dtype)
    return StarRadio(
        slot=jnp.zeros((), jnp.int32),
        up_left=none,
        down_left=none,
        waiting=none.astype(bool),
        in_use_hz=still,
        air=air,
        up_air=still,
        down_air=still,
    )


def sinr_at_station(network: "RadioNetwork", air: "Air", key: Array) -> Array:
    """Draw one block's SINR of each node's upload at the base station, in the node's band."""
    origin = jnp.zeros((1, 2), air.link.dtype)
    link = channel.link_gain(origin, air.nodes.positions_m, network.path_loss_exponent)[0]
    interferer = channel.interferer_gain(origin, air.interferers, network.path_loss_exponent)[0]
    return _sinr(network, link, interferer, 0.0, key)


def sinr_of_station(network: "RadioNetwork", air: "Air", key: Array) -> Array:
    """Draw one block's SINR of the base station's broadcast at each node, in band 0."""
    origin = jnp.zeros((1, 2), air.link.dtype)
    link = channel.link_gain(origin, air.nodes.positions_m, network.path_loss_exponent)[0]
    return _sinr(network, link, air.interferer[:, 0], air.background[:, 0], key)


def _sinr(
    network: "RadioNetwork", link: Array, interferer: Array, background: ArrayLike, key: Array
) -> Array:
    """Draw one block's SINR over the links (node,) with interferers (node, point), eq. (24)."""
    power_w = dbm_to_watt(network.power_dbm)
    noise_w = network.noise_w + power_w * jnp.atleast_2d(jnp.asarray(background, link.dtype))
    return channel.sinr_draw(link[None], interferer[None], key, power_w=power_w, noise_w=noise_w)[0]


def _uplink(
    network: "RadioNetwork", state: StarRadio, offers: Array, bits: ArrayLike, key: Array
) -> tuple[StarRadio, Transfer]:
    """End a slot of the uploads, and start those that are offered and can be heard."""
    fading_key, motion_key = stream_keys(key, Stream.FADING, Stream.GEOMETRY)
    slot = state.slot + 1
    air = network.moved(state.air, slot, motion_key) if network.speed_m_per_s else state.air
    left = jnp.maximum(state.up_left - 1, 0)
    arrived = (state.up_left > 0) & (left == 0)
    in_use_hz = jnp.where(left > 0, state.in_use_hz, 0.0)
    sinr = sinr_at_station(network, air, fading_key)
    wants = offers & ~state.waiting & (sinr >= db_to_linear(network.least_sinr_db))
    free_hz = jnp.maximum(network.bandwidth_hz - jnp.sum(in_use_hz), 0.0)
    starts = wants & (
        free_hz > 1e-3 * network.bandwidth_hz
    )  # rounding leaves crumbs that are no bandwidth
    rate = schedule.spectral_efficiency(sinr)
    band_hz = bandwidth.optimal(rate, starts, 1.0) * free_hz
    slots = latency.transmission_slots(bits, band_hz, rate, network.slot_s)
    new = state._replace(
        slot=slot,
        air=air,
        up_left=jnp.where(starts, latency.whole_slots(slots), left),
        waiting=state.waiting | starts,
        in_use_hz=jnp.where(starts, band_hz, in_use_hz),
        up_air=jnp.where(starts, slots, jnp.maximum(state.up_air - 1.0, 0.0)),
    )
    return new, Transfer(starts, arrived, jnp.zeros_like(arrived), jnp.minimum(state.up_air, 1.0))


def _downlink(
    network: "RadioNetwork", state: StarRadio, offers: Array, bits: ArrayLike, key: Array
) -> tuple[StarRadio, Transfer]:
    """End a slot of the answers, and start a broadcast to those who wait and can hear it."""
    if network.answers == "free":
        return _quiet(state, offers)._replace(waiting=state.waiting & ~offers), Transfer(
            offers, offers, jnp.zeros_like(offers), jnp.zeros_like(state.down_air)
        )
    left = jnp.maximum(state.down_left - 1, 0)
    arrived = (state.down_left > 0) & (left == 0)
    sinr = sinr_of_station(network, state.air, jax.random.fold_in(key, int(Stream.FADING)))
    starts = offers & jnp.all(left == 0) & (sinr >= db_to_linear(network.least_sinr_db))
    rate = jnp.min(jnp.where(starts, schedule.spectral_efficiency(sinr), jnp.inf))
    band_hz = jnp.asarray(network.bandwidth_hz, sinr.dtype)
    slots = latency.transmission_slots(bits, band_hz, rate, network.slot_s)
    new = _quiet(state, starts)._replace(
        down_left=jnp.where(starts, latency.whole_slots(slots), left),
        waiting=(state.waiting & ~arrived) | starts,
        down_air=jnp.where(starts, slots, jnp.maximum(state.down_air - 1.0, 0.0)),
    )
    on_air = jnp.minimum(state.down_air, 1.0)
    return new, Transfer(starts, arrived, jnp.zeros_like(arrived), on_air)


def _quiet(state: StarRadio, answered: Array) -> StarRadio:
    """End the uploads of the nodes that are answered; a server that answers no longer listens."""
    return state._replace(
        up_left=jnp.where(answered, 0, state.up_left),
        in_use_hz=jnp.where(answered, 0.0, state.in_use_hz),
        up_air=jnp.where(answered, 0.0, state.up_air),
    )
