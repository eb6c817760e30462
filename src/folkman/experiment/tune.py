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
from pathlib import Path
from typing import Any, NamedTuple, get_args

from folkman import __version__
from folkman.checks import nearest, require
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, Comparison, resolve
from folkman.config.text import DEFAULT, dump, gather, read
from folkman.experiment.batch import Asked, Batch, Progress, Watch, run_batch
from folkman.experiment.engines import Crew, Engine, engine_for
from folkman.experiment.halving import (
    Axis,
    Found,
    Search,
    Setting,
    Trial,
    halving,
    least_budget,
    usual_budget,
)
from folkman.experiment.plan import LANGUAGE, Job, Plan, alone, job_key, option_values
from folkman.experiment.sweep import crew_for
from folkman.record.json_file import Json, Table, now, write_text
from folkman.record.run import DIVERGED
from folkman.record.store import SweepFolder
from folkman.record.table import read_rows
from folkman.record.tuned import setting
from folkman.report.tables import markdown_table

__all__ = [
    "PreparedTuning",
    "Stopped",
    "Tuned",
    "TunedMethod",
    "carry_out_tuning",
    "prepare_tuning",
    "resume_tuning",
    "tune",
]

FIRST_SEED = 1000
"""The first seed to tune on where none are given; those that are judged on are left out."""
SEEDS = 2
RECORDS = 4
"""Records of a run: its end counts, and one that diverges is stopped at the next."""
SCORES = {"train_loss": 1.0, "test_loss": 1.0, "test_accuracy": -1.0, "optimum_distance": 1.0}
"""What may be tuned for, and its sign: less is better."""


def _half_decades(low: int, high: int) -> tuple[float, ...]:
    """Return 10^low to 10^high by half-decades, in three digits."""
    return tuple(float(f"{10 ** (half / 2):.2e}") for half in range(2 * low, 2 * high + 1))


GRIDS: dict[str, Axis] = {
    "step": Axis("step", _half_decades(-3, 1), below=True, above=True, finer=True),
    "local_steps": Axis("local_steps", (1, 3, 10), above=True),
    "momentum": Axis("momentum", (0.0, 0.5, 0.9)),
}
"""The values that are tried of an option where none are given."""


class Method(NamedTuple):
    """One algorithm of a configuration and what is searched of it."""

    number: int  # its place in the configuration
    label: str
    axes: tuple[Axis, ...]
    start: Setting  # the configured values


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


class TunedMethod(NamedTuple):
    """What was found for one method."""

    label: str
    options: Json
    score: float
    before: Json  # the options as they were configured
    score_before: float | None  # None: it diverged
    runs: int
    at_edge: tuple[str, ...]  # options whose best value is the last one that was tried


