"""The command line of the theory: `folkman theory gap`, `bound`, `step`.

Heavy packages are imported inside the commands, so that `folkman --help` answers at once.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from folkman.config.comparison import Comparison
    from folkman.experiment.compare import Part
    from folkman.theory.convergence import Bound

__all__ = ["theory_app"]

theory_app = typer.Typer(
    no_args_is_help=True, help="The theory, measured: duality gaps, convergence bounds, stable steps."
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw a figure here (.png, .svg, .pdf).")]


@theory_app.command()
def gap(
    nodes: Annotated[list[int] | None, typer.Option(help="Nodes. May be repeated; 1, 2, 4 ... 64.")] = None,
    model: Annotated[
        str, typer.Option(help="quadratic, double_well, robust, network, wide_network, worst")
    ] = "double_well",
    reach: Annotated[str, typer.Option(help="What a node reaches: the same, or shrinking with its share.")] = "same",
    seed: Annotated[int, typer.Option(help="Of the drawn losses.")] = 0,
    as_json: AsJson = False,
    plot_file: PlotFile = None,
) -> None:
    """Measure the duality gap of Theorem 1 and its bounds against the number of nodes."""
    from folkman.report.figures import check_target, save
    from folkman.report.theory import draw_gaps, gap_table
    from folkman.theory.duality import survey

    if plot_file is not None:
        check_target(plot_file)
    counts = nodes or [1, 2, 4, 8, 16, 32, 64]
    rows = [found.row() for found in survey(model, counts, reach, seed)]
    _console(quiet=as_json).print(gap_table(rows, model))
    if plot_file is not None:
        _tell(save(draw_gaps(rows, model), plot_file), quiet=as_json)
    if as_json:
        print(json.dumps({"model": model, "reach": reach, "rows": rows}, allow_nan=False))


@theory_app.command()
def bound(
    run: Annotated[Path, typer.Argument(help="A run folder that `folkman run` made.")],
    label: Annotated[str | None, typer.Option(help="One of its labels; all of Algorithm 1 without it.")] = None,
    seed: Annotated[int | None, typer.Option(help="One of its seeds; the first without it.")] = None,
    as_json: AsJson = False,
    plot_file: PlotFile = None,
) -> None:
    """Check the convergence theory on the runs of Algorithm 1 in a folder; what it lacks is run again."""
    from folkman.record.folder import RunFolder
    from folkman.report.figures import check_target, save
    from folkman.report.theory import bound_table, draw_bounds, efficiency_table

    if plot_file is not None:
        check_target(plot_file)
    folder = RunFolder.open(run)
    comparison = _comparison(folder.configuration())
    console, answers, figure = _console(quiet=as_json), [], plot_file
    for part in _chosen(comparison, label, comparison.seeds[0] if seed is None else seed):
        found, (path, bounds, kind) = _examine(part, comparison, folder)
        console.print(bound_table(found))
        answers.append(found)
        if figure is not None:
            title = f"{found['label']}, seed {found['seed']}, L {kind}; drawn where they say something"
            _tell(save(draw_bounds(path, bounds, title), figure), quiet=as_json)
            figure = figure.with_name(f"{plot_file.stem}-{len(answers)}{figure.suffix}") if plot_file else None
    rows = _efficiency(comparison, folder)
    if rows:
        console.print(efficiency_table(rows))
    if as_json:
        print(json.dumps({"runs": answers, "efficiency": rows}, allow_nan=False))


@theory_app.command()
def step(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; without one, the demo on the digits.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Override a key. May be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Propose a stable step for Algorithm 1 from the curvature of the losses and the ages of the network."""
    from folkman.radio.trace import record_timeline
    from folkman.theory.stability import advise

    comparison, rows = _comparison(config, settings or []), []
    for part in _chosen(comparison, None, comparison.seeds[0]):
        problem, network, *_ = part.simulation
        table = _table_of(comparison, part.run.label)
        slots = min(comparison.slots, 300, network.horizon or 300)
        size = problem.dim * network.bits_per_parameter
        held = record_timeline(network, problem.num_nodes, slots, part.run.seed, size).held
        advice = advise(problem, held, table["scaling"])
        beyond = table["step"] > advice.stable_below
        rows.append({"label": part.run.label, "step": table["step"], "beyond_limit": bool(beyond), **advice._asdict()})
    for row in rows:
        verdict = "BEYOND the limit" if row["beyond_limit"] else "below the limit"
        text = (
            f"{row['label']}: step {row['step']:g} is {verdict}\n"
            f"  advised {row['advised']:.3g}, stable below {row['stable_below']:.3g}, {_proved(row['proved'])}"
            f"\n  L {row['curvature']:.3g} (F), {row['curvature_nodes']:.3g} (largest F_i); "
            f"ages up to {row['max_age']}, effective {row['effective_age']:.3g}; eta L below {row['limit']:.3g}"
        )
        print(text, file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps({"rows": rows}, allow_nan=False))


