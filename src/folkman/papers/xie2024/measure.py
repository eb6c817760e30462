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
from folkman.radio.air import place
from folkman.radio.delay import snapshot
from folkman.radio.network import RadioNetwork
from folkman.radio.trace import record_timeline
from folkman.record.json_file import Json
from folkman.theory.duality import survey
from folkman.theory.printed import assumptions, constants_of, corollary_2, theorem_2, theorem_h
from folkman.theory.smoothness import curvatures
from folkman.theory.trajectory import Trajectory, follow
from folkman.units import db_to_linear

__all__ = ["Extent", "measure"]

BITS = 16

DECAY = -0.9
"""At most so much may be the slope of a logarithm over that of the nodes for 1/I to be seen."""


class Extent(NamedTuple):
    """How much is measured."""

    nodes: tuple[int, ...]
    families: tuple[str, ...]
    data: str  # softmax on it: the only model here with an upper bound of its curvature
    samples: int
    step: float
    slots: int
    drops: int
    gammas: int  # of the size's, how many


FAMILIES = ("worst", "double_well", "robust", "network")
EXTENTS = {
    "smoke": Extent((2, 4), FAMILIES[:2], "digits", 200, 0.05, 60, 20, 1),
    "laptop": Extent((5, 10, 15), FAMILIES, "digits", 900, 0.05, 300, 400, 3),
    "full": Extent((5, 10, 15), FAMILIES, "mnist", 6000, 0.05, 500, 2000, 3),
}


def measure(paper: Paper, size: str, tell: Callable[[str], None] = lambda _: None) -> list[Json]:
    """Return every measurement that a claim of the theory asks for."""
    extent, gammas = EXTENTS[size], paper.sizes[size]["gammas"]
    rows: list[Json] = []
    for name, part in (
        ("duality gaps", partial(_gaps, extent)),
        ("convergence", partial(_convergence, extent, gammas[: extent.gammas])),
        ("Corollary 1", partial(_corollary_1, extent, gammas[0])),
        ("bandwidth", partial(_bandwidth, extent)),
    ):
        rows += part()
        tell(f"measured: {name}")
    return rows


def _row(measure: str, case: str, value: float, limit: float, says: str) -> Json:
    numbers = {"value": float(value), "limit": float(limit)}
    return {"measure": measure, "case": case, **numbers, "says": says}


def _gaps(extent: Extent) -> Iterator[Json]:
    """Measure Theorem 1: the gap of both problems against 2 alpha_max, its decay, Delta_worst."""
    counts = [4, 8, 16, 32]
    for family in extent.families:
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
            yield _row(kind, family, slope, DECAY, says)
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


def _problem(extent: Extent, nodes: int) -> Problem:
    """Return softmax regression on the extent's data, dealt out evenly."""
    return make_problem(
        load(extent.data, train_size=extent.samples, test_size=200), "softmax", nodes
    )


def _followed(problem: Problem, gamma: int, extent: Extent, scaling: str = "theorem") -> Trajectory:
    held = record_timeline(
        snapshot(gamma), problem.num_nodes, extent.slots, 0, problem.dim * BITS
    ).held
    return follow(problem, held, extent.step, scaling)


def _convergence(extent: Extent, gammas: list[int]) -> Iterator[Json]:
    """Measure Theorem 2, its repaired form and Corollary 2 under every Gamma; the rate in nodes."""
    problem, factors = _problem(extent, extent.nodes[0]), []
    for gamma in gammas:
        path = _followed(problem, gamma, extent)
        steep = max(float(curvatures(problem, w).max()) for w in (path.points[0], path.last))
        l1 = max(steep, float(path.secant.max()))
        constants = constants_of(path, l1)
        found, interval = theorem_2(path, constants), corollary_2(constants)
        factors.append(found["u"])
        case = f"softmax on {extent.data}, Gamma {gamma}"
        above = float(np.max(path.loss[1:] - found["curve"]))
        yield _row("theorem_2_inequality", case, above, 1e-6, f"F - U is {above:.3g} at most")
        says = (
            f"u(eta) = {found['u']:.3g}, u(0) = {found['u_at_zero']:.3g} with L_1 "
            f"= {constants.l1:.3g}"
        )
        yield _row("theorem_2_positive", case, -found["u_at_zero"], -1e-12, says)
        yield _row("corollary_2", case, float(interval["vacuous"]), 0.5, interval["verdict"])
        repaired = theorem_h(path, l1)
        yield _row("theorem_h", case, float(repaired["vacuous"]), 0.5, repaired["verdict"])
    rises = max(np.diff(factors), default=0.0)
    says = f"u(eta) is {', '.join(f'{u:.3g}' for u in factors)} for Gamma {gammas}"
    yield _row("bound_in_gamma", f"softmax on {extent.data}", rises, 0.0, says)
    yield from _rates(extent, gammas[0])


def _rates(extent: Extent, gamma: int) -> Iterator[Json]:
    """Measure how three quantities that may be meant by the rate fall with the nodes."""
    slopes, updates, large = [], [], []
    for nodes in extent.nodes:
        problem = _problem(extent, nodes)
        path = _followed(problem, gamma, extent)
        slopes.append(float(np.mean(path.slope_sq)))
        pushed = path.shares * path.scales * path.local  # ||s_i||
        updates.append(float(np.mean(np.sum(pushed**2, axis=1))))
        path = _followed(problem, gamma, extent, "figure")
        large.append(float(np.mean(path.slope_sq)))
    kinds = {
        "rate_in_nodes": ("mean ||grad F||^2", slopes),
        "rate_of_updates": ("mean sum ||s_i||^2", updates),
        "rate_at_step_times_nodes": ("mean ||grad F||^2", large),
    }
    case = f"softmax on {extent.data}, {extent.nodes} nodes"
    for kind, (name, means) in kinds.items():
        slope = _slope(list(extent.nodes), means)
        says = f"slope {slope:.3g}, 1/I is -1: {name} {', '.join(f'{m:.4g}' for m in means)}"
        yield _row(kind, case, slope, DECAY, says)


def _corollary_1(extent: Extent, gamma: int) -> Iterator[Json]:
    """Measure whether updates die out: of nodes that one model suits, and of others."""
    nodes, patient = extent.nodes[0], extent._replace(step=0.2, slots=400)
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


def _bandwidth(extent: Extent) -> Iterator[Json]:
    """Measure Proposition 1 on many drops: KKT residuals, the value of a linear program."""
    network, nodes = RadioNetwork(), 5
    keys = jax.random.split(make_key(0, Stream.GEOMETRY), extent.drops)
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
    """Return rates, schedule, least rate by (29) and KKT residual, of a block of each drop."""

    def of_one(key: jax.Array) -> tuple[jax.Array, ...]:
        sinr = network.sinr(place(network, nodes, key), key)
        linked = schedule.links(sinr, db_to_linear(network.threshold_db))
        rates, on = schedule.se_min(sinr, linked), schedule.scheduled(linked)
        share = bandwidth.optimal(rates, on, network.bandwidth_hz)
        reached = jnp.min(jnp.where(on, share * rates, jnp.inf))
        return rates, on, reached, bandwidth.certify(share, rates, on, network.bandwidth_hz).worst()

    return jax.lax.map(of_one, keys)


def _program(rates: np.ndarray, total_hz: float) -> float:
    """Return max t with t <= B_i R_i, sum B_i <= B, B >= 0; the variables are shares of B."""
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
