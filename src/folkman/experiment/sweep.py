"""A sweep: a configuration at many settings, each under the same seeds.

    fm.sweep("mine.toml", grid={"network.gamma": [5, 10]}, out="sweeps/gamma")

The command line is a thin layer over `prepare_sweep` and `carry_out_sweep`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from folkman.checks import require
from folkman.config.text import dump, gather, put, read, refuse_beside_resume
from folkman.experiment.batch import Asked, Batch, Watch, run_batch
from folkman.experiment.engines import Crew, check_crew, engine_for
from folkman.experiment.plan import Plan, axes_of, plan
from folkman.experiment.trackers import check_packages, make_shared
from folkman.machine import usable_bytes, usable_cores
from folkman.record.json_file import Table, dated
from folkman.record.store import SweepFolder
from folkman.report.notebook import Results, read_results
from folkman.report.write import write_report

__all__ = ["PreparedSweep", "carry_out_sweep", "crew_for", "prepare_sweep", "sweep"]


class PreparedSweep(NamedTuple):
    """A sweep that can begin: every job planned and checked, and its folder made."""

    plan: Plan
    folder: SweepFolder


def prepare_sweep(
    config: str | Path | Table | None = None,
    *,
    grid: Sequence[str] | Mapping[str, Sequence[object]] = (),
    together: Sequence[str] | Mapping[str, Sequence[object]] = (),
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
) -> PreparedSweep:
    """Plan every job, then make the folder: what does not fit leaves nothing behind."""
    if resume is not None:
        refuse_beside_resume(config, grid, together, settings, out, store)
        return _resumed(Path(resume))
    raw = gather(config, settings)
    for name, axes in (("grid", grid), ("list", together)):
        require(
            not isinstance(axes, str),
            f"axes are a list of texts or a dictionary, got {axes!r}; write [{axes!r}]",
        )
        if isinstance(axes, Mapping):
            raw[name] = {**raw.get(name, {}), **{key: list(values) for key, values in axes.items()}}
    texts = [() if isinstance(axes, Mapping) else axes for axes in (grid, together)]
    axes = axes_of(raw, *texts)
    varied = bool(axes.keys) or "arm" in raw
    require(
        config is not None or varied,
        "a sweep needs something to vary; write --grid network.gamma=5,10,15, or name a sweep file",
    )
    rest = {key: value for key, value in raw.items() if key not in ("grid", "list")}
    tables = {"grid": dict(axes.grid), "list": dict(axes.together)}
    planned = plan(put(rest, {}), axes)
    definition = dump({**rest, **{name: table for name, table in tables.items() if table}})
    root = Path(out) if out else Path("sweeps") / dated(planned.name)
    return PreparedSweep(
        planned, SweepFolder.create(root, definition, Path(store) if store else None)
    )


def _resumed(root: Path) -> PreparedSweep:
    """Open a sweep folder to go on with."""
    folder = SweepFolder.open(root)
    raw = read(folder.definition, warn=False)
    asked = f"expected what was asked for in {folder.definition}, it is empty; restore the file"
    require(bool(raw), asked)
    require("paper" not in raw, f"{root} is a reproduction; go on with: {folder.again()}")
    require("rank" not in raw, f"{root} is a ranking; go on with: {folder.again()}")
    require("tune" not in raw, f"{root} is a tuning; go on with: {folder.again()}")
    return PreparedSweep(plan(raw, axes_of(raw)), folder)


def crew_for(
    engine: str, workers: int | None = None, memory_mb: float | None = None, *tls: str | None
) -> Crew:
    """Return where jobs run; by default a worker per core, with an even share of memory.

    `tls` are the files of the authority, of the own certificate and of its key.
    """
    require(
        len(tls) <= 3,
        f"tls is of three files: an authority, a certificate and its key; got {len(tls)}",
    )
    number = usable_cores() if workers is None else workers
    if memory_mb is None and engine in ("processes", "dask"):  # a cluster has limits of its own
        whole = usable_bytes()
        memory_mb = None if whole is None else 0.9 * whole / 1e6 / max(number, 1)
    crew = Crew(engine, number, memory_mb, *tls)
    check_crew(crew)
    return crew


def carry_out_sweep(
    prepared: PreparedSweep,
    crew: Crew,
    watch: Watch = lambda _: None,
    track: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Batch:
    """Run what is not finished of a prepared sweep; `tell` what the workers are."""
    make_shared(track, prepared.folder.root, prepared.plan.name)
    with prepared.folder.held(), closing(engine_for(crew)) as engine:
        tell(engine.about)
        return run_batch(prepared.plan, prepared.folder, engine, watch, Asked(track=track))


def sweep(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    # every combination of these values, by dotted key
    grid: Mapping[str, Sequence[object]] | Sequence[str] = (),
    # values that advance together, by dotted key
    together: Mapping[str, Sequence[object]] | Sequence[str] = (),
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
    engine: str = "processes",
    workers: int | None = None,
    track: Sequence[str] = (),
    tls: Sequence[str | PathLike[str]] = (),  # authority, certificate and key of a dask scheduler
) -> Results:
    """Run a configuration at many settings and return the runs, labelled by arm.

    What is finished is not run again.

    `config`: a path, a dict, or nothing: the default. `grid`: every combination of these values;
    `together`: lists that advance together. `engine`: here, processes, dask, or the address of a
    dask scheduler, with `tls` its authority, certificate and key. A job that fails is an error when
    all others have ended.
    """
    crew = crew_for(engine, workers, None, *map(str, tls))
    check_packages(track)
    places = {"out": out, "store": store, "resume": resume}
    prepared = prepare_sweep(config, grid=grid, together=together, settings=settings, **places)
    batch = carry_out_sweep(prepared, crew, track=track)
    root = prepared.folder.root
    whole = f"{batch.disk}; what was written is whole; free the disk, then resume {root}"
    require(not batch.disk, whole)
    if batch.failed:
        first = f"the first: {batch.failed[0]['message']}; see {root}"
        raise ValueError(f"{len(batch.failed)} jobs failed, {first}")
    write_report(root)
    return read_results(root)
