"""How strong the world is: break the runtime in one place at a time; does a seed show it?

    python -m tests.world_mutants --workers 16 --coverage lines.json --json mutants.jsonl

Each mutant is one changed place: first those of `tests/world_semantic_mutants.py`, written by hand
(no save before send, acknowledge before apply, ...), then places drawn from the syntax trees
(operators, comparisons, constants, conditions, dropped statements). A mutant is caught if a
schedule breaks an invariant, a core raises or does not return, or time stands still. Needs numpy,
msgspec, blake3 and safetensors only.

All mutants are asked of a few seeds first, then those that are left of more. What is found is
appended at once to a file of JSON lines, and a second call goes on with it. Each line has a hash of
the whole source, and a line of another source does not count.

A schedule that does not run the changed lines cannot show the mutant. With `--coverage FILE` those
are left out: the file says which seeds run which lines (`tests/world_coverage.py`). It is written
first if it is not there. Then mutants are drawn only from lines that some seed runs. A survivor is
also asked in how many schedules its trace differs from that of the code as it is: if in none, it
may be the same program. Traces catch nothing.

Some mutants cannot be caught by any schedule: `tests/world_excused_mutants.py` says of each why.
`--excused` asks them all the same, since an excuse may be wrong.
"""

import argparse
import importlib.machinery
import json
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.sites import Site, all_sites, draw, splice
from tests.world_coverage import Coverage
from tests.world_excused_mutants import EXCUSED, SAME
from tests.world_semantic_mutants import SEMANTIC

ROOT = Path(__file__).resolve().parents[1]
BELOW = "src/folkman/runtime/"
RUN = (
    "codec",
    "contributions",
    "control",
    "durable",
    "emulation",
    "feedback",
    "fresh_air",
    "fresh_codec",
    "fresh_index",
    "fresh_node",
    "link_quality",
    "mailbox",
    "node",
    "reach",
    "same_bytes",
    "server_node",
    "state",
    "sum_box",
    "ways",
)
"""Files of the runtime that the world runs, beside the core."""
TARGETS = (f"{BELOW}core/*.py", *(f"{BELOW}{name}.py" for name in RUN))
BEYOND = (2435, 18_448, 24_704)
"""Seeds that what survives is asked of at last: they show what none of the first 2,000 does."""
FIRST_SEEDS = (10, 100, 400)
"""All mutants are asked of so many seeds before one is asked of more."""
LONGEST_S = 60.0
"""Of a core, for one schedule: a core that has not returned by then never does."""
GRACE_S = 30.0
"""After the end of the time a schedule that is under way has so long."""
MOST_BYTES = 4 << 30
"""Of memory, for one mutant."""
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


def drawn(size: int, seed: int, coverage: Coverage | None = None) -> Iterator[Mutant]:
    """Return mutants drawn from the syntax trees; given the coverage, of lines that are run."""
    sites = [site for site in all_sites(ROOT, TARGETS) if site.within and not _is_worded(site)]
    found = (
        _mutant(site)
        for site in draw(sites, len(sites), seed)
        if coverage is None or coverage.runs(site.path, site.first, site.last)
    )
    yield from islice((each for each in found if each is not None), size)


def _mutant(site: Site) -> Mutant | None:
    """Return the mutant of a place; None if it is no Python."""
    text = splice((ROOT / site.path).read_bytes(), site)
    try:
        compile(text, site.path, "exec")
    except SyntaxError:
        return None
    return Mutant(site.name, site.path, text, site.first, site.last, _key(site))


def _key(site: Site) -> tuple[str, str, str]:
    """Return what names a place though lines before it come and go."""
    line = (ROOT / site.path).read_text().splitlines()[site.line - 1].strip()
    dropped = site.kind in ("statement dropped", "sign dropped", "not dropped")
    change = site.kind if dropped else f"{site.kind}: {site.before} -> {site.after}"
    return site.path.removeprefix(BELOW), line, change


def _is_worded(site: Site) -> bool:
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
    for ran, seed in enumerate(asked.seeds):
        if time.process_time() - begun_s > asked.limit_s or time.monotonic() > asked.end_s:
            return {"status": SURVIVED, "asked": seed, "ran": ran, "differ": differ}
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
        outcome = run_plan(plan_of(seed))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        if outcome.broken:
            return {"status": CAUGHT, "seed": seed, "by": outcome.broken, "why": outcome.text}
        if seed < len(asked.traces) and outcome.digest != asked.traces[seed]:
            differ.append(seed)
    return {"status": SURVIVED, "asked": asked.most, "ran": len(asked.seeds), "differ": differ}


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
    end_s: float


