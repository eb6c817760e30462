"""Clusters for tests: real processes, on loopback or each on a host of its own behind the relay."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from folkman.config.comparison import resolve
from folkman.runtime import cluster as deploy
from folkman.runtime.assembly import task_of

SUBNET = "10.77.7"
TABLES = {
    "seeds": [0],
    "data": {"name": "digits", "train_size": 400},
    "model": {"name": "softmax"},
    "algorithm": [{"name": "async_sharing", "step": 0.1}],
}


def task(**changes):
    return task_of(resolve({**TABLES, **changes}))


def why_no_hosts():
    """Say what this machine lacks for hosts of their own; nothing if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    found = subprocess.run(["sh", "-c", "command -v ip"], capture_output=True, check=False)
    if found.returncode:
        return "no ip command"
    trial = subprocess.run(
        ["ip", "netns", "add", f"fkt{os.getpid()}"], capture_output=True, check=False
    )
    subprocess.run(["ip", "netns", "del", f"fkt{os.getpid()}"], capture_output=True, check=False)
    return "network namespaces are not allowed here" if trial.returncode else ""


class Hosts:
    """The relay as a process; `set` changes all links at once."""

    def __init__(self, number):
        self.prefix = f"fk{os.getpid() % 100000}x"
        script = Path(__file__).parent / "relay.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), self.prefix, str(number), SUBNET],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "READY"
        self.addresses = [f"{SUBNET}.{i + 1}" for i in range(number)]

    def _line(self):
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def set(self, **settings):
        calm = {"delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0, "rate_bit_s": 0.0, "cut": []}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(calm | settings) + "\n")
        self.process.stdin.flush()
        assert self._line() == "OK"

    def within(self, i):
        return ["ip", "netns", "exec", f"{self.prefix}{i}"]

    def close(self):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


class Cluster:
    """Nodes as processes that a test can kill, start and look at."""

    def __init__(self, root, chosen, options, hosts=None):
        self.root, self.hosts = root, hosts
        self.homes = deploy.make_cluster(root, chosen, options, hosts.addresses if hosts else ())
        self.processes = {}

    def start(self, i, **environment):
        within = self.hosts.within(i) if self.hosts else ()
        (self.homes[i] / "health.json").unlink(missing_ok=True)  # of its last life
        self.processes[i] = deploy.start(self.homes[i], {**os.environ, **environment}, within)

    def kill(self, i, number=signal.SIGKILL):
        process = self.processes.pop(i)
        os.killpg(process.pid, number)
        return process.wait(30)

    def health(self, i):
        try:
            return json.loads((self.homes[i] / "health.json").read_text())
        except FileNotFoundError:
            counts = {"taken": 0, "sent": 0, "saves": 0, "saves_failed": 0}
            nothing = {
                "steps": 0,
                "saved_steps": 0,
                "linked": [],
                "latency_s": {},
                "incarnation": 0,
            }
            return {"state": "starting", "counts": counts, **nothing}

    def log(self, i):
        lines = (self.homes[i] / "node.log").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def until(self, holds, what, patience_s=90.0):
        """Wait for something to come true; a process that has ended meanwhile ends the wait."""
        end_s = time.monotonic() + patience_s
        while not holds():
            for i, process in self.processes.items():
                if process.poll() not in (None, 0):
                    raise AssertionError(
                        f"node {i} ended with {process.returncode}: {self.log(i)[-3:]}"
                    )
            if time.monotonic() > end_s:
                raise AssertionError(
                    f"{what}: not within {patience_s} s; {[self.health(i) for i in self.processes]}"
                )
            time.sleep(0.1)

    def until_all_exchange(self, nodes, messages=3, patience_s=90.0):
        """Wait until each of some nodes has learnt on and taken some more messages."""
        before = {i: self.health(i) for i in nodes}

        def exchanged():
            for i in nodes:
                now, then = self.health(i), before[i]
                same = (
                    now["incarnation"] == then["incarnation"]
                )  # else it counts anew, and may have lost steps
                if now["counts"]["taken"] < same * then["counts"]["taken"] + messages:
                    return False
                if now["steps"] <= same * then["steps"]:
                    return False
            return True

        self.until(exchanged, f"nodes {list(nodes)} learn and hear", patience_s)

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(30)
