"""The radio as a network: positions -> SINR -> schedule -> bandwidth -> which copy each node holds.

Between peers this is the box of Algorithm 1, lines 10-15, with lines 16-20 [1]. At the end of a
slot, for every node whose period is over,

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

With `schedule = "index"` there are neither thresholds nor periods: one message at a time has the
whole band (`folkman.radio.serial`), in lock-step (`folkman.radio.serial_rounds`) and around a
server (`folkman.radio.serial_star`) too.

A period in which nobody hears a node lasts one slot. Methods in lock-step wait for everyone: their
threshold is `least_sinr_db`, and nodes are on the air again, block after block, until all who must
hear them have (unless they ask to follow the schedule: then one epoch is a round). Around a server
see `folkman.radio.star`. What the paper leaves open is decided in docs/decisions.md, whose labels
(B3, C6, D2 ...) are cited at the lines.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import Literal, NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require
from folkman.keys import Stream, stream_keys
from folkman.packing.packing import Packing, implied, top_k
from folkman.radio import bandwidth, channel, geometry, latency, schedule, serial, star
from folkman.radio.all_reduce import AllReduce
from folkman.radio.delivery import Airtime, Delivery, Network, as_value
from folkman.radio.geometry import Points, Waypoint
from folkman.radio.serial_rounds import SerialRounds
from folkman.radio.serial_star import SerialStar
from folkman.units import db_to_linear, dbm_to_watt

__all__ = [
    "Air",
    "Durations",
    "LockstepRadio",
    "RadioNetwork",
    "RadioPeers",
    "RadioRounds",
    "RadioState",
    "place",
]

NUM_FADING = 32
"""Interferers of a band, nearest to the centre first, that fade.

The others are taken at their mean power.

With density lambda and exponent 4 the k-th nearest contributes like k^-2, so those beyond the 32nd
make up about 2 % of the interference and their fading moves it by 0.2 %: 0.01 dB, for a tenth of
the random numbers.
"""

NUM_GLANCED = 6
"""Interferers that are drawn before it is known which node sends (`glance_slots`).