class Tuned(NamedTuple):
    """What a tuning leaves: the configuration, where it was written, and each method's options."""

    file: Path
    folder: Path
    config: Json
    score: str
    seeds: tuple[int, ...]
    budget: int
    methods: tuple[TunedMethod, ...]
    skipped: Mapping[str, tuple[str, ...]]  # option -> algorithms that do not have it

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row of text for each method."""
        name = self.score.replace("_", " ")
        names = list(dict.fromkeys(key for each in self.methods for key in each.options))
        heads = ["algorithm", *names, name, "configured", f"{name} there", "runs"]
        rows = []
        for each in self.methods:
            there = DIVERGED if each.score_before is None else f"{each.score_before:.4g}"
            rows.append(
                [
                    each.label,
                    *(_shown(each.options.get(key)) for key in names),
                    f"{each.score:.4g}",
                    ", ".join(f"{key} {_shown(value)}" for key, value in each.before.items()),
                    there,
                    str(each.runs),
                ]
            )
        return heads, rows

    def notes(self) -> list[str]:
        """Return what else there is to say: options that a method lacks, values at an edge."""
        found = [
            f"no option '{name}', not tuned: {', '.join(labels)}"
            for name, labels in self.skipped.items()
        ]
        for each in self.methods:
            for name in each.at_edge:
                value = _shown(each.options[name])
                found.append(
                    f"{each.label}: {name} {value} is the last value that was tried; a larger "
                    "--budget goes on"
                )
        return found

    def __str__(self) -> str:
        """Return the table as text."""
        return "\n".join([markdown_table(*self.rows()), *self.notes()])


def _shown(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Stopped(RuntimeError):
    """Jobs of a tuning failed, or the disk refused; `batch` has them."""

    def __init__(self, batch: Batch, again: str) -> None:
        self.batch = batch
        first = batch.disk or (batch.failed[0]["message"] if batch.failed else batch.stopped)
        super().__init__(f"{first}; what is finished is kept; go on with: {again}")


def prepare_tuning(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    over: Sequence[str] | Mapping[str, Sequence[float] | None] = ("step",),
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
) -> PreparedTuning:
    """Check what is asked for and make the folder: what does not fit leaves nothing behind."""
    raw = gather(config, settings)
    raw.pop("tuned", None)
    for key in LANGUAGE:
        require(key not in raw, f"a tuning is for one setting; leave out [{key}], or sweep it")
    comparison = resolve(raw)
    require(score in SCORES, f"there is no score '{score}'; {nearest(score, SCORES)}")
    grids = _asked(over)
    own = _tuning_seeds(comparison, seeds)
    methods, skipped = _methods(comparison, grids)
    number = _budget(methods, len(own), budget)
    target = _target(out, config, comparison.name)
    asked = {
        "over": {name: list(axis.values) for name, axis in grids.items()},
        "budget": number,
        "seeds": list(own),
        "score": score,
    }
    definition = dump({**_with_algorithms(raw), "tune": asked})
    root = target.with_suffix("")
    folder = SweepFolder.create(root, definition, Path(store) if store else None)
    return PreparedTuning(
        raw, comparison, methods, skipped, tuple(grids), own, number, score, target, folder
    )


def resume_tuning(root: str | Path) -> PreparedTuning:
    """Open the folder of a tuning to go on with."""
    folder = SweepFolder.open(Path(root))
    raw = read(folder.definition, warn=False)
    require("tune" in raw, f"{root} is no tuning; go on with: {folder.again()}")
    asked = raw.pop("tune")
    out = folder.root.with_name(f"{folder.root.name}.toml")
    return prepare_tuning(raw, **asked, out=out, store=folder.shared_store)


def _asked(over: Sequence[str] | Mapping[str, Sequence[float] | None]) -> dict[str, Axis]:
    """Return the axes that are asked for: `step`, or `step=0.01,0.1`; values of their own keep
    what may be added to them."""
    require(
        not isinstance(over, str), f"options are a list of texts, got {over!r}; write [{over!r}]"
    )
    pairs: list[tuple[str, Sequence[Any] | None]] = []
    if isinstance(over, Mapping):
        pairs = list(over.items())
    else:
        pairs = [option_values(text, "over") if "=" in text else (text, None) for text in over]
    require(bool(pairs), "a tuning needs an option; write --over step")
    found: dict[str, Axis] = {}
    for name, values in pairs:
        require(name not in found, f"'{name}' is given twice; give each option once")
        axis = GRIDS.get(name, Axis(name, ()))
        found[name] = axis if values is None else axis._replace(values=_numbers(name, values))
    return found


def _numbers(name: str, values: Sequence[Any]) -> tuple[float, ...]:
    sound = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    sound = sound and all(map(math.isfinite, values)) and len(set(values)) == len(values)
    require(
        sound and len(values) > 0,
        f"expected different numbers for '{name}', got {list(values)}; write "
        f"--over {name}=0.01,0.1,1",
    )
    return tuple(sorted(values))


def _methods(
    comparison: Comparison, grids: Mapping[str, Axis]
) -> tuple[tuple[Method, ...], dict[str, tuple[str, ...]]]:
    """Return what is searched of each algorithm, and which algorithms lack an option.

    Refuse an option that none has.
    """
    choice = CHOICES["algorithm"]
    options = [choice.options(table["name"]) for table in comparison.algorithm]
    known = {
        name: None
        for table, kinds in zip(comparison.algorithm, options, strict=True)
        for name, (kind, _) in kinds.items()
        if _is_number(kind, table.get(name))
    }
    for name, axis in grids.items():
        require(
            name in known,
            f"no algorithm here has a number '{name}'; {nearest(name, known)}",
        )
        require(
            bool(axis.values),
            f"'{name}' has no usual values; write them: --over {name}=0.1,0.3,1",
        )
    found = []
    for number, (table, kinds) in enumerate(zip(comparison.algorithm, options, strict=True)):
        own = [name for name in grids if name in kinds and _is_number(kinds[name][0], table[name])]
        axes = tuple(_of_type(grids[name], kinds[name][0], comparison.slots) for name in own)
        open_ones = [name for name in own if table[name] is None]
        require(
            not open_ones,
            f"'{table['label']}' leaves '{''.join(open_ones[:1])}' to its builder; write a number "
            "to start from",
        )
        method = Method(number, table["label"], axes, tuple(table[name] for name in own))
        _check_values(comparison, method)
        found.append(method)
    skipped = {
        name: tuple(each.label for each in found if name not in {axis.name for axis in each.axes})
        for name in grids
    }
    lacking = {name: labels for name, labels in skipped.items() if labels}
    return tuple(method for method in found if method.axes), lacking


def _is_number(kind: object, value: object) -> bool:
    """Tell whether an option is a number, and not the name of a policy or a switch."""
    kinds = set(get_args(kind)) or {kind}
    given = isinstance(value, int | float) and not isinstance(value, bool)
    return bool(kinds & {int, float}) and (given or value is None)


def _of_type(axis: Axis, kind: object, slots: int) -> Axis:
    """Return an axis with values of the option's type; counts of gradients stop at the slots."""
    kinds = set(get_args(kind)) or {kind}
    if float in kinds:
        return axis._replace(values=tuple(map(float, axis.values)))
    whole = [round(value) for value in axis.values]
    require(
        whole == list(axis.values),
        f"expected whole numbers for '{axis.name}', got {list(axis.values)}",
    )
    values = tuple(value for value in whole if value <= slots) or (1,)
    return axis._replace(values=values, most=slots)


