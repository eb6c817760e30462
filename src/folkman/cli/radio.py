"""The command line of the radio: `folkman radio`."""

from pathlib import Path
from typing import Annotated

import typer

from folkman.cli.common import AsJson, ending_at_once, print_json, print_paths, say

__all__ = ["radio"]


def radio(  # noqa: PLR0913, PLR0917 - the options, one by one
    nodes: Annotated[int, typer.Option(help="Nodes in the cell.")] = 5,
    threshold_db: Annotated[
        list[float] | None,
        typer.Option(help="SINR threshold in dB. May be repeated; default -15, 0, 15."),
    ] = None,
    allocation: Annotated[
        list[str] | None, typer.Option(help="optimal, uniform, random. May be repeated.")
    ] = None,
    period: Annotated[
        str, typer.Option(help="Schedule period: epoch (network-wide) or node (each its own).")
    ] = "epoch",
    schedule: Annotated[
        list[str] | None,
        typer.Option(help="threshold (the paper's rule) or index (fresh air). May be repeated."),
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option(help="Under the index: copy, forward or sum. May be repeated."),
    ] = None,
    floor: Annotated[
        bool, typer.Option("--floor", help="Bound the ages from below; slow, use few drops.")
    ] = False,
    drops: Annotated[int, typer.Option(help="Independent cells to draw.")] = 600,
    slots: Annotated[
        int, typer.Option(help="Slots that each drop is run for; waiting and ages come from them.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    slot_s: Annotated[float, typer.Option(help="T, seconds of one local gradient.")] = 1.0,
    parameters: Annotated[
        int, typer.Option(help="Parameters per message; default those of the paper's CNN.")
    ] = 430_698,
    objective: Annotated[
        str, typer.Option(help="What the best threshold minimises: duration or age.")
    ] = "duration",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A key of [radio]: --set bandwidth_hz=1e6, or of [energy]: --set "
            "energy.receive_w=0.3. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw a map here, and ages beside it.")
    ] = None,
) -> None:
    """Plan a cell before any learning: who hears whom, how long transfers take, copies' ages."""
    from folkman.experiment.survey import Question, survey
    from folkman.radio.planning import Drops
    from folkman.report.cells import draw_ages, draw_map, print_survey
    from folkman.report.figures import check_target, save

    if plot_file is not None:
        check_target(plot_file)
    thresholds_db, allocations = threshold_db or [-15.0, 0.0, 15.0], allocation or ["optimal"]
    cell = (nodes, thresholds_db, allocations, period, Drops(drops, slots, seed), slot_s)
    sent = (schedule or ["threshold"], message or ["copy"])
    question = Question(*cell, parameters, objective, settings or [], *sent, floor)
    with ending_at_once():
        found = survey(question, say)
        print_survey(found, quiet=as_json)
        if plot_file is not None:
            ages = plot_file.with_name(f"{plot_file.stem}-ages{plot_file.suffix}")
            drawn = save(draw_map(found.picture), plot_file) + save(draw_ages(found.picture), ages)
            print_paths(drawn, quiet=as_json)
    if as_json:
        answer = {"rows": found.rows, "best_threshold_db": found.best_threshold_db}
        answer |= {"best_thresholds_db": found.best_thresholds_db}
        print_json(answer | {"planner": found.planner, "best_rows": found.best_rows})
