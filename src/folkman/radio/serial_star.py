"""The radio around a server, one upload after the other on the whole band: `schedule = "index"`.

    upload    whoever is ready waits for its turn; one node at a time has the whole band. Of those
              whose link is worth using now (`folkman.radio.turns`) the one goes first that saves
              the most by slots, (u + V - c) / c
    answer    one broadcast at a time over a band of B of its own: of those who are to be answered
              the prefix with the largest index, receivers by slots
    time      transfers start and end at their true times, several in one slot. The server acts at
              the end of a slot: an answer starts with the slot after the last upload

Proposition 1 would let all uploads end together, after the sum of their times on the whole band at
the fading of one slot, in whole slots. One after the other takes that sum too, but each upload can
take its own good slot. What methods around a server see is the same; only times differ.

Differs from `folkman.radio.star`: an upload is frozen when it is offered, not when its turn comes;
nodes wait meanwhile, so that nothing changes. There is no `least_sinr_db`: patience takes its
place. No control bits: a station hears the rates of its nodes and says whose turn it is.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.keys import Stream, stream_keys
from folkman.radio import latency, schedule, star
from folkman.radio.delivery import Transfer, Unmeasured
from folkman.radio.serial import LEAST_SLOTS
from folkman.radio.turns import Patience, Turn, at_edge, no_patience

if TYPE_CHECKING:
    from folkman.radio.air import Air
    from folkman.radio.network import RadioNetwork

__all__ = ["SerialStar", "SerialStarState", "Way"]

LEAST_VALUE = 1e-6
"""The index of an upload that saves nothing by haste, but may as well go."""


class Way(NamedTuple):
    """One direction."""

    wants: Bool[Array, " node"]  # waits for its turn
    on_air: Bool[Array, " node"]
    busy: Float[Array, ""]  # slots from the end of this slot until the band is free
    done: Bool[Array, " node"]  # its transfer ends within the coming slot
    patience: Patience
    used: Float[Array, " node"]  # slots of its transfers within the coming slot
    in_use: Float[Array, ""]  # slots that any transfer takes within it


class SerialStarState(NamedTuple):
    """Around a base station at the centre."""

    slot: Int[Array, ""]  # slots ended so far
    waiting: Bool[Array, " node"]  # has uploaded or is to do so, and has not been answered
    up: Way
    down: Way
    air: "Air"
    present: Bool[Array, " node"]  # in the coming slot: who is away neither sends nor hears


@dataclass(frozen=True)
class SerialStar(Unmeasured):
    """The radio around a base station at the centre of the cell, one transfer at a time."""

    radio: "RadioNetwork"

    def init(self, num_nodes: int, key: PRNGKeyArray) -> SerialStarState:
        """Drop the same nodes and interferers as between peers."""
        none = jnp.zeros(num_nodes, bool)
        free, unused = jnp.zeros((), jnp.float32), jnp.zeros(num_nodes, jnp.float32)
        idle = Way(none, none, free, none, no_patience(num_nodes), unused, free)
        air = self.radio.open_air(num_nodes, key)
        return SerialStarState(jnp.zeros((), jnp.int32), none, idle, idle, air, ~none)

    def attend(self, state: SerialStarState, present: Bool[Array, " node"]) -> SerialStarState:
        """Tell the network who is there in the coming slot."""
        return state._replace(present=present)

    def uplink(
        self,
        state: SerialStarState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[SerialStarState, Transfer]:
        """Tell which uploads have arrived, and fill the coming slot with those that wait."""
        radio = self.radio
        fading_key, motion_key = stream_keys(key, Stream.FADING, Stream.GEOMETRY)
        slot = state.slot + 1
        air = radio.next_air(state.air, slot, motion_key)
        sinr = star.sinr_at_station(radio, air, fading_key)
        starts = offers & ~state.waiting
        arrived = state.up.done
        way = state.up._replace(wants=state.up.wants | starts)
        way, _ = _fill(way, self._cost_slots(state, sinr, message_bits), one_at_a_time)
        new = state._replace(slot=slot, waiting=state.waiting | starts, up=way, air=air)
        return new, Transfer(
            starts, arrived, jnp.zeros_like(arrived), state.up.used, state.up.in_use
        )

    def downlink(
        self,
        state: SerialStarState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[SerialStarState, Transfer]:
        """Tell which answers have arrived, and start those of the coming slot."""
        if self.radio.answers == "free":
            new = _quiet(state, offers)
            new = new._replace(waiting=state.waiting & ~offers)
            way = state.down
            return new, Transfer(offers, offers, jnp.zeros_like(offers), way.used, way.in_use)
        fading_key = jax.random.fold_in(key, int(Stream.FADING))
        sinr = star.sinr_of_station(self.radio, state.air, fading_key)
        arrived = state.down.done
        way = state.down._replace(wants=offers & ~state.down.on_air)
        way, started = _fill(way, self._cost_slots(state, sinr, message_bits), to_a_prefix)
        new = _quiet(state, started)
        new = new._replace(down=way, waiting=(state.waiting & ~arrived) | started)
        used = (state.down.used, state.down.in_use)
        return new, Transfer(started, arrived, jnp.zeros_like(arrived), *used)

    def _cost_slots(
        self, state: SerialStarState, sinr: Array, message_bits: ArrayLike
    ) -> Float[Array, " node"]:
        """Return the slots of each node's transfer on the whole band, infinite for who is away."""
        radio = self.radio
        bits, rate = radio.payload_bits(message_bits), schedule.spectral_efficiency(sinr)
        band_hz = jnp.asarray(radio.bandwidth_hz, rate.dtype)
        slots = latency.transmission_slots(bits, band_hz, rate, radio.slot_s)  # eq. (27)
        slots = jnp.maximum(slots, LEAST_SLOTS).astype(jnp.float32)
        return jnp.where(state.present, slots, jnp.inf)


