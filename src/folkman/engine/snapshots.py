"""The payloads in use, each kept once.

Receivers hold copies of different age, but few versions of a sender's payload are in use at a time.
Each stands in one row of a store that all senders share, and an inbox is row numbers: all nodes'
sums are then one product of a (node, row) matrix with the (row, d) store, and nothing of size node
x node x d ever exists. A row is free again when nobody holds it and it can no longer be delivered.
Where the weights never change the sums are kept, and formed anew only in slots in which a copy
arrives.

There are two ways to find the row of a copy that arrives. `put` looks among the `recent` newest
payloads of its sender, the only ones that most networks deliver. `put_any` finds any payload that a
node holds or that a message on the air carries (`folkman.engine.circulation`), for networks on
which payloads travel on.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from folkman.algorithm.base import Inbox, SummedInbox
from folkman.engine import circulation
from folkman.engine.circulation import Circulation

__all__ = [
    "Snapshots",
    "inboxes",
    "look_further",
    "mixture",
    "put",
    "put_any",
    "start",
    "widen",
]


BLOCK = 256
"""Rows that are summed at a time; fewer than two blocks are summed at once."""


class Snapshots(NamedTuple):
    """The payloads, where the newest of each sender stand, and who holds which."""

    payload: Float[Array, "row message"]
    # rows of what may still be delivered, newest first; -1 for none
    newest: Int[Array, "tx recent"]
    newest_stamp: Int[Array, "tx recent"]  # -1 for none
    held: Int[Array, "rx tx"]  # stamp held
    row: Int[Array, "rx tx"]  # where it stands
    heard: Bool[Array, "rx tx"]  # is it a new one?
    # there was no row for a payload, or a network brought one that it had called old
    missing: Bool[Array, ""]
    circulation: Circulation | None = None  # where payloads travel on


def start(
    messages: Float[Array, "tx message"],
    versions: int,
    recent: int = 1,
    *,
    forwards: bool = False,
) -> Snapshots:
    """Begin with every node's first message, stamp 0, known to all.

    Room for `versions` payloads per sender. `forwards`: payloads may travel on (`put_any`).
    """
    nodes = messages.shape[0]
    payload = (
        jnp.zeros((_whole_blocks(nodes * versions), messages.shape[1]), messages.dtype)
        .at[:nodes]
        .set(messages)
    )
    first = jnp.arange(nodes, dtype=jnp.int32)
    none = jnp.full((nodes, recent), -1, jnp.int32)
    zero = jnp.zeros((nodes, nodes), jnp.int32)
    row = jnp.broadcast_to(first[None], (nodes, nodes))
    newest, stamps = none.at[:, 0].set(first), none.at[:, 0].set(0)
    found = circulation.start(nodes, payload.shape[0]) if forwards else None
    heard, missing = jnp.zeros((nodes, nodes), bool), jnp.asarray(False)
    return Snapshots(payload, newest, stamps, zero, row, heard, missing, found)


def widen(snapshots: Snapshots, rows: int) -> Snapshots:
    """Return the same copies in a store of at least `rows` rows."""
    rows = _whole_blocks(rows)
    more = rows - snapshots.payload.shape[0]
    found = snapshots.circulation
    return snapshots._replace(
        payload=jnp.pad(snapshots.payload, ((0, more), (0, 0))),
        circulation=None if found is None else circulation.with_rows(found, rows),
    )


def look_further(snapshots: Snapshots, window: int) -> Snapshots:
    """Return the same copies, found although their stamps are up to `window` apart."""
    found = snapshots.circulation
    if found is None:
        return snapshots
    used = [snapshots.row, found.row, snapshots.newest]
    rows = jnp.concatenate([each.ravel() for each in used])
    return snapshots._replace(circulation=circulation.wider(found, rows, window))


def put(
    snapshots: Snapshots,
    messages: Array,
    stamp: Array,
    sends: Array,
    held: Array,
    present: Array | None = None,
) -> Snapshots:
    """Freeze the messages of the senders under `stamp`, then let every node hold `held` (rx, tx).

    A copy that is new to a node is one of its sender's `recent` newest so far, or the one just
    frozen. What is new to a node stays so while it is not `present` (rx,).
    """
    nodes, recent = snapshots.newest.shape
    others = ~jnp.eye(nodes, dtype=bool)
    changed = (held != snapshots.held) & others
    known = held[:, :, None] == snapshots.newest_stamp[None]  # (rx, tx, recent)
    fresh = changed & sends[None] & (held == stamp)
    row = snapshots.newest[jnp.arange(nodes)[None], jnp.argmax(known, axis=2)]
    row = jnp.where(changed, row, snapshots.row)
    brought = jnp.all(jnp.any(known, axis=2) | fresh | ~changed)

    oldest = sends[:, None] & (jnp.arange(recent) == recent - 1)[None]  # gives way to the new one
    kept = jnp.where(oldest, -1, snapshots.newest)
    place = lax.cond(
        jnp.any(sends),
        lambda: _free(snapshots.payload.shape[0], jnp.where(others & ~fresh, row, -1), kept, sends),
        lambda: jnp.full(nodes, snapshots.payload.shape[0], jnp.int32),
    )
    shifted = jnp.concatenate([place[:, None], snapshots.newest[:, :-1]], axis=1)
    stamps = jnp.concatenate(
        [jnp.broadcast_to(stamp, (nodes, 1)), snapshots.newest_stamp[:, :-1]], axis=1
    )
    heard = held != snapshots.held
    if present is not None:
        heard = heard | (snapshots.heard & ~present[:, None])
    return Snapshots(
        payload=snapshots.payload.at[place].set(messages, mode="drop"),
        newest=jnp.where(sends[:, None], shifted, snapshots.newest),
        newest_stamp=jnp.where(sends[:, None], stamps, snapshots.newest_stamp).astype(jnp.int32),
        held=held,
        row=jnp.where(fresh, place[None], row),
        heard=heard,
        missing=snapshots.missing
        | ~brought
        | jnp.any(sends & (place == snapshots.payload.shape[0])),
    )


def put_any(
    snapshots: Snapshots,
    messages: Float[Array, "tx message"],
    stamp: Int[Array, ""],
    sends: Bool[Array, " tx"],
    held: Int[Array, "rx tx"],
    carried: Int[Array, "tx origin"],
    present: Bool[Array, " rx"] | None = None,
) -> Snapshots:
    """Do as `put`, where payloads travel on: `carried` are the stamps on the air after this slot.

    A stamp that is new to a node or to a message was held by some node, carried by a message, or
    its origin's newest before this slot, or it is frozen now.
    """
    found = snapshots.circulation
    assert found is not None  # noqa: S101 - `start` was told
    nodes, rows = len(sends), snapshots.payload.shape[0]
    others, on_air = ~jnp.eye(nodes, dtype=bool), carried >= 0
    fresh = sends[None] & (held == stamp) & others
    fresh_on_air = sends[None] & (carried == stamp)
    changed = (held != snapshots.held) & others & ~fresh
    row, there = circulation.find(found, held)
    row = jnp.where(changed, row, snapshots.row)
    loaded = (carried != found.carried) & on_air & ~fresh_on_air
    air_row, air_there = circulation.find(found, carried)
    air_row = jnp.where(loaded, air_row, jnp.where(on_air, found.row, -1))
    unfound = jnp.any(changed & ~there) | jnp.any(loaded & ~air_there)

    used = jnp.concatenate(
        [jnp.where(others & ~fresh, row, -1), jnp.where(fresh_on_air, -1, air_row)]
    )
    kept = jnp.where(sends, -1, snapshots.newest[:, 0])
    place = lax.cond(
        jnp.any(sends),
        lambda: _free(rows, used, kept, sends),
        lambda: jnp.full(nodes, rows, jnp.int32),
    )
    found = circulation.note(found, place, stamp)._replace(
        carried=carried,
        row=jnp.where(fresh_on_air, place[None], air_row),
        unfound=found.unfound | unfound,
    )
    heard = held != snapshots.held
    if present is not None:
        heard = heard | (snapshots.heard & ~present[:, None])
    newest_stamp = jnp.where(sends, stamp, snapshots.newest_stamp[:, 0])
    return Snapshots(
        payload=snapshots.payload.at[place].set(messages, mode="drop"),
        newest=jnp.where(sends, place, snapshots.newest[:, 0])[:, None],
        newest_stamp=newest_stamp.astype(jnp.int32)[:, None],
        held=held,
        row=jnp.where(fresh, place[None], row),
        heard=heard,
        missing=snapshots.missing | jnp.any(sends & (place == rows)),
        circulation=found,
    )


def _free(rows: int, held: Array, kept: Array, sends: Array) -> Array:
    """Return a free row for each sender, (tx,).

    `rows`, which a scatter drops, for the others and if there is none.
    """
    used = jnp.concatenate([held.ravel(), kept.ravel()])
    in_use = jnp.zeros(rows, bool).at[jnp.where(used >= 0, used, rows)].set(True, mode="drop")
    (free,) = jnp.nonzero(~in_use, size=len(sends), fill_value=rows)
    return jnp.where(sends, free[jnp.cumsum(sends) - 1], rows).astype(jnp.int32)


def mixture(snapshots: Snapshots, mixing: Float[Array, "rx tx"]) -> Float[Array, "rx message"]:
    """Return what each node's copies sum up to under `mixing` (rx, tx), its own left out.

    The shape is (rx, message).

    Rows are taken from the first free one on, so a large store is summed block by block, as far as
    it is used.
    """
    nodes, rows = snapshots.held.shape[0], snapshots.payload.shape[0]
    weight = jnp.where(_others(nodes), mixing, 0.0)
    by_row = (
        jnp.zeros((nodes, rows), weight.dtype)
        .at[jnp.arange(nodes)[:, None], snapshots.row]
        .add(weight)
    )
    if rows < 2 * BLOCK:
        return jnp.dot(by_row, snapshots.payload, precision="highest")

    def add(block: Array, total: Array) -> Array:
        columns = lax.dynamic_slice_in_dim(by_row, block * BLOCK, BLOCK, axis=1)
        return total + jnp.dot(
            columns, lax.dynamic_slice_in_dim(snapshots.payload, block * BLOCK, BLOCK)
        )

    used = jnp.max(snapshots.row) // BLOCK + 1
    with jax.default_matmul_precision("highest"):
        return lax.fori_loop(
            0, used, add, jnp.zeros((nodes, snapshots.payload.shape[1]), snapshots.payload.dtype)
        )


def _whole_blocks(rows: int) -> int:
    """Return a number of rows that a sum in blocks can take."""
    return rows if rows < 2 * BLOCK else -(-rows // BLOCK) * BLOCK


def inboxes(
    snapshots: Snapshots,
    mixing: Float[Array, "rx tx"],
    slot: Int[Array, ""],
    mixed: Float[Array, "rx message"] | None = None,
) -> tuple[Inbox, Inbox]:
    """Return all nodes' inboxes as one batched `Inbox`, and the axes to `jax.vmap` it over.

    `mixing` (rx, tx) are the weights, the nodes' own on the diagonal; `mixed` their `mixture`, if
    it is at hand.
    """
    nodes = snapshots.held.shape[0]
    inbox = Inbox(
        store=snapshots.payload,
        row=snapshots.row,
        weight=jnp.where(_others(nodes), mixing, 0.0),
        own_weight=jnp.diagonal(mixing),
        heard=snapshots.heard & _others(nodes),
        age=slot - snapshots.held,
        finite=jnp.ones(nodes, bool),
    )
    axes: dict[str, Any] = dict.fromkeys(Inbox.__dataclass_fields__, 0)
    axes |= {"store": None, "finite": None, "coming": None}
    if mixed is None:
        return inbox, Inbox(**axes)
    parts = {name: getattr(inbox, name) for name in axes}
    return SummedInbox(**parts, sums=mixed), SummedInbox(**axes, sums=0)  # type: ignore[arg-type]


def _others(nodes: int) -> Array:
    return ~jnp.eye(nodes, dtype=bool)
