"""The command line of runs: `folkman run`, `ls`."""

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Settings, Track

if TYPE_CHECKING:
    from folkman.experiment.parts import Watch
    from folkman.experiment.run import PreparedRun
    from folkman.record.run import Run
    from folkman.report.notebook import Results

__all__ = ["carried_out", "list_command", "print_results", "run"]


def run(
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file; without one, the default comparison.")
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder to make; default runs/DATE-TIME-NAME.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted run folder.")] = None,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Compare algorithms over seeds on the same draws.

    Ends in a table, figures and a run folder.
    """
    with common.ending_at_once():
        common.begin(f"preparing {config or resume or 'the default comparison on the digits'} ...")
        from folkman.experiment.run import prepare_run
        from folkman.record.run import DIVERGED

        prepared = prepare_run(config, settings=settings, out=out, resume=resume, track=track or ())
        for warning in prepared.warnings:
            common.say(f"warning: {warning}")
        results = carried_out(prepared, track or [])
        print_results(results, prepared, quiet=as_json)
    if as_json:
        common.print_json(
            {
                **prepared.folder.summarised(results),
                "objective": prepared.config["objective"],
            }
        )
    if any(run.status == DIVERGED for run in results):
        sys.exit(common.DIVERGED)


def carried_out(prepared: "PreparedRun", track: list[str]) -> "Results":
    """Run with progress shown; when stopped, say how to go on."""
    from folkman.experiment.run import carry_out_run

    advice = f"go on with: folkman run --resume {prepared.folder.root}"
    with common.stoppable(advice), common.progress(prepared.slots, "slots") as show:
        watch = _shown(show, prepared.slots)
        return carry_out_run(prepared, track=track, watch=watch, command=sys.argv[1:])


def _shown(show: common.Update, in_all: int) -> "Watch":
    """Return a watcher that shows the slots done in all runs, and each run's end as a line."""
    from folkman.record.run import DIVERGED

    reached: dict[tuple[str, int], int] = {}

    def watch(run: "Run", done: int, slots: int) -> None:
        name = f"{run.label}, seed {run.seed}"
        ended = done == slots or run.status == DIVERGED
        reached[run.label, run.seed] = slots if ended else done
        line = f"{name}: {done} slots, training loss {run.last('train_loss'):.4g}" if ended else ""
        total = sum(reached.values())
        show(total, "writing figures and report" if total == in_all else name, line)

    return watch


def print_results(results: "Results", prepared: "PreparedRun", *, quiet: bool) -> None:
    """Print the table, what its columns mean, what went wrong, and where things are."""
    from folkman.experiment.networks import network_lines
    from folkman.record.tuned import sides_of, standings, told
    from folkman.record.verdict import swings
    from folkman.report.screen import explained, result_lines

    place, width = common.stream(quiet=quiet), common.columns(quiet=quiet)
    folder, first = prepared.folder, prepared.first[0]
    title = f"{prepared.config['name']}: {first.slots} slots of {first.simulation.clock.slot_s:g} s"
    lines = [f"{title}, objective {prepared.config['objective']}", ""]
    lines += [*result_lines(results, width), "", *explained(results, width), ""]
    note = told(standings(sides_of(folder.read_config())), str(folder.config))
    more = [*network_lines(prepared.first), ""]
    more += [each.message for each in results if each.message] + swings(results)
    for line in [*more, *([note] if note else [])]:
        lines += _folded(line, width) if place.isatty() else [line]
    figure = folder.figures / "train_loss-seconds.png"
    lines += [f"folder  {folder.root}", f"figure  {figure if figure.is_file() else folder.figures}"]
    print("\n".join([*lines, f"report  {folder.report}"]), file=place, flush=True)


def _folded(line: str, width: int) -> list[str]:
    """Return a line for a terminal, its later parts set in; an empty one stays."""
    return textwrap.wrap(line, width, subsequent_indent="  ") or [""]


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
