"""Which schedules run which lines of the runtime, and the hash of each one's trace.

A schedule that does not run a mutant's lines cannot show it, and need not be asked. The file is
JSON: of each source file and line, the seeds that run it as bits of one hexadecimal number.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CHUNK = 25
"""Schedules that a process is handed at once."""
Lines = dict[str, set[int]]


class Coverage(NamedTuple):
    """What the first schedules run, of the code as it is."""

    seeds: int
    lines: dict[str, dict[int, int]]  # file, from the root -> line -> seeds, as bits
    traces: list[str]  # of each seed
    source: str  # a hash of the code that was run
    broken: list[int]  # seeds that break an invariant without a mutant: they can show none

    @classmethod
    def found(cls, seeds: int, files: Iterable[str], workers: int, source: str) -> "Coverage":
        """Run schedules, and look at every line of some files that they run."""
        lines: dict[str, dict[int, int]] = {name: {} for name in files}
        traces: list[str] = []
        broken: list[int] = []
        watch = partial(watched, files=frozenset(lines))
        with ProcessPoolExecutor(workers) as pool:
            found = pool.map(watch, range(seeds), chunksize=CHUNK)
            for seed, (digest, wrong, seen) in enumerate(found):
                traces.append(digest)
                if wrong:
                    broken.append(seed)
                    print(f"seed {seed} breaks an invariant as it is: {wrong}", flush=True)
                for name, numbers in seen.items():
                    for line in numbers:
                        lines[name][line] = lines[name].get(line, 0) | 1 << seed
        return cls(seeds, lines, traces, source, broken)

    @classmethod
    def read(cls, path: Path) -> "Coverage":
        """Read what was written."""
        held = json.loads(path.read_text(encoding="utf-8"))
        lines = {
            name: {int(line): int(bits, 16) for line, bits in of_file.items()}
            for name, of_file in held["lines"].items()
        }
        known = held["traces"], held.get("source", ""), held.get("broken", [])
        return cls(held["seeds"], lines, *known)

    def write(self, path: Path) -> None:
        """Write it as one JSON object."""
        lines = {
            name: {k: f"{bits:x}" for k, bits in of.items()} for name, of in self.lines.items()
        }
        held = self._asdict() | {"lines": lines}
        path.write_text(json.dumps(held), encoding="utf-8")

    def runs(self, path: str, first: int, last: int) -> bool:
        """Tell whether any schedule runs one of some lines."""
        of_file = self.lines.get(path, {})
        return any(of_file.get(line, 0) for line in range(first, last + 1))

    def seeds_of(self, path: str, first: int, last: int, seeds: int) -> Sequence[int]:
        """Return the seeds that run some lines; beyond those that were looked at, all."""
        bits = 0
        for line in range(first, last + 1):
            bits |= self.lines.get(path, {}).get(line, 0)
        near = [seed for seed in range(min(seeds, self.seeds)) if bits >> seed & 1]
        near = [seed for seed in near if seed not in self.broken]
        return near + list(range(self.seeds, seeds))


def watched(seed: int, files: frozenset[str]) -> tuple[str, str, Lines]:
    """Run one schedule; return the hash of its trace, what it breaks, and the lines that it ran."""
    from folkman.runtime.world.plan import plan_of
    from folkman.runtime.world.swarm import run_plan

    seen: Lines = {name: set() for name in files}
    places = {str(ROOT / name): numbers for name, numbers in seen.items()}
    _forget_results(frozenset(places))
    with _watching(places):
        outcome = run_plan(plan_of(seed))
    return outcome.digest, outcome.text if outcome.broken else "", seen


def _forget_results(places: frozenset[str]) -> None:
    """Let functions run again whose results are kept: else the first schedule alone runs them."""
    modules = [each for name, each in sys.modules.items() if name.startswith("folkman.runtime.")]
    for item in [item for module in modules for item in vars(module).values()]:
        code = getattr(getattr(item, "__wrapped__", None), "__code__", None)
        if code is not None and code.co_filename in places and hasattr(item, "cache_clear"):
            item.cache_clear()


@contextmanager
def _watching(places: Lines) -> Iterator[None]:
    """Note every line that is run of some files."""
    if sys.version_info >= (3, 12):
        begin, end = _by_monitoring(places)
    else:
        begin, end = _by_tracing(places)
    begin()
    try:
        yield
    finally:
        end()


def _by_tracing(places: Lines) -> tuple[Callable[[], None], Callable[[], None]]:
    def on_line(frame: Any, event: str, arg: object) -> Any:
        del arg
        if event == "line":
            places[frame.f_code.co_filename].add(frame.f_lineno)
        return on_line

    def on_call(frame: Any, event: str, arg: object) -> Any:
        del event, arg
        return on_line if frame.f_code.co_filename in places else None

    return lambda: sys.settrace(on_call), lambda: sys.settrace(None)


def _by_monitoring(places: Lines) -> tuple[Callable[[], None], Callable[[], None]]:
    """Note each line once, and be called for it no more: hardly slower than not to look."""
    watch: Any = sys.monitoring  # type: ignore[attr-defined] - of Python 3.12
    tool = watch.COVERAGE_ID

    def on_line(code: Any, line: int) -> Any:
        found = places.get(code.co_filename)
        if found is not None:
            found.add(line)
        return watch.DISABLE

    def begin() -> None:
        watch.use_tool_id(tool, "world")
        watch.register_callback(tool, watch.events.LINE, on_line)
        watch.restart_events()
        watch.set_events(tool, watch.events.LINE)

    def end() -> None:
        watch.set_events(tool, watch.events.NO_EVENTS)
        watch.free_tool_id(tool)

    return begin, end
