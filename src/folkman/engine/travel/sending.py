"""What a sender puts on the air: its message, packed, and what it remembers of the rest.

A medium packs at the sender, when a message is sent. `Sending` says how one kind of sender does it;
`Links` are the memories of error feedback, one a row: a node, or a link of a server to one node. A
memory moves when the message has arrived, so that one that is given up half way changes nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from folkman.keys import node_keys
from folkman.packing.memory import first_memory, send
from folkman.packing.packing import Packing, pack_message

__all__ = ["Links", "Senders", "Sending", "distinct"]


class Senders(NamedTuple):
    """What the draws of packings follow from: the run's key, and how far each node is."""

    key: Array
    steps: Int[Array, " node"]  # gradients finished


class Links(NamedTuple):
    """The memories of some senders, and those that hold once what is on its way has arrived."""

    kept: Float[Array, "link d"]
    coming: Float[Array, "link d"]
    # of all messages that a memory has taken in: where these are equal, so are the memories
    past: Int[Array, " link"]
    coming_past: Int[Array, " link"]

    def started(self, mask: Array, memory: Array, slot: Array) -> "Links":
        """Return the memories after some senders began to send."""
        past = (self.past * 31 + slot + 1).astype(jnp.int32)
        return self._replace(
            coming=jnp.where(mask[:, None], memory, self.coming),
            coming_past=jnp.where(mask, past, self.coming_past),
        )

    def arrived(self, mask: Array) -> "Links":
        """Return the memories after what some of them sent has arrived."""
        return self._replace(
            kept=jnp.where(mask[:, None], self.coming, self.kept),
            past=jnp.where(mask, self.coming_past, self.past),
        )


class Sending(NamedTuple):
    """How one kind of sender packs."""

    packing: Packing
    dim: int
    adds: bool = False  # do receivers add messages up?

    def first(self, messages: Float[Array, "link message"]) -> Links | None:
        """Return the memories before anything was sent; nothing without error feedback."""
        if not self.packing.remembers:
            return None
        memory = first_memory(messages, self.dim, adds=self.adds)
        none = jnp.zeros(len(messages), jnp.int32)
        return Links(memory, memory, none, none)

    def send(
        self, links: Links | None, messages: Float[Array, "link message"], keys: Array
    ) -> tuple[Float[Array, "link message"], Array]:
        """Return the messages as receivers hold them, and the memories after them (link, d)."""
        packing, dim = self.packing, self.dim
        if packing.exact:
            return messages, messages[:, :0]
        if links is None:
            seen = jax.vmap(lambda m, key: pack_message(packing, m, dim, key))(messages, keys)
            return seen, messages[:, :0]

        def one(memory: Array, message: Array, key: Array) -> tuple[Array, Array]:
            return send(packing, memory, message, key, adds=self.adds)

        memory, seen = jax.vmap(one)(links.kept, messages, keys)
        return seen, memory

    def keys(self, senders: Senders, numbers: Array, steps: Array) -> Array:
        """Return a key for each sender; without a draw it is never looked at."""
        if not self.packing.draws:
            return jnp.broadcast_to(senders.key, steps.shape)
        return node_keys(senders.key, numbers, steps)


def distinct(links: Links | None, mask: Array) -> Array:
    """Return how many different messages the links of a mask carry when they send one model."""
    if links is None:
        return jnp.any(mask).astype(jnp.int32)
    same = links.past[:, None] == links.past[None]
    earlier = same & mask[None] & (jnp.arange(len(mask))[None] < jnp.arange(len(mask))[:, None])
    return jnp.sum(mask & ~jnp.any(earlier, axis=1), dtype=jnp.int32)
