"""One transfer after the other on the whole band, for messages that somebody waits for.

Where nodes wait for each other, what counts is when the last transfer has ended. Two rules serve
this, wherever `schedule = "index"` carries rounds, an all-reduce or uploads to a station:

    index      Of the transfers that could start now, the one with the most receivers that still
               wait, by the slots that it takes. As in `folkman.radio.fresh` the best receivers of a
               sender are a prefix of those that wait, by their cost.
    patience   The fading of a link is drawn anew in every slot. So a transfer of c slots is worth
               starting only if waiting for the next slot, which is u slots away, costs more:
               c <= u + V. V is what the link costs for who waits well, V = E[min(c, 1 + V)]. Its
               two ends learn it from the rates that they measure, a step a block:
               V <- V + g (min(c, 1 + V) - V), with g = 1/k in the k-th block, 1/10 at least.

Without patience the worst link in its worst block would decide about a whole round.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from folkman.radio import fresh

__all__ = ["EDGE_SLOTS", "LEAST_RATE", "Patience", "Turn", "at_edge", "broadcast", "no_patience"]

LEAST_RATE = 0.1
"""Of learning what a link costs, once ten blocks were seen."""

EDGE_SLOTS = 1e-5
"""A transfer that ends so near the end of a slot ends with it: ten tenths are a slot."""


class Patience(NamedTuple):
    """What links cost for who waits well, learnt so far."""

    slots: Float[Array, "..."]  # V of each link, inf before its first block
    blocks: Int[Array, ""]  # seen so far

    def after(self, cost_slots: Float[Array, "..."]) -> "Patience":
        """Return what is known after a block; a link that cannot be used in it teaches nothing."""
        rate = jnp.maximum(LEAST_RATE, 1.0 / (self.blocks + 1))
        known = jnp.isfinite(self.slots)
        before = jnp.where(known, self.slots, 0.0)
        met = jnp.where(jnp.isfinite(cost_slots), cost_slots, 0.0)
        learnt = before + rate * (jnp.minimum(met, 1.0 + before) - before)
        learnt = jnp.where(known, learnt, met)
        slots = jnp.where(jnp.isfinite(cost_slots), learnt, self.slots)
        return Patience(slots, self.blocks + 1)

    def now(self, cost_slots: Float[Array, "..."], left_slots: ArrayLike) -> Float[Array, "..."]:
        """Return the costs of links that are worth using in this block, inf for the others."""
        return jnp.where(cost_slots <= left_slots + self.slots, cost_slots, jnp.inf)


def no_patience(*shape: int) -> Patience:
    """Return the state before the first block, in which everything is worth starting."""
    return Patience(jnp.full(shape, jnp.inf, jnp.float32), jnp.zeros((), jnp.int32))


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
    offered = fresh.offers(waiting.astype(cost.dtype), fresh.rank(cost))
    choice = fresh.pick(offered, cost)
    return Turn(choice.value, choice.sender, choice.receivers, choice.slots)


def at_edge(busy: Array) -> Array:
    """Return a time that lies next to the end of a slot as that end."""
    edge = jnp.round(busy)
    return jnp.where(jnp.abs(busy - edge) < EDGE_SLOTS, jnp.maximum(edge, 0.0), busy)
