"""The command line of sweeps: `folkman sweep`, `folkman compare`.

Heavy packages are imported inside the commands, so that `folkman --help` answers at once.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from folkman.record import run as record

if TYPE_CHECKING:
    from folkman.experiment.engines.processes import Crew
    from folkman.experiment.plan import Plan
    from folkman.experiment.sweep import Outcome, Progress
    from folkman.record.store import SweepFolder

__all__ = ["Track", "register"]

DIVERGED, DISK, FAILED, INTERRUPTED = 3, 4, 5, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


def _known(names: list[str] | None) -> list[str] | None:
    """Refuse a tracker that is unknown or not installed as soon as it is named."""
    if names:
        from folkman.experiment.trackers import check_packages

        check_packages(names)
    return names


Track = Annotated[
    list[str] | None, typer.Option(help="Tell tensorboard, mlflow or wandb too. May be repeated.", callback=_known)
]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Override a key of all arms. May be repeated.")]


def register(app: typer.Typer) -> None:
    """Add the commands of sweeps."""
    app.command()(sweep)
    app.command()(compare)


def sweep(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Annotated[
        Path | None, typer.Argument(help="A configuration with [grid] or [list]; default the demo.")
    ] = None,
    grid: Annotated[
        list[str] | None, typer.Option(help="Every combination: --grid network.gamma=5,10. May be repeated.")
    ] = None,
    together: Annotated[
        list[str] | None, typer.Option("--list", help="Lists of one length that advance together. May be repeated.")
    ] = None,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The sweep folder; default sweeps/DATE-TIME-NAME.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where jobs are kept, to share them; default OUT/jobs.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with a sweep folder.")] = None,
    engine: Annotated[str, typer.Option(help="processes, dask, or tls://scheduler:8786")] = "processes",
    workers: Annotated[int | None, typer.Option(help="Jobs at a time here; default one a core.")] = None,
    memory: Annotated[str | None, typer.Option(help="Most memory of a worker: 4GB; default its share.")] = None,
    tls_ca: Annotated[Path | None, typer.Option(help="The cluster's authority, PEM.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Our certificate, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    track: Track = None,
    reports: Annotated[bool, typer.Option("--reports", help="At the end, also a report.html of every job.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a configuration at many settings, each under the same seeds; what is finished is never run again."""
    from folkman.experiment.engines.processes import Crew, check_crew
    from folkman.machine import usable_cores

    number = workers if workers is not None else usable_cores()
    files = [str(path) if path is not None else None for path in (tls_ca, tls_cert, tls_key)]
    ours = engine in ("processes", "dask")  # a cluster that is there has limits of its own
    limit_mb = _megabytes(memory, max(number, 1)) if ours or memory is not None else None
    crew = Crew(engine, number, limit_mb, *files)
    check_crew(crew)
    plan, folder = _planned(config, grid or [], together or [], settings or [], (out, store, resume))
    outcome = _swept(plan, folder, crew, track or [])
    _report(outcome, folder, number if reports else 0, quiet=as_json)
    if as_json:
        print(
            json.dumps({"folder": str(folder.root), "state": outcome.state, **_counts(outcome), "jobs": outcome.jobs})
        )
    sys.exit(_exit_code(outcome))


