"""Bias and stability of Algorithm 1 with a share of the own newest progress, for quadratics.

Nodes hold F_i(w) = 1/2 (w - o_i)' H_i (w - o_i). Ages are constant: a_ij of what i holds of j, and
b_i of the own part, which is the mean age of the others unless another is given. With the share
rho_i of the own progress, and sigma_i of the mean pace m_i that it is set back by,

    v_i(t)   = sum_{j != i} alpha_j w_j(t - a_ij) + (alpha_i - rho_i) w_i(t - b_i) + rho_i w_i(t)
               - sigma_i b_i m_i(t)
    m_i(t+1) = m_i(t) + k_i ( w_i(t+1) - w_i(t) - m_i(t) ),        k_i = 1 / (1 + 4 b_i)
    w_i(t+1) = w_i(t) - eta H_i (v_i(t) - o_i)                                                   (1)

With sigma = 0 this is one family: rho = alpha is Algorithm 1, rho = 0 is aligned, rho = 1 takes the
others to have moved as oneself. `centred` has rho = sigma = alpha (`named`). The w_i themselves
drift without end where data differ. What acts is w = sum_i alpha_i w_i, the m_i and the last moves
u_j(s) = w_j(s+1) - w_j(s), by

    v_i(t) = w(t) - sum_{j != i} alpha_j sum_{s=t-a_ij}^{t-1} u_j(s)
                  - (alpha_i - rho_i) sum_{s=t-b_i}^{t-1} u_i(s) - sigma_i b_i m_i(t)            (2)

`transition` is this linear map. Its spectral radius decides about stability, and its fixed point is
where the run ends: w constant, all u_i = m_i = -eta g_i with sum_i alpha_i g_i = 0. There only the
difference rho_i - sigma_i counts. Proofs, and what holds beyond quadratics, are in
docs/fresh-air-theory.md (Theorems E to G).
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from folkman.algorithm.pieces.own_part import LONG
from folkman.checks import require

__all__ = [
    "Chosen",
    "FixedPoint",
    "Quadratics",
    "Setting",
    "best_rho",
    "bias_bound",
    "fixed_point",
    "named",
    "optimum",
    "setting",
    "spectral_radius",
    "stable_step",
    "stable_step_alike",
    "sufficient_step",
    "transition",
]

BARELY = 1e-9
"""A spectral radius above 1 by more than this is growth; below, rounding."""


class Quadratics(NamedTuple):
    """The losses of all nodes."""

    curvature: Float[ndarray, "node d d"]  # curvature of each node, H_i, symmetric
    centre: Float[ndarray, "node d"]  # where each node has its least loss, o_i
    shares: Float[ndarray, " node"]  # share of each node in the loss, alpha_i


class Setting(NamedTuple):
    """What enters v_i: the ages, and how much of the own newest progress."""

    ages: Int[ndarray, "rx tx"]  # ages of the copies, a_ij; the diagonal is not looked at
    own_age: Int[ndarray, " node"]  # age of the own part, b_i
    rho: Float[ndarray, " node"]  # share of the own newest progress
    # share sigma_i of the mean pace that is taken back; None: 0
    set_back: Float[ndarray, " node"] | None = None


class FixedPoint(NamedTuple):
    """Where a stable run ends."""

    mean: Float[ndarray, " d"]  # w, the network's model
    used: Float[ndarray, "node d"]  # models that the gradients are taken at, v_i
    slopes: Float[ndarray, "node d"]  # gradients g_i = grad F_i(v_i); sum_i alpha_i g_i = 0


class Chosen(NamedTuple):
    """A share rho with what it costs."""

    rho: float  # share of the own newest progress
    excess: float  # predicted F(w) - F* after the horizon
    bias: float  # part of it that remains for ever
    radius: float  # spectral radius of the recursion; below 1 it is stable


def setting(
    ages: Int[ndarray, "rx tx"],
    rho: float | Float[ndarray, " node"],  # share of the own newest progress
    shares: Float[ndarray, " node"],
    # age of the own part, b_i; None: the others' mean age
    own_age: Int[ndarray, " node"] | None = None,
    # share sigma_i of the mean pace that is taken back; None: none
    set_back: float | Float[ndarray, " node"] | None = None,
) -> Setting:
    """Return a setting whose own age is the others' mean age, rounded, unless it is given."""
    ages, shares = np.asarray(ages), np.asarray(shares, float)
    nodes = len(shares)
    require(
        ages.shape == (nodes, nodes) and bool((ages >= 0).all()),
        f"expected ages ({nodes}, {nodes}) of at least 0, got shape {ages.shape}",
    )
    others = shares * (1 - np.eye(nodes))
    mean = (others * ages).sum(axis=1) / np.maximum(others.sum(axis=1), 1e-300)
    # halves down, as `algorithm.pieces.own_part.mean_age` rounds
    own = np.floor(mean + 0.499).astype(int) if own_age is None else np.asarray(own_age)
    rho = np.broadcast_to(np.asarray(rho, float), (nodes,))
    back = None if set_back is None else np.broadcast_to(np.asarray(set_back, float), (nodes,))
    return Setting(ages, own, rho, back)


