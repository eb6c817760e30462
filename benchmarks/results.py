"""The results: runs the chosen works one after the other and writes one file."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu import gradient
from benchmarks.measure import absent
from benchmarks.pipe import SideFailedError
from benchmarks.runs import OPPONENTS, Settings, learning
from benchmarks.tasks import Task, Work, chosen, load_works, quicker
from benchmarks.w5_experiment import experiment
from folkman.checks import require
from folkman.files import write_whole

__all__ = ["NO_OPPONENT", "QUICK_TIMES", "Asked", "choose", "machine", "write_results"]

NO_OPPONENT = "none"


QUICK_TIMES = 2
"""Repetitions in a hurry."""


class Asked(NamedTuple):
    """Works beside those that have names."""

    config: str | None = None
    settings: tuple[str, ...] = ()
    quick: bool = False


def choose(
    works: list[str], opponents: list[str], names: list[str], asked: Asked | None = None
) -> tuple[list[Work], list[str]]:
    """Return the works and opponents asked for.

    `names` are of either kind, and what is neither is refused. With a configuration the works are
    its own and those that are named.
    """
    known, asked = load_works(), asked or Asked()
    require(
        asked.config is not None or not asked.settings,
        "--set overrides a configuration, and there is none; add --config FILE",
    )
    if names:
        chosen(names, [*known, *OPPONENTS, NO_OPPONENT], "work or opponent")
    named = [*works, *(name for name in names if name in known)]
    picked = [known[name] for name in chosen(named, list(known), "work")]
    rivals = [*opponents, *(name for name in names if name not in known)]
    against = [] if rivals == [NO_OPPONENT] else chosen(rivals, list(OPPONENTS), "opponent")
    picked = picked if named or asked.config is None else []
    if asked.quick:
        picked = [quicker(work) for work in picked if work.quick or named]
    if asked.config is not None:
        from benchmarks.configured import work_of  # here and not above: it needs JAX

        own = work_of(asked.config, asked.settings)
        picked.append(quicker(own) if asked.quick else own)
    return picked, against


def write_results(
    works: list[Work],
    opponents: list[str],
    settings: Settings,
    out: Path,
    show: Callable[[Work, dict[str, Any]], None],
) -> dict[str, Any]:
    """Run every work; show the table of each task, and write all results so far after it."""
    results = {**machine(), "rounds": settings.rounds, "works": []}
    for work in works:
        settings.say(f"{work.name}: {work.title}")
        entry = {"name": work.name, "title": work.title, "runs": []}
        results["works"].append(entry)
        for found in _runs(work, opponents, settings):
            entry["runs"].append(found)
            show(work, found)
            _write(results, out)
    return results


def _runs(work: Work, opponents: list[str], settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield what each task of a work gave."""
    rivals = [name for name in opponents if name in work.opponents]
    if work.kind == "experiment":
        yield experiment(settings)
    elif work.kind == "gradient":
        yield from _unless_failed(lambda: gradient(work, rivals, settings), work.tasks[0])
    else:
        other = load_works()[work.beside].tasks[0] if work.beside else None
        for task in work.tasks:
            asked = (
                rivals if work.opponents_up_to is None or task.nodes <= work.opponents_up_to else []
            )
            yield from _unless_failed(
                lambda t=task, a=asked: [learning(t, a, settings, other)], task
            )


def _unless_failed(work: Callable[[], list[dict[str, Any]]], task: Task) -> list[dict[str, Any]]:
    try:
        return work()
    except SideFailedError as error:
        return [{"task": task._asdict(), "rows": [absent("folkman", "failed", str(error))]}]


def machine() -> dict[str, Any]:
    """Return where and with what the numbers are made."""
    versions = {}
    for package in ("folkman", "jax", "jaxlib", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["python", "-m", "benchmarks", *sys.argv[1:]],
        "versions": versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _write(results: dict[str, Any], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, allow_nan=False) + "\n"
    write_whole(out, lambda part: part.write_text(text, encoding="utf-8"))
