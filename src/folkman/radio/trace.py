"""A recorded network, replayed: the timeline of a run as data.

In Algorithm 1 timing does not depend on parameter values, so a timeline can be taken from a delay law, the radio,
a simulation or real devices, written down, and given to any engine. A peer timeline is

    held[t, i, j] = tau_ij(t),  t = 0 .. slots-1        the copy of j that i holds in slot t   [1, eq. (8)]
    sends[t, j]                                  does j freeze its message at the end of slot t?
    finished[t, i]                               does i finish a gradient in slot t?

and a star timeline has four (slot, node) tables of transfers instead of `held` and `sends`.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

import os
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from numpy.typing import NDArray

from folkman.files import write_whole
from folkman.keys import Stream, make_key
from folkman.radio.delivery import Delivery, Network, Transfer

__all__ = ["PeerTimeline", "Replay", "StarTimeline", "from_file", "load", "record_timeline", "replay", "save"]


FEW = 64
"""Payloads of a sender that a replay keeps at most for the sake of the same bits."""
MOST_AT_FIRST = 4
"""Payloads of a sender that a replay has room for at first; a pair that never hears the other keeps one for ever."""


class PeerTimeline(NamedTuple):
    """A timeline between peers."""

    held: NDArray[np.int32]  # (slot, rx, tx)
    sends: NDArray[np.bool_]  # (slot, tx)
    finished: NDArray[np.bool_]  # (slot, node)


class StarTimeline(NamedTuple):
    """A timeline around a server."""

    up_started: NDArray[np.bool_]  # (slot, node)
    up_arrived: NDArray[np.bool_]
    down_started: NDArray[np.bool_]
    down_arrived: NDArray[np.bool_]
    finished: NDArray[np.bool_]


class ReplayState(NamedTuple):
    """The recorded tables and the place in them."""

    slot: Array  # () slots ended so far
    held: Array  # (slot, rx, tx)
    sends: Array  # (slot, tx)


@dataclass(frozen=True, eq=False)
class Replay:
    """A network that repeats a peer timeline."""

    timeline: PeerTimeline
    bits_per_parameter: int = 16
    reliable = False
    synchronous = False

    @property
    def horizon(self) -> int:
        """Return the length of the recording."""
        return len(self.timeline.held)

    @property
    def recent(self) -> int:
        """Return how many of a sender's newest payloads may still be delivered.

        All that are in use count, where they are few: copies of a delay law then stand in the rows that they had when
        it was recorded, and sum to the same bits.
        """
        needed = _versions(self.timeline)
        return needed if needed <= FEW else _recent(self.timeline)

    def versions(self, num_nodes: int) -> int:
        """Return how many payloads of one sender are needed at once, or a first guess where those are many."""
        self._check_nodes(num_nodes)
        return min(_versions(self.timeline), MOST_AT_FIRST)

    def init(self, num_nodes: int, key: Array) -> ReplayState:
        """Return the beginning of the recording."""
        del key
        self._check_nodes(num_nodes)
        return ReplayState(jnp.zeros((), jnp.int32), jnp.asarray(self.timeline.held), jnp.asarray(self.timeline.sends))

    def step(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Delivery]:
        """Return the next recorded delivery; what is held after the last slot was not recorded, and stays."""
        del offers, message_bits, key
        last = state.held.shape[0] - 1
        held = state.held[jnp.minimum(state.slot + 1, last)]
        sends = state.sends[jnp.minimum(state.slot, last)] & (state.slot <= last)
        linked = sends[None] & ~jnp.eye(len(sends), dtype=bool)
        kept = sends & (state.slot < last)  # what is sent in the last slot is on the air, and nobody will hold it
        return state._replace(slot=state.slot + 1), Delivery(held, kept, linked)

    def payload_bits(self, message_bits: ArrayLike) -> ArrayLike:
        """Return the size as it is."""
        return message_bits

    def lockstep_init(self, num_nodes: int, key: Array) -> ReplayState:
        """Refuse: a recording has a pace of its own."""
        del num_nodes, key
        raise ValueError(
            "a method in lock-step needs a network that waits for it, got a recorded timeline; choose a delay law or "
            "the radio, or an asynchronous method"
        )

    def exchange(
        self, state: ReplayState, offers: Array, wanted: Array | None, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Delivery]:
        """Refuse, as `lockstep_init` does."""
        raise NotImplementedError

    def measures(self, state: ReplayState) -> dict[str, Array]:
        """Return nothing: a timeline does not say why a copy is old."""
        del state
        return {}

    def star_init(self, num_nodes: int, key: Array) -> ReplayState:
        """Refuse: a recording between peers has no server."""
        del num_nodes, key
        raise ValueError(
            "a method with a server needs a network around a server, got a timeline recorded between peers; "
            "choose a delay law, or a method without a server"
        )

    def uplink(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Transfer]:
        """Refuse, as `star_init` does."""
        raise NotImplementedError

    def downlink(
        self, state: ReplayState, offers: Array, message_bits: ArrayLike, key: Array
    ) -> tuple[ReplayState, Transfer]:
        """Refuse, as `star_init` does."""
        raise NotImplementedError

    def _check_nodes(self, num_nodes: int) -> None:
        recorded = self.timeline.held.shape[1]
        if recorded != num_nodes:
            raise ValueError(
                f"the timeline was recorded between {recorded} nodes, the problem has {num_nodes}; "
                "use a problem of that size or record again"
            )


def replay(timeline: PeerTimeline, bits_per_parameter: int = 16) -> Replay:
    """Build a network that repeats `timeline`, after checking that it can have happened."""
    _check(timeline)
    return Replay(timeline, bits_per_parameter)


def from_file(path: str, bits_per_parameter: int = 16) -> Replay:
    """Build a network that repeats the peer timeline saved at `path`."""
    timeline = load(path)
    if not isinstance(timeline, PeerTimeline):
        raise ValueError(f"expected a timeline between peers, {path} was recorded around a server; record another")
    return Replay(timeline, bits_per_parameter)


def record_timeline(
    network: Network, num_nodes: int, slots: int, seed: int = 0, message_bits: int = 16
) -> PeerTimeline:
    """Roll a peer network out alone for `slots` slots, every node computing and offering in each of them.

    `message_bits` matters to a radio, whose transfers take as long as their size asks; delay laws ignore it.
    """

    @partial(jax.jit, static_argnums=0)
    def roll(length: int) -> tuple[Array, Array]:
        key = make_key(seed, Stream.DELAY)
        offers = jnp.ones(num_nodes, bool)

        def slot(state: object, t: Array) -> tuple[object, Delivery]:
            return network.step(state, offers, message_bits, jax.random.fold_in(key, t))

        _, deliveries = lax.scan(slot, network.init(num_nodes, key), jnp.arange(length))
        return deliveries.held, deliveries.sends

    held, sends = roll(slots)
    first = np.zeros((1, num_nodes, num_nodes), np.int32)
    return PeerTimeline(
        np.concatenate([first, np.asarray(held)[:-1]]), np.asarray(sends), np.ones((slots, num_nodes), bool)
    )


def save(timeline: PeerTimeline | StarTimeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline as a compressed `.npz`, whole or not at all."""

    def write(part: Path) -> None:
        with part.open("wb") as file:  # an open file: savez would add a suffix to a name
            np.savez_compressed(file, **timeline._asdict())

    write_whole(Path(path), write)


