"""The theory held against a comparison: bounds on its runs, stable steps, warnings before a run.

    found = examine("runs/first")              # what `folkman theory bound` prints
    rows = advise_steps(resolve(read("mine.toml")))

The theory is about Algorithm 1 with a constant step and full gradients; what lies outside is left
out, with the reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from folkman.algorithm.pieces.topology import Graph
from folkman.checks import one_of, require
from folkman.config.comparison import Comparison, FaultTable, told
from folkman.engine.simulate import Recording, simulate
from folkman.experiment.parts import Part, comparison_of, parts
from folkman.packing.packing import message_bits, width_of
from folkman.problem.learnable import Learnable, analysable
from folkman.radio.delivery import Network
from folkman.radio.trace import PeerTimeline, load, record_timeline
from folkman.record.folder import RunFolder
from folkman.record.json_file import Json
from folkman.record.run import DIVERGED, json_row, jsonable
from folkman.record.tuned import CHANGED, UNTUNED, sides_of, standings
from folkman.theory.convergence import Bound, all_bounds, effective_age, measured, without_running
from folkman.theory.efficiency import Setting, compare_efficiency
from folkman.theory.own_limits import limit_alike
from folkman.theory.own_part import stable_step_alike
from folkman.theory.printed import (
    assumptions,
    constants_of,
    corollary_2,
    theorem_2,
    theorem_h,
)
from folkman.theory.smoothness import ceiling, curvatures, whole_curvature
from folkman.theory.stability import Advice, advise, is_measured, stability_warning
from folkman.theory.tracking_limits import TRACKING, is_stable, tracking_limit
from folkman.theory.trajectory import METHOD, Trajectory, ages_of, follow

__all__ = ["Examination", "Examined", "advise_steps", "examine", "first_stamps", "outside"]
__all__ += ["step_warnings"]

MOST_NODES_WARNED = 200
"""Nodes up to which the stability limit is looked at: a timeline has nodes x nodes entries per
slot."""


class Examined(NamedTuple):
    """One run and the theory: the answer as `--json` prints it, and the curves to draw."""

    answer: Json
    measured: NDArray[np.float64]  # (slot,)
    bounds: dict[str, NDArray[np.float64]]  # name -> (slot,); NaN where a bound says nothing
    smoothness: str  # which L the curves use: "ceiling", a proof, or "measured", an estimate


class Examination(NamedTuple):
    """The runs of Algorithm 1 in a folder, Table I of all its runs, and what was left out."""

    runs: list[Examined]
    efficiency: list[Json]
    left_out: str


def examine(root: str | Path, label: str | None = None, seed: int | None = None) -> Examination:
    """Check the convergence theory on the runs of a folder under one seed.

    What the folder lacks is run again.

    Without a label all of Algorithm 1 are examined, without a seed those of the first.
    """
    folder = RunFolder.open(Path(root))
    comparison = comparison_of(folder)
    with jax.enable_x64(comparison.precision == "float64"):
        chosen, left_out = _chosen(comparison, label, comparison.seeds[0] if seed is None else seed)
        runs = [_examine(part, _table_of(comparison, part.run.label), folder) for part in chosen]
        return Examination(runs, _efficiency(comparison, folder), left_out)


def advise_steps(comparison: Comparison) -> tuple[list[Json], str]:
    """Return a row of advice for each step of Algorithm 1, and what was left out and why."""
    rows = []
    with jax.enable_x64(comparison.precision == "float64"):
        chosen, left_out = _chosen(comparison, None, comparison.seeds[0])
        for part in chosen:
            table = _table_of(comparison, part.run.label)
            problem = analysable(part.simulation.problem, "advice on steps")
            stamps = first_stamps(part, 300)
            advice = advise(problem, stamps, table["scaling"])
            head = {"label": part.run.label, "step": table["step"]}
            head["beyond_limit"] = bool(table["step"] > advice.stable_below)
            more = own_part_rows(stamps, np.asarray(problem.share, float), advice)
            rows.append(head | advice._asdict() | more)
    return rows, left_out


def own_part_rows(held: NDArray[np.integer], shares: NDArray, advice: Advice) -> Json:
    """Return what the share rho of the own progress does to the stable step (Theorem F).

    `limit` is of eta L for nodes alike with equal shares, if all copies had the mean age; `steps`
    are eta. `sufficient` is proved for nodes alike under these very ages, for Algorithm 1 and for
    own parts that are centred (Theorem G); `own_rules` has the limits of the latter.
    """
    ages = ages_of(held)
    late = float((ages @ shares).max())  # the largest sum_j alpha_j a_ij(t)
    nodes = len(shares)
    mean = float(ages[len(ages) // 3 :].sum(axis=2).mean()) / max(nodes - 1, 1)
    per_limit = advice.stable_below / advice.limit
    limits = {rho: stable_step_alike(round(mean), rho) for rho in (0.0, 1 / nodes, 0.5, 1.0)}
    found = [{"rho": r, "limit": e, "stable_below": e * per_limit} for r, e in limits.items()]
    centred = limit_alike(round(mean), 1 / nodes, 1 / nodes)
    rules = [{"own": "centred", "limit": centred, "stable_below": centred * per_limit}]
    sufficient = min(1.0, 0.5 / late) if late > 0 else 1.0
    known: Json = {"mean_age": mean, "sufficient": sufficient}
    return known | {"own_part": found, "own_rules": rules}


def step_warnings(comparison: Comparison, first_seed: Iterable[Part]) -> Iterator[str]:
    """Yield a sentence for each step of Algorithm 1 beyond the limit of its losses and ages.

    And for one of R-FAST beyond that of its graph.

    Not for one that a search found: the limit is that of the first model, and the loss may curve
    less later on.
    """
    if comparison.nodes > MOST_NODES_WARNED or comparison.faults != FaultTable():
        return
    states = standings(sides_of(told(comparison)))
    for part in first_seed:
        table = _table_of(comparison, part.run.label)
        if states[part.run.label] not in (UNTUNED, CHANGED):
            continue
        if table["name"] == TRACKING:
            warning = _tracking_warning(part.simulation.problem, table)
            if warning is not None:
                yield f"'{part.run.label}': {warning}"
        if table["name"] != METHOD or table["delay_policy"] != "none" or table["own"] != "newest":
            continue
        warning = stability_warning(
            part.simulation.problem, first_stamps(part, 120), table["step"], table["scaling"]
        )
        if warning is not None:
            yield f"'{part.run.label}': {warning}"


def _tracking_warning(problem: Learnable, table: Json) -> str | None:
    """Return a warning if R-FAST's step is beyond the limit of its graph at the first model."""
    if not is_measured(problem):
        return None
    graph = Graph(table["topology"], table["degree"], table["graph_seed"])
    if not graph.directed:
        return None
    curved = whole_curvature(problem, problem.initial)
    hears = graph.adjacency(problem.num_nodes)
    if is_stable(hears, table["step"] * curved):
        return None
    largest = tracking_limit(hears)
    return (
        f"the step {table['step']:g} is beyond the stability limit of R-FAST on this graph: "
        f"eta L = {table['step'] * curved:.3g} at the first model, where {problem.num_nodes} nodes "
        f"on {table['topology']!r} allow {largest:.2g} even if every message came at once; take a "
        f"step below {largest / curved:.2g}, or the topology 'exponential', which bears longer ones"
    )


