"""Theorem 2, its corollaries and its assumptions as printed, evaluated on a run, with a verdict.

    F(w(t+1)) <= F(w(0)) - eta u(eta) sum_{tau <= t} ||g(tau)||^2 =: U(Gamma)          [1, eq. (19)]
    u(eta) = I/L_3 - delta (I-1)/L_2 - (I (3+eta) - 1) L_1 / 2 - (3I-1) eta^2 L_1 Gamma^2 / 2

with g = (s_1, ..., s_I). The proof writes w(t+1) = w(t) + eta sum_i s_i, so s_i here is what node i
adds to the aggregate, -alpha_i c_i grad F_i(v_i); without projection L_2 = min_i c_i and
L_3 = max_i c_i.

u has terms in L_1 that eta does not multiply. They come from ab <= (a^2 + b^2)/2 used without a
weight, and have the wrong units: multiplying every loss by a constant, which changes nothing but
the unit of eta, changes the sign of u. For plain descent (L_2 = L_3 = 1) and delta = 0, u > 0 needs
L_1 < 2I/(3I-1), about 2/3, however small eta is. Where u <= 0 the theorem says only that F may
rise: it supports nothing, and the verdict says "vacuous".

With a weight the same proof goes through and has the right units (Theorem H, proved in
docs/theory-proofs.md). For F, beta_i and eta of `folkman.theory.trajectory` and the largest age A:

    F(w(t+1)) <= F(w(0)) - eta u_H sum_{tau <= t} sum_i beta_i^2 ||grad F_i(v_i)||^2
    u_H = I - delta (I-1) - I eta L_1 (1/2 + (1 - min_i beta_i) A)

[1] Xie et al. Decentralized Federated Learning with Asynchronous Parameter Sharing for Large-scale
    IoT Networks. IEEE IoT Journal, 2024.
"""

from math import inf, isfinite
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.problem.learnable import Learnable, analysable
from folkman.record.json_file import Json
from folkman.theory.trajectory import Trajectory, full_gradients

__all__ = [
    "Check",
    "Constants",
    "assumptions",
    "constants_of",
    "corollary_2",
    "theorem_2",
    "theorem_h",
    "u",
]


class Constants(NamedTuple):
    """What Assumption 2 asks for, as measured along a run: the least that the run allows."""

    nodes: int
    step: float  # eta
    gamma: int  # Assumption 1 with ages 0 .. Gamma - 1
    l1: float
    l2: float
    l3: float
    delta: float
    gradient: float  # the largest ||grad F_i(v_i)||


class Check(NamedTuple):
    """One assumption or statement against a run."""

    name: str
    holds: bool | None  # None: the run is too short to tell
    text: str


def constants_of(path: Trajectory, l1: float) -> Constants:
    """Return the constants of a run, with L_1 as measured elsewhere."""
    nominal = path.step / float(path.shares @ path.scales)
    return Constants(
        nodes=len(path.shares),
        step=nominal,
        gamma=int(path.ages.max()) + 1,
        l1=float(l1),
        l2=float(path.scales.min()),
        l3=float(path.scales.max()),
        delta=float(np.max(path.unlike)),
        gradient=float(np.max(path.local)),
    )


def u(c: Constants, step: float | None = None) -> float:
    """Return Theorem 2's factor at the run's step or another."""
    eta, i = c.step if step is None else step, c.nodes
    if not isfinite(c.delta) and i > 1:
        return -inf
    alike = i / c.l3 - (c.delta * (i - 1) / c.l2 if i > 1 else 0.0)
    return alike - (i * (3 + eta) - 1) * c.l1 / 2 - (3 * i - 1) * eta**2 * c.l1 * c.gamma**2 / 2


