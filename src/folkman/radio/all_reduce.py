"""The sum of all nodes' messages to all nodes, one transfer after the other on the whole band.

A message is a partial sum: d numbers, and the set of nodes whose contributions are in it. Sets that
do not overlap can be added. First sums are joined until one node has the sum of all, then it goes
to everyone:

    join    Each node that has not passed its sum on holds one; the sets are disjoint. A node passes
            its sum on to one other, which adds it to its own. I - 1 transfers do it, and no fewer.
    spread  A node with the whole sum sends it; whoever hears it can send it too. Who sends to whom
            is the index of `folkman.radio.turns`: receivers that still wait, by slots.

To whom a sum is passed follows a tree over the nodes that still hold one. For each of them as the
root, the tree grows by the link that is cheapest to any node in it (Prim); the tree and root with
the least cost are taken, that of the tree plus the longest way from the root to any node. A link
costs what it takes now or after waiting, whichever is less. Of the leaves whose link is worth using
now, the one sends that saves the most by slots, (u + V - c) / c. The tree is found again for every
transfer, since costs change from block to block.

The result is the sum of everyone's message at the start of the round, the same for all nodes: in
what it computes this is a server's average, only its time differs. No scheme needs less than one
transfer of every node, at its cheapest link (`least_slots`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, jax, jnp, lax
from folkman.radio.turns import Patience, Turn, broadcast

__all__ = ["AllReduce", "Parts", "Tree", "best_tree", "least_slots"]

FAR_SLOTS = 1e6
"""What a link to a node that is away counts as, so that trees can still be compared."""

LEAST_VALUE = 1e-6
"""The index of a leaf that saves nothing by haste, but may as well send."""


class Parts(NamedTuple):
    """Progress: which contributions are in the sum that a node has to pass on."""

    within: Bool[Array, "node origin"]  # all False once it has been passed on
    whole: Bool[Array, " node"]  # has the sum of all


class Tree(NamedTuple):
    """A tree whose nodes send towards its root."""

    parent: Int[Array, " node"]  # -1 for the root, and outside of it
    cost_slots: Float[Array, ""]


@dataclass(frozen=True)
class AllReduce:
    """The task of a round: everyone gets the sum of all messages."""

    sums = True

    def begin(self, num_nodes: int, wanted: Bool[Array, "rx tx"] | None) -> Parts:
        """Let every node hold its own contribution."""
        del wanted
        own = jnp.eye(num_nodes, dtype=bool)
        return Parts(own, jnp.all(own, axis=1))

    def over(self, progress: Parts) -> Bool[Array, ""]:
        """Tell whether everyone has the sum."""
        return jnp.all(progress.whole)

    def choose(
        self, progress: Parts, cost_slots: Array, patience: Patience, left_slots: Array
    ) -> Turn:
        """Return who joins its sum with another's, or who spreads the sum of all."""
        now = patience.now(cost_slots, left_slots)
        spread = broadcast(progress.whole[None] & ~progress.whole[:, None], now)
        later = jnp.where(jnp.isfinite(cost_slots), left_slots + patience.slots, jnp.inf)
        join = _join(progress.within, now, later)
        known = jnp.any(progress.whole)
        return jax.tree.map(lambda a, b: jnp.where(known, a, b), spread, join)

    def take(self, progress: Parts, sender: Array, heard: Bool[Array, " rx"]) -> Parts:
        """Add what was sent to what the receivers hold; who hears the whole sum needs no more."""
        within, whole = progress
        sends = jnp.arange(len(heard)) == sender
        joined = jnp.where(heard[:, None], within | within[sender][None], within)
        passed = jnp.any(heard) & sends
        joined = jnp.where(passed[:, None], False, joined)
        spread = whole[sender]
        return Parts(
            jnp.where(spread, within, joined),
            jnp.where(spread, whole | heard, whole | jnp.all(joined, axis=1)),
        )

    def got(self, progress: Parts) -> Bool[Array, "rx tx"]:
        """Tell who has everyone's message."""
        return jnp.broadcast_to(progress.whole[:, None], progress.within.shape)


