"""What the theory's claims come to on losses that can be measured: rows for the audit.

A row has a `measure`, a `case`, a `value`, a `limit` that the value must not exceed for the claim
to hold, and `says`, the same in words. The instruments are those of `folkman.theory`;
docs/theory.md tells why they decide what they do.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from folkman.keys import Stream, make_key
from folkman.papers.paper import Paper
from folkman.problem.data import load
from folkman.problem.partition import split
from folkman.problem.problem import Problem, make_problem
from folkman.radio import bandwidth, schedule
from folkman.radio.delay import snapshot
from folkman.radio.network import RadioNetwork, place
from folkman.radio.trace import record_timeline
from folkman.record.json_file import Json
from folkman.theory.duality import survey
from folkman.theory.printed import assumptions, constants_of, corollary_2, theorem_2
from folkman.theory.smoothness import curvatures
from folkman.theory.trajectory import Trajectory, follow
from folkman.units import db_to_linear

__all__ = ["Setting", "measure"]

BITS = 16


class Setting(NamedTuple):
    """How much is measured."""

    nodes: tuple[int, ...]
    families: tuple[str, ...]
    data: str  # softmax on it: the only model here with an upper bound of its curvature
    samples: int
    step: float
    slots: int
    drops: int
    gammas: int  # of the size's, how many


SETTINGS = {
    "smoke": Setting((2, 4), ("worst", "double_well"), "digits", 200, 0.05, 60, 20, 1),
    "laptop": Setting(
        (5, 10, 15), ("worst", "double_well", "robust", "network"), "digits", 900, 0.05, 300, 400, 3
    ),
    "full": Setting(
        (5, 10, 15),
        ("worst", "double_well", "robust", "network"),
        "mnist",
        6000,
        0.05,
        500,
        2000,
        3,
    ),
}


def measure(paper: Paper, size: str, tell: Callable[[str], None] = lambda _: None) -> list[Json]:
    """Return every measurement that a claim of the theory asks for."""
    setting, gammas = SETTINGS[size], paper.sizes[size]["gammas"]
    rows: list[Json] = []
    for name, part in (
        ("duality gaps", partial(_gaps, setting)),
        ("convergence", partial(_convergence, setting, gammas[: setting.gammas])),
        ("Corollary 1", partial(_corollary_1, setting, gammas[0])),
        ("bandwidth", partial(_bandwidth, setting)),
    ):
        rows += part()
        tell(f"measured: {name}")
    return rows


def _row(measure: str, case: str, value: float, limit: float, says: str) -> Json:
    numbers = {"value": float(value), "limit": float(limit)}
    return {"measure": measure, "case": case, **numbers, "says": says}


def _gaps(setting: Setting) -> Iterator[Json]:
    """Measure Theorem 1: the gap of both problems against 2 alpha_max, its decay, Delta_worst."""
    counts = [4, 8, 16, 32]
    for family in setting.families:
        rows = [gap.row() for gap in survey(family, counts)]
        for row in rows:
            case, bound = f"{family}, {row['nodes']} nodes", row["bound"]
            yield _row("gap_aggregate", case, row["normalised"], bound * (1 + 1e-9),
                       f"gap/Delta {row['normalised']:.3g}, bound {bound:.3g}")  # fmt: skip
            if row["printed_breaks_bound"] is not None:
                value = row["printed_normalised"]
                says = f"gap/Delta {value:.3g}, bound {bound:.3g}"
                yield _row("gap_printed", case, value, bound * (1 + 1e-9), says)
        names = {"gap_decay": "normalised", "gap_decay_printed": "printed_normalised"}
        for kind, name in names.items():
            slope = _slope(counts, [row[name] for row in rows])
            says = f"slope of log gap over log I {slope:.3g}, 1/I is -1"
            yield _row(kind, family, slope, -0.9, says)
        if family == "worst":
            continue  # one loss for all nodes: Delta_worst is the same by construction
        for kind, reach in (("delta_same", "same"), ("delta_shrinking", "shrinking")):
            sizes = [gap.row()["delta_worst"] for gap in survey(family, [8, 32], reach)]
            change = abs(sizes[1] / sizes[0] - 1) if sizes[0] > 0 else 0.0
            says = f"Delta_worst changes by {100 * change:.3g} % from 8 to 32 nodes"
            yield _row(kind, family, change, 0.1, says)


def _slope(counts: list[int], values: list[float]) -> float:
    """Return the slope of log value over log count; not a number where a value is 0."""
    if min(values) <= 0:
        return float("nan")
    return float(np.polyfit(np.log(counts), np.log(values), 1)[0])


def _problem(setting: Setting, nodes: int) -> Problem:
    """Return softmax regression on the setting's data, dealt out evenly."""
    return make_problem(
        load(setting.data, train_size=setting.samples, test_size=200), "softmax", nodes
    )


def _followed(problem: Problem, gamma: int, setting: Setting) -> Trajectory:
    held = record_timeline(
        snapshot(gamma), problem.num_nodes, setting.slots, 0, problem.dim * BITS
    ).held
    return follow(problem, held, setting.step, "theorem")


