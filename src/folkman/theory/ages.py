"""What ages the index schedule guarantees, and which loss follows (docs/fresh-air-theory.md).

    H(s) = sum_k max_i c_ik(s)      slots that one round takes in which every node sends to all

Theorem D: with messages `copy`, `forward` or `sum`, the root of the mean square age over all pairs
is at most 2 H + 1 slots whenever the band is free, if H(s) <= H in every slot. It is proved for
nodes that have something new in every slot, and for sums that are adopted where they lower the sum
of *squares*; for the rule of `folkman.radio.fresh.younger`, by ages, it is measured. A transfer of
c <= H slots adds at most c until it ends. Whatever the channel, the mean over time of rms age over
H(s), with 0 while the band waits, is at most 2 in the long run.

Corollary: Theorem C with these ages bounds the mean of ||grad F(w)||^2 over J slots by

    2 (F(w(0)) - F*) / (eta J)  +  ( eta L G (1 - 1/I) A )^2        for eta L <= 1

with A the largest rms age, 3 H + 1 at any time, and equal shares. The best eta makes it
3 ((F(w(0)) - F*) L G (1 - 1/I) A / J)^(2/3).
"""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from folkman.checks import require

__all__ = ["best_step", "guaranteed_age_slots", "loss_bound", "round_slots"]


def round_slots(cost_slots: Float[ndarray, "slot rx tx"]) -> Float[ndarray, " slot"]:
    """Return H(s): slots of a round in which every node sends to all others, at the slot's rates.

    >>> import numpy as np
    >>> round_slots(np.full((1, 4, 4), 2.0))
    array([8.])
    """
    nodes = cost_slots.shape[-1]
    others = np.where(np.eye(nodes, dtype=bool), 0.0, cost_slots)
    return others.max(axis=1).sum(axis=1)


def guaranteed_age_slots(cost_slots: Float[ndarray, "slot rx tx"]) -> float:
    """Return 2 H + 1, the largest rms age at decisions of the index schedule (Theorem D).

    Between decisions it is at most 3 H + 1: a transfer of at most H slots is on its way. That is
    the age to give to `loss_bound`.
    """
    return 2.0 * float(round_slots(cost_slots).max()) + 1.0


def loss_bound(
    gap: float,  # F(w(0)) - F*
    step: float,
    slots: int,
    age_slots: float,  # guaranteed rms age
    smooth: float,
    slope: float,  # bound on all gradients, G
    nodes: int,
) -> float:
    """Return the bound of the corollary on the mean of ||grad F(w)||^2.

    `gap` is F(w(0)) - F*, `smooth` is L and `slope` is G, a bound on all ||grad F_j(v_j)||.
    """
    require(step * smooth <= 1 + 1e-9, f"the bound needs eta L <= 1, got {step * smooth:g}")
    late = step * smooth * slope * (1 - 1 / nodes) * age_slots
    return 2 * gap / (step * slots) + late**2


def best_step(
    gap: float,  # F(w(0)) - F*
    slots: int,
    age_slots: float,  # guaranteed rms age
    smooth: float,
    slope: float,  # bound on all gradients, G
    nodes: int,
) -> float:
    """Return the step of the least `loss_bound`, at most 1 / L."""
    late = smooth * slope * (1 - 1 / nodes) * age_slots
    return min((gap / (slots * late**2)) ** (1 / 3) if late > 0 else np.inf, 1 / smooth)
