"""A peer-to-peer algorithm of one's own: D-PSGD, combine then adapt, in 20 lines of code.

    x_i <- sum_j w_ij x_j - eta grad F_i(x_i)                                     [1, Algorithm 1]

[1] X. Lian et al. Can Decentralized Algorithms Outperform Centralized Algorithms? NeurIPS 2017.
    arXiv:1705.09056
"""

from typing import NamedTuple

import folkman as fm
from folkman.arrays import Array


class GossipState(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i


@fm.method
def gossip(step: fm.Number = 0.5) -> fm.Algorithm:
    def update(
        state: GossipState, inbox: fm.Inbox, loss: Array, grad: Array, key: Array
    ) -> GossipState:
        del loss, key
        mixed = inbox.own_weight * state.params + inbox.mix()
        return GossipState(mixed - step * grad)

    return fm.Algorithm(
        name="gossip",
        init=lambda params, _: GossipState(params),
        point=lambda state, _: state.params,  # the gradient is taken before mixing
        update=update,
        message=lambda state: state.params,
        params=lambda state: state.params,
    )


if __name__ == "__main__":
    problem = fm.make_problem(fm.load("digits"), "softmax", 5)
    for gamma in (1, 5):
        run = fm.simulate(problem, fm.pipelined(gamma), gossip(step=0.5), slots=300)
        loss, apart = run.last("train_loss"), run.last("consensus")
        print(f"gamma {gamma}: loss {loss:.3f}, disagreement {apart:.3f}")
