"""Steps whose bias is taken out: what mixing changed in a model is given back to it later.

    x^_i = x_i - eta m_i + D_i                     at each gradient; m_i is its direction
    x_i  = sum_j W_ij x^_j                         at the end of a round
    D_i <- D_i + p (x_i - x^_i)

with D_i(0) = 0. Columns of W sum to 1, so sum_i D_i = 0 and the mean of the models moves by the
mean of the directions. Where nothing moves, all models agree and D_i = eta m_i: each node's own
gradient is taken out, and the gradients of all sum to 0. Exact diffusion, its form with momentum
and ProxSkip are this recursion with their own m_i, p and number of gradients in a round.

W must be symmetric and fixed. With (1 + W) / 2 in its place all eigenvalues are at least 0, and
steps are bounded by the smoothness alone. With W itself they must be above -1/3.

Messages that were rounded would move sum_i D_i by what rounding left out, which adds up as a random
walk does. So they travel as computed.
"""

from collections.abc import Callable
from typing import NamedTuple

from folkman.algorithm.base import Algorithm, Assumption, Declares, Inbox, Place
from folkman.algorithm.pieces.rounds import Gradient, in_rounds
from folkman.algorithm.pieces.steps import StepSize
from folkman.algorithm.pieces.topology import Graph
from folkman.algorithm.travel import Mixing
from folkman.arrays import Array, jnp
from folkman.checks import require

__all__ = ["CorrectedMemory", "bias_corrected"]


class CorrectedMemory(NamedTuple):
    """What a node remembers."""

    params: Array  # (d,) x_i; after a gradient x^_i
    correction: Array  # (d,) D_i
    momentum: Array  # (d,) m_i; (0,) where it is the gradient itself
    rounds: Array  # () rounds done


def bias_corrected(
    name: str,
    eta: StepSize,
    graph: Graph,
    *,
    lazy: bool,  # whether models are mixed with (1 + W) / 2
    momentum: float = 0.0,  # beta, of the direction
    share: float = 1.0,  # p, of a gossip step in the correction
    # gradients of a round, or their number by the memory
    gradients: int | Callable[[CorrectedMemory], Array] = 1,
    declares: Declares = Declares(),  # noqa: B008 - immutable
) -> Algorithm:
    """Build the recursion: m_i <- beta m_i + (1 - beta) grad with beta = `momentum`, p = `share`.

    `lazy` mixes with (1 + W) / 2. A round has `gradients`, as in `in_rounds`.
    """
    graph.check_fixed(name)
    require(
        graph.waits,
        f"{name} needs the same neighbours in every round, got the topology {graph.topology!r}; "
        "take complete, ring or another",
    )

    def first(params: Array, place: Place) -> CorrectedMemory:
        del place
        none = jnp.zeros_like(params)
        return CorrectedMemory(
            params, none, none if momentum else none[:0], jnp.zeros((), jnp.int32)
        )

    def descend(memory: CorrectedMemory, grad: Gradient) -> CorrectedMemory:
        direction = grad.value
        if momentum:
            direction = momentum * memory.momentum + (1.0 - momentum) * direction
        moved = memory.params - eta(grad.updates, direction.dtype) * direction + memory.correction
        kept = direction if momentum else memory.momentum
        return memory._replace(params=moved, momentum=kept)

    def mix(memory: CorrectedMemory, inbox: Inbox) -> CorrectedMemory:
        mixed = inbox.own_weight * memory.params + inbox.mix()
        return memory._replace(
            params=mixed,
            correction=memory.correction + share * (mixed - memory.params),
            rounds=memory.rounds + 1,
        )

    whole = graph.mixing()
    halved = Mixing(lambda heard: 0.5 * (whole.weights(heard) + jnp.eye(len(heard))))
    assumes = frozenset({Assumption.PRESENT, Assumption.STEADY})
    return in_rounds(
        name,
        first=first,
        gradient=descend,
        gradients=gradients,
        end=mix,
        message=lambda memory: memory.params,
        params=lambda memory: memory.params,
        mixing=halved if lazy else whole,
        declares=declares._replace(assumes=assumes, exact=True, exactly=True, evenly=True),
    )
