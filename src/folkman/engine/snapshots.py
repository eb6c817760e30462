"""The payloads in use, each kept once.

Receivers hold copies of different age, but of one sender only a few versions are in use at a time: each is kept in
one row of a store, and an inbox is row numbers. All nodes' sums are then one product of a (node, row) matrix with
the (row, d) store, and nothing of size node x node x d ever exists. Where the weights never change the sums are kept,
and formed anew only in slots in which a copy arrives.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from folkman.algorithm.base import Inbox

__all__ = ["Snapshots", "inboxes", "mixture", "put", "start", "widen"]


class Snapshots(NamedTuple):
    """`versions` payloads a sender, and who holds which."""

    payload: Array  # (tx, version, message)
    stamp: Array  # (tx, version) int32, -1 for an empty place
    held: Array  # (rx, tx) stamp held
    heard: Array  # (rx, tx) bool: is it a new one?
    missing: Array  # () bool: a payload was needed that had been given up (a network that lies of `versions`)


def start(messages: Array, versions: int) -> Snapshots:
    """Begin with every node's first message, stamp 0, known to all."""
    nodes = messages.shape[0]
    payload = jnp.zeros((nodes, versions, messages.shape[1]), messages.dtype).at[:, 0].set(messages)
    stamp = jnp.full((nodes, versions), -1, jnp.int32).at[:, 0].set(0)
    held = jnp.zeros((nodes, nodes), jnp.int32)
    return Snapshots(payload, stamp, held, jnp.zeros((nodes, nodes), bool), jnp.asarray(False))


def widen(snapshots: Snapshots, versions: int) -> Snapshots:
    """Return the same copies in a store with room for `versions` payloads a sender."""
    more = versions - snapshots.stamp.shape[1]
    return snapshots._replace(
        payload=jnp.pad(snapshots.payload, ((0, 0), (0, more), (0, 0))),
        stamp=jnp.pad(snapshots.stamp, ((0, 0), (0, more)), constant_values=-1),
    )


def put(
    snapshots: Snapshots,
    messages: Array,
    stamp: Array,
    sends: Array,
    held: Array,
    recent: int = 1,
    present: Array | None = None,
) -> Snapshots:
    """Freeze the messages of the senders under `stamp`, then let every node hold the copies `held` (rx, tx).

    A new payload takes the place of the oldest that nobody holds; if that is one of the `recent` newest, which may
    still be delivered, the store is too small. What is new to a node stays so while it is not `present` (rx,).
    """
    nodes, versions = snapshots.stamp.shape
    in_use = jnp.any((held[:, :, None] == snapshots.stamp[None]) & _others(nodes)[:, :, None], axis=0)  # (tx, version)
    place = jnp.argmin(jnp.where(in_use, jnp.iinfo(jnp.int32).max, snapshots.stamp), axis=1)
    rows = jnp.arange(nodes)
    given_up = snapshots.stamp[rows, place]
    newer = jnp.sum(snapshots.stamp > given_up[:, None], axis=1, dtype=jnp.int32)
    too_small = jnp.any(sends & (given_up >= 0) & ((newer + 1 < recent) | in_use[rows, place]))
    place = jnp.where(sends, place, versions)  # out of range: dropped by the scatter below
    payload = snapshots.payload.at[rows, place].set(messages, mode="drop")
    stamps = snapshots.stamp.at[rows, place].set(stamp, mode="drop")
    found = jnp.any(held[:, :, None] == stamps[None], axis=2) | ~_others(nodes)
    heard = held != snapshots.held
    if present is not None:
        heard = heard | (snapshots.heard & ~present[:, None])
    return Snapshots(payload, stamps, held, heard, snapshots.missing | too_small | ~jnp.all(found))


def mixture(snapshots: Snapshots, mixing: Array) -> Array:
    """Return what each node's copies sum up to under `mixing` (rx, tx), without its own: (rx, message)."""
    inbox, axes = inboxes(snapshots, mixing, jnp.zeros((), jnp.int32))
    return jax.vmap(lambda one: one.mix(one.weight), (axes,))(inbox)


def inboxes(snapshots: Snapshots, mixing: Array, slot: Array, mixed: Array | None = None) -> tuple[Inbox, Inbox]:
    """Return all nodes' inboxes as one batched `Inbox`, and the axes to `jax.vmap` it over.

    `mixing` (rx, tx) are the weights, the nodes' own on the diagonal; `mixed` their `mixture`, if it is at hand.
    """
    nodes, versions = snapshots.stamp.shape
    version = jnp.argmax(snapshots.held[:, :, None] == snapshots.stamp[None], axis=2)  # (rx, tx)
    row = jnp.arange(nodes)[None] * versions + version
    inbox = Inbox(
        store=snapshots.payload.reshape(nodes * versions, -1),
        row=row,
        weight=jnp.where(_others(nodes), mixing, 0.0),
        own_weight=jnp.diagonal(mixing),
        heard=snapshots.heard & _others(nodes),
        age=slot - snapshots.held,
        finite=jnp.ones(nodes, bool),
        mixed=mixed,
    )
    along = None if mixed is None else 0
    return inbox, Inbox(store=None, row=0, weight=0, own_weight=0, heard=0, age=0, finite=None, mixed=along)  # type: ignore[arg-type]


def _others(nodes: int) -> Array:
    return ~jnp.eye(nodes, dtype=bool)
