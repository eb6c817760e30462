"""DFedAvgM: local steps with momentum, then one average with the neighbours, in lock-step.

    y_0 = y_{-1} = x_i,   then K times   y_{k+1} = y_k - eta grad F_i(y_k) + theta (y_k - y_{k-1})
    models        z_i = y_K,            x_i+ = sum_j W_ij z_j           [1, Algorithm 1] (default)
    differences   q_i = Q(y_K - x_i),   x_i+ = x_i + sum_j W_ij q_j     [1, Algorithm 2]

Q rounds each entry to a whole multiple of s = max |a| / (2^(b-1) - 1), up or down at random so that
E Q(a) = a. With K = 1 and theta = 0 the first form is D-PSGD (adapt, then combine). The second form
averages differences and never models: the differences between the x_i stay, and grow where W has a
negative eigenvalue (as on every ring of four or more), and with unequal data each node goes to its
own optimum. On the complete graph all x_i stay equal, and the second form is the first with
rounding. A round takes K slots of computing and the time of one broadcast of each node: S bits
each, or b d + 32.

Differs from [1], which is recalled, not verified: K = 5 and theta = 0.9 are our defaults;
full-batch gradients unless the problem has mini-batches; s follows the message (and costs its 32
bits), so nothing is ever clipped.

[1] T. Sun, D. Li, B. Wang. Decentralized Federated Averaging. IEEE Transactions on Pattern Analysis
    and Machine Intelligence, 2023. arXiv:2104.11375
"""

from typing import Literal, NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Shrinking
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.rules import Rule, combine
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.arrays import Array, jax, jnp
from folkman.checks import require, within

__all__ = ["DFedAvgMMemory", "dfedavgm", "round_at_random"]

BIBTEX = r"""@article{dfedavgm,
  author = {Sun, Tao and Li, Dongsheng and Wang, Bao},
  title = {Decentralized Federated Averaging},
  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},
  year = {2023},
  eprint = {2104.11375},
  archiveprefix = {arXiv},
}"""


class DFedAvgMMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) y_k; after the round's steps, the model that the message stands for
    previous: Array  # (d,) y_{k-1}
    start: Array  # (d,) x_i of this round
    sent: Array  # (d,) z_i or q_i


def round_at_random(
    vector: Array,  # the entries to round (d,)
    bits: int,  # bits of an entry, b
    key: Array,
) -> Array:
    """Return the vector with entries at 2^bits - 1 equally spaced levels, on average itself."""
    spacing = jnp.max(jnp.abs(vector)) / (2 ** (bits - 1) - 1)
    level = vector / jnp.where(spacing > 0, spacing, 1.0)
    return jnp.floor(level + jax.random.uniform(key, vector.shape, vector.dtype)) * spacing


@method
def dfedavgm(
    step: Number = 0.1,
    local_steps: int = 5,
    momentum: Number = 0.9,  # theta, momentum of local steps
    # whether models or differences are averaged
    exchange: Literal["models", "differences"] = "models",
    bits: int = 0,  # bits of an entry of a difference, b; 0: not rounded
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    rule: Rule = Rule(),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    shrinking: Shrinking = Shrinking(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build DFedAvgM with K = `local_steps`, theta = `momentum` and b = `bits`.

    `bits` 0 sends differences without rounding.

    >>> dfedavgm(exchange="differences", bits=8).declares.price.bits(100, 16)
    (832,)
    """
    eta = step_size(step, decay)
    rule.check()
    require(
        local_steps >= 1 and within(momentum, 0, below=1),
        f"expected local_steps >= 1 and momentum in [0, 1), got {local_steps} and {momentum}",
    )
    require(
        exchange in ("models", "differences"),
        f"exchange must be 'models' or 'differences', got {exchange!r}",
    )
    require(
        bits == 0 or (exchange == "differences" and 2 <= bits <= 16),
        f"bits must be 0, or 2 to 16 with exchange 'differences'; got {bits} with {exchange!r}",
    )
    whole = exchange == "models"

    def first(params: Array, place: Place) -> DFedAvgMMemory:
        del place
        return DFedAvgMMemory(
            params=params,
            previous=params,
            start=params,
            sent=params if whole else jnp.zeros_like(params),
        )

    def descend(memory: DFedAvgMMemory, grad: Gradient) -> DFedAvgMMemory:
        eta_k = eta(grad.updates, grad.value.dtype)
        inertia = momentum * (memory.params - memory.previous)
        moved = memory.params - eta_k * grad.value + inertia
        sent = moved if whole else moved - memory.start
        if bits:
            sent = round_at_random(sent, bits, grad.key)
        done = grad.taken + 1 >= local_steps
        return DFedAvgMMemory(
            params=jnp.where(done, sent if whole else memory.start + sent, moved),
            previous=memory.params,
            start=memory.start,
            sent=jnp.where(done, sent, memory.sent),
        )

    def average(memory: DFedAvgMMemory, inbox: Inbox) -> DFedAvgMMemory:
        mixed = combine(rule, inbox, own=memory.sent, own_weight=inbox.own_weight)
        model = mixed if whole else memory.start + mixed
        return memory._replace(params=model, previous=model, start=model)

    built = in_rounds(
        "dfedavgm",
        first=first,
        gradient=descend,
        gradients=local_steps,
        end=average,
        message=lambda memory: memory.sent,
        params=lambda memory: memory.params,
        mixed=lambda memory: memory.start,
        mixing=graph.mixing(),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}),
            price=Price(lambda dim, each: (bits * dim + 32 if bits else each * dim,)),
            differences=not whole,
            draws=bits > 0,
            evenly=True,
            verified=RECALLED,
        ),
    )
    return shrinking.of(built)