def named(
    own: str | float,  # option `own` of Algorithm 1, or rho as a number
    ages: Int[ndarray, "rx tx"],
    shares: Float[ndarray, " node"],
    alike: float = 0.0,  # a_i of `adaptive`, how alike the nodes are
) -> Setting:
    """Return the setting of an option `own` of Algorithm 1; `alike` is a_i of `adaptive`."""
    shares = np.asarray(shares, float)
    if not isinstance(own, str):
        return setting(ages, own, shares)
    half = np.maximum(0.5, shares)
    known: dict[str, tuple[Any, Any]] = {
        "newest": (shares, None),
        "aligned": (0.0, None),
        "centred": (shares, shares),
        "adaptive": (shares + (half - shares) * alike, (1.0 - alike) * shares),
    }
    require(
        own in known,
        f"the theory knows own = {', '.join(known)} or a number, whose shares are constant; "
        f"got {own!r}",
    )
    rho, back = known[own]
    return setting(ages, rho, shares, set_back=back)


def _set_back(s: Setting) -> Float[ndarray, " node"]:
    return np.zeros(len(s.rho)) if s.set_back is None else s.set_back


def _reach(q: Quadratics, s: Setting) -> Float[ndarray, "rx tx age"]:
    """Return how much v_i lacks of u_j(t-1-n): alpha_j for n < a_ij, alpha_i - rho_i for own."""
    nodes = len(q.shares)
    own = np.eye(nodes, dtype=bool)
    late = np.where(own, s.own_age[:, None], s.ages)
    part = np.where(own, (q.shares - s.rho)[:, None], q.shares[None])
    return part[:, :, None] * (np.arange(max(int(late.max()), 1)) < late[:, :, None])


def transition(
    q: Quadratics, s: Setting, step: float
) -> tuple[Float[ndarray, "state state"], Float[ndarray, " state"]]:
    """Return M and m of state(t+1) = M state(t) + m; the state is w, then u(t-1), u(t-2), ...

    Where own parts are set back, the paces m_i(t) come last.
    """
    nodes, d = q.centre.shape
    reach = _reach(q, s)
    span = reach.shape[2]
    size = d * (1 + nodes * (span + (s.set_back is not None)))
    uses = np.zeros((nodes, d, size))  # v_i as a map of the state, (2)
    uses[:, :, :d] = np.eye(d)
    for age in range(span):
        for j in range(nodes):
            at = d * (1 + nodes * age + j)
            uses[:, :, at : at + d] = -reach[:, j, age, None, None] * np.eye(d)
    block, moved = nodes * d, d * (1 + nodes * span)  # where the moves end
    for i in range(nodes if s.set_back is not None else 0):
        at = moved + d * i
        uses[i, :, at : at + d] = -(_set_back(s) * s.own_age)[i] * np.eye(d)
    moves = -step * np.einsum("iab,ibs->ias", q.curvature, uses)  # u_i(t), without the centres
    push = step * np.einsum("iab,ib->ia", q.curvature, q.centre)
    matrix, offset = np.zeros((size, size)), np.zeros(size)
    matrix[:d] = np.einsum("i,ias->as", q.shares, moves)
    matrix[:d, :d] += np.eye(d)
    offset[:d] = q.shares @ push
    matrix[d : d + block] = moves.reshape(block, size)
    offset[d : d + block] = push.ravel()
    matrix[d + block : moved, d : moved - block] = np.eye(block * (span - 1))
    if s.set_back is not None:
        part = np.repeat(1.0 / (1.0 + LONG * s.own_age), d)  # k_i
        matrix[moved:] = part[:, None] * matrix[d : d + block]
        matrix[moved:, moved:] += np.diag(1.0 - part)
        offset[moved:] = part * offset[d : d + block]
    return matrix, offset