def load(path: str | os.PathLike[str]) -> PeerTimeline | StarTimeline:
    """Read a timeline that `save` wrote; nothing in the file is executed."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            tables = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ValueError(f"expected a timeline saved as .npz, there is no {path}; check the path") from None
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"expected a timeline saved as .npz, {path} is not readable: {error}") from error
    for kind in (PeerTimeline, StarTimeline):
        if set(tables) == set(kind._fields):
            timeline = kind(**tables)
            _check(timeline)
            return timeline
    raise ValueError(
        f"a timeline holds {', '.join(PeerTimeline._fields)} or {', '.join(StarTimeline._fields)}; "
        f"{path} holds {', '.join(sorted(tables)) or 'nothing'}; was it written by folkman.radio.trace.save?"
    )


def _check(timeline: PeerTimeline | StarTimeline) -> None:
    """Refuse tables that do not fit together, or copies from the future or never sent."""
    slots, nodes = timeline.finished.shape
    for name, table in timeline._asdict().items():
        shape = (slots, nodes, nodes) if name == "held" else (slots, nodes)
        if table.shape != shape:
            raise ValueError(f"timeline table '{name}' should have shape {shape}, it has {table.shape}")
    if isinstance(timeline, StarTimeline):
        return
    others = ~np.eye(nodes, dtype=bool)
    for t, held in enumerate(timeline.held):
        if (held[others] > t).any() or (held < 0).any():
            rx, tx = np.argwhere((held > t) & others | (held < 0))[0]
            raise ValueError(
                f"in slot {t} node {rx} holds a copy of node {tx} stamped {held[rx, tx]}, "
                f"expected 0 .. {t}; the recording is damaged"
            )
    sent = np.concatenate([np.ones((1, nodes), bool), timeline.sends[:-1]])  # stamp s was frozen after slot s-1
    known = sent[timeline.held, np.arange(nodes)[None, None, :]] | ~others
    if not known.all():
        t, rx, tx = np.argwhere(~known)[0]
        raise ValueError(
            f"in slot {t} node {rx} holds stamp {timeline.held[t, rx, tx]} of node {tx}, "
            "which was never sent; the recording is damaged"
        )


def _recent(timeline: PeerTimeline) -> int:
    """Return of how many of its newest payloads a sender may still deliver one: the oldest that newly arrives."""
    nodes = timeline.sends.shape[1]
    sent = np.concatenate([np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]])  # stamps up to a slot
    before, after = timeline.held[:-1], timeline.held[1:]
    older = sent[np.maximum(after - 1, 0), np.arange(nodes)[None, None]] * (
        after > 0
    )  # sent before the one that arrives
    new = (after != before) & ~np.eye(nodes, dtype=bool)[None]
    return int(np.max((sent[:-1, None] - older)[new], initial=1))


def _versions(timeline: PeerTimeline) -> int:
    """Return the most payloads of one sender that are needed at once: sent, and held now or later."""
    slots, nodes = timeline.sends.shape
    held = np.where(np.eye(nodes, dtype=bool), np.iinfo(np.int32).max, timeline.held)
    oldest = np.minimum.accumulate(held.min(axis=1)[::-1])[::-1]  # (slot, tx) oldest stamp needed from here on
    sent_upto = np.concatenate([np.ones((1, nodes), int), 1 + np.cumsum(timeline.sends, axis=0)[:-1]])
    before = np.take_along_axis(sent_upto, np.clip(oldest, 1, slots) - 1, axis=0) * (oldest > 0)
    return int(np.max(sent_upto - np.where(oldest > slots, sent_upto - 1, before), initial=1))
