"""The command line of runs: `folkman run`, `ls`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Settings, Track
from folkman.record import run as record

if TYPE_CHECKING:
    from folkman.experiment.parts import Watch
    from folkman.experiment.run import PreparedRun
    from folkman.record.run import Run
    from folkman.report.notebook import Results

__all__ = ["list_command", "run"]


def run(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; without one, the demo on the digits.")
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; default runs/DATE-TIME-NAME.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with an interrupted run folder.")
    ] = None,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Compare algorithms over seeds on the same draws.

    Ends in a table, figures and a run folder.
    """
    with common.ending_at_once():
        from folkman.experiment.run import prepare_run

        prepared = prepare_run(config, settings=settings, out=out, resume=resume, track=track or ())
        for warning in prepared.warnings:
            common.say(f"warning: {warning}")
        results = _carried_out(prepared, track or [])
        _print(results, prepared, quiet=as_json)
    if as_json:
        common.print_json(
            {
                **prepared.folder.summarised(results),
                "objective": prepared.config["objective"],
            }
        )
    if any(run.status == record.DIVERGED for run in results):
        sys.exit(common.DIVERGED)


def _carried_out(prepared: "PreparedRun", track: list[str]) -> "Results":
    """Run with common.progress shown; when stopped, common.say how to go on."""
    from folkman.experiment.run import carry_out_run

    advice = f"go on with: folkman run --resume {prepared.folder.root}"
    with common.stoppable(advice), common.progress(prepared.slots, "slots") as show:
        return carry_out_run(prepared, track=track, watch=_shown(show), command=sys.argv[1:])


def _shown(show: common.Update) -> "Watch":
    """Return a watcher that shows the slots done in all runs, and each run's end as a line."""
    reached: dict[tuple[str, int], int] = {}

    def watch(run: "Run", done: int, slots: int) -> None:
        name = f"{run.label}, seed {run.seed}"
        ended = done == slots or run.status == record.DIVERGED
        reached[run.label, run.seed] = slots if ended else done
        line = f"{name}: {done} slots, training loss {run.last('train_loss'):.4g}" if ended else ""
        show(sum(reached.values()), name, line)

    return watch


def _print(results: "Results", prepared: "PreparedRun", *, quiet: bool) -> None:
    """Print the table, what went wrong, and where things are."""
    from folkman.experiment.networks import network_lines
    from folkman.record.tuned import sides_of, standings, told
    from folkman.report.tables import energy_line, final_table

    screen, folder, first = common.console(quiet=quiet), prepared.folder, prepared.first[0]
    title = f"{prepared.config['name']}: {first.slots} slots of {first.simulation.clock.slot_s:g} s"
    title += f", objective {prepared.config['objective']}"
    screen.print(final_table(results, title))
    for line in network_lines(prepared.first):
        screen.print(line, highlight=False, soft_wrap=True, markup=False)
    if spent := energy_line(results):
        screen.print(spent, highlight=False, soft_wrap=True, markup=False)
    screen.print()
    for each in results:
        if each.message:
            screen.print(each.message, style="bold", highlight=False, soft_wrap=True, markup=False)
    figure = folder.figures / "train_loss-seconds.png"
    if note := told(standings(sides_of(folder.read_config()))):
        screen.print(note, highlight=False, soft_wrap=True, markup=False)
    lines = f"folder  {folder.root}\nfigure  {figure if figure.is_file() else folder.figures}\n"
    screen.print(f"{lines}report  {folder.report}", highlight=False, soft_wrap=True, markup=False)


def list_command(
    root: Annotated[Path, typer.Argument(help="Where the run folders are.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the run folders, newest first."""
    from folkman.record.folder import list_runs

    if not root.is_dir():
        raise FileNotFoundError(
            f"expected a folder of runs, there is no {root}; make one with: folkman run"
        )
    found = list_runs(root)
    if as_json:
        common.print_json({"folders": found})
        return
    for entry in found:
        labels = ", ".join(dict.fromkeys(run["label"] for run in entry["runs"]))
        print(f"{entry['made']}  {entry['state']:<10}  {entry['folder']}  {labels}".rstrip())
    if not found:
        print(f"no run folders in {root}")
