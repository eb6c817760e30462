"""How strong the world is: break the runtime in one place at a time; does a seed show it?

    python -m tests.world_mutants --workers 16 --seeds 2000 --json mutants.jsonl

Each mutant is one changed place: first those of `tests/world_semantic_mutants.py`, written by hand
(no save before send, acknowledge before apply, ...), then places drawn from the syntax trees
(operators, comparisons, constants, conditions, dropped statements). A mutant is caught if a
schedule breaks an invariant, a core raises or does not return, or time stands still. Results are
appended to a file of JSON lines, and a second call goes on with it. Needs numpy, msgspec, blake3
and safetensors only.

A schedule that does not run the changed lines cannot show the mutant. With `--coverage FILE` those
are left out: the file says which seeds run which lines (`tests/world_coverage.py`). It is written
first if it is not there. A survivor is then also asked in how many schedules its trace differs from
that of the code as it is: if in none, it may be the same program. Traces catch nothing.

Some mutants cannot be caught by any schedule: `tests/world_excused_mutants.py` says of each why.
"""

import argparse
import importlib.machinery
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.sites import all_sites, draw, splice
from tests.world_coverage import Coverage
from tests.world_excused_mutants import EXCUSED
from tests.world_semantic_mutants import SEMANTIC

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "src/folkman/runtime/core/[!f]*.py",
    "src/folkman/runtime/core/fresh.py",
    "src/folkman/runtime/core/fresh_beat.py",
    "src/folkman/runtime/core/fresh_slots.py",
    *(
        f"src/folkman/runtime/{name}.py"
        for name in ("mailbox", "durable", "link_quality", "control", "state")
    ),
)
BELOW = "src/folkman/runtime/"
BEYOND = (2435, 18_448, 24_704)
"""Seeds that every mutant is asked of first: they show what none of the first 2,000 does."""
LONGEST_S = 60.0
"""Of a core, for one schedule: a core that has not returned by then never does."""
CAUGHT, SURVIVED, LATE = "caught", "survived", "timeout"


class Mutant(NamedTuple):
    """One changed file."""

    name: str
    path: str
    text: bytes
    first: int  # the lines of the source that are changed
    last: int
    key: tuple[str, str, str]  # file, line and change, as `tests/world_excused_mutants.py` has them


def semantic() -> Iterator[Mutant]:
    """Return the mutants written by hand; refuse one whose place is gone."""
    for name, path, before, after in SEMANTIC:
        text = (ROOT / path).read_text()
        if text.count(before) != 1:
            raise ValueError(f"'{name}': expected its place once in {path}, {text.count(before)}")
        first = text[: text.index(before)].count("\n") + 1
        last = first + before.rstrip("\n").count("\n")
        changed = text.replace(before, after).encode()
        key = (path.removeprefix(BELOW), name, "by hand")
        yield Mutant(name, path, changed, first, last, key)


def drawn(size: int, seed: int) -> Iterator[Mutant]:
    """Return mutants drawn from the syntax trees."""
    sites = [site for site in all_sites(ROOT, TARGETS) if site.within and not _is_worded(site)]
    for site in draw(sites, size, seed):
        text = splice((ROOT / site.path).read_bytes(), site)
        try:
            compile(text, site.path, "exec")
        except SyntaxError:
            continue
        yield Mutant(site.name, site.path, text, site.first, site.last, _key(site))


def _key(site: Any) -> tuple[str, str, str]:
    """Return what names a place though lines before it come and go."""
    line = (ROOT / site.path).read_text().splitlines()[site.line - 1].strip()
    dropped = site.kind in ("statement dropped", "sign dropped", "not dropped")
    change = site.kind if dropped else f"{site.kind}: {site.before} -> {site.after}"
    return site.path.removeprefix(BELOW), line, change


def _is_worded(site: Any) -> bool:
    """Tell whether a place only words a log line or an error: no invariant asks for words."""
    line = (ROOT / site.path).read_text().splitlines()[site.first - 1 : site.last]
    return any(mark in "\n".join(line) for mark in (".log(", "log_refused(", "text =", "raise "))