def _convergence(setting: Setting, gammas: list[int]) -> Iterator[Json]:
    """Measure Theorem 2 and Corollary 2 under every Gamma.

    Also how the gradient falls with the number of nodes.
    """
    problem, means = _problem(setting, setting.nodes[0]), []
    for gamma in gammas:
        path = _followed(problem, gamma, setting)
        means += [float(np.mean(path.slope_sq))] if gamma == gammas[0] else []
        steep = max(float(curvatures(problem, w).max()) for w in (path.points[0], path.last))
        constants = constants_of(path, max(steep, float(path.secant.max())))
        found, interval = theorem_2(path, constants), corollary_2(constants)
        case = f"softmax on {setting.data}, Gamma {gamma}"
        above = float(np.max(path.loss[1:] - found["curve"]))
        yield _row("theorem_2_inequality", case, above, 1e-6, f"F - U is {above:.3g} at most")
        says = (
            f"u(eta) = {found['u']:.3g}, u(0) = {found['u_at_zero']:.3g} with L_1 "
            f"= {constants.l1:.3g}"
        )
        yield _row("theorem_2_positive", case, -found["u_at_zero"], -1e-12, says)
        yield _row("corollary_2", case, float(interval["vacuous"]), 0.5, interval["verdict"])
    for nodes in setting.nodes[1:]:
        path = _followed(_problem(setting, nodes), gammas[0], setting)
        means.append(float(np.mean(path.slope_sq)))
    slope = _slope(list(setting.nodes), means)
    says = f"slope {slope:.3g}, 1/I is -1: mean ||grad F||^2 {', '.join(f'{m:.4g}' for m in means)}"
    yield _row(
        "rate_in_nodes", f"softmax on {setting.data}, {setting.nodes} nodes", slope, -0.9, says
    )


def _corollary_1(setting: Setting, gamma: int) -> Iterator[Json]:
    """Measure whether updates die out.

    For nodes that one model suits, and for nodes that each want another.
    """
    nodes, patient = setting.nodes[0], setting._replace(step=0.2, slots=400)
    for kind, apart in (("corollary_1_alike", 0.0), ("corollary_1_unlike", 1.0)):
        drawn = load("quadratic", nodes=nodes, heterogeneity=apart)
        problem = make_problem(
            drawn, "quadratic", split("given", drawn.y_train, nodes, group=drawn.group)
        )
        path = _followed(problem, gamma, patient)
        for check in assumptions(problem, path, constants_of(path, 1.0)):
            if check.name.startswith("Corollary 1"):
                value = {True: 0.0, False: 1.0, None: float("nan")}[check.holds]
                yield _row(kind, check.name, value, 0.5, check.text)


def _bandwidth(setting: Setting) -> Iterator[Json]:
    """Measure Proposition 1 on the schedules of many drops.

    KKT residuals, and the value of a linear program.
    """
    network, nodes = RadioNetwork(), 5
    keys = jax.random.split(make_key(0, Stream.GEOMETRY), setting.drops)
    rates, on, reached, residuals = (
        np.asarray(part, float) for part in _allocate(network, nodes, keys)
    )
    used = on.any(axis=1)
    best = [
        _program(rates[drop][on[drop] > 0], network.bandwidth_hz) for drop in np.flatnonzero(used)
    ]
    gap, worst = float(np.max(best / reached[used] - 1)), float(residuals[used].max())
    case = f"{int(used.sum())} drops, {nodes} nodes, 0 dB"
    yield _row("proposition_1_kkt", case, worst, 1e-4, f"largest relative residual {worst:.2g}")
    says = f"the program's rate is above it by {100 * gap:.2g} % at most"
    yield _row("proposition_1_program", case, gap, 1e-4, says)


@partial(jax.jit, static_argnums=(0, 1))
def _allocate(network: RadioNetwork, nodes: int, keys: jax.Array) -> tuple[jax.Array, ...]:
    """Return rates, schedule, the least rate reached by (29) and its KKT residual.

    For one block of each drop.
    """

    def of_one(key: jax.Array) -> tuple[jax.Array, ...]:
        sinr = network.sinr(place(network, nodes, key), key)
        linked = schedule.links(sinr, db_to_linear(network.threshold_db))
        rates, on = schedule.se_min(sinr, linked), schedule.scheduled(linked)
        share = bandwidth.optimal(rates, on, network.bandwidth_hz)
        reached = jnp.min(jnp.where(on, share * rates, jnp.inf))
        return rates, on, reached, bandwidth.certify(share, rates, on, network.bandwidth_hz).worst()

    return jax.lax.map(of_one, keys)


def _program(rates: np.ndarray, total_hz: float) -> float:
    """Return max t subject to t <= B_i R_i, sum B_i <= B, B >= 0, by linear programming.

    The variables are shares of B.
    """
    from scipy.optimize import linprog

    count = len(rates)
    rows = np.hstack([-np.diag(rates / rates.min()), np.ones((count, 1))])
    budget = np.append(np.ones(count), 0.0)[None]
    found = linprog(
        np.append(np.zeros(count), -1.0),
        A_ub=np.vstack([rows, budget]),
        b_ub=np.append(np.zeros(count), 1.0),
        bounds=[(0, None)] * (count + 1),
    )
    return -found.fun * total_hz * float(rates.min())
