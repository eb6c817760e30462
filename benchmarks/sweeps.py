"""What a sweep costs beside its jobs, whether its memory stays flat, and if it survives kill -9.

python benchmarks/sweeps.py ideal [JOBS [WORKERS]]    time against the sum of the jobs' own compute
                                                      times; memory
python benchmarks/sweeps.py kills [ROUNDS [JOBS]]     kill workers and sweeps at random moments,
                                                      resume, compare bytes
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

WARM_UP_JOBS = 20
MOST_OVER_IDEAL = 0.15
MOST_GROWTH = 1.08
"""Of a worker's memory from its first job after the warm-up to its last: 1.00 to 1.04 was seen."""
SEEDS = 10
BASE = {
    "slots": 300,
    "seeds": list(range(SEEDS)),
    "record_every": 10,
    "data": {"name": "digits", "train_size": 300},
    "model": {"name": "softmax"},
    "algorithm": [{"name": "async_sharing", "label": "Algorithm 1", "step": 0.2}],
}


def main() -> None:
    """Run what the first argument names."""
    modes = {"ideal": ideal, "kills": kills}
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    modes[sys.argv[1]](*(int(given) for given in sys.argv[2:]))


def ideal(jobs: int = 200, workers: int = 2) -> None:
    """Time a sweep of short jobs after its warm-up, and print the workers' memory along the way.

    Ends with exit code 1 if it took more than 15 % longer than its jobs alone, or if memory grew.
    """
    from folkman.experiment.batch import Progress, run_batch
    from folkman.experiment.engines.processes import Processes
    from folkman.experiment.plan import axes_of, plan
    from folkman.record.store import SweepFolder

    axes = axes_of({}, [f"network.gamma={','.join(str(1 + i) for i in range(jobs // SEEDS))}"])
    ends: list[tuple[float, Progress]] = []
    with tempfile.TemporaryDirectory() as place:
        engine = Processes(workers)
        begun_s = time.perf_counter()
        run_batch(
            plan(BASE, axes),
            SweepFolder.create(Path(place) / "sweep", ""),
            engine,
            lambda told: ends.append((time.perf_counter(), told)),
        )
        engine.close()
    wall_s = ends[-1][0] - begun_s
    after = [told.job for _, told in ends[WARM_UP_JOBS:]]
    own_s = sum(job["compute_s"] for job in after)
    warm_s = ends[-1][0] - ends[WARM_UP_JOBS - 1][0]
    memory = {
        number: ends[number - 1][1].job["rss_mb"]
        for number in (WARM_UP_JOBS, len(ends) // 2, len(ends))
    }
    grown: dict[str, list[float]] = {}
    for _, told in ends[WARM_UP_JOBS - 1 :]:
        grown.setdefault(told.job["worker"].rpartition(":")[2], []).append(told.job["rss_mb"])
    found = {
        "jobs": len(ends),
        "workers": workers,
        "wall_s": round(wall_s, 2),
        "after_warm_up_s": round(warm_s, 2),
        "ideal_s": round(own_s / workers, 2),
        "over_ideal": round(warm_s / (own_s / workers) - 1, 4),
        "rss_mb_at_job": memory,
        "rss_mb_from_job_20": {
            w: {"first": m[0], "last": m[-1], "most": max(m)} for w, m in grown.items()
        },
        "load": os.getloadavg(),
    }
    growth = max(each["last"] / each["first"] for each in found["rss_mb_from_job_20"].values())
    found["passed"] = found["over_ideal"] <= MOST_OVER_IDEAL and growth <= MOST_GROWTH
    print(json.dumps(found))
    sys.exit(0 if found["passed"] else 1)


def kills(rounds: int = 10, jobs: int = 200) -> None:
    """Disturb a sweep until it has been killed `rounds` times, and finish it.

    Then compare its table with a quiet one.

    The kills are spread over the sweep; ends with exit code 1 unless both tables are the same
    bytes.
    """
    draw, begun_s = random.Random(time.time_ns()), time.monotonic()  # noqa: S311 - moments, not secrets
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "sweep.toml").write_text(_definition(jobs))
        _folkman(root, "--out", "quiet").wait(1200)
        killed = {"worker": 0, "sweep": 0, "finished early": 0}
        for _ in range(rounds):
            process = _folkman(root, "--out", "disturbed")
            _let_end(
                process,
                root / "disturbed",
                draw.randint(0, max(2, jobs // rounds // 2)),
                draw.uniform(0, 2),
            )
            for _ in range(draw.randint(0, 2)):
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                workers = children.read_text().split() if children.exists() else []
                if workers:
                    with suppress(ProcessLookupError):  # gone by itself in between
                        os.kill(int(draw.choice(workers)), signal.SIGKILL)
                        killed["worker"] += 1
                _let_end(process, root / "disturbed", draw.randint(0, 1), draw.uniform(0, 2))
            if process.poll() is not None:
                killed["finished early"] += 1
                break
            process.kill()
            process.wait()
            killed["sweep"] += 1
        _folkman(root, "--out", "disturbed").wait(1200)
        tables = [(root / name / "results.parquet").read_bytes() for name in ("quiet", "disturbed")]
        done = len(list(root.glob("disturbed/jobs/*/job.json")))
    found = {"jobs": done, "killed": killed, "same_bytes": tables[0] == tables[1]}
    print(json.dumps(found | {"seconds": round(time.monotonic() - begun_s)}))
    sys.exit(0 if found["same_bytes"] and done == jobs else 1)


def _let_end(process: "subprocess.Popen[bytes]", folder: Path, jobs: int, then_s: float) -> None:
    """Wait until so many more jobs have ended, and then a moment longer."""
    wanted = len(list(folder.glob("jobs/*/job.json"))) + jobs
    while process.poll() is None and len(list(folder.glob("jobs/*/job.json"))) < wanted:
        time.sleep(0.05)
    time.sleep(then_s)


def _definition(jobs: int) -> str:
    from folkman.config.text import dump

    gammas = [1 + i for i in range(max(1, jobs // SEEDS))]
    return dump({**BASE, "grid": {"network.gamma": gammas}})


def _folkman(root: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "folkman", "sweep", "sweep.toml", "--workers", "2", *arguments]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
