"""The command line of the theory: `folkman theory gap`, `bound`, `step`, `own`."""

from pathlib import Path
from typing import Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Config, PlotFile, Settings
from folkman.record.json_file import Json

__all__ = ["theory_app"]

theory_app = typer.Typer(
    no_args_is_help=True,
    help="The theory, measured: duality gaps, convergence bounds, stable steps.",
)


@theory_app.command()
def gap(
    nodes: Annotated[
        list[int] | None,
        typer.Option(help="Number of nodes. May be repeated; default 1, 2, 4 ... 64."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="quadratic, double_well, robust, network, wide_network, worst")
    ] = "double_well",
    reach: Annotated[
        str, typer.Option(help="Reach of a node: same, or shrinking with its share.")
    ] = "same",
    seed: Annotated[int, typer.Option(help="Random seed of the drawn losses.")] = 0,
    as_json: AsJson = False,
    plot_file: PlotFile = None,
) -> None:
    """Measure the duality gap of Theorem 1.

    It is shown beside its bounds, against the number of nodes.
    """
    from folkman.report.figures import check_target, save
    from folkman.report.theory import draw_gaps, gap_table
    from folkman.theory.duality import survey

    if plot_file is not None:
        check_target(plot_file)
    counts = nodes or [1, 2, 4, 8, 16, 32, 64]
    rows = [found.row() for found in survey(model, counts, reach, seed)]
    common.console(quiet=as_json).print(gap_table(rows, model))
    if plot_file is not None:
        common.print_paths(save(draw_gaps(rows, model), plot_file), quiet=as_json)
    if as_json:
        common.print_json({"model": model, "reach": reach, "rows": rows})


@theory_app.command()
def bound(
    run: Annotated[Path, typer.Argument(help="A run folder that `folkman run` made.")],
    label: Annotated[
        str | None, typer.Option(help="Label to examine; default all of Algorithm 1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed to examine; default the first.")] = None,
    as_json: AsJson = False,
    plot_file: PlotFile = None,
) -> None:
    """Check the convergence theory on the runs of a folder.

    Only Algorithm 1's are looked at. What it lacks is run again.
    """
    from folkman.experiment.theory import examine
    from folkman.report.figures import check_target, save
    from folkman.report.theory import bound_table, draw_bounds, efficiency_table

    if plot_file is not None:
        check_target(plot_file)
    found = examine(run, label, seed)
    if found.left_out:
        common.say(f"left out: {found.left_out}")
    screen, figure = common.console(quiet=as_json), plot_file
    for number, each in enumerate(found.runs, 1):
        screen.print(bound_table(each.answer))
        if figure is not None and plot_file is not None:
            what = f"{each.answer['label']}, seed {each.answer['seed']}"
            title = f"{what}, L {each.smoothness}; drawn where they common.say something"
            common.print_paths(
                save(draw_bounds(each.measured, each.bounds, title), figure), quiet=as_json
            )
            figure = plot_file.with_name(f"{plot_file.stem}-{number}{plot_file.suffix}")
    if found.efficiency:
        screen.print(efficiency_table(found.efficiency))
    if as_json:
        common.print_json(
            {"runs": [each.answer for each in found.runs], "efficiency": found.efficiency}
        )


@theory_app.command()
def step(
    config: Config = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Propose a stable step for Algorithm 1.

    It follows from the curvature of the losses and the ages of the network.
    """
    from folkman.config.comparison import resolve
    from folkman.config.text import gather
    from folkman.experiment.theory import advise_steps

    rows, left_out = advise_steps(resolve(gather(config, settings)))
    if left_out:
        common.say(f"left out: {left_out}")
    for row in rows:
        verdict = "BEYOND the limit" if row["beyond_limit"] else "below the limit"
        text = (
            f"{row['label']}: step {row['step']:g} is {verdict}\n"
            f"  advised {row['advised']:.3g}, stable below {row['stable_below']:.3g}, "
            f"{_proved(row['proved'])}"
            f"\n  L {row['curvature']:.3g} (F), {row['curvature_nodes']:.3g} (largest F_i); "
            f"ages up to {row['max_age']}, effective {row['effective_age']:.3g}; eta L below "
            f"{row['limit']:.3g}\n  {_own_part(row)}"
        )
        print(text, file=common.stream(quiet=as_json))
    if as_json:
        common.print_json({"rows": rows})


@theory_app.command()
def own(
    config: Config = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--own", help="newest, aligned, centred, adaptive or a number. Repeatable."),
    ] = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Run Algorithm 1 with each own part, beside theory.

    The theory gives the bias and the stable step. Gradients are full and the step is constant. The
    bias is exact for quadratic losses and constant ages.
    """
    from folkman.config.comparison import resolve
    from folkman.config.text import gather
    from folkman.experiment.own_theory import KNOWN, examine_own
    from folkman.report.theory import own_table

    rows = examine_own(resolve(gather(config, settings)), parts or KNOWN)
    common.console(quiet=as_json).print(own_table(rows))
    if as_json:
        common.print_json({"rows": rows})


def _own_part(row: Json) -> str:
    """Return how the stable step depends on the share rho of the own newest progress."""
    centred = next(each for each in row["own_rules"] if each["own"] == "centred")
    steps = ", ".join(
        f"{each['stable_below']:.3g} at {each['rho']:.2g}" for each in row["own_part"]
    )
    return (
        f"stable below by rho (share of the own newest progress; all copies {row['mean_age']:.1f} "
        f"slots old): {steps}; {centred['stable_below']:.3g} centred"
    )


def _proved(step: float | None) -> str:
    if step is None:
        return "no proved step, as L is only estimated"
    return f"gradients provably bounded up to {step:.3g}"
