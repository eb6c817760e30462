"""The timeline of a run as data: recorded, saved and loaded.

In Algorithm 1 timing does not depend on parameter values, so a timeline can be taken from a delay
law, the radio, a simulation or real devices, written down, and given to any engine;
`folkman.radio.replay` makes a network of it. A peer timeline is

    held[t, i, j] = tau_ij(t), t = 0 .. slots-1  the copy of j that i holds in slot t [1, eq. (8)]
    sends[t, j]                                  does j freeze its message at the end of slot t?
    finished[t, i]                               does i finish a gradient in slot t?

and a star timeline has four (slot, node) tables of transfers instead of `held` and `sends`.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

import os
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, jax, jnp, lax
from folkman.files import write_whole
from folkman.keys import Stream, make_key
from folkman.radio.delivery import Delivery, Network

__all__ = [
    "KINDS",
    "PeerTimeline",
    "StarTimeline",
    "Timeline",
    "check_timeline",
    "last_slots",
    "load",
    "record_timeline",
    "save",
]


class Timeline(Protocol):
    """Who did what when; what else there is depends on the way that messages travel."""

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Return who finished a gradient in which slot, (slot, node)."""
        ...

    def __iter__(self) -> Iterator[NDArray]: ...

    def _asdict(self) -> dict[str, Any]: ...

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each table should have."""
        ...


class PeerTimeline(NamedTuple):
    """A timeline between peers."""

    held: NDArray[np.int32]  # stamps of the copies held (slot, rx, tx)
    sends: NDArray[np.bool_]  # who sent (slot, tx)
    finished: NDArray[np.bool_]  # whose gradient ended (slot, node)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each table should have."""
        slots, nodes = self.finished.shape
        return dict.fromkeys(self._fields, (slots, nodes)) | {"held": (slots, nodes, nodes)}


class StarTimeline(NamedTuple):
    """A timeline around a server."""

    up_started: NDArray[np.bool_]  # whose upload began (slot, node)
    up_arrived: NDArray[np.bool_]  # whose upload ended (slot, node)
    down_started: NDArray[np.bool_]  # to whom an answer began (slot, node)
    down_arrived: NDArray[np.bool_]  # to whom an answer ended (slot, node)
    finished: NDArray[np.bool_]  # whose gradient ended (slot, node)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each table should have."""
        return dict.fromkeys(self._fields, self.finished.shape)


KINDS: list[Any] = [PeerTimeline, StarTimeline]
"""The timelines that a file may hold; a new way to travel adds its own."""


def record_timeline(
    network: Network, num_nodes: int, slots: int, seed: int = 0, message_bits: int = 16
) -> PeerTimeline:
    """Roll a peer network out alone for `slots` slots.

    Every node computes and offers in each of them.

    `message_bits` matters to a radio, whose transfers take as long as their size asks; delay laws
    ignore it.
    """
    peers = network.peers()

    @partial(jax.jit, static_argnums=0)
    def roll(length: int) -> tuple[Array, Array]:
        key = make_key(seed, Stream.DELAY)
        offers = jnp.ones(num_nodes, bool)

        def slot(state: object, t: Array) -> tuple[object, Delivery]:
            return peers.step(state, offers, message_bits, jax.random.fold_in(key, t))

        _, deliveries = lax.scan(slot, peers.init(num_nodes, key), jnp.arange(length))
        return deliveries.held, deliveries.sends

    held, sends = roll(slots)
    first = np.zeros((1, num_nodes, num_nodes), np.int32)
    return PeerTimeline(
        np.concatenate([first, np.asarray(held)[:-1]]),
        np.asarray(sends),
        np.ones((slots, num_nodes), bool),
    )


def save(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline as a compressed `.npz`, whole or not at all."""

    def write(part: Path) -> None:
        with part.open("wb") as file:  # an open file: savez would add a suffix to a name
            np.savez_compressed(file, **timeline._asdict())

    write_whole(Path(path), write)


def load(path: str | os.PathLike[str]) -> Timeline:
    """Read a timeline that `save` wrote; nothing in the file is executed."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            tables = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise ValueError(
            f"expected a timeline saved as .npz, there is no {path}; check the path"
        ) from None
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(
            f"expected a timeline saved as .npz, {path} is not readable; "
            "keep_timelines = true writes one"
        ) from error
    for kind in KINDS:
        if set(tables) == set(kind._fields):
            timeline = kind(**tables)
            check_timeline(timeline)
            return timeline
    raise ValueError(
        f"a timeline holds {' or '.join(', '.join(kind._fields) for kind in KINDS)}; "
        f"{path} holds {', '.join(sorted(tables)) or 'nothing'}; "
        "was it written by folkman.radio.trace.save?"
    )


def check_timeline(timeline: Timeline) -> None:
    """Refuse tables that do not fit together, or copies from the future or never sent."""
    tables = timeline._asdict()
    for name, shape in timeline.shapes().items():
        table = tables[name]
        if table.shape != shape:
            raise ValueError(
                f"timeline table '{name}' should have shape {shape}, it has {table.shape}"
            )
    if not isinstance(timeline, PeerTimeline):
        return
    nodes = timeline.finished.shape[1]
    others = ~np.eye(nodes, dtype=bool)
    for t, held in enumerate(timeline.held):
        if (held[others] > t).any() or (held < 0).any():
            rx, tx = np.argwhere((held > t) & others | (held < 0))[0]
            raise ValueError(
                f"in slot {t} node {rx} holds a copy of node {tx} stamped {held[rx, tx]}, "
                f"expected 0 .. {t}; the recording is damaged"
            )
    sent = np.concatenate(
        [np.ones((1, nodes), bool), timeline.sends[:-1]]
    )  # stamp s was frozen after slot s-1
    known = sent[timeline.held, np.arange(nodes)[None, None, :]] | ~others
    if not known.all():
        t, rx, tx = np.argwhere(~known)[0]
        raise ValueError(
            f"in slot {t} node {rx} holds stamp {timeline.held[t, rx, tx]} of node {tx}, "
            "which was never sent; the recording is damaged"
        )


def last_slots(held: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the last slot in which another node holds a stamp of each node, (stamp, node).

    -1 where nobody ever does.
    """
    slots, nodes = held.shape[:2]
    last = np.full((slots + 1, nodes), -1, np.int32)
    rx, tx = np.nonzero(~np.eye(nodes, dtype=bool))
    for t, stamps in enumerate(held):
        last[stamps[rx, tx], tx] = t
    return last
