"""Abstract delay laws: Algorithm 1 without its bandwidth box.

With n the coming slot, Gamma the aggregated duration and phase_j uniform in 0..Gamma-1,

    ideal        tau_ij(n) = n
    constant     tau_ij(n) = max(n - D, 0)                 every held copy exactly D slots old
    snapshot     tau_ij(n) = the last n' <= n with n' = phase_j mod Gamma    ages 0 .. Gamma-1
    iid          tau_ij(n) = n - U{0 .. min(n, Gamma-1)}   drawn anew for each pair and slot
    pipelined    a transfer begun at s is usable at s + Gamma, the next begins then;
                 ages Gamma .. 2 Gamma-1

Snapshot is the default of the figures: Assumption 1 of [1] then holds to the letter, with J/Gamma
sharing rounds as its Table I says. `held` starts at 0 for all: the common first model is known to
everyone and costs nothing.

Around a server, upload and download together take Gamma slots (D; 0 for ideal), or U{1 .. Gamma}
drawn for each node and transfer under `iid`, which makes stragglers. A round in lock-step takes as
long as the slowest of these.

Differs from [1]: it names one Gamma for transfer duration, waiting and staleness; a copy that is
held while the next travels ages to 2 Gamma - 1, which is why `snapshot` and `pipelined` are two
laws.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024. Assumption 1, eq. (8).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Int, PRNGKeyArray

from folkman.checks import require
from folkman.radio.delivery import Delivery, Network, NetworkState, Transfer, as_value

__all__ = [
    "DelayNetwork",
    "DelayPeers",
    "DelayRounds",
    "DelayStar",
    "DelayState",
    "LockstepState",
    "StarState",
    "constant",
    "ideal",
    "iid",
    "pipelined",
    "snapshot",
]


LONGEST_SLOTS = 1_000_000
"""Far beyond any horizon, and far below where int32 slot numbers wrap."""

LEAST_BACK = 64
"""Slots that every law keeps the stamps of: laws up to a gamma of 31 share one program."""


class DelayState(NamedTuple):
    """Between peers."""

    slot: Int[Array, ""]  # slots ended so far
    phase: Int[Array, " node"]  # first slot of each node's sharing rounds
    trail: Int[Array, "back node"]  # the stamp last sent, as of this slot, the one before, ...


class LockstepState(NamedTuple):
    """Between peers in lock-step."""

    slot: Int[Array, ""]  # slots ended so far
    left: Int[Array, ""]  # slots left of the round, -1 for none
    since: Int[Array, ""]  # stamp of the round
    held: Int[Array, "rx tx"]


class StarState(NamedTuple):
    """Around a server: slots left of each transfer, -1 for none."""

    up_left: Int[Array, " node"]
    down_left: Int[Array, " node"]
    waiting: Bool[Array, " node"]  # has uploaded, and has not been answered


Law = Callable[
    [Array, Array, int, Array], tuple[Array, Array]
]  # (coming slot, phases, gamma, key) -> stamps, beats
StarLaw = Callable[
    [int, int, Array], Array
]  # (gamma, num_nodes, key) -> slots of an upload and its answer


@as_value("gamma")
@dataclass(frozen=True, kw_only=True)
class DelayNetwork(Network):
    """A delay law, for every way to travel.

    `gamma` is an argument of a compiled program; what it sizes is fixed: `alive` and `back`.
    """

    name: str
    gamma: int
    law: Law
    star_law: StarLaw
    alive: int  # payloads of one sender in use at once
    back: int  # slots that are looked back at, at least 2 gamma + 1
    bits_per_parameter: int | None = None

    def __post_init__(self) -> None:
        require(
            self.bits_per_parameter is None or self.bits_per_parameter >= 1,
            f"bits_per_parameter must be at least 1, got {self.bits_per_parameter}",
        )

    @property
    def all_hear(self) -> bool:  # type: ignore[override]
        """Tell whether each message reaches all, in order: i.i.d. ages let one be overtaken."""
        return self.law is not _iid_law

    def peers(self) -> "DelayPeers":
        """Return the law between peers on their own beat."""
        return DelayPeers(self)

    def rounds(self) -> "DelayRounds":
        """Return the law between peers in lock-step."""
        return DelayRounds(self)

    def star(self) -> "DelayStar":
        """Return the law around a server."""
        return DelayStar(self)


class _Unmeasured:
    """An abstract law has no waiting and transmission apart."""

    def measures(self, state: NetworkState) -> dict[str, Array]:
        """Return nothing."""
        del state
        return {}


@dataclass(frozen=True)
class DelayPeers(_Unmeasured):
    """A delay law between peers on their own beat."""

    network: DelayNetwork

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered."""
        return self.network.alive

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender may be in use at once."""
        del num_nodes
        return self.network.alive

    def init(self, num_nodes: int, key: PRNGKeyArray) -> DelayState:
        """Draw the phases."""
        latest = jnp.maximum(self.network.gamma, 1)
        phase = jax.random.randint(key, (num_nodes,), 0, latest, jnp.int32)
        trail = jnp.zeros((self.network.back, num_nodes), jnp.int32)
        return DelayState(jnp.zeros((), jnp.int32), phase, trail)

    def step(
        self,
        state: DelayState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[DelayState, Delivery]:
        """Return the copies held when the next slot begins.

        A law says how old copies are; who offers nothing on its beat sends nothing, and its last
        message stays.
        """
        del message_bits
        coming = state.slot + 1
        stamps, beats = self.network.law(coming, state.phase, self.network.gamma, key)
        sends = beats & offers
        newest = jnp.where(sends, coming, state.trail[0])
        trail = jnp.concatenate([newest[None], state.trail[:-1]])
        back = jnp.clip(coming - stamps, 0, len(trail) - 1)
        held = trail[back, jnp.arange(len(offers))[None]]
        return DelayState(coming, state.phase, trail), _delivery(held, sends)


@dataclass(frozen=True)
class DelayRounds(_Unmeasured):
    """A delay law between peers in lock-step: a round lasts as long as its slowest message."""

    network: DelayNetwork

    def init(self, num_nodes: int, key: PRNGKeyArray) -> LockstepState:
        """Return everyone at rest, holding the first messages."""
        del key
        zero = jnp.zeros((), jnp.int32)
        idle = jnp.full((), -1, jnp.int32)
        return LockstepState(zero, idle, zero, jnp.zeros((num_nodes, num_nodes), jnp.int32))

    def step(
        self,
        state: LockstepState,
        offers: Bool[Array, " node"],
        wanted: Bool[Array, "rx tx"] | None,
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[LockstepState, Delivery]:
        """Begin a round when all offer; it ends when the slowest message has arrived at all."""
        del wanted, message_bits
        coming = state.slot + 1
        begins = jnp.all(offers) & (state.left < 0)
        trip = jnp.max(self.network.star_law(self.network.gamma, len(offers), key))
        left, ends = _advance(state.left, begins, trip)
        since = jnp.where(begins, coming, state.since)
        held = jnp.where(ends, since, state.held)
        sends = jnp.broadcast_to(begins, offers.shape)
        return LockstepState(coming, left, since, held), _delivery(held, sends)


@dataclass(frozen=True)
class DelayStar(_Unmeasured):
    """A delay law around a server: the round trip is charged to the uploads."""

    network: DelayNetwork

    def init(self, num_nodes: int, key: PRNGKeyArray) -> StarState:
        """Return a star at rest."""
        del key
        idle = jnp.full(num_nodes, -1, jnp.int32)
        return StarState(idle, idle, jnp.zeros(num_nodes, bool))

    def uplink(
        self,
        state: StarState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarState, Transfer]:
        """Start an upload at every node that offers one and is not waiting for an answer."""
        del message_bits
        started = offers & ~state.waiting
        duration = self.network.star_law(self.network.gamma, len(offers), key)
        left, arrived = _advance(state.up_left, started, duration)
        moved = state._replace(up_left=left, waiting=state.waiting | started)
        return moved, Transfer(started, arrived, jnp.zeros_like(arrived))

    def downlink(
        self,
        state: StarState,
        offers: Bool[Array, " node"],
        message_bits: ArrayLike,
        key: PRNGKeyArray,
    ) -> tuple[StarState, Transfer]:
        """Answer at once, ending what the node was uploading."""
        del message_bits, key
        up_left = jnp.where(offers, -1, state.up_left)
        left, arrived = _advance(state.down_left, offers, jnp.zeros_like(state.down_left))
        moved = StarState(up_left, left, state.waiting & ~arrived)
        return moved, Transfer(offers, arrived, jnp.zeros_like(arrived))


def _advance(left: Array, started: Array, duration: Array) -> tuple[Array, Array]:
    """Count running transfers down by a slot, start new ones, and tell which arrive."""
    left = jnp.where(started, duration, jnp.maximum(left - 1, -1))
    arrived = left == 0
    return jnp.where(arrived, -1, left), arrived


def _last_beat(coming: Array, phase: Array, gamma: int) -> Array:
    """Return the last slot <= coming on each node's beat; negative before the first."""
    return coming - jnp.mod(coming - phase, gamma)


