"""The folder of a cluster of real nodes, and how each of them stands.

    config.toml  certs/           what is learnt; the authority and the nodes' certificates
    timeline.npz                  what the nodes did, as `folkman replay` joined it
    fleet.toml                    where operators reach the nodes, if they may
    collected.json                in a folder that `folkman fleet collect` made: which files of
                                  which nodes, with their digests
    nodes/NAME/node.toml          the node's own file; `node.board.toml`: as it was on its board,
                                  in a folder that was collected
    nodes/NAME/shard.npz          its samples
    nodes/NAME/health.json        how it stands, renewed while it runs
    nodes/NAME/node.log           JSON lines with time, level, event
    nodes/NAME/pid  lock          the number of its process, when and where that began, written by
                                  the process itself too; held while it runs
    nodes/NAME/timeline.bin       which messages each slot saw
    nodes/NAME/state.safetensors  where it goes on; `state.before.safetensors`: saved before it
    nodes/NAME/incarnation        how often it has begun; `incarnation.copy`: the same
    nodes/NAME/final.safetensors  its last parameters
    nodes/NAME/faults.txt         where every thread was when it died, or at SIGUSR1

Nodes write these files; whoever looks at a cluster reads them here.
"""

import os
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

from folkman.record.json_file import Json, read_json, write_text
from folkman.record.run import STOPPED

__all__ = ["DONE", "GOING", "GONE", "LEARNING", "SILENT", "STARTING", "WELL"]
__all__ += ["FINAL_FILE", "JOURNAL_FILE", "LIFE_COPY_FILE", "LIFE_FILE", "MEMBERS_SEEN_FILE"]
__all__ += ["STATE_BEFORE_FILE", "STATE_DAMAGED_FILE", "STATE_FILE"]
__all__ += ["ClusterFolder", "NodeFolder", "Process", "is_alive", "refuse_cluster"]

STATE_FILE, STATE_BEFORE_FILE = "state.safetensors", "state.before.safetensors"
STATE_DAMAGED_FILE, FINAL_FILE = "state.damaged.safetensors", "final.safetensors"
LIFE_FILE, LIFE_COPY_FILE = "incarnation", "incarnation.copy"
"""What a node keeps through a power cut."""
JOURNAL_FILE = "timeline.bin"
MEMBERS_SEEN_FILE = "members.seen"
"""The version of the newest list of members that a node has taken over."""

STARTING, LEARNING, DONE = "starting", "learning", "done"
"""The states of a node that is well."""
SILENT, GONE = "silent", "gone"
"""States that others give to a node: its health file is old; its process is no more."""

GOING = (STARTING, LEARNING)
WELL = (*GOING, DONE, STOPPED)
"""The states that need no attention."""

FRESH_S = 10.0
"""A health file older than this is of a node that hangs or is gone."""


