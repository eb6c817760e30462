"""The command line of sweeps: `folkman sweep`, `folkman compare`."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from folkman.cli import common
from folkman.cli.common import AsJson, Track, print_json, say, stoppable, stream
from folkman.record.run import DIVERGED, ENDED, FAILED, FINISHED

if TYPE_CHECKING:
    from folkman.experiment.batch import Batch, Progress, Watch
    from folkman.experiment.engines import Crew
    from folkman.experiment.sweep import PreparedSweep
    from folkman.record.run import Run
    from folkman.record.store import SweepFolder
    from folkman.report.comparison import ArmTable

__all__ = [
    "Engine",
    "Memory",
    "TlsCa",
    "TlsCert",
    "TlsKey",
    "Workers",
    "compare",
    "crew_of",
    "ending_on_term",
    "job_progress",
    "sweep",
    "tell_failed",
]

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a key of all arms. May be repeated.")
]
Engine = Annotated[
    str, typer.Option(help="Where jobs run: here, processes, dask, or tls://scheduler:8786.")
]
Workers = Annotated[int | None, typer.Option(help="Jobs at a time here; default one per core.")]
Memory = Annotated[
    str | None, typer.Option(help="Most memory of a worker: 4GB; default its share.")
]
TlsCa = Annotated[Path | None, typer.Option(help="Certificate of the cluster's authority, PEM.")]
TlsCert = Annotated[Path | None, typer.Option(help="Certificate to show to the cluster, PEM.")]
TlsKey = Annotated[Path | None, typer.Option(help="Private key of the certificate, PEM.")]


def crew_of(engine: str, workers: int | None, memory: str | None, *tls: Path | None) -> "Crew":
    """Return where jobs are to run, as the options say."""
    from folkman.experiment.sweep import crew_for

    files = [str(path) if path is not None else None for path in tls]
    return crew_for(engine, workers, None if memory is None else _megabytes(memory), *files)


def sweep(  # noqa: PLR0913, PLR0917 - the options, one by one
    config: Annotated[
        Path | None,
        typer.Argument(help="A TOML file with [grid] or [list]; default that of `run`."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Every combination: --grid network.gamma=5,10. May be repeated."),
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option("--list", help="Lists of one length that advance together. May be repeated."),
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep folder; default sweeps/DATE-TIME-NAME.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Where jobs are kept, to share them; default OUT/jobs.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue an interrupted sweep folder.")
    ] = None,
    engine: Engine = "processes",
    workers: Workers = None,
    memory: Memory = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    track: Track = None,
    reports: Annotated[
        bool, typer.Option("--reports", help="At the end, also a report.html of every job.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a configuration at many settings, each under the same seeds.

    What is finished is never run again.
    """
    from folkman.experiment.sweep import prepare_sweep

    crew = crew_of(engine, workers, memory, tls_ca, tls_cert, tls_key)
    asked = {"grid": grid or (), "together": together or (), "settings": settings or ()}
    prepared = prepare_sweep(config, **asked, out=out, store=store, resume=resume)
    batch = _swept(prepared, crew, track or [])
    _report(batch, prepared.folder, crew.workers if reports else 0, quiet=as_json)
    if as_json:
        head = {"folder": str(prepared.folder.root), "state": batch.state}
        print_json({**head, **batch.counts, "jobs": batch.jobs})
    sys.exit(exit_code(batch))


def _swept(prepared: "PreparedSweep", crew: "Crew", track: list[str]) -> "Batch":
    """Sweep with progress shown; when stopped, say how to go on."""
    from folkman.experiment.sweep import carry_out_sweep

    advice = f"go on with: folkman sweep --resume {prepared.folder.root}"
    with stoppable(advice), ending_on_term(), job_progress(len(prepared.plan.jobs)) as watch:
        batch = carry_out_sweep(prepared, crew, watch, track, say)
    if batch.disk:
        say(f"error: {batch.disk}; what was written is whole; free the disk, then {advice}")
    return batch


