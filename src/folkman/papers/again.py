"""Kept runs made again: a sample of a folder's runs, from nothing, and how far they lie apart.

    for each in check(Path("docs/data/reproduction/laptop"), 3): ...

The plan of the folder's paper and size is made anew; a kept run is found in it by its key or, where
an older folkman made another key of the same configuration, by what it is. A run is compared
along its whole curve of training losses. How far apart two may lie depends on where they were made:

    same processor family, products in float32     1 in 1,000, in the median of the curve
    another device, or products in bfloat16        2 %, the margin of a loss in the audit

since programs compiled elsewhere differ in the last bits, which learning amplifies. On the same
machine with the same versions they are the same to the bit.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from folkman.checks import require
from folkman.experiment.jobs import order_for, run_order
from folkman.experiment.plan import Job
from folkman.papers.paper import Paper, find
from folkman.papers.plan import CLOCK, plan
from folkman.record.folder import RunFolder
from folkman.record.json_file import Table
from folkman.record.run import ENDED, Run
from folkman.record.store import Store, SweepFolder
from folkman.record.table import read_rows

__all__ = ["Again", "check"]

CLOSE, LOOSE = 1e-3, 2e-2
"""Relative differences of the training loss, in the median of a curve."""


class Again(NamedTuple):
    """One kept run and the same made now."""

    key: str
    arm: str
    seed: int
    median: float  # of the relative differences of the loss along the curve
    largest: float
    limit: float
    why: str  # this limit

    @property
    def agrees(self) -> bool:
        """Return whether the two are as near as they should be."""
        return self.median <= self.limit


def check(root: Path, sample: int, paper: Paper | None = None) -> Iterator[Again]:
    """Make a sample of the runs of a folder again, and compare each with what was kept.

    The sample is drawn by the number of runs, so that every call of one folder makes the same.
    """
    folder = SweepFolder(root)
    require(folder.index.is_file(), f"expected a reproduction in {root}, there is none; check it")
    index, rows = folder.read_index(), read_rows(root)
    require("paper" in index, f"expected a reproduction in {root}, it is a sweep; check the path")
    paper = paper or find(index["paper"])
    entries = [
        entry
        for entry in index["jobs"]
        if entry["state"] in ENDED and entry["kind"] == "run" and not entry.get(CLOCK)
    ]
    require(bool(entries), f"no run of {root} has ended; there is nothing to make again")
    jobs = _jobs(paper, index, folder.asked())
    drawn = np.random.default_rng(len(entries)).permutation(len(entries))[:sample]
    for entry in (entries[number] for number in drawn):
        job = jobs.get(entry["key"]) or jobs.get(_identity(entry))
        if job is None:
            raise ValueError(
                f"the kept run {entry['arm']}, seed {entry['seed']} is in no plan of {paper.name} "
                "today; check it with the folkman that made it"
            )
        with TemporaryDirectory() as scratch:
            place = Store(Path(scratch))
            told = run_order(order_for(job, folder, place, "check", lean=True), here=True)
            require(
                told["state"] in ENDED,
                f"the kept run {entry['arm']}, seed {entry['seed']} was not made again: "
                f"{told.get('message')}",
            )
            made = RunFolder.open(place.job(job.key)).load_results()[0]
        yield _compared(entry, Run("", "", job.seed, rows[entry["key"]]), made, job, root)


def _jobs(paper: Paper, index: Table, asked: Table) -> dict[str, Job]:
    """Return the jobs of the folder's plan, by key and by what they are."""
    seeds = [entry["seed"] for entry in index["jobs"]]
    first, figures = min(seeds), (*paper.figures, *paper.beyond)
    more = {"seeds": max(seeds) - first + 1, "slots": asked.get("iterations"), "first": first}
    found: dict[str, Job] = {}
    for job in plan(paper, figures, index["size"], **more).jobs:
        known = {"variant": job.notes["variant"], "seed": job.seed, "settings": job.settings}
        found[job.key] = job
        found.setdefault(_identity(known), job)
    return found


def _identity(entry: Table) -> str:
    return json.dumps([entry["variant"], entry["seed"], dict(entry["settings"])], sort_keys=True)


def _compared(entry: Table, kept: Run, made: Run, job: Job, root: Path) -> Again:
    """Compare two runs where both recorded."""
    ours = dict(zip(made.column("slots"), made.column("train_loss"), strict=True))
    pairs = [
        (was, ours[slot])
        for slot, was in zip(kept.column("slots"), kept.column("train_loss"), strict=True)
        if slot in ours and np.isfinite(was)
    ]
    require(bool(pairs), f"the run {entry['key']} was recorded at other slots; compare by hand")
    off = [abs(now - was) / max(abs(was), 1e-12) for was, now in pairs]
    limit, why = _limit(job, root)
    numbers = (float(np.median(off)), max(off), limit, why)
    return Again(entry["key"], entry["arm"], entry["seed"], *numbers)


def _limit(job: Job, root: Path) -> tuple[float, str]:
    """Return how near two runs should be, and why."""
    import jax

    if job.config.model.get("precision") == "bfloat16":
        return LOOSE, "products in bfloat16"
    made_on = SweepFolder(root).devices()
    here = {device.device_kind for device in jax.devices()}
    if made_on and made_on != here:
        return LOOSE, f"made on {', '.join(sorted(made_on))}"
    return CLOSE, "float32 on one kind of processor"
