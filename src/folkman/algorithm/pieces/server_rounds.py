"""Methods in rounds around a server: what happens in a round, without the bookkeeping of rounds.

    in a round     the server's message reaches the nodes that take part; each takes E gradients
                   and uploads
    between two    when all of them have uploaded, the server aggregates and draws who is next

A method says what its node makes of the server's message, of a gradient and of its work, and what
its server makes of the uploads. Counting, waiting and drawing (`pieces/sampling.py`) is done here.
"""

from collections.abc import Callable
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place, State
from folkman.algorithm.pieces.sampling import EVERYONE, Sampling
from folkman.algorithm.pieces.server_side import received
from folkman.algorithm.travel import Server, Star
from folkman.arrays import Array, jax, jnp
from folkman.checks import require

__all__ = ["Centre", "Half", "HalfState", "Round", "in_server_rounds"]


class Half(NamedTuple):
    """The node's half of a method; a memory is a NamedTuple that has `params`."""

    first: Callable[[Array], State]  # w(0) -> memory
    begin: Callable[[State, Array], State]  # (memory, the server's message) -> memory
    descend: Callable[[State, Array, Array], State]  # (memory, gradient, updates before) -> memory
    upload: Callable[[State], Array]  # memory -> what the server gets


class Round(NamedTuple):
    """What a server has at the end of a round."""

    inbox: Inbox  # the newest upload of each node, zeros before its first
    weights: Array  # (node,) weights of those that took part and were finite, their sum is 1
    taken: Array  # () which part of all weights took part
    shares: Array  # (node,) alpha_i, or 1 / I where the method weighs nodes alike; of all nodes

    def mean(
        self,
        first: int,  # first entry
        last: int,  # the entry behind the last one
    ) -> Array:
        """Return the weighted mean of entries first .. last - 1 over those that took part."""
        return self.inbox.mix(self.weights)[first:last]


class Centre(NamedTuple):
    """The server's half of a method; a memory is a NamedTuple that has `params`."""

    first: Callable[[Array], State]  # w(0) -> memory
    aggregate: Callable[[State, Round], State]  # (memory, the round that ends) -> memory
    message: Callable[[State], Array]  # memory -> what all nodes get


class HalfState(NamedTuple):
    """What a node remembers."""

    memory: State
    steps: Array  # () local steps done in this round
    updates: Array  # () updates done in all

    @property
    def params(self) -> Array:
        """Return w_i."""
        return self.memory.params


class CentreState(NamedTuple):
    """What a server remembers."""

    memory: State
    arrived: Array  # (node,) bool: uploads of this round
    chosen: Array  # (node,) bool: who takes part in this round
    fresh: Array  # () bool: is there a new model to send?
    rounds: Array  # () k


def in_server_rounds(
    name: str,
    half: Half,  # the node's half of the method
    centre: Centre,  # the server's half of the method
    *,
    local_steps: int = 1,
    sampling: Sampling = EVERYONE,  # the part of the nodes that takes part in a round
    declares: Declares = Declares(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build an algorithm from its halves, with E = `local_steps`.

    It assumes that all nodes answer and none starts anew, and draws if not all take part.
    """
    require(
        local_steps >= 1,
        f"local_steps must be at least 1, got {local_steps}; 1 is one gradient a round",
    )
    sampling.check()

    def init(params: Array, place: Place) -> HalfState:
        del place
        zero = jnp.zeros((), jnp.int32)
        return HalfState(half.first(params), steps=zero, updates=zero)

    def receive(state: HalfState, inbox: Inbox) -> HalfState:
        begun = half.begin(state.memory, inbox.payload(0))  # a node's only neighbour
        new = HalfState(begun, jnp.zeros((), jnp.int32), state.updates)
        return jax.tree.map(lambda a, b: jnp.where(inbox.heard[0], a, b), new, state)

    def update(state: HalfState, inbox: Inbox, loss: Array, grad: Array, key: Array) -> HalfState:
        del inbox, loss, key
        memory = half.descend(state.memory, grad, state.updates)
        return HalfState(memory, state.steps + 1, state.updates + 1)

    def server_init(params: Array, num_nodes: int) -> CentreState:
        return CentreState(
            memory=centre.first(params),
            arrived=jnp.zeros(num_nodes, bool),
            chosen=jnp.ones(num_nodes, bool),
            fresh=jnp.asarray(False),
            rounds=jnp.zeros((), jnp.int32),
        )

    def shares_of(inbox: Inbox) -> Array:
        nodes = len(inbox.weight)
        return jnp.full_like(inbox.weight, 1 / nodes) if declares.evenly else inbox.weight

    def aggregate(state: CentreState, inbox: Inbox, key: Array) -> CentreState:
        nodes = len(inbox.heard)
        arrived = state.arrived | inbox.heard
        done = jnp.all(arrived | ~state.chosen)
        shares = shares_of(inbox)
        weights = shares * inbox.finite
        chosen = state.chosen
        if not sampling.whole:
            weights = weights * chosen
            chosen = jnp.where(done, sampling.drawn(key, nodes), chosen)
        taken = jnp.sum(weights)  # 0 where no upload is whole: NaN, which stops the run
        memory = centre.aggregate(state.memory, Round(inbox, weights / taken, taken, shares))
        kept = jax.tree.map(lambda a, b: jnp.where(done, a, b), memory, state.memory)
        return CentreState(kept, arrived & ~done, chosen, done, state.rounds + done)

    server = Server(
        init=server_init,
        receive=aggregate,
        offers=lambda state: state.fresh & state.chosen,
        message=lambda state: centre.message(state.memory),
        params=lambda state: state.memory.params,
        rounds=lambda state: state.rounds,
    )
    assumes = frozenset({Assumption.PRESENT, Assumption.STEADY}) | declares.assumes
    return Algorithm(
        name=name,
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: half.upload(state.memory),
        params=lambda state: state.params,
        receive=receive,
        model=received,
        travel=Star(server, ready=lambda state: state.steps >= local_steps),
        declares=declares._replace(
            assumes=assumes,
            exact=declares.exact and sampling.whole,
            draws=declares.draws or not sampling.whole,
        ),
    )
