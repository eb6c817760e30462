"""The radio as a network: a cell, its SINR, and who sends when.

    positions -> SINR -> schedule -> bandwidth -> which copy each node holds

The fields of `RadioNetwork` are the paper's Table III [1]. Where nodes are is `folkman.radio.air`.
Who sends when is a medium of its own for each way to travel:

    schedule        between peers            in lock-step     around a server
    threshold [1]   `radio.epochs`           `radio.epochs`   `radio.star`
    index           `radio.serial`           `serial_rounds`  `serial_star`

With `schedule = "index"` there are neither thresholds nor periods: one message at a time has the
whole band. What the paper leaves open is decided in docs/decisions.md, whose labels (B3, C6, D2
...) are cited at the lines.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Literal

from folkman.arrays import Array, ArrayLike, Float, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require
from folkman.packing.packing import Packing, implied, top_k
from folkman.radio import bandwidth, channel, geometry, latency, schedule, serial, star
from folkman.radio.air import Air, look, place
from folkman.radio.all_reduce import AllReduce
from folkman.radio.delivery import Network, as_value
from folkman.radio.epochs import RadioPeers, RadioRounds
from folkman.radio.serial_rounds import SerialRounds
from folkman.radio.serial_star import SerialStar
from folkman.units import dbm_to_watt

__all__ = ["NUM_GLANCED", "RadioNetwork"]

NUM_GLANCED = 6
"""Interferers that are drawn before it is known which node sends (`glance_slots`).

They make up about nine tenths of the interference. More of them cost more draws for every node,
fewer leave more nodes to be looked at again.
"""

OF_SPACE = (
    "cell_radius_m",
    "path_loss_exponent",
    "bandwidth_hz",
    "power_dbm",
    "noise_dbm_per_hz",
    "interferers_per_cell",
    "interferer_radius_m",
)
"""What places and SINR depend on."""

MOST_INTERFERERS = 100_000
"""Of a band, on average: each has a place, and a gain to every node."""

MOST_DB = 300.0
"""Levels beyond are not physical, and leave no digits in float32."""


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
    # speed of the nodes (random waypoint); they move when an epoch starts
    speed_m_per_s: float = 0.0
    # whether what a server sends back takes time (broadcast) or none (free)
    answers: Literal["broadcast", "free"] = "broadcast"
    # SINR to and from a server below which a transfer waits for other fading
    least_sinr_db: float = -20.0
    # who sends when: the paper's epochs, or one after the other by an index (folkman.radio.serial)
    schedule: Literal["threshold", "index"] = "threshold"
    message: Literal["copy", "forward", "sum"] = "copy"  # type: ignore[assignment] - of three
    control: Literal["ideal", "heard"] = "ideal"  # what nodes know of each other under the index
    # bits of control traffic with every message; None: 24 I^2, a report on each pair
    control_bits: int | None = None
    contention_s: float = 1e-3  # seconds of one contention for the band, with control = "heard"
    # weights of nodes in the index; shares: their shares of the data
    weights: tuple[float, ...] | Literal["alike", "shares"] = "alike"
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
            require(
                abs(getattr(self, name)) <= MOST_DB,
                f"{name} must lie in -{MOST_DB:g} .. {MOST_DB:g}, got {getattr(self, name)}; "
                "check its unit",
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
        cells = (self.interferer_radius_m / self.cell_radius_m) ** 2
        require(
            self.interferers_per_cell * cells <= MOST_INTERFERERS,
            f"a band would have {self.interferers_per_cell * cells:.3g} interferers, expected at "
            f"most {MOST_INTERFERERS}; lower interferers_per_cell or interferer_radius_m, or "
            "raise cell_radius_m",
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

    @property
    def in_space(self) -> "RadioNetwork":
        """Return a radio with the places and the SINR of this one, and all else by default.

        What draws them is then one program, whoever sends when and whatever messages hold.
        """
        return RadioNetwork(**{name: getattr(self, name) for name in OF_SPACE})

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

    def moved(self, air: Air, slot: Array, key: Array) -> Air:
        """Return the air after the nodes have walked since they last moved."""
        step_s = (slot - air.moved_at) * self.slot_s
        nodes = geometry.waypoint_step(
            air.nodes, self.speed_m_per_s, step_s, key, radius_m=self.cell_radius_m
        )
        return look(self, nodes, air.interferers, slot)


def _along(of: Array) -> Array:
    """Return 0, 1, 2, ... along the last axis."""
    return lax.broadcasted_iota(jnp.int32, of.shape, of.ndim - 1)
