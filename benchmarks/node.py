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

With `--links K` one node, the measured one, has K neighbours that are there already:

    first_slot_s   from the start of its process until it begins its first slot, all links up
    start_cpu_s    CPU seconds that it has used by then: what `first_slot_s` is on an idle machine
    peak_mb, rest_mb   largest resident set, and the one in the end
    threads        of the operating system, in the end
    cpu_share      of one core, while it takes `--pace` gradients a second, over `--seconds`
    heard_per_s    messages that it takes meanwhile; neighbours on a busy machine send fewer
    modules        as it ends, those that `importlib` was asked for too

`--arithmetic numpy` lets the measured node compute with NumPy; its neighbours always do. On a busy
machine acknowledgements are slow, so nodes keep to small shares of the medium and say little.
`--no-shares` lets each send with every gradient, as on an idle machine.
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
from datetime import datetime
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
    parser.add_argument("--links", type=int, help="neighbours of one measured node")
    parser.add_argument("--arithmetic", default="auto", help="of the measured node")
    parser.add_argument("--transport", default="tcp", help="of --links")
    parser.add_argument("--pace", type=float, default=2.0, help="gradients a second, of --links")
    parser.add_argument("--seconds", type=float, default=20.0, help="to measure, of --links")
    parser.add_argument(
        "--no-shares", action="store_true", help="all send with each gradient, of --links"
    )
    parser.add_argument("up", nargs="*", help="options of folkman up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.links:
            print(json.dumps(among_neighbours(Path(folder), given)))
            return
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


OBSERVED = """
import json, os, sys
leave = os._exit
def end(code):
    with open(sys.argv[-1] + ".modules", "w") as file:
        json.dump(sorted(sys.modules), file)
    leave(code)
os._exit = end
from folkman.cli import main
main()
"""
"""A node that writes which modules it has imported, before it ends."""


def among_neighbours(folder: Path, given: argparse.Namespace) -> dict[str, object]:
    """Start one node among neighbours that wait for it; return what it costs."""
    from folkman.config.comparison import resolve
    from folkman.runtime.assembly import task_of
    from folkman.runtime.cluster import make_cluster

    model = {"model": {"name": "softmax"}, "algorithm": [{"name": "async_sharing", "step": 0.1}]}
    task = task_of(resolve({"nodes": given.links + 1, "slots": 10**6, "seeds": [0], **model}))
    options = {"transport": given.transport, "radio": "measured", "slot_s": 1 / given.pace}
    homes = make_cluster(folder / "cluster", task, options)
    for home in homes:
        own = given.arithmetic if home == homes[0] else "numpy"
        text = (home / "node.toml").read_text()
        more = f'arithmetic = "{own}"\nstart_wait_s = 300.0\n'
        more += "shared_medium = false\n" if given.no_shares else ""
        (home / "node.toml").write_text(more + text)
    begun = [_begin(home) for home in reversed(homes[1:])]
    try:
        return _measured(homes, begun, given)
    finally:
        for process in begun:
            process.kill()
            process.wait(60)


def _measured(
    homes: list[Path], begun: "list[subprocess.Popen[bytes]]", given: argparse.Namespace
) -> dict[str, object]:
    """Start the first node when the others are there; return what it costs."""
    while not all('"event": "start"' in _log(home) for home in homes[1:]):
        time.sleep(0.1)
    time.sleep(2.0)  # until they listen
    began_s = time.time()
    node = _begin(homes[0])
    while '"event": "learning"' not in _log(homes[0]):
        if node.poll() is not None:
            raise RuntimeError(f"the node ended: {_log(homes[0])[-2000:]}")
        time.sleep(0.005)
    start_cpu_s = _cpu_s(node.pid)
    event = next(line for line in _log(homes[0]).splitlines() if '"event": "learning"' in line)
    learning_s = datetime.fromisoformat(json.loads(event)["time"]).timestamp()
    time.sleep(2.0)
    before_s, at_s, heard = _cpu_s(node.pid), time.monotonic(), -_taken(homes[0])
    time.sleep(given.seconds)
    cpu_s, heard = _cpu_s(node.pid) - before_s, heard + _taken(homes[0])
    share = cpu_s / (time.monotonic() - at_s)
    peak_kb, rest_kb = _status(node.pid, "VmHWM"), _status(node.pid, "VmRSS")
    threads = _status(node.pid, "Threads")
    for process in (node, *begun):
        process.terminate()
    for process in (node, *begun):
        process.wait(60)
    health = json.loads((homes[0] / "health.json").read_text())
    found = json.loads(Path(f"{homes[0] / 'node.toml'}.modules").read_text())
    own = [name for name in found if name.split(".")[0] == "folkman"]
    return {
        "links": given.links,
        "arithmetic": given.arithmetic,
        "first_slot_s": round(learning_s - began_s, 2),
        "start_cpu_s": round(start_cpu_s, 2),
        "peak_mb": round(peak_kb / 1024),
        "rest_mb": round(rest_kb / 1024),
        "threads": threads,
        "cpu_share": round(share, 4),
        "gradients": health["steps"],
        "taken": health["counts"]["taken"],
        "heard_per_s": round(heard / given.seconds, 1),
        "modules": len(found),
        "modules_of_folkman": len(own),
        "folkman": own,
    }


def _begin(home: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", OBSERVED, "node", "--config", str(home / "node.toml")]
    with (home / "node.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _taken(home: Path) -> int:
    """Return how many messages a node says that it has taken."""
    return json.loads((home / "health.json").read_text())["counts"]["taken"]


def _log(home: Path) -> str:
    return (home / "node.log").read_text(errors="replace")


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used, its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int, name: str) -> int:
    """Return an entry of the process's status; memory in kB."""
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1]) if found else 0


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