def _planned(
    config: Path | None,
    grid: list[str],
    together: list[str],
    settings: list[str],
    places: tuple[Path | None, Path | None, Path | None],
) -> "tuple[Plan, SweepFolder]":
    """Plan every job before a folder is made: what does not fit leaves nothing behind."""
    from folkman.config.text import dump, override, put, read
    from folkman.experiment.plan import axes_of, plan
    from folkman.record.store import SweepFolder

    out, store, resume = places
    if resume is not None:
        if config is not None or grid or together or settings or out is not None or store is not None:
            raise ValueError(
                "--resume takes what to run from the folder; leave out the file, --grid, --list, --set, ..."
            )
        folder = SweepFolder.open(resume)
        raw = read(folder.definition)
        return plan(raw, axes_of(raw)), folder
    raw = override(read(config) if config else {}, settings)
    axes = axes_of(raw, grid, together)
    if config is None and not axes.keys:
        raise ValueError("a sweep needs something to vary; write --grid network.gamma=5,10,15, or name a sweep file")
    rest = {key: value for key, value in raw.items() if key not in ("grid", "list")}
    tables = {"grid": dict(axes.grid), "list": dict(axes.together)}
    planned = plan(put(rest, {}), axes)
    definition = dump({**rest, **{name: table for name, table in tables.items() if table}})
    root = out or Path("sweeps") / f"{datetime.now():%Y%m%d-%H%M%S}-{planned.name.replace(' ', '-')}"
    return planned, SweepFolder.create(root, definition, store)


def _swept(plan: "Plan", folder: "SweepFolder", crew: "Crew", track: list[str]) -> "Outcome":
    """Sweep with progress shown; when stopped, say how to go on."""
    from folkman.experiment.engines.processes import engine_for
    from folkman.experiment.sweep import sweep as run_sweep
    from folkman.experiment.trackers import make_shared

    advice = f"go on with: folkman sweep --resume {folder.root}"
    make_shared(track, folder.root, plan.name)
    try:
        with folder.held(), _ending_on_term(), closing(engine_for(crew)) as engine, _progress(len(plan.jobs)) as watch:
            _say(engine.about)
            outcome = run_sweep(plan, folder, engine, watch, track)
    except KeyboardInterrupt:
        _say(f"interrupted; {advice}")
        sys.exit(INTERRUPTED)
    except OSError as error:
        if isinstance(error, (FileNotFoundError, FileExistsError, PermissionError)):
            raise
        _say(f"error: {error.strerror or error}; what was written is whole; free the disk, then {advice}")
        sys.exit(DISK)
    if outcome.disk:
        _say(f"error: {outcome.disk}; what was written is whole; free the disk, then {advice}")
    return outcome


