"""The command line of runs: `folkman run`, `ls`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Config, Settings, Track

if TYPE_CHECKING:
    from folkman.experiment.parts import Watch
    from folkman.experiment.run import PreparedRun
    from folkman.record.run import Run
    from folkman.report.notebook import Results

__all__ = ["Pace", "carried_out", "list_command", "print_results", "run"]


def run(
    config: Config = None,
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
        made_by = _made_by(prepared, config, settings or [])
        for warning in [*_unfair(prepared, made_by), *prepared.warnings]:
            common.say(f"warning: {warning}")
        results = carried_out(prepared, track or [])
        print_results(results, prepared, made_by, quiet=as_json)
    if as_json:
        common.print_json(
            {
                **prepared.folder.summarised(results),
                "objective": prepared.config["objective"],
            }
        )
    if any(run.status == DIVERGED for run in results):
        sys.exit(common.DIVERGED)


def _made_by(prepared: "PreparedRun", config: Path | None, settings: list[str]) -> str:
    """Return what names the configuration in commands: as it was given, else the folder's file."""
    from folkman.record.tuned import source, source_of_run

    if config is not None:
        return source(str(config), settings)
    return source_of_run(prepared.folder.command(), str(prepared.folder.config))


def _unfair(prepared: "PreparedRun", made_by: str) -> list[str]:
    """Return what sets the sides apart beside their methods, before anybody waits for them.

    Sides share the band by different rules, or their steps were tuned for another setting.
    """
    from folkman.record.tuned import ELSEWHERE, sides_of, standings, told, tune_command
    from folkman.report.networks import unlike_rules

    sides = sides_of(prepared.folder.read_config())
    states, rules = standings(sides), unlike_rules(sides)
    lines = [rules] if rules else []
    if ELSEWHERE in states.values():
        lines += [told(states, tune_command(sides, made_by))]
    return lines


def carried_out(prepared: "PreparedRun", track: list[str]) -> "Results":
    """Run with progress shown; when stopped, say how to go on."""
    from folkman.experiment.run import carry_out_run

    advice = f"go on with: folkman run --resume {prepared.folder.root}"
    if not sys.stderr.isatty():  # a terminal has a bar
        common.say(_planned(prepared))
    with (
        common.stoppable(advice),
        common.progress(prepared.slots, "slots", guess=False, beats=True) as show,
    ):
        watch = _shown(show, prepared.slots)
        return carry_out_run(prepared, track=track, watch=watch, command=sys.argv[1:])


def _planned(prepared: "PreparedRun") -> str:
    """Return what is about to run, in a line."""
    labels, seeds = [part.run.label for part in prepared.first], prepared.config["seeds"]
    methods = "one method" if len(labels) == 1 else f"{len(labels)} methods"
    few = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    each = f"{prepared.first[0].slots} slots each"
    return f"{methods} ({'; '.join(labels)}) with {few}, {each}, into {prepared.folder.root}"


def _shown(show: common.Update, in_all: int) -> "Watch":
    """Return a watcher that shows the slots done in all runs, and each run's end as a line."""
    from folkman.record.run import DIVERGED

    reached: dict[tuple[str, int], int] = {}
    pace = Pace()

    def watch(run: "Run", done: int, slots: int) -> None:
        pace.note(run, done, time.monotonic())
        name = f"{run.label}, seed {run.seed}"
        ended = done == slots or run.status == DIVERGED
        reached[run.label, run.seed] = slots if ended else done
        line = f"{name}: {done} slots, training loss {run.last('train_loss'):.4g}" if ended else ""
        total = sum(reached.values())
        doing = "writing figures and report" if total == in_all else name
        show(total, doing, line, left_s=pace.left_s(in_all - total))

    return watch


class Pace:
    """Seconds a slot, from what compiles nothing: the first stretch of each run is left out.

    By all of the time so far a demo of ten seconds would announce minutes.
    """

    def __init__(self) -> None:
        self._spent_s, self._slots = 0.0, 0
        self._at: tuple[str, int, int, float] = ("", 0, 0, 0.0)  # label, seed, slots, when
        self._stretches = 0  # of the run at hand

    def note(self, run: "Run", done: int, now_s: float) -> None:
        """Note that a run has reached a slot."""
        label, seed, before, then_s = self._at
        self._stretches = self._stretches + 1 if (label, seed) == (run.label, run.seed) else 0
        if self._stretches > 1:
            self._spent_s += now_s - then_s
            self._slots += done - before
        self._at = (run.label, run.seed, done, now_s)

    def left_s(self, slots: int) -> float | None:
        """Return the seconds of so many slots; None where nothing is known, or nothing is left."""
        return self._spent_s / self._slots * slots if self._slots and slots else None


def print_results(
    results: "Results", prepared: "PreparedRun", made_by: str = "", *, quiet: bool
) -> None:
    """Print the table, what its columns mean, what went wrong, and where things are.

    `made_by` names the configuration in commands; by default the folder's file does.
    """
    from folkman.experiment.run import network_lines
    from folkman.record.tuned import searched, sides_of, standings, told, tune_command
    from folkman.record.verdict import complaints, remarks
    from folkman.report.screen import air_line, explained, result_lines

    place, width = common.stream(quiet=quiet), common.columns(quiet=quiet)
    folder, first = prepared.folder, prepared.first[0]
    title = f"{prepared.config['name']}: {first.slots} slots of {first.simulation.clock.slot_s:g} s"
    lines = [f"{title}, objective {prepared.config['objective']}", ""]
    lines += [*result_lines(results, width), "", *explained(results, width), ""]
    sides = sides_of(folder.read_config())
    note = told(
        standings(sides), tune_command(sides, made_by or str(folder.config)), searched(sides)
    )
    more = [*network_lines(prepared.first), *air_line(results), ""]
    more += complaints(results) + remarks(results)
    for line in [*more, *([note] if note else [])]:
        lines += common.folded(line, width) if place.isatty() else [line]
    figure = folder.figures / "train_loss-seconds.png"
    lines += [f"folder  {folder.root}", f"figure  {figure if figure.is_file() else folder.figures}"]
    print("\n".join([*lines, f"report  {folder.report}"]), file=place, flush=True)


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
