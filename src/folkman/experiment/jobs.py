"""One job, on whatever worker: taken, run from its checkpoint or from the start, and told.

An order is all that a worker needs, as JSON: key, folder, configuration. The same function serves the processes of
this machine and the workers of a cluster. Seeds of one arm that meet the same worker share compiled programs; when
the arm changes, the programs of the last one are given back, so that memory does not grow with the number of jobs.
"""

import ctypes
import gc
import hashlib
import os
import resource
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from folkman.config.plugins import unpacked
from folkman.files import keep_programs
from folkman.record.store import DISK_ERRORS, FORMAT, claim, ended, now, read_json, write_json

if TYPE_CHECKING:
    from folkman.config.comparison import Comparison
    from folkman.experiment.plan import Job
    from folkman.problem.problem import Problem
    from folkman.record.folder import RunFolder
    from folkman.record.store import Store, SweepFolder

__all__ = ["memory_mb", "order_for", "prepare", "run_anywhere", "run_order"]

ONE_AT_A_TIME = threading.Lock()
"""Held while a job runs: precision and the places of output belong to the whole process."""


def prepare() -> None:
    """Set up a worker before JAX starts: one thread a job, and compiled programs kept on disk.

    With one thread a worker, the bits of a job do not depend on how many cores or workers there are.
    """
    if "jax" in sys.modules:
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    keep_programs()


def order_for(job: "Job", folder: "SweepFolder", store: "Store", project: str, track: Sequence[str]) -> dict[str, Any]:
    """Return the order of a job: what a worker is sent."""
    from folkman.config.build import seedless
    from folkman.config.comparison import to_toml
    from folkman.config.own_code import by_content, parcel

    return {
        "key": job.key,
        "folder": str(store.job(job.key)),
        "store": str(store.root),
        "store_id": store.id,
        "arm": job.arm,
        "config": to_toml(job.config),
        "group": hashlib.sha256(to_toml(by_content(seedless(job.config))).encode()).hexdigest(),
        "own_code": parcel(job.config),
        "project": project,
        "track": list(track),
        "track_root": str(folder.root.resolve()),
    }


