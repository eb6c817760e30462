"""Where nodes and interferers of a cell are, and the path gains that follow (D1, D4)."""

from typing import TYPE_CHECKING, NamedTuple

from folkman.arrays import Array, Float, Int, jnp
from folkman.keys import Stream, stream_keys
from folkman.radio import channel, geometry
from folkman.radio.geometry import Points, Waypoint

if TYPE_CHECKING:
    from folkman.radio.network import RadioNetwork

__all__ = ["NUM_FADING", "Air", "look", "place"]

NUM_FADING = 32
"""Interferers of a band, nearest to the centre first, that fade.

The others are taken at their mean power.

With density lambda and exponent 4 the k-th nearest contributes like k^-2, so those beyond the 32nd
make up about 2 % of the interference and their fading moves it by 0.2 %: 0.01 dB, for a tenth of
the random numbers.
"""


class Air(NamedTuple):
    """Where everything is, and the path gains that follow."""

    nodes: Waypoint  # where nodes are, and where they go
    interferers: Points  # (band, point), nearest to the centre first
    link: Float[Array, "rx tx"]  # path gain d^-a of each link
    interferer: Float[Array, "rx band near"]  # d^-a of the nearest, which fade; 0 for padding
    # sum of d^-a of all the others, which are taken at their mean
    background: Float[Array, "rx band"]
    moved_at: Int[Array, ""]  # slot of these positions


def place(network: "RadioNetwork", num_nodes: int, key: Array) -> Air:
    """Drop nodes uniformly in the cell and, for each band, interferers outside it (D1, D4)."""
    node_key, interferer_key = stream_keys(key, Stream.GEOMETRY, Stream.INTERFERENCE)
    density = network.interferers_per_cell * geometry.cell_density_per_m2(network.cell_radius_m)
    if density > 0:
        inner_m, outer_m = network.cell_radius_m, network.interferer_radius_m
        points = geometry.interferers(
            num_nodes, density, interferer_key, inner_radius_m=inner_m, outer_radius_m=outer_m
        )
    else:
        points = Points(jnp.zeros((num_nodes, 1, 2)), jnp.zeros((num_nodes, 1), bool))
    far_m = jnp.where(points.present, jnp.linalg.norm(points.positions_m, axis=-1), jnp.inf)
    order = jnp.argsort(far_m, axis=1)
    points = Points(
        jnp.take_along_axis(points.positions_m, order[..., None], axis=1),
        jnp.take_along_axis(points.present, order, 1),
    )
    nodes = geometry.waypoint_start(num_nodes, network.cell_radius_m, node_key)
    return look(network, nodes, points, jnp.zeros((), jnp.int32))


def look(
    network: "RadioNetwork",
    nodes: Waypoint,
    interferers: Points,  # interferers of each band, nearest to the centre first
    slot: Array,
) -> Air:
    """Return the path gains of positions."""
    gain = channel.interferer_gain(nodes.positions_m, interferers, network.path_loss_exponent)
    return Air(
        nodes,
        interferers,
        channel.link_gain(nodes.positions_m, nodes.positions_m, network.path_loss_exponent),
        gain[..., :NUM_FADING],
        jnp.sum(gain[..., NUM_FADING:], axis=-1),
        slot,
    )
