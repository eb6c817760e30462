"""Tuning: each method's own best options, by one search of the same budget for all.

    tuned = fm.tune("mine.toml", over=["step", "local_steps"])
    fm.run(tuned.config)

Every method of a configuration is searched by `folkman.experiment.halving` on seeds of its own,
which no comparison is judged on. The runs are jobs of a sweep folder: locked, resumable, on any
engine. The end is a configuration file, with the options that were found and a table [tuned] that
says how (`folkman.record.tuned` reads it).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from folkman.checks import one_of, require
from folkman.config.choices import ConfigError
from folkman.config.comparison import Comparison, resolve, told
from folkman.config.text import DEFAULT, dump, gather, read, refuse_beside_resume
from folkman.experiment.batch import Asked, Batch, Progress, Watch, run_batch
from folkman.experiment.engines import Crew, Engine, engine_for
from folkman.experiment.halving import Search, Solution, Trial, halving
from folkman.experiment.plan import LANGUAGE, Job, Plan, alone, job_key
from folkman.experiment.sweep import crew_for
from folkman.experiment.tunable import (
    Method,
    Over,
    axes_asked,
    budget_for,
    methods_of,
    table_at,
    tuning_seeds,
)
from folkman.experiment.tuned import Tuned, TunedMethod, file_text, shown
from folkman.record.json_file import Json, Table, now, write_text
from folkman.record.provenance import provenance
from folkman.record.run import DIVERGED
from folkman.record.store import SweepFolder
from folkman.record.table import read_rows
from folkman.record.tuned import setting

__all__ = ["PreparedTuning", "Stopped", "carry_out_tuning", "one_setting", "prepare_tuning"]
__all__ += ["reopened", "run_whole", "tune", "tuned_on"]

RECORDS = 4
"""Records of a run: its end counts, and one that diverges is stopped at the next."""
SCORES = {"train_loss": 1.0, "test_loss": 1.0, "test_accuracy": -1.0, "optimum_distance": 1.0}
"""What may be tuned for, and its sign: less is better."""


class PreparedTuning(NamedTuple):
    """A tuning that can begin: checked, and its folder made."""

    raw: Json  # the configuration as it was given
    comparison: Comparison
    methods: tuple[Method, ...]
    skipped: Mapping[str, tuple[str, ...]]  # option -> algorithms that do not have it
    over: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: int
    score: str
    out: Path  # the file to write
    folder: SweepFolder

    @property
    def runs(self) -> int:
        """Return the most runs of all methods together."""
        return self.budget * len(self.methods)


class Stopped(RuntimeError):  # noqa: N818 - it can go on
    """Jobs of a tuning failed, or the disk refused; `batch` has them."""

    def __init__(self, batch: Batch, again: str) -> None:
        self.batch = batch
        first = batch.disk or (batch.failed[0]["message"] if batch.failed else batch.stopped)
        super().__init__(f"{first}; what is finished is kept; go on with: {again}")


def prepare_tuning(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    over: Over = ("step",),
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
) -> PreparedTuning:
    """Check what is asked for, then make the folder: what does not fit leaves nothing."""
    if resume is not None:
        unlike = score != "train_loss" or tuple(over) != ("step",)
        refuse_beside_resume(config, unlike, budget, seeds, settings, out, store)
        return _resumed(Path(resume))
    raw = one_setting("a tuning", config, settings)
    comparison = resolve(raw)
    one_of("score", score, SCORES)
    grids = axes_asked(over)
    own = tuning_seeds(comparison, seeds)
    methods, skipped = methods_of(comparison, grids)
    number = budget_for(methods, len(own), budget)
    target = _target(out, config, comparison.name)
    values = {name: list(axis.values) for name, axis in grids.items()}
    asked = {"over": values, "budget": number, "seeds": list(own), "score": score}
    definition = dump({**_with_algorithms(raw), "tune": asked})
    folder = SweepFolder.create(target.with_suffix(""), definition, Path(store) if store else None)
    search = (methods, skipped, tuple(grids), own, number, score)
    return PreparedTuning(raw, comparison, *search, target, folder)


def one_setting(
    what: str, config: str | Path | Table | None, settings: Sequence[str] | Table
) -> Json:
    """Return the tables of a configuration that varies nothing, without its note of a tuning."""
    raw = gather(config, settings)
    raw.pop("tuned", None)
    for key in LANGUAGE:
        require(key not in raw, f"{what} is for one setting; leave out [{key}], or sweep it")
    return raw


def reopened(root: Path, kind: str, what: str) -> tuple[SweepFolder, Json, Json]:
    """Open a folder to go on with: return it, its configuration, and what was asked for."""
    folder = SweepFolder.open(root)
    raw = read(folder.definition, warn=False)
    require(kind in raw, f"{root} is no {what}; go on with: {folder.again()}")
    asked = raw.pop(kind)
    return folder, raw, asked


def _resumed(root: Path) -> PreparedTuning:
    """Open the folder of a tuning to go on with."""
    folder, raw, asked = reopened(root, "tune", "tuning")
    out = folder.root.with_name(f"{folder.root.name}.toml")
    return prepare_tuning(raw, **asked, out=out, store=folder.shared_store)


def _target(out: str | Path | None, config: str | Path | Table | None, name: str) -> Path:
    """Return the file to write; refuse one that cannot be, before anything is run."""
    given = isinstance(config, str | Path)
    stem = Path(config).stem if given else name.replace(" ", "-")
    target = Path(out) if out is not None else Path(f"{stem}-tuned.toml")
    wanted = "--out names the configuration to write, NAME.toml"
    require(target.suffix == ".toml", f"{wanted}; got {target}")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {target.parent} to write {target.name} into; make it first"
        )
    itself = given and target.resolve() == Path(config).resolve()
    require(not itself, f"{target} is the configuration itself; choose another --out")
    if target.exists() and not (target.is_file() and _was_tuned(target)):
        wrong = f"{target} is there and was not written by a tuning"
        raise FileExistsError(f"{wrong}; choose another --out")
    return target


def _was_tuned(path: Path) -> bool:
    try:
        return "tuned" in read(path, warn=False)
    except ConfigError:
        return False


def _with_algorithms(raw: Table) -> Json:
    """Return a configuration with the algorithms of the default comparison where it names none."""
    return {**raw, "algorithm": raw.get("algorithm", DEFAULT["algorithm"])}


def carry_out_tuning(
    prepared: PreparedTuning,
    crew: Crew,
    watch: Watch = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Search every method, side by side, and write the tuned configuration.

    `watch` is told of every run that ended; `tell` what the workers are.
    """
    with prepared.folder.held(), closing(engine_for(crew)) as engine:
        tell(engine.about)
        return tuned_on(prepared, engine, watch)


