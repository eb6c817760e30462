"""A random air for tests of the engine: one message at a time, several in a slot or one for many.

Drawn in plain NumPy with its whole history, and played to the engine from tables.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from folkman.radio.delivery import Delivery, Network, as_value
from folkman.radio.trace import PeerTimeline


class Message(NamedTuple):
    """One transfer: its sender started in slot `start`, `adopters` use it from slot `used` on."""

    start: int
    sender: int
    stamps: np.ndarray  # (origin,), -1 for none
    used: int
    adopters: tuple[int, ...]


class History(NamedTuple):
    """Who held what when, and every message in the order in which they started."""

    held: np.ndarray  # (slot + 1, rx, origin)
    sends: np.ndarray  # (slot, tx)
    carried: np.ndarray  # (slot, tx, origin)
    messages: list[Message]

    @property
    def timeline(self):
        finished = np.ones(self.sends.shape, bool)
        return PeerTimeline(self.held[:-1], self.sends, finished)


def draw(
    rng,
    nodes,
    slots,
    *,
    message="sum",
    longest=3.0,
    shortest=0.2,
    eager=0.0,
    stale=0.0,
    quiet=(),
):
    """Draw a history; `eager`: how often a receiver adopts although that makes its copies older.

    `stale`: how often a node has nothing new of its own in a slot, and sends what it froze last.

    Nodes in `quiet` receive nothing, and so hold what they began with.
    """
    rows = np.zeros((nodes, nodes), np.int32)
    held = np.zeros((slots + 1, nodes, nodes), np.int32)
    sends = np.zeros((slots, nodes), bool)
    carried = np.full((slots, nodes, nodes), -1, np.int32)
    others = ~np.eye(nodes, dtype=bool)
    done, on_air, free = [], None, 1.0
    newest = np.zeros(nodes, np.int32)

    def adopts(i, stamps, now):
        new = np.where((stamps >= 0) & others[i], stamps, rows[i])
        older, younger = ((now - each.astype(float))[others[i]] for each in (rows[i], new))
        gains = (younger**2).sum() < (older**2).sum()
        return new if (gains or rng.random() < eager) and (new != rows[i]).any() else None

    def arrive(now):
        assert on_air is not None
        start, sender, stamps, receivers, _ = on_air
        taken = [(i, new) for i in receivers if (new := adopts(i, stamps, now)) is not None]
        for i, new in taken:
            rows[i] = new
        done.append(Message(start, sender, stamps, now + 1, tuple(i for i, _ in taken)))

    for s in range(1, slots + 1):
        has_news = rng.random(nodes) >= stale
        held[s] = rows
        if on_air is not None:
            carried[s - 1, on_air[1]] = on_air[2]
        while free < s + 1:
            if on_air is not None:
                arrive(s)
                on_air = None
            sender = int(rng.integers(nodes))
            stamps = rows[sender].copy()
            if has_news[sender]:
                sends[s - 1, sender], newest[sender] = True, s
            stamps[sender] = newest[sender]
            if message == "forward":
                origin = int(rng.integers(nodes))
                stamps = np.where(np.arange(nodes) == origin, stamps, -1)
            elif message == "copy":
                stamps = np.where(np.arange(nodes) == sender, stamps, -1)
            hears = rng.permutation([i for i in range(nodes) if i != sender and i not in quiet])
            receivers = [int(i) for i in hears[: rng.integers(1, nodes)]]
            free = max(free, s) + rng.uniform(shortest, longest)
            on_air = (s, sender, stamps, receivers, free)
    return History(held, sends, carried, done)


class TableState(NamedTuple):
    slot: jnp.ndarray


@as_value("held", "sends", "carried")
@dataclass(frozen=True, eq=False)
class TableAir(Network):
    """A network that plays a history to the engine, with what its messages carry."""

    held: np.ndarray
    sends: np.ndarray
    carried: np.ndarray
    message: str = "sum"
    bits_per_parameter: int | None = None
    forwards: bool = True
    name = "tables"

    recent = 1

    @classmethod
    def of(cls, history, message="sum", **options):
        return cls(history.held, history.sends, history.carried, message, **options)

    def peers(self):
        return self

    def versions(self, num_nodes):
        del num_nodes
        return 2

    def init(self, num_nodes, key):
        del num_nodes, key
        return TableState(jnp.zeros((), jnp.int32))

    def step(self, state, offers, message_bits, key):
        del offers, message_bits, key
        t = state.slot
        held, sends = jnp.asarray(self.held)[t + 1], jnp.asarray(self.sends)[t]
        linked = sends[None] & ~jnp.eye(len(sends), dtype=bool)
        return TableState(t + 1), Delivery(held, sends, linked, jnp.asarray(self.carried)[t])

    def measures(self, state):
        del state
        return {}
