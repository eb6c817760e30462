"""Abstract delay laws: Algorithm 1 without its bandwidth box.

With n the coming slot, Gamma the aggregated duration and phase_j uniform in 0..Gamma-1,

    ideal        tau_ij(n) = n
    constant     tau_ij(n) = max(n - D, 0)                 every held copy exactly D slots old
    pipelined    a transfer begun at s is usable at s + Gamma, the next begins then;
                 ages Gamma .. 2 Gamma-1
    snapshot     tau_ij(n) = the last n' <= n with n' = phase_j mod Gamma    ages 0 .. Gamma-1
    iid          tau_ij(n) = n - U{0 .. min(n, Gamma-1)}   drawn anew for each pair and slot

`held` starts at 0 for all: the common first model is known to everyone and costs nothing.

The first three are laws of **transfer time**, and the same for every method. A message takes Gamma
slots (D; 0 for ideal): between peers, in a round in lock-step, from a node to a server, and from
the server back. Methods of different ways to travel are compared on these. With `download_slots` of
0 under `pipelined` a server's answer is free, so that an upload and its answer together take Gamma:
the reading that favours the server.

The last two are laws of **age**. They say how old a copy is, and not that its transfer took time:
`snapshot` is a periodic refresh, transfers take no time; under `iid` copies may grow younger and
older again. Around a server an upload and its answer together take Gamma slots, or U{1 .. Gamma}
drawn for each node and transfer under `iid`, which makes stragglers; a round in lock-step takes as
long as the slowest of these. Peers on their own beat pay nothing of the kind. Under `snapshot`
Assumption 1 of [1] holds to the letter, with J/Gamma sharing rounds as its Table I says; it is for
the paper's Figures 5 and 6.

Differs from [1]: it names one Gamma for transfer duration, waiting and staleness; a copy that is
held while the next travels ages to 2 Gamma - 1, which is why `snapshot` and `pipelined` are two
laws. [1] charges FedAvg nothing for communication.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024. Assumption 1, eq. (8).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Int, PRNGKeyArray, jax, jnp
from folkman.checks import require
from folkman.radio.delivery import Delivery, Network, Transfer, Unmeasured, as_value

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
]  # (gamma, num_nodes, key) -> slots of an upload, or of a message in lock-step


@as_value("gamma", "answer_slots")
@dataclass(frozen=True, kw_only=True)
class DelayNetwork(Network):
    """A delay law, for every way to travel.

    `gamma` and `answer_slots` are arguments of a compiled program; what gamma sizes is fixed:
    `alive` and `back`.
    """

    name: str
    gamma: int
    answer_slots: int  # of a server's message to a node
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

    @property
    def uneven(self) -> bool:
        """Tell whether it is a law of age: rounds take time, copies of peers do not."""
        return self.law in (_snapshot_law, _iid_law)

    def in_words(self) -> str:
        """Return the law in plain words."""
        rounds = "a round in lock-step or around a server takes"
        words = {
            "ideal": "messages take no time",
            "constant": f"every message takes {_slots(self.gamma)}, and one starts in each slot",
            "snapshot": f"periodic refresh every {_slots(self.gamma)}, transfers take no time; "
            f"{rounds} {_slots(self.gamma)}",
            "iid": f"the age of a copy is drawn from 0 .. {self.gamma - 1} slots, transfers take "
            f"no time; {rounds} 1 .. {self.gamma} slots",
            "pipelined": f"every transfer takes {_slots(self.gamma)}, {self._answers()}",
        }
        return f"{self.name}: {words[self.name]}"

    def _answers(self) -> str:
        """Return how long a server's answers take."""
        if self.answer_slots == self.gamma:
            return "to a server and back as well"
        return f"a server's answer {_slots(self.answer_slots) if self.answer_slots else 'none'}"

    def peers(self) -> "DelayPeers":
        """Return the law between peers on their own beat."""
        return DelayPeers(self)

    def rounds(self) -> "DelayRounds":
        """Return the law between peers in lock-step."""
        return DelayRounds(self)

    def star(self) -> "DelayStar":
        """Return the law around a server."""
        return DelayStar(self)


