"""How messages reach others: six ways, each a type. An engine finds its half of a way by the type.

    Broadcast   between peers on their own beat: of each neighbour only the freshest message is
                seen, so losing, repeating or delaying one must be harmless
    Rounds      between peers in lock-step: when all nodes are ready, the messages of this moment
                reach all neighbours, and `inbox.heard` is True at once for all of them and for the
                node itself
    AllReduce   rounds in which a node uses the sum of all messages by data share, and no single
                one: they may travel as partial sums
    OnAir       rounds in which a node uses the weighted sum of its neighbours' messages, and no
                single one: the sum may be formed on the air
    Star        around a server: a node's only neighbour is the server
    Hierarchy   in cells, each around its station, and the stations around a root

A way also says when a node computes: always, or until it is ready for a round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from folkman.arrays import Array, jnp

if TYPE_CHECKING:
    from folkman.algorithm.base import Inbox, Price

__all__ = [
    "AllReduce",
    "Broadcast",
    "Mixing",
    "OnAir",
    "Rounds",
    "Server",
    "Star",
    "State",
    "Travel",
]

State: TypeAlias = Any  # a NamedTuple of arrays


class Mixing(NamedTuple):
    """The weights between peers: W (node, node), own weight on the diagonal, 0 for no edge.

    With `waits` a round in lock-step lasts until every edge has been served; without, until each
    node has been on the air once, and `weights(heard)` may follow who was heard, (rx, tx) bool.

    Where each round has its own edges, `in_round(nodes, round)` are the weights of a round, counted
    from 0; the round is an array that broadcasts with (rx, tx), as on devices some nodes are ahead.
    `weights` are then positive where two nodes ever meet.
    """

    weights: Callable[[Array], Array]  # who heard whom (rx, tx) -> W
    waits: bool = True  # whether a round lasts until every edge is served
    # (number of nodes, round) -> W of that round; None: the same in all
    in_round: Callable[[int, Array], Array] | None = None


class Server(NamedTuple):
    """The server's side of a centralised method: a node that computes no gradient.

    `offers(state)` (node,) tells to whom the server wants to send `message(state)` now.
    """

    init: Callable[[Array, int], State]  # (w0, num_nodes) -> state
    receive: Callable[[State, "Inbox", Array], State]  # (state, inbox, key), in every slot
    offers: Callable[[State], Array]  # state -> to whom it wants to send now, (node,)
    message: Callable[[State], Array]  # state -> what it sends
    params: Callable[[State], Array]  # state -> its model (d,)
    rounds: Callable[[State], Array]  # state -> aggregations so far
    # versions behind of each upload that arrives, where those of one slot are taken one by one;
    # None: aggregations since the model was formed that it began from
    late: Callable[[State, "Inbox"], Array] | None = None
    # what a message costs; None: every entry at the price of a parameter
    price: "Price | None" = None


def _yes(state: State) -> Array:
    del state
    return jnp.asarray(True)


def _no(state: State) -> Array:
    del state
    return jnp.asarray(False)


def _never(state: State, inbox: "Inbox") -> Array:
    del state, inbox
    return jnp.asarray(False)


class Travel:
    """A way to travel. What it says of a node's pace is the same question for all of them."""

    role: ClassVar[str]  # as a list of methods has it
    a_round: ClassVar[str]  # who sends in a round, for a price: I nodes, or one broadcast

    @property
    def servers(self) -> tuple[Server, ...]:
        """Return the sides of the method that compute no gradient, the nearest to a node first."""
        return ()

    @property
    def may_wait(self) -> bool:
        """Tell whether there may be slots in which a node does not want a gradient."""
        return True

    def computes(self, state: State) -> Array:
        """Tell whether the node wants a gradient in this slot."""
        return _yes(state)

    def offers(self, state: State) -> Array:
        """Tell whether the node has something to send."""
        return _yes(state)

    def restarts(self, state: State, inbox: "Inbox") -> Array:
        """Tell whether the node gives up the gradient it is working on."""
        return _never(state, inbox)

    @property
    def knows_sends(self) -> bool:
        """Tell whether a node's state depends on when its messages go on the air."""
        return False

    def after_sending(self, state: State) -> State:
        """Return the state of a node whose message has gone on the air."""
        return state


