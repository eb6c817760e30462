"""Ranking: every method in one setting, each tuned by one search, judged on fresh seeds.

    ranked = fm.rank("mine.toml", methods=["fedavg", "scaffold"])
    print(ranked)

First a tuning (`folkman.experiment.tune`) finds each method's own step, then every method runs
under the same fresh seeds, and `folkman.report.ranking` judges them at equal time, bits, gradients
and joules. The folder is that of a sweep, whose jobs are the judged runs; the tuning lies within.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from folkman.algorithm import ALGORITHMS
from folkman.checks import nearest, require
from folkman.config.build import build_problem
from folkman.config.comparison import Comparison, resolve
from folkman.config.text import DEFAULT, dump, refuse_beside_resume
from folkman.experiment.batch import Asked, Progress, Watch
from folkman.experiment.engines import Crew, Engine, engine_for
from folkman.experiment.parts import check, parts
from folkman.experiment.plan import Axes, Plan, plan
from folkman.experiment.sweep import crew_for
from folkman.experiment.tunable import Over, tuning_seeds
from folkman.experiment.tune import (
    PreparedTuning,
    one_setting,
    prepare_tuning,
    reopened,
    run_whole,
    tuned_on,
)
from folkman.experiment.tuned import Tuned
from folkman.record.json_file import Json, Table, dated
from folkman.record.run import Run, jsonable
from folkman.record.store import SweepFolder
from folkman.record.table import arms_of
from folkman.report.ranking import COSTS, Ranking, rank_runs, table_rows
from folkman.report.tables import markdown_table
from folkman.report.write import write_report
from folkman.theory.floors import MODEL, Parts, floor_of

__all__ = ["PreparedRanking", "Ranked", "carry_out_ranking", "prepare_ranking", "rank"]

FIRST_SEED, SEEDS = 2000, 10
TUNED_ON = 2
"""Seeds of the search: fewer than of `folkman tune`, since ten others judge every method here."""
"""The seeds to judge on by default: a tuning is on 1000 and 1001."""
RECORDS = 100
"""Records of a judged run: at equal bits one is judged by its last record within them."""
EVERY, CONFIGURED = "all", "configured"
"""Instead of a method: all that are registered, or those of the configuration."""


class PreparedRanking(NamedTuple):
    """A ranking that can begin: checked, and its folders made."""

    tuning: PreparedTuning
    folder: SweepFolder
    seeds: tuple[int, ...]
    left_out: Mapping[str, str]  # label -> why

    @property
    def runs(self) -> int:
        """Return the most runs of the search and of the judgement together."""
        return self.tuning.runs + len(self.tuning.methods) * len(self.seeds)


class TimeFloor(NamedTuple):
    """Before which slot no first-order method can have what the best one ends with."""

    train_loss: float  # mean over seeds, of the best method at equal time
    slots: float  # mean over seeds
    best_slots: float  # when the best method had it


class Ranked(NamedTuple):
    """What a ranking leaves."""

    folder: Path
    score: str
    seeds: tuple[int, ...]
    tuned: Tuned  # what the search found
    # tables of ranks: at equal time, then at equal bits, gradients and others
    rankings: tuple[Ranking, ...]
    left_out: Mapping[str, str]  # method -> why it is not ranked
    floor: TimeFloor | None = None  # least time of any method, on quadratics alone; else None

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return headings and a row of text for each method."""
        return table_rows(self.rankings, self.score)

    def answer(self) -> Json:
        """Return it as one JSON object."""
        tuned = {each.label: dict(each.options) for each in self.tuned.methods}
        head = {"folder": str(self.folder), "score": self.score, "seeds": list(self.seeds)}
        told = [_jsonable(each.answer()) for each in self.rankings]
        if self.floor is not None:
            head |= {"floor": self.floor._asdict()}
        return {**head, "tuned": tuned, "left_out": dict(self.left_out), "rankings": told}

    def __str__(self) -> str:
        """Return the table as text."""
        return markdown_table(*self.rows())


