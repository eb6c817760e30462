"""Nodes that go wrong: away for a while, gone for good, or sending what they did not compute.

    away     [(node, from, to)]     frozen in slots from .. to-1: computes, hears and sends nothing,
                                    keeps its state
    crash    [(node, at, back)]     the same, and starts again from the first model in slot `back`;
                                    None: never
    liars    a share of the nodes, the first ones, sends instead of its model w
                 noise       scale times a standard normal draw
                 sign_flip   w(0) - scale (w - w(0)): its update, reversed; of a method that sends
                             differences, -scale times the difference

What was on the air when a node went away still arrives. Messages that are lost are the network's
part: `folkman.radio.loss`.
"""

from math import ceil
from typing import Literal, NamedTuple

from folkman.arrays import Array, jax, jnp
from folkman.checks import require
from folkman.keys import Stream

__all__ = ["NO_FAULTS", "Faults"]

NEVER = 2**30


class Faults(NamedTuple):
    """What goes wrong, when and where; the default is nothing."""

    # when nodes are away: (node, first slot away, first slot back)
    away: tuple[tuple[int, int, int], ...] = ()
    # when nodes crash: (node, first slot away, slot of its new start; None: never)
    crash: tuple[tuple[int, int, int | None], ...] = ()
    liars: float = 0.0  # share of the nodes that lie, the first ones
    # what liars send: their message turned round, or noise
    attack: Literal["noise", "sign_flip"] = "sign_flip"
    # strength of the attack: a factor of the message, or the deviation of the noise
    scale: float = 1.0

    def check(self, num_nodes: int) -> None:
        """Refuse faults that cannot happen to `num_nodes` nodes."""
        for node, start, back in (*self.away, *self.crash):
            require(
                0 <= node < num_nodes,
                f"a fault names node {node}, there are nodes 0 .. {num_nodes - 1}",
            )
            later = back is None or back > start
            last = start if back is None else max(start, back)
            require(
                last < NEVER,
                f"slots of faults must be below {NEVER}, got {last} of node {node}; lower it",
            )
            require(
                start >= 0 and later,
                f"node {node} cannot go away in slot {start} and be back in slot {back}",
            )
        require(0 <= self.liars < 1, f"liars is a share of the nodes in [0, 1), got {self.liars}")
        known = ("noise", "sign_flip")
        require(
            self.attack in known, f"there is no attack '{self.attack}'; known: {', '.join(known)}"
        )

    @property
    def all_there(self) -> bool:
        """Tell whether all nodes are there in all slots."""
        return not self.away and not self.crash

    @property
    def leaves_for_good(self) -> bool:
        """Tell whether some node never comes back."""
        return any(back is None for *_, back in self.crash)

    def present(self, num_nodes: int, slot: Array) -> Array:
        """Tell which nodes are there in a slot, (node,) bool."""
        every = (*self.away, *self.crash)
        if not every:
            return jnp.ones(num_nodes, bool)
        # one table, however many there are: a trace of devices may name thousands
        node, start, back = (
            jnp.asarray([NEVER if each is None else each for each in column], jnp.int32)
            for column in zip(*every, strict=True)
        )
        gone = (slot >= start) & (slot < back)
        own = node[:, None] == jnp.arange(num_nodes, dtype=jnp.int32)[None]
        return ~jnp.any(gone[:, None] & own, axis=0)

    def receives(self, num_nodes: int, slot: Array) -> Array:
        """Return to which nodes a message can be brought in a slot, (node,) bool.

        These are the nodes that are there.
        """
        return self.present(num_nodes, slot)

    def begins_anew(self, num_nodes: int, slot: Array) -> Array:
        """Tell which nodes start again from the first model in this slot, (node,) bool."""
        anew = jnp.zeros(num_nodes, bool)
        for node, _, back in self.crash:
            if back is not None:
                anew = anew.at[node].set(anew[node] | (slot == back))
        return anew

    @property
    def starts_anew(self) -> bool:
        """Tell whether some node comes back without its state."""
        return any(back is not None for *_, back in self.crash)

    def corrupt(
        self,
        messages: Array,  # what honest nodes would send, (node, message)
        initial: Array,  # w(0), (d,)
        key: Array,
        *,
        about_zero: bool = False,  # whether a message is a difference of models
    ) -> Array:
        """Return what is sent instead of `messages` (node, message).

        The model is in the first d entries.

        `initial` is the first model (d,). `about_zero`: the message is a difference of models, and
        its reverse is its negative.
        """
        count, dim = ceil(self.liars * len(messages)), len(initial)
        if count == 0:
            return messages
        model = messages[:count, :dim]
        first = jnp.zeros_like(initial)[None] if about_zero else initial[None]
        if self.attack == "noise":
            draws = jax.random.normal(
                jax.random.fold_in(key, int(Stream.FAULT)), model.shape, model.dtype
            )
            false = self.scale * draws
        else:
            false = first - self.scale * (model - first)
        return messages.at[:count, :dim].set(false)


NO_FAULTS = Faults()