They make up about nine tenths of the interference. More of them cost more draws for every node,
fewer leave more nodes to be looked at again.
"""

LEAST_PART = 0.1
"""A node waits rather than start with less than this part of its share (rule `node`)."""


class Durations(NamedTuple):
    """Sums over what has ended so far, in slots."""

    transmission_slots: (
        Array  # () of Gamma_T: one an epoch, or one a broadcast under the rule `node`
    )
    num_transmissions: Array  # ()
    waiting_slots: Array  # () of Gamma_W over the links scheduled
    num_waits: Array  # ()


class Air(NamedTuple):
    """Where everything is, and the path gains that follow."""

    nodes: Waypoint  # where nodes are, and where they go
    interferers: Points  # (band, point), nearest to the centre first
    link: Float[Array, "rx tx"]  # d^-a
    interferer: Float[Array, "rx band near"]  # d^-a of the nearest, which fade; 0 for padding
    # sum of d^-a of all the others, which are taken at their mean
    background: Float[Array, "rx band"]
    moved_at: Int[Array, ""]  # slot of these positions


class RadioState(NamedTuple):
    """Between peers. Index order [rx, tx]."""

    slot: Int[Array, ""]  # slots ended so far
    air: Air
    held: Int[Array, "rx tx"]  # stamp of the copy held
    linked: Bool[Array, "rx tx"]  # receivers of each node's last broadcast (Y_i, Q_ji)
    left: Int[Array, " tx"]  # slots until its broadcast has arrived, 0 if not on the air
    stamp: Int[Array, " tx"]  # of its broadcast
    in_use_hz: Float[Array, " tx"]  # B_i on the air
    se_min: Float[Array, " tx"]  # R_i on the air
    unnoted: Bool[Array, " tx"]  # sent in the current period
    # slot at which the pair's last period ended: Gamma_W counts from here
    since: Int[Array, "rx tx"]
    durations: Durations  # sums for the means of Gamma_T and Gamma_W
    air_left: Float[Array, " tx"]  # slots that its broadcast still needs; `left` without rounding


class LockstepRadio(NamedTuple):
    """Between peers in lock-step."""

    radio: RadioState  # as between peers on their own beat
    running: Bool[Array, ""]  # is a round on?
    since: Int[Array, ""]  # its stamp
    held: Int[Array, "rx tx"]  # what the nodes may use


@as_value("threshold_db")
@dataclass(frozen=True)
class RadioNetwork(Network):
    """A cell.

    The defaults are the paper's Table III, and the decisions D1-D11 where it is silent.
    """

    threshold_db: float = 0.0
    allocation: Literal["optimal", "uniform", "random"] = "optimal"
    period: Literal["epoch", "node"] = "epoch"
    slot_s: float = 1.0
    cell_radius_m: float = 500.0
    path_loss_exponent: float = 4.0
    bandwidth_hz: float = 10e6
    power_dbm: float = 30.0
    noise_dbm_per_hz: float = -174.0
    bits_per_parameter: int = 16  # type: ignore[assignment] - a radio has a number
    kept_fraction: float = 1.0  # q, the share of parameters that is sent: the largest
    interferers_per_cell: float = 1.0  # nodes of each other cell in the band of one of ours (D1)
    interferer_radius_m: float = 8000.0
    speed_m_per_s: float = 0.0  # random waypoint; positions move when an epoch starts
    answers: Literal["broadcast", "free"] = (
        "broadcast"  # what a server sends back takes time, or none
    )
    least_sinr_db: float = (
        -20.0
    )  # to and from a server, below this the block's fading is drawn anew
    # who sends when: the paper's epochs, or one after the other by an index (folkman.radio.serial)
    schedule: Literal["threshold", "index"] = "threshold"
    message: Literal["copy", "forward", "sum"] = "copy"  # type: ignore[assignment] - of three
    control: Literal["ideal", "heard"] = "ideal"  # what nodes know of each other under the index
    control_bits: int | None = None  # beyond the payload; None: 24 for each pair of nodes
    contention_s: float = 1e-3  # of one contention for the band, with control = "heard"
    weights: tuple[float, ...] | Literal["alike", "shares"] = "alike"  # of nodes, in the index
    thrift: float = 1.0  # the index divides by the time of a message to this power
    name = "radio"
    times_air = True
    reliable = True  # an outage delays; nothing sent is lost

    def __post_init__(self) -> None:
        positive = (
            "slot_s",
            "cell_radius_m",
            "path_loss_exponent",
            "bandwidth_hz",
            "bits_per_parameter",
        )
        for name in (*positive, "kept_fraction", "interferer_radius_m"):
            value = getattr(self, name)
            require(
                0 < value < inf,
                f"{name} must be positive and finite, got {value}; Table III has a default",
            )
        for name in ("interferers_per_cell", "speed_m_per_s", "contention_s"):
            value = getattr(self, name)
            require(
                0 <= value < inf, f"{name} must be finite and not negative, got {value}; 0 is none"
            )
        for name in ("power_dbm", "noise_dbm_per_hz", "least_sinr_db"):
            require(
                isfinite(getattr(self, name)),
                f"{name} must be a finite number, got {getattr(self, name)}",
            )
        if not isinstance(self.threshold_db, Array):  # a planner traces it
            require(
                not isnan(self.threshold_db),
                "threshold_db must be a number, got nan; -inf and inf are allowed",
            )
        require(
            self.answers in ("broadcast", "free"),
            f"answers is 'broadcast' or 'free', got '{self.answers}'",
        )
        require(
            self.kept_fraction <= 1,
            f"kept_fraction is a share, at most 1, got {self.kept_fraction}",
        )
        known = ", ".join(bandwidth.ALLOCATIONS)
        require(
            self.allocation in bandwidth.ALLOCATIONS,
            f"there is no allocation '{self.allocation}'; known: {known}",
        )
        require(
            self.period in ("epoch", "node"), f"period is 'epoch' or 'node', got '{self.period}'"
        )
        require(
            self.schedule in ("threshold", "index"),
            f"schedule is 'threshold' or 'index', got '{self.schedule}'",
        )
        serial.check_fresh(self)
        require(
            self.schedule == "index" or (self.message, self.control) == ("copy", "ideal"),
            f"message = '{self.message}' with control = '{self.control}' needs schedule = 'index', "
            f"got '{self.schedule}'; the threshold rule sends copies",
        )
        require(
            self.schedule == "index"
            or (self.control_bits, self.weights, self.thrift) == (None, "alike", 1.0),
            f"control_bits, weights and thrift are for schedule = 'index', got '{self.schedule}'; "
            "the threshold rule prices no control traffic, weighs all nodes alike and has no index",
        )
        require(
            0 < self.thrift <= 4,
            f"thrift must be above 0 and at most 4, got {self.thrift}; 1 is the index of the "
            "theory, 1.5 waits for good rates",
        )
        require(
            self.interferer_radius_m > self.cell_radius_m,
            f"interferer_radius_m must exceed the cell's {self.cell_radius_m} m, got "
            f"{self.interferer_radius_m}",
        )

    @property
    def power_w(self) -> float:  # type: ignore[override]
        """Return P, what a node radiates on its whole part of the band."""
        return 10.0 ** ((self.power_dbm - 30.0) / 10.0)

    @property
    def noise_w(self) -> Array:
        """Return sigma^2 over the whole band (D2)."""
        return channel.noise_power_w(self.noise_dbm_per_hz, self.bandwidth_hz)

    @property
    def packing(self) -> Packing:
        """Return how messages are packed: a kept fraction below 1 is the largest entries (D9)."""
        if self.kept_fraction < 1:
            return top_k(self.kept_fraction)
        return implied(self.bits_per_parameter)

    def sinr(self, air: Air, key: PRNGKeyArray) -> Float[Array, "rx tx"]:
        """Draw one block's SINR between the nodes, eq. (24)."""
        power_w = dbm_to_watt(self.power_dbm)
        noise_w = self.noise_w + power_w * air.background
        return channel.sinr_draw(air.link, air.interferer, key, power_w=power_w, noise_w=noise_w)

    def in_words(self) -> str:
        """Return what decides how long a transfer takes."""
        if self.schedule == "index":
            return (
                "radio: one message at a time on the whole band, chosen by its index; a message is "
                f"{serial.HOLDS[self.message]}"
            )
        return (
            f"radio: a transfer takes as long as its bits at the rate of its worst link, "
            f"threshold {self.threshold_db:g} dB"
        )

    @property
    def turns_in_words(self) -> str:
        """Return what decides it for methods in rounds and around a server, where that differs."""
        if self.schedule != "index":
            return ""
        return (
            "radio: one message at a time on the whole band; messages of a round, or to a server, "
            "follow each other, each waiting for a good slot"
        )

    def peers(self) -> "RadioPeers | serial.SerialPeers":
        """Return the radio between peers on their own beat."""
        return serial.SerialPeers(self) if self.schedule == "index" else RadioPeers(self)

    def rounds(self) -> "RadioRounds | SerialRounds":
        """Return the radio between peers in lock-step."""
        return SerialRounds(self) if self.schedule == "index" else RadioRounds(self)

    def all_reduce(self) -> "RadioRounds | SerialRounds":
        """Return the radio between peers that wait for the sum of all messages."""
        return SerialRounds(self, AllReduce()) if self.schedule == "index" else RadioRounds(self)

    def star(self) -> star.RadioStar | SerialStar:
        """Return the radio around a base station at the centre."""
        return SerialStar(self) if self.schedule == "index" else star.RadioStar(self)

    @property
    def contention_slots(self) -> float:
        """Return the slots of one contention for the band."""
        return self.contention_s / self.slot_s

    def open_air(self, num_nodes: int, key: Array) -> Air:
        """Drop the nodes and interferers."""
        return place(self, num_nodes, key)

    def next_air(self, air: Air, slot: Array, key: Array) -> Air:
        """Return the air when a slot begins; off at speed 0."""
        return air if self.speed_m_per_s == 0 else self.moved(air, slot, key)

    def cost_slots(self, air: Air, bits: ArrayLike, key: Array) -> Float[Array, "rx tx"]:
        """Return the slots that a message takes on the whole band in one block."""
        return self._in_slots(self.sinr(air, key), bits)

    def glances(self, air: Air, key: PRNGKeyArray) -> bool:
        """Tell whether single numbers of a block can be drawn, and pay (`glance_slots`).

        On a GPU all are drawn at once, faster than it is told which ones are needed.
        """
        return channel.is_indexed(key, air.link.dtype) and jax.default_backend() == "cpu"

    def glance_slots(
        self,
        air: Air,
        bits: ArrayLike,
        key: Array,
        *,
        full: bool = False,  # whether all interferers are drawn
    ) -> Float[Array, "rx tx"]:
        """Return the least that messages may take: of the interferers only the nearest are drawn.

        In full these are the `cost_slots`, up to rounding, in less time.
        """
        nodes = len(air.link)
        pair = jnp.arange(nodes)[:, None] * nodes + jnp.arange(nodes)[None]
        first = pair[..., None] * air.interferer.shape[-1]
        nearest = air.interferer if full else air.interferer[..., :NUM_GLANCED]
        return self._slots_at(air.link, nearest, air.background, pair, first, bits, key)

    def sent_slots(
        self, air: Air, bits: ArrayLike, key: Array, sender: Array
    ) -> Float[Array, " rx"]:
        """Return what messages of one sender take: a column of `cost_slots`, up to rounding."""
        nodes = len(air.link)
        pair = (jnp.arange(nodes) * nodes + sender)[:, None]
        bits = jnp.broadcast_to(jnp.asarray(bits), (nodes,))[sender]
        gains = (air.link, air.interferer, air.background)
        link, near, background = (gain[:, sender][:, None] for gain in gains)
        first = pair[..., None] * near.shape[-1]
        return self._slots_at(link, near, background, pair, first, bits, key)[:, 0]

    def _slots_at(
        self,
        link: Array,
        near: Array,
        background: Array,
        pair: Array,  # rx I + tx: the place of a pair among the draws of `channel.sinr_draw`
        first: Array,  # the place of its first interferer
        bits: ArrayLike,
        key: Array,
    ) -> Array:
        """Return the slots of single pairs."""
        link_key, interferer_key = channel.fading_words(key)
        power_w = dbm_to_watt(self.power_dbm)
        if near.shape[-1] > NUM_GLANCED:
            fading, gain = channel.rayleigh_at(interferer_key, first + _along(near)), near
        else:  # one after the other: a sum over so few is no loop that a processor does in vectors
            heard = [
                channel.rayleigh_at(interferer_key, first[..., 0] + n) * near[..., n]
                for n in range(near.shape[-1])
            ]
            fading, gain = (
                jnp.ones_like(link)[..., None],
                sum(heard, jnp.zeros_like(link))[..., None],
            )
        sinr = channel.sinr(
            link,
            gain,
            channel.rayleigh_at(link_key, pair),
            fading,
            power_w=power_w,
            noise_w=self.noise_w + power_w * background,
        )
        return self._in_slots(sinr, bits)

    def _in_slots(self, sinr: Array, bits: ArrayLike) -> Array:
        """Return the slots that a message takes on the whole band, eq. (27)."""
        efficiency = schedule.spectral_efficiency(sinr)
        band_hz = jnp.asarray(self.bandwidth_hz, efficiency.dtype)
        return latency.transmission_slots(bits, band_hz, efficiency, self.slot_s)

    def start(
        self,
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
        air = self._move(state, over, motion_key)
        sinr = self.sinr(air, fading_key)
        linked = (
            schedule.links(sinr, db_to_linear(self.threshold_db)) & over[None] & offers
        )  # eq. (25a)
        rate = schedule.se_min(sinr, linked)  # R_i
        starts, band_hz = self._divide(state, schedule.scheduled(linked), rate, allocation_key)
        slots = latency.transmission_slots(
            self.payload_bits(message_bits), band_hz, rate, self.slot_s
        )  # eq. (27)
        new = state._replace(
            air=air,
            linked=jnp.where(starts[None], linked, state.linked),
            left=jnp.where(starts, latency.whole_slots(slots), state.left),  # B3
            stamp=jnp.where(starts, state.slot, state.stamp),
            in_use_hz=jnp.where(starts, band_hz, state.in_use_hz),
            se_min=jnp.where(starts, rate, state.se_min),
            unnoted=state.unnoted | starts,
            durations=self._note(state, linked & starts[None], jnp.where(starts, slots, 0.0)),
            air_left=jnp.where(starts, slots, state.air_left),
        )
        return new, starts

    def arrive(self, state: RadioState) -> tuple[RadioState, Array]:
        """End a slot: hand over the broadcasts that have arrived, and tell whose period is over."""
        left = jnp.maximum(state.left - 1, 0)
        arrived = (state.left > 0) & (left == 0)
        held = jnp.where(
            state.linked & arrived[None], state.stamp[None], state.held
        )  # J_ji, latched (C3)
        over = left == 0
        if self.period == "epoch":
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

    def _move(self, state: RadioState, over: Array, key: Array) -> Air:
        """Move the nodes, at the end of an epoch or, under the rule `node`, of every slot.

        Off at speed 0.

        What is on the air keeps the rate it started with.
        """
        if self.speed_m_per_s == 0:
            return state.air
        due = jnp.all(over) if self.period == "epoch" else jnp.asarray(True)
        moved = self.moved(state.air, state.slot, key)
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), moved, state.air)

    def moved(self, air: Air, slot: Array, key: Array) -> Air:
        """Return the air after the nodes have walked since they last moved."""
        step_s = (slot - air.moved_at) * self.slot_s
        nodes = geometry.waypoint_step(
            air.nodes, self.speed_m_per_s, step_s, key, radius_m=self.cell_radius_m
        )
        return look(self, nodes, air.interferers, slot)

    def _divide(
        self, state: RadioState, wants: Array, rate: Array, key: Array
    ) -> tuple[Array, Array]:
        """Return who starts, and with how many hertz."""
        allocate = bandwidth.ALLOCATIONS[self.allocation]
        if self.period == "epoch":
            return wants, allocate(rate, wants, self.bandwidth_hz, key)
        on_air = state.left > 0
        allocated_hz = allocate(
            jnp.where(on_air, state.se_min, rate), on_air | wants, self.bandwidth_hz, key
        )
        wanted_hz = jnp.where(wants, allocated_hz, 0.0)
        free_hz = jnp.maximum(self.bandwidth_hz - jnp.sum(state.in_use_hz), 0.0)
        part = jnp.minimum(free_hz / jnp.maximum(jnp.sum(wanted_hz), 1e-30), 1.0)
        starts = wants & (part >= LEAST_PART)
        return starts, jnp.where(starts, wanted_hz * part, 0.0)

    def _note(self, state: RadioState, linked: Array, slots: Array) -> Durations:
        """Add the durations of the broadcasts that start.

        Gamma_T of eq. (26), and Gamma_W up to now (C5).
        """
        sums, starts = state.durations, slots > 0
        if self.period == "epoch":
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


