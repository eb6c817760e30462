"""The simulated channel, imposed in user space between real nodes.

In Algorithm 1 timing does not depend on parameter values, so every node rolls out the same network
from the same seed and knows by itself when it is on the air, who hears it, and when what it
receives may be used:

    sends[t, i]     at the end of slot t node i freezes its newest parameters and sends them,
                    numbered t+1, to those who are linked; the real transfer runs at once
    held[t, i, j]   node i may use what j sent under number s from the first slot t with held[t, i,
                    j] >= s

Slots are counted on a clock that nodes agree on by taking the furthest of their neighbours'
(Hello); no wall clock is looked at.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, jax, jnp, lax
from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.radio.delivery import NetworkState, PeerNetwork, RoundNetwork, StarNetwork

__all__ = ["Emulation", "RoundTrips", "SlotPlan", "StarTrips", "Trips"]

STRETCH = 16
"""Slots that are rolled out at once."""
MOST_STRETCHES = 64
"""Of these, without a look at anything else."""
KEPT_STRETCHES = 16
"""Of these, the last are at hand."""
MOST_HELD_BACK = 4
"""Messages of one sender that may be on the emulated air at once; older ones are given up."""


class SlotPlan(NamedTuple):
    """What one node has to know of a slot."""

    held: NDArray[np.int32]  # (tx,) number of the copy that it may use
    sends: bool  # at the end of the slot
    receivers: list[int]  # of that


class Emulation:
    """One node's view of a network between peers, and the messages on its emulated air."""

    def __init__(
        self, network: PeerNetwork, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> None:
        require(
            not getattr(network, "forwards", False),
            "on this network nodes pass on what they hold of others, which this view of the air "
            "does not tell; nodes of message = 'sum' and 'forward' have folkman.runtime.fresh_air",
        )
        self._network, self._nodes, self._me, self._bits = network, num_nodes, me, message_bits
        self._key = make_key(seed, Stream.DELAY)
        self._state = network.init(num_nodes, self._key)
        self._first = 0  # slot of the first row below
        self._held = np.zeros((1, num_nodes), np.int32)
        self._sends = np.zeros(0, bool)
        self._linked = np.zeros((0, num_nodes), bool)
        self._rolled = 0
        self._air: dict[int, dict[int, bytes]] = {}  # sender -> number -> message

    def plan(self, slot: int) -> SlotPlan:
        """Return what happens in a slot; earlier ones are forgotten but for the last stretches."""
        while self._rolled <= slot + 1:
            self._roll()
        at = slot - self._first
        held = self._held[max(at, 0)]
        linked = self._linked[max(at, 0)]
        return SlotPlan(held, bool(self._sends[max(at, 0)]), np.flatnonzero(linked).tolist())

    def rolled_to(self, slot: int, stretches: int = MOST_STRETCHES) -> bool:
        """Roll some stretches out, if need be; tell whether a slot is at hand.

        So a node that is far behind does other things in between.
        """
        while self._rolled <= slot + 1 and stretches > 0:
            self._roll()
            stretches -= 1
        return self._rolled > slot + 1

    def _roll(self) -> None:
        self._state, (held, sends, linked) = _stretch(
            self._network,
            self._nodes,
            self._bits,
            self._state,
            self._key,
            jnp.asarray(self._rolled),
            self._me,
        )
        self._held = np.concatenate(
            [self._held, np.asarray(held)]
        )  # one longer than the others: held of the next slot
        self._sends = np.concatenate([self._sends, np.asarray(sends)])
        self._linked = np.concatenate([self._linked, np.asarray(linked)])
        self._rolled += STRETCH
        if len(self._sends) > KEPT_STRETCHES * STRETCH:
            self._held = self._held[STRETCH:]
            self._sends, self._linked = self._sends[STRETCH:], self._linked[STRETCH:]
            self._first += STRETCH

    def receive(self, sender: int, number: int, data: bytes) -> None:
        """Put a message on the emulated air."""
        air = self._air.setdefault(sender, {})
        air[number] = data
        while len(air) > MOST_HELD_BACK:
            del air[min(air)]

    def due(self, slot: int) -> list[tuple[int, bytes]]:
        """Return who brought what may be used from this slot on, and take it off the air.

        Only the newest of each counts.
        """
        held, found = self.plan(slot).held, []
        for sender, air in self._air.items():
            ripe = [number for number in air if number <= held[sender]]
            if ripe:
                found.append((sender, air[max(ripe)]))
            for number in ripe:
                del air[number]
        return found

    def missing(self, slot: int, there: frozenset[int]) -> bool:
        """Return whether a message that may be used now has not come yet.

        Only senders that are there count.
        """
        now, before = self.plan(slot).held, self.plan(max(slot - 1, 0)).held
        fresh = [j for j in np.flatnonzero(now != before) if j in there]
        return any(not any(number <= now[j] for number in self._air.get(int(j), ())) for j in fresh)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _stretch(
    network: PeerNetwork,
    nodes: int,
    bits: int,
    state: NetworkState,
    key: Array,
    first: Array,
    me: Array,
) -> tuple[NetworkState, tuple[Array, Array, Array]]:
    """Roll a stretch out, every node offering; keep the rows that concern one node."""

    def slot(carry: NetworkState, t: Array) -> tuple[NetworkState, tuple[Array, Array, Array]]:
        carry, delivery = network.step(
            carry, jnp.ones(nodes, bool), bits, jax.random.fold_in(key, t)
        )
        return carry, (delivery.held[me], delivery.sends[me], delivery.linked[:, me])

    return lax.scan(slot, state, first + jnp.arange(STRETCH))


class Trips(ABC):
    """How many slots the messages of each round are on the emulated air.

    Every round begins with all nodes offering at once, as methods that wait for everyone have it.
    """

    def __init__(
        self, first: NetworkState, num_nodes: int, *, key: Array, message_bits: int
    ) -> None:
        self._nodes = num_nodes
        self._bits = message_bits
        self._key = key
        self._state = first
        self._slot = 0
        self._rounds: list[NDArray[np.int32]] = []  # (2, node): up and down, or the same for all

    def slots(self, round_: int, node: int, *, down: bool = False) -> int:
        """Return the slots of a node's message of a round, from 1; `down`: of the answer to it."""
        while len(self._rounds) < round_:
            self._rounds.append(self._next())
        return int(self._rounds[round_ - 1][int(down), node])

    @abstractmethod
    def _next(self) -> NDArray[np.int32]:
        """Return the slots of the next round."""

    def _next_key(self) -> Array:
        key = jax.random.fold_in(self._key, self._slot)
        self._slot += 1
        return key


class RoundTrips(Trips):
    """Rounds between peers in lock-step."""

    def __init__(
        self, network: RoundNetwork, beside: NDArray[np.bool_], *, seed: int, message_bits: int
    ) -> None:
        key, num_nodes = make_key(seed, Stream.DELAY), len(beside)
        super().__init__(
            network.init(num_nodes, key), num_nodes, key=key, message_bits=message_bits
        )
        self._wanted = jnp.asarray(beside & ~np.eye(num_nodes, dtype=bool))
        self._step = jax.jit(network.step)

    def _next(self) -> NDArray[np.int32]:
        offers, wanted = jnp.ones(self._nodes, bool), self._wanted
        first = self._slot
        while True:
            self._state, delivery = self._step(
                self._state, offers, wanted, self._bits, self._next_key()
            )
            if int(delivery.held[0, 0]) > first:  # the stamp of this round: it is over
                return np.full((2, self._nodes), self._slot - first - 1, np.int32)


class StarTrips(Trips):
    """Uploads to a server and its answers."""

    def __init__(
        self, network: StarNetwork, num_nodes: int, *, seed: int, message_bits: int
    ) -> None:
        key = make_key(seed, Stream.DELAY)
        super().__init__(
            network.init(num_nodes, key), num_nodes, key=key, message_bits=message_bits
        )
        self._uplink = jax.jit(network.uplink)
        self._downlink = jax.jit(network.downlink)

    def _next(self) -> NDArray[np.int32]:
        found = np.full((2, self._nodes), -1, np.int32)
        everyone = jnp.ones(self._nodes, bool)
        slots = 0
        while (found[0] < 0).any():
            self._state, up = self._uplink(self._state, everyone, self._bits, self._next_key())
            found[0, np.asarray(up.arrived)] = slots
            slots += 1
        answered, slots = jnp.zeros(self._nodes, bool), 0
        while True:
            self._state, down = self._downlink(self._state, ~answered, self._bits, self._next_key())
            answered = answered | down.started
            found[1, np.asarray(down.arrived)] = slots
            if not (found[1] < 0).any():
                return found
            self._state, _ = self._uplink(self._state, ~everyone, self._bits, self._next_key())
            slots += 1