def _check_values(comparison: Comparison, method: Method) -> None:
    """Let the builder refuse values now and not in the middle."""
    for place, axis in enumerate(method.axes):
        for value in (axis.values[0], axis.values[-1]):
            point = (*method.start[:place], value, *method.start[place + 1 :])
            table = {
                key: each
                for key, each in _table(comparison, method, point).items()
                if each is not None
            }
            rest = comparison.model_dump(exclude={"tuned"})
            try:
                resolve({**rest, "algorithm": [table]})
            except ValueError as error:
                raise ConfigError(f"--over {axis.name}, at {value:g}: {error}") from None


def _table(comparison: Comparison, method: Method, point: Setting) -> Json:
    """Return the table of an algorithm at a setting."""
    names = [axis.name for axis in method.axes]
    return {**comparison.algorithm[method.number], **dict(zip(names, point, strict=True))}


def _tuning_seeds(comparison: Comparison, seeds: Sequence[int] | None) -> tuple[int, ...]:
    """Return the seeds to tune on; refuse those that the comparison is judged on."""
    judged = set(comparison.seeds)
    if seeds is None:
        free = (seed for seed in range(FIRST_SEED, 2**32) if seed not in judged)
        return tuple(next(free) for _ in range(SEEDS))
    own = tuple(seeds)
    sound = all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in own)
    require(
        bool(own) and sound and len(set(own)) == len(own),
        f"expected different whole numbers in 0 .. 2^32 - 1 as seeds, got {list(own)}",
    )
    common = sorted(judged & set(own))
    require(
        not common,
        f"the comparison is judged on the seeds {common} too; tune on others, as --seeds "
        f"{FIRST_SEED},{FIRST_SEED + 1}",
    )
    return own


def _budget(methods: Sequence[Method], seeds: int, budget: int | None) -> int:
    """Return the runs of each method: as given, or what the largest grid usually takes."""
    if budget is None:
        return max(usual_budget(method.axes, seeds) for method in methods)
    largest = max(methods, key=lambda method: least_budget(method.axes, seeds))
    needed = least_budget(largest.axes, seeds)
    require(
        budget >= needed,
        f"--budget {budget} is too small: the grid of '{largest.label}' needs {needed} runs under "
        f"{seeds} seeds; raise it, or give fewer values, as --over step=0.01,0.1,1",
    )
    return budget


def _target(out: str | Path | None, config: str | Path | Table | None, name: str) -> Path:
    """Return the file to write; refuse one that cannot be, before anything is run."""
    given = isinstance(config, str | Path)
    stem = Path(config).stem if given else name.replace(" ", "-")
    target = Path(out) if out is not None else Path(f"{stem}-tuned.toml")
    require(
        target.suffix == ".toml", f"--out names the configuration to write, NAME.toml; got {target}"
    )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} into")
    require(
        not given or target.resolve() != Path(config).resolve(),
        f"{target} is the configuration itself; choose another --out",
    )
    if target.exists() and not (target.is_file() and _was_tuned(target)):
        raise FileExistsError(
            f"{target} is there and was not written by a tuning; choose another --out"
        )
    return target


def _was_tuned(path: Path) -> bool:
    try:
        return "tuned" in read(path, warn=False)
    except ConfigError:
        return False


def _with_algorithms(raw: Table) -> Json:
    """Return a configuration with the algorithms of the demo where it names none."""
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
        found = _searched(prepared, engine, watch)
    tuned = _tuned(prepared, found)
    write_text(prepared.out, _text(prepared, tuned))
    return tuned


