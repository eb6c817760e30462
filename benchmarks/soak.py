"""Light nodes that are killed, harmed and lied to for minutes, as real processes over loopback.

    python benchmarks/soak.py [--nodes 16] [--minutes 10] [--kills 100] [--messages 1000000]
                              [--transport tcp] [--faults 16]

All nodes are linked to all, with mutual TLS; they learn softmax on the digits with NumPy, a
gradient a second. The last one is a member whose process also sends bad messages to the others:
its own, signed ones with bits flipped, cut, joined, made longer or said again, and noise. Kills are
`kill -9` of a node drawn at random, begun again at once. Faults are in turn

    suspended   the process stands still for 5 s
    lost        killed, and begun again without any file that it wrote
    flipped     killed, and begun again with one bit of its saved state flipped
    crowded     strangers keep 75 silent sockets at its door for 5 s

Prints one JSON line. `rejoin_s` is from the start of a process until a neighbour has acknowledged
a message of it, the start of Python included: median, 90 % and longest. `steps_lost` are gradients
of a kill that no saved state had. `cpu_share` is that of a node's last life, of one core;
`cpu_s` is of all honest processes and lives together, their starts included, and `cpu_of_all_lives`
the same as a share of the time that they lived. Memory is resident: `memory_mb` what nodes
say of themselves before and at the end (mean, most), `rss_mb` what the kernel says of all lives,
each second: median and most; `threads` are those of the operating system.

The nodes are those that PYTHONPATH (or the installed package) gives, so two versions can be
compared, those before the core included.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks.attacks import crowd  # noqa: E402

FAULTS = ("suspended", "lost", "flipped", "crowded")
HARM_S = 5.0
TICK_S = 0.01
WRITTEN = ("*.safetensors", "incarnation*", "timeline.bin", "health.json")


def main() -> None:
    """Let them live, and print what they came to; or be the hostile member."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=16, help="the hostile one included")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--faults", type=int, default=16)
    parser.add_argument("--messages", type=int, default=10**6, help="bad ones")
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--be", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        sys.exit(be_hostile(Path(given.be[0]), float(given.be[1])))
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), given)
        try:
            print(json.dumps(soak.run()), flush=True)
        finally:
            soak.close()


# -- the hostile member --------------------------------------------------------------------------


def be_hostile(path: Path, per_s: float) -> int:
    """Be a node that also sends bad messages, at a rate; the number is kept beside its file."""
    from folkman.arithmetic import choose
    from folkman.runtime.assembly import assemble, read_node, read_task, use_precision

    choose("numpy")
    config = read_node(path)
    task = read_task(config.config, config.label, config.seed)
    use_precision(task)
    from folkman.runtime.telemetry import Logger

    drive: Any = assemble(config, task, Logger("hostile", insecure=False))
    pool: list[bytes] = []  # good ones
    if isinstance(drive, tuple):
        daemon, loop = drive
        return _be_hostile_before(daemon, loop, pool, per_s, path)
    sends = _listened(drive.transport, pool)

    async def around(learning: Any) -> int:
        flood = asyncio.get_running_loop().create_task(_flood(drive, sends, pool, per_s, path))
        try:
            return await learning
        finally:
            flood.cancel()

    drive.around = around
    signal.signal(signal.SIGTERM, lambda *_: drive.ask("enough"))
    return drive.run()


def _be_hostile_before(daemon: Any, loop: Any, pool: list[bytes], per_s: float, path: Path) -> int:
    """Do the same with a node of the versions that had a thread for each task."""
    sends = _listened(daemon.transport, pool)
    rate = _Rate(per_s, path)

    def flood() -> None:
        while True:
            time.sleep(TICK_S)
            while rate.send_one(list(daemon.transport.links()), pool, sends):
                time.sleep(0.001)  # they leave before the next ones are there

    threading.Thread(target=flood, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: setattr(daemon, "asked", "enough"))
    return daemon.run(loop)


def _listened(transport: Any, pool: list[bytes]) -> list[Any]:
    """Keep what a node sends; return what sends without being kept."""
    sends = [getattr(transport, name) for name in ("publish", "tell")]
    transport.publish, transport.tell = (_kept(send, pool) for send in sends)
    return sends


