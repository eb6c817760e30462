"""What a door for operators costs a node: CPU time of one of two nodes, TLS over TCP, NumPy.

    python benchmarks/operator_door.py [--seconds 15] [--pace 2] [--flood-per-s 500]

Prints one JSON line for each case, with shares of one core over `--seconds`:

    none         no door
    idle         a door, and nobody at it
    polled       an operator asks how the node stands every two seconds, as `status --watch` does
    nonsense     strangers connect `--flood-per-s` times a second and send no TLS
    handshakes   strangers begin as many TLS handshakes, without a certificate
    linked       in all cases: the steps that the node took, and whether its neighbour was linked
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from folkman.config.comparison import resolve
from folkman.record.cluster import ClusterFolder
from folkman.runtime.assembly import task_of
from folkman.runtime.cluster import make_cluster, start
from folkman.runtime.fleet.addresses import read_fleet
from folkman.runtime.fleet.look import standings
from folkman.runtime.operators import operator_in

CASES = ("none", "idle", "polled", "nonsense", "handshakes")


def main() -> None:
    """Measure every case, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pace", type=float, default=2.0, help="gradients a second")
    parser.add_argument("--flood-per-s", type=float, default=500.0)
    parser.add_argument("--case", action="append", choices=CASES)
    given = parser.parse_args()
    for case in given.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(case, Path(folder) / "c", given)), flush=True)


def measured(case: str, root: Path, given: argparse.Namespace) -> dict[str, object]:
    """Run two nodes and return what the first of them costs in a case."""
    tables = {"nodes": 2, "slots": 10**6, "seeds": [0], "model": {"name": "softmax"}}
    task = task_of(resolve({**tables, "algorithm": [{"name": "async_sharing", "step": 0.1}]}))
    options = {"transport": "tcp", "radio": "measured", "slot_s": 1 / given.pace}
    options |= {"arithmetic": "numpy"}
    homes = make_cluster(root, task, options, operator=None if case == "none" else "alice")
    processes = [start(home) for home in homes]
    try:
        _until_linked(root)
        stop = threading.Event()
        work = _bother(case, root, given.flood_per_s, stop)
        time.sleep(1.0)
        before, steps = _cpu_s(processes[0]), _health(root)["steps"]
        at_s = time.monotonic()
        time.sleep(given.seconds)
        share = (_cpu_s(processes[0]) - before) / (time.monotonic() - at_s)
        time.sleep(1.0)
        found = _health(root)
        stop.set()
        tries = sum(each() for each in work)
        log = ClusterFolder(root).node("node-0").log.read_text()
        return {
            "case": case,
            "cpu_share": round(share, 4),
            "steps": found["steps"] - steps,
            "linked": found["linked"],
            "tries": tries,
            "lines_logged": len(log.splitlines()),
        }
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait(30)


def _bother(case: str, root: Path, per_s: float, stop: threading.Event) -> list[Callable[[], int]]:
    """Begin what a case asks for; return functions that wait for its end and count the tries."""
    if case in ("none", "idle"):
        return []
    fleet = read_fleet(ClusterFolder(root).fleet)
    if case == "polled":
        return [_polling(fleet, stop)]
    host, port = fleet.nodes["node-0"]
    command = [sys.executable, __file__, "--strangers", case, host, str(port), str(per_s)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ended() -> int:
        process.send_signal(signal.SIGTERM)
        return int(process.communicate(timeout=30)[0] or 0)

    return [ended]


def _polling(fleet: "object", stop: threading.Event) -> Callable[[], int]:
    from folkman.runtime.fleet.addresses import Fleet

    assert isinstance(fleet, Fleet)  # noqa: S101 - for the type checker
    files, place, count = operator_in(fleet.certs), fleet.nodes["node-0"], [0]

    def poll() -> None:
        while not stop.wait(2.0):
            (row,) = standings({"node-0": place}, files, 5.0)
            count[0] += bool(row["answered"])

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()

    def ended() -> int:
        thread.join(10)
        return count[0]

    return ended


def strangers(case: str, host: str, port: int, per_s: float) -> None:
    """Connect again and again until told to end; print how often."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    going, count, began_s = [True], 0, time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    while going:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 2) as line:
            line.settimeout(0.2)
            if case == "nonsense":
                line.sendall(b"\x16\x03\x01\x00\x05hello" * 4)
            else:
                with context.wrap_socket(line, server_hostname="node-0") as talk:
                    talk.send(b"x")
        count += 1
        time.sleep(max(0.0, began_s + count / per_s - time.monotonic()))
    print(count)


def _until_linked(root: Path) -> None:
    end_s = time.monotonic() + 60
    while not _health(root).get("linked") or _health(root).get("steps", 0) < 4:
        if time.monotonic() > end_s:
            raise RuntimeError(f"expected a linked node within 60 s; see {root}")
        time.sleep(0.1)


def _health(root: Path) -> dict:
    path = ClusterFolder(root).node("node-0").health
    return json.loads(path.read_text()) if path.is_file() else {}


def _cpu_s(process: "subprocess.Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--strangers"]:
        strangers(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        main()
