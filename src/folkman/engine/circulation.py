"""Where payloads stand that travel on: from a node that holds them, or in a message on the air.

A network that forwards (`PeerNetwork.forwards`) may bring a stamp of any age, in any order, from
any node that holds it. A table finds the row of a stamp at once:

    row(j, s) = place[j, s mod window],   if that row still has origin j and stamp s

so that a slot costs O(I^2) whatever the ages are. A payload is kept while some node holds it, while
some message on the air carries it, and while it is its origin's newest. Two stamps of one origin
that are both in use may be a multiple of the window apart; the older one is then not found, and the
engine runs the stretch again with a wider window (`wider`). A window that is longer than the run
finds everything, so a stamp that is not found in it was neither held nor carried by anyone.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int

__all__ = ["WINDOW", "Circulation", "find", "note", "start", "wider", "with_rows"]

WINDOW = 256
"""Stamps of one origin that the table tells apart at first."""


class Circulation(NamedTuple):
    """The stamps in circulation, and the rows of the store in which their payloads stand."""

    place: Int[Array, "origin window"]  # the row of a stamp, at the stamp modulo the window
    origin: Int[Array, " row"]  # whose payload stands in a row, -1 for nobody's
    stamp: Int[Array, " row"]  # and its stamp
    carried: Int[Array, "tx origin"]  # stamps inside the messages on the air, -1 for none
    row: Int[Array, "tx origin"]  # where these stand
    unfound: Bool[Array, ""]  # a stamp was brought or carried that the table did not find


def start(nodes: int, rows: int, window: int = WINDOW) -> Circulation:
    """Begin with stamp 0 of every node, node j's in row j, and nothing on the air."""
    first = jnp.arange(nodes, dtype=jnp.int32)
    nobody = jnp.full(rows, -1, jnp.int32)
    return Circulation(
        place=jnp.full((nodes, window), -1, jnp.int32).at[:, 0].set(first),
        origin=nobody.at[:nodes].set(first),
        stamp=nobody.at[:nodes].set(0),
        carried=jnp.full((nodes, nodes), -1, jnp.int32),
        row=jnp.full((nodes, nodes), -1, jnp.int32),
        unfound=jnp.asarray(False),
    )


def find(
    circulation: Circulation, stamps: Int[Array, "node origin"]
) -> tuple[Int[Array, "node origin"], Bool[Array, "node origin"]]:
    """Return the row of each stamp of each origin, and whether it is there."""
    origins = jnp.arange(stamps.shape[1])[None]
    row = circulation.place[origins, stamps % circulation.place.shape[1]]
    there = (circulation.origin[row] == origins) & (circulation.stamp[row] == stamps) & (row >= 0)
    return row, there


def note(circulation: Circulation, place: Int[Array, " tx"], stamp: Array) -> Circulation:
    """Note that senders have put payloads of this stamp into rows; a row beyond the store: none."""
    nodes, window = circulation.place.shape
    origins, rows = jnp.arange(nodes), circulation.origin.shape[0]
    before = circulation.place[origins, stamp % window]
    return circulation._replace(
        place=circulation.place.at[origins, stamp % window].set(
            jnp.where(place < rows, place, before)
        ),
        origin=circulation.origin.at[place].set(origins.astype(jnp.int32), mode="drop"),
        stamp=circulation.stamp.at[place].set(stamp.astype(jnp.int32), mode="drop"),
    )


def with_rows(circulation: Circulation, rows: int) -> Circulation:
    """Return the same for a store of `rows` rows."""
    more = (0, rows - circulation.origin.shape[0])
    return circulation._replace(
        origin=jnp.pad(circulation.origin, more, constant_values=-1),
        stamp=jnp.pad(circulation.stamp, more, constant_values=-1),
    )


def wider(circulation: Circulation, used: Int[Array, " place"], window: int) -> Circulation:
    """Return the same with a longer window, in which the rows of `used` (-1 for none) are found."""
    nodes = circulation.place.shape[0]
    there = used >= 0
    origin = jnp.where(there, circulation.origin[used], nodes)  # a scatter drops the others
    stamp = jnp.where(there, circulation.stamp[used], 0)
    place = jnp.full((nodes, window), -1, jnp.int32)
    return circulation._replace(place=place.at[origin, stamp % window].set(used, mode="drop"))