def _kept(send: Any, pool: list[bytes]) -> Any:
    def sends(peer: int, data: bytes) -> None:
        pool.append(data)
        del pool[:-200]
        send(peer, data)

    return sends


async def _flood(drive: Any, sends: list[Any], pool: list[bytes], per_s: float, path: Path) -> None:
    rate = _Rate(per_s, path)
    while True:
        await asyncio.sleep(TICK_S)
        while rate.send_one(list(drive.core.linked), pool, sends):
            await asyncio.sleep(0)  # they leave before the next ones are there


class _Rate:
    """Sends bad messages at a rate, and keeps their number beside the node's file."""

    def __init__(self, per_s: float, path: Path) -> None:
        self._per_s, self._count = per_s, path.with_name("bad")
        self._rng, self._sent, self._began_s = np.random.default_rng(0), 0, time.monotonic()
        self._noted_s = 0.0

    def send_one(self, peers: list[int], pool: list[bytes], sends: list[Any]) -> bool:
        """Send one to each peer if that is due; tell whether it was."""
        due = self._per_s * (time.monotonic() - self._began_s)
        if not (peers and pool and self._sent < due):
            return False
        for peer in peers:
            sends[self._rng.integers(2)](peer, mutated(self._rng, pool))
        self._sent += len(peers)
        if time.monotonic() - self._noted_s >= 0.1:
            self._note()
        return True

    def _note(self) -> None:
        """Write how many were sent; whoever reads it finds a number."""
        self._noted_s = time.monotonic()
        self._count.with_suffix(".part").write_text(str(self._sent))
        self._count.with_suffix(".part").replace(self._count)


def mutated(rng: np.random.Generator, pool: list[bytes]) -> bytes:
    """Return bytes near a good message, an old one, or noise."""
    data, kind = bytearray(pool[rng.integers(len(pool))]), rng.integers(6)
    if kind == 0:
        return rng.bytes(int(rng.integers(1, 400)))
    if kind == 1:
        return bytes(data[: rng.integers(1, len(data))])
    if kind == 2:
        return bytes(data) + rng.bytes(int(rng.integers(1, 64)))
    if kind == 3:
        other = pool[rng.integers(len(pool))]
        cut = int(rng.integers(1, min(len(data), len(other))))
        return bytes(data[:cut]) + other[cut:]
    if kind == 4:
        for _ in range(int(rng.integers(1, 5))):
            data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
    return bytes(data)


# -- the others ----------------------------------------------------------------------------------