@contextmanager
def _ending_on_term() -> Iterator[None]:
    """Take a polite request to end, as batch systems send it, for Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(in_all: int) -> "Iterator[Callable[[Progress], None]]":
    """Yield a watcher: a bar on a terminal, a plain line a job elsewhere; both with the time left."""
    if not sys.stderr.isatty():
        yield lambda told: _say(_line(told))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=in_all, left="")

        def watch(told: "Progress") -> None:
            bar.update(task, completed=told.done, left=_left(told.left_s), description=told.job["arm"])
            if told.job["state"] != record.FINISHED:
                bar.console.print(_line(told), highlight=False, markup=False, soft_wrap=True)

        yield watch


def _line(told: "Progress") -> str:
    job = told.job
    cost = f"{job['seconds']:.1f} s, {job['rss_mb']:.0f} MB"
    why = f": {job['message']}" if job["state"] == record.FAILED else ""
    head = f"[{told.done}/{told.in_all}] {job['arm']}, seed {job['seed']}: {job['state']}{why}"
    return f"{head} ({cost}); {_left(told.left_s)}"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = round(seconds)
    text = f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"
    return f"{text} left"


def _report(outcome: "Outcome", folder: "SweepFolder", page_makers: int, *, quiet: bool) -> None:
    """Tell how it went: memory, failures with their logs, the table; jobs get pages from so many processes, or none."""
    place = sys.stderr if quiet else sys.stdout
    grown = [job["rss_mb"] for job in outcome.jobs if job["rss_mb"]]
    memory = f"; memory of a worker {min(grown):.0f} to {max(grown):.0f} MB" if grown else ""
    counted = ", ".join(f"{count} {state}" for state, count in _counts(outcome).items() if count)
    print(f"{len(outcome.jobs)} jobs: {counted}{memory}", file=place)
    from folkman.record.sweep import job_folder

    failed = outcome.having(record.FAILED)
    if failed:
        _say(f"{len(failed)} of {len(outcome.jobs)} jobs failed; run them again: folkman sweep --resume {folder.root}")
    for job in failed:
        _say(f"  {job['arm']}, seed {job['seed']}: {job['message']}\n    {job_folder(folder, job).log}")
    if folder.results.is_file() and (outcome.having(record.FINISHED) or outcome.having(record.DIVERGED)):
        from folkman.record.table import arms_of
        from folkman.report.comparison import compare_arms, render

        print(f"\n{render(compare_arms(arms_of([folder.root]), ['train_loss', 'test_accuracy']))}\n", file=place)
        print(f"results  {folder.results}", file=place)
    if not outcome.disk:
        _write_pages(folder, page_makers, place)
    print(f"folder  {folder.root}", file=place)


def _write_pages(folder: "SweepFolder", page_makers: int, place: Any) -> None:
    """Write report.html, first those of the jobs if asked for; a page that cannot be drawn costs no results."""
    from folkman.report.write import write_job_reports, write_report

    try:
        if page_makers:
            _say(write_job_reports(folder.root, page_makers).told())
        print(f"report  {write_report(folder.root)}", file=place)
    except Exception as error:
        _say(f"warning: no report.html: {error}; make it with: folkman report {folder.root}")


def _counts(outcome: "Outcome") -> dict[str, int]:
    """Return how many jobs came out how."""
    states = (record.FINISHED, record.DIVERGED, record.FAILED, record.WAITING)
    return {state: len(outcome.having(state)) for state in states}


def _exit_code(outcome: "Outcome") -> int:
    if outcome.disk:
        return DISK
    if outcome.having(record.FAILED):
        return FAILED
    return DIVERGED if outcome.having(record.DIVERGED) else 0


def _megabytes(text: str | None, workers: int) -> float | None:
    """Read `4GB`, `800 MB` or plain megabytes; without, an even share of nine tenths of the machine's memory."""
    from folkman.machine import usable_bytes

    if text is None:
        whole = usable_bytes()
        return None if whole is None else 0.9 * whole / 1e6 / workers
    units = {"GB": 1000.0, "MB": 1.0, "": 1.0}
    number = text.strip().upper()
    unit = next(unit for unit in units if number.endswith(unit))
    try:
        megabytes = float(number.removesuffix(unit)) * units[unit]
    except ValueError:
        megabytes = 0.0
    if not megabytes > 0:
        raise ValueError(f"--memory looks like 4GB or 800MB, got '{text}'")
    return megabytes


def compare(
    folders: Annotated[list[Path], typer.Argument(help="Sweep or run folders.")],
    metric: Annotated[list[str] | None, typer.Option(help="May be repeated; train_loss, test_accuracy.")] = None,
    against: Annotated[str | None, typer.Option(help="The arm that differences are from; default the best.")] = None,
    at: Annotated[str | None, typer.Option(help="Compare there: seconds=100, bits=1e7; default the end.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown or latex")] = "text",
    out: Annotated[Path | None, typer.Option(help="Write the table here instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare arms: mean and 95 % interval, differences paired by seed, the winner marked."""
    from folkman.files import write_whole
    from folkman.record.table import arms_of
    from folkman.report.comparison import compare_arms, render

    point = _point(at)  # before anything is read
    found = compare_arms(arms_of(folders), metric or ["train_loss", "test_accuracy"], against, point)
    text = render(found, form) + "\n"
    if out is not None:
        write_whole(out, lambda part: part.write_text(text, encoding="utf-8"))
        print(out, file=sys.stderr if as_json else sys.stdout)
    else:
        print(text, end="", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps({"metrics": list(found.metrics), "rows": found.rows()}, allow_nan=False))


def _point(text: str | None) -> tuple[str, float] | None:
    if text is None:
        return None
    axis, _, value = text.partition("=")
    try:
        return axis.strip(), float(value)
    except ValueError:
        raise ValueError(f"--at looks like seconds=100, got '{text}'") from None


def _say(text: Any) -> None:
    print(text, file=sys.stderr, flush=True)
