"""Run many schedules of the simulated world on many processes, and count them in one JSON file.

    python benchmarks/schedules.py --schedules 100000 --workers 16 --out schedules.json

The world needs numpy, msgspec, blake3 and safetensors, and neither JAX nor an installed folkman:
`PYTHONPATH=src` is enough. `--until-s` ends a run early. Schedules are counted from the first seed
without a gap, so a second call can go on at the seed after `last_seed`. The file is written every
few seconds, and at once when an invariant breaks: a run that is killed keeps what it had counted.
`digest` is one hash of all traces in the order of their seeds: two runs that agree in it are the
same, bit for bit.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folkman.runtime.world.world import Outcome

CHUNK = 20
"""Schedules that a worker is handed at once."""
AHEAD = 4
"""Chunks that wait for each worker: one is never idle, and little is lost at the end."""
SAID_EVERY_S = 15.0
USED = ("numpy", "msgspec", "blake3", "safetensors")


def _run_chunk(seeds: range, method: str | None) -> "tuple[list[Outcome], float]":
    """Return what became of some schedules, and the seconds of a core that they took."""
    from folkman.runtime.world.swarm import run_seeds

    begun_s = time.process_time()
    return list(run_seeds(seeds, method=method)), time.process_time() - begun_s


def run(
    seeds: range, workers: int, until_s: float, method: str | None = None
) -> "Iterator[tuple[list[Outcome], float]]":
    """Run schedules in chunks, in the order of their seeds; begin no chunk after `until_s`."""
    begun_s = time.monotonic()
    chunks = (seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK))
    with ProcessPoolExecutor(workers, initializer=_prepare) as pool:
        waiting: deque[Future[tuple[list[Outcome], float]]] = deque()
        for chunk in chunks:
            if time.monotonic() - begun_s > until_s:
                break
            waiting.append(pool.submit(_run_chunk, chunk, method))
            while len(waiting) >= AHEAD * workers or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _prepare() -> None:
    """Let a process compute with NumPy on one thread; it must be said before anything is read."""
    os.environ["FOLKMAN_ARITHMETIC"] = "numpy"
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in USED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a folder without its metadata
            found[name] = "unknown"
    return found


def counts(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run what was asked for, and return the counts every few seconds, and at the end."""
    from folkman.runtime.world.swarm import Tally

    begun_s, tally, cpu_s = time.monotonic(), Tally(), 0.0
    digest, said_s = blake2b(digest_size=16), begun_s

    def found() -> dict[str, Any]:
        return tally.summary(time.monotonic() - begun_s) | {
            "first_seed": chosen.first,
            "last_seed": chosen.first + tally.schedules - 1,
            "workers": chosen.workers,
            "cpu_s": cpu_s,
            "schedules_per_s_per_core": tally.schedules / max(cpu_s, 1e-9),
            "digest": digest.hexdigest(),
            "versions": _versions(),
        }

    seeds = range(chosen.first, chosen.first + chosen.schedules)
    for outcomes, chunk_s in run(seeds, chosen.workers, chosen.until_s, chosen.method):
        cpu_s += chunk_s
        for outcome in outcomes:
            tally.add(outcome)
            digest.update(outcome.digest.encode())
            if outcome.broken:
                where = f"seed {outcome.plan.seed} ({outcome.plan.method})"
                print(f"{where}: {outcome.text}", flush=True)
        broke = any(outcome.broken for outcome in outcomes)
        if broke or time.monotonic() - said_s > SAID_EVERY_S:
            said_s = time.monotonic()
            rate = tally.schedules / (said_s - begun_s)
            many = f"{tally.schedules} schedules, {rate:.1f} a second"
            print(f"{many}, {len(tally.failures)} broke one", flush=True)
            yield found()
    yield found()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 5 if an invariant broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--schedules", type=int, default=1000, help="how many")
    add("--first", type=int, default=0, help="the first seed")
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    add("--method", help="one kind of schedule alone; default: as drawn")
    add("--until-s", type=float, default=float("inf"), help="begin no more after so long")
    add("--out", type=Path, help="the JSON file; default: print it alone")
    chosen = parser.parse_args(arguments)
    if chosen.schedules < 1 or chosen.workers < 1 or chosen.first < 0:
        parser.error("expected at least one schedule, one worker and a first seed from 0")
    _prepare()
    found: dict[str, Any] = {}
    for found in counts(chosen):
        if chosen.out is not None:
            _write(chosen.out, _text(found))
    print(_text(found), end="")
    return 5 if found["failures"] else 0


def _write(path: Path, text: str) -> None:
    """Replace a file; whoever is killed meanwhile leaves what was there before."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