def theorem_2(path: Trajectory, c: Constants) -> Json:
    """Return u, U(Gamma) over the run and the verdict."""
    pushed = path.shares * path.scales * path.local  # ||s_i||
    curve = path.loss[0] - c.step * u(c) * np.cumsum(np.sum(pushed**2, axis=1))
    here, at_best = u(c), u(c, 0.0)
    literal = u(c._replace(l2=1.0, l3=1.0))
    if here > 0 >= literal:
        verdict = (
            "vacuous here because with the printed s_i = (w_i(t+1) - w_i(t)) / eta, L_2 = L_3 = 1 "
            "and u(eta) = "
            f"{literal:.3g} <= 0; with s_i as the proof uses it u = {here:.3g}, but (B.4) then "
            "lacks a factor I"
        )
    elif here > 0:
        below = bool(np.all(path.loss[1:] <= curve * (1 + 1e-6) + 1e-12))
        met = "stays below" if below else "exceeds"
        verdict = f"not vacuous here: u(eta) = {here:.3g} > 0, and the measured loss {met} U"
    else:
        remedy = (
            f"no step helps: u(0) = {at_best:.3g}, as L_1 = {c.l1:.3g}, delta = {c.delta:.3g}"
            if at_best <= 0
            else f"a smaller step would have u > 0: u(0) = {at_best:.3g}"
        )
        verdict = (
            f"vacuous here because u(eta) = {here:.3g} <= 0, so that U lies above F(w(0)) and "
            f"rises; {remedy}"
        )
    return {
        "u": here,
        "u_at_zero": at_best,
        "u_literal": literal,
        "curve": curve,
        "vacuous": min(here, literal) <= 0,
        "verdict": verdict,
    }


def theorem_h(path: Trajectory, l1: float) -> Json:
    """Return Theorem 2 with a weight where its proof lacks one: u_H, its curve and the verdict.

    `below` is the step eta below which u_H > 0, for the ages and the delta of this run.
    """
    nodes, delta = len(path.weights), float(np.max(path.unlike))
    alike = nodes - (delta * (nodes - 1) if nodes > 1 else 0.0)
    slope = nodes * l1 * (0.5 + (1 - float(path.weights.min())) * int(path.ages.max()))
    here = alike - path.step * slope
    below = max(alike, 0.0) / slope if slope > 0 else inf
    pushed = np.sum((path.weights * path.local) ** 2, axis=1)
    curve = path.loss[0] - path.step * here * np.cumsum(pushed)
    # the bound is an equality without delay, and a run that diverges is rounded by its own size
    rounding = 1e-6 * abs(path.loss[0]) + 1e-12 + 1e-12 * np.abs(curve)
    holds = bool(np.all(path.loss[1:] <= curve + rounding))
    if here > 0:
        met = "stays below" if holds else "exceeds"
        verdict = f"says something: u_H = {here:.3g} > 0, and the measured loss {met} its bound"
    elif alike <= 0:
        verdict = (
            f"vacuous here because nodes differ too much: delta = {delta:.3g} is not below "
            f"I/(I-1) = {nodes / (nodes - 1):.3g}"
        )
    else:
        verdict = f"vacuous here because the step {path.step:.3g} is not below {below:.3g}"
    return {
        "u": here,
        "below": below,
        "holds": holds,
        "curve": curve,
        "vacuous": not here > 0,
        "verdict": verdict,
    }


def corollary_2(c: Constants) -> Json:
    """Return Corollary 2's interval of steps and the verdict [1, eq. (22)]."""
    low, room = c.delta, 2.0 / (c.l1 * c.l3) - (3 * c.nodes - 1) / c.nodes if c.l1 > 0 else inf
    high = min(room, float(np.sqrt(c.delta)))
    if high <= low:
        cause = (
            f"2/(L_1 L_3) - (3I-1)/I = {room:.3g} is not above delta = {low:.3g}"
            if room <= low
            else f"sqrt(delta) = {high:.3g} is not above delta = {low:.3g}"
        )
        verdict = f"vacuous here because no step lies in the interval: {cause}"
    else:
        inside, here = low < c.step <= high, u(c)
        verdict = (
            f"steps in ({low:.3g}, {high:.3g}]; "
            f"eta = {c.step:.3g} is {'in' if inside else 'not in'} it"
        )
        if here <= 0:
            verdict = (
                f"vacuous here because the terms that it drops make u(eta) = {here:.3g} <= 0; "
                f"{verdict}"
            )
    vacuous = high <= low or u(c) <= 0  # its O(.) read as 1, which is the kindest reading
    return {"low": low, "high": high, "vacuous": vacuous, "verdict": verdict}


def assumptions(problem: Learnable, path: Trajectory, c: Constants) -> list[Check]:
    """Return Assumptions 1 and 2, Lemma 2 and Corollary 1, each measured along the run."""
    return [_ages(path, c), *_losses(path, c), *_lemma_2(problem, path, c), *_corollary_1(path)]


