"""Epidemic learning: D-PSGD on a graph that is drawn anew in every round, in lock-step.

    x_i <- x_i - eta grad F_i(x_i), E times                                     [1, Algorithm 1]
    x_i <- (x_i + sum of the models that came) / (1 + their number)

and whom a node sends to is drawn in each round, by `sampling`:

    local    each node sends to s others of its own choice; a node may hear none, or many
    oracle   a random graph in which every node has s neighbours: all send to s and hear s

A random graph mixes far faster than a fixed one of as many edges. In the second form rows and
columns of the weights sum to 1, and the mean moves by gradients alone; in the first that holds in
the mean over draws. A round takes E slots of computing and one message of each node, S bits on the
air, which s others use.

All nodes know the draws, of `graph_seed`: they are the network's edges, so that a round lasts until
the edges of its own draw are served. 512 rounds are drawn; then the first comes again.

Differs from [1], of which the abstract was read and the code (github.com/sacs-epfl/decentralizepy,
node/EpidemicLearning), whose EL-Local has the same models for the same draws, to 1e-10 in the
tests: full-batch gradients unless the problem has mini-batches; the draws of 'local' come from one
seed for all nodes; s is ceil(log2 I) unless given.

[1] M. de Vos, S. Farhadkhani, R. Guerraoui, A.-M. Kermarrec, R. Pires, R. Sharma. Epidemic
    Learning: Boosting Decentralized Learning with Randomized Communication. NeurIPS 2023.
    arXiv:2310.01972
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.base import NUMBERS, Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.travel import Mixing
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["epidemic", "receivers"]

BIBTEX = r"""@inproceedings{epidemic,
  author = {de Vos, Martijn and Farhadkhani, Sadegh and Guerraoui, Rachid and Kermarrec, Anne-Marie
    and Pires, Rafael and Sharma, Rishi},
  title = {Epidemic Learning: Boosting Decentralized Learning with Randomized Communication},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year = {2023},
  eprint = {2310.01972},
  archiveprefix = {arXiv},
}"""

ROUNDS = 512
"""Rounds that are drawn; then the first comes again."""


@method
def epidemic(
    step: Number = 0.1,
    # whom a node sends to: own choice, or a graph that all know
    sampling: Literal["local", "oracle"] = "local",
    fanout: int | None = None,  # nodes that each one sends to, s; None: ceil(log2 I)
    local_steps: int = 1,
    graph_seed: int = 0,  # seed of the graphs
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build epidemic learning with s = `fanout` and E = `local_steps`.

    >>> weights = epidemic(sampling="oracle").travel.mixing.in_round(4, jnp.zeros((), jnp.int32))
    >>> tuple(round(float(each), 3) for each in weights.sum(axis=0))
    (1.0, 1.0, 1.0, 1.0)
    """
    eta = step_size(step, decay)
    require(
        sampling in ("local", "oracle"),
        f"sampling must be 'local' or 'oracle', got {sampling!r}",
    )
    require(
        fanout is None or fanout >= 1,
        f"fanout is how many others a node sends to, at least 1, got {fanout}; leave it out for "
        "ceil(log2 I)",
    )
    require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")

    def first(params: Array, place: Place) -> Array:
        del place
        return params

    def descend(params: Array, grad: Gradient) -> Array:
        return params - eta(grad.updates, grad.value.dtype) * grad.value

    def average(params: Array, inbox: Inbox) -> Array:
        return inbox.own_weight * params + inbox.mix()

    def in_round(nodes: int, number: Array) -> Array:
        return _weights(receivers(sampling, nodes, fanout, graph_seed), number)

    def ever(heard: Array) -> Array:
        return jnp.full(heard.shape, 1.0 / len(heard))  # any two may meet

    built = in_rounds(
        "epidemic",
        first=first,
        gradient=descend,
        gradients=local_steps,
        end=average,
        message=lambda params: params,
        params=lambda params: params,
        mixing=Mixing(ever, in_round=in_round),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}), draws=True, evenly=True, verified=NUMBERS
        ),
    )
    return descent.of(built)


@lru_cache(maxsize=8)
def receivers(
    sampling: str,  # local or oracle
    num_nodes: int,
    fanout: int | None,  # nodes that each one sends to, s; None: ceil(log2 I)
    seed: int,
) -> NDArray[np.int32]:
    """Return whom each node sends to in each round, (round, tx, s)."""
    sent_to = min((num_nodes - 1).bit_length() if fanout is None else fanout, num_nodes - 1)
    rng = np.random.default_rng(seed)
    if sampling == "local":
        lots = rng.random((ROUNDS, num_nodes, num_nodes))
        lots[:, np.arange(num_nodes), np.arange(num_nodes)] = np.inf
        return np.argsort(lots, axis=2)[:, :, :sent_to].astype(np.int32)
    sent_to += sent_to * num_nodes % 2  # no graph of odd degree has an odd number of nodes
    return np.stack([_regular(rng, num_nodes, sent_to) for _ in range(ROUNDS)])


def _regular(rng: np.random.Generator, num_nodes: int, degree: int) -> NDArray[np.int32]:
    """Return the neighbours (node, degree) of a random graph; of a dense one draw who is none."""
    few = min(degree, num_nodes - 1 - degree)
    linked = _paired(rng, num_nodes, few)
    if few < degree:
        linked = ~linked & ~np.eye(num_nodes, dtype=bool)
    return np.nonzero(linked)[1].reshape(num_nodes, degree).astype(np.int32)


def _paired(rng: np.random.Generator, num_nodes: int, degree: int) -> NDArray[np.bool_]:
    """Return a graph (node, node) drawn by pairing the ends of its edges.

    A pair that is a loop, or there twice, swaps an end with another pair, until there is none.
    """
    ends = rng.permutation(np.repeat(np.arange(num_nodes), degree)).reshape(-1, 2)
    while True:
        low, high = np.sort(ends, axis=1).T
        keys = low * num_nodes + high
        _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        wrong = np.flatnonzero((low == high) | (counts[place] > 1))
        if not len(wrong):
            break
        other = rng.integers(len(ends))
        ends[[wrong[0], other], 1] = ends[[other, wrong[0]], 1]
    linked = np.zeros((num_nodes, num_nodes), bool)
    linked[low, high] = linked[high, low] = True
    return linked


def _weights(sent_to: NDArray[np.int32], number: Array) -> Array:
    """Return W (rx, tx) of a round, or of the round of each entry: equal parts of what comes."""
    rounds, num_nodes, _ = sent_to.shape
    heard = np.zeros((rounds, num_nodes), np.int32)
    for row, targets in zip(heard, sent_to, strict=True):
        row += np.bincount(targets.ravel(), minlength=num_nodes).astype(np.int32)
    nodes = jnp.arange(num_nodes)
    turn = number % rounds
    targets = jnp.asarray(sent_to)[turn, nodes[None]]  # (rx or 1, tx, s)
    reached = jnp.any(targets == nodes[:, None, None], axis=2)
    own = nodes[:, None] == nodes[None]
    return (reached | own) / (1.0 + jnp.asarray(heard)[turn, nodes[:, None]])