def _on_beat(coming: Array, phase: Array, gamma: int) -> Array:
    return (coming >= phase) & (jnp.mod(coming - phase, gamma) == 0)


def _from_all(stamps: Array) -> Array:
    """Give every receiver the same copy of each sender: (tx,) -> (rx, tx)."""
    return jnp.broadcast_to(stamps[None], (stamps.shape[0], stamps.shape[0]))


def _delivery(held: Array, sends: Array) -> Delivery:
    return Delivery(held, sends, sends[None] & ~jnp.eye(len(sends), dtype=bool))  # to all others


def _constant_law(coming: Array, phase: Array, gamma: int, key: Array) -> tuple[Array, Array]:
    del key
    stamps = jnp.full_like(phase, jnp.maximum(coming - gamma, 0))
    return (_from_all(stamps), jnp.ones_like(phase, bool))


def _snapshot_law(coming: Array, phase: Array, gamma: int, key: Array) -> tuple[Array, Array]:
    del key
    beat = _last_beat(coming, phase, gamma)
    stamps = jnp.where(beat >= phase, beat, 0)
    return (_from_all(stamps), _on_beat(coming, phase, gamma))


def _iid_law(coming: Array, phase: Array, gamma: int, key: Array) -> tuple[Array, Array]:
    nodes = phase.shape[0]
    age = jax.random.randint(key, (nodes, nodes), 0, jnp.minimum(coming, gamma - 1) + 1, jnp.int32)
    return (coming - age, jnp.ones_like(phase, bool))