def model_bits(network: Network, problem: Learnable) -> int:
    """Return the bits of a model on a network."""
    width = width_of(problem.initial.dtype)
    return message_bits(network.packing, problem.dim, problem.dim, width)


def first_stamps(part: Part, most: int) -> NDArray[np.int32]:
    """Return the stamps (slot, rx, tx) of the first slots of a run's network, at most so many."""
    problem, network, *_ = part.simulation
    slots = min(part.slots, most, network.horizon or most)
    bits = model_bits(network, problem)
    return record_timeline(network, problem.num_nodes, slots, part.run.seed, bits).held


def _table_of(comparison: Comparison, label: str) -> Json:
    return next(table for table in comparison.algorithm if table["label"] == label)


def _chosen(comparison: Comparison, label: str | None, seed: int) -> tuple[Sequence[Part], str]:
    """Return the runs of Algorithm 1 that the theory is about, and what the others lack."""
    labels = [table["label"] for table in comparison.algorithm]
    one_of("label", label, labels)
    require(seed in comparison.seeds, f"there is no seed {seed}; known: {list(comparison.seeds)}")
    wanted = [table for table in comparison.algorithm if label in (None, table["label"])]
    lacking = {table["label"]: outside(comparison, table) for table in wanted}
    fit = [name for name, reason in lacking.items() if not reason]
    reasons = "; ".join(f"'{name}' has {reason}" for name, reason in lacking.items() if reason)
    require(
        bool(fit),
        f"the theory is about Algorithm 1 with a constant step and full gradients: {reasons}",
    )
    under_seed = parts(comparison.model_copy(update={"seeds": (seed,)}))
    return [part for part in under_seed if part.run.label in fit], reasons


def outside(comparison: Comparison, table: Json) -> str:
    """Return what puts an algorithm of a comparison outside the theory; nothing if it is inside."""
    if table["name"] != METHOD:
        return f"the method {table['name']}"
    plain = {"decay": "constant", "rule": "mean", "delay_policy": "none", "max_age": None}
    plain |= {"own": "newest"}
    found = [
        f"{key} = {table[key]}" for key, value in plain.items() if table.get(key, value) != value
    ]
    found += [f"batch = {comparison.batch}"] if comparison.batch is not None else []
    projection = comparison.projection["name"]
    found += [f"projection {projection}"] if projection != "none" else []
    slow = comparison.compute_slots not in (1, (1,) * comparison.nodes)
    found += ["compute_slots above 1"] if slow else []
    found += ["faulty nodes"] if comparison.faults.faults() != FaultTable().faults() else []
    return ", ".join(found)