def run_all(
    mutants: Sequence[tuple[Mutant, Asked]], workers: int, limit_s: float
) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    """Judge mutants in forks of this process, so many at a time; begin none after its end."""
    waiting, children = list(reversed(mutants)), dict[int, _Child]()
    while waiting or children:
        while waiting and time.monotonic() > waiting[-1][1].end_s:
            waiting.pop()
        while waiting and len(children) < workers:
            number, child = _fork(*waiting.pop())
            children[number] = child
        time.sleep(0.02)
        now_s = time.monotonic()
        for number, child in list(children.items()):
            over, late = now_s > child.end_s + GRACE_S, now_s - child.begun_s > 20 * limit_s + 30
            if over or late:
                os.kill(number, signal.SIGKILL)
            done, _ = os.waitpid(number, 0 if over or late else os.WNOHANG)
            if done:
                del children[number]
                found = _result(child, late=late)
                if found is not None and not over:
                    yield child.mutant, found


def _fork(mutant: Mutant, asked: Asked) -> tuple[int, _Child]:
    reads, writes = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(reads)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
            found = judge(mutant, asked)
        except BaseException as error:  # an import that fails is a mutant that is caught
            found = {"status": CAUGHT, "seed": -1, "by": 0, "why": f"{type(error).__name__}"}
        os.write(writes, json.dumps(found).encode())
        os._exit(0)
    os.close(writes)
    return number, _Child(mutant, reads, time.monotonic(), asked.end_s)


def _result(child: _Child, *, late: bool) -> dict[str, Any]:
    data = b""
    while part := os.read(child.pipe, 65536):
        data += part
    os.close(child.pipe)
    found = json.loads(data) if data else {"status": LATE if late else CAUGHT, "why": "no answer"}
    return {"s": round(time.monotonic() - child.begun_s, 1), **found}


class Book:
    """What was found of each mutant, on one source: lines of a file, which a second call reads."""

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source
        self.found: dict[str, dict[str, Any]] = {}
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            for entry in (json.loads(line) for line in lines if line):
                if entry.get("source") == source:
                    self.found[entry["mutant"]] = entry

    def note(self, mutant: Mutant, found: dict[str, Any]) -> dict[str, Any]:
        """Add what a mutant was found to do to what was found before."""
        before = self.found.get(mutant.name, {})
        spent_s = round(before.get("s", 0.0) + found["s"], 1)
        entry = {"mutant": mutant.name, "path": mutant.path, **found, "s": spent_s}
        if found["status"] == SURVIVED:
            entry["ran"] += before.get("ran", 0)
            entry["differ"] = before.get("differ", []) + found["differ"]
        entry["source"] = self._source
        self.found[mutant.name] = entry
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        return entry

    def asked(self, mutant: Mutant) -> int:
        """Return how many seeds a mutant has survived; infinity if it was caught."""
        entry = self.found.get(mutant.name)
        if entry is None:
            return 0
        return entry["asked"] if entry["status"] == SURVIVED else sys.maxsize


def report(mutants: Sequence[Mutant], book: Book, seeds: int, *, excused: bool) -> str:
    """Return the shares that were caught, by which invariants, and the survivors by name."""
    lines = []
    asked = [each for each in mutants if each.name in book.found]
    fair = [each for each in asked if each.key not in EXCUSED]
    by: dict[str, int] = {}
    for each in asked:
        entry = book.found[each.name]
        if entry["status"] != SURVIVED:
            what = str(entry.get("by", LATE))
            by[what] = by.get(what, 0) + 1
    same = sum(each.key in SAME for each in mutants)
    others = sum(each.key in EXCUSED for each in mutants) - same
    lines.append(f"{len(mutants)} mutants; excused: {same} the same program, {others} out of reach")
    parts = {
        "by hand": [each for each in fair if each.key[2] == "by hand"],
        "drawn": [each for each in fair if each.key[2] != "by hand"],
        "all": fair,
    }
    for name, part in parts.items():
        lines.append(f"{name}: {_share(part, book, seeds)}")
    lines.append("by invariant: " + ", ".join(f"{k}: {n}" for k, n in sorted(by.items())))
    for each in asked:
        entry = book.found[each.name]
        if entry["status"] != SURVIVED and each.key in EXCUSED:
            lines.append(f"excused, and shown by seed {entry.get('seed')}: {each.name}")
        elif entry["status"] == SURVIVED and each.key not in EXCUSED:
            differ = f"{len(entry['differ'])} of {entry['ran']} traces differ"
            lines.append(f"survived {entry['asked']} seeds, {differ}: {each.name}")
    missing = [each for each in mutants if each not in asked and (excused or each in fair)]
    lines += [f"not asked: {each.name}" for each in missing if each.key not in EXCUSED or excused]
    return "\n".join(lines)