def spectral_radius(q: Quadratics, s: Setting, step: float) -> float:
    """Return the largest |eigenvalue|: errors fall by this factor per slot in the long run."""
    return float(np.abs(np.linalg.eigvals(transition(q, s, step)[0])).max())


def fixed_point(q: Quadratics, s: Setting, step: float) -> FixedPoint:
    """Return where the recursion rests, from v_i = w + eta sum_j R_ij g_j (Theorem E).

    R_ij = alpha_j a_ij for j != i and (alpha_i - rho_i + sigma_i) b_i for the own part.
    """
    nodes, d = q.centre.shape
    late = _reach(q, s).sum(axis=2) + np.diag(_set_back(s) * s.own_age)
    size = d * (nodes + 1)  # w, then the g_i
    system, right = np.zeros((size, size)), np.zeros(size)
    for i in range(nodes):
        rows = slice(d * (i + 1), d * (i + 2))
        system[rows, :d] = q.curvature[i]
        for j in range(nodes):
            columns = slice(d * (j + 1), d * (j + 2))
            system[rows, columns] += step * late[i, j] * q.curvature[i] - (i == j) * np.eye(d)
        right[rows] = q.curvature[i] @ q.centre[i]
        system[:d, rows] = q.shares[i] * np.eye(d)
    found = np.linalg.solve(system, right).reshape(nodes + 1, d)
    mean, slopes = found[0], found[1:]
    return FixedPoint(mean, mean + step * late @ slopes, slopes)


def optimum(q: Quadratics) -> Float[ndarray, " d"]:
    """Return w*, the minimum of F = sum_i alpha_i F_i."""
    whole = np.einsum("i,iab->ab", q.shares, q.curvature)
    return np.linalg.solve(whole, np.einsum("i,iab,ib->a", q.shares, q.curvature, q.centre))


def bias_bound(
    q: Quadratics,
    age: int,
    rho: float,  # share of the own newest progress
    step: float,
) -> float:
    """Return a bound on ||w - w*|| at the fixed point, for equal ages and convex F_i (Theorem E).

    With lambda = eta a rho it is (1/mu + lambda) lambda sum_i alpha_i L_i ||grad F_i(w*)||, where
    every F_i is L_i-smooth and mu-strongly convex.
    """
    values = np.linalg.eigvalsh(q.curvature)
    least, prox = float(values.min()), step * age * rho
    require(least > 0, f"the bound needs strongly convex F_i, got a curvature of {least:g}")
    slopes = np.einsum("iab,ib->ia", q.curvature, optimum(q) - q.centre)
    differ = q.shares @ (values.max(axis=1) * np.linalg.norm(slopes, axis=1))
    return (1.0 / least + prox) * prox * float(differ)


