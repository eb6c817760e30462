"""A2CiD2: AD-PSGD with a continuous momentum between two copies of each model.

    between events   (x_i, x~_i)' = e (x~_i - x_i, x_i - x~_i)              [1, eq. (4), Alg. 1]
    gradient         x_i <- x_i - eta grad F_i,   x~_i <- x~_i - eta grad F_i
    meeting of i, j  x~_i <- x~_i - a~ (x_i - x_j),   x_i <- x_i - (x_i - x_j) / 2,  and j likewise

Meetings are those of AD-PSGD: pairs drawn at random, two messages, exact under loss and delay
(adpsgd.py). The second copy x~_i remembers where a node has come from, which lets models of far
nodes agree in the root of the meetings that they need without: with chi_1 = 1 / lambda_2(L) of the
graph's Laplacian L and chi_2 the largest resistance of an edge,

    e = 1 / (2 sqrt(chi_1 chi_2)),   a~ = sqrt(chi_1 / chi_2) / 2

A slot is the unit of time, and L = `rate` (1 - W): so many meetings a node and slot, W the chances
of partners. A slot mixes the copies by exp(-2 e), which composes as the flow does. The mean of all
x_i and x~_i moves by gradients alone. A meeting costs what AD-PSGD's does, 2 (S + 96) bits; x~_i
stays at its node. On the complete bipartite graph chi_1 and chi_2 are near each other, and the gain
is small: `topology` is the ring by default.

Differs from [1]: a meeting is not atomic here, so x_i - x_j are the models that were frozen for it,
and half of their difference is added when the answer comes; `rate` is given and not measured, 1 by
default (AD-PSGD's is below 1 where messages take long). Flow, gradients, constants and what an
answering node does are those of the authors' code (github.com/AdelNabli/ACiD), slot by slot to
1e-10 in the tests. There both ends of a meeting take the other's model as it was before the flow,
and their own after it, so that the mean moves a little; here the two moves cancel. Full-batch
gradients unless the problem has mini-batches.

[1] A. Nabli, E. Belilovsky, E. Oyallon. A2CiD2: Accelerating Asynchronous Communication in
    Decentralized Deep Learning. NeurIPS 2023. arXiv:2306.08289
"""

from dataclasses import replace
from functools import lru_cache
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np

from folkman.algorithm.adpsgd import MeetingState, adpsgd
from folkman.algorithm.base import NUMBERS, Algorithm, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.around import around
from folkman.algorithm.pieces.descent import Shrinking
from folkman.algorithm.pieces.steps import Decay
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["PairedState", "a2cid2", "constants"]

BIBTEX = r"""@inproceedings{a2cid2,
  author = {Nabli, Adel and Belilovsky, Eugene and Oyallon, Edouard},
  title = {{A2CiD2}: Accelerating Asynchronous Communication in Decentralized Deep Learning},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023},
  eprint = {2306.08289},
  archiveprefix = {arXiv},
}"""


class PairedState(NamedTuple):
    """What a node remembers."""

    own: MeetingState  # state of AD-PSGD, with x_i
    second: Array  # (d,) x~_i
    mixing: Array  # (2,) the part of x~_i - x_i that a slot moves, and a~


@lru_cache(maxsize=16)
def constants(
    topology: str,
    num_nodes: int,
    rate: float,  # meetings that a node has in a slot, in the mean
) -> tuple[float, float]:
    """Return e and a~ of a graph; alone a node needs neither."""
    nodes = np.arange(num_nodes)
    if topology == "ring":
        linked = Graph("ring").adjacency(num_nodes)
    else:
        linked = (nodes[:, None] - nodes[None]) % 2 == 1
    degree = linked.sum(axis=1)
    if num_nodes < 2 or not degree.all():
        return 0.0, 0.5
    chances = linked / degree[:, None]
    laplacian = rate * (np.eye(num_nodes) - 0.5 * (chances + chances.T))
    inverse = np.linalg.pinv(laplacian)
    chi_1 = 1.0 / np.sort(np.linalg.eigvalsh(laplacian))[1]
    own = np.diagonal(inverse)
    resistance = 0.5 * (own[:, None] + own[None] - 2.0 * inverse)
    chi_2 = float(resistance[linked].max())
    return 1.0 / (2.0 * sqrt(chi_1 * chi_2)), 0.5 * sqrt(chi_1 / chi_2)


@method
def a2cid2(
    step: Number = 0.1,
    topology: Literal["bipartite", "ring"] = "ring",
    rate: float = 1.0,  # meetings that a node has in a slot, in the mean
    # slots without an answer until a proposal is sent again; None: learnt
    patience: int | None = None,
    kept_answers: int = 8,  # answers that a passive node keeps, to repeat them
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shrinking: Shrinking = Shrinking(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build A2CiD2: `rate` is the meetings a node and slot; the other options are AD-PSGD's.

    >>> tuple(round(each, 3) for each in constants("ring", 16, 1.0))
    (0.142, 1.872)
    """
    require(rate > 0, f"rate counts meetings a node and slot, above 0, got {rate}; try 1")
    meets = adpsgd(
        step, topology=topology, patience=patience, kept_answers=kept_answers, **decay._asdict()
    )

    def init(params: Array, place: Place) -> PairedState:
        flow, pull = constants(topology, place.num_nodes, rate)
        part = 0.5 * (1.0 - np.exp(-2.0 * flow))
        return PairedState(
            own=meets.init(params, place),
            second=params,
            mixing=jnp.asarray([part, pull], params.dtype),
        )

    def receive(state: PairedState, inbox: Inbox) -> PairedState:
        """Let a slot of the flow pass, then meet."""
        part, pull = state.mixing
        moved = part * (state.second - state.own.params)
        before = state.own._replace(params=state.own.params + moved)
        own = meets.receive(before, inbox)
        half = own.params - before.params  # of x_j - x_i, 0 where nobody met
        return state._replace(own=own, second=state.second - moved + 2.0 * pull * half)

    def update(
        state: PairedState, inbox: Inbox, loss: Array, grad: Array, key: Array
    ) -> PairedState:
        own = meets.update(state.own, inbox, loss, grad, key)
        return state._replace(own=own, second=state.second + (own.params - state.own.params))

    built = around(meets, init=init, update=update, receive=receive)
    paired = replace(
        built,
        name="a2cid2",
        model=lambda state, inbox: receive(state, inbox).own.params,
        declares=built.declares._replace(verified=NUMBERS),
    )
    return shrinking.of(paired)
