"""One job, on whatever worker: taken under a lock, run from its checkpoint or the start, reported.

An order is all that a worker needs, as JSON: key, folder, configuration. The same function serves
this process, other processes of this machine and the workers of a cluster. Jobs that meet the same
worker share the last few problems. The seeds of one arm share compiled programs, and so do arms
that differ in numbers alone, as steps do. Where a job needs other programs, a worker gives the last
ones back, so that memory does not grow with the number of jobs.
"""

import gc
import hashlib
import json
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from folkman.config import own_faults
from folkman.config.plugins import unpacked
from folkman.files import keep_programs
from folkman.machine import trim
from folkman.record.folder import JobFolder
from folkman.record.json_file import FORMAT, Json, Table, now, read_json, write_json
from folkman.record.provenance import note_start
from folkman.record.run import FAILED, FINISHED
from folkman.record.store import BUSY, DISK, DISK_ERRORS, claim, ended, store_id

if TYPE_CHECKING:
    from folkman.algorithm.base import Algorithm
    from folkman.config.comparison import Comparison
    from folkman.experiment.parts import Part, Watch
    from folkman.experiment.plan import Job
    from folkman.problem.problem import Problem
    from folkman.radio.delivery import Network
    from folkman.record.folder import RunFolder
    from folkman.record.run import Run
    from folkman.record.store import Store, SweepFolder

__all__ = [
    "CELLS",
    "OutOfTime",
    "memory_mb",
    "order_for",
    "run_anywhere",
    "run_order",
    "set_up_worker",
]

SHARED_PROBLEMS = 3
"""Problems that a worker keeps: jobs of the same data, nodes and seed often follow each other."""

PROBLEM_FIELDS = ("nodes", "precision", "l2", "batch", "sampling", "objective", "local_tests")
PROBLEM_FIELDS += ("data", "partition", "model")
"""The keys of a configuration that make its problem."""

CELLS = "cells"
"""The kind of an order that runs a portion of many cells, see `folkman.experiment.cells`."""

ONE_AT_A_TIME = threading.Lock()
"""Held while a job runs: the places of output belong to the whole process."""


class OutOfTime(KeyboardInterrupt):
    """The budget of time is spent; as an interrupt it lets a run save its checkpoint."""


def set_up_worker() -> None:
    """Set up a worker before JAX starts: one thread a job, and compiled programs kept on disk.

    With one thread a worker, the bits of a job do not depend on how many cores or workers there
    are.
    """
    if "jax" in sys.modules:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    keep_programs()


def order_for(
    job: "Job",
    folder: "SweepFolder",
    store: "Store",
    project: str,
    track: Sequence[str] = (),
    *,
    lean: bool = False,
) -> Json:
    """Return the order of a job, which a worker is sent; a `lean` job drops its model."""
    from folkman.config.build import numberless, seedless
    from folkman.config.comparison import by_content, to_toml
    from folkman.config.own_code import parcel

    built = to_toml(by_content(seedless(job.config)))
    program = to_toml(by_content(seedless(numberless(job.config))))
    return {
        "key": job.key,
        "kind": job.kind,
        "rank": job.rank,
        "lean": lean,
        "folder": str(store.job(job.key)),
        "store": str(store.root),
        "store_id": store.id,
        "arm": job.arm,
        "config": to_toml(job.config),
        "group": hashlib.sha256(f"{job.kind}\n{program}".encode()).hexdigest(),
        "built": hashlib.sha256(built.encode()).hexdigest(),
        "own_code": parcel(job.config),
        "project": project,
        "track": list(track),
        "track_root": str(folder.root.resolve()),
    }


def run_order(order: Table, until_s: float | None = None, *, here: bool = False) -> Json:
    """Run a job in its folder unless it ended before.

    Return its `job.json`, or state `busy` if another runs it.

    `here`: in the process of the caller, whose output is left alone and whose programs are kept.
    From `until_s` on (of `time.monotonic`) the job is saved and `OutOfTime` raised.
    """
    folder = Path(order["folder"])
    if not here:
        set_up_worker()
    with ONE_AT_A_TIME:
        started_s = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with claim(JobFolder(folder).lock) as mine:
                if not mine:
                    return _told(order, BUSY, started_s, message=_holder(folder))
                return ended(folder) or _attempt(order, folder, started_s, until_s, here=here)
        except OSError as error:
            state = DISK if error.errno in DISK_ERRORS else FAILED
            message = f"{error.strerror or error}: {error.filename or folder}"
            return _told(order, state, started_s, message=message)
        except ValueError as error:
            return _told(order, FAILED, started_s, message=str(error))


