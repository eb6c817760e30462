"""NCOTA-DGD: decentralised gradient descent whose gossip step is a sum formed on the air.

    d_i = sum_j l_ij (x_j - x_i)                                        [1, the consensus signal]
    x_i <- x_i + gamma_k d_i - eta grad F_i(x_i),   gamma_k = gamma / (1 + delta k)^(3/4)

in round k. A node sends x_i with a weight of 1 behind it, and uses nothing but the weighted sum s_i
of what it hears: d_i is the first d entries of s_i less x_i times the last. On the network
`over_air` (`folkman.radio.over_air`) the sum is formed on the air: all nodes send at once, l_ij is
the mean gain of the channel, which nobody knows, and fading and noise make s_i a random number
about its mean. A node that sends in a frame hears nothing, so d_i is 0. A frame takes as long with
a thousand nodes as with two. gamma > 0 damps the noise; with delta > 0 it falls, as [1] has it,
and with a falling eta the nodes end at the optimum.

On other networks, and on devices, messages arrive one by one and l_ij = W_ij is the graph's weight.
With gamma = 1 and delta = 0 that is D-PSGD. A message has S bits: the weight is the same for all.

Differs from [1], of which the abstract and a summary were read: the recursion and the power 3/4 are
as recalled, not verified. No projection onto a ball; one gamma for all nodes; full-batch gradients
unless the problem has mini-batches.

[1] N. Michelusi. Non-Coherent Over-the-Air Decentralized Gradient Descent. IEEE Transactions on
    Signal Processing 72, 2024. arXiv:2211.10777
"""

from dataclasses import replace
from typing import NamedTuple

from folkman.algorithm.base import RECALLED, Algorithm, Assumption, Declares, Inbox, Place, Price
from folkman.algorithm.method import Number, method
from folkman.algorithm.pieces.descent import Descent
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import Decay, step_size
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import OnAir, Rounds
from folkman.arrays import Array, jnp
from folkman.checks import require, within

__all__ = ["AirMemory", "ncota_dgd"]

BIBTEX = r"""@article{ncota_dgd,
  author = {Michelusi, Nicol\`o},
  title = {Non-Coherent Over-the-Air Decentralized Gradient Descent},
  journal = {IEEE Transactions on Signal Processing},
  volume = {72},
  year = {2024},
  eprint = {2211.10777},
  archiveprefix = {arXiv},
}"""


class AirMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i
    move: Array  # (d,) -eta grad F_i(x_i) of this round, not yet applied
    applied: Array  # (d,) the move of the round before: x_i without it is what was mixed
    rounds: Array  # () k


@method
def ncota_dgd(
    step: Number = 0.1,
    gossip_step: Number = 0.5,
    gossip_decay: Number = 0.0,  # delta, by which gamma falls from round to round; 0: not
    graph: Graph = Graph("ring"),  # noqa: B008 - immutable
    decay: Decay = Decay(),  # noqa: B008 - immutable
    descent: Descent = Descent(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build NCOTA-DGD with gamma = `gossip_step` and delta = `gossip_decay`.

    >>> ncota_dgd(gossip_step=0.1).declares.price.bits(100, 32)
    (3200,)
    """
    eta = step_size(step, decay)
    require(
        within(gossip_step, 0, 1),
        f"gossip_step is a part of the way to the neighbours, in [0, 1], got {gossip_step}",
    )
    require(
        within(gossip_decay, 0, float("inf")),
        f"gossip_decay must be at least 0, got {gossip_decay}; 0 keeps the gossip step",
    )

    def first(params: Array, place: Place) -> AirMemory:
        del place
        none = jnp.zeros_like(params)
        return AirMemory(params, none, none, jnp.zeros((), jnp.int32))

    def descend(memory: AirMemory, grad: Gradient) -> AirMemory:
        return memory._replace(move=-eta(grad.updates, grad.value.dtype) * grad.value)

    def average(memory: AirMemory, inbox: Inbox) -> AirMemory:
        x, dtype = memory.params, memory.params.dtype
        total = inbox.mix()
        pull = total[: len(x)] - total[len(x)] * x
        gamma = gossip_step / (1.0 + gossip_decay * memory.rounds.astype(dtype)) ** 0.75
        return AirMemory(
            params=x + jnp.asarray(gamma, dtype) * pull + memory.move,
            move=jnp.zeros_like(memory.move),
            applied=memory.move,
            rounds=memory.rounds + 1,
        )

    built = in_rounds(
        "ncota_dgd",
        first=first,
        gradient=descend,
        end=average,
        message=lambda memory: jnp.append(memory.params, jnp.ones((), memory.params.dtype)),
        point=lambda memory, *_: memory.params,  # before mixing
        params=lambda memory: memory.params + memory.move,
        mixed=lambda memory: memory.params - memory.applied,
        mixing=graph.mixing(),
        declares=Declares(
            assumes=frozenset({Assumption.PRESENT}),
            price=Price(lambda dim, each: (each * dim,)),
            evenly=True,
            verified=RECALLED,
        ),
    )
    rounds: Rounds = built.travel  # type: ignore[assignment] - `in_rounds` makes them
    return descent.of(replace(built, travel=OnAir(rounds.ready, rounds.mixing)))
