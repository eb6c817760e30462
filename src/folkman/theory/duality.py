"""The duality gap of the decentralized problem with frozen sharing, measured.

Theorem 1's proof couples the nodes through one aggregate constraint, so the problem is

    P(r) = min { sum_i alpha_i p_i(k_i) : sum_i alpha_i k_i <= r }        primal    [1, eq. (3)]
    D(r) = min { sum_i alpha_i conv p_i(k_i) : sum_i alpha_i k_i <= r }   dual      [1, eq. (4)]

(in the proof of Theorem 1; one multiplier) with the value functions p_i of `folkman.theory.value`:
P is their min-plus convolution, D that of their convex envelopes. With
Delta_i = sup_k p_i(k) - conv p_i(k),

    0 <= P(r) - D(r) <= max_i alpha_i Delta_i
                     <= alpha_max Delta_worst <= 2 alpha_max Delta_worst            [1, eq. (7)]

The last is Theorem 1. The one before is ours, half as large and attained (`docs/theory.md`): a
solution of the dual problem leaves at most one node off its value function, where the
Shapley-Folkman lemma alone allows two.

As printed, the problem has a constraint and a multiplier for every node. Nothing then couples the
nodes, and the gap is sum_i alpha_i (p_i(K_i) - conv p_i(K_i)): for nodes alike it does not fall
with their number. `Gap.printed` is its largest value over the K_i, sum_i alpha_i Delta_i.

On a common grid of the spent budgets alpha_i k_i the statements above hold exactly, not only in the
limit: the corners of all envelopes, and so the budget of the one node left over, lie on the grid.

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from folkman.checks import require
from folkman.record.json_file import Json
from folkman.theory.families import FAMILIES, Family
from folkman.theory.value import Floats, Loss, Value, envelope, frozen, hull, value_function

__all__ = ["Gap", "convolve", "dual_by_envelopes", "dual_by_multiplier", "measure_gap", "survey"]


class Gap(NamedTuple):
    """The gap of one network. Arrays run over the aggregate budget r."""

    shares: Floats
    budgets: Floats  # (budget,) budgets, r
    primal: Floats  # (budget,) P(r)
    dual: Floats  # (budget,) D(r)
    divergence: Floats  # (node,) Delta_i on the value functions
    divergence_printed: (
        float  # the largest Delta_i of Theorem 1 itself, not a number above one dimension
    )
    printed: float  # the gap with one multiplier a node, for the worst K_i
    # how far the gap may be from that of the true p_i, on the grid; not a number where not
    # certified
    error: float
    how: str  # how the value functions were found

    @property
    def gap(self) -> float:
        """Return the gap at the worst aggregate budget."""
        return float(np.max(self.primal - self.dual))

    @property
    def worst(self) -> float:
        """Return Delta_worst."""
        return float(np.max(self.divergence))

    @property
    def normalised(self) -> float:
        """Return the left side of [1, eq. (7)]; 0 where every node is convex."""
        return self.gap / self.worst if self.worst > 0 else 0.0

    @property
    def printed_normalised(self) -> float:
        """Return the printed form's gap over the printed Delta_worst.

        Over ours where that is not known.
        """
        scale = self.divergence_printed if np.isfinite(self.divergence_printed) else self.worst
        return self.printed / scale if scale > 0 else 0.0

    def _breaks(self, bound: float) -> bool | None:
        """Return whether the printed form breaks the printed bound.

        None where the printed Delta_i is not known.
        """
        known = np.isfinite(self.divergence_printed)
        return bool(self.printed_normalised > bound * (1 + 1e-9)) if known else None

    def row(self) -> Json:
        """Return the line of a table."""
        largest = float(np.max(self.shares))
        return {
            "nodes": len(self.shares),
            "gap": self.gap,
            "delta_worst": self.worst,
            "normalised": self.normalised,
            "bound": 2.0 * largest,  # [1, eq. (7)]
            "sharp_bound": float(np.max(self.shares * self.divergence)) / self.worst
            if self.worst > 0
            else 0.0,
            "printed_normalised": self.printed_normalised,
            "printed_breaks_bound": self._breaks(2.0 * largest),
            "error": self.error if np.isfinite(self.error) else None,
            "how": self.how,
        }


def measure_gap(
    values: Sequence[Value],  # value function of each node
    shares: Sequence[float] | Floats,
) -> Gap:
    """Return the gap of nodes with the given value functions and shares alpha_i.

    The values must be sampled so that all alpha_i * step_i agree: what a node spends then lies on
    one common grid.

    >>> wall = Value(1.0, np.array([1.0, 0.0]), 0.0, "by hand")
    >>> measure_gap([wall, wall], [0.5, 0.5]).gap
    0.0
    """
    alpha = np.asarray(shares, float)
    require(
        len(values) == len(alpha) > 0,
        f"expected one share a node, got {len(values)} values, {len(alpha)} shares",
    )
    fair = bool((alpha > 0).all()) and abs(alpha.sum() - 1) < 1e-9
    require(fair, f"shares must be positive and sum to 1, got {list(alpha)}")
    steps = alpha * [value.step for value in values]
    even = bool(np.allclose(steps, steps[0], rtol=1e-9))
    require(
        even,
        f"alpha_i times the budget step must be the same for all nodes, got {list(steps)}; "
        "sample p_i again",
    )
    costs = [a * value.high for a, value in zip(alpha, values, strict=True)]
    convex = [envelope(cost) for cost in costs]
    divergence = np.array([np.max(q - c) for q, c in zip(costs, convex, strict=True)]) / alpha
    primal = costs[0]
    for cost in costs[1:]:
        primal = convolve(primal, cost)
    return Gap(
        shares=alpha,
        budgets=steps[0] * np.arange(len(primal)),
        primal=primal,
        dual=dual_by_envelopes(costs),
        divergence=divergence,
        divergence_printed=max(value.divergence_printed for value in values),
        printed=float(alpha @ divergence),
        error=float(max(value.error for value in values)),
        how=values[0].how,
    )


def convolve(
    a: Floats,  # values on a grid that begins at 0
    b: Floats,  # values on the same grid
) -> Floats:
    """Return the min-plus convolution: (a # b)[n] = min_m a[n - m] + b[m]."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    total = np.full(len(a) + len(b) - 1, np.inf)
    for m, extra in enumerate(short):
        part = total[m : m + len(long)]
        np.minimum(part, long + extra, out=part)
    return total


def dual_by_envelopes(
    costs: Sequence[Floats],  # least loss of each node by what it spends, on one grid
) -> Floats:
    """Return D on the common grid: the segments of all hulls, steepest descent first."""
    corners = [hull(cost) for cost in costs]
    lengths = np.concatenate([np.diff(kept) for kept in corners] or [np.zeros(0)])
    drops = np.concatenate([np.diff(cost[kept]) for cost, kept in zip(costs, corners, strict=True)])
    order = np.argsort(drops / lengths, kind="stable")
    x = np.concatenate([[0], np.cumsum(lengths[order])])
    y = sum(float(cost[0]) for cost in costs) + np.concatenate([[0.0], np.cumsum(drops[order])])
    return np.interp(np.arange(int(x[-1]) + 1), x, y)


def dual_by_multiplier(
    costs: Sequence[Floats],  # least loss of each node by what it spends, on one grid
    spent: int,  # what all nodes spend together, in steps of the grid
    multipliers: Floats,  # lambda, those to try
) -> float:
    """Return [1, eq. (4)] itself, at the given multipliers.

    The max over them of sum_i inf_m cost_i[m] + lambda (m - spent).
    """
    values = [
        sum(float(np.min(cost + slope * np.arange(len(cost)))) for cost in costs) - slope * spent
        for slope in multipliers
    ]
    return max(values)


MOST_NODES = 100_000
"""More would take minutes, and show the same line."""


def survey(
    model: str,  # name of a family of losses: worst, robust and others
    nodes: Sequence[int],  # numbers of nodes to ask about
    reach: str = "same",  # same or shrinking: how far a node can move
    seed: int = 0,
) -> list[Gap]:
    """Return the gaps of a family of losses for several numbers of nodes with equal shares.

    With reach "same" a node moves its model over the same region however many nodes there are (W_i
    grows as 1/alpha_i); with "shrinking" W_i is fixed as in [1, eq. (3)], and a node reaches a
    share alpha_i of that region.
    """
    require(model in FAMILIES, f"there is no model '{model}'; known: {', '.join(FAMILIES)}")
    require(reach in ("same", "shrinking"), f"reach is 'same' or 'shrinking', got {reach!r}")
    require(
        min(nodes, default=0) >= 1, f"expected numbers of nodes of at least 1, got {list(nodes)}"
    )
    require(
        max(nodes) <= MOST_NODES,
        f"expected at most {MOST_NODES} nodes, got {max(nodes)}; the gap shrinks as 1 / nodes",
    )
    family = FAMILIES[model]
    kinds = [
        family.draw(np.random.default_rng([seed, kind]))
        for kind in range(min(family.kinds, max(nodes)))
    ]
    known = _values(family, kinds) if reach == "same" else []
    gaps = []
    for count in nodes:
        share = 1.0 / count
        values = known or _values(family, [frozen(kind, share) for kind in kinds[:count]])
        gaps.append(
            measure_gap([values[i % len(values)] for i in range(count)], np.full(count, share))
        )
    return gaps


def _values(family: Family, losses: Sequence[Loss]) -> list[Value]:
    return [value_function(loss, family.budgets, family.refine) for loss in losses]