def _along(of: Array) -> Array:
    """Return 0, 1, 2, ... along the last axis."""
    return lax.broadcasted_iota(jnp.int32, of.shape, of.ndim - 1)


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

    radio: RadioNetwork  # the cell
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
        state, over = self.radio.arrive(state)

        def start() -> tuple[RadioState, Array]:
            return self.radio.start(state, over, offers[None], message_bits, key)

        if self.radio.period == "epoch":  # within one nothing starts and nobody moves: spare draws
            new, starts = lax.cond(jnp.all(over), start, lambda: (state, jnp.zeros_like(over)))
        else:
            new, starts = start()
        return new, Delivery(new.held, starts, new.linked & starts[None], airtime=on_air)

    def measures(self, state: RadioState) -> dict[str, Array]:
        """Return mean Gamma_T and Gamma_W so far."""
        return _durations(state)


@dataclass(frozen=True)
class RadioRounds:
    """The radio between peers in lock-step: a node is on the air until all have heard it.

    All who must hear it, that is.
    """

    radio: RadioNetwork  # the cell

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
        radio, over = patient.arrive(state.radio)
        got = radio.held >= state.since
        served = jnp.all(over) if wanted is None else jnp.all(got | ~wanted)
        ends = state.running & served
        begins = ~state.running & jnp.all(offers)
        running = (state.running | begins) & ~ends
        since = jnp.where(begins, radio.slot, state.since)
        missing = jnp.ones_like(got) if wanted is None else wanted & ~(got & ~begins)
        radio, starts = patient.start(radio, over, missing & running, message_bits, key)
        heard = got | jnp.eye(len(offers), dtype=bool) | jnp.asarray(wanted is not None)
        held = jnp.where(ends & heard, since, state.held)
        sends = jnp.broadcast_to(begins, offers.shape)
        new = LockstepRadio(radio, running, since, held)
        return new, Delivery(held, sends, radio.linked & starts[None], airtime=on_air)

    def measures(self, state: LockstepRadio) -> dict[str, Array]:
        """Return mean Gamma_T and Gamma_W so far."""
        return _durations(state.radio)