def _join(within: Array, now: Array, later: Array) -> Turn:
    """Return the leaf of the best tree that is to pass its sum on."""
    nodes = len(within)
    tree = best_tree(jnp.minimum(now, later), jnp.any(within, axis=1))
    senders = jnp.arange(nodes)
    has_parent, parent = tree.parent >= 0, jnp.maximum(tree.parent, 0)
    inner = jnp.zeros(nodes, bool).at[parent].max(has_parent)
    cost = now[parent, senders]
    able = has_parent & ~inner & jnp.isfinite(cost)
    saved = (later[parent, senders] - cost) / cost
    value = jnp.where(able, jnp.maximum(saved, LEAST_VALUE), 0.0)
    sender = jnp.argmax(value).astype(jnp.int32)
    return Turn(value[sender], sender, senders == parent[sender], cost[sender])


def best_tree(cost_slots: Float[Array, "rx tx"], holders: Bool[Array, " node"]) -> Tree:
    """Return the tree over the holders, and its root, that cost the least with what follows.

    >>> import jax.numpy as jnp
    >>> place = jnp.arange(3.0)  # node 1 is in the middle
    >>> line = jnp.abs(place[:, None] - place[None]) ** 2
    >>> best_tree(line, jnp.ones(3, bool)).parent.tolist()
    [1, -1, 1]
    """
    nodes = len(holders)
    own = jnp.eye(nodes, dtype=bool)
    cost = jnp.minimum(jnp.where(own, jnp.inf, cost_slots), FAR_SLOTS)
    trees = jax.vmap(lambda root: _grown(cost, holders, root))(jnp.arange(nodes))
    way = jnp.max(_ways(jnp.where(own, 0.0, cost)), axis=0)  # to the last node, by root
    total = jnp.where(holders, trees.cost_slots + way, jnp.inf)
    return jax.tree.map(lambda each: each[jnp.argmin(total)], trees)


def _grown(cost: Array, holders: Array, root: Array) -> Tree:
    """Return the tree of a root: always the node that is cheapest to any node in the tree."""
    nodes = len(holders)
    first = jnp.arange(nodes) == root

    def grow(_: int, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        inside, parent, total = at
        edge = jnp.where(inside[:, None] & (holders & ~inside)[None], cost, jnp.inf)
        to, new = jnp.divmod(jnp.argmin(edge).astype(jnp.int32), nodes)
        found = jnp.isfinite(edge[to, new])
        parent = jnp.where(found & (jnp.arange(nodes) == new), to, parent)
        inside = inside | (found & (jnp.arange(nodes) == new))
        return inside, parent, total + jnp.where(found, edge[to, new], 0.0)

    start = (first, jnp.full(nodes, -1, jnp.int32), jnp.zeros((), cost.dtype))
    _, parent, total = lax.fori_loop(0, nodes - 1, grow, start)
    return Tree(parent, total)


def _ways(cost: Float[Array, "rx tx"]) -> Float[Array, "rx tx"]:
    """Return the shortest ways from each node to each other, over any nodes between."""

    def over(k: int, ways: Array) -> Array:
        return jnp.minimum(ways, ways[:, k, None] + ways[k][None])

    return lax.fori_loop(0, len(cost), over, cost)


def least_slots(cost_slots: Float[ArrayLike, "*block rx tx"]) -> float:
    """Return the slots of band time below which no scheme can be, in blocks of these costs.

    Every node has to send at least once, at its cheapest link c_k. The node w that is hardest to
    reach has to hear somebody: one transfer of some k takes c_wk or more. Where costs change, each
    link is taken at its best in all blocks: nobody can know that in advance.

    >>> least_slots([[9.0, 2.0], [3.0, 9.0]])
    5.0
    """
    cost = np.asarray(cost_slots, float)
    cost = cost.reshape(-1, *cost.shape[-2:]).min(axis=0)
    nodes = len(cost)
    if nodes < 2:
        return 0.0
    cost = np.where(np.eye(nodes, dtype=bool), np.inf, cost)
    send = cost.min(axis=0)
    return float(send.sum() + (cost - send[None]).min(axis=1).max())