def _searched(prepared: PreparedTuning, engine: Engine, watch: Watch) -> list[Found]:
    """Advance the searches of all methods together, as one batch of jobs a round."""
    searches: dict[Method, Search] = {
        method: halving(method.axes, method.start, len(prepared.seeds), prepared.budget)
        for method in prepared.methods
    }
    wanted = {method: next(search) for method, search in searches.items()}
    found: dict[Method, Found] = {}
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
    batch = run_batch(plan, prepared.folder, engine, watch, asked)
    if batch.disk or batch.failed or batch.stopped:
        raise Stopped(batch, prepared.folder.again())
    rows, states = read_rows(prepared.folder.root), {job["key"]: job["state"] for job in batch.jobs}
    scores: dict[Method, dict[Trial, float]] = {method: {} for method in wanted}
    for (method, trial), job in jobs.items():
        diverged = states[job.key] == DIVERGED
        scores[method][trial] = math.inf if diverged else _score(prepared, rows[job.key][-1])
    return scores


def _score(prepared: PreparedTuning, last: Mapping[str, float]) -> float:
    value = last.get(prepared.score, math.nan)
    require(
        not math.isnan(value),
        f"these runs have no {prepared.score.replace('_', ' ')}; tune for another --score, as "
        "train_loss",
    )
    return SCORES[prepared.score] * value


def _job(prepared: PreparedTuning, method: Method, trial: Trial) -> Job:
    """Return the job of a trial."""
    point, seed = trial
    comparison = prepared.comparison
    one = alone(comparison, _table(comparison, method, point))
    every = max(comparison.record_every, math.ceil(comparison.slots / RECORDS))
    changes = {"seeds": (prepared.seeds[seed],), "record_every": every, "tuned": None}
    changes |= {"evaluate_nodes": False, "keep_timelines": False}
    config = one.model_copy(update=changes)
    settings = dict(zip((axis.name for axis in method.axes), point, strict=True))
    shown = [f"{name}={_shown(value)}" for name, value in settings.items()]
    return Job(job_key(config), ", ".join([method.label, *shown]), settings, config)


def _tuned(prepared: PreparedTuning, found: Sequence[Found]) -> Tuned:
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
        methods.append(
            TunedMethod(
                method.label,
                options,
                sign * each.score,
                before,
                was,
                len(each.scores),
                each.at_edge,
            )
        )
    plain = {**config, "algorithm": tables}
    resolved = resolve(plain).model_dump()
    record = {**_search(prepared), "algorithm": dict(_records(resolved, prepared, methods))}
    rest = (prepared.score, prepared.seeds, prepared.budget, tuple(methods), prepared.skipped)
    return Tuned(prepared.out, prepared.folder.root, {**plain, "tuned": record}, *rest)


def _check_found(method: Method, found: Found) -> None:
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
    return {
        "version": __version__,
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


def _text(prepared: PreparedTuning, tuned: Tuned) -> str:
    """Return the file: a comment for people, the configuration, the table [tuned]."""
    seeds = ", ".join(map(str, tuned.seeds))
    lines = [
        "Written by `folkman tune`: each method with its own best options, found by one search.",
        f"Search: {tuned.budget} runs at most for each method, on the seeds {seeds}; "
        f"{tuned.score} at the end.",
        "",
        *markdown_table(*tuned.rows()).splitlines(),
        *tuned.notes(),
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n\n" + dump(tuned.config)


def tune(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    over: Sequence[str] | Mapping[str, Sequence[float] | None] = ("step",),
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
    engine: str = "processes",
    workers: int | None = None,
) -> Tuned:
    """Find each method's own best options, as `folkman tune` does, and return them.

    `config`: a path, a dictionary, or nothing for the demo. `over`: options to tune, as "step" or
    "step=0.01,0.1,1", or a dictionary of values by option (None: the usual ones). `budget`: runs
    for each method, the same for all. `seeds`: to tune on; none of them may be a seed of the
    configuration. `score`: train_loss, test_loss, test_accuracy or optimum_distance at the end,
    mean over seeds. The tuned configuration is written to `out`, else NAME-tuned.toml, its runs
    into a folder of that name; calling it again goes on with what is there. `engine`: here,
    processes, dask, or the address of a dask scheduler.
    """
    crew = crew_for(engine, workers)
    if resume is not None:
        asked = (config, budget, seeds, out, store) != (None,) * 5 or settings
        require(
            not asked and score == "train_loss" and tuple(over) == ("step",),
            "resume takes everything from the folder; leave out all that says what to tune",
        )
        prepared = resume_tuning(resume)
    else:
        prepared = prepare_tuning(
            config,
            over=over,
            budget=budget,
            seeds=seeds,
            score=score,
            settings=settings,
            out=out,
            store=store,
        )
    return carry_out_tuning(prepared, crew)