def one_at_a_time(way: Way, cost_slots: Array, left_slots: Array) -> Turn:
    """Return the upload that saves the most, by the slots that it takes."""
    now = way.patience.now(cost_slots, left_slots)
    saved = (left_slots + way.patience.slots - now) / now
    able = way.wants & jnp.isfinite(now)
    value = jnp.where(able, jnp.maximum(saved, LEAST_VALUE), 0.0)
    node = jnp.argmax(value).astype(jnp.int32)
    return Turn(value[node], node, jnp.arange(len(now)) == node, now[node])


def to_a_prefix(way: Way, cost_slots: Array, left_slots: Array) -> Turn:
    """Return the receivers of a broadcast with the largest index."""
    now = way.patience.now(cost_slots, left_slots)
    ranked = jnp.sort(jnp.where(way.wants, now, jnp.inf))
    number = jnp.arange(1, len(now) + 1, dtype=now.dtype)
    value = jnp.where(jnp.isfinite(ranked), number / ranked, 0.0)
    last = jnp.argmax(value)
    receivers = way.wants & (now <= ranked[last])
    return Turn(value[last], jnp.zeros((), jnp.int32), receivers, ranked[last])


def _fill(way: Way, cost_slots: Array, choose) -> tuple[Way, Array]:  # noqa: ANN001
    """Let transfers follow each other in the coming slot; return who has started."""
    none = jnp.zeros_like(way.wants)
    way = way._replace(
        patience=way.patience.after(cost_slots),
        done=none,
        used=jnp.where(way.on_air, jnp.minimum(way.busy, 1.0), 0.0),
        in_use=jnp.where(jnp.any(way.on_air), jnp.minimum(way.busy, 1.0), 0.0),
    )

    def body(at: tuple[Way, Array, Array]) -> tuple[Way, Array, Array]:
        now, started, _ = at
        now = now._replace(done=now.done | now.on_air, on_air=none)
        turn = choose(now, cost_slots, 1.0 - now.busy)
        go = turn.value > 0
        goes = turn.receivers & go
        busy = at_edge(now.busy + turn.slots)
        now = now._replace(
            wants=now.wants & ~goes,
            on_air=goes,
            busy=jnp.where(go, busy, now.busy),
            used=now.used + jnp.where(goes, jnp.minimum(busy, 1.0) - now.busy, 0.0),
            in_use=now.in_use + jnp.where(go, jnp.minimum(busy, 1.0) - now.busy, 0.0),
        )
        return now, started | goes, ~go

    begun = (way, none, jnp.asarray(False))
    way, started, _ = lax.while_loop(lambda at: (at[0].busy < 1) & ~at[2], body, begun)
    ended = way.busy <= 1
    return way._replace(
        done=way.done | (way.on_air & ended),
        on_air=way.on_air & ~ended,
        busy=jnp.maximum(way.busy - 1, 0.0),
    ), started


def _quiet(state: SerialStarState, answered: Array) -> SerialStarState:
    """End the uploads of the nodes that are answered; a server that answers no longer listens."""
    up = state.up
    alone = jnp.any(up.on_air & ~answered)
    return state._replace(
        up=up._replace(
            wants=up.wants & ~answered,
            on_air=up.on_air & ~answered,
            done=up.done & ~answered,
            used=jnp.where(answered, 0.0, up.used),
            # one upload at a time: what is left is that of the nodes that are not answered
            in_use=jnp.sum(jnp.where(answered, 0.0, up.used)),
            busy=jnp.where(alone, up.busy, 0.0),
        )
    )