def _comparison(config: Path | None, settings: list[str] | None = None) -> "Comparison":
    """Read a configuration and set the precision it asks for."""
    import jax

    from folkman.config.comparison import resolve
    from folkman.config.text import override, read

    comparison = resolve(override(read(config) if config else {}, settings or []))
    jax.config.update("jax_enable_x64", comparison.precision == "float64")
    return comparison


def _table_of(comparison: "Comparison", label: str) -> dict[str, Any]:
    return next(table for table in comparison.algorithm if table["label"] == label)


def _chosen(comparison: "Comparison", label: str | None, seed: int) -> "Iterator[Part]":
    """Yield the runs of Algorithm 1 that the theory is about; say what the others lack."""
    from folkman.checks import nearest, require
    from folkman.experiment.compare import parts

    labels = [table["label"] for table in comparison.algorithm]
    require(label is None or label in labels, f"there is no label '{label}'; {nearest(label or '', labels)}")
    require(seed in comparison.seeds, f"there is no seed {seed}; known: {list(comparison.seeds)}")
    wanted = [table for table in comparison.algorithm if label in (None, table["label"])]
    lacking = {table["label"]: _outside(comparison, table) for table in wanted}
    fit = [name for name, reason in lacking.items() if not reason]
    reasons = "; ".join(f"'{name}' has {reason}" for name, reason in lacking.items() if reason)
    require(bool(fit), f"the theory is about Algorithm 1 with a constant step and full gradients: {reasons}")
    if reasons:
        print(f"left out: {reasons}", file=sys.stderr)
    for part in parts(comparison.model_copy(update={"seeds": (seed,)})):
        if part.run.label in fit:
            yield part


def _outside(comparison: "Comparison", table: dict[str, Any]) -> str:
    """Say what puts an algorithm of a comparison outside the theory; nothing if it is inside."""
    if table["name"] != "async_sharing":
        return f"the method {table['name']}"
    plain = {"decay": "constant", "rule": "mean", "delay_policy": "none", "max_age": None}
    found = [f"{key} = {table[key]}" for key, value in plain.items() if table.get(key, value) != value]
    found += [f"batch = {comparison.batch}"] if comparison.batch is not None else []
    found += [f"projection {comparison.projection['name']}"] if comparison.projection["name"] != "none" else []
    slow = comparison.compute_slots not in (1, (1,) * comparison.nodes)
    found += ["compute_slots above 1"] if slow else []
    found += ["faulty nodes"] if comparison.faults.faults() != type(comparison.faults)().faults() else []
    return ", ".join(found)


def _examine(part: "Part", comparison: "Comparison", folder: Any) -> tuple[dict[str, Any], tuple[Any, Any, str]]:
    """Tell one run again and hold the theory against it; also return the curves to draw."""
    import numpy as np

    from folkman.theory.convergence import all_bounds, effective_age, measured, without_running
    from folkman.theory.printed import assumptions, constants_of, corollary_2, theorem_2
    from folkman.theory.smoothness import ceiling, curvatures
    from folkman.theory.trajectory import follow

    run, problem, table = part.run, part.simulation.problem, _table_of(comparison, part.run.label)
    held, off = _stamps(part, folder)
    path = follow(problem, held, table["step"], table["scaling"])
    if not np.isfinite(path.loss).all():
        raise ValueError(f"'{run.label}' (seed {run.seed}) diverged; no bound can hold: try folkman theory step")
    smooth = np.max([curvatures(problem, w) for w in (*path.points, path.last)], axis=0)
    smooth = np.maximum(smooth, path.secant.max(axis=0))
    above = ceiling(problem)
    known = {"measured": smooth} | ({"ceiling": above} if np.isfinite(above).all() else {})
    curves = {kind: all_bounds(path, each) for kind, each in known.items()}
    c = constants_of(path, float(smooth.max()))
    printed, interval = theorem_2(path, c), corollary_2(c)
    rows = {
        kind: [_verdict(b, path, without_running(path, known[kind])) for b in each] for kind, each in curves.items()
    }
    constants = {key: _finite(value) for key, value in c._asdict().items()}
    found = {
        "label": run.label,
        "seed": run.seed,
        "slots": len(path.slope_sq),
        "measured": float(measured(path)[-1]),
        "constants": constants
        | {"max_age": int(path.ages.max()), "effective_age": effective_age(path.ages, path.weights)},
        "ceiling": _finite(above.max()),
        "bounds": rows,
        "theorem_2": {key: _finite(value) for key, value in printed.items() if key != "curve"},
        "corollary_2": {key: _finite(value) for key, value in interval.items()},
        "checks": [check._asdict() for check in assumptions(problem, path, c)],
        "differs_from_folder": off,
    }
    best = "ceiling" if "ceiling" in known else "measured"  # a proof where there is one, else an estimate
    trivial = without_running(path, known[best])
    drawn = {b.name: np.where(b.curve < trivial, b.curve, np.nan) for b in curves[best] if not b.reason}
    return found, (measured(path), drawn, best)