@contextmanager
def ending_on_term() -> Iterator[None]:
    """Take a polite request to end, as batch systems send it, for Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def job_progress(in_all: int) -> "Iterator[Watch]":
    """Yield a watcher of jobs: a bar on a terminal, a plain line per job elsewhere.

    Both with the time left.
    """
    with common.progress(in_all, "jobs") as show:

        def watch(told: "Progress") -> None:
            job = told.job
            why = f": {job['message']}" if job["state"] == FAILED else ""
            phase = f"{told.phase} " if told.phase else ""
            count = f"[{phase}{told.done}/{told.in_all}]"
            head = f"{count} {job['arm']}, seed {job['seed']}: {job['state']}{why}"
            line = f"{head} ({job['seconds']:.1f} s, {job['rss_mb']:.0f} MB)"
            show(
                told.before + told.done,
                f"{phase}{job['arm']}",
                line,
                left_s=told.left_s,
                urgent=job["state"] != FINISHED,
            )

        yield watch


def _report(batch: "Batch", folder: "SweepFolder", page_makers: int, *, quiet: bool) -> None:
    """Return how it went: memory, failures with their logs, the table.

    Jobs get pages from so many processes, or none.
    """
    place = stream(quiet=quiet)
    grown = [job["rss_mb"] for job in batch.jobs if job["rss_mb"]]
    memory = f"; memory of a worker {min(grown):.0f} to {max(grown):.0f} MB" if grown else ""
    counts = ", ".join(f"{count} {state}" for state, count in batch.counts.items() if count)
    print(f"{len(batch.jobs)} jobs: {counts}{memory}", file=place)
    tell_failed(batch, folder, f"folkman sweep --resume {folder.root}")
    if folder.results.is_file() and batch.having(*ENDED):
        from folkman.record.table import arms_of, objectives_of, sides_of_arms
        from folkman.report.comparison import compare_arms
        from folkman.report.networks import bounds, network_names
        from folkman.report.sheets import render

        free = bounds(network_names(sides_of_arms([folder.root])))
        found = compare_arms(arms_of([folder.root]), GOALS, bounds=free)
        found = found._replace(objectives=objectives_of([folder.root]))
        width = common.columns(quiet=quiet) if place.isatty() else None
        print(f"\n{render(found, width=width)}\n", file=place)
        print(f"results  {folder.results}", file=place)
    if not batch.disk:
        write_pages(folder, page_makers, place)
    print(f"folder  {folder.root}", file=place)


def tell_failed(batch: "Batch", folder: "SweepFolder", again: str) -> None:
    """Say which jobs failed, where their logs are, and how to run them again."""
    from folkman.record.sweep import job_folder

    failed = batch.failed
    if failed:
        say(f"{len(failed)} of {len(batch.jobs)} jobs failed; run them again: {again}")
    for job in failed:
        say(
            f"  {job['arm']}, seed {job['seed']}: "
            f"{job['message']}\n    {job_folder(folder, job).log}"
        )


def write_pages(folder: "SweepFolder", page_makers: int, place: TextIO) -> None:
    """Write report.html, first those of the jobs if asked for.

    A page that cannot be drawn costs no results.
    """
    from folkman.report.write import write_job_reports, write_report

    try:
        if page_makers:
            say(write_job_reports(folder.root, page_makers).told())
        print(f"report  {write_report(folder.root)}", file=place)
    except Exception as error:
        say(f"warning: no report.html: {error}; make it with: folkman report {folder.root}")


def exit_code(batch: "Batch") -> int:
    """Return the exit code of a batch: what is worst of what happened."""
    if batch.disk:
        return common.DISK
    if batch.failed:
        return common.FAILED
    return common.DIVERGED if batch.having(DIVERGED) else 0


def _megabytes(text: str) -> float:
    """Read `4GB`, `800 MB` or plain megabytes."""
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


GOALS = ["train_loss", "test_accuracy"]
"""What arms are compared by."""


def compare(  # noqa: PLR0913, PLR0917 - the options, one by one
    folders: Annotated[list[Path], typer.Argument(help="Sweep or run folders.")],
    metric: Annotated[
        list[str] | None,
        typer.Option(help="Metric to compare. May be repeated; default loss and accuracy."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Arm to take differences from; default the best.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Compare at this point: seconds=100, bits=1e7; default the end."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="Format of the table: text, markdown, csv or latex.")
    ] = "text",
    latex: Annotated[
        bool, typer.Option("--latex", help="The same as --format latex: booktabs and siunitx.")
    ] = False,
    pivot: Annotated[
        str | None,
        typer.Option(
            help="Two settings, one down and one across: algorithm,network.gamma. Or the axis of a "
            "sweep that goes across."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="With --pivot, keep these values alone: nodes=5. May be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the table here instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare arms: mean and 95 % interval, differences paired by seed, the best marked.

    The best is marked where it is surely the best; free links are a reference, and not ranked.
    """
    from folkman.files import write_whole
    from folkman.record.table import arms_of, objectives_of, sides_of_arms, unfinished
    from folkman.record.tuned import searched, shared_setting, standings
    from folkman.report.chosen import metric_of
    from folkman.report.comparison import compare_arms, complaints
    from folkman.report.networks import bounds, network_names

    point = _point(at)  # before anything is read
    form = _format_of(form, latex=latex)
    if pivot is not None and against is not None:
        raise ValueError("--pivot shows no differences; leave out --against")
    if where and "," not in (pivot or ""):
        raise ValueError("--where belongs to a grid of two settings: --pivot ROW,COL; add one")
    arms, sides = arms_of(folders), sides_of_arms(folders)
    goals = [metric_of(each) for each in metric or GOALS]
    free = bounds(network_names(sides))
    found = compare_arms(arms, goals, against, point, free)
    found = found._replace(
        tuned=standings(sides), searched=searched(sides), objectives=objectives_of(folders)
    )
    found = found._replace(setting=shared_setting(sides))
    place = stream(quiet=as_json)
    width = common.columns(quiet=as_json) if out is None and place.isatty() else None
    shown = (
        [_rendered(found, form, folders, width)]
        if pivot is None
        else list(_pivots(arms, folders, pivot, where or [], goals, form, point, free, width))
    )
    text = "\n\n".join(shown) + "\n"
    if out is not None:
        write_whole(out, lambda part: part.write_text(text, encoding="utf-8"))
        common.print_paths([out], quiet=as_json)
    else:
        print(text, end="", file=stream(quiet=as_json))
    wrong = unfinished(folders) + complaints(arms)
    for line in wrong:
        common.say(f"warning: {line}")
    if as_json:
        table = {
            "metrics": list(found.metrics),
            "objectives": list(found.objectives),
            "rows": found.rows(),
            "tuned": dict(found.tuned),
        }
        print_json(table | ({"warnings": wrong} if wrong else {}))