def _examine(part: Part, table: Json, folder: RunFolder) -> Examined:
    """Follow one run again and hold the theory against it."""
    run, problem = part.run, analysable(part.simulation.problem, "the theory")
    held, off = _stamps(part, folder)
    path = follow(problem, held, table["step"], table["scaling"])
    if not np.isfinite(path.loss).all():
        raise ValueError(
            f"'{run.label}' (seed {run.seed}) diverged; no bound can hold: try folkman theory step"
        )
    smooth = np.max([curvatures(problem, w) for w in (*path.points, path.last)], axis=0)
    smooth = np.maximum(smooth, path.secant.max(axis=0))
    above = ceiling(problem)
    known = {"measured": smooth} | ({"ceiling": above} if np.isfinite(above).all() else {})
    curves = {kind: all_bounds(path, each) for kind, each in known.items()}
    trivial = {kind: without_running(path, each) for kind, each in known.items()}
    c = constants_of(path, float(smooth.max()))
    ages = {
        "max_age": int(path.ages.max()),
        "effective_age": effective_age(path.ages, path.weights),
    }
    printed = {key: value for key, value in theorem_2(path, c).items() if key != "curve"}
    # a proof where there is one, else an estimate
    best = "ceiling" if "ceiling" in known else "measured"
    weighted = theorem_h(path, float(known[best].max()))
    found = {
        "label": run.label,
        "seed": run.seed,
        "slots": len(path.slope_sq),
        "measured": float(measured(path)[-1]),
        "constants": json_row(c._asdict()) | ages,
        "ceiling": jsonable(float(above.max())),
        "bounds": {
            kind: [_verdict(b, path, trivial[kind]) for b in each] for kind, each in curves.items()
        },
        "theorem_2": json_row(printed),
        "theorem_h": json_row({k: v for k, v in weighted.items() if k != "curve"} | {"l1": best}),
        "corollary_2": json_row(corollary_2(c)),
        "checks": [check._asdict() for check in assumptions(problem, path, c)],
        "differs_from_folder": off,
    }
    drawn = {
        b.name: np.where(b.curve < trivial[best], b.curve, np.nan)
        for b in curves[best]
        if not b.reason
    }
    return Examined(found, measured(path), drawn, best)


def _verdict(bound: Bound, path: Trajectory, trivial: float) -> Json:
    """Return a bound at the end of a run: whether it holds, and whether it says anything."""
    last = float(bound.curve[-1])
    head = {"name": bound.name, "value": jsonable(last), "holds": bound.holds(path)}
    return head | {"vacuous": None if bound.reason else last >= trivial, "reason": bound.reason}


def _stamps(part: Part, folder: RunFolder) -> tuple[NDArray[np.int32], float | None]:
    """Return the stamps of a run, and how the loss of a second run differs.

    They come from its saved timeline or from running it again.
    """
    saved = folder.timeline(part.run)
    if saved.is_file():
        timeline = load(saved)
        if isinstance(timeline, PeerTimeline):
            return timeline.held, None
    problem, network, algorithm, clock, _, faults, _ = part.simulation
    options: Json = {"slots": part.slots, "seed": part.run.seed, "clock": clock, "faults": faults}
    again = simulate(
        problem, network, algorithm, recording=Recording(part.slots, timeline=True), **options
    )
    if not folder.metrics.is_file() or again.status == DIVERGED:
        return again.timeline.held, None
    known = [
        r for r in folder.load_results() if (r.label, r.seed) == (part.run.label, part.run.seed)
    ]
    before = known[0].last("train_loss") if known else again.last("train_loss")
    return again.timeline.held, abs(again.last("train_loss") - before) / max(abs(before), 1e-12)


def _efficiency(comparison: Comparison, folder: RunFolder) -> list[Json]:
    """Return Table I's quantities for the runs of a folder whose networks have a fixed Gamma."""
    if not folder.metrics.is_file():
        return []
    runs, rows = folder.load_results(), []
    first_seed = parts(comparison.model_copy(update={"seeds": comparison.seeds[:1]}))
    for table, part in zip(comparison.algorithm, first_seed, strict=True):
        problem, network, *_ = part.simulation
        own = table["network"] or comparison.network
        gamma = own.get("gamma")
        # the formulas are of rounds of Gamma slots
        if not gamma or own["name"] not in (
            "snapshot",
            "pipelined",
        ):
            continue
        tau = table.get("tau")
        steps = tau if isinstance(tau, int) else table.get("local_steps", 1)
        setting = Setting(problem.num_nodes, gamma, model_bits(network, problem), steps)
        first = next(each for each in runs if each.label == table["label"])
        rows += [json_row(row._asdict()) for row in compare_efficiency(first, setting)]
    return rows
