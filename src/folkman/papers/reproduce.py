"""A paper's experiments at a chosen size: its figures' jobs as one batch, then the drawings.

    reproduce(find("xie2024"), ["fig5"], "smoke", out=Path("runs/mine"))

A reproduction is a sweep whose jobs come from a paper: the same folder, store, locks, engines, live
page and report. A run that is there is not made again, so that any call can be repeated, in any
order, with any budget of time.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from folkman.checks import one_of, require
from folkman.config.text import dump
from folkman.experiment.batch import Asked, Batch, Watch, run_batch
from folkman.experiment.engines import Crew, engine_for
from folkman.experiment.jobs import order_for, run_order
from folkman.experiment.plan import Job, Plan
from folkman.papers.figures import draw_all, final_values
from folkman.papers.paper import DEFAULT, Paper, known_papers
from folkman.papers.plan import plan, share_of
from folkman.papers.results import read_reproduction
from folkman.record.folder import RunFolder
from folkman.record.json_file import Json, write_text
from folkman.record.run import ENDED, Run, json_row
from folkman.record.store import Store, SweepFolder, ended

__all__ = ["Amount", "Made", "chosen", "default_folder", "draw", "planned", "reproduce", "verify"]


HERE = Crew("here")


class Amount(NamedTuple):
    """How much of a paper is made."""

    size: str
    seeds: int | None = None  # draws of every figure, instead of the size's
    slots: int | None = None  # of every run, instead of the size's
    share: str | None = None  # "K/N": the K-th of N processes that share the work and the folder
    budget_s: float | None = None
    first: int = 0  # the number of the first draw


class Made(NamedTuple):
    """What a reproduction left: its folder, how its jobs stand, and the files that were drawn."""

    folder: SweepFolder
    batch: Batch
    drawn: list[Path]

    missing: list[Json]  # our jobs that have not ended


def chosen(paper: Paper, names: Sequence[str]) -> list[str]:
    """Return the experiments that were asked for, "all" spelt out."""
    every = [*paper.figures, *paper.measured]
    known = [*every, "all", *paper.beyond]
    for name in names:
        one_of("experiment", name, known)
    spelt = [each for name in names for each in (every if name == "all" else [name])]
    return list(dict.fromkeys(spelt))


def default_folder(paper: Paper, size: str) -> Path:
    """Return where a reproduction goes unless told otherwise."""
    return Path("runs") / f"{'paper' if paper.name == DEFAULT else paper.name}-{size}"


def planned(paper: Paper, names: Sequence[str], amount: Amount) -> tuple[Plan, list[Job]]:
    """Return the plan of the experiments that were asked for, and this process's share of jobs."""
    figures = [name for name in chosen(paper, names) if name not in paper.measured]
    whole = plan(paper, figures, amount.size, amount.seeds, amount.slots, amount.first)
    return whole, list(whole.jobs) if amount.share is None else share_of(whole.jobs, amount.share)


def reproduce(
    paper: Paper,
    names: Sequence[str],
    amount: Amount,
    out: Path | None = None,
    crew: Crew = HERE,
    watch: Watch = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Made:
    """Make the runs that are missing, as far as the budget goes, measure, and draw."""
    wanted = chosen(paper, names)
    whole, mine = planned(paper, names, amount)
    folder = _create(paper, amount, out or default_folder(paper, amount.size))
    facts = {"paper": _named(paper), "size": amount.size}
    only = None if amount.share is None else {job.key for job in mine}
    kept: Json = {"lean": True, "grows": True, "facts": facts, "own_code": paper.code_digests}
    asked = Asked((), amount.budget_s, only, **kept)
    with folder.held(shared=amount.share is not None), closing(engine_for(crew)) as engine:
        batch = run_batch(whole, folder, engine, watch, asked)
        lacking = set(wanted) & set(paper.measured) and not folder.measured.is_file()
        if lacking and not batch.stopped:
            measure = paper.own.measure
            if measure is None:
                raise ValueError(
                    f"paper.toml of {paper.name} names `measured`, its code has no measure()"
                )
            folder.write_measured(list(map(json_row, measure(paper, amount.size, tell))))
    folder.note_provenance()
    ours = [job for job in batch.jobs if only is None or job["key"] in only]
    missing = [job for job in ours if job["state"] not in ENDED]
    return Made(folder, batch, draw(folder.root, wanted, folder.root, paper), missing)


def _create(paper: Paper, amount: Amount, root: Path) -> SweepFolder:
    """Make the folder, or go on with it; runs of another length go into a folder of their own."""
    asked: Json = {"paper": _named(paper), "size": amount.size}
    asked |= {"iterations": amount.slots} if amount.slots else {}
    return SweepFolder.create(root, dump(asked))


def _named(paper: Paper) -> str:
    """Return how a folder names its paper: by name where that finds it, else by path."""
    return paper.name if known_papers().get(paper.name) == paper.folder else str(paper.folder)


def draw(source: Path, names: Sequence[str], out: Path, paper: Paper | None = None) -> list[Path]:
    """Draw the figures of a folder's runs, and write where every curve ends."""
    results = read_reproduction(source, paper)
    figures = [name for name in chosen(results.paper, names) if name not in results.paper.measured]
    place = SweepFolder(out)
    written = draw_all(results, figures, place.figures)
    if written:
        write_text(place.ends, final_values(results, figures))
        written.append(place.ends)
    return written


def verify(jobs: Sequence[Job], root: Path) -> tuple[Job, float]:
    """Make the first of these jobs that has ended a second time, from nothing.

    Return it and how much it differs.

    The number is the largest relative difference of any metric; the folder notes it.
    """
    folder = SweepFolder(root)
    require(
        folder.index.is_file(),
        f"expected a reproduction in {root}, there is none; make it first, without --verify",
    )
    store = Store(folder.store_root)
    learning = [job for job in jobs if job.kind == "run" and not job.notes.get("clock")]
    done = next((job for job in learning if ended(store.job(job.key))), None)
    if done is None:
        raise ValueError(f"no run of these has ended in {root}; make one first, without --verify")
    with TemporaryDirectory() as scratch:
        place = Store(Path(scratch))
        run_order(order_for(done, folder, place, "verify", lean=True), here=True)
        folders = [RunFolder.open(each.job(done.key)) for each in (store, place)]
        worst = _difference(*(each.load_results()[0] for each in folders))
    folder.note_verified(done.key, worst)
    return done, worst


def _difference(first: Run, second: Run) -> float:
    """Return the largest relative difference between the numbers of two runs."""
    worst = 0.0
    for one, two in zip(first.rows, second.rows, strict=True):
        for name, value in one.items():
            if np.isfinite(value) or np.isfinite(two[name]):
                worst = max(worst, abs(two[name] - value) / max(abs(value), 1e-12))
    return worst