def place(network: RadioNetwork, num_nodes: int, key: Array) -> Air:
    """Drop nodes uniformly in the cell and, for each band, interferers outside it (D1, D4)."""
    node_key, interferer_key = stream_keys(key, Stream.GEOMETRY, Stream.INTERFERENCE)
    density = network.interferers_per_cell * geometry.cell_density_per_m2(network.cell_radius_m)
    if density > 0:
        inner_m, outer_m = network.cell_radius_m, network.interferer_radius_m
        points = geometry.interferers(
            num_nodes, density, interferer_key, inner_radius_m=inner_m, outer_radius_m=outer_m
        )
    else:
        points = Points(jnp.zeros((num_nodes, 1, 2)), jnp.zeros((num_nodes, 1), bool))
    far_m = jnp.where(points.present, jnp.linalg.norm(points.positions_m, axis=-1), jnp.inf)
    order = jnp.argsort(far_m, axis=1)
    points = Points(
        jnp.take_along_axis(points.positions_m, order[..., None], axis=1),
        jnp.take_along_axis(points.present, order, 1),
    )
    nodes = geometry.waypoint_start(num_nodes, network.cell_radius_m, node_key)
    return look(network, nodes, points, jnp.zeros((), jnp.int32))


def look(network: RadioNetwork, nodes: Waypoint, interferers: Points, slot: Array) -> Air:
    """Return the path gains of positions."""
    gain = channel.interferer_gain(nodes.positions_m, interferers, network.path_loss_exponent)
    return Air(
        nodes,
        interferers,
        channel.link_gain(nodes.positions_m, nodes.positions_m, network.path_loss_exponent),
        gain[..., :NUM_FADING],
        jnp.sum(gain[..., NUM_FADING:], axis=-1),
        slot,
    )


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