def run_order(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job in its folder unless it ended before; return its `job.json`, or state `busy` if another runs it."""
    folder = Path(order["folder"])
    prepare()
    with ONE_AT_A_TIME:
        started_s = time.monotonic()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with claim(folder / "job.lock") as mine:
                if not mine:
                    return _told(order, "busy", started_s, message=_holder(folder))
                return ended(folder) or _attempt(order, folder, started_s)
        except OSError as error:
            state = "disk" if error.errno in DISK_ERRORS else "failed"
            return _told(order, state, started_s, message=f"{error.strerror or error}: {error.filename or folder}")
        except ValueError as error:
            return _told(order, "failed", started_s, message=str(error))


def run_anywhere(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job on a machine that may not see the store: it then works in a folder of its own and sends the files."""
    try:
        seen = read_json(Path(order["store"]) / "store.json")
    except OSError:  # a path of another user's
        seen = None
    if seen is not None and seen.get("id") == order["store_id"]:
        return run_order(order)
    with tempfile.TemporaryDirectory(prefix="folkman-job-") as place:
        told = run_order({**order, "folder": place, "track_root": place})
        files = {
            str(path.relative_to(place)): path.read_bytes()
            for path in sorted(Path(place).rglob("*"))
            if path.is_file() and path.name != "job.lock"
        }
    return {**told, "files": files}


def _attempt(order: Mapping[str, Any], folder: Path, started_s: float) -> dict[str, Any]:
    """Run a claimed job; its words go into its log, and its end into `job.json`."""
    with (folder / "job.log").open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        print(f"{now()} {order['arm']} on {_worker()}", flush=True)
        try:
            with unpacked(order.get("own_code", {})):
                told = _run(order, folder, started_s)
        except OSError as error:
            if error.errno in DISK_ERRORS:
                raise
            told = _failed(order, error, started_s)
        except Exception as error:  # whatever a job does, the others go on
            told = _failed(order, error, started_s)
        print(f"{now()} {told['state']} after {told['seconds']:.1f} s", flush=True)
    write_json(folder / "job.json", told)
    return told


def _run(order: Mapping[str, Any], folder: Path, started_s: float) -> dict[str, Any]:
    import tomllib

    import jax

    from folkman.config.comparison import resolve
    from folkman.config.own_code import digests
    from folkman.experiment.compare import compare
    from folkman.experiment.plan import job_key
    from folkman.experiment.trackers import tracking

    comparison = resolve(tomllib.loads(order["config"]))
    if job_key(comparison) != order["key"]:
        raise ValueError(
            "this job is not what was planned: a data file has changed, or this worker has another version of folkman "
            "or of a package with own code; sweep again, with the same versions everywhere"
        )
    jax.config.update("jax_enable_x64", comparison.precision == "float64")
    shop = _shop(order["group"])
    run_folder = _run_folder(folder, order["config"], digests(comparison))
    compute_s = time.monotonic()
    problem = shop.open(comparison)
    seen = tracking(order["track"], Path(order["track_root"]), order["project"], comparison.model_dump(), order["arm"])
    with seen as watch:
        runs = compare(comparison, run_folder, watch, {comparison.seeds[0]: problem}, shop.pairs)
    compute_s = time.monotonic() - compute_s
    run = runs[0]
    print(str(run), flush=True)
    return _told(order, run.status, started_s, message=run.message, compute_s=round(compute_s, 4))


def _run_folder(root: Path, config: str, own_code: Mapping[str, str]) -> "RunFolder":
    """Open the run folder of a job, and make what of it is missing; parts under another path of the data go."""
    from folkman.record.folder import RunFolder, provenance

    known = root / "config.toml"
    if known.is_file() and known.read_text(encoding="utf-8") != config:
        for part in (root / "parts").glob("*"):
            part.unlink()
    folder = RunFolder(root)
    folder.write_text("config.toml", config)
    folder = RunFolder.open(root)
    folder.write_json("provenance.json", provenance(["run", "config.toml"], folder, own_code))
    return folder


class _Shop:
    """What the seeds of one arm share: algorithms and networks, and with them the compiled programs."""

    def __init__(self) -> None:
        self._built: dict[float, Any] = {}

    def open(self, comparison: "Comparison") -> "Problem":
        """Build the problem of a job; of an arm's first, also refuse what does not fit."""
        from folkman.config.build import build_problem
        from folkman.experiment.compare import check

        problem = build_problem(comparison, comparison.seeds[0])
        if not self._built:
            check(comparison, problem)
        return problem

    def pairs(self, comparison: "Comparison", problem: "Problem", seed: int) -> Any:
        """Build as `compare.pairs` does, once an arm; where a slot's seconds follow the split, once for each."""
        from folkman.config.build import pairs, slot_seconds

        slot_s = slot_seconds(comparison, problem)
        if slot_s not in self._built:
            self._built[slot_s] = pairs(comparison, problem, seed)
        return self._built[slot_s]


_SHOPS: dict[str, _Shop] = {}  # of the arm that this worker is at


def _shop(group: str) -> _Shop:
    """Return the shop of an arm; a new arm starts with the memory of the last one given back."""
    import jax

    if group not in _SHOPS:
        _SHOPS.clear()
        jax.clear_caches()
        gc.collect()
        with suppress(OSError, AttributeError):  # glibc keeps what was freed, unless told otherwise
            ctypes.CDLL(None).malloc_trim(0)
        _SHOPS[group] = _Shop()
    return _SHOPS[group]


def _failed(order: Mapping[str, Any], error: BaseException, started_s: float) -> dict[str, Any]:
    traceback.print_exception(error)
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return _told(order, "failed", started_s, message=first[:500])


def _told(
    order: Mapping[str, Any], state: str, started_s: float, *, message: str = "", compute_s: float | None = None
) -> dict[str, Any]:
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
    known = read_json(folder / "job.lock") or {}
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
