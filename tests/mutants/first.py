"""The first run, without a mutant: which tests pass, what they cost and which lines they run."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.bench import Job
from tests.mutants.choose import SLOW, Case
from tests.mutants.sites import Site
from tests.mutants.workers import Workers

SHARD = 12
"""Tests per fork of the first run: enough to be worth their imports, few enough to share the
work."""


def collect(
    workers: Workers, files: Sequence[str], marks: str, left_out: dict[str, str]
) -> dict[str, list[str]]:
    """List the tests of each file; note in `left_out` the files that cannot be imported."""
    parts = max(1, len(files) // 4)
    jobs: list[tuple[Any, Job]] = [
        (None, Job(files[start::parts], limit_s=120.0, marks=marks)) for start in range(parts)
    ]
    items: dict[str, list[str]] = {}
    for _, job, outcome in workers.map(jobs):
        for entry in outcome.entries:
            if entry["event"] == "broken":
                left_out[entry["node"]] = entry["why"]
            else:
                items.setdefault(entry["node"].split("::")[0], []).append(entry["node"])
        if not outcome.entries:
            print(f"nothing collected from {' '.join(job.files)}:\n{outcome.tail}", flush=True)
    print(f"{sum(map(len, items.values()))} tests in {len(items)} files", flush=True)
    return items


def baseline(
    workers: Workers, files: Sequence[str], watched: Sequence[str], marks: str, limit_s: float
) -> tuple[list[Case], dict[str, str]]:
    """Run all tests on the source as it is; return those that pass, and why the others are left
    out."""
    begun = time.monotonic()
    left_out: dict[str, str] = {}
    items = collect(workers, files, marks, left_out)

    def shard(nodes: Sequence[str]) -> tuple[Any, Job]:
        return None, Job([nodes[0].split("::")[0]], nodes, 180.0, watched=watched, marks=marks)

    # the first part of every file, then the second: if the time is short, each has been met
    jobs = [
        shard(nodes[start : start + SHARD])
        for start in range(0, max(map(len, items.values()), default=0), SHARD)
        for nodes in items.values()
        if start < len(nodes)
    ]
    tests: list[Case] = []
    for _, job, outcome in workers.map(jobs):
        ended = {entry["node"]: entry for entry in outcome.entries if entry["event"] == "end"}
        for node, entry in ended.items():
            if entry["outcome"] == "passed":
                lines = {file: frozenset(found) for file, found in entry["lines"].items()}
                tests.append(Case(node, entry["cost"], lines))
            else:
                left_out[node] = entry["why"] or entry["outcome"]
        rest = [node for node in job.order or () if node not in ended]
        if rest:  # one of them does not end, or ends all: run the others without it
            how = "does not end" if outcome.timed_out else f"ends pytest with {outcome.code}"
            left_out[rest[0]] = how
            if not outcome.timed_out:
                print(f"{rest[0]} {how}:\n{outcome.tail[-500:]}", flush=True)
            jobs += [shard(rest[1:])] if rest[1:] else []
        if time.monotonic() - begun > limit_s and jobs:
            print(f"{len(jobs)} parts of the first run are left out for want of time", flush=True)
            jobs.clear()
    return sorted(tests, key=lambda test: test.node), left_out


def first_run(
    chosen: argparse.Namespace, root: Path, workers: Workers, sites: Sequence[Site], limit_s: float
) -> list[Case]:
    """Run the tests without a mutant, or read how they went in the run that this one goes on
    with."""
    kept = chosen.json.with_suffix(".tests.json") if chosen.json is not None else None
    if kept is not None and kept.exists():
        entries = json.loads(kept.read_text())
        print(f"{len(entries)} tests as in {kept}", flush=True)
        return [
            Case(node, cost, {file: frozenset(found) for file, found in lines.items()})
            for node, cost, lines in entries
        ]
    found = [path.relative_to(root).as_posix() for path in (root / "tests").rglob("test_*.py")]
    files = [file for file in sorted(found) if file.startswith(tuple(chosen.tests))]
    if not chosen.all:
        files = [file for file in files if not file.startswith(SLOW)]
    watched = sorted({site.path for site in sites})
    tests, left_out = baseline(workers, files, watched, chosen.marks, limit_s)
    cost = sum(test.cost_s for test in tests)
    print(f"{len(tests)} tests pass without a mutant, {cost:.0f} s in all", flush=True)
    for node, why in sorted(left_out.items()):
        if why != "skipped":
            print(f"left out: {node}: {why}", flush=True)
    if kept is not None:
        entries = [
            [test.node, test.cost_s, {file: sorted(found) for file, found in test.lines.items()}]
            for test in tests
        ]
        kept.write_text(json.dumps(entries))
    return tests