def run_anywhere(order: Table) -> Json:
    """Run a job on a machine that may not see the store; it then sends the job's files."""
    try:
        seen = store_id(Path(order["store"]))
    except OSError:  # a path of another user's
        seen = None
    if seen == order["store_id"]:
        return run_order(order)
    with tempfile.TemporaryDirectory(prefix="folkman-job-") as place:
        told = run_order({**order, "folder": place, "track_root": place})
        files = {
            str(path.relative_to(place)): path.read_bytes()
            for path in sorted(Path(place).rglob("*"))
            if path.is_file() and path != JobFolder(Path(place)).lock
        }
    return {**told, "files": files}


def _attempt(
    order: Table, folder: Path, started_s: float, until_s: float | None, *, here: bool
) -> Json:
    """Run a claimed job; what it prints goes into its log, and how it ended into `job.json`."""
    job = JobFolder(folder)
    with ExitStack() as stack:
        log = stack.enter_context(job.log.open("a", encoding="utf-8"))
        if not here:
            stack.enter_context(redirect_stdout(log))
            stack.enter_context(redirect_stderr(log))
        print(f"{now()} {order['arm']} on {_worker()}", file=log, flush=True)
        try:
            with unpacked(order["own_code"]):
                if order["kind"] == CELLS:
                    told = _run_cells(order, folder, started_s)
                else:
                    told = _run(order, folder, started_s, until_s, keep=here)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise
            told = _failed(order, error, started_s, log)
        except Exception as error:  # whatever a job does, the others go on
            told = _failed(order, error, started_s, log)
        print(f"{now()} {told['state']} after {told['seconds']:.1f} s", file=log, flush=True)
    write_json(job.job, told)
    return told


def _run(
    order: Table, folder: Path, started_s: float, until_s: float | None, *, keep: bool
) -> Json:
    import tomllib

    import jax

    from folkman.config.comparison import resolve
    from folkman.config.own_code import digests
    from folkman.experiment.plan import job_key
    from folkman.experiment.trackers import tracking

    comparison = resolve(tomllib.loads(order["config"]), try_builders=False)
    if job_key(comparison, order["kind"]) != order["key"]:
        raise ValueError(
            "this job is not what was planned: a data file has changed, or this worker has "
            "another version of folkman or of a package with own code; sweep again, with the same "
            "versions everywhere"
        )
    if not keep:
        _WORKSHOP.enter(order["group"])
    run_folder, compute_s = JobFolder(folder), time.monotonic()
    run_folder.renew(order["config"])
    note_start(run_folder.provenance, ["run", run_folder.config.name], digests(comparison))
    place, config = Path(order["track_root"]), comparison.model_dump()
    seen = tracking(order["track"], place, order["project"], config, order["arm"])
    with jax.enable_x64(comparison.precision == "float64"), seen as watch:
        run = _make(order, comparison, run_folder, _until(watch, until_s))
    compute_s = time.monotonic() - compute_s
    told = _told(order, run.status, started_s, message=run.message, compute_s=round(compute_s, 4))
    return told | {"verdict": run.verdict, "reason": run.reason}


def _run_cells(order: Table, folder: Path, started_s: float) -> Json:
    from folkman.experiment.cells import make_portion  # here and not above: sweeps never ask

    _WORKSHOP.enter(order["group"])
    compute_s = time.monotonic()
    make_portion(order, folder)
    compute_s = time.monotonic() - compute_s
    return _told(order, FINISHED, started_s, compute_s=round(compute_s, 4))