def tuned_on(prepared: PreparedTuning, engine: Engine, watch: Watch = lambda _: None) -> Tuned:
    """Search every method on an engine that is there; the folder is the caller's to hold."""
    tuned = _tuned(prepared, _searched(prepared, engine, watch))
    write_text(prepared.out, file_text(tuned))
    return tuned


def _searched(prepared: PreparedTuning, engine: Engine, watch: Watch) -> list[Solution]:
    """Advance the searches of all methods together, as one batch of jobs a round."""
    searches: dict[Method, Search] = {
        method: halving(method.axes, method.start, len(prepared.seeds), prepared.budget)
        for method in prepared.methods
    }
    wanted = {method: next(search) for method, search in searches.items()}
    found: dict[Method, Solution] = {}
    made = 0
    while wanted:
        unspent = sum(prepared.budget - len(each.scores) for each in found.values())
        scores = _scores(prepared, wanted, engine, _counting(watch, made + unspent, prepared.runs))
        made += sum(map(len, wanted.values()))
        for method in list(wanted):
            try:
                wanted[method] = searches[method].send(scores[method])
            except StopIteration as end:
                found[method] = end.value
                del wanted[method]
    return [found[method] for method in prepared.methods]


def _counting(watch: Watch, before: int, in_all: int) -> Watch:
    """Return a watcher that counts the runs of earlier rounds too."""

    def counted(told: Progress) -> None:
        watch(told._replace(done=before + told.done, in_all=in_all, left_s=None))

    return counted


def _scores(
    prepared: PreparedTuning,
    wanted: Mapping[Method, Sequence[Trial]],
    engine: Engine,
    watch: Watch,
) -> dict[Method, dict[Trial, float]]:
    """Run the trials of a round and return the score of each."""
    jobs = {
        (method, trial): _job(prepared, method, trial)
        for method, trials in wanted.items()
        for trial in trials
    }
    plan = Plan(prepared.comparison.name, prepared.over, list(jobs.values()))
    asked = Asked(lean=True, grows=True, facts={"metrics": [prepared.score]})
    batch = run_whole(plan, prepared.folder, engine, watch, asked)
    rows, states = read_rows(prepared.folder.root), {job["key"]: job["state"] for job in batch.jobs}
    scores: dict[Method, dict[Trial, float]] = {method: {} for method in wanted}
    for (method, trial), job in jobs.items():
        diverged = states[job.key] == DIVERGED
        scores[method][trial] = math.inf if diverged else _score(prepared, rows[job.key][-1])
    return scores


def run_whole(plan: Plan, folder: SweepFolder, engine: Engine, watch: Watch, asked: Asked) -> Batch:
    """Run all jobs of a plan, or raise `Stopped`."""
    batch = run_batch(plan, folder, engine, watch, asked)
    if batch.disk or batch.failed or batch.stopped:
        raise Stopped(batch, folder.again())
    return batch


def _score(prepared: PreparedTuning, last: Mapping[str, float]) -> float:
    value = last.get(prepared.score, math.nan)
    lacks = f"these runs have no {prepared.score.replace('_', ' ')}"
    require(not math.isnan(value), f"{lacks}; tune for another --score, as train_loss")
    return SCORES[prepared.score] * value


