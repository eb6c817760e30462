"""One transfer after the other on the whole band, for messages that somebody waits for.

Where nodes wait for each other, what counts is when the last transfer has ended. Two rules serve
this, wherever `schedule = "index"` carries rounds, an all-reduce or uploads to a station:

    index      Of the transfers that could start now, the one with the most receivers that still
               wait, by the slots that it takes. As in `folkman.radio.fresh` the best receivers of a
               sender are a prefix of those that wait, by their cost.
    patience   The fading of a link is drawn anew in every slot. So a transfer of c slots is worth
               starting only if waiting for the next slot, which is u slots away, costs more:
               c <= u + V. V is what the link costs for who waits well, V = E[min(c, 1 + V)]. Its
               two ends know it from the costs of the last 16 blocks, over which the mean is taken;
               before, the blocks that are missing count, together, as one of a slot at most.

Without patience the worst link in its worst block would decide about a whole round.
"""

from typing import NamedTuple

from folkman.arrays import Array, ArrayLike, Bool, Float, Int, jnp, lax
from folkman.radio import fresh

__all__ = [
    "BLOCKS",
    "EDGE_SLOTS",
    "Patience",
    "Turn",
    "at_edge",
    "broadcast",
    "no_patience",
    "worth_waiting",
]

BLOCKS = 16
"""Whose costs the ends of a link remember."""

HALVINGS = 30
"""Steps of the search for V: it is then right to a billionth of the largest cost."""

EDGE_SLOTS = 1e-5
"""A transfer that ends so near the end of a slot ends with it: ten tenths are a slot."""


class Patience(NamedTuple):
    """What links cost for who waits well, learnt so far."""

    slots: Float[Array, "..."]  # V of each link
    costs: Float[Array, "block ..."]  # of the last blocks, inf where there was none
    blocks: Int[Array, ""]  # seen so far

    def after(self, cost_slots: Float[Array, "..."]) -> "Patience":
        """Return what is known after a block; a link that cannot be used in it teaches nothing."""
        place = self.blocks % BLOCKS
        met = jnp.where(jnp.isfinite(cost_slots), cost_slots, self.costs[place])
        costs = self.costs.at[place].set(met)
        return Patience(worth_waiting(costs), costs, self.blocks + 1)

    def now(self, cost_slots: Float[Array, "..."], left_slots: ArrayLike) -> Float[Array, "..."]:
        """Return the costs of links that are worth using in this block, inf for the others."""
        return jnp.where(cost_slots <= left_slots + self.slots, cost_slots, jnp.inf)


def worth_waiting(costs: Float[Array, "block ..."]) -> Float[Array, "..."]:
    """Return V = mean of min(c, 1 + V) over the blocks in which a link could be used.

    By halving: the mean less V is 1 or less at V = 0, falls with V, and is not above 0 at the
    largest cost. As long as k blocks of n are missing, a cost of one slot has the weight k/n of a
    block: otherwise the first block, however bad, would be taken for the usual one.

    >>> import jax.numpy as jnp
    >>> round(float(worth_waiting(jnp.array([0.5, 100.0]))), 6)  # half of the slots are good
    1.5
    """
    known = jnp.isfinite(costs)
    missing = 1.0 - jnp.mean(known.astype(costs.dtype), axis=0)
    met = jnp.where(known, costs, 0.0)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        rest = jnp.where(known, jnp.minimum(met, 1.0 + middle[None]) - middle[None], 0.0)
        above = jnp.sum(rest, axis=0) + missing * (1.0 - middle) > 0
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    largest = jnp.maximum(jnp.max(met, axis=0), 1.0)
    _, found = lax.fori_loop(0, HALVINGS, halve, (jnp.zeros_like(largest), largest))
    return found


def no_patience(*shape: int) -> Patience:
    """Return the state before the first block."""
    none = jnp.full((BLOCKS, *shape), jnp.inf, jnp.float32)
    return Patience(worth_waiting(none), none, jnp.zeros((), jnp.int32))


class Turn(NamedTuple):
    """The transfer that comes next."""

    value: Float[Array, ""]  # 0: none is worth starting in this block
    sender: Int[Array, ""]
    receivers: Bool[Array, " rx"]
    slots: Float[Array, ""]


def broadcast(waiting: Bool[Array, "rx tx"], cost_slots: Float[Array, "rx tx"]) -> Turn:
    """Return the sender, and the prefix of those that wait for it, with the largest index.

    >>> import jax.numpy as jnp
    >>> cost = jnp.array([[1.0, 4.0, 9.0], [1.0, 1.0, 5.0], [3.0, 1.5, 1.0]])
    >>> turn = broadcast(~jnp.eye(3, dtype=bool), cost)
    >>> int(turn.sender), turn.receivers.tolist(), float(turn.slots)
    (0, [False, True, False], 1.0)
    """
    cost = jnp.where(waiting, cost_slots, jnp.inf)
    offered = fresh.offers(waiting.astype(cost.dtype), cost)
    choice = fresh.pick(offered, cost)
    return Turn(choice.value, choice.sender, choice.receivers, choice.slots)


def at_edge(busy: Array) -> Array:
    """Return a time that lies next to the end of a slot as that end."""
    edge = jnp.round(busy)
    return jnp.where(jnp.abs(busy - edge) < EDGE_SLOTS, jnp.maximum(edge, 0.0), busy)