def _format_of(form: str, *, latex: bool) -> str:
    """Return the format that the options name; refuse two, and one that is not known."""
    from folkman.checks import one_of
    from folkman.report.sheets import FORMATS

    one_of("format", form, FORMATS)
    if latex and form not in ("text", "latex"):
        raise ValueError(f"--latex and --format {form} name two formats; leave out one of them")
    return "latex" if latex else form


def _rendered(found: "ArmTable", form: str, folders: Sequence[Path], width: int | None) -> str:
    """Return a line per arm."""
    from folkman.record.table import networks_of, settings_of_arms
    from folkman.report.sheets import render

    known, name = settings_of_arms(folders), folders[0].resolve().name
    return render(found, form, networks_of(folders), known, width, name)


def _pivots(  # noqa: PLR0913, PLR0917 - what the command was asked for
    arms: "Mapping[str, Mapping[int, Run]]",
    folders: Sequence[Path],
    pivot: str,
    where: Sequence[str],
    goals: Sequence[str],
    form: str,
    point: tuple[str, float] | None,
    free: Sequence[str],
    width: int | None,
) -> Iterator[str]:
    """Yield a grid for each metric: of one axis across, or of two settings."""
    from folkman.cli.look import wheres
    from folkman.record.settings import settings_of_folders
    from folkman.record.table import settings_of_arms
    from folkman.report.chosen import known_settings
    from folkman.report.pivot import crossed, pivoted

    parts = [part.strip() for part in pivot.split(",")]
    if len(parts) > 2 or not all(parts):
        raise ValueError(
            f"--pivot looks like algorithm,network.gamma or network.gamma, got '{pivot}'"
        )
    options = {"form": form, "at": point, "bounds": free, "width": width}
    if len(parts) == 1:
        known = settings_of_arms(folders)
        yield from (pivoted(arms, known, parts[0], goal, **options) for goal in goals)
        return
    facts = known_settings(arms, settings_of_folders(folders), wheres(where))
    for goal in goals:
        yield crossed(arms, facts, (parts[0], parts[1]), goal, **options)


def _point(text: str | None) -> tuple[str, float] | None:
    if text is None:
        return None
    axis, _, value = text.partition("=")
    try:
        return axis.strip(), float(value)
    except ValueError:
        raise ValueError(f"--at looks like seconds=100, got '{text}'") from None
