"""Sums that are formed on the air: all who send do so at once, and energies add up.

A node encodes its model w in the energies of a frame of M = 2 d + 1 resource units, with a known
range R = radius sqrt(d):

    p_k = [w_k]+ / R,   p_{d+k} = [-w_k]+ / R,   p_2d = 1 - |w|_1 / R

so that the energies sum to 1, and w = sum_m p_m z_m with the codewords z = R e_k, -R e_k and 0.
Node j sends sqrt(E p_jm) on unit m, in a phase of its own choice. Node i receives

    y_im = sum_j h_ij,m sqrt(E p_jm) e^(i phi_jm) + n_im,       h ~ CN(0, Lambda_ij), n ~ CN(0, N0)
    r_im = (|y_im|^2 - N0) / (E G),      E[r_im] = sum_j (Lambda_ij / G) p_jm       [1, Section III]

and forms sum_m r_im z_m and sum_m r_im: on average the weighted sum of the senders' models, and of
their weights. Nobody knows a channel, and nobody waits for a turn: a frame takes M / bandwidth_hz
seconds, however many nodes there are. Radios are half-duplex. In each frame a node sends with the
chance `send_chance` and listens otherwise; one that sends hears nothing, and its sums are 0.

Lambda_ij = d_ij^-a is the path gain, which stays. h is drawn anew for every unit and frame, so that
|y_im|^2 is exponential about its mean: fading is noise too, and it is the larger part of it in a
cell. With `frames` L every frame is sent L times and energies are averaged, for L times the air
time. With `noise = "none"` sums are their expectations, for reference. E = power M / bandwidth_hz
is the energy of a frame of one node. G = max_i sum_j Lambda_ij is the unit of weights: at every
node they sum to 1 or less in expectation over the fading, whoever sends.

A frame has no bits. To be comparable it counts as M numbers of 32 bits; its air time and its joules
are exact. It begins when all nodes are ready, and takes whole slots.

Differs from [1], of which the abstract and a summary were read: the codebook, the normalisation and
the loop are as recalled, not verified. Units fade independently; a model beyond the range is sent
scaled down to it; closer pairs than `least_distance_m` count as that far apart; cyclic prefixes and
synchronisation take no time.

[1] N. Michelusi. Non-Coherent Over-the-Air Decentralized Gradient Descent. IEEE Transactions on
    Signal Processing 72, 2024. arXiv:2211.10777
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal, NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, jax, jnp, lax
from folkman.checks import require
from folkman.keys import Stream, stream_keys
from folkman.radio import channel, geometry
from folkman.radio.delivery import Airtime, Delivery, Network, Unmeasured, as_value
from folkman.units import dbm_to_watt

__all__ = [
    "NUMBER_BITS",
    "FrameState",
    "OverAirFrames",
    "OverAirNetwork",
    "decoded",
    "encoded",
    "over_air",
]

NUMBER_BITS = 32
"""What a number of a frame counts as, where frames are compared with messages by bits."""


def encoded(
    model: Float[Array, " d"],  # parameters (d,)
    reach: ArrayLike,  # range R of a model
) -> Float[Array, " unit"]:
    """Return the energies of a frame (2 d + 1,), which sum to 1; `reach` is R.

    >>> encoded(jnp.array([1.0, -2.0]), 4.0).tolist()
    [0.25, 0.0, 0.0, 0.5, 0.25]
    """
    size = jnp.sum(jnp.abs(model))
    inside = model / jnp.maximum(size, reach)
    rest = 1.0 - jnp.minimum(size / reach, 1.0)
    return jnp.concatenate([jnp.maximum(inside, 0.0), jnp.maximum(-inside, 0.0), rest[None]])


def decoded(
    energies: Float[Array, " unit"],  # received energies, less the noise
    reach: ArrayLike,  # range R of a model
) -> Float[Array, " message"]:
    """Return sum_m r_m z_m and, behind it, sum_m r_m: (d + 1,)."""
    dim = (len(energies) - 1) // 2
    total = jnp.sum(energies)
    return jnp.append(reach * (energies[:dim] - energies[dim : 2 * dim]), total)


class FrameState(NamedTuple):
    """What is on the air."""

    slot: Int[Array, ""]  # slots ended so far
    gain: Float[Array, "rx tx"]  # path gains with their fading, Lambda
    left: Float[Array, ""]  # slots that the frame still needs; 0: none is on
    since: Int[Array, ""]  # stamp of the frame
    sends: Bool[Array, " node"]  # who sends it
    held: Int[Array, "rx tx"]  # the stamp of the last frame that ended
    rounds: Int[Array, ""]  # frames that have ended


@as_value()
@dataclass(frozen=True, kw_only=True)
class OverAirNetwork(Network):
    """A cell in which sums are formed on the air; it carries nothing else."""

    slot_s: float = 1.0
    cell_radius_m: float = 500.0
    least_distance_m: float = 50.0
    path_loss_exponent: float = 2.0
    bandwidth_hz: float = 10e6
    power_dbm: float = 30.0
    noise_dbm_per_hz: float = -174.0
    send_chance: float = 0.5  # chance that a node sends in a frame, and does not listen
    radius: float = 10.0  # r of the range r sqrt(d) to which a model of d parameters is scaled down
    frames: int = 1  # how often a frame is sent, to average fading
    # whether noise and fading are drawn, or replaced by their means
    noise: Literal["drawn", "none"] = "drawn"
    name = "over_air"
    times_air = True

    def __post_init__(self) -> None:
        positive = ("slot_s", "cell_radius_m", "least_distance_m", "bandwidth_hz", "radius")
        for name in (*positive, "path_loss_exponent"):
            value = getattr(self, name)
            require(0 < value < inf, f"{name} must be positive and finite, got {value}")
        for name in ("power_dbm", "noise_dbm_per_hz"):
            value = getattr(self, name)
            require(isfinite(value), f"{name} must be a finite number, got {value}")
        require(
            0 < self.send_chance < 1,
            f"send_chance must be above 0 and below 1, got {self.send_chance}; who sends does not "
            "listen, so some must do each",
        )
        require(
            self.frames >= 1,
            f"frames is how often a frame is sent, at least 1, got {self.frames}",
        )
        require(self.noise in ("drawn", "none"), f"noise is 'drawn' or 'none', got {self.noise!r}")

    @property
    def power_w(self) -> float:  # type: ignore[override]
        """Return what a node radiates while it sends."""
        return 10.0 ** ((self.power_dbm - 30.0) / 10.0)

    def in_words(self) -> str:
        """Return what decides how long a round takes."""
        return (
            "over_air: all who send do so at once, and their sum is formed on the air; a frame "
            "takes as long as its numbers on the whole band, however many nodes there are"
        )

    def on_air(self) -> "OverAirFrames":
        """Return the frames in which sums are formed."""
        return OverAirFrames(self)

    def frame_slots(self, dim: int) -> float:
        """Return the slots of a round of frames for a model of d entries."""
        return self.frames * (2 * dim + 1) / (self.bandwidth_hz * self.slot_s)

    def _lacks(self, what: str) -> str:
        return (
            f"'{self.name}' does not carry {what}: on it no single message arrives; choose a "
            "method that uses sums alone (ncota_dgd), or another network"
        )


over_air = OverAirNetwork
"""As a configuration names it."""


@dataclass(frozen=True)
class OverAirFrames(Unmeasured):
    """Frames in lock-step: one begins when all nodes are ready."""

    network: OverAirNetwork

    def losing(self, loss: ArrayLike) -> "OverAirFrames":
        """Refuse losses."""
        raise ValueError(
            f"'{self.network.name}' has no packets that could be lost, got a loss of {loss}; its "
            "fading and noise are drawn already, so leave loss out"
        )

    def units(self, dim: int) -> int:
        """Return the numbers of a round of frames for a model of d entries."""
        return self.network.frames * (2 * dim + 1)

    def init(self, num_nodes: int, key: PRNGKeyArray) -> FrameState:
        """Drop the nodes."""
        (place,) = stream_keys(key, Stream.GEOMETRY)
        spots = geometry.waypoint_start(num_nodes, self.network.cell_radius_m, place).positions_m
        apart_m = jnp.maximum(geometry.distances(spots, spots), self.network.least_distance_m)
        gain = channel.path_gain(apart_m, self.network.path_loss_exponent)
        none = jnp.zeros((), jnp.int32)
        return FrameState(
            slot=none,
            gain=jnp.where(jnp.eye(num_nodes, dtype=bool), 0.0, gain),
            left=jnp.zeros((), gain.dtype),
            since=none,
            sends=jnp.zeros(num_nodes, bool),
            held=jnp.zeros((num_nodes, num_nodes), jnp.int32),
            rounds=none,
        )

    def step(
        self,
        state: FrameState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[FrameState, Delivery]:
        """Advance a frame: it begins when all offer, and takes whole slots."""
        del wanted
        on_air, running = _airtime(state), state.left > 0
        begins, rest = ~running & jnp.all(offers), jnp.maximum(state.left - 1.0, 0.0)
        drawn = jax.random.bernoulli(key, self.network.send_chance, offers.shape)
        per_slot = NUMBER_BITS * self.network.bandwidth_hz * self.network.slot_s
        length = (jnp.max(jnp.asarray(message_bits)) / per_slot).astype(rest.dtype)
        sends = jnp.where(begins, drawn, state.sends)
        since = jnp.where(begins, state.slot + 1, state.since)
        ends = running & (rest == 0)
        new = FrameState(
            slot=state.slot + 1,
            gain=state.gain,
            left=jnp.where(begins, length, rest),
            since=since,
            sends=sends,
            held=jnp.where(ends, since, state.held),
            rounds=state.rounds + ends,
        )
        starts = begins & sends
        number = jnp.sum(~sends, dtype=jnp.int32)
        return new, Delivery(
            held=new.held,
            sends=jnp.broadcast_to(begins, offers.shape),  # all models are frozen
            linked=starts[None] & ~sends[:, None],
            transfers=starts.astype(jnp.int32),
            copies=starts.astype(jnp.int32) * number,
            airtime=on_air,
        )

    def superpose(
        self,
        state: FrameState,
        messages: Float[Array, "tx message"],  # what each node sends, (tx, message)
        key: PRNGKeyArray,
    ) -> Float[Array, "rx message"]:
        """Return what each node makes of the frames that are on the air together.

        A message is a model and, behind it, the weight 1.
        """
        own, dim, dtype = self.network, messages.shape[1] - 1, messages.dtype
        reach = own.radius * dim**0.5
        energies = jax.vmap(lambda each: encoded(each[:dim], reach))(messages)
        gain = state.gain.astype(dtype)
        unit = jnp.max(jnp.sum(gain, axis=1))  # G
        unit = jnp.where(unit > 0, unit, 1.0)  # of one node, which hears nobody
        weights = jnp.where(state.sends[None] & ~state.sends[:, None], gain, 0.0) / unit
        mean = jnp.dot(weights, energies, precision="highest")
        if own.noise == "drawn":
            frame_j = own.power_w * (2 * dim + 1) / own.bandwidth_hz  # E
            floor = (dbm_to_watt(own.noise_dbm_per_hz) / frame_j).astype(dtype) / unit
            mean = (mean + floor) * _fluctuation(own.frames, mean.shape, dtype, key) - floor
        heard = jax.vmap(lambda each: decoded(each, reach))(mean)
        return jnp.where(state.sends[:, None], 0.0, heard)


def _airtime(state: FrameState) -> Airtime:
    """Return how much of the coming slot each node sends or listens."""
    part = jnp.minimum(state.left, 1.0)
    return Airtime(jnp.where(state.sends, part, 0.0), jnp.where(state.sends, 0.0, part))


def _fluctuation(
    frames: int, shape: tuple[int, ...], dtype: jnp.dtype, key: PRNGKeyArray
) -> Float[Array, "rx unit"]:
    """Return received energies by their means: the average of `frames` exponential draws."""

    def add(number: Array, total: Array) -> Array:
        return total + channel.rayleigh_gain(shape, jax.random.fold_in(key, number), dtype=dtype)

    return lax.fori_loop(0, frames, add, jnp.zeros(shape, dtype)) / frames