def _ages(path: Trajectory, c: Constants) -> Check:
    """Check eq. (8) as printed, max(t - Gamma, 0) < tau <= t, which is empty in slot 0."""
    slots, nodes = path.ages.shape[:2]
    t = np.arange(slots)[:, None, None]
    others = ~np.eye(nodes, dtype=bool)[None]
    broken = int((((t - path.ages) <= np.maximum(t - c.gamma, 0)) & others).sum())
    text = f"ages 0 .. {c.gamma - 1}: holds as max(0, t-Gamma+1) <= tau <= t with Gamma = {c.gamma}"
    printed = (
        f"; as printed {broken} copies break it, all of them stamped 0"
        if broken
        else "; also as printed"
    )
    return Check("Assumption 1", True, text + printed)


def _losses(path: Trajectory, c: Constants) -> list[Check]:
    """Check Assumption 2; (c) and (d) without projection are identities of the update."""
    least, steepest = float(path.local_loss.min()), float(path.secant.max())
    finite = isfinite(c.delta)
    unlike = (
        f"least delta {c.delta:.3g}"
        if finite
        else "no finite delta: one node stood still while another moved"
    )
    return [
        Check("Assumption 2(a)", least >= 0, f"least F_i(v_i) {least:.3g}"),
        Check(
            "Assumption 2(b)",
            None if steepest <= c.l1 * 1.001 else False,
            f"not refuted: largest secant of grad F_i {steepest:.3g}; "
            f"L_1 {c.l1:.3g} is measured from below",
        ),
        Check("Assumption 2(c)", True, "without projection s_i = -c_i nabla_i F_i"),
        Check("Assumption 2(d)", True, f"L_2 = {c.l2:.3g}, L_3 = {c.l3:.3g}"),
        Check("Assumption 2(e)", finite, unlike + "; Corollary 2 wants delta far below eta"),
    ]


def _lemma_2(problem: Learnable, path: Trajectory, c: Constants) -> list[Check]:
    """Check eq. (15) against the gradient of F at the last model, and eq. (16) along the way."""
    problem = analysable(problem, "the gradient of the whole loss", differentiable=True)
    w = jnp.asarray(path.last)
    each = full_gradients(problem, jnp.broadcast_to(w, (problem.num_nodes, problem.dim)))[1]
    summed = np.asarray(jnp.dot(problem.share, each, precision="highest"), float)
    whole = np.asarray(jax.grad(lambda x: problem.evaluate(x).train_loss)(w), float)
    off = float(
        np.linalg.norm(summed - whole)
        / max(float(np.linalg.norm(whole)), 1e-12 + 1e-6 * c.gradient)
    )
    steepest = float(path.secant_whole.max())
    return [
        Check(
            "Lemma 2, eq. (15)",
            off < 1e-3,
            f"sum_i nabla_i F_i differs from grad F by {off:.1g} of its length",
        ),
        Check(
            "Lemma 2, eq. (16)",
            bool(steepest <= c.l1 * 1.001),
            f"largest secant of grad F {steepest:.3g}, L_1 {c.l1:.3g}",
        ),
    ]


def _corollary_1(path: Trajectory) -> list[Check]:
    """Check whether updates and disagreement die out.

    The last tenth of the run against the middle one.
    """
    moves, apart = _tail(path.local.max(axis=1)), _tail(path.apart.max(axis=1))
    drift = (
        _tail(np.abs(np.diff(path.norm, axis=0)).max(axis=1)) if len(path.norm) > 1 else (0.0, 0.0)
    )
    return [
        Check(
            "Corollary 1, s_i -> 0",
            _dies_out(moves),
            f"largest ||grad F_i(v_i)||: {moves[0]:.3g} in the middle of the run, {moves[1]:.3g} "
            f"at its end; ||w_i|| then changes by {drift[1]:.3g} a slot",
        ),
        Check(
            "Corollary 1, eq. (21)",
            _dies_out(apart),
            f"largest ||v_i - w||: {apart[0]:.3g} in the middle, {apart[1]:.3g} at the end",
        ),
    ]


def _tail(x: NDArray) -> tuple[float, float]:
    """Return the mean over a tenth of the run in its middle and at its end."""
    tenth = max(1, len(x) // 10)
    middle = len(x) // 2
    return float(np.mean(x[middle : middle + tenth])), float(np.mean(x[-tenth:]))


def _dies_out(tail: tuple[float, float]) -> bool | None:
    """Return whether a quantity at least halves over the second half of a run or levels off.

    None in between.
    """
    if tail[1] <= 0.5 * tail[0] or tail[1] < 1e-9:
        return True
    return False if tail[1] > 0.9 * tail[0] else None
