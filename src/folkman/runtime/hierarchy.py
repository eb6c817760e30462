"""Nodes in cells, bytes in and bytes out: the stations, the root, and whom a node hears.

In a slot a station takes what its nodes have uploaded (`wake`), sends to the root if it asks
(`asks`, `ask`), takes the root's answer (`hear`), and answers its nodes (`offers`, `send`). Daemons
do not run this way yet.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import Algorithm, State
from folkman.algorithm.pieces.hierarchy import Hierarchy
from folkman.arrays import Array, jax
from folkman.radio.delivery import Network
from folkman.runtime.codec import SERVER
from folkman.runtime.mailbox import Mailbox
from folkman.runtime.node import Wire, first_upload
from folkman.runtime.server_node import Seat, ServerNode
from folkman.runtime.ways import Way

if TYPE_CHECKING:
    from folkman.runtime.causal import CausalTimeline
    from folkman.runtime.emulation import Emulation, Trips
    from folkman.runtime.journal import Log

__all__ = ["HierarchyWay", "RootNode", "StationNode", "station_number"]


def station_number(cell: int, cells: int) -> int:
    """Return a station's number on the wire: just below the root's, which is the server's."""
    return SERVER - cells + cell


class HierarchyWay(Way):
    """A node's half: it hears its station alone."""

    travel: Hierarchy
    loses_nothing = True
    remembers = False

    def senders(self, num_nodes: int) -> int:
        """Return the station alone."""
        del num_nodes
        return 1

    def first_sender(self, index: int) -> int:
        """Return the node's station."""
        return station_number(index % self.travel.cells, self.travel.cells)

    def weights(self, index: int, shares: NDArray) -> tuple[NDArray, float]:
        """Return all weight for the station."""
        del index, shares
        return np.ones(1), 0.0

    def first_message(self, state: State, initial: Array, num_nodes: int) -> Array:
        """Return a station's first message."""
        del state
        station = self.travel.station
        return station.message(station.init(initial, num_nodes))

    def own(self, index: int) -> int | None:
        """Return nothing: a node is no station."""
        del index
        return None

    def check(self, label: str) -> NoReturn:
        """Refuse: no node runs this way."""
        raise ValueError(
            f"'{label}' travels in cells around stations, which devices do not run yet; "
            "simulate it with `folkman run`, or choose a method around one server"
        )

    def pace(self, emulation: "Emulation | None" = None, trips: "Trips | None" = None) -> NoReturn:
        """Refuse."""
        del emulation, trips
        self.check(self.algorithm.name)

    def air(
        self, network: Network, num_nodes: int, me: int, *, seed: int, message_bits: int
    ) -> "tuple[Emulation | None, Trips | None]":
        """Refuse."""
        del network, num_nodes, me, seed, message_bits
        self.check(self.algorithm.name)

    def causal(self, logs: "Mapping[int, Log]", num_nodes: int, *, paced: bool) -> "CausalTimeline":
        """Refuse."""
        del logs, num_nodes, paced
        self.check(self.algorithm.name)

    def replayed(self, timeline: object) -> NoReturn:
        """Refuse."""
        del timeline
        self.check(self.algorithm.name)


class _InCells(ServerNode):
    """What stations and the root have in common."""

    @property
    def travel(self) -> Hierarchy:
        """Return the way to travel, or refuse a method that has no cells."""
        travel = self.algorithm.travel
        if not isinstance(travel, Hierarchy):
            raise ValueError(f"{self.algorithm.name} has no cells; run it as it travels")
        return travel

    def _all_draws(self) -> Array:
        return jax.random.split(super()._draws(), self.travel.cells + 1)


class StationNode(_InCells):
    """The station of one cell: a server to its nodes, a node to the root."""

    def __init__(
        self,
        cell: int,
        initial: Array,
        algorithm: Algorithm,
        shares: NDArray,
        *,
        run: int = 0,
        seed: int = 0,
        wire: Wire | None = None,
    ) -> None:
        self.cell = cell
        super().__init__(initial, algorithm, shares, run=run, seed=seed, wire=wire)
        root = self.travel.root
        told = np.asarray(root.message(root.init(initial, self.travel.cells)))
        self.from_root = Mailbox(
            told, 1, self.wire.run, first_sender=SERVER, checks=self.wire.checks
        )

    def _seat(self, initial: Array, shares: NDArray, key: Array) -> Seat:
        """Return where the station sits; nodes of other cells have no weight."""
        cells = self.travel.cells
        own = np.arange(len(shares)) % cells == self.cell
        first = first_upload(initial, self.algorithm, len(shares), key)
        number = station_number(self.cell, cells)
        return Seat(self.travel.station, number, first, np.where(own, shares, 0.0))

    def _draws(self) -> Array:
        return self._all_draws()[self.cell]

    def offers(self) -> NDArray[np.bool_]:
        """Tell to which of its nodes the station has something to send, (node,)."""
        return super().offers() & (self._weights > 0)

    def asks(self) -> bool:
        """Tell whether the station wants to send to the root."""
        return bool(self.travel.asks(self.state))

    def ask(self) -> bytes:
        """Return the message for the root."""
        self.sequence += 1
        params = np.asarray(self.travel.asked(self.state))
        return self._packed(params, self._packing_number + self.travel.cells)

    @property
    def _packing_number(self) -> int:
        return self.num_nodes + 1 + self.cell

    def hear(self, data: bytes) -> bool:
        """Take the root's answer; tell whether it was kept."""
        if not self.from_root.put(data):
            return False
        inbox = self.from_root.inbox(np.ones(1), 0.0, self.slot)
        self.state = self.travel.hears(self.state, inbox.payload(0))
        return True


class RootNode(_InCells):
    """The root: a server to the stations."""

    def _seat(self, initial: Array, shares: NDArray, key: Array) -> Seat:
        """Return where the root sits: its senders are the stations, weighted by their cells."""
        del key
        way = self.travel
        cell = np.arange(len(shares)) % way.cells
        weights = np.bincount(cell, weights=shares, minlength=way.cells)
        first = way.asked(way.station.init(initial, len(shares)))
        return Seat(way.root, SERVER, first, weights, station_number(0, way.cells))

    def _draws(self) -> Array:
        return self._all_draws()[-1]
