"""Attacks on real processes, over loopback with mutual TLS: what honest nodes still do.

    python benchmarks/attacks.py [--transport tcp zenoh] [--attack none poison ...] [--steps 150]

Five nodes learn softmax on the digits with NumPy, ten gradients a second at most. With a lie of the
menu (`folkman.runtime.world.byzantine`) node 4 is a member that keeps to the format and does not
tell the truth: its core is the real one, and its words are changed and signed on their way out.
Prints one JSON line for each transport and attack:

    messages_per_s   broadcasts of an honest node in a second of its life, mean of the four
    accuracy, loss   on test and training samples, of what an honest node would deploy, in the mean
    refused          what honest nodes refused, by reason, all together

    lost_folder      node 1 is killed and begins again without any file that it wrote: rejoin_s is
                     from its first line of the log until a neighbour acknowledges a message of it
    revoked          node 4 is revoked: forgotten_s until all honest nodes hold nothing of it
    locked_out       strangers keep 75 silent sockets open at node 4 (tcp), or fail 40 handshakes a
                     second there (zenoh), while node 0 is killed and begins again: rejoin_s until
                     the two are linked
    flaps            node 4 is killed and begun again for 20 s, after 1.5 and 0.4 s in turn:
                     messages_per_s before and meanwhile, mean of the others; log_lines_per_s of one
                     of them; rejoin_s until it is linked and acknowledged at the end
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

NODES, LIAR = 5, 4
HONEST = range(NODES - 1)
LIES = (
    "never_acknowledges",
    "acknowledges_all",
    "poison",
    "clock",
    "rate",
    "flood",
    "old_life",
    "equivocation",
)
OTHERS = ("lost_folder", "revoked", "locked_out", "flaps")
PATIENCE_S = 120.0
FLAPPING_S, FLAP_S = 20.0, (1.5, 0.4)
WRITTEN = ("*.safetensors", "incarnation*", "timeline.bin", "health.json")


def main() -> None:
    """Run the attacks asked for, or be the liar of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--transport", nargs="+", default=["tcp", "zenoh"])
    parser.add_argument("--attack", nargs="+", default=["none", *LIES, *OTHERS])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--slot-s", type=float, default=0.1)
    parser.add_argument("--be", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        sys.exit(be(given.be[0], Path(given.be[1])))
    for transport in given.transport:
        for attack in given.attack:
            with (
                tempfile.TemporaryDirectory() as folder,
                Crew(Path(folder), transport, given) as crew,
            ):
                found = WAYS.get(attack, learn)(crew, attack)
            print(json.dumps({"transport": transport, "attack": attack, **found}), flush=True)


# -- the liar ------------------------------------------------------------------------------------


def be(kind: str, path: Path) -> int:
    """Be a node whose words are changed on their way out."""
    from folkman.arithmetic import choose
    from folkman.runtime.assembly import assemble, read_node, read_task, use_precision

    choose("numpy")
    config = read_node(path)
    task = read_task(config.config, config.label, config.seed)
    use_precision(task)
    from folkman.runtime.telemetry import Logger

    drive = assemble(config, task, Logger("liar", insecure=False))
    liar: Any = Liar(kind, task.run, drive.core)
    honest = drive.core.step
    drive.core.step = lambda now_s, event: liar.said(event, honest(now_s, event))
    signal.signal(signal.SIGTERM, lambda *_: drive.ask("enough"))
    return drive.run()


class Liar:
    """What a lie of the menu needs to know, and the hand that signs."""

    def __init__(self, kind: str, run: int, core: Any) -> None:
        from folkman.runtime.world.byzantine import MENU

        self._change: Any = MENU[kind]  # it asks for less than a `Lie` is
        self._run, self._core = run, core
        self._sign = core.node.wire.sign
        self.draws, self.slots, self.last = Random(kind), 0, {}  # noqa: S311 - not for secrets
        self._told = 0

    def said(self, event: object, effects: list[Any]) -> list[Any]:
        """Return what leaves the liar in place of what its core wants."""
        from folkman.runtime.core import events

        found: list[Any] = []
        for effect in effects:
            if isinstance(effect, events.Tell):
                found += self._retold(effect)
            elif isinstance(effect, events.Publish):
                found += self._republished(effect)
            else:
                found.append(effect)
        if isinstance(event, events.Computed):
            self.slots += 1
            for peer in self._core.linked:
                found += [self._worded(peer, item) for item in self._change.unasked(self, peer)]
        return found

    def _worded(self, peer: int, item: Any) -> Any:
        from folkman.runtime.codec import Message, encode
        from folkman.runtime.core.events import Publish

        if isinstance(item, Message):
            return Publish(peer, encode(item, self._sign))
        return self._tell(peer, item, 0)

    def _tell(self, peer: int, body: Any, at_least: int) -> Any:
        from folkman.runtime import control
        from folkman.runtime.core.events import Tell

        self._told = max(self._told + 1, at_least)
        word = control.Control(self._run, LIAR, self._told, body)
        return Tell(peer, control.seal(word, self._sign))

    def _retold(self, effect: Any) -> list[Any]:
        from folkman.runtime import control

        word = control.open_sealed(effect.data, self._run)
        bodies = self._change.told(self, effect.peer, word.body)
        return [self._tell(effect.peer, body, word.sequence) for body in bodies]

    def _republished(self, effect: Any) -> list[Any]:
        from folkman.runtime.codec import decode, encode

        size = self._core.node.mailbox.payload.shape[1]
        message = decode(effect.data, self._run, size)
        self.last[effect.peer] = message
        said = self._change.published(self, effect.peer, message)
        return [effect._replace(data=encode(each, self._sign)) for each in said]


# -- the cluster ---------------------------------------------------------------------------------


class Crew:
    """Five nodes in folders of their own, and the processes that were begun; all end with it."""

    def __init__(self, folder: Path, transport: str, given: argparse.Namespace) -> None:
        from folkman.config.comparison import resolve
        from folkman.runtime.assembly import task_of
        from folkman.runtime.cluster import make_cluster

        learnt = {
            "partition": {"name": "even"},
            "model": {"name": "softmax"},
            "algorithm": [{"name": "async_sharing", "step": 0.3}],
        }
        task = task_of(resolve({"nodes": NODES, "slots": given.steps, "seeds": [0], **learnt}))
        options = {
            "transport": transport,
            "radio": "measured",
            "slot_s": given.slot_s,
            "arithmetic": "numpy",
            "shared_medium": False,
            "linger_s": 5.0,
            "save_every_s": 0.5,
        }
        self.root, self.transport = folder / "cluster", transport
        self.homes = make_cluster(self.root, task, options)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(60)

    def begin(self, *numbers: int, lie: str = "") -> None:
        """Start nodes; with a lie, as the liar."""
        for number in numbers:
            home = self.homes[number]
            command = [sys.executable, "-m", "folkman", "node", "--config", str(home / "node.toml")]
            if lie:
                command = [sys.executable, __file__, "--be", lie, str(home / "node.toml")]
            environment = {**os.environ, "FOLKMAN_ARITHMETIC": "numpy"}
            with (home / "node.log").open("ab") as log:
                self.processes[number] = subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment
                )

    def begin_again(self, number: int, holds: Callable[[], bool]) -> float | None:
        """Start a node anew; return the seconds from its first word to something that it comes to.

        How long a process takes to start says how busy the machine is.
        """
        log = self.homes[number] / "node.log"
        log.write_text("")
        self.begin(number)
        self.until(lambda: '"event": "start"' in log.read_text())
        return self.until(holds)

    def kill(self, number: int) -> None:
        """End a node as a power cut would."""
        process = self.processes.pop(number)
        process.kill()
        process.wait(60)
        (self.homes[number] / "health.json").unlink(missing_ok=True)

    def health(self, number: int) -> dict[str, Any]:
        """Return what a node says of itself; nothing before it says anything."""
        try:
            return json.loads((self.homes[number] / "health.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}

    def until(self, holds: Callable[[], bool]) -> float | None:
        """Wait; return the seconds it took, None if it did not come true."""
        began_s = time.monotonic()
        while not holds():
            if time.monotonic() - began_s > PATIENCE_S:
                return None
            time.sleep(0.01)
        return round(time.monotonic() - began_s, 2)

    def learn_a_while(self) -> None:
        """Wait until every node has taken some gradients and heard of the others."""
        self.until(
            lambda: all(
                self.health(n).get("steps", 0) > 10 and len(self.health(n)["linked"]) == NODES - 1
                for n in self.processes
            )
        )


# -- the attacks ---------------------------------------------------------------------------------


def learn(crew: Crew, attack: str) -> dict[str, object]:
    """Let them learn to the end, one of them lying; return what the honest ones came to."""
    crew.begin(LIAR, lie="" if attack == "none" else attack)
    crew.begin(*HONEST)
    ended = crew.until(lambda: all(crew.health(n).get("state") == "done" for n in HONEST))
    told = [crew.health(n) for n in HONEST]
    refused: Counter[str] = Counter()
    for each in told:
        refused.update(each.get("refused", {}))
    rates = [each["counts"]["sent"] / each["uptime_s"] for each in told if each]
    return {
        "ended": ended is not None,
        "messages_per_s": round(float(np.mean(rates)), 2),
        "periods_given_up": sum(each["counts"]["periods_given_up"] for each in told if each),
        **worth(crew),
        "refused": dict(refused),
    }


def worth(crew: Crew) -> dict[str, object]:
    """Return how good the models are that honest nodes would deploy, in the mean."""
    from folkman.arrays import jnp
    from folkman.runtime.cluster import read_cluster
    from folkman.runtime.state import read_arrays

    problem = read_cluster(crew.root).problem
    models = [read_arrays(crew.homes[n] / "final.safetensors")["model"] for n in HONEST]
    found = [problem.evaluate(jnp.asarray(each, problem.initial.dtype)) for each in models]
    return {
        "loss": round(float(np.mean([each.train_loss for each in found])), 4),
        "accuracy": round(float(np.mean([each.test_accuracy for each in found])), 4),
    }


def lose_folder(crew: Crew, attack: str) -> dict[str, object]:
    """Kill node 1 and take away all that it wrote."""
    del attack
    crew.begin(*range(NODES))
    crew.learn_a_while()
    crew.kill(1)
    for pattern in WRITTEN:
        for path in crew.homes[1].glob(pattern):
            path.unlink()
    rejoin_s = crew.begin_again(1, lambda: bool(crew.health(1).get("latency_s")))
    return {"rejoin_s": rejoin_s, "life": crew.health(1).get("incarnation")}


def revoke(crew: Crew, attack: str) -> dict[str, object]:
    """Revoke node 4 in the list that all read."""
    from folkman.runtime import identity
    from folkman.runtime.assembly import read_node

    del attack
    crew.begin(*range(NODES))
    crew.learn_a_while()
    for folder in {read_node(home / "node.toml").certs for home in crew.homes}:
        assert folder is not None  # noqa: S101 - the cluster is a secure one
        if (folder / "ca.key").exists():
            identity.revoke(folder, LIAR)
    gone = crew.until(
        lambda: all(crew.health(n).get("counts", {}).get("forgotten", 0) for n in HONEST)
    )
    return {"forgotten_s": gone}


def lock_out(crew: Crew, attack: str) -> dict[str, object]:
    """Crowd the door of node 4 while node 0 begins again."""
    from folkman.runtime.assembly import address, read_node

    del attack
    crew.begin(*range(NODES))
    crew.learn_a_while()
    door = address(read_node(crew.homes[LIAR] / "node.toml").listen)
    over, word = threading.Event(), b"" if crew.transport == "tcp" else b"\x16\x03\x01\x00\x05hello"
    pause_s = 0.005 if crew.transport == "tcp" else 0.025
    strangers = threading.Thread(target=crowd, args=(door, word, pause_s, over), daemon=True)
    strangers.start()
    time.sleep(3.0)
    crew.kill(0)
    rejoin_s = crew.begin_again(0, lambda: "node-4" in crew.health(0).get("linked", []))
    over.set()
    strangers.join(10)
    return {"rejoin_s": rejoin_s, "transport_counts": crew.health(LIAR).get("transport", {})}


def flap(crew: Crew, attack: str) -> dict[str, object]:
    """Let node 4 leave and come back all the time."""
    del attack
    crew.begin(*range(NODES))
    crew.learn_a_while()
    calm = _sent_per_s(crew, lambda: time.sleep(10.0))
    lines = _lines(crew)
    flaps, began_s = 0, time.monotonic()

    def flapping() -> None:
        nonlocal flaps
        while time.monotonic() < began_s + FLAPPING_S:
            crew.kill(LIAR)
            crew.begin(LIAR)
            time.sleep(FLAP_S[flaps % 2])
            flaps += 1

    harmed = _sent_per_s(crew, flapping)
    said = (_lines(crew) - lines) / (time.monotonic() - began_s)
    crew.kill(LIAR)
    rejoin_s = crew.begin_again(LIAR, lambda: bool(crew.health(LIAR).get("latency_s")))
    return {
        "flaps": flaps,
        "messages_per_s": [calm, harmed],
        "log_lines_per_s": round(said, 2),
        "rejoin_s": rejoin_s,
        "life": crew.health(LIAR).get("incarnation"),
    }


def _sent_per_s(crew: Crew, meanwhile: Callable[[], None]) -> float:
    """Return the broadcasts of an honest node in a second, mean of the four, while something is."""
    before = [crew.health(n) for n in HONEST]
    meanwhile()
    after = [crew.health(n) for n in HONEST]
    rates = [
        (b["counts"]["sent"] - a["counts"]["sent"]) / (b["uptime_s"] - a["uptime_s"])
        for a, b in zip(before, after, strict=True)
    ]
    return round(float(np.mean(rates)), 2)


def _lines(crew: Crew) -> int:
    return len((crew.homes[0] / "node.log").read_text().splitlines())


def crowd(door: tuple[str, int], word: bytes, pause_s: float, over: threading.Event) -> None:
    """Keep 75 sockets open that say nothing, or close each after a wrong word."""
    there: list[socket.socket] = []
    while not over.is_set():
        try:
            caller = socket.create_connection(door, 1.0)
            caller.sendall(word)
            there.append(caller)
        except OSError:
            pass
        while len(there) > (1 if word else 75):
            there.pop(0).close()
        time.sleep(pause_s)
    for caller in there:
        caller.close()


WAYS = {
    "lost_folder": lose_folder,
    "revoked": revoke,
    "locked_out": lock_out,
    "flaps": flap,
}
"""Attacks that are no lie of the menu."""

if __name__ == "__main__":
    main()