@dataclass(frozen=True)
class DelayPeers(Unmeasured):
    """A delay law between peers on their own beat."""

    network: DelayNetwork
    forwards = False

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
class DelayRounds(Unmeasured):
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
class DelayStar(Unmeasured):
    """A delay law around a server: an upload takes its slots, an answer `answer_slots`.

    Each link carries one message a direction. An answer that is begun is carried to its end; the
    next to the same node waits for the slot after.
    """

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
        """Start an answer on every free link, ending what the node was uploading."""
        del message_bits, key
        started = offers & (state.down_left < 0)
        up_left = jnp.where(started, -1, state.up_left)
        duration = jnp.full_like(state.down_left, self.network.answer_slots)
        left, arrived = _advance(state.down_left, started, duration)
        waiting = (state.waiting | started) & ~arrived
        return StarState(up_left, left, waiting), Transfer(started, arrived, arrived & False)


def _slots(number: int) -> str:
    return f"{number} slot{'s' * (number != 1)}"


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
    name: str,
    gamma: int,
    law: Law,
    star_law: StarLaw,
    alive: int,
    bits_per_parameter: int | None,
    answer_slots: int = 0,
) -> DelayNetwork:
    """Build a law; what gamma sizes is rounded up, so that laws of near gammas share a program."""
    back = 1 << (2 * gamma).bit_length()  # above 2 gamma
    return DelayNetwork(
        name=name,
        gamma=gamma,
        answer_slots=answer_slots,
        law=law,
        star_law=star_law,
        alive=alive,
        back=max(back, LEAST_BACK),
        bits_per_parameter=bits_per_parameter,
    )


def ideal(bits_per_parameter: int | None = None) -> DelayNetwork:
    """Build a network without delay: every copy is current, and a server answers at once."""
    return _law("ideal", 0, _constant_law, _fixed_trip, 1, bits_per_parameter)


def constant(
    delay: int,  # slots that every message takes
    bits_per_parameter: int | None = None,
) -> DelayNetwork:
    """Build the constant law: a message takes `delay` slots, and a new one starts in each slot.

    Every held copy is exactly `delay` slots old; an upload takes `delay` slots, its answer too.
    """
    delay = _at_least("delay", delay, 0)
    return _law("constant", delay, _constant_law, _fixed_trip, delay + 1, bits_per_parameter, delay)


def snapshot(
    gamma: int = 5,  # slots between two messages of a node
    bits_per_parameter: int | None = None,
) -> DelayNetwork:
    """Build the snapshot law: periodic refresh, transfers take no time.

    Each node shares every `gamma` slots, at once, on its own beat. In lock-step and around a
    server a round still takes `gamma` slots: not a law to compare those with peers on.
    """
    gamma = _at_least("gamma", gamma, 1)
    return _law("snapshot", gamma, _snapshot_law, _fixed_trip, 1, bits_per_parameter)


def iid(
    gamma: int = 5,  # ages are drawn from 0 to gamma - 1, and a round takes 1 to gamma slots
    bits_per_parameter: int | None = None,
) -> DelayNetwork:
    """Build the i.i.d. law: each pair's age is drawn anew in every slot, transfers take no time."""
    gamma = _at_least("gamma", gamma, 1)
    return _law("iid", gamma, _iid_law, _drawn_trip, gamma, bits_per_parameter)


def pipelined(
    gamma: int = 5,
    bits_per_parameter: int | None = None,
    download_slots: int | None = None,  # slots of a server's answer; None: `gamma`
) -> DelayNetwork:
    """Build the pipelined law: every transfer takes `gamma` slots, the next begins then.

    A server's answer takes `download_slots`, by default `gamma` as well; with 0 the answer is
    free, and an upload and its answer together take `gamma`.
    """
    gamma = _at_least("gamma", gamma, 1)
    if download_slots is None:
        answer_slots = gamma
    else:
        answer_slots = _at_least("download_slots", download_slots, 0)
    return _law(
        "pipelined", gamma, _pipelined_law, _fixed_trip, 2, bits_per_parameter, answer_slots
    )
