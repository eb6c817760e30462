"""The work W5: a whole experiment as a user runs it, and how soon the command line answers.

Wall clock.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import absent
from benchmarks.memory import MemoryWatch, new_mark
from benchmarks.runs import Settings

__all__ = ["experiment", "timed"]

HELPS_A_ROUND = 5


def experiment(settings: Settings) -> dict[str, Any]:
    """Run the experiment once to warm every cache, then again per round, `--help` between."""
    config = str(Path(__file__).with_suffix(".toml"))
    took: dict[str, list[float]] = {"folkman run": [], "folkman --help": []}
    memory_mb, first_s = 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="folkman-bench-") as name:
        for k in range(settings.rounds + 1):
            settings.say(f"  round {k} of {settings.rounds}" if k else "  warming up")
            try:
                seconds, most_mb = timed(
                    ["run", config, "--out", str(Path(name) / str(k))], settings.limit_s
                )
                helps = [timed(["--help"], settings.limit_s)[0] for _ in range(HELPS_A_ROUND)]
            except RuntimeError as error:
                return {"rows": [absent("folkman run", "failed", str(error))]}
            if k == 0:
                first_s = seconds
                continue
            took["folkman run"].append(seconds)
            took["folkman --help"] += helps
            memory_mb = max(memory_mb, most_mb)
    more = {"folkman run": {"memory_mb": memory_mb, "warm_up_s": first_s}}
    rows = [
        {
            "side": who,
            "status": "measured",
            "seconds": median(each),
            "seconds_each": each,
            **more.get(who, {}),
        }
        for who, each in took.items()
    ]
    return {"rows": rows}


def timed(arguments: list[str], limit_s: float) -> tuple[float, float]:
    """Run folkman with these arguments.

    Return its seconds on the wall and the most memory of its processes, in MB.
    """
    mark = new_mark()
    watch = MemoryWatch(mark)
    watch.start()
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "folkman", *arguments],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        env=os.environ | mark,
    )
    seconds = time.perf_counter() - begun
    watch.stopped.set()
    if done.returncode:
        raise RuntimeError(
            f"folkman {arguments[0]} ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return seconds, watch.most_bytes / 1e6