def _job(prepared: PreparedTuning, method: Method, trial: Trial) -> Job:
    """Return the job of a trial."""
    point, seed = trial
    comparison = prepared.comparison
    one = alone(comparison, table_at(comparison, method, point))
    every = max(comparison.record_every, math.ceil(comparison.slots / RECORDS))
    changes = {"seeds": (prepared.seeds[seed],), "record_every": every, "tuned": None}
    changes |= {"evaluate_nodes": False, "keep_timelines": False, "stop_at": None}
    changes |= {"keep_nodes": False}
    config = one.model_copy(update=changes)
    settings = dict(zip((axis.name for axis in method.axes), point, strict=True))
    arm = ", ".join([method.label, *(f"{name}={shown(value)}" for name, value in settings.items())])
    return Job(job_key(config), arm, settings, config)


def _tuned(prepared: PreparedTuning, found: Sequence[Solution]) -> Tuned:
    """Return the configuration with what was found; refuse a method whose runs all diverged."""
    config, sign = _with_algorithms(prepared.raw), SCORES[prepared.score]
    tables = [dict(table) for table in config["algorithm"]]
    methods = []
    for method, each in zip(prepared.methods, found, strict=True):
        _check_found(method, each)
        names = [axis.name for axis in method.axes]
        options = dict(zip(names, each.best, strict=True))
        before = dict(zip(names, each.start, strict=True))
        tables[method.number] |= {"label": method.label, **options}
        was = sign * each.start_score if math.isfinite(each.start_score) else None
        end = (options, sign * each.score, before, was, len(each.scores), each.at_edge)
        methods.append(TunedMethod(method.label, *end))
    plain = {**config, "algorithm": tables}
    resolved = told(resolve(plain))
    record = {**_search(prepared), "algorithm": dict(_records(resolved, prepared, methods))}
    rest = (prepared.score, prepared.seeds, prepared.budget, tuple(methods), prepared.skipped)
    return Tuned(prepared.out, prepared.folder.root, {**plain, "tuned": record}, *rest)


def _check_found(method: Method, found: Solution) -> None:
    if math.isfinite(found.score):
        return
    steps = sorted({each[0] for each, _ in found.scores})
    name = method.axes[0].name
    raise ValueError(
        f"every run of '{method.label}' diverged, with {name} from {steps[0]:g} to {steps[-1]:g}; "
        f"try smaller values (--over {name}={steps[0] / 100:g},{steps[0] / 10:g},{steps[0]:g}), "
        "shorter delays, or another model"
    )


def _search(prepared: PreparedTuning) -> Json:
    """Return by which search all methods were tuned."""
    grids = {axis.name: list(axis.values) for each in prepared.methods for axis in each.axes}
    made = provenance(None)
    known = {"version": made["versions"]["folkman"], "commit": made["commit"]}
    return {
        **{name: value for name, value in known.items() if value is not None},
        "made": now(),
        "score": prepared.score,
        "seeds": list(prepared.seeds),
        "budget": prepared.budget,
        "over": list(prepared.over),
        "grid": grids,
        "skipped": {name: list(labels) for name, labels in prepared.skipped.items()},
    }


def _records(
    resolved: Table, prepared: PreparedTuning, methods: Sequence[TunedMethod]
) -> Iterator[tuple[str, Json]]:
    """Yield what the file says of each method, by its label."""
    for method, each in zip(prepared.methods, methods, strict=True):
        side = resolved["algorithm"][method.number]
        record: Json = {"score": each.score, "runs": each.runs, "options": each.options}
        record |= {"before": each.before}
        record |= {} if each.score_before is None else {"score_before": each.score_before}
        record |= {"at_edge": list(each.at_edge)} if each.at_edge else {}
        record |= {"setting": setting(resolved, side, each.options)}
        yield each.label, record


def tune(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    over: Over = ("step",),
    # runs of each method that the search may spend; None: by the options
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
    engine: str = "processes",
    workers: int | None = None,
    tls: Sequence[str | PathLike[str]] = (),  # authority, certificate and key of a dask scheduler
) -> Tuned:
    """Find each method's own best options, as `folkman tune` does, and return them.

    `config`: a path, a dictionary, or nothing: the default. `over`: options to tune, as "step" or
    "step=0.01,0.1,1", or a dictionary of values by option (None: the usual ones). `budget`: runs
    for each method, the same for all. `seeds`: to tune on; none of them may be a seed of the
    configuration. `score`: train_loss, test_loss, test_accuracy or optimum_distance at the end,
    mean over seeds. The tuned configuration is written to `out`, else NAME-tuned.toml, its runs
    into a folder of that name; calling it again goes on with what is there. `engine`: here,
    processes, dask, or the address of a dask scheduler, with `tls` its authority, certificate and
    key.
    """
    crew = crew_for(engine, workers, None, *map(str, tls))
    asked: Json = {"over": over, "budget": budget, "seeds": seeds, "score": score}
    places: Json = {"out": out, "store": store, "resume": resume}
    prepared = prepare_tuning(config, **asked, settings=settings, **places)
    return carry_out_tuning(prepared, crew)
