"""A worker: a copy of the repository, and forks of a process that has its imports behind it.

The process that forks has imported JAX, NumPy and pytest, but nothing of the repository, and has
computed nothing: a fork then has one thread, and starts a test at once. Each fork runs pytest on
some tests and writes a line per test.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.mutants.sites import Site, splice

SKIPPED = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
EXAMPLES = 25
"""Of each property, where its test sets no number of its own."""


def make_copy(root: Path, copy: Path) -> None:
    """Copy the sources, the tests and the files beside them; link the other folders, which no
    mutant is in."""
    copy.mkdir(parents=True)
    for path in root.iterdir():
        if path.name in ("src", "tests"):
            shutil.copytree(path, copy / path.name, ignore=SKIPPED)
        elif path.is_file():
            shutil.copy2(path, copy)
        elif not path.name.startswith("."):
            (copy / path.name).symlink_to(path)


def known_flags(flags: Sequence[str]) -> list[str]:
    """Return those of the flags that this XLA knows; it ends the process at one that it does
    not."""
    return [flag for flag in flags if _starts(flag)]


def _starts(flag: str) -> bool:
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.environ["XLA_FLAGS"] = flag
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            sys.modules["jax"].devices("cpu")
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


class Listener:
    """A plugin of pytest: choose and order the tests, write down what became of each."""

    def __init__(
        self, out: Path, order: Sequence[str] | None, watched: Mapping[str, str] | None
    ) -> None:
        self.out = out.open("a", buffering=1)
        self.rank = None if order is None else {node: rank for rank, node in enumerate(order)}
        self.watched = (
            watched  # file -> its name in the report, to note the lines that each test runs
        )
        self.lines: dict[str, set[int]] = {}
        self.cost, self.outcome, self.why = 0.0, "passed", ""

    def write(self, **entry: Any) -> None:
        self.out.write(json.dumps(entry) + "\n")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write(event="broken", node=report.nodeid, why=_why(report))

    def order(self, items: list[Any]) -> None:
        if self.rank is not None:
            rank = self.rank
            items[:] = sorted(
                (item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid]
            )
        if self.rank is None:
            for item in items:
                self.write(event="item", node=item.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(event="start", node=nodeid)
        self.cost, self.outcome, self.why = 0.0, "passed", ""
        self.lines = {}
        if self.watched is not None:
            threading.settrace(self.trace)
            sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.cost += report.duration
        if report.outcome != "passed" and self.outcome == "passed":
            self.outcome, self.why = report.outcome, _why(report) if report.failed else ""

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        lines = {name: sorted(found) for name, found in self.lines.items()}
        self.write(
            event="end",
            node=nodeid,
            outcome=self.outcome,
            why=self.why,
            cost=round(self.cost, 3),
            lines=lines,
        )

    def trace(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Follow the lines of the watched files alone."""
        name = (self.watched or {}).get(frame.f_code.co_filename)
        if name is None:
            return None
        lines = self.lines.setdefault(name, set())

        def follow(frame: FrameType, _event: str, _argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return follow

        lines.add(frame.f_lineno)
        return follow


def _why(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    return (lines[0] if crash is not None else lines[-1])[:200]


@dataclass(frozen=True)
class Job:
    """Tests to run, with a mutant or without."""

    files: Sequence[str]
    order: Sequence[str] | None = (
        None  # which tests and in which order; None: all, and list them only
    )
    limit_s: float = 600.0
    site: Site | None = None
    watched: Sequence[str] = ()  # files whose lines are noted for each test
    marks: str = "not soak"
    deadline: float = float("inf")  # of the monotonic clock, besides the limit


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    code: int  # of pytest; negative: the signal that ended it; None of these if it ran out of time
    timed_out: bool
    wall_s: float
    entries: list[dict[str, Any]]
    tail: str


class Bench:
    """One worker's copy of the repository, its cache of compiled programs, and its processor."""

    def __init__(self, root: Path, scratch: Path, number: int, package: str) -> None:
        self.root, self.package = root, package
        self.copy = scratch / f"copy{number}"
        self.programs = scratch / f"programs{number}"
        self.scratch = scratch / f"work{number}"
        places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self.inherited = [str(Path(place).absolute()) for place in places if place]
        self.serial = 0
        self.child = 0
        for folder in (self.programs, self.scratch):
            folder.mkdir(parents=True)
        make_copy(root, self.copy)
        processors = sorted(os.sched_getaffinity(0))
        self.processor = processors[number % len(processors)]

    def run(self, job: Job) -> Outcome:
        """Run a job in a fork, with the mutant's file broken while it lasts."""
        if job.site is None:
            return self._forked(job)
        path = self.copy / job.site.path
        text, was = path.read_bytes(), path.stat()
        self.serial += 1
        try:
            path.write_bytes(splice(text, job.site))
            mtime = int(was.st_mtime) + 10 * self.serial  # its own, or stale bytecode would be used
            os.utime(path, (mtime, mtime))
            return self._forked(job)
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    def _forked(self, job: Job) -> Outcome:
        out, log = self.scratch / "entries.jsonl", self.scratch / "log.txt"
        out.unlink(missing_ok=True)
        begun = time.monotonic()
        stamp = time.time()
        self.child = os.fork()
        if self.child == 0:
            _become_pytest(self, job, out, log)  # never returns
        code, timed_out = self._wait(min(begun + job.limit_s, job.deadline))
        if timed_out or code < 0:  # a program half written would be read by the next
            for program in self.programs.iterdir():
                if program.stat().st_mtime >= stamp - 1:
                    program.unlink()
        entries = (
            [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
        )
        shutil.rmtree(self.scratch / "tmp", ignore_errors=True)
        tail = log.read_text(errors="replace")[-2000:]
        return Outcome(code, timed_out, time.monotonic() - begun, entries, tail)

    def _wait(self, deadline: float) -> tuple[int, bool]:
        status, timed_out = None, False
        try:
            while status is None:
                done, found = os.waitpid(self.child, os.WNOHANG)
                if done:
                    status = found
                elif time.monotonic() > deadline:
                    timed_out = True
                    break
                else:
                    time.sleep(0.02)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child, signal.SIGKILL)  # its own session: also what it has started
            if status is None:
                status = os.waitpid(self.child, 0)[1]
        return os.waitstatus_to_exitcode(status), timed_out


def _become_pytest(bench: Bench, job: Job, out: Path, log: Path) -> None:
    """Run pytest in this fork and end."""
    code = 70
    try:
        os.setsid()
        os.sched_setaffinity(0, {bench.processor})
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.chdir(bench.copy)
        _point_to(bench)
        code = _pytest(bench, job, out)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # a fork must not go on as its parent
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _point_to(bench: Bench) -> None:
    """Let this process, and those it starts, import the copy and use its cache."""
    ours = {str(bench.root), str(bench.root / "src"), str(bench.root / "tests"), ""}
    sys.path[:] = [
        str(bench.copy / "src"),
        *(entry for entry in sys.path if entry not in ours),
    ]
    others = [entry for entry in bench.inherited if entry not in ours]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(bench.copy / "src"), *others])
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(bench.programs)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(bench.package)
    found = spec.origin if spec is not None else None
    if found is None or not Path(found).is_relative_to(bench.copy):
        raise ImportError(f"{bench.package} is imported from {found}, not from {bench.copy}")
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_compilation_cache_dir", str(bench.programs))
    if "hypothesis" in sys.modules:
        settings = sys.modules["hypothesis"].settings
        settings.register_profile(
            "mutants", derandomize=True, database=None, deadline=None, max_examples=EXAMPLES
        )
        settings.load_profile("mutants")


def _pytest(bench: Bench, job: Job, out: Path) -> int:
    import pytest

    watched = {str(bench.copy / path): path for path in job.watched}
    listener = Listener(out, job.order, watched or None)

    class Plugin:
        """The listener, with the hook that must come after those of the tests' own conftest."""

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            listener.order(items)

    options = ["-q", "--tb=line", "--no-header", "-p", "no:cacheprovider", "-m", job.marks]
    for kind in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning"):
        options += ["-W", f"ignore::{kind}"]  # they tell of versions, not of mutants
    options += ["--rootdir", str(bench.copy), "--basetemp", str(bench.scratch / "tmp")]
    if job.site is not None:
        options.append("-x")
    else:
        options.append("--continue-on-collection-errors")
    if job.order is None:
        options.append("--collect-only")
    sys.argv = ["pytest", *options, *job.files]
    return int(pytest.main([*options, *job.files], plugins=[listener, Plugin()]))