def _share(mutants: Sequence[Mutant], book: Book, seeds: int) -> str:
    """Return how many of some mutants the first seeds show, and how many those beyond."""
    entries = [book.found[each.name] for each in mutants]
    caught = [entry for entry in entries if entry["status"] != SURVIVED]
    near = sum(entry.get("seed", 0) < seeds for entry in caught)
    share = f"{near / max(len(entries), 1):.1%}"
    beyond = f"{len(caught) - near} more by seeds beyond"
    return f"{near} of {len(entries)} caught within {seeds} seeds ({share}), {beyond}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.world_mutants", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=1, help="processes")
    add("--seeds", type=int, default=2000, help="schedules for each mutant, at most")
    add(
        "--drawn", type=int, default=102, help="mutants from the syntax trees, beside those by hand"
    )
    add("--draw-seed", type=int, default=1, help="which ones")
    add("--limit-s", type=float, default=600.0, help="seconds of a core for each mutant, at most")
    add(
        "--until-s", type=float, default=math.inf, help="end all after so long; keep what was found"
    )
    add("--json", type=Path, default=Path("world-mutants.jsonl"), help="results, one a line")
    add("--coverage", type=Path, help="which seeds run which lines; written if it is not there")
    add("--only", default="", help="mutants whose names have this in them")
    add("--excused", action="store_true", help="ask those that are excused, too")
    add("--list", action="store_true", help="print the mutants and run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    chosen = _options(arguments)
    os.environ["FOLKMAN_ARITHMETIC"] = "numpy"
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.dont_write_bytecode = True
    source, end_s = _source(), time.monotonic() + chosen.until_s
    coverage = _coverage(chosen.coverage, chosen.seeds, chosen.workers, source)
    mutants = [*semantic(), *drawn(chosen.drawn, chosen.draw_seed, coverage)]
    mutants = [each for each in mutants if chosen.only in each.name]
    if chosen.list:
        for each in mutants:
            print(each.name + ("  (excused)" if each.key in EXCUSED else ""))
        return 0
    import blake3  # noqa: F401 - before the forks, which then share it
    import msgspec  # noqa: F401
    import numpy  # noqa: F401
    import safetensors.numpy  # noqa: F401

    book, traces = Book(chosen.json, source), coverage.traces if coverage is not None else ()
    fair = [each for each in mutants if chosen.excused or each.key not in EXCUSED]
    limits = [each for each in FIRST_SEEDS if each < chosen.seeds] + [chosen.seeds]
    for most in [*limits, max(BEYOND) + 1]:
        asked = []
        for each in fair:
            if book.asked(each) < most:
                seeds = _seeds_of(each, coverage, chosen.seeds, book.asked(each), most)
                asked.append((each, Asked(seeds, most, chosen.limit_s, traces, end_s)))
        if asked:
            print(f"{len(asked)} mutants are asked of the seeds below {most}", flush=True)
        for mutant, found in run_all(asked, chosen.workers, chosen.limit_s):
            entry = book.note(mutant, found)
            if found["status"] != SURVIVED or most >= chosen.seeds:
                print(_line(entry), flush=True)
    print(report(mutants, book, chosen.seeds, excused=chosen.excused))
    return 0


def _line(entry: dict[str, Any]) -> str:
    where = f"[{entry.get('seed')}] " if "seed" in entry else ""
    text = f"{where}{entry.get('why', '')[:100]}"
    return f"{entry['status']:<9}{entry['s']:>7.1f} s  {entry['mutant'][:110]}  {text}"


def _seeds_of(
    mutant: Mutant, coverage: Coverage | None, seeds: int, first: int, most: int
) -> Sequence[int]:
    """Return the seeds from the first on that a mutant is to be asked of."""
    near: Sequence[int] = range(seeds)
    if coverage is not None:
        near = coverage.seeds_of(mutant.path, mutant.first, mutant.last, seeds)
    beyond = [seed for seed in BEYOND if seed >= seeds]
    return [seed for seed in [*near, *beyond] if first <= seed < most]


def _source() -> str:
    """Return a hash of the whole package: what was found of one source says nothing of another."""
    digest = blake2b(digest_size=8)
    for path in sorted((ROOT / "src" / "folkman").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _coverage(path: Path | None, seeds: int, workers: int, source: str) -> Coverage | None:
    """Return which seeds run what, looked at in other processes if nobody did before."""
    if path is None:
        return None
    if not path.exists():
        found = sorted({each for glob in TARGETS for each in ROOT.glob(glob)})
        files = {each.relative_to(ROOT).as_posix() for each in found}
        files |= {name for _, name, _, _ in SEMANTIC}
        Coverage.found(seeds, files, workers, source).write(path)
    found = Coverage.read(path)
    if found.source != source:
        raise SystemExit(f"expected the lines of this source in {path}: remove it, it is old")
    return found


if __name__ == "__main__":
    sys.exit(main())