def _pipelined_law(coming: Array, phase: Array, gamma: int, key: Array) -> tuple[Array, Array]:
    del key
    arrived = _last_beat(coming, phase, gamma) - gamma
    stamps = jnp.where(arrived >= phase, arrived, 0)
    return (_from_all(stamps), _on_beat(coming, phase, gamma))


def _fixed_trip(gamma: int, num_nodes: int, key: Array) -> Array:
    del key
    return jnp.full(num_nodes, gamma, jnp.int32)


def _drawn_trip(gamma: int, num_nodes: int, key: Array) -> Array:
    return jax.random.randint(key, (num_nodes,), 1, gamma + 1, jnp.int32)


def _at_least(name: str, value: int, least: int) -> int:
    if value != int(value) or not least <= value <= LONGEST_SLOTS:
        raise ValueError(
            f"{name} must be a whole number of slots of at least {least} and at most "
            f"{LONGEST_SLOTS}, got {value}"
        )
    return int(value)


def _law(
    name: str, gamma: int, law: Law, star_law: StarLaw, alive: int, bits_per_parameter: int | None
) -> DelayNetwork:
    """Build a law; what gamma sizes is rounded up, so that laws of near gammas share a program."""
    back = 1 << (2 * gamma).bit_length()  # above 2 gamma
    return DelayNetwork(
        name=name,
        gamma=gamma,
        law=law,
        star_law=star_law,
        alive=alive,
        back=max(back, LEAST_BACK),
        bits_per_parameter=bits_per_parameter,
    )


def ideal(bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build a network without delay: every copy is current, and a server answers at once."""
    return _law("ideal", 0, _constant_law, _fixed_trip, 1, bits_per_parameter)


def constant(delay: int, bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build a network in which every held copy is exactly `delay` slots old."""
    delay = _at_least("delay", delay, 0)
    return _law("constant", delay, _constant_law, _fixed_trip, delay + 1, bits_per_parameter)


def snapshot(gamma: int = 5, bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build the snapshot law: each node shares every `gamma` slots, at once, on its own beat."""
    gamma = _at_least("gamma", gamma, 1)
    return _law("snapshot", gamma, _snapshot_law, _fixed_trip, 1, bits_per_parameter)


def iid(gamma: int = 5, bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build the i.i.d. law: each pair's age is drawn anew in every slot."""
    gamma = _at_least("gamma", gamma, 1)
    return _law("iid", gamma, _iid_law, _drawn_trip, gamma, bits_per_parameter)


def pipelined(gamma: int = 5, bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build the pipelined law: transfers of `gamma` slots, back to back."""
    gamma = _at_least("gamma", gamma, 1)
    return _law("pipelined", gamma, _pipelined_law, _fixed_trip, 2, bits_per_parameter)