class NodeFolder:
    """The files of one node."""

    TASK = "config.toml"
    """What is learnt, under the name that it has in a cluster's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "node.toml"
        self.shard = root / "shard.npz"
        self.health = root / "health.json"
        self.log = root / "node.log"
        self.pid = root / "pid"
        self.lock = root / "lock"
        self.journal = root / JOURNAL_FILE
        self.state = root / STATE_FILE
        self.state_before = root / STATE_BEFORE_FILE
        self.state_damaged = root / STATE_DAMAGED_FILE
        self.incarnation = root / LIFE_FILE
        self.incarnation_copy = root / LIFE_COPY_FILE
        self.final = root / FINAL_FILE
        self.members_seen = root / MEMBERS_SEEN_FILE
        self.faults = root / "faults.txt"
        self.board_config = root / "node.board.toml"

    def is_there(self) -> bool:
        """Tell whether this is the folder of a node."""
        return any(path.is_file() for path in (self.config, self.health, self.log))

    def told(self) -> dict[str, Path]:
        """Return the files that an operator may fetch, by name: no key, no samples, no process."""
        kept = [self.config, self.health, self.log, self.journal, self.state, self.state_before]
        kept += [self.incarnation, self.incarnation_copy, self.final, self.members_seen]
        kept += [self.faults]
        return {path.name: path for path in kept}

    def standing(self) -> Json:
        """Return how the node stands: its health file, with its state as it is seen from outside.

        A node of this machine has a `pid` file, which says whether it is there. Of another
        machine's, a health file that is not renewed says that it is not.
        """
        found = {"node": self.root.name, "state": STARTING, **(read_json(self.health) or {})}
        now_s = time.time()
        age_s = now_s - self.health.stat().st_mtime if self.health.is_file() else 0.0
        state = found["state"]
        process = self.process()
        alive = process is not None and is_alive(process)
        gone = process is not None and not alive
        if gone and state in GOING:
            state = GONE
        elif age_s > FRESH_S and (alive or (process is None and state in GOING)):
            state = SILENT
        seen = {"state": state, "alive": alive, "pid": process.pid if process else None}
        written_s = found.get("written_s")
        if state in GOING and isinstance(written_s, int | float) and now_s - written_s > FRESH_S:
            seen["wrong"] = f"its disk has taken no file for {now_s - written_s:.0f} s; make room"
        return found | seen | {"health_age_s": round(age_s, 1)}

    def process(self) -> "Process | None":
        """Return the process that was started here; None if none is known for sure.

        That is so on another machine or outside of the node's container, with a damaged file, and
        with one of an earlier folkman whose number some process has.
        """
        try:
            words = self.pid.read_bytes().decode(errors="replace").split()
        except OSError:
            return None
        if not words or not re.fullmatch("[0-9]{1,9}", words[0]):
            return None
        process = Process(int(words[0]), *words[1:3])
        if process.place not in ("", _place()):
            return None
        return process if process.began or _began(process.pid) is None else None

    def note(self, process: "Process") -> None:
        """Write down which process is the node of this folder."""
        write_text(self.pid, process.text())


class ClusterFolder:
    """The files of a cluster."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.certs = root / "certs"
        self.timeline = root / "timeline.npz"
        self.fleet = root / "fleet.toml"
        self.collected = root / "collected.json"

    def is_there(self) -> bool:
        """Tell whether `folkman up` made this folder."""
        return any(NodeFolder(home).is_there() for home in self.root.glob("nodes/*"))

    def node(self, name: str) -> NodeFolder:
        """Return the folder of a node."""
        return NodeFolder(self.root / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """Return the folders of all nodes, by name; refuse a folder that has none."""
        places = [*sorted(self.root.glob("nodes/*")), *sorted(self.root.glob("*"))]
        found = [home for home in map(NodeFolder, places) if home.is_there()]
        if not found:
            what = f"{self.root} has no nodes" if self.root.is_dir() else f"there is no {self.root}"
            raise FileNotFoundError(
                f"expected a cluster that `folkman up` made, {what}; check the path"
            )
        return found

    def standing(self) -> list[Json]:
        """Return how each node stands."""
        return [node.standing() for node in self.nodes()]


def refuse_cluster(root: Path) -> None:
    """Refuse a cluster's folder where a run or a sweep is wanted, and name the right commands."""
    if ClusterFolder(root).is_there():
        raise ValueError(
            f"expected a run or a sweep folder, {root} is a cluster that `folkman up` made; "
            f"see how it stands: folkman status {root}, or folkman dash --cluster {root}"
        )


class Process(NamedTuple):
    """A process that no other can be taken for: numbers are given again, its begin is not."""

    pid: int
    began: str = ""  # the boot of the machine, and the ticks since then; empty: not known
    place: str = ""  # where the number holds: a machine, and a container on it; empty: not known

    @classmethod
    def known(cls, pid: int) -> "Process":
        """Return the running process of a number."""
        return cls(pid, _began(pid) or "", _place())

    def text(self) -> str:
        """Return what a `pid` file says."""
        return f"{self.pid}\n{self.began}\n{self.place}\n"


def is_alive(process: Process) -> bool:
    """Tell whether a process runs, and not another one that was given its number since."""
    return process.began != "" and _began(process.pid) == process.began


def _place() -> str:
    """Return where numbers of processes are the same as here; a reboot does not change it."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return f"{socket.gethostname()}/{numbers}"


def _began(pid: int) -> str | None:
    """Return when the process of a number began; None if there is none, or it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if status[0] == "Z" else f"{boot}:{status[19]}"  # starttime, field 22 of proc(5)
