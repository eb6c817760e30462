"""A method of one's own: mix the newest copies that came, then take a gradient step.

    x_i <- sum_j w_ij x_j - step grad F_i(x_i)

A method is a value made of pure functions. It sees one node: its state, what it holds of the
others (the inbox), and the gradient at the point that it asked for.
"""

from typing import NamedTuple

import folkman as fm
from folkman.arrays import Array


class GossipState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i


@fm.method  # lets methods that differ in a `Number` share one compiled program
def gossip(step: fm.Number = 0.5) -> fm.Algorithm:
    """Build the method; its parameters are the keys of its table in the configuration."""

    def update(
        state: GossipState, inbox: fm.Inbox, loss: Array, grad: Array, key: Array
    ) -> GossipState:
        del loss, key
        mixed = inbox.own_weight * state.params + inbox.mix()
        return GossipState(mixed - step * grad)

    return fm.Algorithm(
        name="gossip",
        init=lambda params, _: GossipState(params),
        point=lambda state, _: state.params,  # where the gradient is taken
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
    )
