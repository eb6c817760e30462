"""A fourth way to travel: nodes in cells, each cell around its station, the stations around a root.

Node i belongs to cell i mod `cells`. To its nodes a station is a server; to the root it is a node:
when it asks, what it sends is carried to the root, and what the root answers it hears. Nodes reach
their station as the network carries uploads to a server (on the radio, all cells share the band
and the site); stations reach the root over a link of their own, on which a message takes
`backhaul_slots`, and its answer as many.
"""

from collections.abc import Callable
from dataclasses import dataclass

from folkman.algorithm.base import State
from folkman.algorithm.travel import Server, Travel
from folkman.arrays import Array

__all__ = ["Hierarchy"]


@dataclass(frozen=True)
class Hierarchy(Travel):
    """In cells: a node computes until it is `ready`, uploads to its station and waits for it.

    A station's inbox has a row for every node; the weight of those of other cells is 0.
    """

    role = "cells around stations"
    a_round = "I ({up}) + {down}"

    cells: int  # number of cells; node i is in cell i mod `cells`
    station: Server  # the server of each cell
    root: Server  # the server above the stations
    ready: Callable[[State], Array]  # state -> whether the node has an upload
    asks: Callable[[State], Array]  # a station's state -> whether it wants to send to the root
    asked: Callable[[State], Array]  # a station's state -> what it sends to the root
    hears: Callable[[State, Array], State]  # (a station's state, the root's message) -> state
    backhaul_slots: int = 0  # slots of a message between a station and the root

    @property
    def servers(self) -> tuple[Server, ...]:
        """Return the station and the root."""
        return (self.station, self.root)

    def computes(self, state: State) -> Array:
        """Tell whether the node has work left."""
        return ~self.ready(state)

    def offers(self, state: State) -> Array:
        """Tell whether the node has an upload."""
        return self.ready(state)