def stable_step(
    q: Quadratics,
    s: Setting,
    halvings: int = 30,  # halvings of the bracket at the end
) -> float:
    """Return the step at which stability is lost first: stable below it, not just above.

    Steps are tried upwards by tenths of what is safe, and the first crossing is halved.
    """
    top = float(np.linalg.eigvalsh(q.curvature).max())
    safe = min(sufficient_step(s, q.shares), 1.0) / top
    low, high = 0.0, 0.1 * safe
    while spectral_radius(q, s, high) <= 1 + BARELY and high < 4.0 / top:
        low, high = high, high + max(0.1 * safe, 0.05 * high)
    for _ in range(halvings):
        middle = (low + high) / 2
        stable = spectral_radius(q, s, middle) <= 1 + BARELY
        low, high = (middle, high) if stable else (low, middle)
    return low


def stable_step_alike(
    age: int,
    rho: float,  # share of the own newest progress
) -> float:
    """Return the largest stable eta L of nodes alike with equal shares and ages (Theorem F).

    Their mean has the roots of z^(a+1) = z^a (1 - e rho) - e (1 - rho), their differences those of
    z^a + e rho (z^(a-1) + ... + 1).

    >>> round(stable_step_alike(4, 0.0), 4), round(stable_step_alike(4, 0.2), 2)
    (0.3473, 0.49)
    >>> round(stable_step_alike(4, 0.5), 4), round(stable_step_alike(4, 1.0), 4)
    (2.0, 1.0)
    """
    require(age >= 0 and 0 <= rho <= 1, f"age >= 0 and rho in [0, 1], got {age} and {rho}")
    if age == 0:
        return 2.0
    low, high = 0.0, 1.0 / max(rho, 0.5)
    if rho >= 0.5:
        return high

    def grows(e: float) -> bool:
        ends = np.zeros(age + 2)
        ends[:2], ends[-1] = (1.0, e * rho - 1.0), ends[-1] + e * (1 - rho)
        return bool(np.abs(np.roots(ends)).max() > 1.0)

    for e in np.linspace(0.0, high, 200)[1:]:
        if grows(e):
            high = float(e)
            break
        low = float(e)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if grows(middle) else (middle, high)
    return low


def sufficient_step(s: Setting, shares: Float[ndarray, " node"]) -> float:
    """Return 1 / (2 A): nodes alike are stable for eta L <= 1 below it (Theorem F).

    A is the largest sum_j |share in v_i| age over i: sum_{j != i} alpha_j a_ij +
    |alpha_i - rho_i| b_i + |sigma_i| b_i. It holds for ages that change in time too, with their
    largest A.
    """
    nodes = len(shares)
    late = (np.asarray(shares) * s.ages * (1 - np.eye(nodes))).sum(axis=1)
    late = late + (np.abs(shares - s.rho) + np.abs(_set_back(s))) * s.own_age
    return 0.5 / float(late.max()) if late.max() > 0 else np.inf


def best_rho(
    q: Quadratics,
    ages: Int[ndarray, "rx tx"],
    step: float,
    horizon: int,  # slots after which the loss counts
    start: Float[ndarray, " d"],
    tried: int = 21,  # values of rho that are tried
) -> Chosen:
    """Return the rho in [0, 1], the same for all nodes, with the least predicted F(w) - F*.

    Predicted is the bias plus (spectral radius)^(2 horizon) times what F(start) - F* was. The
    second term is a rule, not a bound: a run that does not decay at once may be behind it.
    """
    best, whole = optimum(q), np.einsum("i,iab->ab", q.shares, q.curvature)

    def excess(w: ndarray) -> float:
        return float((w - best) @ whole @ (w - best)) / 2

    def judge(rho: float) -> Chosen:
        s = setting(ages, rho, q.shares)
        radius = spectral_radius(q, s, step)
        if radius >= 1:
            return Chosen(rho, np.inf, np.inf, radius)
        bias = excess(fixed_point(q, s, step).mean)
        return Chosen(rho, bias + radius ** (2 * horizon) * excess(start), bias, radius)

    return min((judge(float(rho)) for rho in np.linspace(0, 1, tried)), key=lambda c: c.excess)
