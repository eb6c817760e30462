"""Client sampling: how many nodes work for a server at a time.

With `participation` P below 1 the server lets n = ceil(P I) nodes work at a time.

    in rounds     it draws n nodes after each round, all sets alike, and sends its model to them
    at any time   whoever would be answered waits; while fewer than n work, the server draws from
                  all that wait, each alike, and answers those

Before its first message a server cannot draw: all nodes begin to work from the common first model.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

from folkman.algorithm.base import Inbox, State
from folkman.algorithm.pieces.sparsity import lowest
from folkman.algorithm.travel import Server
from folkman.arrays import Array, jax, jnp
from folkman.checks import require
from folkman.keys import Stream

__all__ = ["EVERYONE", "Sampled", "Sampling", "sampled"]


class Sampling(NamedTuple):
    """The part P of the nodes that works at a time; an option of a method."""

    participation: float = 1.0  # part of the nodes that works at a time, P; 1: all

    def check(self) -> None:
        """Refuse what is no part of the nodes."""
        require(
            0 < self.participation <= 1,
            "participation is a part of the nodes, above 0 and at most 1, got "
            f"{self.participation}",
        )

    @property
    def whole(self) -> bool:
        """Tell whether all nodes take part."""
        return self.participation == 1

    def number(self, num_nodes: int) -> int:
        """Return n."""
        return ceil(self.participation * num_nodes)

    def drawn(self, key: Array, num_nodes: int) -> Array:
        """Return n of the nodes, (node,) bool."""
        return jax.random.permutation(key, num_nodes) < self.number(num_nodes)


EVERYONE = Sampling()


class Sampled(NamedTuple):
    """What a server remembers that answers some at a time."""

    inner: State  # what the method's server remembers
    waiting: Array  # (node,) bool: who would have been answered
    answers: Array  # (node,) bool: who is answered now


def sampled(
    server: Server,
    sampling: Sampling,  # the part of the nodes that works at a time
    # number of nodes -> uploads that the method waits for; None: one
    needs: Callable[[int], int] | None = None,
) -> Server:
    """Return a server that lets n nodes work at a time.

    Of this many nodes its method `needs` so many to go on; None: one.
    """
    sampling.check()
    if sampling.whole:
        return server

    def init(params: Array, num_nodes: int) -> Sampled:
        number, wanted = sampling.number(num_nodes), 1 if needs is None else needs(num_nodes)
        require(
            wanted <= number,
            f"the server waits for {wanted} uploads and lets {number} of {num_nodes} nodes work; "
            f"raise participation to {wanted / num_nodes:g}",
        )
        nobody = jnp.zeros(num_nodes, bool)
        return Sampled(server.init(params, num_nodes), waiting=nobody, answers=nobody)

    def receive(state: Sampled, inbox: Inbox, key: Array) -> Sampled:
        inner = server.receive(state.inner, inbox, key)
        waiting = state.waiting | server.offers(inner)
        working = jnp.sum(~waiting, dtype=jnp.int32)
        free = jnp.maximum(sampling.number(len(waiting)) - working, 0)
        own = jax.random.fold_in(key, int(Stream.SERVER))  # apart from the method's own draws
        ticket = jax.random.uniform(own, waiting.shape, jnp.float32)
        answers = waiting & lowest(jnp.where(waiting, ticket, jnp.inf), free)
        return Sampled(inner, waiting=waiting & ~answers, answers=answers)

    late, price = server.late, server.price
    return Server(
        init=init,
        receive=receive,
        offers=lambda state: state.answers,
        message=lambda state: server.message(state.inner),
        params=lambda state: server.params(state.inner),
        rounds=lambda state: server.rounds(state.inner),
        late=None if late is None else lambda state, inbox: late(state.inner, inbox),
        price=None if price is None else price._replace(form=lambda state: price.form(state.inner)),
    )
