"""DRACO: own clocks for computing and for sending; what travels are updates, of which few are used.

    u_i <- -eta grad F_i(x_i),   Delta_i <- Delta_i + u_i                  on the clock of computing
    broadcast Delta_i, Delta_i <- 0                                        on the clock of sending
    x_i <- x_i + q_ii u_i + sum_j q_ij Delta_j     over what came          rows of q sum to 1

No node waits, and no schedule ties sending to computing: after a gradient a node sends with the
chance `send_chance`, all that it has added up since it last sent. An update that comes is used
once, with weights q_ij of the receiver's own row, so that a sender need not know who hears it. In a
window of `window` gradients a node uses at most Psi = `most_received` messages; the others are
dropped, which saves their reception and their use. A message has S bits and its number.

Messages are differences, and none is repeated: an update that is lost, or overtaken by the next
one, is missing at that receiver for good, and models drift apart by it. With equal weights on a
complete graph, Psi left out and no losses, models move by the mean gradient, as FedAvg's.

Differs from [1], of which the abstract alone was read: the rule is as recalled, not verified. The
clock of sending ticks at gradients with a chance, where [1] has two Poisson clocks; the window is
counted in the receiver's own gradients; of more messages in a slot than it has room for, those of
lower numbers are used; rows are equal parts 1 / (in_i + 1) on a graph that stays;
one broadcast reaches all neighbours. Full-batch gradients unless the problem has mini-batches.

[1] E. Jeong, M. Kountouris. DRACO: Decentralized Asynchronous Federated Learning over
    Row-Stochastic Wireless Networks. IEEE Open Journal of the Communications Society 6, 2025.
    arXiv:2406.13533
"""

from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph, even_parts
from folkman.algorithm.travel import Broadcast
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["UpdateState", "draco"]

BIBTEX = r"""@article{draco,
  author = {Jeong, Eunjeong and Kountouris, Marios},
  title = {{DRACO}: Decentralized Asynchronous Federated Learning over Row-Stochastic Wireless
    Networks},
  journal = {IEEE Open Journal of the Communications Society},
  volume = {6},
  year = {2025},
  eprint = {2406.13533},
  archiveprefix = {arXiv},
}"""


class UpdateState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    waiting: Array  # (d,) Delta_i: updates since the last message was formed
    outgoing: Array  # (d,) the message that is formed
    number: Array  # () number of that message
    sent: Array  # () number of the last one that went on the air
    seen: Array  # (node,) number of the newest message of each
    used: Array  # () messages used in this window
    updates: Array  # () gradients done


@method
def draco(
    step: Number = 0.1,
    send_chance: Number = 0.5,  # chance that a node sends after a gradient
    most_received: int | None = None,  # messages used in a window, Psi; None: all
    window: int = 10,  # length of a window, in gradients
    graph: Graph = Graph("complete"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build DRACO with Psi = `most_received` messages in a window; None: all.

    >>> draco(most_received=4).declares.price.bits(100, 32)
    (3232,)
    """
    eta = step_size(step, decay)
    graph.check_fixed("draco")
    require(
        within(send_chance, 0, 1),
        f"send_chance is the chance to send after a gradient, in [0, 1], got {send_chance}",
    )
    require(
        most_received is None or most_received >= 1,
        f"most_received must be at least 1, got {most_received}; leave it out to use all messages",
    )
    require(window >= 1, f"window must be at least 1 gradient, got {window}")

    def init(params: Array, place: Place) -> UpdateState:
        none, zero = jnp.zeros_like(params), jnp.zeros((), jnp.int32)
        seen = jnp.zeros(place.num_nodes, jnp.int32)
        return UpdateState(params, none, none, zero, zero, seen, zero, zero)

    def receive(state: UpdateState, inbox: Inbox) -> UpdateState:
        """Use what came, the newest of each sender once, as long as the window has room."""
        dim = len(state.params)
        number = inbox.store[inbox.row, dim].astype(jnp.int32)
        comes = inbox.heard & inbox.finite & (inbox.weight > 0) & (number > state.seen)
        order = state.used + jnp.cumsum(comes, dtype=jnp.int32)
        taken = comes if most_received is None else comes & (order <= most_received)
        parts, _ = even_parts(inbox)
        came = inbox.mix(jnp.where(taken, parts, 0.0))[:dim]
        return state._replace(
            params=state.params + came,
            seen=jnp.where(comes, number, state.seen),
            used=state.used + jnp.sum(taken, dtype=jnp.int32),
        )

    def update(
        state: UpdateState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> UpdateState:
        del loss
        _, own = even_parts(inbox)
        move = -eta(state.updates, grad.dtype) * grad
        total, updates = state.waiting + move, state.updates + 1
        sends = jax.random.uniform(key, (), jnp.float32) < send_chance
        return state._replace(
            params=state.params + own * move,
            waiting=jnp.where(sends, jnp.zeros_like(total), total),
            outgoing=jnp.where(sends, total, state.outgoing),
            number=state.number + sends,
            used=jnp.where(updates % window == 0, 0, state.used),
            updates=updates,
        )

    built = Algorithm(
        name="draco",
        init=init,
        point=lambda state, _: state.params,
        update=update,
        message=lambda state: jnp.append(state.outgoing, state.number.astype(state.outgoing.dtype)),
        params=lambda state: state.params,
        receive=receive,
        model=lambda state, inbox: receive(state, inbox).params,
        travel=Broadcast(
            mixing=graph.mixing(),
            has_news=lambda state: state.number > state.sent,
            notes=lambda state: state._replace(sent=state.number),
        ),
        declares=Declares(
            price=Price(lambda dim, each: (each * dim + 32,)),
            differences=True,
            draws=True,
            evenly=True,
            verified=RECALLED,
        ),
    )
    return descent.of(built)
