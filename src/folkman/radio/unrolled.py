"""A serial medium, transfer by transfer: who starts and who hears what, in the order of time.

`SerialPeers.step` answers with who holds what when a slot begins. Devices that emulate such a band
must know more: within a slot a node may adopt a message, pass it on, and adopt another. Here the
same decisions are made one at a time, outside of a compiled loop, and each is told.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from folkman.arrays import Array, jax, jnp
from folkman.radio.serial import SerialPeers, SerialState, opening

__all__ = ["Event", "Unrolled"]


class Event(NamedTuple):
    """A transfer starts, or ends."""

    slot: int  # in which that happens; what ends in slot s is in use from s + 1 on
    number: int  # of the transfer, from 1, in the order of their starts
    ends: bool
    sender: int
    origin: int  # whose payload; of a sum the sender itself
    receivers: tuple[int, ...]  # at its start all who are to hear it, at its end all who take it
    stamps: tuple[int, ...]  # of what it holds, -1 where it holds nothing


class Unrolled:
    """The events of a band on which every node always has something new and nobody is away."""

    def __init__(self, peers: SerialPeers, num_nodes: int, message_bits: int, key: Array) -> None:
        self._peers, self._bits, self._key = peers, message_bits, key
        self._offers = jnp.ones(num_nodes, bool)
        self._state: SerialState = peers.init(num_nodes, key)
        self._number = 0
        self._on_air = Event(0, 0, False, -1, -1, (), ())

    @property
    def held(self) -> np.ndarray:
        """Return the stamps held when the coming slot begins, (rx, origin)."""
        return np.asarray(self._state.held)

    def next_slot(self) -> list[Event]:
        """Return what happens in the next slot; the first is slot 1 (C2)."""
        slot = int(self._state.slot) + 1
        key = jax.random.fold_in(self._key, slot - 1)
        asked = _Asked(self._state, self._offers, self._bits, key)
        at, air = _opened(self._peers, asked)
        found: list[Event] = []
        if float(at.busy) <= 1:
            at = self._fill(at, asked, slot, found)
        else:
            air = self._state.air
        self._state = self._state._replace(
            slot=self._state.slot + 1,
            air=air,
            held=at.held,
            flight=at.flight,
            busy=jnp.maximum(at.busy - 1, 0.0),
            since=at.since,
            sums=at.sums,
            known=at.known,
        )
        return found

    def _fill(self, at: Any, asked: "_Asked", slot: int, found: list[Event]) -> Any:
        quiet = False
        while float(at.busy) < 1 and not quiet:
            ended, started, go, origin = _next(self._peers, at, asked)
            self._note_end(at, ended, slot, found)
            quiet = not bool(go)
            if quiet:
                at = ended._replace(busy=jnp.ones_like(at.busy))
                continue
            at = started
            self._number += 1
            receivers = tuple(np.flatnonzero(np.asarray(at.flight.receivers)).tolist())
            stamps = tuple(np.asarray(at.flight.stamps).tolist())
            names = (int(at.flight.sender), int(origin), receivers, stamps)
            self._on_air = Event(slot, self._number, False, *names)
            found.append(self._on_air)
        if float(at.busy) <= 1:
            ended = _ended(self._peers, at, asked)
            self._note_end(at, ended, slot, found)
            return ended
        return at

    def _note_end(self, before: Any, after: Any, slot: int, found: list[Event]) -> None:
        if int(before.flight.sender) < 0:
            return
        changed = np.asarray(after.held != before.held).any(axis=1)
        takers = tuple(np.flatnonzero(changed).tolist())
        found.append(self._on_air._replace(slot=slot, ends=True, receivers=takers))


class _Asked(NamedTuple):
    """What a slot is opened with: its rates follow from it, and are drawn where they are needed."""

    state: SerialState
    offers: Array
    bits: int
    key: Array

    def looked(self, peers: SerialPeers) -> tuple[Any, Any]:
        """Return where everything is in this slot, and what nodes decide from."""
        state = self.state._replace(slot=self.state.slot + 1)
        return peers._look(state, self.offers, self.bits, self.key)


@partial(jax.jit, static_argnums=0)
def _opened(peers: SerialPeers, asked: _Asked) -> tuple[Any, Any]:
    return opening(asked.state), asked.looked(peers)[0]


@partial(jax.jit, static_argnums=0)
def _next(peers: SerialPeers, at: Any, asked: _Asked) -> tuple[Any, Any, Array, Array]:
    _, now = asked.looked(peers)
    ended = peers._end(at, now)
    choice, wait, _ = peers._decide(ended, now, peers._standing(ended, now))
    started = peers._start(ended, now, choice, wait)
    return ended, started, choice.value > 0, choice.origin


@partial(jax.jit, static_argnums=0)
def _ended(peers: SerialPeers, at: Any, asked: _Asked) -> Any:
    return peers._end(at, asked.looked(peers)[1])
