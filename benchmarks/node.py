"""What one `folkman node` imports, and its memory: softmax on the digits, two nodes, TCP.

    python benchmarks/node.py [--steps 40] [--keep-programs] [-- up options, as --insecure]

The nodes are those that PYTHONPATH (or the installed package) gives, so two versions can be
compared. `folkman up` makes the cluster once; then the same nodes begin anew as children of this
script, which reads their peak from the kernel (VmHWM) and their modules from
`python -X importtime`. Prints one JSON line.

    peak_mb        largest resident set: the process's own memory and the pages of files that it has
                   mapped
    own_mb         of that, anonymous memory: what a second node on the same machine costs again
    modules        modules imported, in all and of folkman, and the packages they belong to
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ONCE = (
    "state.safetensors",
    "final.safetensors",
    "incarnation",
    "timeline.bin",
    "health.json",
    "node.log",
    "pid",
)


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--keep-programs", action="store_true", help="measure a second start, programs compiled"
    )
    parser.add_argument("up", nargs="*", help="options of folkman up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), given.steps, given.up, again=given.keep_programs)))


def measure(
    folder: Path, steps: int, options: list[str], *, again: bool = False
) -> dict[str, object]:
    """Return peak memory and modules of the nodes of a small cluster.

    `again`: when their programs are compiled.
    """
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
    homes = make(folder, environment, steps, options)
    if again:
        watch(homes, environment)
        fresh(homes)
    peaks = watch(homes, environment)
    found = [modules((home / "node.log").read_text(errors="replace")) for home in homes]
    own = [sorted(name for name in each if name.split(".")[0] == "folkman") for each in found]
    return {
        "peak_mb": [round(peak / 1024) for peak, _ in peaks],
        "own_mb": [round(own / 1024) for _, own in peaks],
        "modules": [len(each) for each in found],
        "modules_of_folkman": [len(each) for each in own],
        "packages": sorted(
            {name.split(".")[0] for each in found for name in each} - set(sys.stdlib_module_names)
        ),
        "folkman": own[0],
    }


def make(folder: Path, environment: dict[str, str], steps: int, options: list[str]) -> list[Path]:
    """Let `folkman up` make a cluster and run it once.

    Return the folders of its nodes, as good as new.
    """
    tables = ["nodes=2", "slots=1000", "seeds=[0]", "data.train_size=400", "model.name=softmax"]
    tables.append("algorithm=[{name='async_sharing', step=0.1}]")
    command = [sys.executable, "-m", "folkman", "up", "--out", str(folder / "cluster"), "--wait"]
    command += [
        "--transport",
        "tcp",
        "--radio",
        "measured",
        "--node-set",
        f"steps={steps}",
        *options,
    ]
    command += [word for table in tables for word in ("--set", table)]
    subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
    homes = sorted((folder / "cluster" / "nodes").iterdir())
    fresh(homes)
    shutil.rmtree(folder / "programs", ignore_errors=True)
    return homes


def fresh(homes: list[Path]) -> None:
    """Remove what nodes have written."""
    for home in homes:
        for name in ONCE:
            (home / name).unlink(missing_ok=True)


def watch(homes: list[Path], environment: dict[str, str]) -> list[tuple[int, int]]:
    """Run the nodes to their end.

    Return for each the peak and the anonymous part, kB, as seen every 10 ms.
    """
    processes = []
    for home in homes:
        command = [
            sys.executable,
            "-X",
            "importtime",
            "-m",
            "folkman",
            "node",
            "--config",
            str(home / "node.toml"),
        ]
        with (home / "node.log").open("wb") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    peaks = [(0, 0)] * len(homes)
    while any(process.poll() is None for process in processes):
        for i, process in enumerate(processes):
            now = resident(process.pid)
            peaks[i] = max(peaks[i][0], now[0]), max(peaks[i][1], now[1])
        time.sleep(0.01)
    codes = [process.returncode for process in processes]
    if any(codes):
        raise RuntimeError(f"expected nodes that end with 0, got {codes}; see their node.log")
    return peaks


def resident(pid: int) -> tuple[int, int]:
    """Return the peak of a process and its anonymous memory now, kB.

    Zeros of one that has ended.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = [re.search(rf"^{name}:\s+(\d+)", text, re.M) for name in ("VmHWM", "RssAnon")]
    peak, own = (int(each[1]) if each else 0 for each in found)
    return peak, own


def modules(log: str) -> set[str]:
    """Return the modules that a log of `-X importtime` names."""
    return set(re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$", log, re.M))


if __name__ == "__main__":
    main()