@dataclass(frozen=True)
class Broadcast(Travel):
    """Between peers on their own beat; `mixing` None: inboxes are weighted by the data shares.

    What is not new is not sent. With `has_news` None a message is new when the node has finished a
    gradient since its last broadcast; a method whose message changes at other times says itself
    when there is something to send.
    A method that must know when its message goes on the air says by `notes` what it remembers then.
    Whether the message arrives nobody tells.
    """

    role = "peers, asynchronous"
    a_round = "a broadcast: {up}"

    mixing: Mixing | None = None  # weights between peers; None: data shares
    # state -> whether there is something to send; None: after each gradient
    has_news: Callable[[State], Array] | None = None
    # state -> state when the message goes on the air; None: the same
    notes: Callable[[State], State] | None = None
    rests: Callable[[State], Array] = _no  # state -> whether the node waits with its next gradient

    @property
    def may_wait(self) -> bool:
        """Tell whether there are slots in which a node does not want a gradient."""
        return self.rests is not _no

    def computes(self, state: State) -> Array:
        """Tell whether the node wants a gradient in this slot."""
        return ~self.rests(state)

    def offers(self, state: State) -> Array:
        """Tell whether the node has something to send; with `has_news` None its carrier knows."""
        return _yes(state) if self.has_news is None else self.has_news(state)

    @property
    def knows_sends(self) -> bool:
        """Tell whether a node's state depends on when its messages go on the air."""
        return self.notes is not None

    def after_sending(self, state: State) -> State:
        """Return the state of a node whose message has gone on the air."""
        return state if self.notes is None else self.notes(state)


@dataclass(frozen=True)
class Rounds(Travel):
    """Between peers in lock-step: a node computes until it is `ready`, then offers its message."""

    role = "peers, in lock-step"
    a_round = "I ({up})"

    ready: Callable[[State], Array]  # state -> whether its part of the round is done
    # weights between peers; None: everyone hears everyone, weighted by the data shares
    mixing: Mixing | None = None

    def computes(self, state: State) -> Array:
        """Tell whether the node's part of the round is not done yet."""
        return ~self.ready(state)

    def offers(self, state: State) -> Array:
        """Tell whether the node's part of the round is done."""
        return self.ready(state)


@dataclass(frozen=True)
class AllReduce(Rounds):
    """Between all peers in lock-step: a node uses the sum of all messages by data share alone.

    Its inbox has all nodes with their shares, the node itself among them: `inbox.mix()` is the sum.
    """

    role = "peers, in lock-step, all-reduce"


@dataclass(frozen=True)
class OnAir(Rounds):
    """Between peers in lock-step: a node uses `inbox.mix()`, and no weight or message of its own.

    Where a network forms sums on the air, the air is a node's only neighbour: the weights are those
    of the channel, which no node knows. Elsewhere messages arrive one by one, with those of
    `mixing`.
    """

    role = "peers, in lock-step, sums on the air"


@dataclass(frozen=True)
class Star(Travel):
    """Around a server: a node computes until it is `ready`, then uploads and waits."""

    role = "server"
    a_round = "I ({up}) + {down}"

    server: Server  # the server's side
    ready: Callable[[State], Array]  # state -> whether its part of the round is done
    # state -> whether a node that is ready uploads; None: always
    uploads: Callable[[State], Array] | None = None
    # (state, inbox) -> whether the gradient in work is dropped
    gives_up: Callable[[State, "Inbox"], Array] = _never

    @property
    def servers(self) -> tuple[Server, ...]:
        """Return the server."""
        return (self.server,)

    def computes(self, state: State) -> Array:
        """Tell whether the node has work left."""
        return ~self.ready(state)

    def offers(self, state: State) -> Array:
        """Tell whether the node has an upload."""
        ready = self.ready(state)
        return ready if self.uploads is None else ready & self.uploads(state)

    def restarts(self, state: State, inbox: "Inbox") -> Array:
        """Tell whether a new model ends the work on the one before."""
        return self.gives_up(state, inbox)
