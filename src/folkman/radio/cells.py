"""Many cells that interfere: where their nodes stand, and the radio of each.

    network = radio_cells(RadioNetwork(threshold_db=-15.0), cells=50_000, nodes=20)

Stations form a hexagonal lattice. Node i of every cell sends in band i, so the nodes i of the
nearest cells are its interferers. They are on the air all the time, and their fading is drawn anew
in every block, as [1, eq. (24)] has it; what they send is not looked at. So cells depend on each
other by their places alone, and a few at a time may run to the end.

Places are kept once for all cells, 8 bytes a node. Path gains exist for the cells that run at once,
and a cell's places are relative to its own station, which stands at the origin.

[1] Xie, Xia, Wu, Wang, Huang. Decentralized Federated Learning with Asynchronous Parameter Sharing
    for Large-scale IoT Networks. IEEE IoT Journal 2024. arXiv:2401.07122
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from folkman.arrays import Array, jax, jnp
from folkman.checks import require
from folkman.keys import Stream, make_key
from folkman.radio import geometry
from folkman.radio.air import Air, look
from folkman.radio.delivery import as_value
from folkman.radio.geometry import Points, Waypoint
from folkman.radio.network import RadioNetwork

__all__ = ["PlacedRadio", "RadioCells", "radio_cells"]

NUM_NEIGHBOURS = 36
"""Cells that interfere with one: three rings of the hexagonal lattice."""


@as_value("threshold_db", "air")
@dataclass(frozen=True)
class PlacedRadio(RadioNetwork):
    """A cell whose nodes and interferers stand where they were put."""

    air: Air | None = None

    @classmethod
    def of(cls, radio: RadioNetwork, air: Air) -> "PlacedRadio":
        """Return a radio as this one, whose nodes and interferers stand there."""
        own = {each.name: getattr(radio, each.name) for each in fields(radio)}
        return cls(**own, air=air)

    def open_air(self, num_nodes: int, key: Array) -> Air:
        """Return the air as it was put; nothing is drawn."""
        del key
        require(self.air is not None, "a placed radio needs its air; take one of `RadioCells.cell`")
        assert self.air is not None  # noqa: S101 - just seen to
        placed = self.air.link.shape[-1]
        require(placed == num_nodes, f"the cell has {placed} nodes, the problem {num_nodes}")
        return self.air


@dataclass(frozen=True, eq=False)
class RadioCells:
    """The same radio in many cells that interfere with each other."""

    radio: RadioNetwork
    stations_m: NDArray[np.float32]  # (cell, 2)
    nodes_m: NDArray[np.float32]  # (cell, node, 2), from the cell's own station
    neighbours: NDArray[np.int32]  # (cell, nbr) nearest first

    @property
    def num_cells(self) -> int:
        """Return the number of cells."""
        return len(self.nodes_m)

    @property
    def num_nodes(self) -> int:
        """Return the nodes of one cell."""
        return self.nodes_m.shape[1]

    def cell(self, cell: int) -> PlacedRadio:
        """Return the radio of one cell, for `simulate`."""
        air = jax.tree.map(lambda part: part[0], self.air(range(cell, cell + 1)))
        return PlacedRadio.of(self.radio, air)

    def some(self, cells: range) -> PlacedRadio:
        """Return the radio of some cells; its air has a leading cell axis."""
        return PlacedRadio.of(self.radio, self.air(cells))

    def air(self, cells: range) -> Air:
        """Return the path gains of some cells, (cell, ...)."""
        require(
            0 <= cells.start < cells.stop <= self.num_cells,
            f"there are cells 0 to {self.num_cells - 1}, got {cells.start} to {cells.stop - 1}",
        )
        near = self.neighbours[cells.start : cells.stop]
        own_m = self.stations_m[cells.start : cells.stop]
        # (cell, nbr, band, 2): places of the neighbours' nodes, seen from the own station
        there_m = self.nodes_m[near] + (self.stations_m[near] - own_m[:, None])[:, :, None]
        placed = (self.nodes_m[cells.start : cells.stop], np.swapaxes(there_m, 1, 2))
        return _look(self.radio, *(jnp.asarray(each, jnp.float32) for each in placed))


@jax.jit
def _look(radio: RadioNetwork, nodes_m: Array, interferers_m: Array) -> Air:
    begun = jnp.zeros((), jnp.int32)

    def one(here_m: Array, there_m: Array) -> Air:
        points = Points(there_m, jnp.ones(there_m.shape[:-1], bool))
        return look(radio, Waypoint(here_m, here_m), points, begun)

    return jax.vmap(one)(nodes_m, interferers_m)


def radio_cells(radio: RadioNetwork, *, cells: int, nodes: int, seed: int = 0) -> RadioCells:
    """Lay out `cells` hexagonal cells of `nodes` nodes each, uniform in the cell's disc.

    >>> radio_cells(RadioNetwork(), cells=7, nodes=3).cell(0).air.interferer.shape
    (3, 3, 6)
    """
    require(cells >= 2, f"cells that interfere are at least two, got {cells}; simulate one alone")
    require(nodes >= 1, f"a cell needs a node at least, got {nodes}")
    require(
        radio.speed_m_per_s == 0,
        "nodes of many cells stand still, as they interfere; "
        f"got a speed of {radio.speed_m_per_s} m/s, set it to 0",
    )
    stations_m = geometry.hexagonal_stations(cells, radio.cell_radius_m)
    key = make_key(seed, Stream.GEOMETRY)
    drawn_m = geometry.cell(cells * nodes, radio.cell_radius_m, key)
    near = geometry.neighbour_cells(stations_m, NUM_NEIGHBOURS)
    return RadioCells(
        radio,
        np.asarray(stations_m),
        np.asarray(drawn_m).reshape(cells, nodes, 2),
        np.asarray(near),
    )