def _never_returns(number: int, frame: object) -> None:
    """Break a schedule that has no end."""
    del number, frame
    raise TimeoutError(f"the core has not returned within {LONGEST_S} s of a core")


def judge(mutant: Mutant, asked: "Asked") -> dict[str, Any]:
    """Run schedules in this process, with the mutant in place of its file, until one fails."""
    target, given = str(ROOT / mutant.path), importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if loader.path == target:
            return compile(mutant.text, target, "exec")
        return given(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    from folkman.runtime.world.plan import plan_of
    from folkman.runtime.world.swarm import run_plan

    begun_s = time.process_time()  # of this process: a busy machine changes nothing
    differ: list[int] = []
    signal.signal(signal.SIGVTALRM, _never_returns)
    for seed in asked.seeds:
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
        outcome = run_plan(plan_of(seed))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        if outcome.broken:
            return {"status": CAUGHT, "seed": seed, "by": outcome.broken, "why": outcome.text}
        if seed < len(asked.traces) and outcome.digest != asked.traces[seed]:
            differ.append(seed)
        if time.process_time() - begun_s > asked.limit_s or time.monotonic() > asked.end_s:
            why = "its time was over"
            return {"status": SURVIVED, "seed": seed, "asked": seed + 1, "why": why}
    found: dict[str, Any] = {"status": SURVIVED, "asked": asked.most, "ran": len(asked.seeds)}
    if asked.traces:
        found |= {"differ": len(differ), "seed": differ[0] if differ else None}
    return found


class Asked(NamedTuple):
    """What a mutant is asked."""

    seeds: Sequence[int]
    most: int  # seeds that these stand for: others do not run the mutant's lines
    limit_s: float  # of a core
    traces: Sequence[str]  # of the code as it is, seed by seed; may be none
    end_s: float = math.inf  # by the clock of all processes


class _Child(NamedTuple):
    mutant: Mutant
    pipe: int
    begun_s: float


def run_all(
    mutants: Sequence[tuple[Mutant, Asked]], workers: int, limit_s: float
) -> Iterator[dict[str, Any]]:
    """Judge mutants in forks of this process, so many at a time; begin none after its end."""
    waiting, children = list(reversed(mutants)), dict[int, _Child]()
    while waiting or children:
        while waiting and time.monotonic() > waiting[-1][1].end_s:
            waiting.pop()
        while waiting and len(children) < workers:
            number, child = _fork(*waiting.pop())
            children[number] = child
        time.sleep(0.05)
        for number, child in list(children.items()):
            late = time.monotonic() - child.begun_s > 20 * limit_s + 30
            if late:
                os.kill(number, signal.SIGKILL)
            done, _ = os.waitpid(number, 0 if late else os.WNOHANG)
            if done:
                del children[number]
                yield _result(child, late=late)


def _fork(mutant: Mutant, asked: Asked) -> tuple[int, _Child]:
    reads, writes = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(reads)
        try:
            found = judge(mutant, asked)
        except BaseException as error:  # an import that fails is a mutant that is caught
            found = {"status": CAUGHT, "seed": -1, "by": 0, "why": f"{type(error).__name__}"}
        os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    return number, _Child(mutant, reads, time.monotonic())


def _result(child: _Child, *, late: bool) -> dict[str, Any]:
    data = b""
    while part := os.read(child.pipe, 65536):
        data += part
    os.close(child.pipe)
    found = json.loads(data) if data else {"status": LATE if late else CAUGHT, "why": "no answer"}
    spent_s = round(time.monotonic() - child.begun_s, 1)
    return {"mutant": child.mutant.name, "path": child.mutant.path, "s": spent_s, **found}


def report(results: Sequence[dict[str, Any]], excused: int) -> str:
    """Return the share that was caught, by which invariants, and the survivors by name."""
    caught = [each for each in results if each["status"] != SURVIVED]
    by: dict[str, int] = {}
    for each in caught:
        by[str(each.get("by", "timeout"))] = by.get(str(each.get("by", "timeout")), 0) + 1
    share = f"{len(caught) / max(len(results), 1):.1%}"
    lines = [f"{len(caught)} of {len(results)} mutants caught ({share}), {excused} excused"]
    lines.append("by invariant: " + ", ".join(f"{k}: {n}" for k, n in sorted(by.items())))
    lines += [f"survived: {each['mutant']}" for each in results if each["status"] == SURVIVED]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.world_mutants", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=1, help="processes")
    add("--seeds", type=int, default=2000, help="schedules for each mutant, at most")
    add(
        "--drawn", type=int, default=100, help="mutants from the syntax trees, beside those by hand"
    )
    add("--draw-seed", type=int, default=1, help="which ones")
    add("--limit-s", type=float, default=600.0, help="seconds of a core for each mutant, at most")
    add(
        "--until-s",
        type=float,
        default=float("inf"),
        help="end all after so long; keep what was found",
    )
    add("--json", type=Path, default=Path("world-mutants.jsonl"), help="results, one a line")
    add("--coverage", type=Path, help="which seeds run which lines; written if it is not there")
    add("--only", default="", help="mutants whose names have this in them")
    add("--list", action="store_true", help="print the mutants and run nothing")
    chosen = parser.parse_args(arguments)
    os.environ["FOLKMAN_ARITHMETIC"] = "numpy"
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.dont_write_bytecode = True
    mutants = [*semantic(), *drawn(chosen.drawn, chosen.draw_seed)]
    mutants = [each for each in mutants if chosen.only in each.name]
    if chosen.list:
        print("\n".join(each.name for each in mutants))
        return 0
    names = {mutant.name for mutant in mutants}
    last = {each["mutant"]: each for each in _read(chosen.json) if each["mutant"] in names}
    results = [each for each in last.values() if _is_settled(each, chosen.seeds)]
    done = {each["mutant"] for each in results}
    excused = {each.name for each in mutants if each.key in EXCUSED}
    results = [each for each in results if each["mutant"] not in excused]
    todo = [each for each in mutants if each.name not in done | excused]
    import blake3  # noqa: F401 - before the forks, which then share it
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import safetensors.numpy  # noqa: F401

    begun_s = time.monotonic()
    coverage = _coverage(chosen.coverage, chosen.seeds, chosen.workers)
    asked = []
    for each in todo:
        seeds = _seeds_of(each, coverage, chosen.seeds, last.get(each.name, {}))
        traces = coverage.traces if coverage is not None else ()
        end_s = begun_s + chosen.until_s
        asked.append((each, Asked(seeds, chosen.seeds, chosen.limit_s, traces, end_s)))
    for found in run_all(asked, chosen.workers, chosen.limit_s):
        results.append(found)
        with chosen.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        why = found.get("why", "")[:100]
        print(f"{len(results):>4} {found['status']:<9}{found['s']:>7.1f} s  ", end="")
        print(f"{found['mutant'][:110]}  [{found.get('seed')}] {why}", flush=True)
    print(report(results, len(excused)))
    return 0


def _is_settled(found: dict[str, Any], seeds: int) -> bool:
    """Tell whether a mutant was caught, or asked of so many seeds."""
    return found["status"] != SURVIVED or found.get("asked", 0) >= seeds


def _seeds_of(
    mutant: Mutant, coverage: Coverage | None, seeds: int, before: dict[str, Any]
) -> Sequence[int]:
    """Return the seeds that a mutant is to be asked of, less those that it has survived."""
    near: Sequence[int] = range(seeds)
    if coverage is not None:
        near = coverage.seeds_of(mutant.path, mutant.first, mutant.last, seeds)
    beyond = BEYOND if not before else ()
    return [*beyond, *(seed for seed in near if seed >= before.get("asked", 0))]


def _coverage(path: Path | None, seeds: int, workers: int) -> Coverage | None:
    """Return which seeds run what, looked at in other processes if nobody did before."""
    if path is None:
        return None
    if not path.exists():
        found = sorted({each for glob in TARGETS for each in ROOT.glob(glob)})
        files = {each.relative_to(ROOT).as_posix() for each in found}
        files |= {name for _, name, _, _ in SEMANTIC}
        Coverage.found(seeds, files, workers).write(path)
    return Coverage.read(path)


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


if __name__ == "__main__":
    sys.exit(main())
