"""The theory of own parts held against runs: where they rest, and which step they bear.

    rows = examine_own(resolve(read("mine.toml")))            # what `folkman theory own` prints

The first Algorithm 1 of a comparison is run once with each own part. Beside its end stands what
Theorems E to G of docs/fresh-air-theory.md say of constant ages: those of the last third of the
slots, in the mean over time.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from folkman.checks import require
from folkman.config.comparison import Comparison
from folkman.engine.simulate import march, start
from folkman.experiment.parts import Part, parts
from folkman.experiment.theory import first_stamps, outside
from folkman.problem.learnable import Learnable, analysable
from folkman.problem.models import ENERGY
from folkman.problem.problem import Problem
from folkman.record.json_file import Json
from folkman.record.run import json_row
from folkman.theory import own_part as op
from folkman.theory.own_limits import bias_bound_any_ages, limit_alike, slope_bound
from folkman.theory.smoothness import ceiling, curvatures, whole_curvature
from folkman.theory.trajectory import METHOD, ages_of, full_gradients, step_weights

__all__ = ["KNOWN", "examine_own", "quadratics_of"]

KNOWN = ("newest", "aligned", "0.5", "centred", "adaptive")
"""Own parts whose shares are constant, or are at rest."""


def examine_own(comparison: Comparison, names: Sequence[str] = KNOWN) -> list[Json]:
    """Return a row for each own part: what the theory says, and what a run does."""
    mine = [table for table in comparison.algorithm if table["name"] == METHOD]
    require(bool(mine), f"own parts are of Algorithm 1: add an algorithm named {METHOD}")
    table = mine[0]
    lacking = outside(comparison, table | {"own": "newest"})
    require(
        not lacking,
        "the theory is about Algorithm 1 with a constant step and full gradients: "
        f"'{table['label']}' has {lacking}",
    )
    owns = [_own(name) for name in names]
    both = zip(owns, names, strict=True)
    tables = tuple(table | {"own": own, "label": name} for own, name in both)
    given = {"algorithm": tables, "seeds": comparison.seeds[:1]}
    with jax.enable_x64(comparison.precision == "float64"):
        made = parts(comparison.model_copy(update=given))
        return [_row(part, own, table) for part, own in zip(made, owns, strict=True)]


def _own(name: str) -> str | float:
    """Return the option of a name: a word, or a number."""
    try:
        return float(name)
    except ValueError:
        require(
            name in KNOWN,
            f"the theory knows own = {', '.join(KNOWN)} or another number in [0, 1], whose shares "
            f"are constant; got {name!r}",
        )
        return name


def _row(part: Part, own: str | float, table: Json) -> Json:
    """Run one own part and put its end beside the theory."""
    problem = analysable(part.simulation.problem, "the theory of own parts")
    shares = np.asarray(problem.share, float)
    scales, _, _ = step_weights(shares, table["step"], table["scaling"])
    require(
        bool(np.ptp(scales) <= 1e-9 * scales.max()),
        "nodes take unlike steps with scaling = 'local' and unequal shares, which the theory of "
        "own parts leaves out; take scaling = 'theorem'",
    )
    step = float(table["step"] * scales[0])
    ages = ages_of(first_stamps(part, part.slots))
    ages = ages[2 * len(ages) // 3 :].mean(axis=0)
    setting = op.named(own, np.round(ages).astype(int), shares)
    nodes, moved = _ends(part)
    slopes = -moved / step  # g_j, if the run rests
    mean = shares @ nodes
    below = whole_curvature(problem, problem.initial)
    smooth = ceiling(problem)
    proved = bool(np.isfinite(smooth).all())
    smooth = smooth if proved else curvatures(problem, mean)
    back = 0.0 if setting.set_back is None else float(shares @ setting.set_back)
    rho, late = float(shares @ setting.rho), round(float((shares @ ages).sum() / _others(shares)))
    edge = limit_alike(late, rho, back)
    moving = float(np.linalg.norm(shares @ slopes))
    found = {"own": part.run.label, "rho": rho, "set_back": back, "share_at_rest": rho - back}
    found |= {"mean_age": float((shares @ ages).sum() / _others(shares))}
    found |= {"limit": edge, "stable_below": edge / (below * scales[0]) if below > 0 else None}
    found |= {"margin": edge / (step * below) if below > 0 else None, "step": table["step"]}
    found |= {"slope": _slope(problem, mean), "moving": moving, "smoothness_proved": proved}
    found |= {"rest_bound": slope_bound(setting, shares, smooth, step, slopes)}
    found |= _distances(problem, setting, step, mean)
    return json_row(found)


def _others(shares: NDArray) -> float:
    """Return what sum_i alpha_i sum_{j != i} a_ij is divided by for the mean age."""
    return max(len(shares) - 1.0, 1.0)


def _ends(part: Part) -> tuple[NDArray, NDArray]:
    """Return the nodes' parameters at the end of a run, and how they moved in a slot at last."""
    algorithm = part.simulation.algorithm
    every = max(1, part.slots // 10)
    record = part.simulation.recording._replace(every=every, stop_at=())
    simulation = part.simulation._replace(recording=record)
    seen: list[tuple[int, NDArray]] = []
    for mark, _ in march(simulation, start(simulation, part.run.seed), part.slots):
        params = jax.vmap(algorithm.params)(mark.carry.states)
        seen = [*seen[-1:], (int(mark.carry.slot), np.asarray(params, float))]
    (before, old), (now, new) = seen if len(seen) == 2 else (seen[0], seen[0])
    return new, (new - old) / max(now - before, 1)


def _slope(problem: Learnable, mean: NDArray) -> float:
    """Return ||grad F(w)||."""
    point = jnp.asarray(mean, problem.initial.dtype)
    points = jnp.broadcast_to(point, (problem.num_nodes, len(mean)))
    each = np.asarray(full_gradients(analysable(problem, "a gradient"), points)[1], float)
    return float(np.linalg.norm(np.asarray(problem.share, float) @ each))


def quadratics_of(problem: Learnable) -> op.Quadratics | None:
    """Return the losses of a problem whose losses are quadratic; None of any other."""
    if not isinstance(problem, Problem) or problem.model.head != ENERGY:
        return None
    counts = np.asarray(problem.count)
    x, y = (np.asarray(each, float) for each in (problem.x, problem.y))
    curved = np.stack([y[i, :n].mean(axis=0) + problem.l2 for i, n in enumerate(counts)])
    pull = np.stack([(y[i, :n] * x[i, :n]).mean(axis=0) for i, n in enumerate(counts)])
    shares = np.asarray(problem.share, float)
    return op.Quadratics(np.stack([np.diag(row) for row in curved]), pull / curved, shares)


def _distances(problem: Learnable, s: op.Setting, step: float, mean: NDArray) -> Json:
    """Return ||w - w*|| of quadratics: at the end, where the theory has it, and its bound."""
    q = quadratics_of(problem)
    if q is None:
        return {"away": None, "bias": None, "bias_bound": None, "radius": None}
    best = op.optimum(q)
    bias = float(np.linalg.norm(op.fixed_point(q, s, step).mean - best))
    found: Json = {"away": float(np.linalg.norm(mean - best)), "bias": bias}
    return found | {
        "bias_bound": bias_bound_any_ages(q, s, step),
        "radius": op.spectral_radius(q, s, step),
    }
