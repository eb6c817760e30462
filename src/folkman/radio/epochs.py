"""The paper's rule between peers: periods in which a node sends to those above a threshold of SINR.

This is the box of Algorithm 1, lines 10-15, with lines 16-20 [1]. At the end of a slot, for every
node whose period is over,

    SINR_ji          all fading drawn anew                                         line 17, eq. (24)
    Y_i, Q_ji        receivers j with SINR_ji > gamma                              line 11, eq. (25)
    R_i              worst receiver's log2(1 + SINR)                               line 13
    B_i              Proposition 1, uniform or random                              line 14, eq. (29)
    Gamma_i          slots until the broadcast of the frozen w_i(t+1) has arrived  line 19, eq. (27)

after which the receivers hold it (the acknowledgement J_ji, latched). A pair that is not linked
keeps the last copy delivered. Two rules say when a period is over (`period`):

    epoch   for all nodes together, when the last broadcast has arrived (default; decision C6)
    node    for each node when its own broadcast has arrived, as line 10 is printed. The nodes that
            start divide the bandwidth that is free, none taking more than its share of B among all
            nodes on the air; one that would get less than a tenth of that share waits. The
            bandwidth in use never exceeds B.

A period in which nobody hears a node lasts one slot. Methods in lock-step wait for everyone: their
threshold is `least_sinr_db`, and nodes are on the air again, block after block, until all who must
hear them have (unless they ask to follow the schedule: then one epoch is a round).

[1] Xie et al. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.keys import Stream, stream_keys
from folkman.radio import bandwidth, latency, schedule
from folkman.radio.air import Air
from folkman.radio.delivery import Airtime, Delivery
from folkman.units import db_to_linear

if TYPE_CHECKING:
    from folkman.radio.network import RadioNetwork

__all__ = ["Durations", "LockstepRadio", "RadioPeers", "RadioRounds", "RadioState", "rest"]

LEAST_PART = 0.1
"""A node waits rather than start with less than this part of its share (rule `node`)."""


class Durations(NamedTuple):
    """Sums over what has ended so far, in slots."""

    # () sum of Gamma_T: one an epoch, or one a broadcast under the rule `node`
    transmission_slots: Array
    num_transmissions: Array  # () how many were added
    waiting_slots: Array  # () sum of Gamma_W over the links scheduled
    num_waits: Array  # () how many were added


class RadioState(NamedTuple):
    """Between peers. Index order [rx, tx]."""

    slot: Int[Array, ""]  # slots ended so far
    air: Air
    held: Int[Array, "rx tx"]  # stamp of the copy held
    linked: Bool[Array, "rx tx"]  # receivers of each node's last broadcast (Y_i, Q_ji)
    left: Int[Array, " tx"]  # slots until its broadcast has arrived, 0 if not on the air
    stamp: Int[Array, " tx"]  # stamp of its broadcast
    in_use_hz: Float[Array, " tx"]  # B_i on the air
    se_min: Float[Array, " tx"]  # R_i on the air
    unnoted: Bool[Array, " tx"]  # sent in the current period
    # slot at which the pair's last period ended: Gamma_W counts from here
    since: Int[Array, "rx tx"]
    durations: Durations  # sums for the means of Gamma_T and Gamma_W
    air_left: Float[Array, " tx"]  # slots that its broadcast still needs; `left` without rounding


class LockstepRadio(NamedTuple):
    """Between peers in lock-step."""

    radio: RadioState  # state of the radio, as between peers on their own beat
    running: Bool[Array, ""]  # is a round on?
    since: Int[Array, ""]  # stamp of the round
    held: Int[Array, "rx tx"]  # what the nodes may use


def rest(air: Air) -> RadioState:
    """Return the state before slot 0: nothing on the air, everyone holding stamp 0 (C2)."""
    nodes = air.link.shape[0]
    pair, each = jnp.zeros((nodes, nodes), jnp.int32), jnp.zeros(nodes, jnp.int32)
    none, whole = jnp.zeros((), air.link.dtype), jnp.zeros((), jnp.int32)
    return RadioState(
        slot=whole,
        air=air,
        held=pair,
        linked=pair.astype(bool),
        left=each,
        stamp=each,
        in_use_hz=each.astype(air.link.dtype),
        se_min=jnp.full(nodes, jnp.inf, air.link.dtype),
        unnoted=each.astype(bool),
        since=pair + 1,  # the first period starts at the end of slot 0 (C2)
        durations=Durations(none, whole, whole, whole),
        air_left=each.astype(air.link.dtype),
    )


def start(
    radio: "RadioNetwork",
    state: RadioState,
    over: Array,  # whose period is over, (node,) bool
    offers: Array,
    message_bits: ArrayLike,
    key: Array,
) -> tuple[RadioState, Array]:
    """Start the broadcasts of the nodes whose period is over and who have one for others.

    Return who starts.

    `offers` (rx, tx) or (1, tx): for whom. The rate is that of the worst of those who hear.
    """
    fading_key, allocation_key, motion_key = stream_keys(
        key, Stream.FADING, Stream.ALLOCATION, Stream.GEOMETRY
    )
    air = _moved(radio, state, over, motion_key)
    sinr = radio.sinr(air, fading_key)
    linked = (
        schedule.links(sinr, db_to_linear(radio.threshold_db)) & over[None] & offers
    )  # eq. (25a)
    rate = schedule.se_min(sinr, linked)  # R_i
    starts, band_hz = _divide(radio, state, schedule.scheduled(linked), rate, allocation_key)
    slots = latency.transmission_slots(
        radio.payload_bits(message_bits), band_hz, rate, radio.slot_s
    )  # eq. (27)
    new = state._replace(
        air=air,
        linked=jnp.where(starts[None], linked, state.linked),
        left=jnp.where(starts, latency.whole_slots(slots), state.left),  # B3
        stamp=jnp.where(starts, state.slot, state.stamp),
        in_use_hz=jnp.where(starts, band_hz, state.in_use_hz),
        se_min=jnp.where(starts, rate, state.se_min),
        unnoted=state.unnoted | starts,
        durations=_note(radio, state, linked & starts[None], jnp.where(starts, slots, 0.0)),
        air_left=jnp.where(starts, slots, state.air_left),
    )
    return new, starts


def arrive(radio: "RadioNetwork", state: RadioState) -> tuple[RadioState, Array]:
    """End a slot: hand over the broadcasts that have arrived, and tell whose period is over."""
    left = jnp.maximum(state.left - 1, 0)
    arrived = (state.left > 0) & (left == 0)
    held = jnp.where(
        state.linked & arrived[None], state.stamp[None], state.held
    )  # J_ji, latched (C3)
    over = left == 0
    if radio.period == "epoch":
        over = jnp.broadcast_to(jnp.all(over), over.shape)  # C6
    coming = state.slot + 1
    noted = over & state.unnoted
    return state._replace(
        slot=coming,
        held=held,
        left=left,
        in_use_hz=jnp.where(left > 0, state.in_use_hz, 0.0),
        unnoted=state.unnoted & ~noted,
        since=jnp.where(state.linked & noted[None], coming, state.since),
        air_left=jnp.maximum(state.air_left - 1.0, 0.0),
    ), over


def _moved(radio: "RadioNetwork", state: RadioState, over: Array, key: Array) -> Air:
    """Move the nodes, at the end of an epoch or, under the rule `node`, of every slot.

    What is on the air keeps the rate it started with.
    """
    now = radio.next_air(state.air, state.slot, key)
    if now is state.air:
        return now
    due = jnp.all(over) if radio.period == "epoch" else jnp.asarray(True)
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), now, state.air)


def _divide(
    radio: "RadioNetwork", state: RadioState, wants: Array, rate: Array, key: Array
) -> tuple[Array, Array]:
    """Return who starts, and with how many hertz."""
    allocate = bandwidth.ALLOCATIONS[radio.allocation]
    if radio.period == "epoch":
        return wants, allocate(rate, wants, radio.bandwidth_hz, key)
    on_air = state.left > 0
    allocated_hz = allocate(
        jnp.where(on_air, state.se_min, rate), on_air | wants, radio.bandwidth_hz, key
    )
    wanted_hz = jnp.where(wants, allocated_hz, 0.0)
    free_hz = jnp.maximum(radio.bandwidth_hz - jnp.sum(state.in_use_hz), 0.0)
    part = jnp.minimum(free_hz / jnp.maximum(jnp.sum(wanted_hz), 1e-30), 1.0)
    starts = wants & (part >= LEAST_PART)
    return starts, jnp.where(starts, wanted_hz * part, 0.0)


def _note(radio: "RadioNetwork", state: RadioState, linked: Array, slots: Array) -> Durations:
    """Add the durations of the broadcasts that start.

    Gamma_T of eq. (26), and Gamma_W up to now (C5).
    """
    sums, starts = state.durations, slots > 0
    if radio.period == "epoch":
        transmission, number = jnp.max(slots, initial=0.0), jnp.any(starts)
    else:
        transmission, number = jnp.sum(slots), jnp.sum(starts, dtype=jnp.int32)
    waited = jnp.where(linked, state.slot - state.since, 0)
    return Durations(
        sums.transmission_slots + transmission,
        sums.num_transmissions + number,
        sums.waiting_slots + jnp.sum(waited, dtype=jnp.int32),
        sums.num_waits + jnp.sum(linked, dtype=jnp.int32),
    )


def _durations(state: RadioState) -> dict[str, Array]:
    """Return mean Gamma_T and Gamma_W so far, in slots; NaN before the first."""
    sums = state.durations
    return {
        "gamma_t": sums.transmission_slots / sums.num_transmissions,
        "gamma_w": sums.waiting_slots / sums.num_waits,
    }


def airtime(state: RadioState) -> Airtime:
    """Return who sends and listens in the coming slot, and for how much of it.

    Broadcasts start together, when the slot begins, so a node listens as long as the longest.
    """
    transmit = jnp.where(state.left > 0, jnp.minimum(state.air_left, 1.0), 0.0)
    return Airtime(transmit, jnp.max(jnp.where(state.linked, transmit[None], 0.0), axis=1))


@dataclass(frozen=True)
class RadioPeers:
    """The radio between peers on their own beat: the box of Algorithm 1."""

    radio: "RadioNetwork"  # the cell
    recent = 1  # the one on the air
    forwards = False

    def versions(self, num_nodes: int) -> int:
        """Return a first guess: held, on the air, and two for pairs that have waited."""
        return min(4, max(2, num_nodes))

    def init(self, num_nodes: int, key: PRNGKeyArray) -> RadioState:
        """Drop the nodes and interferers; everyone holds the first models."""
        return rest(self.radio.open_air(num_nodes, key))

    def step(
        self,
        state: RadioState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[RadioState, Delivery]:
        """Deliver what has arrived, then start the periods that are due."""
        on_air = airtime(state)
        state, over = arrive(self.radio, state)

        def begin() -> tuple[RadioState, Array]:
            return start(self.radio, state, over, offers[None], message_bits, key)

        if self.radio.period == "epoch":  # within one nothing starts and nobody moves: spare draws
            new, starts = lax.cond(jnp.all(over), begin, lambda: (state, jnp.zeros_like(over)))
        else:
            new, starts = begin()
        return new, Delivery(new.held, starts, new.linked & starts[None], airtime=on_air)

    def measures(self, state: RadioState) -> dict[str, Array]:
        """Return mean Gamma_T and Gamma_W so far."""
        return _durations(state)


@dataclass(frozen=True)
class RadioRounds:
    """The radio between peers in lock-step: a node is on the air until all have heard it.

    All who must hear it, that is.
    """

    radio: "RadioNetwork"  # the cell

    def init(self, num_nodes: int, key: PRNGKeyArray) -> LockstepRadio:
        """Drop the same nodes and interferers, at rest."""
        radio = rest(self.radio.open_air(num_nodes, key))
        return LockstepRadio(radio, jnp.asarray(False), jnp.zeros((), jnp.int32), radio.held)

    def step(
        self,
        state: LockstepRadio,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[LockstepRadio, Delivery]:
        """Advance a round; with `wanted` None it is one epoch."""
        if wanted is None:
            patient = replace(self.radio, period="epoch")
        else:
            patient = replace(self.radio, threshold_db=self.radio.least_sinr_db)
        on_air = airtime(state.radio)
        radio, over = arrive(patient, state.radio)
        got = radio.held >= state.since
        served = jnp.all(over) if wanted is None else jnp.all(got | ~wanted)
        ends = state.running & served
        begins = ~state.running & jnp.all(offers)
        running = (state.running | begins) & ~ends
        since = jnp.where(begins, radio.slot, state.since)
        missing = jnp.ones_like(got) if wanted is None else wanted & ~(got & ~begins)
        radio, starts = start(patient, radio, over, missing & running, message_bits, key)
        heard = got | jnp.eye(len(offers), dtype=bool) | jnp.asarray(wanted is not None)
        held = jnp.where(ends & heard, since, state.held)
        sends = jnp.broadcast_to(begins, offers.shape)
        new = LockstepRadio(radio, running, since, held)
        return new, Delivery(held, sends, radio.linked & starts[None], airtime=on_air)

    def measures(self, state: LockstepRadio) -> dict[str, Array]:
        """Return mean Gamma_T and Gamma_W so far."""
        return _durations(state.radio)