def _make(order: Table, comparison: "Comparison", folder: "RunFolder", watch: "Watch") -> "Run":
    """Make the run of a job, by the engine or by plain descent, and write its results."""
    from folkman.experiment.descent import descend
    from folkman.experiment.parts import make_all, parts

    problem = _WORKSHOP.problem(comparison)
    if order["kind"] == "descent":
        run = descend(problem, comparison, watch)
        folder.save_results([run])
        return run
    build = partial(_WORKSHOP.pairs, order["built"])
    wanted = list(parts(comparison, {comparison.seeds[0]: problem}, build))
    _WORKSHOP.check(order["built"], wanted)
    run = make_all(wanted, folder, watch)[0]
    if order["lean"]:
        folder.model(run).unlink(missing_ok=True)
        folder.node_models(run).unlink(missing_ok=True)
    return run


def _until(watch: "Watch", until_s: float | None) -> "Watch":
    """Return the watcher that also stops a run when its time is over."""

    def look(run: "Run", done: int, slots: int) -> None:
        watch(run, done, slots)
        if until_s is not None and done < slots and time.monotonic() > until_s:
            raise OutOfTime

    return look


class _Workshop:
    """What the jobs of one worker share.

    The last problems and, of the arms of a group, algorithms with their compiled programs.
    """

    def __init__(self) -> None:
        self._group = ""
        self._problems: dict[str, Problem] = {}
        self._built: dict[tuple[str, float], list[tuple[Algorithm, Network]]] = {}
        self._checked: set[str] = set()

    def enter(self, group: str) -> None:
        """Give back the memory of the last group where another begins."""
        import jax

        if group == self._group:
            return
        self._group = group
        self._problems.clear()
        self._built.clear()
        self._checked.clear()
        jax.clear_caches()
        gc.collect()
        trim()

    def problem(self, comparison: "Comparison") -> "Problem":
        """Return the data on nodes and the first model of a job."""
        from folkman.config.build import build_problem
        from folkman.experiment.plan import contents

        known = contents(comparison)
        fields = {name: known.get(name) for name in PROBLEM_FIELDS}
        key = json.dumps([comparison.seeds[0], fields], sort_keys=True)
        if key not in self._problems:
            while len(self._problems) >= SHARED_PROBLEMS:
                self._problems.pop(next(iter(self._problems)))
            self._problems[key] = build_problem(comparison, comparison.seeds[0])
        return self._problems[key]

    def pairs(
        self, built: str, comparison: "Comparison", problem: "Problem", seed: int
    ) -> "list[tuple[Algorithm, Network]]":
        """Build as `config.build.pairs` does, once per arm.

        Where the seconds of a slot depend on the split, once per split.
        """
        from folkman.config.build import pairs, slot_seconds

        place = (built, slot_seconds(comparison, problem))
        if place not in self._built:
            self._built[place] = pairs(comparison, problem, seed)
        return self._built[place]

    def check(self, built: str, wanted: "list[Part]") -> None:
        """Refuse what does not fit, when an arm is first met."""
        from folkman.experiment.parts import check

        if built not in self._checked:
            check(wanted)
            self._checked.add(built)


_WORKSHOP = _Workshop()


def _failed(order: Table, error: BaseException, started_s: float, log: TextIO) -> Json:
    traceback.print_exception(error, file=log)
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _told(order, FAILED, started_s, message=(own_faults.told(error) or first)[:500])


def _told(
    order: Table, state: str, started_s: float, *, message: str = "", compute_s: float | None = None
) -> Json:
    resident, peak = memory_mb()
    return {
        "format": FORMAT,
        "key": order["key"],
        "state": state,
        "message": message,
        "seconds": round(time.monotonic() - started_s, 4),
        "compute_s": compute_s,
        "rss_mb": resident,
        "peak_mb": peak,
        "worker": _worker(),
        "ended": now(),
    }


def _holder(folder: Path) -> str:
    known = read_json(JobFolder(folder).lock) or {}
    return f"process {known.get('pid')} on {known.get('host')} runs it"


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def memory_mb(pid: int | None = None) -> tuple[float, float]:
    """Return the memory of a process now and, of this one, at its most, in MB of 10^6 bytes."""
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError, ValueError):  # gone, or no /proc
        resident = 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return round(resident, 1), round(max(peak, resident), 1)