def _verdict(bound: "Bound", path: Any, trivial: float) -> dict[str, Any]:
    """Return a bound at the end of a run: whether it holds, and whether it says anything."""
    last = float(bound.curve[-1])
    head = {"name": bound.name, "value": _finite(last), "holds": bound.holds(path)}
    return head | {"vacuous": None if bound.reason else last >= trivial, "reason": bound.reason}


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold."""
    from folkman.record.run import jsonable

    return value if isinstance(value, str | bool) else jsonable(float(value))


def _stamps(part: "Part", folder: Any) -> tuple[Any, float | None]:
    """Return the stamps of a run, from its saved timeline or by running it again, and how its loss then differs."""
    from folkman.engine.simulate import Recording, simulate
    from folkman.radio.trace import PeerTimeline, load
    from folkman.record.run import DIVERGED

    saved = folder.timeline(part.run)
    if saved.is_file():
        timeline = load(saved)
        if isinstance(timeline, PeerTimeline):
            return timeline.held, None
    problem, network, algorithm, clock, _, faults = part.simulation
    recording = Recording(part.slots, timeline=True)
    again = simulate(
        problem,
        network,
        algorithm,
        slots=part.slots,
        seed=part.run.seed,
        clock=clock,
        recording=recording,
        faults=faults,
    )
    if not folder.metrics.is_file() or again.status == DIVERGED:
        return again.timeline.held, None
    known = [r for r in folder.load_results() if (r.label, r.seed) == (part.run.label, part.run.seed)]
    before = known[0].last("train_loss") if known else again.last("train_loss")
    return again.timeline.held, abs(again.last("train_loss") - before) / max(abs(before), 1e-12)


def _proved(step: float | None) -> str:
    return "no proved step, as L is only estimated" if step is None else f"gradients provably bounded up to {step:.3g}"


def _efficiency(comparison: "Comparison", folder: Any) -> list[dict[str, Any]]:
    """Return Table I's quantities for the runs of a folder whose networks have a fixed Gamma."""
    from folkman.config.build import build_problem, pairs
    from folkman.theory.efficiency import Setting, compare_efficiency

    if not folder.metrics.is_file():
        return []
    problem, rows = build_problem(comparison, comparison.seeds[0]), []
    runs = folder.load_results()
    for table, (_, network) in zip(comparison.algorithm, pairs(comparison, problem), strict=True):
        own = table["network"] or comparison.network
        gamma = own.get("gamma")
        if not gamma or own["name"] not in ("snapshot", "pipelined"):  # the formulas are of rounds of Gamma slots
            continue
        tau = table.get("tau")
        steps = tau if isinstance(tau, int) else table.get("local_steps", 1)
        setting = Setting(problem.num_nodes, gamma, problem.dim * network.bits_per_parameter, steps)
        first = next(each for each in runs if each.label == table["label"])
        for row in compare_efficiency(first, setting):
            rows.append({key: _finite(value) for key, value in row._asdict().items()})
    return rows


def _console(*, quiet: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=quiet, width=None if sys.stdout.isatty() else 120)


def _tell(paths: list[Path], *, quiet: bool) -> None:
    for path in paths:
        print(path, file=sys.stderr if quiet else sys.stdout)