def _jsonable(value: object) -> object:
    """Return a value with what JSON does not know as null."""
    if isinstance(value, dict):
        return {key: _jsonable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    return jsonable(value) if isinstance(value, float) else value


def prepare_ranking(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    methods: Sequence[str] = (EVERY,),
    over: Over = ("step",),
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    judged: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
) -> PreparedRanking:
    """Check what is asked for, then make the folders: what does not fit leaves nothing."""
    if resume is not None:
        unlike = score != "train_loss" or tuple(over) != ("step",) or tuple(methods) != (EVERY,)
        refuse_beside_resume(config, unlike, budget, seeds, judged, settings, out, store)
        return _resumed(Path(resume))
    raw = one_setting("a ranking", config, settings)
    fresh = _fresh(judged)
    tables, left_out = _fitting({**raw, "seeds": list(fresh)}, methods)
    require(
        len(tables) > 1, f"a ranking needs two methods at least, {len(tables)} fit{_why(left_out)}"
    )
    whole = {**raw, "seeds": list(fresh), "algorithm": tables}
    comparison = resolve(whole, try_builders=False)
    name, seeds = comparison.name, tuning_seeds(comparison, seeds, TUNED_ON)
    root = Path(out) if out is not None else Path("ranks") / dated(name)
    asked: Json = {"methods": list(methods), "over": _listed(over), "judged": list(fresh)}
    asked |= {"budget": budget, "seeds": list(seeds), "score": score}
    known = {key: value for key, value in asked.items() if value is not None}
    missing = [each for each in (root, *root.parents) if not each.exists()]
    definition = dump({**raw, "rank": known})
    folder = SweepFolder.create(root, definition, Path(store) if store else None)
    options: Json = {"over": over, "budget": budget, "seeds": seeds, "score": score}
    try:
        tuning = prepare_tuning(whole, **options, out=folder.tuned, store=store)
    except Exception:
        if missing:
            shutil.rmtree(root)
            _remove_empty(missing[1:])
        raise
    return PreparedRanking(tuning, folder, fresh, left_out)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, from the inside out, as far as nobody else has put something there."""
    with suppress(OSError):
        for each in folders:
            each.rmdir()


def _resumed(root: Path) -> PreparedRanking:
    """Open the folder of a ranking to go on with."""
    folder, raw, asked = reopened(root, "rank", "ranking")
    return prepare_ranking(raw, **asked, out=root, store=folder.shared_store)


def _listed(over: Over) -> object:
    """Return the options to tune as a file can hold them."""
    return dict(over) if isinstance(over, Mapping) else list(over)


def _fresh(judged: Sequence[int] | None) -> tuple[int, ...]:
    """Return the seeds to judge on."""
    if judged is None:
        return tuple(range(FIRST_SEED, FIRST_SEED + SEEDS))
    require(
        len(set(judged)) == len(judged) >= 2,
        f"expected two different seeds to judge on at least, got {list(judged)}",
    )
    return tuple(judged)


def _why(left_out: Mapping[str, str]) -> str:
    return "".join(f"; {label}: {why}" for label, why in left_out.items())


def _fitting(raw: Json, methods: Sequence[str]) -> tuple[list[Json], dict[str, str]]:
    """Return the tables of the methods that can run in this setting, and why others cannot."""
    own = [dict(table) for table in raw.get("algorithm", DEFAULT["algorithm"])]
    found, left_out = [], {}
    for table in _asked_for(own, methods):
        label = table.get("label", table["name"])
        try:
            one = resolve({**raw, "algorithm": [table]})
            with jax.enable_x64(one.precision == "float64"):
                check([next(iter(parts(one)))])
        except ValueError as error:
            left_out[label] = str(error)
        else:
            found.append({**table, "label": label})
    return found, left_out


def _asked_for(own: Sequence[Json], methods: Sequence[str]) -> list[Json]:
    """Return the table of each method that is asked for: the configuration's, or its defaults."""
    known = [*ALGORITHMS, *(table.get("label", table["name"]) for table in own)]
    found: list[Json] = []
    for method in methods:
        if method == CONFIGURED:
            found += own
            continue
        require(
            method == EVERY or method in known,
            f"there is no method '{method}'; {nearest(method, [*known, EVERY, CONFIGURED])}",
        )
        for name in ALGORITHMS if method == EVERY else [method]:
            given = [each for each in own if name in (each["name"], each.get("label"))]
            # a reference on another network does not compete
            given = [each for each in given if "network" not in each]
            found += given or [{"name": name}]
    labels = [table.get("label", table["name"]) for table in found]
    return [table for place, table in enumerate(found) if labels.index(labels[place]) == place]


def carry_out_ranking(
    prepared: PreparedRanking,
    crew: Crew,
    watch: Watch = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Ranked:
    """Tune, judge on fresh seeds, rank, and write the report.

    `watch` is told of every run that ended; `tell` what the workers are.
    """
    folder = prepared.folder
    with folder.held(), closing(engine_for(crew)) as engine:
        tell(engine.about)
        with prepared.tuning.folder.held():
            tuned = tuned_on(prepared.tuning, engine, _in_phase(watch, "search"))
        judged = _in_phase(watch, "judging", before=prepared.tuning.runs)
        _judge(prepared, tuned, engine, judged)
    arms = arms_of([folder.root])
    rankings = rank_runs(arms, prepared.tuning.score)
    costs = ", ".join(COSTS.values())
    require(bool(rankings), f"no run tells what it spent ({costs}); all diverged")
    ranked = Ranked(
        folder.root,
        prepared.tuning.score,
        prepared.seeds,
        tuned,
        tuple(rankings),
        prepared.left_out,
        _floor(prepared.tuning.comparison, arms[rankings[0].labels[0]]),
    )
    folder.write_ranking(ranked.answer())
    write_report(folder.root)
    return ranked


def _floor(comparison: Comparison, best: Mapping[int, Run]) -> TimeFloor | None:
    """Return the floor of the best method's end; None but for quadratics in full batches.

    Messages are taken to be free, which no network undercuts.
    """
    if comparison.model["name"] != MODEL or comparison.batch is not None:
        return None
    found = []
    with jax.enable_x64(True):
        for seed, run in best.items():
            problem = build_problem(comparison, seed)
            parts = Parts(
                np.stack([np.diag(np.mean(y, axis=0)) for y in np.asarray(problem.y, float)]),
                np.asarray(problem.x, float)[:, 0],
                np.asarray(problem.share, float),
            )
            floor = floor_of(parts, np.asarray(problem.initial, float), comparison.slots)
            losses = run.column("train_loss")
            lower = losses[0] - floor.excess_loss[0] + floor.excess_loss
            reached = next(row["slots"] for row in run.rows if row["train_loss"] <= losses[-1])
            slots = int(np.flatnonzero(lower <= losses[-1] * (1 + 1e-6))[0])
            found.append((losses[-1], slots, reached))
    return TimeFloor(*map(float, np.mean(found, axis=0)))


def _in_phase(watch: Watch, phase: str, before: int = 0) -> Watch:
    """Return a watcher of one of the two parts of a ranking, each of which has its own count."""

    def named(told: Progress) -> None:
        watch(told._replace(phase=phase, before=before))

    return named


def _judge(prepared: PreparedRanking, tuned: Tuned, engine: Engine, watch: Watch) -> None:
    """Run every method with what was found for it, under the fresh seeds."""
    slots = prepared.tuning.comparison.slots
    raw = {**tuned.config, "record_every": max(1, math.ceil(slots / RECORDS))}
    planned: Plan = plan(raw, Axes({}, {}))
    facts = {"metrics": [prepared.tuning.score]}
    run_whole(planned, prepared.folder, engine, watch, Asked(lean=True, facts=facts))


def rank(  # noqa: PLR0913 - what may be asked for, by name
    config: str | Path | Table | None = None,
    *,
    methods: Sequence[str] = (EVERY,),  # names, labels of the configuration, "all" or "configured"
    over: Over = ("step",),
    # runs of each method that the search may spend; None: by the options
    budget: int | None = None,
    seeds: Sequence[int] | None = None,
    # seeds to judge on, none of the search's; None: as many fresh ones
    judged: Sequence[int] | None = None,
    score: str = "train_loss",
    settings: Sequence[str] | Table = (),
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: str | Path | None = None,
    engine: str = "processes",
    workers: int | None = None,
    tls: Sequence[str | PathLike[str]] = (),  # authority, certificate and key of a dask scheduler
) -> Ranked:
    """Tune all methods by one search, and rank them on fresh seeds, as `folkman rank` does.

    `methods`: names of methods, labels of the configuration, "all" or "configured". `judged`: the
    seeds to judge on. The other options are those of `tune`; `out` is the folder.
    """
    crew = crew_for(engine, workers, None, *map(str, tls))
    asked: Json = {"over": over, "budget": budget, "seeds": seeds, "judged": judged, "score": score}
    places: Json = {"out": out, "store": store, "resume": resume}
    prepared = prepare_ranking(config, methods=methods, **asked, settings=settings, **places)
    return carry_out_ranking(prepared, crew)
