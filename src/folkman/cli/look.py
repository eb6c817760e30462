"""The command line of looking: `folkman plot`, `report`, `dash`."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from folkman.record.scene import Scene

__all__ = ["dash", "plot", "report", "wheres"]


def plot(  # noqa: PLR0913, PLR0917 - the options, one by one
    runs: Annotated[list[Path], typer.Argument(help="One run or sweep folder or more.")],
    x: Annotated[
        str,
        typer.Option(
            help="A cost, for curves: seconds, slots, gradients, bits, rounds or joules. Or a "
            "setting, for the ends of runs: network.gamma, nodes, algorithm."
        ),
    ] = "seconds",
    y: Annotated[
        str, typer.Option(help="train_loss, test_accuracy, consensus, ...; also loss, accuracy.")
    ] = "train_loss",
    hue: Annotated[
        str | None,
        typer.Option(help="Setting that has a colour per value, or several: algorithm,nodes."),
    ] = None,
    facet: Annotated[str | None, typer.Option(help="Setting that has a panel per value.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Keep these values alone: nodes=5,10. May be repeated."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(help="Logarithmic axes: x, y, xy or none; default by what there is."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write (.png, .svg, .pdf); default in the first folder."),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="curves; or of one run: map, ages, shares, disagreement")
    ] = "curves",
    style: Annotated[
        str,
        typer.Option(
            help="screen, dark, slides, paper; ieee: one column of a paper; ieee-wide: both"
        ),
    ] = "screen",
    label: Annotated[
        str | None,
        typer.Option(help="Algorithm to draw, for figures of one run; default the first."),
    ] = None,
    colour: Annotated[
        str | None, typer.Option(help="Colour of a map: sinr, age or disagreement.")
    ] = None,
) -> None:
    """Draw a metric against a cost or a setting, or what one run's network did.

    Means over seeds have their 95 % interval. Arms are never averaged.
    """
    from folkman.checks import one_of
    from folkman.record.folder import RunFolder
    from folkman.record.table import unfinished
    from folkman.report.chosen import LOGS, Asked
    from folkman.report.figures import check_target, save
    from folkman.report.plot import plot_folders
    from folkman.report.style import STYLES, caption, dressed

    one_of("style", style, STYLES)
    one_of("figure", kind, ("curves", *KINDS))
    one_of("logarithm", log, LOGS)
    if out is not None:
        check_target(out)
    if kind == "curves":
        asked = Asked(x, y, hue, facet, log, wheres(where or ()))
        figure = plot_folders(runs, asked, style)
        for line in unfinished(runs):
            common.say(f"warning: {line}")
        name = "-".join([y, x, *(["by", facet] if facet else [])])
    else:
        given = {"--hue": hue, "--facet": facet, "--where": where, "--log": log}
        _refuse_beside_kind(kind, given)
        scene, name = _scene(runs, label), kind
        figure = dressed(STYLES[style], lambda: _draw(kind, scene, colour))
    target = out or RunFolder(runs[0]).figures / (name if style == "screen" else f"{name}-{style}")
    target.parent.mkdir(parents=True, exist_ok=True)
    for path in save(figure, target, STYLES[style].kinds):
        print(path)
    if caption(figure):
        common.say(f"for the caption: {caption(figure)}")


def wheres(given: Sequence[str]) -> dict[str, object]:
    """Return KEY=VALUES of the command line by key."""
    found: dict[str, object] = {}
    for text in given:
        key, equals, values = text.partition("=")
        if not (key.strip() and equals and values.strip()):
            raise ValueError(f"--where looks like nodes=5 or nodes=5,10, got '{text}'")
        found[key.strip()] = [values, *values.split(",")]  # a label may have a comma in it
    return found


def _refuse_beside_kind(kind: str, given: Mapping[str, object]) -> None:
    """Refuse options of curves for a figure of one run, rather than to pass them over."""
    named = [option for option, value in given.items() if value]
    if named:
        raise ValueError(
            f"--kind {kind} is of one run and has no {' or '.join(named)}; leave out one of them"
        )


KINDS = ("map", "ages", "shares", "disagreement")


def _scene(roots: Sequence[Path], label: str | None) -> "Scene":
    """Return the scene of one run of one folder."""
    from folkman.checks import nearest
    from folkman.record.folder import RunFolder

    if len(roots) > 1:
        raise ValueError(
            f"a map, ages and shares are of one run folder, got {len(roots)}; give one"
        )
    runs = RunFolder.open(roots[0]).read().runs
    labels = list(dict.fromkeys(run.label for run in runs))
    if label is not None and label not in labels:
        raise ValueError(f"there is no algorithm '{label}' in {roots[0]}; {nearest(label, labels)}")
    for run in runs:
        if run.scene is not None and label in (None, run.label):
            return run.scene
    raise ValueError(
        f"{roots[0]} has no folder network/ for this: it was made by an earlier version; run it "
        "again"
    )


def _draw(kind: str, scene: "Scene", colour: str | None) -> "Figure":
    from folkman.report import scenes

    if kind == "map":
        return scenes.draw_scene(scene, paint=colour)
    draw = {
        "ages": scenes.draw_age_table,
        "shares": scenes.draw_shares,
        "disagreement": scenes.draw_disagreement,
    }
    return draw[kind](scene)


def report(
    folder: Annotated[Path, typer.Argument(help="A run or sweep folder.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default report.html in the folder.")
    ] = None,
    jobs: Annotated[
        bool,
        typer.Option("--jobs", help="For a sweep: also write the report of every job without one."),
    ] = False,
) -> None:
    """Write report.html: one page that needs nothing else, of a folder as it stands."""
    from folkman.machine import usable_cores
    from folkman.report.write import write_job_reports, write_report

    if jobs and out is not None:
        raise ValueError(
            "--jobs writes into the folders of the jobs, which the sweep's page links to; leave "
            "out --out"
        )
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(
            f"expected a folder to write into, there is no {out.parent}; make it first"
        )
    pages = write_job_reports(folder, usable_cores()) if jobs else None
    if pages is not None:
        common.say(pages.told())
    print(write_report(folder, out))
    if pages is not None and pages.failed:
        sys.exit(1)


def dash(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A run or sweep folder, finished or not; or two of a kind, to compare them."
        ),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="The folder of a real cluster, as `folkman up` made it.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8600,
    token: Annotated[
        str | None, typer.Option(help="Token that visitors need; 'new' draws one.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Also open the page in the browser.")
    ] = False,
) -> None:
    """Watch a run, a sweep or a cluster on a live page; Ctrl-C ends it.

    A folder that does not exist yet is waited for.
    """
    places = [*(folders or ()), *([cluster] if cluster is not None else ())]
    if not places or (folders and cluster is not None):
        raise ValueError(
            "expected one thing to watch; give a run or sweep folder, or --cluster DIR"
        )
    from folkman.dash.serve import MOST_FOLDERS, check_page, serve

    if len(places) > MOST_FOLDERS:
        raise ValueError(
            f"a page shows one folder, or two side by side, got {len(places)}; give two, or "
            "compare more with: folkman compare"
        )
    check_page(host, port, token)
    with common.ending_at_once():
        for place in places:
            _await(place, cluster=cluster is not None)
    serve(
        places,
        cluster=cluster is not None,
        host=host,
        port=port,
        token=token,
        open_page=open_page,
    )


LOOK_S, PATIENCE_S = 0.2, 30.0
"""Seconds between two looks for a folder, and how long it may take to be filled."""


def _await(place: Path, *, cluster: bool) -> None:
    """Wait for a folder that does not exist yet, until it holds something to watch."""
    if place.exists():
        return
    from folkman.dash.serve import make_source

    maker = "folkman up" if cluster else "folkman run"
    common.say(
        f"waiting for {place}, which does not exist yet; start it with: {maker} --out {place} "
        "(Ctrl-C ends this)"
    )
    while not place.exists():
        time.sleep(LOOK_S)
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        try:
            make_source(place, cluster=cluster)
        except (FileNotFoundError, ValueError):
            time.sleep(LOOK_S)
        else:
            return