class Soak:
    """The processes and what is counted of them."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        from folkman.config.comparison import resolve
        from folkman.runtime.assembly import task_of
        from folkman.runtime.cluster import make_cluster

        learnt = {
            "partition": {"name": "iid"},  # named so in all versions
            "model": {"name": "softmax"},
            "algorithm": [{"name": "async_sharing", "step": 0.1}],
        }
        task = task_of(resolve({"nodes": given.nodes, "slots": 10**6, "seeds": [0], **learnt}))
        options = {"transport": given.transport, "radio": "measured", "arithmetic": "numpy"}
        options |= {"slot_s": 1.0, "save_every_s": 2.0, "start_wait_s": 30.0, "steps": 0}
        options |= {"shared_medium": False}
        self.given, self.rng = given, np.random.default_rng(1)
        self.homes = make_cluster(folder / "cluster", task, options)
        self.honest = range(given.nodes - 1)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.away: dict[int, tuple[float, str, int]] = {}  # since when, why, steps before
        self.held: dict[int, float] = {}  # suspended until
        self.rejoined: dict[str, list[float]] = {}
        self.lost: list[int] = []
        self.done: Counter[str] = Counter()
        self.rss_kb: list[int] = []
        self.threads: list[int] = []
        self.looked_s = time.monotonic()
        self.lived_s = 0.0  # of all honest nodes together

    def close(self) -> None:
        """End all processes."""
        for number in list(self.processes):
            self._end(number)

    def _end(self, number: int) -> None:
        process = self.processes.pop(number)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait(60)

    def begin(self, number: int, command: list[str] | None = None) -> None:
        """Start a node."""
        home = self.homes[number]
        folkman = [sys.executable, "-m", "folkman", "node", "--config", str(home / "node.toml")]
        with (home / "node.log").open("ab") as log:
            self.processes[number] = subprocess.Popen(
                command or folkman,
                stdout=log,
                stderr=log,
                env={**os.environ, "FOLKMAN_ARITHMETIC": "numpy"},
            )

    def health(self, number: int) -> dict[str, Any]:
        """Return what a node says of itself; nothing before it says anything."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads((self.homes[number] / "health.json").read_text())
        return {}

    def run(self) -> dict[str, object]:
        """Let all happen; return what came of it."""
        given, liar = self.given, self.given.nodes - 1
        for number in self.honest:
            self.begin(number)
        while any(self.health(n).get("steps", 0) < 5 for n in self.honest):
            if ended := [n for n in self.honest if self.processes[n].poll() is not None]:
                raise RuntimeError(f"expected nodes that learn, but {ended} ended; see node.log")
            self._look()
            time.sleep(0.2)
        first = [self.health(n)["memory_bytes"] for n in self.honest]
        seconds = 60.0 * given.minutes
        be = [sys.executable, __file__, "--be", str(self.homes[liar] / "node.toml")]
        (self.homes[liar] / "bad").write_text("0")  # it may never send
        self.begin(liar, [*be, str(given.messages / seconds)])
        self._harm(seconds)
        until_s = time.monotonic() + 60.0
        while self._coming() and time.monotonic() < until_s:
            self._look()
            time.sleep(0.1)
        until_s = time.monotonic() + HARM_S
        while time.monotonic() < until_s:
            self._look()
            time.sleep(0.1)
        found = self._found(first, int((self.homes[liar] / "bad").read_text()))
        before_s = _children_cpu_s()
        self._end(liar)
        own_s = _children_cpu_s() - before_s
        self.close()
        cpu_s = _children_cpu_s() - own_s
        found |= {"cpu_s": round(cpu_s), "hostile_cpu_s": round(own_s)}
        return found | {"cpu_of_all_lives": round(cpu_s / max(self.lived_s, 1.0), 4)}

    def _coming(self) -> list[int]:
        """Return the nodes that may still come back."""
        return [n for n in self.away if self.processes[n].poll() is None]

    def _harm(self, seconds: float) -> None:
        """Let kills and faults happen, evenly over the time."""
        given = self.given
        plan = [(seconds * (k + 0.5) / given.kills, "killed") for k in range(given.kills)]
        plan += [
            (seconds * (k + 0.5) / given.faults, FAULTS[k % len(FAULTS)])
            for k in range(given.faults)
        ]
        began_s = time.monotonic()
        for at_s, kind in sorted(plan):
            while True:
                self._look()
                free = [n for n in self.honest if n not in self.away and n not in self.held]
                if free and time.monotonic() - began_s >= at_s:
                    break
                time.sleep(0.05)
            self._do(kind, int(self.rng.choice(free)))
            self.done[kind] += 1
        while time.monotonic() - began_s < seconds:
            self._look()
            time.sleep(0.05)

    def _do(self, kind: str, number: int) -> None:
        process = self.processes[number]
        if kind == "suspended":
            process.send_signal(signal.SIGSTOP)
            self.held[number] = time.monotonic() + HARM_S
        elif kind == "crowded":
            threading.Thread(target=self._crowd, args=(number,), daemon=True).start()
        else:
            steps = self.health(number).get("steps", 0)
            process.kill()
            process.wait(60)
            self._spoil(kind, self.homes[number])
            self.away[number] = time.monotonic(), kind, steps
            self.begin(number)

    def _spoil(self, kind: str, home: Path) -> None:
        (home / "health.json").unlink(missing_ok=True)
        if kind == "lost":
            for pattern in WRITTEN:
                for path in home.glob(pattern):
                    path.unlink()
        elif kind == "flipped" and (home / "state.safetensors").exists():
            data = bytearray((home / "state.safetensors").read_bytes())
            data[self.rng.integers(len(data))] ^= 1 << int(self.rng.integers(8))
            (home / "state.safetensors").write_bytes(data)

    def _crowd(self, number: int) -> None:
        from folkman.runtime.assembly import address, read_node

        over = threading.Event()
        threading.Timer(HARM_S, over.set).start()
        crowd(address(read_node(self.homes[number] / "node.toml").listen), b"", 0.01, over)

    def _look(self) -> None:
        """Wake who has slept, and note who is back."""
        now_s = time.monotonic()
        if now_s - self.looked_s >= 1.0:
            self._look_at_kernel(now_s - self.looked_s)
            self.looked_s = now_s
        for number, until_s in list(self.held.items()):
            if now_s >= until_s:
                self.processes[number].send_signal(signal.SIGCONT)
                del self.held[number]
        for number, (since_s, kind, steps) in list(self.away.items()):
            health = self.health(number)
            if health.get("latency_s"):
                self.rejoined.setdefault(kind, []).append(now_s - since_s)
                begun = json.loads(_last_start(self.homes[number]))
                if kind == "killed":
                    self.lost.append(max(0, steps - begun["steps"]))
                del self.away[number]

    def _look_at_kernel(self, since_s: float) -> None:
        """Note memory and threads of the honest that learn, and that all others lived on."""
        for number in self.honest:
            if self.processes[number].poll() is not None:
                continue
            self.lived_s += since_s
            if number in self.away:
                continue
            status = Path(f"/proc/{self.processes[number].pid}/status").read_text()
            facts = dict(line.split(":", 1) for line in status.splitlines())
            if "VmRSS" in facts:
                self.rss_kb.append(int(facts["VmRSS"].split()[0]))
                self.threads.append(int(facts["Threads"]))

    def _found(self, first: list[float], bad: int) -> dict[str, object]:
        last = {n: health for n in self.honest if (health := self.health(n))}
        refused: Counter[str] = Counter()
        for each in last.values():
            refused.update(each["refused"])
        shares = [each["cpu_s"] / each["uptime_s"] for each in last.values()]
        rates = [each["counts"]["taken"] / each["uptime_s"] for each in last.values()]
        memory = [each["memory_bytes"] / 2**20 for each in last.values()]
        losses = [each["loss"] for each in last.values() if each["loss"] is not None]
        return {
            "transport": self.given.transport,
            "nodes": self.given.nodes,
            "minutes": self.given.minutes,
            "done": dict(self.done),
            "bad_messages": bad,
            "refused_in_last_lives": sum(refused.values()),
            "reasons": sorted(refused),
            "not_back": {str(n): kind for n, (_, kind, _) in self.away.items()},
            "ended": [n for n in self.honest if self.processes[n].poll() is not None],
            "not_well": [n for n in self.honest if not _well(last.get(n, {}))],
            "rejoin_s": {
                kind: [_of(partial(np.quantile, q=q), found, 1) for q in (0.5, 0.9, 1.0)]
                for kind, found in self.rejoined.items()
            },
            "steps_lost": [_of(np.mean, self.lost, 2), max(self.lost, default=0)],
            "memory_mb": [_of(np.mean, [each / 2**20 for each in first]), _of(max, memory)],
            "rss_mb": [_of(f, [each / 1024 for each in self.rss_kb]) for f in (np.median, max)],
            "threads": [_of(f, self.threads) for f in (np.median, max)],
            "cpu_share": [_of(np.median, shares, 4), _of(max, shares, 4)],
            "heard_per_s": _of(np.median, rates, 1),
            "loss": [_of(np.mean, losses, 4)],
        }


def _of(
    measure: Callable[[Sequence[float]], Any], values: Sequence[float], digits: int | None = None
) -> float | None:
    """Return a measure of some values, rounded; None of no values: a soak keeps what it has."""
    return round(float(measure(values)), digits) if values else None


def _well(health: dict[str, Any]) -> bool:
    """Tell whether a node says that it is well; before the core none said so."""
    return bool(health.get("ok", health.get("state") == "learning"))


def _children_cpu_s() -> float:
    """Return the CPU seconds of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _last_start(home: Path) -> str:
    lines = (home / "node.log").read_text(errors="replace").splitlines()
    return next(line for line in reversed(lines) if '"event": "start"' in line)


if __name__ == "__main__":
    main()
